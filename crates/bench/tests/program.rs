//! The measurements as a program: exit codes, files, and that nothing it starts is left behind.
//!
//! Runs the `bench` example, which is the command line without the `adit` program around it, with
//! stand-ins for the measured programs or with none.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly, helpers included")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::yield_now;

fn bench() -> Command {
    let exe = std::env::current_exe().unwrap();
    let profile = exe.parent().unwrap().parent().unwrap();
    Command::new(profile.join("examples/bench"))
}

fn run(line: &str) -> Output {
    bench().args(line.split(' ')).output().unwrap()
}

/// A directory of its own for one test, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let name = format!("adit-bench-test-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Puts scripts in place of our two programs; they say that they are.
    fn with_programs(self, script: &str) -> Self {
        for name in ["ss-server", "ss-local"] {
            let path = self.0.join(name);
            let text = format!(
                "#!/bin/sh\n[ \"$1\" = --version ] && echo '{name} (adit) 0' && exit 0\n{script}\n"
            );
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        self
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Whether the process runs; one that waits to be reaped does not.
fn runs(pid: &str) -> bool {
    fs::read_to_string(Path::new("/proc").join(pid).join("stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}

#[test]
fn smoke_without_a_proxy_writes_both_files() {
    let dir = Dir::new("files");
    for (command, figure) in [("throughput", "rate"), ("handshakes", "rate"), ("udp", "p50")] {
        let (json, csv) = (dir.0.join("out.json"), dir.0.join("out.csv"));
        let output = bench()
            .args([command, "--programs", "direct", "--smoke", "--json"])
            .arg(&json)
            .arg("--csv")
            .arg(&csv)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = fs::read_to_string(&json).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["command"], command);
        assert!(value["samples"][0]["values"][figure].as_f64().unwrap() > 0.0);
        assert_eq!(value["failures"].as_array().unwrap().len(), 0);
        assert!(fs::read_to_string(&csv).unwrap().lines().count() > 1);
    }
}

#[test]
fn wrong_arguments_exit_with_2_and_help_with_0() {
    assert_eq!(run("fly").status.code(), Some(2));
    assert_eq!(run("idle --programs direct").status.code(), Some(2));
    let help = run("--help");
    assert_eq!(help.status.code(), Some(0));
    assert!(help.stdout.starts_with(b"Usage: adit bench"));
}

#[test]
fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is_one() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone = bench().arg("--help").stdout(writer).output().unwrap();
    assert_eq!((gone.status.code(), &*gone.stderr), (Some(0), &b""[..]));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let full = bench().arg("--help").stdout(full).output().unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(full.stderr.starts_with(b"adit bench: cannot write to standard output"));
}

#[test]
fn a_program_that_fails_is_quoted_and_fails_the_run() {
    let dir = Dir::new("broken").with_programs("echo out of luck; exit 9");
    let output = bench().args(["idle", "--smoke", "--adit-dir"]).arg(&dir.0).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("exit status: 9"), "{text}");
    assert!(text.contains("out of luck"), "{text}");
}

#[test]
fn programs_die_with_a_run_that_is_killed() {
    let dir = Dir::new("killed");
    let scratch = dir.0.join("tmp");
    fs::create_dir(&scratch).unwrap();
    let pid_file = dir.0.join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", pid_file.display());
    let dir = dir.with_programs(&script);
    let mut run = bench()
        .args(["idle", "--smoke", "--adit-dir"])
        .arg(&dir.0)
        .env("TMPDIR", &scratch)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !pid_file.exists() {
        assert!(run.try_wait().unwrap().is_none(), "ended by itself");
        yield_now();
    }
    let pid = fs::read_to_string(&pid_file).unwrap().trim().to_owned();
    assert!(runs(&pid));
    run.kill().unwrap();
    run.wait().unwrap();
    while runs(&pid) {
        yield_now();
    }
}
