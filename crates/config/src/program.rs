//! The programs, the names they are started under, and the option dialect of each name.
//!
//! The same letter means different things in the two families (`-u` and `-U` are swapped, `-f`,
//! `-d`, `-s` and `-b` differ), so the name decides: `ss-*` reads options as the C programs do,
//! `sslocal`, `ssserver` and `ssmanager` as the Rust programs do.

use std::fmt;

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// Client with SOCKS, HTTP and tunnel listeners.
    Local,
    /// Server.
    Server,
    /// Client with one fixed target.
    Tunnel,
    /// Client for what the firewall redirects.
    Redir,
    /// Server whose ports come and go by request.
    Manager,
}

/// How options are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// As shadowsocks-libev and shadowsocks-c do.
    Libev,
    /// As shadowsocks-rust does.
    Rust,
}

/// A name a program is started under and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Invoked {
    /// File name of the program.
    pub name: &'static str,
    /// What it does.
    pub program: Program,
    /// How it reads options.
    pub dialect: Dialect,
}

/// Every name a program may be started under.
pub const PROGRAMS: [Invoked; 8] = [
    Invoked { name: "ss-local", program: Program::Local, dialect: Dialect::Libev },
    Invoked { name: "ss-server", program: Program::Server, dialect: Dialect::Libev },
    Invoked { name: "ss-tunnel", program: Program::Tunnel, dialect: Dialect::Libev },
    Invoked { name: "ss-redir", program: Program::Redir, dialect: Dialect::Libev },
    Invoked { name: "ss-manager", program: Program::Manager, dialect: Dialect::Libev },
    Invoked { name: "sslocal", program: Program::Local, dialect: Dialect::Rust },
    Invoked { name: "ssserver", program: Program::Server, dialect: Dialect::Rust },
    Invoked { name: "ssmanager", program: Program::Manager, dialect: Dialect::Rust },
];

impl Invoked {
    /// Finds a program by its file name; directories in front are ignored.
    pub fn by_name(name: &str) -> Option<Self> {
        let name = name.rsplit('/').next().unwrap_or(name);
        PROGRAMS.into_iter().find(|p| p.name == name)
    }

    /// The name under which `program` reads options as `dialect` does.
    pub fn of(program: Program, dialect: Dialect) -> Option<Self> {
        PROGRAMS.into_iter().find(|p| p.program == program && p.dialect == dialect)
    }
}

impl Program {
    /// Whether it is a client.
    pub const fn is_client(self) -> bool {
        matches!(self, Self::Local | Self::Tunnel | Self::Redir)
    }
}

impl fmt::Debug for Invoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
