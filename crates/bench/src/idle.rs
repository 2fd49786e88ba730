//! `idle`: resident memory per resting connection.
//!
//! Both programs are read when they have just begun to listen, untouched, and again a second after
//! the last of N connections has moved 10 bytes each way. The difference divided by N is the
//! figure; what a program reserves once, at its first connection, is part of it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::comparison::{Comparison, Turn};
use crate::error::{Context, Error};
use crate::generator::echo::EchoTarget;
use crate::generator::{Destination, Entry, socks};
use crate::pair::{Ends, Purpose};
use crate::report::{Better, Metric};

static SERVER: Metric = Metric::new("server", "KiB/conn", Better::Lower, 2);
static LOCAL: Metric = Metric::new("local", "KiB/conn", Better::Lower, 2);
static SERVER_FRESH: Metric = Metric::new("server_fresh", "KiB", Better::Lower, 0);
static LOCAL_FRESH: Metric = Metric::new("local_fresh", "KiB", Better::Lower, 0);

/// What each connection moves in each direction.
const PAYLOAD: &[u8; 10] = b"0123456789";
/// Rest before the second reading.
const REST: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(comparison: &mut Comparison) -> Result<(), Error> {
    let target = EchoTarget::on_localhost()?;
    comparison.take_turns(Purpose::default(), |turn| measure(turn, &target));
    Ok(())
}

fn measure(turn: &mut Turn<'_>, target: &EchoTarget) -> Result<(), Error> {
    let destination = target
        .addrs()
        .next()
        .map(Destination::Ip)
        .ok_or_else(|| Error::Run("the echo target has no IPv4 address".to_owned()))?;
    let count = turn.options.connections;
    let fresh = resident(turn)?;
    let mut connections = Vec::with_capacity(count);
    for number in 1..=count {
        let opened = one_exchange(turn.pair.entry, &destination);
        connections.push(opened.context(|| format!("connection {number} of {count} failed"))?);
    }
    thread::sleep(REST);
    let resting = resident(turn)?;
    drop(connections);

    let per_connection = |after: f64, before: f64| (after - before) / count as f64;
    let values = vec![
        (&SERVER, per_connection(resting[0], fresh[0])),
        (&LOCAL, per_connection(resting[1], fresh[1])),
        (&SERVER_FRESH, fresh[0]),
        (&LOCAL_FRESH, fresh[1]),
    ];
    turn.record(format!("{}, {count} connections", turn.method), values);
    Ok(())
}

/// Resident KiB of server and local end.
fn resident(turn: &Turn<'_>) -> Result<[f64; 2], Error> {
    let Some(Ends { server, local }) = turn.pair.ends() else {
        return Err(Error::Run("there is no process to look at".to_owned()));
    };
    Ok([server.resident_kib()? as f64, local.resident_kib()? as f64])
}

/// Opens a connection that moves the payload there and back, and keeps it open.
fn one_exchange(entry: Entry, destination: &Destination) -> io::Result<TcpStream> {
    let mut stream = socks::open(entry, destination)?;
    stream.write_all(PAYLOAD)?;
    let mut answer = [0; PAYLOAD.len()];
    stream.read_exact(&mut answer)?;
    if answer != *PAYLOAD {
        return Err(io::Error::other("the echo is wrong"));
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_rest_open_after_their_exchange() {
        let target = EchoTarget::on_localhost().unwrap();
        let destination = Destination::Ip(target.addrs().next().unwrap());
        let mut open: Vec<TcpStream> =
            (0..50).map(|_| one_exchange(Entry::Direct, &destination).unwrap()).collect();
        for stream in &mut open {
            stream.write_all(b"!").unwrap();
            let mut answer = [0];
            stream.read_exact(&mut answer).unwrap();
        }
    }
}
