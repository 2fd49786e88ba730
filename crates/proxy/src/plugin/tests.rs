//! What plugins are told, and who gets to them.

use std::ffi::OsString;
use std::net::SocketAddr;

use adit_config::{Config, Endpoint, Invocation};
use adit_engine::guard::Transport;

use super::job::{Job, Plugged, Side, jobs};

fn config(program: &str, line: &str) -> Config {
    let common = "-k x -m aes-256-gcm --plugin /bin/p ";
    let args = format!("{common}{line}");
    let args = args.split_whitespace().map(OsString::from);
    match Config::from_args(program, args, &|_| None) {
        Ok(Invocation::Run(config)) => *config,
        other => panic!("{line}: {other:?}"),
    }
}

fn one(program: &str, line: &str) -> Job {
    let mut jobs = jobs(&config(program, line));
    assert_eq!(jobs.len(), 1, "{line}");
    jobs.remove(0)
}

fn local() -> SocketAddr {
    "127.0.0.1:4000".parse().expect("an address")
}

#[test]
fn plugins_find_their_addresses_in_the_environment() {
    for (program, line, remote, options) in [
        ("ss-local", "-s h.example -p 443 -l 1 --plugin-opts a;b=c", ["h.example", "443"], "a;b=c"),
        ("ss-local", "-s 2001:db8::1 -p 8388 -l 1", ["2001:db8::1", "8388"], ""),
        ("ss-tunnel", "-s 192.0.2.1:8388 -l 1 -L h:1", ["192.0.2.1", "8388"], ""),
        ("ss-server", "-s 0.0.0.0 -p 443 --plugin-opts tls", ["0.0.0.0", "443"], "tls"),
    ] {
        let job = one(program, line);
        let environment = job.environment(local());
        let mut expected = vec![
            ("SS_REMOTE_HOST", remote[0]),
            ("SS_REMOTE_PORT", remote[1]),
            ("SS_LOCAL_HOST", "127.0.0.1"),
            ("SS_LOCAL_PORT", "4000"),
        ];
        if !options.is_empty() {
            expected.push(("SS_PLUGIN_OPTIONS", options));
        }
        assert_eq!(environment.with_options(&job.plugin), expected, "{line}");
    }
}

#[test]
fn the_start_line_says_what_goes_which_way() {
    for (program, line, expected) in [
        ("ss-local", "-s h:1 -l 1", "TCP through it (127.0.0.1:4000)"),
        (
            "ss-local",
            "-s h:1 -l 1 -u",
            "TCP through it (127.0.0.1:4000), UDP directly to the server",
        ),
        (
            "ss-local",
            "-s h:1 -l 1 -u --plugin-mode tcp_and_udp",
            "TCP through it (127.0.0.1:4000), UDP through it (127.0.0.1:4000)",
        ),
        // What is not relayed is not carried either, and not waited for.
        ("ss-local", "-s h:1 -l 1 --plugin-mode tcp_and_udp", "TCP through it (127.0.0.1:4000)"),
        (
            "ss-server",
            "-s 0.0.0.0 -p 1 -u --plugin-mode udp_only",
            "TCP directly, UDP through it (127.0.0.1:4000)",
        ),
        ("ss-server", "-s 0.0.0.0 -p 1 -u", "TCP through it (127.0.0.1:4000), UDP directly"),
    ] {
        assert_eq!(one(program, line).ways(local()), expected, "{line}");
    }
}

#[test]
fn every_server_has_one_plugin() {
    let config = config("ss-local", "-s a:1 -s b:1 -s a:1 -l 1");
    let jobs = jobs(&config);
    let remotes: Vec<_> = jobs.iter().map(|job| job.remote.to_string()).collect();
    assert_eq!(remotes, ["a:1", "b:1"]);
    assert!(jobs[0].is_same(&jobs[0].clone()) && !jobs[0].is_same(&jobs[1]));
}

#[test]
fn what_a_plugin_carries_never_goes_past_it() {
    let job = one("ss-local", "-s h:1 -l 1 -u");
    let (remote, plugin) = (job.remote.clone(), job.plugin.clone());
    let other = Endpoint::parse("h:2").expect("an endpoint");
    let plugged = Plugged::new(vec![(job, local())]);
    let at = |side, remote, plugin, transport| plugged.instead(side, remote, plugin, transport);
    let (tcp, udp) = (Transport::Stream, Transport::Datagram);
    assert_eq!(at(Side::Client, &remote, Some(&plugin), tcp), Some(local()));
    assert_eq!(at(Side::Client, &remote, Some(&plugin), udp), None);
    // The same server without the plugin, another server, the other side.
    assert_eq!(at(Side::Client, &remote, None, tcp), None);
    assert_eq!(at(Side::Client, &other, Some(&plugin), tcp), None);
    assert_eq!(at(Side::Server, &remote, Some(&plugin), tcp), None);
}
