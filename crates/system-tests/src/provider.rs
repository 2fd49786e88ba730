//! A provider of subscriptions, good and bad.

use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::{PATIENCE, Target, eventually};

/// What a provider answers with.
#[derive(Clone, Debug)]
pub enum Served {
    /// A body, whole and with its length.
    Body(String),
    /// A status without a body.
    Status(u16),
    /// On to another address.
    Redirect(String),
    /// These bytes as they are, and then an end.
    Raw(Vec<u8>),
    /// A body that never ends.
    Endless,
    /// Nothing, for as long as the provider lives.
    Silence,
}

/// A provider on loopback.
pub struct Provider {
    state: Arc<State>,
    target: Target,
}

struct State {
    reply: Mutex<Served>,
    heads: Mutex<Vec<String>>,
    over: Mutex<bool>,
    ended: Condvar,
}

impl Provider {
    /// Starts one.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(reply: Served) -> Self {
        Self::over(reply, |stream, serve| serve(&mut &stream))
    }

    /// Starts one that is reached through what `wrap` makes of a connection, TLS for one.
    ///
    /// # Panics
    /// When no port is free.
    pub fn over(
        reply: Served,
        wrap: impl Fn(std::net::TcpStream, &dyn Fn(&mut dyn Channel)) + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::new(State {
            reply: Mutex::new(reply),
            heads: Mutex::default(),
            over: Mutex::default(),
            ended: Condvar::new(),
        });
        let shared = Arc::clone(&state);
        let target = Target::serve(move |stream| wrap(stream, &|channel| shared.serve(channel)));
        Self { state, target }
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.target.port()
    }

    /// The address of the subscription, which has a secret in it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{SECRET}", self.port())
    }

    /// Answers with something else from here on.
    pub fn set(&self, reply: Served) {
        *self.state.reply.lock().unwrap_or_else(PoisonError::into_inner) = reply;
    }

    /// The heads of the requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until so many requests have come.
    ///
    /// # Panics
    /// When they have not for [`PATIENCE`].
    pub fn wait_for(&self, count: usize) {
        eventually(&format!("{count} requests"), || (self.requests().len() >= count).then_some(()));
    }
}

/// What is secret about a subscription.
pub const SECRET: &str = "token-hunter2";

/// What a provider speaks over.
pub trait Channel: Read + Write {}

impl<T: Read + Write> Channel for T {}

impl State {
    fn serve(&self, channel: &mut dyn Channel) {
        let Some(head) = read_head(channel) else { return };
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
        let reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let head = |status: u16, more: &str| {
            format!("HTTP/1.1 {status} X\r\n{more}Connection: close\r\n\r\n").into_bytes()
        };
        let bytes = match reply {
            Served::Body(body) => {
                let more = format!("Content-Length: {}\r\n", body.len());
                [head(200, &more), body.into_bytes()].concat()
            }
            Served::Status(status) => head(status, "Content-Length: 0\r\n"),
            Served::Redirect(to) => head(302, &format!("Location: {to}\r\nContent-Length: 0\r\n")),
            Served::Raw(bytes) => bytes,
            Served::Endless => {
                let mut bytes = head(200, "");
                // Until the reader has had enough.
                while channel.write_all(&bytes).is_ok() {
                    bytes = vec![b' '; 65536];
                }
                return;
            }
            Served::Silence => {
                let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = self.ended.wait_timeout_while(over, 2 * PATIENCE, |over| !*over);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                return;
            }
        };
        // A reader that gives up is the business of the test at its other end.
        let _ = channel.write_all(&bytes).and_then(|()| channel.flush());
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        *self.state.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.ended.notify_all();
    }
}

fn read_head(channel: &mut dyn Channel) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        channel.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}
