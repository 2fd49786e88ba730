//! Policy routing: packets with a mark are delivered to this host, whatever their destination.
//!
//! That takes a rule (`ip rule`) and a route (`ip route`) a family, which the kernel takes by
//! netlink messages (rtnetlink(7); constants are those of `linux/netlink.h`, `linux/rtnetlink.h`
//! and `linux/fib_rules.h`). The control plane's business: it may allocate.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{self as rx, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::datagram::Family;

const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const RTA_OIF: u16 = 4;
const RTA_TABLE: u16 = 15;
const FR_ACT_TO_TBL: u8 = 1;
/// A table whose number is in an attribute.
const RT_TABLE_COMPAT: u8 = 252;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
/// `lo` has this number in every network namespace (`LOOPBACK_IFINDEX` in `net/flow.h`).
const LOOPBACK: u32 = 1;
/// Bytes of a message's own header.
const HEADER_LEN: usize = 16;
/// Rules of one kind that are removed at most; there is one unless somebody adds more.
const RULES_MAX: usize = 64;

/// A rule and a route by which packets are delivered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalDelivery {
    /// Firewall mark of the packets.
    pub mark: u32,
    /// Number of the routing table that has the route alone; above 255.
    pub table: u32,
    /// Priority of the rule.
    pub priority: u32,
}

/// What making sure of something came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// It was there.
    Found,
    /// It was made.
    Made,
}

impl LocalDelivery {
    /// Makes what is missing of the rule and the route.
    ///
    /// # Errors
    /// `PERM` without CAP_NET_ADMIN; `AFNOSUPPORT` or `OPNOTSUPP` where the kernel does not have the
    /// family.
    pub fn ensure(&self, family: Family) -> Result<Ensured, Errno> {
        let socket = open()?;
        let exclusively = NLM_F_CREATE | NLM_F_EXCL;
        let mut ensured = Ensured::Found;
        for message in [
            self.route(family, RTM_NEWROUTE, exclusively),
            self.rule(family, RTM_NEWRULE, exclusively),
        ] {
            match ask(&socket, &message) {
                Ok(()) => ensured = Ensured::Made,
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(ensured)
    }

    /// Removes both; that they are not there is fine, and so is a kernel without the family.
    ///
    /// # Errors
    /// `PERM` without CAP_NET_ADMIN.
    pub fn remove(&self, family: Family) -> Result<(), Errno> {
        let socket = open()?;
        for message in [self.rule(family, RTM_DELRULE, 0), self.route(family, RTM_DELROUTE, 0)] {
            for _ in 0..RULES_MAX {
                match ask(&socket, &message) {
                    Ok(()) => {}
                    // No such rule, no such route or table, no such family.
                    Err(Errno::NOENT | Errno::SRCH | Errno::AFNOSUPPORT | Errno::OPNOTSUPP) => {
                        break;
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// `struct fib_rule_hdr` and attributes: packets with the mark go by the table.
    fn rule(&self, family: Family, kind: u16, flags: u16) -> Vec<u8> {
        let header = [address_family(family), 0, 0, 0, 0, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
        let attributes =
            [(FRA_PRIORITY, self.priority), (FRA_FWMARK, self.mark), (FRA_TABLE, self.table)];
        message(kind, flags, header, &attributes)
    }

    /// `struct rtmsg` and attributes: every destination is local.
    fn route(&self, family: Family, kind: u16, flags: u16) -> Vec<u8> {
        let header = [
            address_family(family),
            0,
            0,
            0,
            RT_TABLE_COMPAT,
            RTPROT_STATIC,
            RT_SCOPE_HOST,
            RTN_LOCAL,
            0,
            0,
            0,
            0,
        ];
        message(kind, flags, header, &[(RTA_OIF, LOOPBACK), (RTA_TABLE, self.table)])
    }
}

/// Whether this process may change routing and firewall rules (CAP_NET_ADMIN).
///
/// # Errors
/// The kernel does not tell.
pub fn may_administer() -> Result<bool, Errno> {
    use rustix::thread::{CapabilitySet, capabilities};
    Ok(capabilities(None)?.effective.contains(CapabilitySet::NET_ADMIN))
}

const fn address_family(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

/// A request that is to be acknowledged; all its numbers are in the host's order.
fn message(kind: u16, flags: u16, header: [u8; 12], attributes: &[(u16, u32)]) -> Vec<u8> {
    let len = HEADER_LEN + header.len() + 8 * attributes.len();
    let mut bytes = Vec::with_capacity(len);
    // A dozen attributes are far below 4 GiB.
    bytes.extend(u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Sequence number and port: one request at a time needs neither.
    bytes.extend([0; 8]);
    bytes.extend(header);
    for (name, value) in attributes {
        bytes.extend(8_u16.to_ne_bytes());
        bytes.extend(name.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
    }
    bytes
}

fn open() -> Result<OwnedFd, Errno> {
    // NETLINK_ROUTE is 0, which is what no protocol stands for.
    rx::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

/// Sends a request to the kernel and waits for its answer, which comes before the call returns.
fn ask(socket: &OwnedFd, request: &[u8]) -> Result<(), Errno> {
    rx::send(socket, request, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (_, len) = rx::recv(socket, &mut answer, RecvFlags::empty())?;
    errno(answer.get(..len).unwrap_or_default())
}

/// What `struct nlmsgerr` says: an errno, negative, or 0.
fn errno(answer: &[u8]) -> Result<(), Errno> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer
        .get(HEADER_LEN..HEADER_LEN + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(Errno::from_raw_os_error(code.saturating_neg())),
        _ => Err(Errno::BADMSG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELIVERY: LocalDelivery = LocalDelivery { mark: 0x11, table: 300, priority: 7 };

    /// Bytes as iproute2 sends them for `ip -6 rule add pref 7 fwmark 0x11 lookup 300`, but for the
    /// sequence number.
    #[test]
    #[cfg(target_endian = "little")]
    fn a_rule_has_the_form_of_the_kernel() {
        let bytes = DELIVERY.rule(Family::V6, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL);
        let expected = [
            &[52, 0, 0, 0, 32, 0, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[10, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
            &[8, 0, 6, 0, 7, 0, 0, 0, 8, 0, 10, 0, 17, 0, 0, 0, 8, 0, 15, 0, 44, 1, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn an_answer_is_an_errno() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = [&20_u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
            bytes.extend(code.to_ne_bytes());
            bytes
        };
        assert_eq!(errno(&answer(NLMSG_ERROR, 0)), Ok(()));
        assert_eq!(errno(&answer(NLMSG_ERROR, -17)), Err(Errno::EXIST));
        assert_eq!(errno(&answer(3, 0)), Err(Errno::BADMSG));
        assert_eq!(errno(&answer(NLMSG_ERROR, 0)[..17]), Err(Errno::BADMSG));
        assert_eq!(errno(&[]), Err(Errno::BADMSG));
    }
}
