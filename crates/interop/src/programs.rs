//! The programs under test and where they are.
//!
//! Ours and shadowsocks-libev's have the same names, and ours also go by the names of
//! shadowsocks-rust, so a file counts only if the first line it prints says that it is the wanted
//! program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::process::Listens;

/// Directories to look for peers in, before `PATH`; separated by colons.
const PEERS_DIR: &str = "ADIT_PEERS_DIR";
/// The directory of our programs.
const BIN_DIR: &str = "ADIT_BIN_DIR";

/// A family of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Ours.
    Adit,
    /// shadowsocks-libev.
    Libev,
    /// shadowsocks-rust.
    Rust,
    /// sing-box.
    SingBox,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Accepts SOCKS5 and talks to a server.
    Client,
    /// Accepts Shadowsocks and connects to targets.
    Server,
    /// Accepts Shadowsocks and forwards it to a server or another relay (SIP023).
    Relay,
    /// As a client, with one target for every connection and datagram.
    Tunnel,
    /// Adds and removes servers by request.
    Manager,
}

impl Program {
    /// Name in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Adit => "adit",
            Self::Libev => "shadowsocks-libev",
            Self::Rust => "shadowsocks-rust",
            Self::SingBox => "sing-box",
        }
    }

    /// Whether the end of a client's stream leaves the other direction open.
    ///
    /// Both programs of shadowsocks-libev close both directions at the first end of a stream. So
    /// does a sing-box client (seen with 1.14.4, between two of its own too), while its server
    /// passes the end on.
    pub(crate) const fn keeps_half_open(self, role: Role) -> bool {
        match self {
            Self::Adit | Self::Rust => true,
            Self::Libev => false,
            Self::SingBox => matches!(role, Role::Server | Role::Relay),
        }
    }

    /// Whether a client with this method names its target before it has data to send, which a
    /// target that speaks first needs. A sing-box client without encryption waits for data (seen
    /// with 1.14.4, with servers of sing-box and shadowsocks-rust too).
    pub(crate) fn names_target_without_data(self, method: &str) -> bool {
        self != Self::SingBox || method != "none"
    }

    /// The longest datagram that it relays, for every method, target and direction.
    ///
    /// sing-box (seen with 1.14.4) has buffers of 16 KiB for packets with everything around them:
    /// 15,120 bytes pass to an IPv6 address with a ChaCha20 method of 2022. What is longer is cut
    /// off silently, or its packet is dropped; between two of its own too. For shadowsocks-libev
    /// this is true with the MTU that its files have here.
    pub(crate) const fn datagram_len_max(self) -> usize {
        match self {
            Self::Adit | Self::Libev | Self::Rust => 60_000,
            Self::SingBox => 15_000,
        }
    }

    /// Whether it relays datagrams without any bytes to their target. Servers and tunnels of
    /// shadowsocks-rust (seen with 1.25) drop them, the server from its own client too, and so do
    /// tunnels of sing-box (seen with 1.14.4).
    pub(crate) const fn relays_empty_datagrams(self, role: Role) -> bool {
        !matches!(
            (self, role),
            (Self::Rust, Role::Server | Role::Tunnel) | (Self::SingBox, Role::Tunnel)
        )
    }

    /// Whether as a server it serves targets of both address families with one association. That
    /// of sing-box (seen with 1.14.4) ends the association at a target of the other family, and
    /// makes one or two new ones when more comes.
    pub(crate) fn mixes_families(self) -> bool {
        self != Self::SingBox
    }

    /// Whether as a server it says that a datagram is from the name that the client asked for,
    /// instead of from an address. That of sing-box does so for every port of that address, when
    /// the name was what an association began with.
    pub(crate) fn answers_from_names(self) -> bool {
        self == Self::SingBox
    }

    /// How the line ends that it writes as a server about a 2022 request with neither payload nor
    /// padding, which SIP022 makes it reject.
    pub(crate) const fn says_neither(self) -> Option<&'static str> {
        match self {
            Self::Adit => Some(": neither payload nor padding"),
            Self::SingBox => Some(": missing payload or padding"),
            Self::Libev | Self::Rust => None,
        }
    }

    /// What it listens for on the port that it is given. A sing-box client opens another UDP
    /// socket for each association.
    pub(crate) const fn listens(self, role: Role) -> Listens {
        match (self, role) {
            (Self::SingBox, Role::Client) => Listens::Tcp,
            _ => Listens::TcpAndUdp,
        }
    }

    /// What to do when it is missing or lacks a method.
    pub(crate) const fn how_to_install(self) -> &'static str {
        match self {
            Self::Adit => "build it with `cargo build --release`, or set ADIT_BIN_DIR",
            Self::Libev => "install shadowsocks-libev 3.3 (Debian: shadowsocks-libev)",
            Self::Rust => {
                "install shadowsocks-rust 1.25 (`cargo install shadowsocks-rust --features \
                 aead-cipher-extra,aead-cipher-2022-extra`)"
            }
            Self::SingBox => "install sing-box 1.14",
        }
    }

    /// Finds the file that plays `role`.
    ///
    /// # Errors
    /// When it is in none of the places, with the places and what to install.
    pub(crate) fn find(self, role: Role) -> Result<PathBuf, Failure> {
        let places = match self {
            Self::Adit => own_places(),
            Self::Libev | Self::Rust | Self::SingBox => peer_places(),
        };
        self.find_in(role, &places)
    }

    fn find_in(self, role: Role, places: &[PathBuf]) -> Result<PathBuf, Failure> {
        let name = self.file_name(role);
        let files = places.iter().map(|place| place.join(name));
        let found = files.filter(|file| file.is_file()).find(|file| self.is(file));
        found.ok_or_else(|| {
            let places: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
            let program = self.name();
            let instead = self.how_to_install();
            Failure::new(format!("{program}: no {name} in {}; {instead}", places.join(", ")))
        })
    }

    fn file_name(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::SingBox, _) => "sing-box",
            (Self::Rust, Role::Client | Role::Tunnel) => "sslocal",
            (Self::Rust, Role::Server | Role::Relay) => "ssserver",
            (Self::Rust, Role::Manager) => "ssmanager",
            (Self::Adit | Self::Libev, Role::Manager) => "ss-manager",
            (Self::Adit | Self::Libev, Role::Client) => "ss-local",
            (Self::Adit | Self::Libev, Role::Server | Role::Relay) => "ss-server",
            (Self::Adit | Self::Libev, Role::Tunnel) => "ss-tunnel",
        }
    }

    /// Whether the file says that it is this program.
    fn is(self, file: &Path) -> bool {
        let (flag, words) = match self {
            Self::Adit => ("-V", "(adit)"),
            Self::Libev => ("-h", "shadowsocks-libev "),
            Self::Rust => ("--version", "shadowsocks "),
            Self::SingBox => ("version", "sing-box "),
        };
        let line = first_line(file, flag).unwrap_or_default();
        if self == Self::Adit { line.contains(words) } else { line.starts_with(words) }
    }
}

fn own_places() -> Vec<PathBuf> {
    if let Some(dir) = env::var_os(BIN_DIR) {
        return vec![dir.into()];
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    vec![workspace.join("target/release"), workspace.join("target/debug")]
}

fn peer_places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    for name in [PEERS_DIR, "PATH"] {
        if let Some(list) = env::var_os(name) {
            places.extend(env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()));
        }
    }
    places
}

/// The first line with anything on it that the program prints when asked with `flag`.
fn first_line(file: &Path, flag: &str) -> Option<String> {
    let output = Command::new(file).arg(flag).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    fn fake(words: &str) -> (Scratch, [PathBuf; 1]) {
        let scratch = Scratch::new().unwrap();
        for name in ["ss-local", "sslocal"] {
            let script = format!("#!/bin/sh\necho\necho '{words}'\n");
            let path = scratch.write(name, &script).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        }
        let place = scratch.file("");
        (scratch, [place])
    }

    #[test]
    fn takes_no_program_for_another_of_the_same_name() {
        let (_scratch, places) = fake("shadowsocks-libev 3.3.5");
        assert!(Program::Libev.find_in(Role::Client, &places).is_ok());
        assert!(Program::Adit.find_in(Role::Client, &places).is_err());
        let (_scratch, places) = fake("ss-local (adit) 0.1.0");
        assert!(Program::Adit.find_in(Role::Client, &places).is_ok());
        assert!(Program::Libev.find_in(Role::Client, &places).is_err());
        assert!(Program::Rust.find_in(Role::Client, &places).is_err());
    }

    #[test]
    fn says_where_it_looked_and_what_to_install() {
        let places = [PathBuf::from("/nowhere"), PathBuf::from("/elsewhere")];
        for program in [Program::Adit, Program::Libev, Program::Rust, Program::SingBox] {
            let words = program.find_in(Role::Server, &places).unwrap_err().to_string();
            assert!(words.contains("/nowhere, /elsewhere"), "{words}");
            assert!(words.contains(program.how_to_install()), "{words}");
        }
    }
}
