//! Texts put together from words of the languages at random: never a panic, and whatever loads
//! compiles or says why not.

use std::cell::Cell;

use adit_socks_config::{Language, fuzz};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// What is right as it is, in both languages or in Dante's.
const LINES: &[&str] = &[
    "\nsocks pass { from: 0/0 to: 0/0 }\n",
    "\nclient pass { from: 10.0.0.0/8 to: 0.0.0.0/0 }\n",
    "\nsocks block { from: 0.0.0.0/0 to: .example.com port = http }\n",
    "\nlogoutput: stderr\n",
    "\nexternal: eth0\n",
    "\nexternal.rotation: same-same\n",
    "\ndebug: 1\n",
];
const WORDS: &[&str] = &[
    "\n",
    "internal:",
    "external:",
    "client pass {",
    "socks pass {",
    "socks block x {",
    "client",
    "pass",
    "block",
    "{",
    "}",
    "\n",
    "\n",
    "\n",
    "from:",
    "to:",
    "port",
    "=",
    "443",
    "1-65535",
    "gt",
    "0.0.0.0/0",
    "::/0",
    "0/0",
    "10.0.0.0/8",
    "127.0.0.1",
    "127.0.0.1:1080",
    "127.0.0.1:0",
    "eth0",
    "eth0:1080",
    ".example.com",
    "localhost",
    "geoip:NL",
    "interface:eth0",
    "command:",
    "connect",
    "bind",
    "udpreply",
    "protocol:",
    "tcp",
    "udp",
    "method:",
    "username",
    "none",
    "user:",
    "group:",
    "group: g ann",
    "time:",
    "mon-fri",
    "22:00-06:00",
    "bandwidth:",
    "1m/1",
    "session.max:",
    "5",
    "session.state.key:",
    "from",
    "session.throttle:",
    "5/1",
    "#",
    "include:",
    "*",
    "a.conf",
    "socksmethod:",
    "socksmethod: none",
    "clientmethod: none",
    "log:",
    "\"",
    "x",
    "proxyprotocol:",
    "socks5",
    "quota.day:",
    "quota.file: q",
    "external.rotation:",
    "random",
    "\u{7}",
    "é",
    "internal: 127.0.0.1:1080\n",
    "internal: 127.0.0.1 port = 1080\nsocksmethod: none\n",
    "route",
    "monitor",
    "port=",
    "port:",
    ":",
    "=80",
    "ratelimit.user.byterate:",
    "dns.deny:",
    "loopback",
    "user.privileged: root",
];

#[test]
fn no_text_makes_it_panic() {
    let words = prop_oneof![
        3 => prop::sample::select(LINES),
        1 => prop::sample::select(WORDS),
    ];
    let words = prop::collection::vec(words, 0..10);
    let glue = prop::collection::vec(prop::bool::weighted(0.9), 60);
    let seed = *b"words of two configuration files";
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 1500, failure_persistence: None, ..Config::default() },
        TestRng::from_seed(RngAlgorithm::ChaCha, &seed),
    );
    let loaded = [const { Cell::new(0) }; 2];
    let ran = runner.run(&(words, glue), |(words, glue)| {
        let mut text = String::new();
        for (word, spaced) in words.iter().zip(glue) {
            text.push_str(word);
            text.push_str(if spaced { " " } else { "" });
        }
        for (count, language) in loaded.iter().zip([Language::Adit, Language::Dante]) {
            // Also with what every file needs, to get further.
            let base = "internal: 127.0.0.1 port = 0\nsocksmethod: none\n";
            let whole = format!("{base}{text}");
            let is_loaded = fuzz::configuration(text.as_bytes(), language)
                || fuzz::configuration(whole.as_bytes(), language);
            count.set(count.get() + u32::from(is_loaded));
        }
        Ok(())
    });
    assert_eq!(ran, Ok(()));
    let loaded = loaded.map(|count| count.get());
    assert!(loaded.iter().all(|&count| count >= 20), "too few to say anything: {loaded:?}");
}
