//! A client and a server of ours, connected.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use crate::{Association, Process, Scratch, Wire, reserve, socks5};

/// A password that fits a method.
pub fn password(method: &str) -> &'static str {
    match method {
        "2022-blake3-aes-128-gcm" => "MDEyMzQ1Njc4OWFiY2RlZg==",
        m if m.starts_with("2022-") => "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        _ => "correct horse",
    }
}

/// A configuration file for both ends.
pub fn config(method: &str, server_port: u16, local_port: u16) -> String {
    format!(
        r#"{{"server": "127.0.0.1", "server_port": {server_port}, "method": "{method}",
"password": "{}", "local_address": "127.0.0.1", "local_port": {local_port}}}"#,
        password(method)
    )
}

/// `ss-server` and `ss-local`, running.
pub struct Pair {
    /// The server.
    pub server: Process,
    /// The client.
    pub local: Process,
    /// Port of the server.
    pub server_port: u16,
    /// Port of the client's proxy.
    pub local_port: u16,
    scratch: Scratch,
}

impl Pair {
    /// Starts both with a method.
    ///
    /// # Panics
    /// When one does not start.
    pub fn start(method: &str) -> Self {
        Self::with_args(method, &[], &[])
    }

    /// Starts both with further options.
    ///
    /// # Panics
    /// When one does not start.
    pub fn with_args(method: &str, server_args: &[&str], local_args: &[&str]) -> Self {
        let (server_port, local_port) = (reserve(), reserve());
        Self::on_ports(method, (server_port, server_port, local_port), server_args, local_args)
    }

    /// Starts both for UDP as well, with a wire for their datagrams between them.
    ///
    /// # Panics
    /// When one does not start.
    pub fn with_wire(method: &str, server_args: &[&str], local_args: &[&str]) -> (Self, Wire) {
        let (server_port, local_port) = (reserve(), reserve());
        let wire = Wire::to(SocketAddr::from((Ipv4Addr::LOCALHOST, server_port)));
        let server_args = &[&["-u"], server_args].concat();
        let local_args = &[&["-u"], local_args].concat();
        let ports = (server_port, wire.port(), local_port);
        (Self::on_ports(method, ports, server_args, local_args), wire)
    }

    fn on_ports(
        method: &str,
        (server_port, wire_port, local_port): (u16, u16, u16),
        server_args: &[&str],
        local_args: &[&str],
    ) -> Self {
        let scratch = Scratch::new();
        let start = |name, file: &str, port, args: &[&str]| {
            let file = scratch.write(file, &config(method, port, local_port));
            let file = file.to_str().expect("a temporary path is UTF-8");
            Process::start(name, ["-c", file].into_iter().chain(args.iter().copied()))
        };
        let server = start("ss-server", "pair.json", server_port, server_args);
        let local = start("ss-local", "local.json", wire_port, local_args);
        server.wait_for(&format!("listening on 127.0.0.1:{server_port}"));
        local.wait_for(&format!("listening on 127.0.0.1:{local_port}"));
        Self { server, local, server_port, local_port, scratch }
    }

    /// Starts another server in place of the one that ran.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart_server(&mut self) {
        self.restart_server_with(&[]);
    }

    /// As [`Pair::restart_server`], with further options.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart_server_with(&mut self, args: &[&str]) {
        let file = self.scratch.file("pair.json");
        let file = file.to_str().expect("a temporary path is UTF-8");
        let args = ["-c", file].into_iter().chain(args.iter().copied());
        self.server = Process::start("ss-server", args);
        self.server.wait_for(&format!("listening on 127.0.0.1:{}", self.server_port));
    }

    /// A connection through both to a loopback port.
    ///
    /// # Panics
    /// When the proxy refuses.
    pub fn open(&self, port: u16) -> TcpStream {
        socks5(self.local_port, "127.0.0.1", port)
    }

    /// A SOCKS5 association with the client.
    ///
    /// # Panics
    /// When the proxy refuses.
    pub fn associate(&self) -> Association {
        Association::at(self.local_port)
    }
}
