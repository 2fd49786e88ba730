//! One running program: started, waited for, killed and reaped.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::Failure;
use crate::scratch;

/// How long a program may take to listen, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two looks at a program that does not listen yet.
const READY_POLL: Duration = Duration::from_millis(5);
/// Last bytes of a program's output that are shown when a test fails.
const LOG_TAIL: u64 = 4000;

/// State of a TCP socket that listens, in the kernel's table.
const LISTENING: &str = "0A";
/// State of a UDP socket that receives from everybody.
const UNCONNECTED: &str = "07";

/// What a program listens for on its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listens {
    /// Connections.
    Tcp,
    /// Connections, and datagrams on the same number.
    TcpAndUdp,
}

/// A running program; killed and reaped when dropped.
pub(crate) struct Process {
    child: Child,
    /// Words for messages.
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts a program with its output going to the new file `log`.
    pub(crate) fn start(
        name: String,
        file: &Path,
        args: &[OsString],
        log: PathBuf,
    ) -> Result<Self, Failure> {
        let output = scratch::create_private(&log)?;
        let errors = output.try_clone().map_err(Failure::io("share a log file"))?;
        let child = Command::new(file)
            .args(args)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(Failure::io(format!("start {}", file.display())))?;
        Ok(Self { child, name, log })
    }

    /// Waits until the program listens on `port`, with everything that `listens` says.
    ///
    /// Looks at the kernel's tables: a connection would go through a tunnel to its target.
    /// `hint` is added when it ends instead, which a program that lacks a method does.
    pub(crate) fn wait_until_ready(
        &mut self,
        port: u16,
        listens: Listens,
        hint: &str,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            if is_listening(port, listens)? {
                return Ok(());
            }
            let ended = self.child.try_wait();
            if let Some(status) = ended.map_err(Failure::io(format!("watch {}", self.name)))? {
                let words = format!("{} ended ({status}) before it listened; {hint}", self.name);
                return Err(Failure::new(words).followed_by(&self.log_tail()));
            }
            if Instant::now() > deadline {
                let words = format!("{} does not listen ({listens:?}) on port {port}", self.name);
                return Err(Failure::new(words).followed_by(&self.log_tail()));
            }
            thread::sleep(READY_POLL);
        }
    }

    /// How many whole lines of the program's output end with `words`.
    pub(crate) fn count_lines(&self, words: &str) -> Result<usize, Failure> {
        let bytes = fs::read(&self.log);
        let bytes = bytes.map_err(Failure::io(format!("read what {} said", self.name)))?;
        let text = String::from_utf8_lossy(&bytes);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().filter(|line| line.ends_with(words)).count())
    }

    /// The end of the program's output, under a line with its name.
    pub(crate) fn log_tail(&self) -> String {
        let read = || {
            let file = File::open(&self.log)?;
            let from = file.metadata()?.len().saturating_sub(LOG_TAIL);
            let mut bytes = vec![0; LOG_TAIL as usize];
            let len = file.read_at(&mut bytes, from)?;
            bytes.truncate(len);
            Ok::<_, std::io::Error>(bytes)
        };
        match read() {
            Ok(bytes) if bytes.is_empty() => format!("--- {} said nothing", self.name),
            Ok(bytes) => {
                format!("--- {} said:\n{}", self.name, String::from_utf8_lossy(&bytes).trim_end())
            }
            Err(error) => format!("--- what {} said cannot be read: {error}", self.name),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // All fail only when the program has ended and been reaped already. A plugin that another
        // program has started is in its group.
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}

fn is_listening(port: u16, listens: Listens) -> Result<bool, Failure> {
    let lists = |name: &str, state| {
        let path = format!("/proc/self/net/{name}");
        let table = fs::read_to_string(&path).map_err(Failure::io(format!("read {path}")))?;
        Ok(table_lists(&table, port, state))
    };
    Ok(lists("tcp", LISTENING)? && (listens == Listens::Tcp || lists("udp", UNCONNECTED)?))
}

/// Whether a table of the kernel has a socket on `port` in a state.
fn table_lists(table: &str, port: u16, wanted: &str) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next();
        let state = fields.nth(1);
        local.is_some_and(|local| local.ends_with(&suffix)) && state == Some(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::Port;
    use crate::scratch::Scratch;

    fn shell(scratch: &Scratch, script: &str) -> Process {
        let args = ["-c".into(), script.into()];
        let log = scratch.file("log");
        Process::start("shell".to_owned(), Path::new("/bin/sh"), &args, log).unwrap()
    }

    #[test]
    fn says_what_a_program_said_before_it_ended() {
        let scratch = Scratch::new().unwrap();
        let mut process = shell(&scratch, "echo unknown method >&2; exit 3");
        let port = Port::reserve().unwrap();
        let failure = process.wait_until_ready(port.number(), Listens::Tcp, "install more");
        let words = failure.unwrap_err().to_string();
        assert!(words.contains("exit status: 3") && words.contains("install more"), "{words}");
        assert!(words.ends_with("--- shell said:\nunknown method"), "{words}");
    }

    #[test]
    fn counts_whole_lines_by_their_ends() {
        let scratch = Scratch::new().unwrap();
        let mut process = shell(&scratch, "printf 'a: no\\na: no, not\\nb: no\\nc: no'; exit 3");
        let port = Port::reserve().unwrap();
        process.wait_until_ready(port.number(), Listens::Tcp, "").unwrap_err();
        assert_eq!(process.count_lines(": no").unwrap(), 2);
        assert_eq!(process.count_lines(": yes").unwrap(), 0);
    }

    #[test]
    fn sees_who_listens() {
        let reserved = Port::reserve().unwrap();
        let port = reserved.number();
        assert!(!is_listening(port, Listens::Tcp).unwrap());
        let _listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert!(is_listening(port, Listens::Tcp).unwrap());
        assert!(!is_listening(port, Listens::TcpAndUdp).unwrap());
        let _socket = std::net::UdpSocket::bind(("127.0.0.1", port)).unwrap();
        assert!(is_listening(port, Listens::TcpAndUdp).unwrap());
    }

    #[test]
    fn dies_when_dropped() {
        let scratch = Scratch::new().unwrap();
        let process = shell(&scratch, "exec sleep 1000");
        let path = PathBuf::from(format!("/proc/{}", process.child.id()));
        assert!(path.exists());
        drop(process);
        assert!(!path.exists());
    }
}
