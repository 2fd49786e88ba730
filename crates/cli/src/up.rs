//! `adit up`: a server and a local proxy on this machine, with a key that is kept.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use adit_config::{Config, Host, Invocation, UsageError, links_of_file};
use adit_shadowsocks::Method;
use adit_sys::net::{OutboundOptions, connect_datagram, local_addr};
use adit_sys::private;

use crate::Failure::{self, Usage};
use crate::{Outcome, key, output, print, qr};

const HELP: &str = "\
Usage: adit up [OPTIONS]

Starts a Shadowsocks server and a local proxy that goes through it, both in this process, and
prints a link and its QR code for other devices. The key is made on the first run and kept.

  --port PORT        port of the server (first run: 8388; later: as kept)
  --local-port PORT  port of the local proxy (first run: 1080; later: as kept)
  --host HOST        name or address that other devices reach this machine by
  --config FILE      where key and ports are kept (default: adit/up.json in the
                     configuration directory); any Shadowsocks program reads it
  --new-key          make a new key; links given out before stop working
  --allow-private    let other devices reach this machine's private networks through the
                     server; without it private, loopback, link-local and cloud metadata
                     targets are refused
  -v                 log each connection
";

const METHOD: Method = Method::Blake3Aes256Gcm;
const PORT: u16 = 8388;
const LOCAL_PORT: u16 = 1080;
/// A documentation address (RFC 5737): asking for the route to it sends nothing.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

#[derive(Default)]
struct Options {
    port: Option<u16>,
    local_port: Option<u16>,
    host: Option<String>,
    config: Option<PathBuf>,
    new_key: bool,
    allow_private: bool,
    verbose: bool,
}

pub(crate) fn run(args: Vec<OsString>) -> Outcome {
    let Some(options) = parse(args)? else {
        return print(HELP);
    };
    let path = match &options.config {
        Some(path) => path.clone(),
        None => default_path().map_err(Usage)?,
    };
    let fail = |e: io::Error| Usage(format!("{}: {e}", path.display()));
    if options.new_key || !path.try_exists().map_err(fail)? {
        let text = fresh_config(&options).map_err(Usage)?;
        write_private(&path, &text).map_err(fail)?;
        output::print(&format!("made a new key and kept it in {}\n", path.display()))?;
    }
    let mut server_options = shared_args(&options);
    let private = if options.allow_private { "--allow-private" } else { "--block-private" };
    server_options.push(private.into());
    let mut server = load("ss-server", &path, server_options)?;
    // The file serves both ends, so what each says of the other's keys is no news.
    server.warnings.clear();
    let local = load("ss-local", &path, local_args(&options))?;
    announce(&options, &path, &server, &local)?;
    Ok(ExitCode::from(adit_proxy::run(vec![server, local])))
}

fn parse(args: Vec<OsString>) -> Result<Option<Options>, Failure> {
    use lexopt::ValueExt;
    let mut parser = lexopt::Parser::from_args(args);
    let mut options = Options::default();
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return Ok(None),
            lexopt::Arg::Long("port") => options.port = Some(parser.value()?.parse()?),
            lexopt::Arg::Long("local-port") => options.local_port = Some(parser.value()?.parse()?),
            lexopt::Arg::Long("host") => options.host = Some(parser.value()?.string()?),
            lexopt::Arg::Long("config") => options.config = Some(parser.value()?.into()),
            lexopt::Arg::Long("new-key") => options.new_key = true,
            lexopt::Arg::Long("allow-private") => options.allow_private = true,
            lexopt::Arg::Short('v') => options.verbose = true,
            other => return Err(other.unexpected().into()),
        }
    }
    if options.port == Some(0) || options.local_port == Some(0) {
        return Err(Usage("a port is a number from 1 to 65535".to_owned()));
    }
    Ok(Some(options))
}

fn default_path() -> Result<PathBuf, String> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let dir = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    dir.map(|dir| dir.join("adit/up.json"))
        .ok_or_else(|| "neither HOME nor XDG_CONFIG_HOME is set; give --config FILE".to_owned())
}

fn fresh_config(options: &Options) -> Result<String, String> {
    Ok(format!(
        r#"{{
    "server": "0.0.0.0",
    "server_port": {},
    "mode": "tcp_and_udp",
    "method": "{METHOD}",
    "password": "{}",
    "local_address": "127.0.0.1",
    "local_port": {}
}}
"#,
        options.port.unwrap_or(PORT),
        key::fresh(METHOD)?,
        options.local_port.unwrap_or(LOCAL_PORT),
    ))
}

/// Writes a file that only its owner can read, in directories that are made if they are not there.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    private::replace(path, text.as_bytes())
}

/// What both ends are told.
fn shared_args(options: &Options) -> Vec<OsString> {
    let port = options.port.map(|p| ["-p".into(), p.to_string().into()]);
    port.into_iter().flatten().chain(options.verbose.then(|| "-v".into())).collect()
}

/// The local side reaches the server on this machine, whatever address other devices use.
fn local_args(options: &Options) -> Vec<OsString> {
    let port = options.local_port.map(|p| ["-l".into(), p.to_string().into()]);
    ["-s".into(), "127.0.0.1".into()]
        .into_iter()
        .chain(port.into_iter().flatten())
        .chain(shared_args(options))
        .collect()
}

fn load(program: &str, path: &Path, mut args: Vec<OsString>) -> Result<Config, Failure> {
    args.extend(["-c".into(), path.into()]);
    match Config::from_args(program, args, &|name| std::env::var(name).ok()) {
        Ok(Invocation::Run(config)) => Ok(*config),
        Ok(_) => Err(Usage("unexpected answer from the configuration".to_owned())),
        Err(UsageError { diagnostics, .. }) => {
            let lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
            Err(Usage(lines.join("\nadit: ")))
        }
    }
}

fn announce(
    options: &Options,
    path: &Path,
    server: &Config,
    local: &Config,
) -> Result<(), Failure> {
    let host = match &options.host {
        Some(host) => {
            Host::parse(host).map_err(|_| Usage("--host takes a name or an address".to_owned()))?
        }
        None => Host::Ip(own_address()),
    };
    let env = |name: &str| std::env::var(name).ok();
    let links = links_of_file(path, Some(&host), &env).unwrap_or_default();
    let Some(mut link) = links.into_iter().next() else {
        return Err(Usage(format!("{}: has no server to make a link for", path.display())));
    };
    if let adit_config::Role::Server { listeners } = &server.role
        && let Some(listener) = listeners.first()
    {
        link.endpoint.port = listener.bind.port;
    }
    let link = link.encode();
    let image = qr::draw(&link).unwrap_or_else(|e| format!("({e})"));
    let mut text = format!(
        "\nOther devices (Shadowsocks apps scan or paste this; the port must be reachable):\n\n\
         {link}\n\n{image}\n\n"
    );
    if let adit_config::Role::Client { locals, .. } = &local.role
        && let Some(proxy) = locals.first()
    {
        text.push_str(&format!(
            "This machine:\n\n  curl -x socks5h://{} https://example.com/\n\n",
            proxy.bind
        ));
    }
    output::print(&text)
}

/// The address this machine uses towards others, or loopback without a network.
fn own_address() -> IpAddr {
    connect_datagram(ANYWHERE, &OutboundOptions::default())
        .and_then(|fd| Ok(local_addr(&fd)?.ip()))
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}
