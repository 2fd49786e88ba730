//! What every pair of programs has to carry.

use crate::account::{Account, Guise};
use crate::datagram_target::DatagramTarget;
use crate::datagrams::Lens;
use crate::exchange::{Ending, Exchange, FirstWord};
use crate::failure::Failure;
use crate::programs::Program;
use crate::session::{Client, Relays, Server};
use crate::target::Host;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes that the target sends after the client's last one.
const REST: u64 = 100 * KIB + 1;
/// Lengths of datagrams and of their answers.
const LENS: [Lens; 8] = [
    Lens { upload: 0, download: 0 },
    Lens { upload: 1, download: 0 },
    Lens { upload: 1, download: 1 },
    Lens { upload: 128, download: 128 },
    Lens { upload: 1200, download: 1200 },
    Lens { upload: 4096, download: 4096 },
    Lens { upload: 60_000, download: 1200 },
    Lens { upload: 60_000, download: 60_000 },
];

/// Runs every exchange with one key for everybody.
///
/// # Errors
/// When a program is missing or an exchange fails.
pub fn relays(client: Program, server: Program, method: &'static str) -> Result<(), Failure> {
    let account = Account::shared(method);
    let server = Server::start(server, &account)?;
    let client = server.client(client, &account)?;
    small(&client)?;
    large(&client)
}

/// Runs every exchange through simple-obfs, and datagrams, which go beside it.
///
/// # Errors
/// When a program is missing or an exchange fails.
pub fn disguises(
    client: Program,
    server: Program,
    method: &'static str,
    guise: Guise,
) -> Result<(), Failure> {
    let account = Account::in_guise(method, guise);
    let server = Server::start(server, &account)?;
    let connected = server.client(client, &account)?;
    small(&connected)?;
    large(&connected)?;
    connected.run_datagrams(&LENS)
}

/// Runs datagrams of every length with one key for everybody.
///
/// # Errors
/// When a program is missing or a datagram fails.
pub fn relays_datagrams(
    client: Program,
    server: Program,
    method: &'static str,
) -> Result<(), Failure> {
    let account = Account::shared(method);
    let server = Server::start(server, &account)?;
    server.client(client, &account)?.run_datagrams(&LENS)
}

/// Runs exchanges and datagrams as each user of a server with several, and as nobody.
///
/// # Errors
/// When a program is missing, an exchange of a user fails or one of a stranger does not.
pub fn identities(client: Program, server: Program, method: &'static str) -> Result<(), Failure> {
    let server = Server::start(server, &Account::of_user(method, 0))?;
    for number in 0..3 {
        let client = server.client(client, &Account::of_user(method, number))?;
        small(&client)?;
        client.run_datagrams(&LENS)?;
    }
    let user = server.client(client, &Account::of_user(method, 1))?;
    large(&user)?;
    refuses(&server.client(client, &Account::of_stranger(method))?, &user)
}

/// Runs exchanges through our tunnel and a server.
///
/// # Errors
/// When a program is missing or an exchange fails.
pub fn tunnels(server: Program, method: &'static str) -> Result<(), Failure> {
    let account = Account::shared(method);
    let server = Server::start(server, &account)?;
    for host in Host::ALL {
        for len in [1, MIB] {
            server.tunnel(&account, host, &sized(len, server.ending()))?;
        }
        server.tunnel(&account, host, &target_first(server.ending()))?;
    }
    Ok(())
}

/// Runs datagrams of every length through a tunnel and a server.
///
/// # Errors
/// When a program is missing or a datagram fails.
pub fn tunnels_datagrams(
    tunnel: Program,
    server: Program,
    method: &'static str,
) -> Result<(), Failure> {
    let account = Account::shared(method);
    let server = Server::start(server, &account)?;
    let run = |host| server.tunnel_datagrams(tunnel, &account, host, &LENS);
    Host::ALL.into_iter().try_for_each(run)
}

/// Runs exchanges and datagrams through relays, to a server with several users and to one with a
/// single key.
///
/// # Errors
/// When a program is missing, an exchange fails, or one with an unknown key does not.
pub fn hops(
    client: Program,
    relays: &[Program],
    server: Program,
    method: &'static str,
) -> Result<(), Failure> {
    let of_many = Server::start(server, &Account::of_user(method, 0))?;
    let alone = Account::shared_as(method, "a second server");
    let of_one = Server::start(server, &alone)?;
    let relays = Relays::start(relays, method, &[&of_many, &of_one])?;
    for number in 0..3 {
        let client = relays.to(&of_many).client(client, &Account::of_user(method, number))?;
        small(&client)?;
        client.run_datagrams(&LENS)?;
    }
    let user = relays.to(&of_one).client(client, &alone)?;
    small(&user)?;
    user.run_datagrams(&LENS)?;
    large(&user)?;
    refuses(&relays.to(&of_many).client(client, &Account::of_stranger(method))?, &user)?;
    let unknown = Account::shared_as(method, "no server");
    refuses(&relays.to(&of_one).client(client, &unknown)?, &user)
}

/// Makes sure that nothing of a stranger reaches its target, while a user is served.
fn refuses(stranger: &Client<'_>, user: &Client<'_>) -> Result<(), Failure> {
    let target = DatagramTarget::open(Host::Ipv4)?;
    let in_vain = stranger.send_in_vain(&target)?;
    // What follows takes many times as long as a datagram takes on its way.
    stranger.reaches_nothing(Host::Ipv4)?;
    user.run_datagrams(&LENS)?;
    in_vain.heard_nothing(&target).map_err(|failure| failure.of("a stranger"))
}

/// Every kind of target, from the smallest stream to several records.
fn small(client: &Client<'_>) -> Result<(), Failure> {
    for host in Host::ALL {
        for len in [1, 64 * KIB] {
            client.run(host, &sized(len, client.ending()))?;
        }
        if client.target_may_begin() {
            client.run(host, &target_first(client.ending()))?;
        }
    }
    Ok(())
}

/// More than every buffer on the way holds, and enough for nonces to pass one byte by far.
fn large(client: &Client<'_>) -> Result<(), Failure> {
    client.run(Host::Name, &sized(MIB, client.ending()))?;
    client.run(Host::Ipv4, &sized(64 * MIB, client.ending()))
}

const fn sized(len: u64, ending: Ending) -> Exchange {
    Exchange { upload: len, download: len, rest: REST, first: FirstWord::Either, ending }
}

const fn target_first(ending: Ending) -> Exchange {
    Exchange { upload: 10 * KIB, download: KIB, rest: REST, first: FirstWord::Target, ending }
}
