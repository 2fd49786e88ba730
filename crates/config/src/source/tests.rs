//! From a command line and a file to a configuration, and back again after the file changed.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::*;
use crate::config::Role;

/// Assembles a configuration from a command line and the text of a file, without a disk.
pub(crate) fn load(name: &str, line: &str, file: Option<&str>) -> Result<Config, Vec<String>> {
    load_with(name, line, file, &|_| None)
}

pub(crate) fn load_with(
    name: &str,
    line: &str,
    file: Option<&str>,
    env: Lookup<'_>,
) -> Result<Config, Vec<String>> {
    let invoked = Invoked::by_name(name).unwrap();
    let args = line.split(' ').filter(|arg| !arg.is_empty()).map(OsString::from);
    let arguments = match flags::parse(invoked, args) {
        Ok(Parsed::Run(arguments)) => *arguments,
        Ok(other) => panic!("{name} {line}: {other:?}"),
        Err(error) => return Err(vec![error.to_string()]),
    };
    let sources = Sources {
        invoked,
        file: file.map(|_| PathBuf::from("c.json")),
        has_secrets: arguments.has_secrets,
        arguments: arguments.raw,
        argument_warnings: arguments.warnings,
    };
    let mut findings = sources.findings();
    sources
        .assemble(file.map(str::as_bytes), env, &mut findings)
        .ok_or_else(|| findings.errors().iter().map(ToString::to_string).collect())
}

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("adit-config-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

const SERVER: &str = r#"{"server": "192.0.2.1", "server_port": 8388, "password": "pw"}"#;

fn from_args(name: &str, args: &[&str], env: Lookup<'_>) -> Result<Invocation, UsageError> {
    Config::from_args(name, args.iter().map(OsString::from), env)
}

fn listener(config: &Config) -> SocketAddr {
    match &config.role {
        Role::Server { listeners } => listeners[0].bind.socket_addr().unwrap(),
        Role::Client { .. } => panic!("a server"),
    }
}

#[test]
fn reads_the_file_it_is_given_and_reads_it_again() {
    let folder = Folder::new("reload");
    let path = folder.write("c.json", SERVER);
    let args = ["-c", path.to_str().unwrap(), "-t", "7", "-f", "relative.pid"];
    let Ok(Invocation::Run(config)) = from_args("/usr/bin/ss-server", &args, &|_| None) else {
        panic!("runs");
    };
    assert_eq!(listener(&config).to_string(), "192.0.2.1:8388");
    assert_eq!(config.file(), Some(path.as_path()));
    assert!(!config.secrets_on_argv && config.daemonize);
    assert!(config.pid_file.as_deref().is_some_and(Path::is_absolute));
    assert_eq!(config.timeout.as_secs(), 7);

    folder.write("c.json", &SERVER.replace("8388", "8389").replace('}', ", \"timeout\": 9}"));
    let again = config.reload(&|_| None).unwrap();
    assert_eq!(listener(&again).to_string(), "192.0.2.1:8389");
    assert_eq!(again.timeout.as_secs(), 7, "the command line still wins");

    folder.write("c.json", "{\"server\": ");
    let errors = again.reload(&|_| None).unwrap_err();
    assert!(errors[0].to_string().contains("c.json:1:12: expected a value"), "{}", errors[0]);
}

#[test]
fn looks_for_a_file_only_when_the_program_does() {
    let folder = Folder::new("search");
    folder.write("shadowsocks-libev/config.json", SERVER);
    let rust = SERVER.replace("8388", "1").replace('}', ", \"method\": \"aes-128-gcm\"}");
    folder.write("shadowsocks-rust/server.json", &rust);
    let home = folder.0.to_str().unwrap().to_owned();
    let env = move |name: &str| (name == "XDG_CONFIG_HOME").then(|| home.clone());
    let port = |name, args: &[&str]| match from_args(name, args, &env) {
        Ok(Invocation::Run(config)) => Some(listener(&config).port()),
        _ => None,
    };
    assert_eq!(port("ss-server", &[]), Some(8388));
    assert_eq!(port("ss-server", &["-v"]), None, "libev looks only without arguments");
    assert_eq!(port("ssserver", &[]), Some(1));
    assert_eq!(port("ssserver", &["-v"]), Some(1));
    assert_eq!(port("ssserver", &["-s", "[::]:2", "-k", "x", "-m", "aes-128-gcm"]), Some(2));
}

#[test]
fn search_paths_follow_the_environment() {
    let env = |name: &str| (name == "HOME").then(|| "/home/u".to_owned());
    let paths = |name| {
        let paths = search_path(Invoked::by_name(name).unwrap(), &env);
        paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        paths("ss-local"),
        "/home/u/.config/shadowsocks-libev/config.json /etc/shadowsocks-libev/config.json"
    );
    assert_eq!(
        paths("sslocal"),
        "local.json config.json /home/u/.config/shadowsocks-rust/local.json \
         /home/u/.config/shadowsocks-rust/config.json /etc/xdg/shadowsocks-rust/local.json \
         /etc/xdg/shadowsocks-rust/config.json /etc/shadowsocks-rust/local.json \
         /etc/shadowsocks-rust/config.json"
    );
}

#[test]
fn help_and_version_need_no_configuration() {
    assert!(matches!(from_args("ss-local", &["-h"], &|_| None),
        Ok(Invocation::Help(text)) if text.contains("Usage:")));
    assert!(matches!(from_args("ssserver", &["--version"], &|_| None),
        Ok(Invocation::Version(text)) if text.starts_with("ssserver (adit) ")));
}

#[test]
fn usage_errors_point_to_the_help() {
    for (name, args, part) in [
        (
            "ss-local",
            &["-s", "h", "-p", "1", "-l", "1080"][..],
            "missing required argument --password",
        ),
        ("ss-local", &["-s", "h", "-k", "hunter2", "-l", "1080"], "each server needs a port"),
        (
            "ss-local",
            &["-s", "2001:db8::1:8388", "-k", "hunter2", "-l", "1"],
            "each server needs a port",
        ),
        (
            "ss-local",
            &["-s", "h", "-p", "1", "-k", "hunter2"],
            "missing required argument --listen-port",
        ),
        (
            "ss-local",
            &["-p", "1", "-k", "hunter2", "-l", "1"],
            "missing required argument --server,",
        ),
        (
            "ss-tunnel",
            &["-s", "h:1", "-k", "hunter2", "-l", "1"],
            "missing required argument --destination",
        ),
        (
            "ss-server",
            &["-l", "1080", "-k", "hunter2"],
            "option --local-port: the server has no local port",
        ),
        ("ss-server", &["-k", "hunter2"], "missing required argument --listen-port"),
        ("ssserver", &["-k", "hunter2"], "missing required argument --server-addr"),
        (
            "sslocal",
            &["-s", "h:1", "-k", "hunter2", "-b", "[::1]:1"],
            "missing required argument --encrypt-method",
        ),
        (
            "sslocal",
            &[
                "-u",
                "--protocol",
                "http",
                "-s",
                "h:1",
                "-k",
                "hunter2",
                "-b",
                "[::1]:1",
                "-m",
                "none",
            ],
            "option -u: an HTTP proxy relays TCP only",
        ),
        (
            "ss-local",
            &["-U", "-b", "/run/hunter2", "-s", "h:1", "-k", "hunter2"],
            "option --udp-only: a Unix socket relays TCP only",
        ),
        ("ss-proxy", &[], "unknown program name"),
    ] {
        let error = from_args(name, args, &|_| None).expect_err(part);
        let text = error.to_string();
        assert!(text.contains(part), "{name} {args:?}: {text}");
        assert!(text.contains("--help"), "{text}");
        assert!(!text.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{text}");
    }
}

#[test]
fn reads_all_of_a_file_that_grows_and_not_more_than_a_document() {
    /// Gives three bytes at a time.
    struct Drip<'a>(&'a [u8]);
    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let room = into.len().min(3);
            self.0.read(&mut into[..room])
        }
    }
    let text = vec![b'x'; SIZE_MAX + 9];
    for (len, expected) in [(0, 0), (1, 1), (2, 2), (1000, 1000), (SIZE_MAX + 9, SIZE_MAX + 1)] {
        for room in [1, 2, 1001, SIZE_MAX + 1] {
            let bytes =
                fill(&mut Drip(&text[..len]), Zeroizing::new(vec![0; room]), SIZE_MAX).unwrap();
            assert_eq!(*bytes, text[..expected], "{len} bytes, room for {room}");
        }
    }
    let folder = Folder::new("length");
    let path = folder.write("c.json", SERVER);
    let bytes = read(&path).unwrap();
    assert_eq!((&**bytes, bytes.capacity()), (SERVER.as_bytes(), SERVER.len() + 1));
}

#[test]
fn unreadable_files_are_named() {
    let error = from_args("ss-local", &["-c", "/nonexistent/c.json"], &|_| None).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("ss-local: /nonexistent/c.json: cannot be read: "), "{text}");
    assert!(from_args("ss-local", &["-c", "/"], &|_| None).is_err());
    let folder = Folder::new("large");
    let path = folder.write("c.json", &" ".repeat(SIZE_MAX + 1));
    let error = from_args("ss-local", &["-c", path.to_str().unwrap()], &|_| None).unwrap_err();
    assert!(error.to_string().contains("larger than 1 MiB"), "{error}");
}

#[test]
fn the_environment_supplies_passwords() {
    let file = r#"{"server": "h", "server_port": 1, "local_port": 1, "password": "${PW}"}"#;
    let set = |name: &str| (name == "PW").then(|| "hunter2".to_owned());
    let config = load_with("ss-local", "", Some(file), &set).unwrap();
    assert!(config.warnings.is_empty());
    let same = load("ss-local", "", Some(&file.replace("${PW}", "hunter2"))).unwrap();
    assert!(key(&config) == key(&same));

    let literal = load("ss-local", "", Some(file)).unwrap();
    assert!(literal.warnings[0].contains("no such variable"), "{:?}", literal.warnings);
    assert!(!literal.warnings[0].contains("PW"));
    assert!(key(&literal) != key(&same));

    let fallback = |name: &str| (name == "SS_SERVER_PASSWORD").then(|| "hunter2".to_owned());
    let config = load_with("ss-local", "-s h:1 -l 1", None, &fallback).unwrap();
    assert!(key(&config) == key(&same) && !config.secrets_on_argv);
    let bad = load_with("ss-local", "-s h:1 -l 1 -m 2022-blake3-aes-128-gcm", None, &fallback);
    let text = bad.unwrap_err().join("\n");
    assert!(text.starts_with("environment variable SS_SERVER_PASSWORD: "), "{text}");
}

fn key(config: &Config) -> &adit_shadowsocks::ClientKey {
    match &config.role {
        Role::Client { servers, .. } => &servers[0].key,
        Role::Server { .. } => panic!("a client"),
    }
}

#[test]
fn debug_output_hides_passwords() {
    let line = "-s h:1 -l 1 -k hunter2 --mtu 9";
    let config = load("ss-local", line, None).unwrap();
    assert!(config.secrets_on_argv);
    assert!(!format!("{config:?}").contains("hunter2"));
}
