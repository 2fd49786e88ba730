use super::*;
use crate::scratch::Scratch;

fn sleeper(scratch: &Scratch, script: &str) -> Process {
    let recipe = Recipe {
        role: "sleeper",
        program: Path::new("/bin/sh"),
        args: vec!["-c".into(), script.into()],
        environment: vec![("WORD", "spoken".into())],
        log: scratch.file("log"),
    };
    Process::start(&Launcher { own: None }, recipe).unwrap()
}

#[test]
fn drop_kills_and_reaps() {
    let scratch = Scratch::new().unwrap();
    let process = sleeper(&scratch, "exec sleep 600");
    let proc = PathBuf::from(format!("/proc/{}", process.id()));
    assert!(proc.exists());
    drop(process);
    assert!(!proc.exists(), "neither running nor a zombie");
}

#[test]
fn reads_cpu_and_memory_of_a_running_program() {
    let scratch = Scratch::new().unwrap();
    let process = sleeper(&scratch, "exec sleep 600");
    assert!(process.cpu_seconds().unwrap() >= 0.0);
    assert!(process.resident_kib().unwrap() > 0);
}

#[test]
fn quotes_a_program_that_ends_early() {
    let scratch = Scratch::new().unwrap();
    let mut process = sleeper(&scratch, "echo $WORD >&2; exit 3");
    let error = process.wait_until_listening(1).unwrap_err().to_string();
    assert!(error.contains("spoken"), "{error}");
    assert!(error.contains("exit status: 3"), "{error}");
}

#[test]
fn sees_a_listener_in_the_socket_table() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    assert!(is_listening(listener.local_addr().unwrap().port()).unwrap());
}

#[test]
fn tells_listeners_from_connections() {
    let table = "  sl  local_address rem_address   st\n   \
                 0: 0100007F:1F90 00000000:0000 0A 0\n   \
                 1: 0100007F:1F91 0100007F:1F90 01 0\n";
    assert!(table_lists(table, 8080));
    assert!(!table_lists(table, 8081));
    assert!(!table_lists(table, 80));
}

#[test]
fn sees_a_bound_socket_and_what_it_dropped() {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    assert_eq!(udp_drops(socket.local_addr().unwrap().port()).unwrap(), Some(0));
    let table = "   sl  local_address rem_address   st drops\n  \
                 7: 0100007F:1F90 00000000:0000 07 3\n  \
                 8: 00000000:1F90 00000000:0000 07 4\n  \
                 9: 0100007F:1F91 0100007F:1F92 01 5\n";
    assert_eq!(table_drops(table, 8080), Some(7));
    assert_eq!(table_drops(table, 8082), None);
}

#[test]
fn finds_cpu_fields_after_an_awkward_name() {
    let stat = "7 (a) b (c) S 1 1 1 0 -1 4 9 0 0 0 120 34 0 0 20 0 1";
    assert_eq!(cpu_ticks(stat), Some(154));
    assert_eq!(cpu_ticks("7 (a"), None);
}

#[test]
fn starts_plainly_under_a_foreign_command_line() {
    let launcher = Launcher::from_command_line(&["no such word".to_owned()]);
    assert!(launcher.own.is_none());
}
