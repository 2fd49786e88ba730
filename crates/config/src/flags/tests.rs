//! Every option of both dialects, in every spelling.

use std::ffi::OsString;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::{AddressOrder, LogLevel, Mode, Protocol};
use crate::program::{Invoked, PROGRAMS};
use crate::raw::Bind;
use crate::secret::Secret;
use crate::value::Nameservers;

fn invoked(name: &str) -> Invoked {
    Invoked::by_name(name).unwrap()
}

fn args(line: &str) -> Vec<OsString> {
    line.split(' ').filter(|arg| !arg.is_empty()).map(OsString::from).collect()
}

fn run(name: &str, line: &str) -> Arguments {
    match parse(invoked(name), args(line)) {
        Ok(Parsed::Run(arguments)) => *arguments,
        other => panic!("{name} {line}: {other:?}"),
    }
}

fn error(name: &str, line: &str) -> String {
    parse(invoked(name), args(line)).expect_err(line).to_string()
}

/// One value as text, so that tables can compare any of them.
fn show(raw: &Raw, what: &str) -> String {
    // A link is a server of its own.
    let server = raw.servers.first().unwrap_or(&raw.server);
    match what {
        "hosts" => server
            .hosts
            .iter()
            .map(|h| format!("{}/{:?}", h.value.0, h.value.1))
            .collect::<Vec<_>>()
            .join(" "),
        "port" => format!("{:?}", server.port.as_ref().map(|p| p.value)),
        "method" => server.method.as_ref().map_or("-", |m| m.value.name()).to_owned(),
        "secret" => match server.secret.as_ref().map(|s| &s.value) {
            Some(Secret::Password(text)) => format!("password {}", text.as_str()),
            Some(Secret::Key(text)) => format!("key {}", text.as_str()),
            None => "-".to_owned(),
        },
        "timeout" => format!("{:?}", server.timeout),
        "bind" => {
            server.outbound.bind.iter().map(|b| b.value.to_string()).collect::<Vec<_>>().join(" ")
        }
        "local" => format!(
            "{}/{:?}",
            match raw.local.address.as_ref().map(|at| &at.value) {
                None => "-".to_owned(),
                Some(Bind::Host(host)) => host.to_string(),
                Some(Bind::Unix(path)) => path.display().to_string(),
            },
            raw.local.port.as_ref().map(|p| p.value)
        ),
        "udp" => format!(
            "{:?} {:?} {:?}",
            raw.local.udp_address.as_ref().map(|at| &at.value),
            raw.local.udp_port.as_ref().map(|at| at.value),
            raw.local.udp_associate.as_ref().map(|at| &at.value)
        ),
        "target" => {
            raw.local.target.as_ref().map_or_else(|| "-".to_owned(), |t| t.value.to_string())
        }
        "interface" => format!("{:?}", server.outbound.interface),
        "user" => format!("{:?}", raw.user),
        "nofile" => format!("{:?}", raw.nofile),
        "workers" => format!("{:?}", raw.workers.map(u16::from)),
        "pid" => format!("{:?} {}", raw.pid_file, raw.daemonize),
        _ => panic!("unknown setting {what}"),
    }
}

#[test]
fn libev_options_with_values() {
    for (name, spellings, what, value) in [
        ("ss-local", "-s h:1|-sh:1|--server h:1|--server=h:1", "hosts", "h/Some(1)"),
        ("ss-server", "-s ::|--listen-address ::|--server=::", "hosts", "::/None"),
        ("ss-local", "-s a -s b:2", "hosts", "a/None b/Some(2)"),
        ("ss-local", "-p 8388|-p8388|--server-port 8388", "port", "Some(8388)"),
        ("ss-server", "-p 8388|-p8388|--listen-port=8388|--server-port 8388", "port", "Some(8388)"),
        (
            "ss-tunnel",
            "-l 1080|-l1080|--listen-port 1080|--local-port=1080",
            "local",
            "-/Some(1080)",
        ),
        ("ss-local", "-b ::1|-b::1|--listen-address ::1|--local-address ::1", "local", "::1/None"),
        ("ss-local", "-b /run/x|-b unix:/run/x", "local", "/run/x/None"),
        ("ss-tunnel", "--outbound-address ::2", "bind", "::2"),
        ("ss-server", "-b 10.0.0.1|-b10.0.0.1|--outbound-address 10.0.0.1", "bind", "10.0.0.1"),
        ("ss-server", "-b 10.0.0.1 -b ::2 -b 10.0.0.3", "bind", "::2 10.0.0.3"),
        ("ss-local", "-k =x-y|-k=x-y|--password =x-y|--password==x-y", "secret", "password =x-y"),
        ("ss-server", "-k -x|-k-x|--password -x|--pass=-x", "secret", "password -x"),
        ("ss-server", "--key QUJD|--key=QUJD", "secret", "key QUJD"),
        (
            "ss-local",
            "-m aes-128-gcm|-maes-128-gcm|--cipher aes-128-gcm|--method aes-128-gcm",
            "method",
            "aes-128-gcm",
        ),
        ("ss-local", "-t 5|-t5|--timeout 5|--time=5", "timeout", "Some(5s)"),
        ("ss-server", "-a nobody|--user nobody", "user", "Some(\"nobody\")"),
        ("ss-server", "-f /run/x|--pid-file=/run/x", "pid", "Some(\"/run/x\") true"),
        ("ss-server", "-n 1024|--nofile 1024", "nofile", "Some(1024)"),
        ("ss-tunnel", "-i eth0|-ieth0|--interface eth0", "interface", "Some(\"eth0\")"),
        ("ss-tunnel", "-L h:53|-Lh:53|--destination h:53|--tunnel-address h:53", "target", "h:53"),
        ("ss-tunnel", "-L [::1]:53", "target", "[::1]:53"),
        ("ss-local", "--workers 4|--workers=4", "workers", "Some(4)"),
        ("ss-local", "--server-url ss://aes-128-gcm:pw@h:9#n", "secret", "password pw"),
        ("ss-local", "--server-url ss://aes-128-gcm:pw@h:9#n", "hosts", "h/Some(9)"),
        ("ss-local", "--server-url ss://aes-128-gcm:pw@h:9#n", "method", "aes-128-gcm"),
    ] {
        for line in spellings.split('|') {
            assert_eq!(show(&run(name, line).raw, what), value, "{name} {line}");
        }
    }
}

#[test]
fn rust_options_with_values() {
    for (name, spellings, what, value) in [
        (
            "sslocal",
            "-s h:1|-sh:1|--server-addr h:1|--server-addr=h:1|-s=h:1",
            "hosts",
            "h/Some(1)",
        ),
        ("ssserver", "-s [::]:1|--server-addr [::]:1", "hosts", "::/Some(1)"),
        ("sslocal", "-b 127.0.0.1:1|--local-addr 127.0.0.1:1", "local", "127.0.0.1/Some(1)"),
        ("sslocal", "-b unix:/run/x|-b /run/x", "local", "/run/x/None"),
        ("sslocal", "--udp-bind-addr [::1]:2", "udp", "Some(Ip(::1)) Some(2) None"),
        ("sslocal", "--udp-associate-addr 1.2.3.4:2", "udp", "None None Some((1.2.3.4, Some(2)))"),
        ("ssserver", "-b ::2|--outbound-bind-addr ::2|--bind-addr ::2", "bind", "::2"),
        ("sslocal", "--outbound-bind-addr 10.0.0.1|--bind-addr=10.0.0.1", "bind", "10.0.0.1"),
        ("sslocal", "-f h:53|--forward-addr h:53", "target", "h:53"),
        ("sslocal", "-k x|-kx|-k=x|--password x", "secret", "password x"),
        ("ssserver", "-m none|--encrypt-method none|-mplain", "method", "none"),
        ("ssserver", "--timeout 5", "timeout", "Some(5s)"),
        ("sslocal", "--outbound-bind-interface eth0", "interface", "Some(\"eth0\")"),
        ("sslocal", "-a nobody|--user nobody", "user", "Some(\"nobody\")"),
        ("sslocal", "-n 9|--nofile 9", "nofile", "Some(9)"),
        (
            "ssserver",
            "-d --daemonize-pid /x|--daemonize --daemonize-pid=/x",
            "pid",
            "Some(\"/x\") true",
        ),
        ("ssserver", "--daemonize-pid /x", "pid", "Some(\"/x\") false"),
        ("sslocal", "--worker-threads 3|--workers 3", "workers", "Some(3)"),
        ("sslocal", "--single-threaded", "workers", "Some(1)"),
        ("ssserver", "--server-url ss://aes-128-gcm:pw@h:9", "hosts", "h/Some(9)"),
    ] {
        for line in spellings.split('|') {
            assert_eq!(show(&run(name, line).raw, what), value, "{name} {line}");
        }
    }
}

#[test]
fn switches_of_both_dialects() {
    type Check = fn(&Raw) -> bool;
    let checks: [(&str, &str, Check); 35] = [
        ("ss-local", "--reuse-port", |r| r.sockets.reuse_port == Some(true)),
        ("ss-local", "--fast-open", |r| r.sockets.fast_open == Some(true)),
        ("ss-local", "--no-delay", |r| r.sockets.no_delay == Some(true)),
        ("ss-local", "--mptcp", |r| r.sockets.mptcp == Some(true)),
        ("ss-local|sslocal", "-6", |r| r.address_order == Some(AddressOrder::Ipv6First)),
        ("ss-local|ssserver", "--ipv6-first", |r| r.address_order == Some(AddressOrder::Ipv6First)),
        ("ss-local|ssserver", "--ipv4-first", |r| r.address_order == Some(AddressOrder::Ipv4First)),
        ("ss-local|sslocal", "-v", |r| r.log_level == Some(LogLevel::Debug)),
        ("ss-local|sslocal", "-v -v|-vvv|--verbose -v", |r| r.log_level == Some(LogLevel::Trace)),
        ("ss-local|sslocal", "--log-without-time", |r| r.log_without_time == Some(true)),
        ("ss-local", "-U -u", |r| mode(r) == Some(Mode::TcpAndUdp)),
        ("ss-local", "-u -U|--udp-only", |r| mode(r) == Some(Mode::UdpOnly)),
        ("ss-local", "-uU --tcp-only", |r| mode(r) == Some(Mode::TcpOnly)),
        ("ss-server|ss-tunnel", "-u|--udp", |r| mode(r) == Some(Mode::TcpAndUdp)),
        ("ssserver", "-U --tcp-only", |r| mode(r) == Some(Mode::TcpOnly)),
        ("ssserver", "-U -u", |r| mode(r) == Some(Mode::UdpOnly)),
        ("ss-tunnel|ssserver", "--udp-timeout 7", |r| {
            r.udp_timeout == Some(Duration::from_secs(7))
        }),
        ("ss-tunnel|ssserver", "--udp-max-associations 7", |r| r.udp_sessions_max == Some(7)),
        ("ss-manager|ss-server|ssserver", "--allow-private --block-private", |r| {
            r.block_private == Some(true)
        }),
        ("ss-manager|ss-server|ssserver", "--block-private --allow-private", |r| {
            r.block_private == Some(false)
        }),
        ("ss-server|ssserver", "--max-connections-per-client 7", |r| {
            r.connections_per_client == Some(7)
        }),
        ("ss-server|ssserver", "--max-sessions-per-client=0", |r| r.sessions_per_client == Some(0)),
        ("ss-local|sslocal", "--printable-salt", |r| r.printable_salt == Some(true)),
        ("ss-server|ss-tunnel", "--keep-alive 7 --fwmark 0x7", |r| {
            r.server.outbound.fwmark == Some(7)
                && r.sockets.keep_alive == Some(Duration::from_secs(7))
        }),
        ("sslocal", "-u", |r| mode(r) == Some(Mode::UdpOnly)),
        ("sslocal", "-U", |r| mode(r) == Some(Mode::TcpAndUdp)),
        ("ssserver", "--tcp-no-delay|--no-delay", |r| r.sockets.no_delay == Some(true)),
        ("ssserver", "--tcp-fast-open|--fast-open", |r| r.sockets.fast_open == Some(true)),
        ("ssserver", "--tcp-multipath|--mptcp", |r| r.sockets.mptcp == Some(true)),
        ("ssserver", "--tcp-keep-alive 7", |r| {
            r.sockets.keep_alive == Some(Duration::from_secs(7))
        }),
        ("ssserver", "--outbound-fwmark 7|--outbound-fwmark=0x7", |r| {
            r.server.outbound.fwmark == Some(7)
        }),
        ("ssserver", "--dns system", |r| r.nameservers == Some(Nameservers::System)),
        ("ssserver", "--dns-cache-size 7", |r| r.dns_cache_size == Some(7)),
        (
            "ss-local|ss-server|ss-tunnel",
            "-d 1.1.1.1,9.9.9.9|--nameserver 1.1.1.1,[::1]:54",
            |r| matches!(&r.nameservers, Some(Nameservers::Listed(list)) if list.len() == 2),
        ),
        ("sslocal", "--protocol http", |r| {
            r.local.protocol.as_ref().map(|p| p.value) == Some(Protocol::Http)
        }),
    ];
    for (names, lines, check) in checks {
        for name in names.split('|') {
            for line in lines.split('|') {
                assert!(check(&run(name, line).raw), "{name} {line}");
            }
        }
    }
}

fn mode(raw: &Raw) -> Option<Mode> {
    raw.mode.as_ref().map(|mode| mode.value)
}

#[test]
fn buffers_of_both_dialects() {
    for (name, stems) in [
        (
            "ss-local",
            [
                "--tcp-incoming-sndbuf",
                "--tcp-incoming-rcvbuf",
                "--tcp-outgoing-sndbuf",
                "--tcp-outgoing-rcvbuf",
            ],
        ),
        (
            "sslocal",
            [
                "--inbound-send-buffer-size",
                "--inbound-recv-buffer-size",
                "--outbound-send-buffer-size",
                "--outbound-recv-buffer-size",
            ],
        ),
    ] {
        let line = stems.iter().enumerate().map(|(i, stem)| format!("{stem} {} ", 20000 + i));
        let raw = run(name, &line.collect::<String>()).raw.sockets;
        let sizes =
            [raw.incoming_sndbuf, raw.incoming_rcvbuf, raw.outgoing_sndbuf, raw.outgoing_rcvbuf];
        assert_eq!(sizes.map(|s| s.map(|s| s.value)), [20000, 20001, 20002, 20003].map(Some));
    }
}

#[test]
fn help_and_version_end_at_once() {
    for invoked in PROGRAMS {
        for line in ["-h", "--help", "-vh -k", "--he"] {
            assert!(matches!(parse(invoked, args(line)), Ok(Parsed::Help)), "{invoked:?} {line}");
        }
        for line in ["-V", "--version"] {
            assert!(matches!(parse(invoked, args(line)), Ok(Parsed::Version)), "{invoked:?}");
        }
    }
}

#[test]
fn refuses_what_is_not_there() {
    for (name, lines) in [
        ("ss-local", "-A|--plugin obfsproxy"),
        ("ss-server", "-A|--plugin=obfs-server;obfs=http|--nftables-sets x|-l 1"),
        ("ss-tunnel", "-A|--plugin /bin/obfsproxy"),
        (
            "sslocal",
            "--plugin obfsproxy|--plugin-mode x|--local-dns-addr x|--remote-dns-addr x|--tun-interface-name x|--tun-device-fd-from-path x|--fake-dns-database-path x|--log-config x|--outbound-user-cookie 1|--protocol dns|--server-url ss://aes-128-gcm:x@h:1?plugin=obfsproxy",
        ),
        ("ssserver", "--outbound-proxy x|--plugin /bin/obfsproxy"),
    ] {
        for line in lines.split('|') {
            let text = error(name, line);
            assert!(text.starts_with("option "), "{name} {line}: {text}");
            assert!(text.contains("version") || text.contains("; "), "{name} {line}: {text}");
        }
    }
    // Empty means none, as scripts write it.
    for name in ["ss-local", "sslocal"] {
        let args = ["--plugin", "", "--acl="].map(OsString::from);
        assert!(parse(invoked(name), args).is_ok(), "{name}");
    }
}

#[test]
fn warns_about_a_largest_packet() {
    for name in ["ss-local", "ss-server", "ss-tunnel"] {
        let warnings = run(name, "--mtu 1400").warnings;
        assert_eq!(warnings.len(), 1, "{name}");
        assert!(warnings[0].1.contains("datagrams of any size"), "{}", warnings[0].1);
    }
    assert!(run("ssserver", "--outbound-udp-allow-fragmentation").warnings.is_empty());
}

#[test]
fn usage_errors_name_the_option_only() {
    for (name, line, part) in [
        ("ss-local", "-p hunter2", "1 to 65535"),
        ("ss-local", "-l 0", "1 to 65535"),
        ("ss-local", "-l 65536", "1 to 65535"),
        ("ss-local", "--timeout hunter2", "positive integer"),
        ("ss-local", "--timeout 0", "positive integer"),
        ("ss-local", "--timeout 2147483648", "positive integer"),
        ("ss-local", "-s hunter2:bad", "invalid server endpoint"),
        ("ss-local", "-s [hunter2]:1", "invalid server endpoint"),
        ("ss-local", "-m hunter2", "unknown method"),
        ("ss-local", "-m rc4-md5", "aes-256-gcm"),
        ("ss-local", "-k", "needs a value"),
        ("ss-local", "--no-delay=hunter2", "takes no value"),
        ("ss-local", "hunter2", "unexpected argument"),
        ("ss-local", "-k a hunter2", "unexpected argument"),
        ("ss-local", "--passwrod=hunter2", "did you mean --password"),
        ("ss-local", "--tcp", "ambiguous"),
        ("ss-local", "-Q", "unknown option -Q"),
        ("ss-server", "-L h:1", "unknown option -L"),
        ("ss-local", "-T", "unknown option -T"),
        ("sslocal", "-p 1", "unknown option -p"),
        ("sslocal", "-b hunter2", "port is missing"),
        ("sslocal", "-s hunter2", "each server needs a port"),
        ("ss-tunnel", "-L hunter2", "port is missing"),
        ("ss-local", "-b ./hunter2", "the whole path of the Unix socket"),
        ("ss-local", "--udp-max-associations 0", "from 1 to 1048576"),
        ("ss-local", "--max-sessions-per-client hunter2", "integer from 0"),
        ("sslocal", "--udp-bind-addr hunter2", "port is missing"),
        ("sslocal", "--udp-associate-addr hunter2:1", "a name is not possible"),
        ("sslocal", "--udp-bind-addr /run/hunter2:1", "Unix socket is not possible"),
        ("ss-local", "-i this-name-is-too-long", "interface"),
        ("ss-local", "--workers 0", "1 to 1024"),
        ("ss-local", "-d hunter2", "IP addresses"),
        ("ss-local", "--server-url hunter2", "ss://"),
        ("ss-local", "--server-url ss://rc4:hunter2@h:1", "removed"),
        ("ssserver", "--dns hunter2", "IP addresses"),
        ("ssserver", "--tcp-keep-alive 99999", "32767"),
        ("ssserver", "--outbound-fwmark hunter2", "4294967295"),
        ("ss-server", "-b hunter2", "IP address"),
    ] {
        let text = error(name, line);
        assert!(text.contains(part), "{name} {line}: {text}");
        assert!(!text.contains("hunter2"), "{name} {line}: {text}");
    }
    let many = "-s h ".repeat(11);
    assert!(error("ss-local", &many).contains("more than 10"));
}

#[test]
fn knows_when_a_secret_was_given() {
    for (line, secret) in [
        ("-k x", true),
        ("--key QQ", true),
        ("--server-url ss://aes-128-gcm:x@h:1", true),
        ("-s h -p 1", false),
    ] {
        assert_eq!(run("ss-local", line).has_secrets, secret, "{line}");
    }
}

#[test]
fn spellings_are_unique_in_each_program() {
    for invoked in PROGRAMS {
        let mut seen = std::collections::BTreeSet::new();
        for flag in table(invoked.program, invoked.dialect) {
            let short = flag.short.map(|c| format!("-{c}"));
            for name in flag
                .long()
                .map(ToOwned::to_owned)
                .chain(short)
                .collect::<std::collections::BTreeSet<_>>()
            {
                assert!(seen.insert(name.clone()), "{invoked:?} has {name} twice");
            }
        }
    }
}

proptest! {
    #[test]
    fn junk_never_panics(text in "[-=a-zA-Z0-9:/\\[\\].\\x00\\PC]{0,60}") {
        crate::fuzz::arguments(&text);
    }
}
