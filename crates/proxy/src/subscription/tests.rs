//! Fetches through other programs, what is said about sets of servers, and the cache.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a panic is how a test fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use adit_config::{Invocation, Online};
use adit_sys::helper::Helper;

use super::*;

fn shell(script: &str, limit: Duration) -> fetch::Outcome {
    let helper = Helper::start(Path::new("/bin/sh"), &["-c", script], b"url", None, &[]).unwrap();
    wait(Fetch::of(helper, Instant::now() + limit)).unwrap()
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn takes_what_a_program_says_and_why_it_fails() {
    assert_eq!(*shell("cat", LONG).unwrap(), b"url");
    assert_eq!(*shell("head -c 1048576 /dev/zero", LONG).unwrap(), vec![0; 1 << 20]);
    for (script, reason) in [
        ("head -c 1048577 /dev/zero", "the answer is longer than 1 MiB"),
        ("yes", "the answer is longer than 1 MiB"),
        ("echo part; echo 'adit: too bad' >&2; exit 1", "too bad"),
        ("printf 'adit: \\033[31mred\\nsecond' >&2; exit 1", "[31mred"),
        ("exit 1", "adit fetch failed and did not say why"),
        ("kill -9 $$", "adit fetch failed and did not say why"),
        ("yes x | head -c 100000 | tr -d '\\n' >&2; exit 1", &"x".repeat(1024)),
    ] {
        assert_eq!(shell(script, LONG).unwrap_err(), reason, "{script}");
    }
}

#[test]
fn ends_what_takes_too_long() {
    for script in ["sleep 1000", "exec >&-; sleep 1000", "while :; do echo x; sleep 0.01; done"] {
        let reason = shell(script, Duration::from_millis(200)).unwrap_err();
        assert_eq!(reason, "the fetch took too long and was ended", "{script}");
    }
}

fn config(servers: &str) -> Config {
    let args = format!("-l 1 --online-config-url https://h/ {servers}");
    let args = args.split_ascii_whitespace().map(Into::into);
    match Config::from_args("ss-local", args, &|_| None).unwrap() {
        Invocation::Run(config) => *config,
        _ => panic!("runs"),
    }
}

#[test]
fn tells_how_sets_differ() {
    let set = |links: &str| config(&links.replace("ss:", "--server-url ss:"));
    let old = set("ss://aes-128-gcm:x@a:1 ss://aes-128-gcm:x@b:1 ss://aes-128-gcm:x@c:1");
    let new = set(
        "ss://aes-128-gcm:x@c:1 ss://aes-128-gcm:y@b:1 ss://aes-128-gcm:x@d:1 ss://aes-128-gcm:x@e:1",
    );
    assert_eq!(difference(servers(&old), servers(&new)), " (2 new, 1 changed, 1 gone)");
    assert_eq!(difference(servers(&old), servers(&old)), ", nothing new");
    assert_eq!(difference(&[], servers(&old)), " (3 new, 0 changed, 0 gone)");
}

#[test]
fn puts_bytes_into_words() {
    for (count, words) in [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (274_877_906_944, "256.0 GiB"),
        (u64::MAX, "16383.9 PiB"),
    ] {
        assert_eq!(bytes(count), words);
    }
}

#[test]
fn keeps_an_answer_for_its_owner_only() {
    let dir = std::env::temp_dir().join(format!("adit-cache-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("answer");
    assert!(read_cache(&path).unwrap().is_none());
    for answer in [&b"first"[..], b"second"] {
        private::replace(&path, answer).unwrap();
        assert_eq!(read_cache(&path).unwrap().unwrap().as_slice(), answer);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing else is left");
    fs::write(&path, vec![0; (1 << 20) + 1]).unwrap();
    assert!(read_cache(&path).is_err());
    assert!(private::replace(&dir.join("no/such/place"), b"x").is_err());
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn fails_softly_and_tries_again_sooner() {
    let online: Online = config("").online.unwrap();
    let mut this = Subscription::new(online);
    let start = Instant::now();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        this.failed("no", start, 100);
        pauses.push((this.due - start).as_secs());
    }
    assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
    this.succeeded(Zeroizing::new(b"x".to_vec()), start, 0);
    assert_eq!((this.due - start).as_secs(), 3240, "a tenth less at most");
    assert_eq!(this.failures, 0);
}

#[test]
fn a_new_subscription_needs_an_answer_or_a_server() {
    let all = Subscriptions { all: vec![None], rng: None };
    let error = all.apply(&mut [config("")]).unwrap_err();
    assert!(error.contains("leave a server in the file"), "{error}");
    all.apply(&mut [config("--server-url ss://aes-128-gcm:x@a:1")]).unwrap();
}
