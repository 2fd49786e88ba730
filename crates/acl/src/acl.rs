//! The rules of one file, and what they say about addresses.

use std::net::IpAddr;

use crate::domains::Domains;
use crate::expressions::Expressions;
use crate::ranges::AddressSet;

/// Where a client sends a connection or a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Through the server.
    Proxied,
    /// Straight to the target.
    Direct,
}

/// Whether a server serves a client, or a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// It does.
    Admitted,
    /// It does not.
    Refused,
}

/// What is known about a name before it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision<T> {
    /// No address can change it.
    Known(T),
    /// Rules for addresses decide: resolve the name, then ask with the addresses.
    NeedsAddresses,
}

/// Who uses an [`Acl`]; each side has sections that say nothing to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `ss-local` and its like: routes targets.
    Client,
    /// `ss-server`: admits clients and targets.
    Server,
}

/// Rules that cannot do anything on one [`Side`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remark {
    /// On a client: the first line of the `[outbound_…]` sections, which are for servers.
    Outbound {
        /// Counted from 1.
        line: u32,
    },
    /// On a server: the first rule in `[black_list]` or `[white_list]` that names hosts. These
    /// lists are about clients there, and clients have no names.
    ClientNames {
        /// Counted from 1.
        line: u32,
    },
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outbound { line } => {
                write!(f, "line {line}: the [outbound_…] sections have no effect on a client")
            }
            Self::ClientNames { line } => write!(
                f,
                "line {line}: on a server this list is about clients' addresses, so rules for names \
                 have no effect in it; write rules for targets below [outbound_block_list]"
            ),
        }
    }
}

/// How many rules an [`Acl`] holds, for a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Different domains, with those that expressions were rewritten to.
    pub domains: usize,
    /// Disjoint address ranges.
    pub ranges: usize,
    /// Expressions that are searched with.
    pub expressions: usize,
}

/// The four lists of a file; `[black_list]` is `Bypass`, `[white_list]` is `Proxy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Bypass,
    Proxy,
    Block,
    Allow,
}

/// How many there are.
pub(crate) const LISTS: usize = 4;

/// Addresses and expressions of one list; its domains are in [`Acl::domains`].
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) addrs: AddressSet,
    pub(crate) expressions: Expressions,
}

/// The rules of one file. Immutable; share it in an `Arc`. For names each worker needs some
/// [`Memory`](crate::Memory).
#[derive(Debug)]
pub struct Acl {
    /// Where targets go that no rule names.
    pub(crate) route: Route,
    /// Whether targets are served that no rule names.
    pub(crate) outbound: Admission,
    pub(crate) domains: Domains,
    pub(crate) lists: [Rules; LISTS],
    /// First lines of rules that one side has no use for.
    pub(crate) outbound_line: Option<u32>,
    pub(crate) client_names_line: Option<u32>,
}

impl Acl {
    /// Where a client sends what is meant for `addr`: direct if `[bypass_list]` has it, else
    /// through the proxy if `[proxy_list]` has it, else by the mode.
    pub fn route_addr(&self, addr: IpAddr) -> Route {
        if self.list(List::Bypass).addrs.contains(addr) {
            Route::Direct
        } else if self.list(List::Proxy).addrs.contains(addr) {
            Route::Proxied
        } else {
            self.route
        }
    }

    /// Where a client sends what is meant for a name with these addresses, after
    /// [`Decision::NeedsAddresses`]: by the mode, unless one address goes the other way.
    ///
    /// Without addresses, that is if the look-up failed, the mode decides.
    pub fn route_addrs(&self, addrs: &[IpAddr]) -> Route {
        let other = |addr: &IpAddr| Some(self.route_addr(*addr)).filter(|&to| to != self.route);
        addrs.iter().find_map(other).unwrap_or(self.route)
    }

    /// Whether a server serves a client at `addr`: not if `[black_list]` has it; else if
    /// `[white_list]` has it or the mode is `[accept_all]`.
    pub fn admit_client(&self, addr: IpAddr) -> Admission {
        match self.route_addr(addr) {
            Route::Proxied => Admission::Admitted,
            Route::Direct => Admission::Refused,
        }
    }

    /// Whether a server connects, or sends datagrams, to `addr`: not if `[outbound_block_list]`
    /// has it; else if `[outbound_allow_list]` has it or the mode is `[outbound_allow_all]`.
    ///
    /// After [`Decision::NeedsAddresses`] for a name this decides for each of its addresses: dial
    /// only those that are admitted, and refuse the name if none is (see [`Acl::admitted`]).
    pub fn admit_addr(&self, addr: IpAddr) -> Admission {
        if self.list(List::Block).addrs.contains(addr) {
            Admission::Refused
        } else if self.list(List::Allow).addrs.contains(addr) {
            Admission::Admitted
        } else {
            self.outbound
        }
    }

    /// Those of a name's addresses that a server may connect to, in the same order.
    pub fn admitted<'a>(&'a self, addrs: &'a [IpAddr]) -> impl Iterator<Item = IpAddr> + 'a {
        addrs.iter().copied().filter(|&addr| self.admit_addr(addr) == Admission::Admitted)
    }

    /// The route of everything, if no rule for a client can say otherwise.
    pub fn only_route(&self) -> Option<Route> {
        self.is_blank(&[List::Bypass, List::Proxy]).then_some(self.route)
    }

    /// The admission of all targets, if no rule for targets can say otherwise.
    pub fn only_admission(&self) -> Option<Admission> {
        self.is_blank(&[List::Block, List::Allow]).then_some(self.outbound)
    }

    /// Rules without effect on `side`, to warn about.
    pub fn remark(&self, side: Side) -> Option<Remark> {
        match side {
            Side::Client => self.outbound_line.map(|line| Remark::Outbound { line }),
            Side::Server => self.client_names_line.map(|line| Remark::ClientNames { line }),
        }
    }

    /// How many rules there are.
    pub fn counts(&self) -> Counts {
        Counts {
            domains: self.domains.len(),
            ranges: self.lists.iter().map(|rules| rules.addrs.len()).sum(),
            expressions: self.lists.iter().map(|rules| rules.expressions.len()).sum(),
        }
    }

    pub(crate) const fn list(&self, list: List) -> &Rules {
        &self.lists[list as usize]
    }

    fn is_blank(&self, lists: &[List]) -> bool {
        !self.domains.concern(lists)
            && lists
                .iter()
                .map(|&list| self.list(list))
                .all(|rules| rules.addrs.is_empty() && rules.expressions.len() == 0)
    }
}
