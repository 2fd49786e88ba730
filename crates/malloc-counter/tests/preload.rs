//! Preloads the library into a copy of this test program and checks what it counted.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly, helpers included")]

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, id};

const VARIABLE: &str = "ADIT_MALLOC_COUNTER";
const SLOT_LEN: usize = 64;
const FILE_LEN: usize = 64 * SLOT_LEN;

/// Calls, bytes and frees of one process.
fn counters(file: &File, pid: u32) -> Option<[u64; 3]> {
    let mut bytes = [0; FILE_LEN];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let slot = bytes.chunks_exact(SLOT_LEN).find(|slot| slot[..4] == pid.to_ne_bytes())?;
    let field = |at: usize| u64::from_ne_bytes(slot[at..at + 8].try_into().unwrap());
    Some([field(8), field(16), field(24)])
}

fn library() -> PathBuf {
    let name = "libadit_malloc_counter.so";
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    [deps.join(name), deps.parent().unwrap().join(name)]
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo builds the library before its tests")
}

fn run_child(counter: &Path) -> std::process::Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_counts_its_own_calls", "--ignored", "--test-threads=1"])
        .env("LD_PRELOAD", library())
        .env(VARIABLE, counter)
        .output()
        .unwrap()
}

/// Runs inside the preloaded copy: a known number of calls must move the counters by that much.
#[test]
#[ignore = "run by counts_exactly_in_a_preloaded_program"]
fn child_counts_its_own_calls() {
    let file = File::open(std::env::var(VARIABLE).unwrap()).unwrap();
    let before = counters(&file, id()).expect("a slot with our process id");
    for _ in 0..1000 {
        black_box(vec![1_u8; 100]); // malloc
        black_box(vec![0_u8; 100]); // calloc
    }
    let after = counters(&file, id()).unwrap();
    let moved: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    assert_eq!(moved, [2000, 200_000, 2000]);

    let after = counters(&file, id()).unwrap();
    let mut grown: Vec<u8> = Vec::with_capacity(10);
    black_box(grown.as_ptr());
    grown.reserve_exact(1000); // realloc
    black_box(grown.as_ptr());
    #[repr(align(128))]
    struct Aligned([u8; 128]);
    black_box(Box::new(Aligned([1; 128])).0); // posix_memalign
    let last = counters(&file, id()).unwrap();
    assert_eq!(last[0] - after[0], 3);
    assert_eq!(last[1] - after[1], 10 + 1000 + 128);
}

#[test]
fn counts_exactly_in_a_preloaded_program() {
    let counter = std::env::temp_dir().join(format!("adit-malloc-counter-{}", id()));
    let output = run_child(&counter);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    std::fs::remove_file(&counter).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn gives_each_process_its_own_slot() {
    let counter = std::env::temp_dir().join(format!("adit-malloc-slots-{}", id()));
    let status = Command::new("sh")
        .args(["-c", "ls / >/dev/null; ls / >/dev/null; true"])
        .env("LD_PRELOAD", library())
        .env(VARIABLE, &counter)
        .status()
        .unwrap();
    assert!(status.success());
    let bytes = std::fs::read(&counter).unwrap();
    std::fs::remove_file(&counter).unwrap();
    assert_eq!(bytes.len(), FILE_LEN);
    let used = bytes.chunks_exact(SLOT_LEN).filter(|slot| slot[..4] != [0; 4]);
    assert!(used.count() >= 3, "the shell and each ls");
}

#[test]
fn leaves_a_program_alone_without_the_variable() {
    let output = Command::new("ls")
        .arg("/")
        .env("LD_PRELOAD", library())
        .env_remove(VARIABLE)
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
}
