//! Managers and the servers that report to them: ours with those of other programs.
//!
//! A manager of another program starts servers of its own. Their process ids are in files of its
//! working directory, and what is left of them ends with the value here.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::account::Account;
use crate::documents;
use crate::exchange::{Ending, Exchange, FirstWord, limit};
use crate::failure::Failure;
use crate::ports::Port;
use crate::process::{Listens, Process};
use crate::programs::{Program, Role};
use crate::scratch::Scratch;
use crate::socks5;
use crate::target::{Host, Target};

/// The method of every port here.
const METHOD: &str = "aes-256-gcm";
/// Bytes that go each way through a server that reports.
const BYTES: u64 = 100_000;
/// How long a manager may take to answer, or a server to report: each does so every 5 s.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer may take before a request is sent again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Where servers listen that report, beside the manager's own port of the same number.
const REPORTER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How a manager is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// By UDP.
    Udp,
    /// By a Unix socket.
    Unix,
}

/// Which words a manager of ours has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// Those of the program that it is.
    Own,
    /// Ours under the name that shadowsocks-rust's has.
    Rust,
    /// Its own, from one that takes reports: that of shadowsocks-rust (seen with 1.25) does so only
    /// when it starts `ssserver`, which it looks for in `PATH`.
    OwnWithReports,
}

/// A running manager. Fields in the order in which they must be dropped.
struct Manager {
    process: Process,
    socket: Asker,
    /// Kept for as long as it is used.
    _port: Option<Port>,
    scratch: Scratch,
}

enum Asker {
    Udp(UdpSocket),
    Unix(UnixDatagram, PathBuf),
}

impl Asker {
    fn send(&self, request: &str) -> std::io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.send(request.as_bytes()),
            Self::Unix(socket, manager) => socket.send_to(request.as_bytes(), manager),
        }
    }

    /// The next answer; nothing when none comes in a while.
    fn receive(&self) -> Option<String> {
        let mut buf = vec![0; 1 << 16];
        let len = match self {
            Self::Udp(socket) => socket.recv(&mut buf),
            Self::Unix(socket, _) => socket.recv(&mut buf),
        };
        let len = len.ok()?;
        Some(String::from_utf8_lossy(&buf[..len]).into_owned())
    }
}

impl Manager {
    fn start(program: Program, words: Words, over: Over, host: Ipv4Addr) -> Result<Self, Failure> {
        let scratch = Scratch::new()?;
        let (address, port, socket) = address(over, &scratch)?;
        let workdir = scratch.file("work").into_os_string();
        let arg = |text: &str| OsString::from(text);
        let (file, mut args) = match (program, words) {
            (Program::Adit, Words::Rust) => {
                let file = program.find(Role::Manager)?.with_file_name("adit");
                (file, vec![arg("ssmanager"), arg("--manager-addr"), address])
            }
            (Program::Rust, _) => {
                // The directory is not made by it.
                fs::create_dir(&workdir).map_err(Failure::io("make a directory"))?;
                let file = program.find(Role::Manager)?;
                let mut args = vec![arg("--manager-addr"), address];
                if words == Words::OwnWithReports {
                    args.extend(["--manager-server-mode", "standalone"].map(arg));
                    args.extend([arg("--manager-server-working-directory"), workdir]);
                }
                (file, args)
            }
            _ => {
                let mut args = vec![arg("--manager-address"), address, arg("-D"), workdir];
                if program == Program::Libev {
                    args.push(arg("--executable"));
                    args.push(program.find(Role::Server)?.into_os_string());
                }
                (program.find(Role::Manager)?, args)
            }
        };
        let rust = program == Program::Rust || words == Words::Rust;
        let host_option = if rust { "--server-host" } else { "-s" };
        args.extend([host_option, &host.to_string(), "-m", METHOD].map(arg));
        let name = format!("the {} manager", program.name());
        let process = Process::start(name, &file, &args, scratch.file("log"))?;
        let this = Self { process, socket, _port: port, scratch };
        let ready = this.until(|| Ok(this.answers("ping")?.into_iter().next()));
        ready.map_err(|failure| this.explain(failure))?;
        Ok(this)
    }

    /// What it answers to a request: everything before the answer to the `ping` that follows it.
    fn answers(&self, request: &str) -> Result<Vec<String>, Failure> {
        // Late answers to earlier questions.
        while matches!(&self.socket, Asker::Udp(_)) && self.try_receive().is_some() {}
        if self.socket.send(request).is_err() || self.socket.send("ping").is_err() {
            return Ok(Vec::new());
        }
        let mut answers = Vec::new();
        while let Some(answer) = self.socket.receive() {
            let is_ping = answer.starts_with("stat:");
            answers.push(answer);
            if is_ping && request != "ping" || answers.len() == 2 && request == "ping" {
                return Ok(answers);
            }
        }
        Ok(Vec::new())
    }

    fn try_receive(&self) -> Option<String> {
        let Asker::Udp(socket) = &self.socket else { return None };
        socket.set_nonblocking(true).ok()?;
        let received = self.socket.receive();
        socket.set_nonblocking(false).ok()?;
        received
    }

    /// What it has counted for a port.
    fn traffic(&self, port: u16) -> Result<Option<u64>, Failure> {
        let name = format!("\"{port}\":");
        let answers = self.answers("ping")?;
        let bytes = answers.first().and_then(|answer| {
            let rest = &answer[answer.find(&name)? + name.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            rest[..end].parse().ok()
        });
        Ok(bytes)
    }

    fn add(&self, port: u16, password: &str) -> Result<(), Failure> {
        let request = format!(r#"add: {{"server_port":{port},"password":"{password}"}}"#);
        let answers = self.answers(&request)?;
        match answers.first().map(|answer| answer.trim()) {
            Some("ok") => Ok(()),
            answer => Err(self.explain(Failure::new(format!("no ok but {answer:?}")))),
        }
    }

    fn until<T>(&self, look: impl Fn() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if Instant::now() > deadline {
                return Err(self.explain(Failure::new("did not happen in time")));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn explain(&self, failure: Failure) -> Failure {
        failure.followed_by(&self.process.log_tail())
    }
}

impl Drop for Manager {
    /// Ends the servers that a manager of another program has started.
    fn drop(&mut self) {
        let Ok(files) = fs::read_dir(self.scratch.file("work")) else { return };
        let is_pid = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "pid");
        for path in files.flatten().map(|entry| entry.path()).filter(is_pid) {
            let text = fs::read_to_string(path).unwrap_or_default();
            if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
                // One that has ended already is fine.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    }
}

/// An address of a manager, and a socket to reach it by.
fn address(over: Over, scratch: &Scratch) -> Result<(OsString, Option<Port>, Asker), Failure> {
    let io = || Failure::io("open a socket to a manager");
    match over {
        Over::Udp => {
            let port = Port::reserve()?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io())?;
            socket.connect(address).map_err(io())?;
            socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(io())?;
            Ok((address.to_string().into(), Some(port), Asker::Udp(socket)))
        }
        Over::Unix => {
            let path = scratch.file("manager");
            let socket = UnixDatagram::bind(scratch.file("asker")).map_err(io())?;
            socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(io())?;
            Ok((path.clone().into_os_string(), None, Asker::Unix(socket, path)))
        }
    }
}

/// A server that reports to the manager at `address`, and bytes through it.
struct Reporter {
    process: Process,
    account: Account,
    scratch: Scratch,
}

impl Reporter {
    fn start(program: Program, port: u16, address: &OsString) -> Result<Self, Failure> {
        let account = Account::shared(METHOD);
        let scratch = Scratch::new()?;
        let mut document = documents::server(program, &account, port);
        document["server"] = REPORTER.to_string().into();
        let file = scratch.write("server.json", &document.to_string())?;
        let mut args = documents::arguments(program, &file);
        let option = if program == Program::Rust { "--manager-addr" } else { "--manager-address" };
        args.extend([option.into(), address.clone()]);
        let name = format!("the {} server", program.name());
        let program_file = program.find(Role::Server)?;
        let mut process = Process::start(name, &program_file, &args, scratch.file("log"))?;
        process.wait_until_ready(port, Listens::TcpAndUdp, program.how_to_install())?;
        Ok(Self { process, account, scratch })
    }

    /// Moves bytes through it, by a client of ours.
    fn use_it(&self, port: u16) -> Result<(), Failure> {
        let local = Port::reserve()?;
        let mut document = documents::client(Program::Adit, &self.account, port, local.number());
        document["server"] = REPORTER.to_string().into();
        let file = self.scratch.write("client.json", &document.to_string())?;
        let args = documents::arguments(Program::Adit, &file);
        let name = "our client".to_owned();
        let program = Program::Adit.find(Role::Client)?;
        let mut client = Process::start(name, &program, &args, self.scratch.file("client.log"))?;
        client.wait_until_ready(local.number(), Listens::TcpAndUdp, "")?;
        let target = Target::listen(Host::Ipv4)?;
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, local.number()));
        let mut stream = stream.map_err(Failure::io("connect to the client"))?;
        limit(&stream)?;
        socks5::connect(&mut stream, Host::Ipv4, target.port())?;
        let exchange = Exchange {
            upload: BYTES,
            download: BYTES,
            rest: 0,
            first: FirstWord::Either,
            ending: Ending::CloseBoth,
        };
        exchange.run(&stream, &target).map_err(|failure| {
            failure.followed_by(&self.process.log_tail()).followed_by(&client.log_tail())
        })
    }
}

/// Makes sure that a manager counts what a server reports to it for a port that it knows.
///
/// # Errors
/// When a program is missing, or the report does not arrive.
pub fn reports(server: Program, manager: Program, over: Over) -> Result<(), Failure> {
    let manager = Manager::start(manager, Words::OwnWithReports, over, Ipv4Addr::LOCALHOST)?;
    let port = Port::reserve()?;
    let address = match &manager.socket {
        Asker::Udp(socket) => {
            let address = socket.peer_addr().map_err(Failure::io("ask for an address"))?;
            OsString::from(address.to_string())
        }
        Asker::Unix(_, path) => path.clone().into_os_string(),
    };
    // First, while nobody else has the number.
    let reporter = Reporter::start(server, port.number(), &address)?;
    manager.add(port.number(), "another password")?;
    reporter.use_it(port.number())?;
    let counted =
        manager.until(|| Ok(manager.traffic(port.number())?.filter(|bytes| *bytes >= 2 * BYTES)));
    counted.map(drop).map_err(|failure| failure.followed_by(&reporter.process.log_tail()))
}

/// Makes sure that our manager answers requests with the same bytes as another.
///
/// # Errors
/// When a program is missing, or they differ.
pub fn answers_alike(peer: Program, over: Over) -> Result<(), Failure> {
    let words = if peer == Program::Rust { Words::Rust } else { Words::Own };
    let theirs = Manager::start(peer, Words::Own, over, Ipv4Addr::LOCALHOST)?;
    let ours = Manager::start(Program::Adit, words, over, REPORTER)?;
    let port = Port::reserve()?;
    let (first, second) = (port.number(), Port::reserve()?);
    let second = second.number();
    for request in [
        "ping".to_owned(),
        "list".to_owned(),
        format!(r#"add: {{"server_port":{first},"password":"a"}}"#),
        "list".to_owned(),
        "ping".to_owned(),
        // One that is there is replaced.
        format!(r#"remove: {{"server_port":{first}}}"#),
        format!(r#"remove: {{"server_port":{first}}}"#),
        format!(r#"add: {{"server_port":{second},"password":"b c","method":"aes-128-gcm"}}"#),
        " list ".to_owned(),
        format!(r#"remove: {{"server_port":{second},"password":"unasked"}}"#),
        "ping".to_owned(),
        "list".to_owned(),
        // Of these each has its own opinion, which is the other's too.
        "add: {".to_owned(),
        "add: {}".to_owned(),
        "remove: {}".to_owned(),
        "remove: [".to_owned(),
        "nonsense".to_owned(),
        "stat: {\"1\":5}".to_owned(),
    ] {
        let (expected, found) = (theirs.answers(&request)?, ours.answers(&request)?);
        if expected.is_empty() || found != expected {
            let words = format!("{request}: {found:?} instead of {expected:?}");
            return Err(theirs.explain(ours.explain(Failure::new(words))));
        }
    }
    Ok(())
}
