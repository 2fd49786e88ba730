//! What the firewall took off its way and gave to us: where it was going, and whether it may go on.
//!
//! A redirector's own connections must not be given back to it. The rules see to that (its mark, its
//! user, the servers' addresses); where they do not, a connection to the server would come back as
//! one more connection to the server, and so on until descriptors run out. So two destinations end
//! here, at the first round: our own listeners, and a server of ours when it is this host that
//! talks to it. A client elsewhere that uses the same server by itself is served.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use adit_resolver::Outcome;
use adit_sys::Errno;
use adit_sys::datagram::is_local_address;

use crate::guard::Transport;
use crate::names::Names;
use crate::role::{Redirect, Upstream, UpstreamHost};

/// Why something goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Astray {
    /// It was meant for us: a client used our port as if it were a proxy, or a rule goes in circles.
    OwnListener,
    /// It comes from here and goes to a server of ours: most likely it is ours.
    OwnServer,
    /// The kernel knows no destination: nothing redirected it.
    NoDestination(Option<Errno>),
}

impl fmt::Display for Astray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnListener => f.write_str(
                "it was sent to this program itself; only what firewall rules redirect has a \
                 destination",
            ),
            Self::OwnServer => f.write_str(
                "it is on its way from this host to the server, and would go in circles; have the \
                 firewall rules leave out the server or this program's mark (adit redir rules \
                 does both)",
            ),
            Self::NoDestination(None) => f.write_str("it came without its destination"),
            Self::NoDestination(Some(e)) => {
                write!(f, "its destination is not known ({e}); no REDIRECT rule sent it here")
            }
        }
    }
}

/// Checks a destination. Costs a comparison of ports for each listener and server; only where one is
/// equal, more.
///
/// # Errors
/// Why it goes no further.
pub(crate) fn check(
    (redirect, servers): (&Redirect, &[Upstream]),
    (names, now): (&mut Names, Instant),
    source: SocketAddr,
    destination: SocketAddr,
    transport: Transport,
) -> Result<(), Astray> {
    if redirect.guard.check(destination, transport).is_err() {
        return Err(Astray::OwnListener);
    }
    let mut same_port = servers.iter().filter(|server| server.port == destination.port());
    let to_server = same_port.any(|server| match &server.host {
        UpstreamHost::Ip(ip) => ip.to_canonical() == destination.ip(),
        UpstreamHost::Name(name) => has_address(names.known(now, name), destination.ip()),
    });
    if to_server && is_local_address(source.ip()) {
        return Err(Astray::OwnServer);
    }
    Ok(())
}

/// Whether a name that was looked up lately has the address. One that was not is no server that we
/// have connected to.
fn has_address(outcome: Option<Outcome>, ip: IpAddr) -> bool {
    match outcome {
        Some(Outcome::Found { addrs, .. }) => addrs.as_slice().contains(&ip),
        _ => false,
    }
}
