//! With shadowsocks-libev, which knows the methods of 2017 only.

use adit_interop::{
    Failure, Over, Program, answers_alike, both_ways, reports, tunnels, tunnels_datagrams,
};

both_ways! {
    Program::Libev;
    aes_128_gcm = "aes-128-gcm",
    aes_192_gcm = "aes-192-gcm",
    aes_256_gcm = "aes-256-gcm",
    chacha20_ietf_poly1305 = "chacha20-ietf-poly1305",
    xchacha20_ietf_poly1305 = "xchacha20-ietf-poly1305",
}

#[test]
fn our_tunnel() -> Result<(), Failure> {
    tunnels(Program::Libev, "chacha20-ietf-poly1305")
}

#[test]
fn our_tunnel_with_datagrams() -> Result<(), Failure> {
    tunnels_datagrams(Program::Adit, Program::Libev, "chacha20-ietf-poly1305")
}

#[test]
fn its_tunnel_with_datagrams() -> Result<(), Failure> {
    tunnels_datagrams(Program::Libev, Program::Adit, "aes-128-gcm")
}

#[test]
fn our_manager_answers_as_its_manager_does_over_udp() -> Result<(), Failure> {
    answers_alike(Program::Libev, Over::Udp)
}

#[test]
fn our_manager_answers_as_its_manager_does_over_unix() -> Result<(), Failure> {
    answers_alike(Program::Libev, Over::Unix)
}

#[test]
fn our_server_reports_to_its_manager_over_udp() -> Result<(), Failure> {
    reports(Program::Adit, Program::Libev, Over::Udp)
}

#[test]
fn our_server_reports_to_its_manager_over_unix() -> Result<(), Failure> {
    reports(Program::Adit, Program::Libev, Over::Unix)
}

#[test]
fn its_server_reports_to_our_manager_over_udp() -> Result<(), Failure> {
    reports(Program::Libev, Program::Adit, Over::Udp)
}

#[test]
fn its_server_reports_to_our_manager_over_unix() -> Result<(), Failure> {
    reports(Program::Libev, Program::Adit, Over::Unix)
}
