//! One running program: started, listened to, signalled, reaped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open,
};

use crate::{PATIENCE, eventually, program};

/// What the line of counters begins with.
const REPORT: &str = "counters:";

/// How a program ended and what it had said, output and errors together.
pub struct Exit {
    /// Its exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Everything it wrote.
    pub text: String,
}

#[derive(Default)]
struct Lines {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

/// Raises this process's limit of open files as far as it may go; returns the limit.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the limit as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A running program; killed and reaped when dropped.
pub struct Process {
    child: Child,
    name: String,
    said: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts one of our programs.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start<S: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = S>) -> Self {
        let mut command = Command::new(program(name));
        command.args(args);
        Self::spawn(name, command)
    }

    /// Starts a program as prepared, with its words listened to.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(name: &str, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start a program");
        let said = Arc::new(Lines::default());
        let readers = vec![
            listen(child.stdout.take().expect("it is piped"), Arc::clone(&said)),
            listen(child.stderr.take().expect("it is piped"), Arc::clone(&said)),
        ];
        Self { child, name: name.to_owned(), said, readers }
    }

    /// Runs one of our programs to its end.
    ///
    /// # Panics
    /// When it does not end.
    pub fn run<S: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = S>) -> Exit {
        Self::start(name, args).wait()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains `words`; returns it.
    ///
    /// # Panics
    /// When no such line comes.
    pub fn wait_for(&self, words: &str) -> String {
        self.wait_for_more(words, 1)
    }

    /// Waits until `count` lines contain `words`; returns the last of these.
    ///
    /// # Panics
    /// When they do not come.
    pub fn wait_for_more(&self, words: &str, count: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.said.lines.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(line) = lines.iter().filter(|l| l.contains(words)).nth(count - 1) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "{} did not say {words:?} {count} times but:\n{}",
                self.name,
                lines.join("\n")
            );
            let waited = self.said.grown.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Everything it has said so far.
    pub fn text(&self) -> String {
        self.said.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// A counter of the program, as it is at this moment.
    ///
    /// # Panics
    /// When the program does not tell.
    pub fn counter(&self, name: &str) -> u64 {
        let line = self.report(REPORT);
        let value =
            line.split_ascii_whitespace().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
        let value = value.unwrap_or_else(|| panic!("no counter {name}: {line}"));
        value.parse().expect("a counter is a number")
    }

    /// Asks for the counters; returns the line of the report that contains `words`.
    ///
    /// # Panics
    /// When there is none.
    pub fn report(&self, words: &str) -> String {
        let said = |words: &str| {
            let lines = self.said.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.iter().filter(|l| l.contains(words)).count()
        };
        let before = said(words);
        self.signal(Signal::USR1);
        self.wait_for_more(words, before + 1)
    }

    /// Waits until a counter has reached a value.
    ///
    /// # Panics
    /// When it has not for [`PATIENCE`].
    pub fn wait_for_counter(&self, name: &str, value: u64) {
        eventually(&format!("{} counts {value} {name}", self.name), || {
            (self.counter(name) >= value).then_some(())
        });
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it has ended.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process has an id"), signal).expect("send a signal");
    }

    /// Whether it has not ended.
    ///
    /// # Panics
    /// When the kernel does not tell.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("ask for a child").is_none()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub fn wait(mut self) -> Exit {
        let what = format!("{} ends", self.name);
        let status = eventually(&what, || self.child.try_wait().expect("ask for a child"));
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader does not panic");
        }
        Exit { code: status.code(), text: self.text() }
    }

    /// Resident memory in KiB, without pages of files, which depend on what else runs.
    ///
    /// # Panics
    /// When it has ended.
    pub fn memory_kib(&self) -> u64 {
        let status = self.proc("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        field("RssAnon:").or_else(|| field("VmRSS:")).expect("status tells the memory")
    }

    /// Processor time used so far, in ticks (of 10 ms on every Linux that matters).
    ///
    /// # Panics
    /// When it has ended.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = self.proc("stat");
        // The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
        let rest = stat.rsplit_once(')').expect("stat holds a name").1;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number of ticks");
        ticks(11) + ticks(12)
    }

    /// How many descriptors it has open.
    ///
    /// # Panics
    /// When it has ended.
    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(path).expect("list descriptors").count()
    }

    /// Copies of the sockets that it has open, for a look at their options; `None` where the
    /// kernel does not allow that, or it has ended.
    pub fn sockets(&self) -> Option<Vec<OwnedFd>> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)?;
        let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
        let directory = format!("/proc/{}/fd", self.child.id());
        let numbers = std::fs::read_dir(directory).ok()?.filter_map(|entry| {
            let path = entry.ok()?.path();
            // One that has been closed since is none.
            let is_socket = std::fs::read_link(&path).ok()?.to_str()?.starts_with("socket:");
            path.file_name()?.to_str()?.parse().ok().filter(|_| is_socket)
        });
        let flags = PidfdGetfdFlags::empty();
        let mut sockets = Vec::new();
        for number in numbers.collect::<Vec<_>>() {
            match pidfd_getfd(&process, number, flags) {
                Ok(socket) => sockets.push(socket),
                Err(Errno::BADF) => {}
                Err(_) => return None,
            }
        }
        Some(sockets)
    }

    /// A file of its directory in `/proc`.
    ///
    /// # Panics
    /// When it has ended.
    pub fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.child.id());
        let bytes = std::fs::read(path).expect("read from /proc");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "whoever reads a failed test wants to see it")]
    fn drop(&mut self) {
        // Both fail only when it has ended and been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let text = self.text();
            let tail = text.len().saturating_sub(3000);
            let tail = text.char_indices().map(|(at, _)| at).find(|&at| at >= tail);
            eprintln!("--- {} said:\n{}", self.name, &text[tail.unwrap_or(0)..]);
        }
    }
}

fn listen(pipe: impl Read + Send + 'static, said: Arc<Lines>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            said.lines.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            said.grown.notify_all();
            line.clear();
        }
    })
}
