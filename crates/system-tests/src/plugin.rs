//! A plugin (SIP003) for tests: it carries bytes in another guise, and misbehaves on request.
//!
//! Its program is the test program itself, started again by a script for one of its tests, which
//! calls [`serve_as_plugin`]. What it is to do stands in its options, separated by `;`:
//!
//! | option | effect |
//! |---|---|
//! | `server` | it stands in front of a server: it listens at the remote address |
//! | `udp` | carries datagrams too |
//! | `diary=FILE` | writes what it finds into FILE, a line each start |
//! | `await=FILE` | listens only once FILE exists |
//! | `never` | listens nowhere |
//! | `exit=CODE` | says something and ends at once |
//! | `child` | starts a process that outlives it |
//! | `robbed=FILE` | until FILE exists: makes it, lets a stranger take the port, and ends |
//! | `background=FILE` | leaves the port to a process elsewhere, as daemons do, and ends well |
//! | `flood` | says 5,000 lines before it listens |
//! | `babble` | says a very long line, and control characters |

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Scratch, eventually};

/// What bytes are hidden with.
const GUISE: u8 = 0x5A;
/// Set for the stranger who takes a port: where.
const STRANGER: &str = "ADIT_TEST_STRANGER";
/// How long a process waits that waits for its end.
const LONG: Duration = Duration::from_secs(600);

/// A plugin in the directory of a test.
pub struct TestPlugin {
    program: PathBuf,
    diary: PathBuf,
}

/// One start of a plugin, from its diary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its process.
    pub process: u32,
    /// The process it has started, if it has.
    pub child: Option<u32>,
    /// `HOST:PORT` of the remote side.
    pub remote: String,
    /// `HOST:PORT` of the local side.
    pub local: String,
    /// The descriptors that it began with.
    pub descriptors: usize,
    /// Variables that it should not have found.
    pub leaked: bool,
    /// Its arguments, those of the test program's harness not counted.
    pub args: usize,
}

impl TestPlugin {
    /// Makes a script that is the plugin. `entry` is the test of the calling program that calls
    /// [`serve_as_plugin`]; `before` are commands of the shell to run first.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn new(scratch: &Scratch, entry: &str, before: &str) -> Self {
        let program = std::env::current_exe().expect("a test is a program");
        let text = format!(
            "#!/bin/sh\n{before}\nARGS=$# exec '{}' --exact {entry} --include-ignored --nocapture\n",
            program.display()
        );
        let program = scratch.write("test-plugin", &text);
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("set permissions");
        Self { program, diary: scratch.file("diary") }
    }

    /// Its program.
    pub fn program(&self) -> &str {
        self.program.to_str().expect("a temporary path is UTF-8")
    }

    /// Its options: these, and the diary.
    pub fn options(&self, options: &str) -> String {
        format!("{options};diary={}", self.diary.display())
    }

    /// Its starts so far.
    ///
    /// # Panics
    /// When the diary cannot be read.
    pub fn starts(&self) -> Vec<Started> {
        match std::fs::read_to_string(&self.diary) {
            Ok(text) => text.lines().map(Started::read).collect(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => panic!("the diary: {e}"),
        }
    }

    /// The start of this number, from 0; waits for it.
    ///
    /// # Panics
    /// When it does not come.
    pub fn start(&self, number: usize) -> Started {
        eventually("a plugin starts", || self.starts().get(number).cloned())
    }
}

impl Started {
    fn read(line: &str) -> Self {
        let fields: HashMap<_, _> = line.split(' ').filter_map(|f| f.split_once('=')).collect();
        Self {
            process: fields["process"].parse().expect("a number"),
            child: fields.get("child").map(|child| child.parse().expect("a number")),
            remote: fields["remote"].to_owned(),
            local: fields["local"].to_owned(),
            descriptors: fields["descriptors"].parse().expect("a number"),
            leaked: fields["leaked"] == "true",
            args: fields["args"].parse().expect("a number"),
        }
    }
}

/// Whether a process runs; one that has ended and was not waited for does not.
pub fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    let state = stat.ok().and_then(|s| s.rsplit_once(") ").and_then(|(_, r)| r.chars().next()));
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits until a process has ended.
///
/// # Panics
/// When it does not.
pub fn wait_gone(process: u32) {
    eventually("a plugin's process is gone", || (!is_running(process)).then_some(()));
}

/// Does what a plugin does, if this process was started as one; returns at once otherwise.
///
/// # Panics
/// When something about it is wrong, which ends the plugin.
pub fn serve_as_plugin() {
    if let Some(port) = std::env::var_os(STRANGER) {
        stranger(&port);
    }
    let Ok(options) = std::env::var("SS_PLUGIN_OPTIONS") else { return };
    let options: HashMap<_, _> =
        options.split(';').map(|o| o.split_once('=').unwrap_or((o, ""))).collect();
    let side = |name: &str| {
        let part = |part: &str| std::env::var(format!("SS_{name}_{part}")).expect("is given");
        let host = part("HOST");
        let colons = host.contains(':');
        if colons {
            format!("[{host}]:{}", part("PORT"))
        } else {
            format!("{host}:{}", part("PORT"))
        }
    };
    let (remote, local) = (side("REMOTE"), side("LOCAL"));
    let child = options.contains_key("child").then(|| {
        let mut child = Command::new("sleep");
        child.arg("600").stdout(Stdio::null()).stderr(Stdio::null());
        child.spawn().expect("start a process").id()
    });
    if let Some(diary) = options.get("diary") {
        write_diary(Path::new(diary), child, &remote, &local);
    }
    if let Some(code) = options.get("exit") {
        say(b"cannot do that\n");
        std::process::exit(code.parse().expect("a status"));
    }
    if let Some(file) = options.get("robbed").filter(|file| !Path::new(file).exists()) {
        be_robbed(Path::new(file), &local, b"bind: Address already in use\n", 1);
    }
    if let Some(file) = options.get("background") {
        be_robbed(Path::new(file), &local, b"gone to the background\n", 0);
    }
    if options.contains_key("flood") {
        (0..5000).for_each(|number| say(format!("line {number}\n").as_bytes()));
    }
    if options.contains_key("babble") {
        say(&[&b"very long "[..], &[b'x'; 5000], b"\nred \x1b[31m text\n"].concat());
    }
    if let Some(file) = options.get("await") {
        while !Path::new(file).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    if options.contains_key("never") {
        std::thread::sleep(LONG);
    }
    let (from, to) = if options.contains_key("server") { (remote, local) } else { (local, remote) };
    if options.contains_key("udp") {
        carry_datagrams(&from, to.clone());
    }
    if options.contains_key("udp-only") {
        carry_datagrams(&from, to);
        std::thread::sleep(LONG);
    } else {
        carry(&from, &to);
    }
}

fn say(bytes: &[u8]) {
    io::stderr().write_all(bytes).expect("somebody listens");
}

fn write_diary(diary: &Path, child: Option<u32>, remote: &str, local: &str) {
    let open = std::fs::read_dir("/proc/self/fd").expect("list descriptors");
    let descriptors = open.filter(|entry| entry.is_ok()).count() - 1;
    let leaked =
        ["SS_SERVER_PASSWORD", "NOTIFY_SOCKET"].iter().any(|v| std::env::var_os(v).is_some());
    let args = std::env::var("ARGS").expect("the script tells");
    let child = child.map(|child| format!(" child={child}")).unwrap_or_default();
    let line = format!(
        "process={}{child} remote={remote} local={local} descriptors={descriptors} \
         leaked={leaked} args={args}\n",
        std::process::id()
    );
    let file = OpenOptions::new().append(true).create(true).open(diary);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("write the diary");
}

/// Lets a stranger of no group of ours take the port, and ends.
fn be_robbed(file: &Path, local: &str, words: &[u8], code: i32) -> ! {
    let mut stranger = Command::new(std::env::current_exe().expect("a test is a program"));
    stranger.args(std::env::args_os().skip(1)).env(STRANGER, local).process_group(0);
    stranger.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut stranger = stranger.spawn().expect("start a stranger");
    // The harness of the tests says a line first; the stranger closes its output once it listens.
    let mut said = String::new();
    let output = stranger.stdout.as_mut().expect("it is piped");
    while !said.contains("taken") {
        let mut bytes = [0; 256];
        let len = output.read(&mut bytes).expect("read from a stranger");
        assert!(len > 0, "a stranger ended: {said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..len]));
    }
    std::fs::write(file, stranger.id().to_string()).expect("write a file");
    say(words);
    std::process::exit(code);
}

fn stranger(address: &OsStr) -> ! {
    let address = address.to_str().expect("an address is text");
    let _listener = TcpListener::bind(address).expect("the port was free");
    io::stdout().write_all(b"taken\n").expect("somebody listens");
    std::thread::sleep(LONG);
    std::process::exit(0);
}

fn carry(from: &str, to: &str) {
    let listener = TcpListener::bind(from).expect("listen");
    for client in listener.incoming() {
        let Ok(client) = client else { continue };
        let Ok(server) = TcpStream::connect(to) else { continue };
        for (mut a, mut b) in [
            (client.try_clone().expect("copy"), server.try_clone().expect("copy")),
            (server, client),
        ] {
            std::thread::spawn(move || {
                let mut bytes = [0; 16 << 10];
                while let Ok(len @ 1..) = a.read(&mut bytes) {
                    disguise(&mut bytes[..len]);
                    if b.write_all(&bytes[..len]).is_err() {
                        break;
                    }
                }
                // It may have closed already.
                let _ = b.shutdown(Shutdown::Write);
            });
        }
    }
}

fn disguise(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= GUISE);
}

/// One socket towards the other side for each source.
fn carry_datagrams(from: &str, to: String) {
    let inner = Arc::new(UdpSocket::bind(from).expect("bind"));
    let to: SocketAddr = to.parse().expect("tests have addresses");
    std::thread::spawn(move || {
        let known = Mutex::new(HashMap::<SocketAddr, Arc<UdpSocket>>::new());
        let mut bytes = vec![0; 1 << 16];
        while let Ok((len, source)) = inner.recv_from(&mut bytes) {
            disguise(&mut bytes[..len]);
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let outer = known.entry(source).or_insert_with(|| {
                let outer = Arc::new(UdpSocket::bind(("127.0.0.1", 0)).expect("bind"));
                let (back, inner) = (Arc::clone(&outer), Arc::clone(&inner));
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(len) = back.recv(&mut bytes) {
                        disguise(&mut bytes[..len]);
                        // Whoever asked may have gone.
                        let _ = inner.send_to(&bytes[..len], source);
                    }
                });
                outer
            });
            let _ = outer.send_to(&bytes[..len], to);
        }
    });
}
