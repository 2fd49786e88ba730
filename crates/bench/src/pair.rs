//! A running pair of programs: server and local end, ready for clients.
//!
//! Invariants: both listen on 127.0.0.1 only; both are killed and reaped, and their files removed,
//! when the value is dropped. `Direct` is a pair without processes.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::configuration::{self, Agreement, Inbound};
use crate::counter;
use crate::error::{Context, Error};
use crate::generator::Entry;
use crate::peers::{Installed, Program};
use crate::process::{Launcher, Process, Recipe};
use crate::scratch::Scratch;

/// A port that was free may be taken before the program binds it; then other ports are tried.
const ATTEMPTS: usize = 3;
/// Time for the remaining workers of a program to listen once the first one does.
const SETTLE: Duration = Duration::from_millis(100);

/// How to run a pair.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// Cipher name.
    pub(crate) method: &'a str,
    /// Worker threads of our programs; their default when not given.
    pub(crate) workers: Option<usize>,
    /// What the pair is for.
    pub(crate) purpose: Purpose<'a>,
}

/// What a pair is for; by default SOCKS5 connections without datagrams.
#[derive(Clone, Copy, Default)]
pub(crate) struct Purpose<'a> {
    /// The malloc counter library to load into both programs.
    pub(crate) counter: Option<&'a Path>,
    /// Whether datagrams are relayed as well.
    pub(crate) udp: bool,
    /// What the local end takes.
    pub(crate) inbound: Inbound,
    /// The access control list of both ends.
    pub(crate) acl: Option<&'a Path>,
}

impl Purpose<'_> {
    /// Whether our programs alone are asked to do it.
    pub(crate) const fn is_ours(&self) -> bool {
        matches!(self.inbound, Inbound::Redirected(_)) || self.acl.is_some()
    }
}

/// A running pair.
pub(crate) struct Pair {
    /// Where a client connects.
    pub(crate) entry: Entry,
    /// Port of the local end; 0 for `Direct`.
    pub(crate) local_port: u16,
    ends: Option<Ends>,
    // After the processes, so that they are gone before their files.
    scratch: Scratch,
}

/// The two programs of a pair.
pub(crate) struct Ends {
    /// The Shadowsocks server.
    pub(crate) server: Process,
    /// The clients' side.
    pub(crate) local: Process,
}

/// User and system time of both ends, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    /// The server's share.
    pub(crate) server: f64,
    /// The local end's share.
    pub(crate) local: f64,
}

impl Pair {
    /// Starts both ends and waits until they listen.
    pub(crate) fn start(
        launcher: &Launcher,
        installed: &Installed,
        setting: Setting<'_>,
    ) -> Result<Self, Error> {
        let mut attempt = 1;
        loop {
            match Self::try_start(launcher, installed, setting) {
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    fn try_start(
        launcher: &Launcher,
        installed: &Installed,
        setting: Setting<'_>,
    ) -> Result<Self, Error> {
        let scratch = Scratch::new()?;
        if installed.program == Program::Direct {
            return Ok(Self { entry: Entry::Direct, local_port: 0, ends: None, scratch });
        }
        let [server_port, local_port] = free_ports()?;
        let password = configuration::password(setting.method)?;
        let Purpose { counter, udp, inbound, acl } = setting.purpose;
        let agreement = Agreement {
            method: setting.method,
            password: &password,
            server_port,
            local_port,
            udp,
            inbound,
            acl,
        };
        let [server, local_document] = agreement.documents(installed.program);
        let start = |role, program: &Path, document: &str, port, inbound| {
            let config = scratch.write(&format!("{role}.json"), document)?;
            let recipe = Recipe {
                role,
                program,
                args: configuration::arguments(
                    installed.program,
                    &config,
                    setting.workers,
                    inbound,
                ),
                environment: environment(counter, &scratch),
                log: scratch.file(&format!("{role}.log")),
            };
            let mut process = Process::start(launcher, recipe)?;
            process.wait_until_listening(port)?;
            Ok::<_, Error>(process)
        };
        // A server takes no target of its own; its arguments are those of the default.
        let mut server =
            start("server", &installed.server, &server, server_port, Inbound::default())?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, local_port));
        let (local, entry) = match inbound {
            Inbound::Socks5 => (installed.local.clone(), Entry::Socks5(addr)),
            Inbound::Tunnel(_) => (installed.tunnel.clone(), Entry::Tunnel(addr)),
            Inbound::Redirected(_) => (installed.local.with_file_name("ss-redir"), Entry::Direct),
        };
        let mut local = start("local", &local, &local_document, local_port, inbound)?;
        if udp {
            server.wait_until_bound(server_port)?;
        }
        // Where a SOCKS5 server takes datagrams is up to it, and is known when it says so.
        if udp && matches!(inbound, Inbound::Tunnel(_) | Inbound::Redirected(_)) {
            local.wait_until_bound(local_port)?;
        }
        thread::sleep(SETTLE);
        Ok(Self { entry, local_port, ends: Some(Ends { server, local }), scratch })
    }

    /// Both programs; `None` for `Direct`.
    pub(crate) const fn ends(&self) -> Option<&Ends> {
        self.ends.as_ref()
    }

    /// Fails, with its last words, if either program has ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        match &mut self.ends {
            Some(ends) => {
                ends.server.check_alive()?;
                ends.local.check_alive()
            }
            None => Ok(()),
        }
    }

    /// CPU time that both have used; `None` for `Direct`.
    pub(crate) fn cpu(&self) -> Result<Option<Cpu>, Error> {
        let Some(ends) = &self.ends else {
            return Ok(None);
        };
        Ok(Some(Cpu { server: ends.server.cpu_seconds()?, local: ends.local.cpu_seconds()? }))
    }

    /// The file that the malloc counter library keeps for this pair.
    pub(crate) fn counter_file(&self) -> PathBuf {
        counter_file(&self.scratch)
    }
}

fn counter_file(scratch: &Scratch) -> PathBuf {
    scratch.file("malloc")
}

fn environment(library: Option<&Path>, scratch: &Scratch) -> Vec<(&'static str, OsString)> {
    library.map_or_else(Vec::new, |library| {
        vec![("LD_PRELOAD", library.into()), (counter::VARIABLE, counter_file(scratch).into())]
    })
}

/// Two ports that nobody used for TCP or UDP a moment ago.
fn free_ports() -> Result<[u16; 2], Error> {
    let bind = || -> Result<((TcpListener, UdpSocket), u16), Error> {
        let context = || "cannot find a free port".to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(context)?;
        let port = listener.local_addr().context(context)?.port();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).context(context)?;
        Ok(((listener, socket), port))
    };
    let ((_first, first), (_second, second)) = (bind()?, bind()?);
    Ok([first, second])
}
