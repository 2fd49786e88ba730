//! One fetch: `adit fetch`, run beside this process and read without waiting.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use adit_config::Password;
use adit_sys::helper::{Heard, Helper};
use zeroize::Zeroizing;

/// `adit` gives up after 30 s by itself; this is for one that does not.
const LIMIT: Duration = Duration::from_secs(35);
/// Bytes of an answer at most, as in `adit fetch`.
const BODY_MAX: usize = 1 << 20;
/// Bytes kept of what it says about a failure.
const ERRORS_MAX: usize = 1024;
/// A helper that has closed its output is about to end: it is asked again after this.
const ENDING: Duration = Duration::from_millis(20);
/// What it may know of the environment. Other variables hold passwords, for all we know.
const PASSED: [&str; 14] = [
    "PATH",
    "HOME",
    "LANG",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RES_OPTIONS",
    "LOCALDOMAIN",
    "LD_LIBRARY_PATH",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// A fetch under way.
pub(super) struct Fetch {
    helper: Helper,
    body: Zeroizing<Vec<u8>>,
    errors: Vec<u8>,
    by: Instant,
    ended: bool,
}

/// An answer, or why there is none.
pub(super) type Outcome = Result<Zeroizing<Vec<u8>>, String>;

impl Fetch {
    /// Starts one, as `user` where the process has not become that user yet.
    pub(super) fn start(url: &Password, user: Option<&str>, now: Instant) -> Result<Self, String> {
        let program = program();
        let started = Helper::start(&program, &["fetch"], url.as_str().as_bytes(), user, &PASSED);
        let helper = started.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                "subscriptions are fetched by the program adit, which is not there; install it \
                 beside this program, or into PATH"
                    .to_owned()
            }
            _ => format!("cannot start {}: {e}", program.display()),
        })?;
        Ok(Self::of(helper, now + LIMIT))
    }

    pub(super) fn of(helper: Helper, by: Instant) -> Self {
        // All at once: a vector that grows leaves unwiped copies behind.
        let body = Zeroizing::new(Vec::with_capacity(BODY_MAX + 1));
        Self { helper, body, errors: Vec::new(), by, ended: false }
    }

    /// To be watched, until it ends.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.helper.output()
    }

    /// When to look at it again, if nothing comes before.
    pub(super) fn due(&self, now: Instant) -> Instant {
        if self.ended { self.by.min(now + ENDING) } else { self.by }
    }

    /// Takes what has come; an outcome when it is over.
    pub(super) fn step(&mut self, now: Instant) -> Option<Outcome> {
        match self.read() {
            Ok(()) => {}
            Err(text) => return Some(Err(text)),
        }
        if let Ok(Some(status)) = self.helper.try_wait() {
            // What it wrote last may have come after the read above.
            if let Err(text) = self.read() {
                return Some(Err(text));
            }
            return Some(if status.success() {
                Ok(std::mem::take(&mut self.body))
            } else {
                Err(self.reason())
            });
        }
        (now >= self.by).then(|| Err("the fetch took too long and was ended".to_owned()))
    }

    fn read(&mut self) -> Result<(), String> {
        let mut buf = Zeroizing::new([0; 4096]);
        let broken = |e: io::Error| format!("adit fetch cannot be read: {e}");
        while let Heard::Bytes(n) = self.helper.read_errors(&mut *buf).map_err(broken)? {
            let room = ERRORS_MAX - self.errors.len();
            self.errors.extend_from_slice(&buf[..n.min(room)]);
        }
        while !self.ended {
            match self.helper.read_output(&mut *buf).map_err(broken)? {
                Heard::Bytes(n) if self.body.len() + n > BODY_MAX => {
                    return Err("the answer is longer than 1 MiB".to_owned());
                }
                Heard::Bytes(n) => self.body.extend_from_slice(&buf[..n]),
                Heard::Nothing => break,
                Heard::End => self.ended = true,
            }
        }
        Ok(())
    }

    /// What it said last, fit for a log.
    fn reason(&self) -> String {
        let text = String::from_utf8_lossy(&self.errors);
        let line = text.lines().next().unwrap_or_default();
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        match line.strip_prefix("adit: ").unwrap_or(&line).trim() {
            "" => "adit fetch failed and did not say why".to_owned(),
            reason => reason.to_owned(),
        }
    }
}

/// `adit` beside this program, where it is; else the one in PATH.
fn program() -> PathBuf {
    const NAME: &str = "adit";
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(NAME));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| NAME.into())
}
