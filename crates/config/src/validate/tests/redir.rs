//! Redirectors.

use super::{error, load, locals, ok};
use crate::config::{Config, REDIR_MARK, Role};

const SERVER: &str = r#""server": "h:1", "password": "x""#;

fn marks(config: &Config) -> Vec<Option<u32>> {
    let Role::Client { servers, .. } = &config.role else { panic!("a client") };
    servers.iter().map(|server| server.outbound.fwmark).collect()
}

#[test]
fn every_way_to_ask_for_a_redirector() {
    let client = "-s h:1 -k x -l 5";
    let rust = "-s h:1 -k x -m aes-128-gcm -b [::]:5 --protocol redir";
    for (program, line, keys, expected) in [
        ("ss-redir", client, "", "127.0.0.1:5 redir by redirect"),
        ("ss-redir", "-s h:1 -k x -l 5 -T", "", "127.0.0.1:5 redir by tproxy"),
        ("ss-redir", "-s h:1 -k x -l 5 --tproxy -b ::", "", "[::]:5 redir by tproxy"),
        ("ss-redir", client, r#""tcp_tproxy": true"#, "127.0.0.1:5 redir by tproxy"),
        ("ss-redir", client, r#""tcp_tproxy": false"#, "127.0.0.1:5 redir by redirect"),
        ("ss-redir", "-l 5 -T", r#""tcp_tproxy": false"#, "127.0.0.1:5 redir by tproxy"),
        ("ss-redir", client, r#""tcp_redir": "tproxy""#, "127.0.0.1:5 redir by tproxy"),
        ("ss-redir", client, r#""protocol": "redir""#, "127.0.0.1:5 redir by redirect"),
        (
            "ss-redir",
            client,
            r#""udp_redir": "tproxy", "mode": "tcp_and_udp""#,
            "127.0.0.1:5 redir by redirect",
        ),
        (
            "ss-local",
            client,
            r#""protocol": "redir", "tcp_redir": "tproxy""#,
            "127.0.0.1:5 redir by tproxy",
        ),
        ("sslocal", rust, "", "[::]:5 redir by redirect"),
        (
            "sslocal",
            "-s h:1 -k x -m none -b [::]:5 --protocol redir --tcp-redir tproxy \
            --udp-redir tproxy -U",
            "",
            "[::]:5 redir by tproxy",
        ),
    ] {
        let file = format!("{{{SERVER}{}{keys}}}", if keys.is_empty() { "" } else { ", " });
        let config = ok(program, line, Some(&file));
        assert_eq!(locals(&config), [expected], "{program} {line} {keys}");
        assert!(!config.warnings.iter().any(|w| w.contains("redir")), "{:?}", config.warnings);
    }
}

#[test]
fn lists_mix_redirectors_with_others() {
    let file = format!(
        r#"{{{SERVER}, "locals": [
            {{"local_port": 1}},
            {{"local_port": 2, "protocol": "redir"}},
            {{"local_port": 3, "protocol": "redir", "tcp_redir": "tproxy"}}]}}"#
    );
    let config = ok("ss-local", "", Some(&file));
    let expected =
        ["127.0.0.1:1 socks", "127.0.0.1:2 redir by redirect", "127.0.0.1:3 redir by tproxy"];
    assert_eq!(locals(&config), expected);
    // What is said at the top holds for those that say nothing.
    let file = format!(
        r#"{{{SERVER}, "tcp_tproxy": true, "locals": [
            {{"local_port": 2}}, {{"local_port": 3, "tcp_redir": "redirect"}}]}}"#
    );
    let expected = ["127.0.0.1:2 redir by tproxy", "127.0.0.1:3 redir by redirect"];
    assert_eq!(locals(&ok("ss-redir", "", Some(&file))), expected);
}

#[test]
fn the_servers_of_a_redirector_are_marked() {
    let line = "-s h:1 -s g:2 -k x -l 5";
    assert_eq!(marks(&ok("ss-redir", line, None)), [Some(REDIR_MARK); 2]);
    assert_eq!(marks(&ok("ss-local", line, None)), [None; 2]);
    let marked = format!("{line} --fwmark 0x10");
    assert_eq!(marks(&ok("ss-redir", &marked, None)), [Some(0x10); 2]);
    let file = format!(
        r#"{{"servers": [{{{SERVER}, "outbound_fwmark": 7}}, {{{SERVER}}}],
            "locals": [{{"local_port": 1}}, {{"local_port": 2, "protocol": "redir"}}]}}"#
    );
    assert_eq!(marks(&ok("ss-local", "", Some(&file))), [Some(7), Some(REDIR_MARK)]);
}

#[test]
fn what_a_redirector_cannot_be_is_refused() {
    for (program, keys, part) in [
        ("ss-redir", r#""protocol": "socks""#, "\"protocol\": ss-redir has redirectors only"),
        ("ss-redir", r#""protocol": "tunnel""#, "\"protocol\": ss-redir has redirectors only"),
        ("ss-tunnel", r#""protocol": "redir""#, "\"protocol\": ss-tunnel has tunnels only"),
        ("ss-redir", r#""tcp_redir": "pf""#, "\"tcp_redir\": this kind is of another system"),
        ("ss-redir", r#""tcp_redir": "nat""#, "\"tcp_redir\": write redirect or tproxy"),
        ("ss-redir", r#""udp_redir": "redirect""#, "\"udp_redir\": REDIRECT loses"),
        ("ss-redir", r#""udp_redir": "pf""#, "\"udp_redir\": this kind is of another system"),
        ("ss-redir", r#""tcp_tproxy": "yes""#, "\"tcp_tproxy\": expected true or false"),
        ("ss-local", r#""tcp_redir": "tproxy""#, "\"tcp_redir\": is for redirectors only"),
        ("ss-local", r#""udp_redir": "tproxy""#, "\"udp_redir\": is for redirectors only"),
        ("ss-redir", r#""local_address": "/run/x""#, "\"local_address\": nothing is redirected"),
        ("ss-redir", r#""forward_address": "h", "forward_port": 1"#, "is for tunnels only"),
    ] {
        let file = format!(r#"{{{SERVER}, "local_port": 1, {keys}}}"#);
        let found = error(program, if program == "ss-tunnel" { "-L d:1" } else { "" }, Some(&file));
        assert!(found.starts_with("c.json:1:"), "{found}");
        assert!(found.contains(part), "{keys}: {found}");
    }
    for line in ["--tcp-redir pf", "--udp-redir redirect"] {
        let line = format!("-s h:1 -k x -m none -b [::]:5 --protocol redir {line}");
        let found = load("sslocal", &line, None).expect_err(&line);
        assert!(found[0].starts_with("option --"), "{found:?}");
        assert!(found[0].contains("tproxy"), "{found:?}");
    }
}

#[test]
fn what_has_no_effect_gets_a_warning() {
    for (program, keys, part) in [
        ("ss-local", r#""tcp_tproxy": true, "local_port": 1"#, "in ss-redir only"),
        ("ss-redir", r#""udp_redir": "tproxy", "local_port": 1"#, "where no UDP is relayed"),
        (
            "ss-redir",
            r#""tcp_redir": "tproxy", "local_port": 1, "mode": "udp_only""#,
            "where no TCP is relayed",
        ),
        (
            "ss-local",
            r#""tcp_redir": "tproxy", "locals": [{"local_port": 1}]"#,
            "no listener is a redirector",
        ),
    ] {
        let config = ok(program, "", Some(&format!("{{{SERVER}, {keys}}}")));
        let found: Vec<_> = config.warnings.iter().filter(|w| w.contains(part)).collect();
        assert_eq!(found.len(), 1, "{keys}: {:?}", config.warnings);
    }
}
