//! Programs that are measured: started, watched through `/proc`, killed and reaped.
//!
//! Invariants: a [`Process`] never outlives its value (drop kills and waits), and it dies when this
//! program is killed. The second part needs `PR_SET_PDEATHSIG` in the child, which safe Rust cannot
//! do between fork and exec, so the child first runs this program again as
//! `bench exec-child PARENT … PROGRAM ARGS…`, which sets the signal and becomes the wanted program.
//! The kernel ties the signal to the thread that forked: start programs from the main thread.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, getppid, getrlimit, setrlimit};

use crate::error::{Context, Error};
use crate::scratch;

/// First word that makes this program become another one.
pub(crate) const EXEC_CHILD: &str = "exec-child";
/// How long a program may take to listen.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Last bytes of a program's output that are shown when it fails.
const LOG_TAIL: u64 = 1000;

/// How to start programs so that they die with this one.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    /// This program and the words before the measurement's own, when they are known.
    own: Option<(PathBuf, Vec<OsString>)>,
}

impl Launcher {
    /// Works out from the process's command line how `args` were reached.
    ///
    /// When `args` are not its last words (a test harness, say), programs are started plainly and
    /// only the drop guard ends them.
    pub(crate) fn from_command_line(args: &[String]) -> Self {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        let own = words.len().checked_sub(args.len()).and_then(|prefix| {
            let same = words[prefix..].iter().zip(args).all(|(word, arg)| word == arg.as_str());
            let exe = std::env::current_exe().ok()?;
            (same && !args.is_empty()).then(|| (exe, words[..prefix].to_vec()))
        });
        Self { own }
    }

    /// The command that ends up as `program` with `environment` added.
    ///
    /// The words of the environment travel as arguments: what is meant for the program (a library
    /// to preload, say) must not act on the step before it.
    fn command(&self, program: &Path, environment: &[(&'static str, OsString)]) -> Command {
        let Some((exe, prefix)) = &self.own else {
            let mut command = Command::new(program);
            command.envs(environment.iter().map(|(name, value)| (name, value)));
            return command;
        };
        let mut command = Command::new(exe);
        command.args(prefix).arg(EXEC_CHILD).arg(std::process::id().to_string());
        for (name, value) in environment {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            command.arg(word);
        }
        command.arg(program);
        command
    }
}

/// Becomes the program in `args`; comes back only with a failure.
///
/// As for env(1): `PARENT [NAME=VALUE…] PROGRAM ARGS…`, the program being an absolute path.
pub(crate) fn exec_child(args: &[String]) -> Error {
    let internal = || Error::Usage(format!("{EXEC_CHILD} is for internal use"));
    let Some((parent, rest)) = args.split_first() else {
        return internal();
    };
    let variables = rest.iter().take_while(|word| !word.starts_with('/')).count();
    let (environment, command) = rest.split_at(variables);
    let Some((program, args)) = command.split_first() else {
        return internal();
    };
    if let Err(errno) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return Error::Run(format!("cannot tie {program} to its parent: {errno}"));
    }
    // The parent may have died before the signal was set, and then it will never come.
    let actual = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if actual.as_ref() != Some(parent) {
        return Error::Run("the parent has gone".to_owned());
    }
    let environment = environment.iter().filter_map(|word| word.split_once('='));
    Error::Io {
        what: format!("cannot run {program}"),
        source: Command::new(program).args(args).envs(environment).exec(),
    }
}

/// What to start.
pub(crate) struct Recipe<'a> {
    /// Word for messages.
    pub(crate) role: &'static str,
    /// The program file.
    pub(crate) program: &'a Path,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Added environment.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// File for its standard output and error; must not exist.
    pub(crate) log: PathBuf,
}

/// A running program; killed and reaped when dropped.
pub(crate) struct Process {
    child: Child,
    role: &'static str,
    log: PathBuf,
}

impl Process {
    /// Starts a program.
    pub(crate) fn start(launcher: &Launcher, recipe: Recipe<'_>) -> Result<Self, Error> {
        let log = scratch::create_private(&recipe.log);
        let log = log.context(|| format!("cannot write {}", recipe.log.display()))?;
        let errors = log.try_clone().context(|| "cannot share a log file".to_owned())?;
        let child = launcher
            .command(recipe.program, &recipe.environment)
            .args(recipe.args)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .context(|| format!("cannot start {}", recipe.program.display()))?;
        Ok(Self { child, role: recipe.role, log: recipe.log })
    }

    /// Waits until something listens on loopback `port`, or says why that will not happen.
    ///
    /// Looks at the kernel's socket table and leaves the program itself alone, so that what it has
    /// resident is what it has when fresh.
    pub(crate) fn wait_until_listening(&mut self, port: u16) -> Result<(), Error> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            self.check_alive()?;
            if is_listening(port)? {
                return Ok(());
            }
            if Instant::now() > deadline {
                let tail = self.log_tail();
                return Err(Error::Run(format!("{} does not listen{tail}", self.role)));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until something has bound UDP `port` of 127.0.0.1 or of every address.
    pub(crate) fn wait_until_bound(&mut self, port: u16) -> Result<(), Error> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while udp_drops(port)?.is_none() {
            self.check_alive()?;
            if Instant::now() > deadline {
                let tail = self.log_tail();
                return Err(Error::Run(format!("{} takes no datagrams{tail}", self.role)));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Fails, with the program's last words, if it has ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        let status = self.child.try_wait();
        match status.context(|| format!("cannot watch {}", self.role))? {
            None => Ok(()),
            Some(status) => {
                let tail = self.log_tail();
                Err(Error::Run(format!("{} ended ({status}){tail}", self.role)))
            }
        }
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// User and system time of all its threads so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, Error> {
        let stat = self.proc_file("stat")?;
        let ticks = cpu_ticks(&stat)
            .ok_or_else(|| Error::Run(format!("cannot make sense of /proc stat: {stat:?}")))?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64, Error> {
        let status = self.proc_file("status")?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok())
            .ok_or_else(|| Error::Run(format!("{} has no VmRSS: it has ended", self.role)))
    }

    fn proc_file(&self, name: &str) -> Result<String, Error> {
        let path = format!("/proc/{}/{name}", self.id());
        fs::read_to_string(&path).context(|| format!("cannot read {path}"))
    }

    /// The end of the program's output, ready to be put after a message.
    fn log_tail(&self) -> String {
        let read = || -> io::Result<String> {
            let file = File::open(&self.log)?;
            let from = file.metadata()?.len().saturating_sub(LOG_TAIL);
            let mut bytes = vec![0; LOG_TAIL as usize];
            let len = file.read_at(&mut bytes, from)?;
            Ok(String::from_utf8_lossy(&bytes[..len]).trim().to_owned())
        };
        match read() {
            Ok(text) if text.is_empty() => ", without a word".to_owned(),
            Ok(text) => format!("; it said:\n{text}"),
            Err(error) => format!("; its output cannot be read: {error}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the program has ended and been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sum of utime and stime (fields 14 and 15) of a `/proc/PID/stat` line.
///
/// The second field is the program's name in parentheses and may hold spaces and parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn is_listening(port: u16) -> Result<bool, Error> {
    let path = "/proc/self/net/tcp";
    let table = fs::read_to_string(path).context(|| format!("cannot read {path}"))?;
    Ok(table_lists(&table, port))
}

/// Whether a `/proc/net/tcp` table has a listener (state 0A) on `port`.
fn table_lists(table: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next();
        let state = fields.nth(1);
        local.is_some_and(|local| local.ends_with(&suffix)) && state == Some("0A")
    })
}

/// Datagrams that the sockets bound to UDP `port` have dropped, mostly because their buffers were
/// full; `None` when there is no such socket.
pub(crate) fn udp_drops(port: u16) -> Result<Option<u64>, Error> {
    let mut drops = None;
    for path in ["/proc/self/net/udp", "/proc/self/net/udp6"] {
        let table = match fs::read_to_string(path) {
            // A kernel without IPv6 has no such table.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.context(|| format!("cannot read {path}"))?,
        };
        if let Some(more) = table_drops(&table, port) {
            drops = Some(drops.unwrap_or(0) + more);
        }
    }
    Ok(drops)
}

/// Sum of the last column of a `/proc/net/udp` table over the sockets bound to `port`.
fn table_drops(table: &str, port: u16) -> Option<u64> {
    let suffix = format!(":{port:04X}");
    let lines = table.lines().skip(1).filter(|line| {
        let local = line.split_ascii_whitespace().nth(1);
        local.is_some_and(|local| local.ends_with(&suffix))
    });
    lines.fold(None, |sum, line| {
        let drops: u64 = line.split_ascii_whitespace().last()?.parse().ok()?;
        Some(sum.unwrap_or(0) + drops)
    })
}

/// Lets this process and its children open as many files as the hard limit allows.
pub(crate) fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        crate::report::note(&format!("cannot raise the limit of open files: {errno}"));
    }
}

#[cfg(test)]
mod tests;
