//! A running server with running clients of it, and the relays between them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use serde_json::Value;

use crate::account::{Account, relay_key};
use crate::datagram_target::DatagramTarget;
use crate::datagrams::{Association, Lens, Named, Wrapping};
use crate::documents::{self, Destination};
use crate::exchange::{Ending, Exchange, limit};
use crate::failure::Failure;
use crate::ports::Port;
use crate::process::Process;
use crate::programs::{Program, Role};
use crate::scratch::Scratch;
use crate::socks5;
use crate::target::{Host, Target};
use crate::traffic;

/// A program that listens on a loopback port. Fields in the order in which they must be dropped.
struct Running {
    process: Process,
    port: Port,
    _scratch: Scratch,
}

impl Running {
    /// Starts a program with the configuration that `document` makes for a port.
    fn start(
        program: Program,
        role: Role,
        document: impl FnOnce(u16) -> Value,
    ) -> Result<Self, Failure> {
        let file = program.find(role)?;
        let scratch = Scratch::new()?;
        let port = Port::reserve()?;
        let config = scratch.write("config.json", &document(port.number()).to_string())?;
        let args = documents::arguments(program, &config);
        let name = format!("the {} {role:?}", program.name());
        let mut process = Process::start(name, &file, &args, scratch.file("log"))?;
        process.wait_until_ready(port.number(), program.listens(role), program.how_to_install())?;
        Ok(Self { process, port, _scratch: scratch })
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()));
        let stream = stream.map_err(Failure::io("connect to the client"))?;
        limit(&stream)?;
        Ok(stream)
    }

    fn associate(&self, named: Named) -> Result<Association, Failure> {
        let mut control = self.connect()?;
        let mut relay = socks5::associate(&mut control)?;
        if relay.ip().is_unspecified() {
            // The address of the connection is meant.
            relay.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        Association::new(relay, Wrapping::Socks5 { _control: control, named })
    }
}

/// A running server.
pub(crate) struct Server {
    program: Program,
    account: Account,
    running: Running,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// When it is not installed or does not listen.
    pub(crate) fn start(program: Program, account: &Account) -> Result<Self, Failure> {
        let document = |port| documents::server(program, account, port);
        let running = Running::start(program, Role::Server, document)?;
        Ok(Self { program, account: account.clone(), running })
    }

    /// Starts a client of it.
    ///
    /// # Errors
    /// When it is not installed or does not listen.
    pub(crate) fn client(
        &self,
        program: Program,
        account: &Account,
    ) -> Result<Client<'_>, Failure> {
        self.directly().client(program, account)
    }

    /// The way to it without relays.
    fn directly(&self) -> Way<'_> {
        Way { relays: None, server: self }
    }

    /// How connections end that pass our tunnel and this server.
    pub(crate) fn ending(&self) -> Ending {
        ending(self.directly().keeps_half_open())
    }

    /// Runs an exchange through our tunnel to a fresh target.
    ///
    /// # Errors
    /// When the tunnel does not start or the exchange fails; with what both programs said.
    pub(crate) fn tunnel(
        &self,
        account: &Account,
        host: Host,
        exchange: &Exchange,
    ) -> Result<(), Failure> {
        let target = Target::listen(host)?;
        let name = host.with_port(target.port());
        let tunnel = self.start_tunnel(Program::Adit, account, (host.name(), target.port()))?;
        let outcome = tunnel.connect().and_then(|stream| exchange.run(&stream, &target));
        outcome.map_err(|failure| {
            let failure = failure.of(format!("{exchange:?} to {name}"));
            self.explain(failure, &tunnel)
        })
    }

    /// Runs datagrams of each of these lengths through a tunnel to a fresh target.
    ///
    /// # Errors
    /// When the tunnel does not start or a datagram fails; with what both programs said.
    pub(crate) fn tunnel_datagrams(
        &self,
        program: Program,
        account: &Account,
        host: Host,
        lens: &[Lens],
    ) -> Result<(), Failure> {
        let target = DatagramTarget::open(host)?;
        let name = host.with_port(target.port());
        let tunnel = self.start_tunnel(program, account, (host.name(), target.port()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, tunnel.port()));
        let mut association = Association::new(address, Wrapping::Tunnel)?;
        for lens in self.directly().carried(program, Role::Tunnel, lens) {
            association.exchange(&target, lens).map_err(|failure| {
                self.explain(failure.of(format!("{lens:?} to {name}")), &tunnel)
            })?;
        }
        Ok(())
    }

    fn start_tunnel(
        &self,
        program: Program,
        account: &Account,
        target: (&str, u16),
    ) -> Result<Running, Failure> {
        Running::start(program, Role::Tunnel, |local_port| {
            documents::tunnel(program, account, self.running.port(), local_port, target)
        })
    }

    fn explain(&self, failure: Failure, client: &Running) -> Failure {
        self.directly().explain(failure, client)
    }
}

/// Running relays (SIP023), one behind the other, the last of which knows several servers.
pub(crate) struct Relays {
    programs: Vec<Program>,
    /// In the order in which a client's request passes them.
    running: Vec<Running>,
    keys: Vec<String>,
}

impl Relays {
    /// Starts relays between clients and servers, all of which have this method.
    ///
    /// # Errors
    /// When one is not installed or does not listen.
    pub(crate) fn start(
        programs: &[Program],
        method: &'static str,
        servers: &[&Server],
    ) -> Result<Self, Failure> {
        let keys: Vec<_> = (0..programs.len()).map(|number| relay_key(method, number)).collect();
        let mut running = Vec::new();
        let mut destinations = servers
            .iter()
            .map(|server| Destination {
                port: server.running.port(),
                password: server.account.server_password.clone(),
            })
            .collect::<Vec<_>>();
        for (&program, key) in programs.iter().zip(&keys).rev() {
            let relay = Running::start(program, Role::Relay, |port| {
                documents::relay(program, method, key, port, &destinations)
            })?;
            destinations = vec![Destination { port: relay.port(), password: key.clone() }];
            running.insert(0, relay);
        }
        Ok(Self { programs: programs.to_vec(), running, keys })
    }

    /// The way through them to one of their servers.
    pub(crate) fn to<'a>(&'a self, server: &'a Server) -> Way<'a> {
        Way { relays: Some(self), server }
    }
}

/// What a client's requests pass.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    relays: Option<&'a Relays>,
    server: &'a Server,
}

impl<'a> Way<'a> {
    /// Starts a client with this account at the server.
    ///
    /// # Errors
    /// When it is not installed or does not listen.
    pub(crate) fn client(self, program: Program, account: &Account) -> Result<Client<'a>, Failure> {
        let relays = self.relays.map_or(&[][..], |relays| &relays.running);
        let keys = self.relays.map_or(&[][..], |relays| &relays.keys);
        let port = relays.first().unwrap_or(&self.server.running).port();
        let account = account.behind(keys.iter().map(String::as_str));
        let document = |local_port| documents::client(program, &account, port, local_port);
        let running = Running::start(program, Role::Client, document)?;
        Ok(Client { way: self, program, method: account.method, running })
    }

    /// Those of the lengths that a program with this role and all programs on the way relay; their
    /// longest ones instead of longer ones.
    fn carried(self, client: Program, role: Role, lens: &[Lens]) -> impl Iterator<Item = Lens> {
        let server = self.server.program;
        let programs = [client, server].into_iter().chain(self.relays().iter().copied());
        let max = programs.map(Program::datagram_len_max).min().unwrap_or(0);
        let empty =
            client.relays_empty_datagrams(role) && server.relays_empty_datagrams(Role::Server);
        let wanted = lens.iter().filter(move |l| l.upload > 0 || empty);
        wanted.map(move |l| Lens { upload: l.upload.min(max), download: l.download.min(max) })
    }

    fn relays(self) -> &'a [Program] {
        self.relays.map_or(&[], |relays| &relays.programs)
    }

    fn keeps_half_open(self) -> bool {
        // simple-obfs closes both directions at the first end of a stream.
        if self.server.account.guise.is_some() {
            return false;
        }
        let relays = self.relays();
        relays.iter().all(|program| program.keeps_half_open(Role::Relay))
            && self.server.program.keeps_half_open(Role::Server)
    }

    fn explain(self, failure: Failure, client: &Running) -> Failure {
        let relays = self.relays.map_or(&[][..], |relays| &relays.running);
        let all = [client].into_iter().chain(relays).chain([&self.server.running]);
        let logs: Vec<_> = all.map(|running| running.process.log_tail()).collect();
        failure.followed_by(&logs.join("\n"))
    }
}

/// A running SOCKS5 client of a server.
pub(crate) struct Client<'a> {
    way: Way<'a>,
    program: Program,
    method: &'static str,
    running: Running,
}

impl Client<'_> {
    /// How connections end that pass these two programs.
    pub(crate) fn ending(&self) -> Ending {
        ending(self.way.keeps_half_open() && self.program.keeps_half_open(Role::Client))
    }

    /// Whether a target may have the first word.
    pub(crate) fn target_may_begin(&self) -> bool {
        self.program.names_target_without_data(self.method)
    }

    /// Runs an exchange to a fresh target.
    ///
    /// shadowsocks-rust (seen with 1.25) draws the length of a request's padding from 0 to 900, and
    /// so sends one in 901 requests without payload that a server has to reject. Such a run says
    /// nothing about us: when it failed for that, by the server's own words, there is another.
    ///
    /// # Errors
    /// When it fails; with what both programs said.
    pub(crate) fn run(&self, host: Host, exchange: &Exchange) -> Result<(), Failure> {
        let may_forget = self.program == Program::Rust;
        let words = self.way.server.program.says_neither().filter(|_| may_forget);
        let rejected = || words.map_or(Ok(0), |w| self.way.server.running.process.count_lines(w));
        let before = rejected()?;
        let mut outcome = self.run_once(host, exchange);
        if outcome.is_err() && rejected()? == before + 1 {
            outcome = self.run_once(host, exchange);
        }
        outcome.map_err(|failure| {
            let failure = failure.of(format!("{exchange:?} to {host:?}"));
            self.way.explain(failure, &self.running)
        })
    }

    fn run_once(&self, host: Host, exchange: &Exchange) -> Result<(), Failure> {
        let target = Target::listen(host)?;
        let mut stream = self.running.connect()?;
        socks5::connect(&mut stream, host, target.port())?;
        exchange.run(&stream, &target)
    }

    /// Runs datagrams of each of these lengths to a fresh target per way to name it, and from its
    /// neighbour; over one association as far as the server has one for all.
    ///
    /// # Errors
    /// When one fails; with what all programs said.
    pub(crate) fn run_datagrams(&self, lens: &[Lens]) -> Result<(), Failure> {
        let [v4, v6, name] = Host::ALL;
        let associations: &[&[Host]] = if self.way.server.program.mixes_families() {
            &[&[v4, v6, name], &[name, v6, v4]]
        } else {
            &[&[v4], &[v6], &[name]]
        };
        let run = |hosts: &[Host]| {
            let mut association = self.associate()?;
            hosts.iter().try_for_each(|host| self.run_datagrams_to(*host, &mut association, lens))
        };
        let outcome = associations.iter().try_for_each(|hosts| run(hosts));
        outcome.map_err(|failure| self.way.explain(failure, &self.running))
    }

    fn run_datagrams_to(
        &self,
        host: Host,
        association: &mut Association,
        lens: &[Lens],
    ) -> Result<(), Failure> {
        let target = DatagramTarget::open(host)?;
        let name = host.with_port(target.port());
        for lens in self.way.carried(self.program, Role::Client, lens) {
            let outcome = association.exchange(&target, lens);
            outcome.map_err(|failure| failure.of(format!("{lens:?} to {name}")))?;
        }
        let outcome = association.hear_neighbour(&target);
        outcome.map_err(|failure| failure.of(format!("a neighbour of {name}")))
    }

    /// Sends datagrams that are not to reach their target.
    ///
    /// # Errors
    /// When they cannot be sent; with what all programs said.
    pub(crate) fn send_in_vain(&self, target: &DatagramTarget) -> Result<Association, Failure> {
        let outcome = self.associate().and_then(|mut association| {
            association.send_in_vain(target)?;
            Ok(association)
        });
        outcome.map_err(|failure| self.way.explain(failure, &self.running))
    }

    fn associate(&self) -> Result<Association, Failure> {
        let by_name = self.way.server.program.answers_from_names();
        self.running.associate(if by_name { Named::Name } else { Named::Address })
    }

    /// Makes sure that a connection brings no byte and does not reach its target.
    ///
    /// # Errors
    /// When it does; with what both programs said.
    pub(crate) fn reaches_nothing(&self, host: Host) -> Result<(), Failure> {
        let outcome = Target::listen(host).and_then(|target| {
            let mut stream = self.running.connect()?;
            // A client that connects before it answers may refuse already here.
            if socks5::connect(&mut stream, host, target.port()).is_ok() {
                traffic::Stream::new("unwanted").send(&mut stream, 1000)?;
                let got = traffic::drain(&mut stream)?;
                if got > 0 {
                    return Err(Failure::new(format!("{got} bytes came back")));
                }
            }
            match target.accept_waiting()? {
                Some(_) => Err(Failure::new("the target was reached")),
                None => Ok(()),
            }
        });
        outcome.map_err(|failure| self.way.explain(failure, &self.running))
    }
}

fn ending(half_open: bool) -> Ending {
    if half_open { Ending::HalfClose } else { Ending::CloseBoth }
}
