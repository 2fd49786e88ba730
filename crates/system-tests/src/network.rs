//! Networks of a test's own: namespaces with addresses and links, in which programs and sockets live.
//!
//! They need root and `ip` (iproute2); without, a test fails. A namespace goes when its value is
//! dropped and nothing lives in it any more.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Process, program};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace, with `lo` up.
pub struct Namespace {
    name: String,
    /// Keeps it usable whatever becomes of its name.
    file: File,
}

impl Namespace {
    /// Makes one.
    ///
    /// # Panics
    /// When that is not possible, as without root or without `ip`.
    #[expect(clippy::new_without_default, reason = "it makes a namespace, which is no default")]
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("adit-{}-{number}", std::process::id());
        let output = Command::new("ip").args(["netns", "add", &name]).output();
        let output = output.expect("start ip: install iproute2");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "namespaces need root: {error}");
        let file = File::open(format!("/run/netns/{name}")).expect("open a namespace");
        let namespace = Self { name, file };
        namespace.run("ip link set lo up");
        namespace
    }

    /// Does something in it: sockets that are opened, and threads and processes that are started, stay
    /// there.
    ///
    /// # Panics
    /// When it cannot be entered, and when `work` panics.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.file.as_fd(), kind).expect("enter a namespace");
            work()
        };
        // A thread of its own, so that nothing else of this process moves.
        std::thread::scope(|scope| {
            let done = scope.spawn(inside).join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Makes something that lives in it, and is dropped there.
    pub fn with<T: Send>(&self, make: impl FnOnce() -> T + Send) -> Inside<'_, T> {
        Inside { namespace: self, value: Some(self.enter(make)) }
    }

    /// Starts one of our programs in it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start<S: AsRef<OsStr> + Send>(
        &self,
        name: &str,
        args: impl IntoIterator<Item = S> + Send,
    ) -> Process {
        self.enter(|| Process::start(name, args))
    }

    /// Runs a command in it, given as words with blanks between; returns what it wrote.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, words: &str) -> String {
        let (ok, text) = self.attempt(words, "");
        assert!(ok, "{words}: {text}");
        text
    }

    /// As [`Namespace::run`], with something to read; returns whether it succeeded, and what it wrote,
    /// output and errors together. A first word of `adit` is our program.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn attempt(&self, words: &str, input: &str) -> (bool, String) {
        use std::io::Write;
        let words: Vec<_> = words
            .split_ascii_whitespace()
            .map(|word| if word == "adit" { program(word) } else { word.into() })
            .collect();
        let (first, rest) = words.split_first().expect("a command has a word");
        let output = self.enter(|| {
            let mut child = Command::new(first)
                .args(rest)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap_or_else(|e| panic!("start {}: {e}", first.display()));
            let mut pipe = child.stdin.take().expect("it is piped");
            // A command that does not read its input says why.
            let _ = pipe.write_all(input.as_bytes());
            drop(pipe);
            child.wait_with_output().expect("wait for a command")
        });
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Lays a cable to another namespace, with one name at both ends, and gives each end its
    /// addresses.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn link(&self, name: &str, own: &[&str], other: &Self, others: &[&str]) {
        let (a, b) = (&self.name, &other.name);
        self.run(&format!("ip link add {name} netns {a} type veth peer name {name} netns {b}"));
        for (end, addresses) in [(self, own), (other, others)] {
            end.addresses(name, addresses);
            end.run(&format!("ip link set {name} up"));
        }
    }

    /// Gives an interface addresses, which are usable at once.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn addresses(&self, interface: &str, addresses: &[&str]) {
        for address in addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            self.run(&format!("ip addr add {address} dev {interface}{nodad}"));
        }
    }

    /// Sends everything that has no other way to neighbours.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn gateways(&self, gateways: &[&str]) {
        for gateway in gateways {
            let family = if gateway.contains(':') { "-6" } else { "-4" };
            self.run(&format!("ip {family} route add default via {gateway}"));
        }
    }

    /// Makes it a router.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn forward(&self) {
        self.enter(|| {
            for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{file}"), "1").expect("let it forward");
            }
        });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // One that stays behind harms no other test.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// Something that lives in a namespace.
pub struct Inside<'a, T: Send> {
    namespace: &'a Namespace,
    /// There until it is dropped.
    value: Option<T>,
}

impl<T: Send> Deref for Inside<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until the end")
    }
}

impl<T: Send> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        let value = self.value.take();
        self.namespace.enter(|| drop(value));
    }
}
