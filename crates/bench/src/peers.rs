//! The Shadowsocks programs that can be measured, and where they are on this machine.
//!
//! Ours and shadowsocks-libev's programs have the same names, and ours also go by the names of
//! shadowsocks-rust, so ours are only looked for in given places (next to the running program) and
//! theirs only elsewhere, and what a program says of itself decides. A program that is not found is
//! named with the places that were searched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program pair, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Our ss-local and ss-server.
    Adit,
    /// shadowsocks-libev's ss-local and ss-server.
    Libev,
    /// shadowsocks-rust's sslocal and ssserver.
    Rust,
    /// The same in one thread.
    RustSingle,
    /// sing-box at both ends.
    SingBox,
    /// The generator connects straight to its target: what the machine can do without a proxy.
    Direct,
}

impl Program {
    /// Every program but ours and `Direct`.
    pub(crate) const PEERS: [Self; 4] = [Self::Libev, Self::Rust, Self::RustSingle, Self::SingBox];
    const ALL: [Self; 6] =
        [Self::Adit, Self::Libev, Self::Rust, Self::RustSingle, Self::SingBox, Self::Direct];

    /// Name in options and reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Adit => "adit",
            Self::Libev => "shadowsocks-libev",
            Self::Rust => "shadowsocks-rust",
            Self::RustSingle => "shadowsocks-rust-single",
            Self::SingBox => "sing-box",
            Self::Direct => "direct",
        }
    }

    /// The program of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }

    /// All names, for messages.
    pub(crate) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Whether it is one that ours is compared with.
    pub(crate) const fn is_peer(self) -> bool {
        !matches!(self, Self::Adit | Self::Direct)
    }

    /// The word that makes it say its version; to libev's programs any word that is wrong.
    const fn version_flag(self) -> &'static str {
        match self {
            Self::Libev => "-h",
            Self::SingBox => "version",
            Self::Adit | Self::Rust | Self::RustSingle | Self::Direct => "--version",
        }
    }

    /// Whether a line with a version is its own.
    fn is_said_by(self, version: &str) -> bool {
        match self {
            Self::Adit => version.contains("(adit)"),
            Self::Libev => version.starts_with("shadowsocks-libev "),
            Self::Rust | Self::RustSingle => version.starts_with("shadowsocks "),
            Self::SingBox => version.starts_with("sing-box "),
            Self::Direct => false,
        }
    }

    /// Whether it speaks `method`, as far as is known without trying.
    pub(crate) fn supports(self, method: &str) -> bool {
        match self {
            Self::Libev => !method.starts_with("2022-"),
            Self::Adit | Self::Rust | Self::RustSingle | Self::SingBox | Self::Direct => true,
        }
    }
}

/// A program that is there to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    /// Which one.
    pub(crate) program: Program,
    /// What it says of itself.
    pub(crate) version: String,
    /// File of the server end; empty for `Direct`.
    pub(crate) server: PathBuf,
    /// File of the local end; empty for `Direct`.
    pub(crate) local: PathBuf,
    /// File of the local end with one fixed target; empty for `Direct`.
    pub(crate) tunnel: PathBuf,
}

/// Where to look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Directories that may hold our programs, in order.
    pub(crate) adit: Vec<PathBuf>,
    /// Directories that may hold other programs, in order.
    pub(crate) peers: Vec<PathBuf>,
    /// The sing-box program, when it was named.
    pub(crate) sing_box: Option<PathBuf>,
}

impl Places {
    /// The directory of the running program (or `adit_dir` alone), `target/release`, the given
    /// peer directories, then the search path and `/usr/bin`.
    pub(crate) fn new(
        adit_dir: Option<PathBuf>,
        mut peers: Vec<PathBuf>,
        sing_box: Option<PathBuf>,
    ) -> Self {
        let adit = match adit_dir {
            Some(dir) => vec![dir],
            None => {
                let exe = std::env::current_exe().ok();
                let beside = exe.as_deref().and_then(Path::parent).map(Path::to_owned);
                beside.into_iter().chain([PathBuf::from("target/release")]).collect()
            }
        };
        if let Some(path) = std::env::var_os("PATH") {
            peers.extend(std::env::split_paths(&path));
        }
        peers.push(PathBuf::from("/usr/bin"));
        Self { adit, peers, sing_box }
    }

    /// Finds a program, or says why it cannot be measured.
    pub(crate) fn find(&self, program: Program) -> Result<Installed, String> {
        match program {
            Program::Adit => self.pair(program, &self.adit, ["ss-server", "ss-local", "ss-tunnel"]),
            Program::Libev => {
                self.pair(program, &self.peers, ["ss-server", "ss-local", "ss-tunnel"])
            }
            Program::Rust | Program::RustSingle => {
                self.pair(program, &self.peers, ["ssserver", "sslocal", "sslocal"])
            }
            Program::SingBox => self.sing_box(),
            Program::Direct => Ok(Installed {
                program,
                version: "no proxy".to_owned(),
                server: PathBuf::new(),
                local: PathBuf::new(),
                tunnel: PathBuf::new(),
            }),
        }
    }

    /// Looks for server and local end; whether the third is there too shows when it is started.
    fn pair(
        &self,
        program: Program,
        dirs: &[PathBuf],
        [server, local, tunnel]: [&str; 3],
    ) -> Result<Installed, String> {
        for dir in dirs {
            let [server, local, tunnel] = [server, local, tunnel].map(|name| dir.join(name));
            if !server.is_file() || !local.is_file() {
                continue;
            }
            let version = first_line(&server, program.version_flag());
            if program.is_said_by(&version) {
                return Ok(Installed {
                    program,
                    version,
                    server: absolute(server),
                    local: absolute(local),
                    tunnel: absolute(tunnel),
                });
            }
        }
        Err(format!("{}: no {server} and {local} of it in {}", program.name(), listed(dirs)))
    }

    fn sing_box(&self) -> Result<Installed, String> {
        let program = Program::SingBox;
        let file = match &self.sing_box {
            Some(file) if file.is_file() => file.clone(),
            Some(file) => return Err(format!("sing-box: there is no {}", file.display())),
            None => self
                .peers
                .iter()
                .map(|dir| dir.join("sing-box"))
                .find(|file| file.is_file())
                .ok_or_else(|| format!("sing-box: not in {}", listed(&self.peers)))?,
        };
        let file = absolute(file);
        Ok(Installed {
            program,
            version: first_line(&file, program.version_flag()),
            server: file.clone(),
            local: file.clone(),
            tunnel: file,
        })
    }
}

fn listed(dirs: &[PathBuf]) -> String {
    let names: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    names.join(", ")
}

/// The path as seen from anywhere; the same path if the current directory is gone.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The first line with anything on it that the program prints when asked with `flag`.
fn first_line(program: &Path, flag: &str) -> String {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output();
    match output {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            let line = text.lines().map(str::trim).find(|line| !line.is_empty());
            line.unwrap_or("says nothing of its version").to_owned()
        }
        Err(error) => format!("cannot be asked for its version: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    fn fake(scratch: &Scratch, name: &str, words: &str) {
        let path = scratch.write(name, &format!("#!/bin/sh\necho\necho '{words}'\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    fn places(scratch: &Scratch) -> Places {
        let dir = scratch.file("x").parent().unwrap().to_owned();
        Places { adit: vec![dir.clone()], peers: vec![dir], sing_box: None }
    }

    #[test]
    fn takes_no_program_for_another_of_the_same_name() {
        let pairs = [Program::Adit, Program::Libev, Program::Rust];
        for (own, line) in
            pairs.iter().zip(["ss-server (adit) 0.1.0", "shadowsocks-libev 3.3.5", "shadowsocks 1"])
        {
            let scratch = Scratch::new().unwrap();
            for name in ["ss-server", "ss-local", "ssserver", "sslocal"] {
                fake(&scratch, name, line);
            }
            for program in pairs {
                let found = places(&scratch).find(program);
                assert_eq!(found.is_ok(), program == *own, "{program:?}: {line}");
                assert!(found.is_err() || found.is_ok_and(|it| it.version == line));
            }
        }
    }

    #[test]
    fn names_what_is_missing_and_where_it_looked() {
        let scratch = Scratch::new().unwrap();
        let places = places(&scratch);
        let why = places.find(Program::SingBox).unwrap_err();
        assert!(why.starts_with("sing-box: not in /"), "{why}");
        let why = places.find(Program::Rust).unwrap_err();
        assert!(why.contains("ssserver and sslocal"), "{why}");
    }

    #[test]
    fn names_are_unique_and_round_trip() {
        for program in Program::ALL {
            assert_eq!(Program::from_name(program.name()), Some(program));
        }
        assert_eq!(Program::from_name("socat"), None);
    }
}
