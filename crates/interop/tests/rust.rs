//! With shadowsocks-rust.

use adit_interop::{
    Failure, Over, Program, answers_alike, both_ways, hops, identities, reports, tunnels,
    tunnels_datagrams,
};

both_ways! {
    Program::Rust;
    none = "none",
    aes_128_gcm = "aes-128-gcm",
    aes_256_gcm = "aes-256-gcm",
    chacha20_ietf_poly1305 = "chacha20-ietf-poly1305",
    xchacha20_ietf_poly1305 = "xchacha20-ietf-poly1305",
    blake3_aes_128_gcm = "2022-blake3-aes-128-gcm",
    blake3_aes_256_gcm = "2022-blake3-aes-256-gcm",
    blake3_chacha20_poly1305 = "2022-blake3-chacha20-poly1305",
    blake3_chacha8_poly1305 = "2022-blake3-chacha8-poly1305",
}

#[test]
fn our_client_is_a_user_aes_128() -> Result<(), Failure> {
    identities(Program::Adit, Program::Rust, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_client_is_a_user_aes_256() -> Result<(), Failure> {
    identities(Program::Adit, Program::Rust, "2022-blake3-aes-256-gcm")
}

#[test]
fn our_server_has_users_aes_128() -> Result<(), Failure> {
    identities(Program::Rust, Program::Adit, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_server_has_users_aes_256() -> Result<(), Failure> {
    identities(Program::Rust, Program::Adit, "2022-blake3-aes-256-gcm")
}

#[test]
fn our_tunnel_without_encryption() -> Result<(), Failure> {
    tunnels(Program::Rust, "none")
}

#[test]
fn our_tunnel_2017() -> Result<(), Failure> {
    tunnels(Program::Rust, "aes-256-gcm")
}

#[test]
fn our_tunnel_2022() -> Result<(), Failure> {
    tunnels(Program::Rust, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_tunnel_with_datagrams_without_encryption() -> Result<(), Failure> {
    tunnels_datagrams(Program::Adit, Program::Rust, "none")
}

#[test]
fn our_tunnel_with_datagrams_2017() -> Result<(), Failure> {
    tunnels_datagrams(Program::Adit, Program::Rust, "aes-256-gcm")
}

#[test]
fn our_tunnel_with_datagrams_2022() -> Result<(), Failure> {
    tunnels_datagrams(Program::Adit, Program::Rust, "2022-blake3-aes-128-gcm")
}

#[test]
fn its_tunnel_with_datagrams() -> Result<(), Failure> {
    tunnels_datagrams(Program::Rust, Program::Adit, "2022-blake3-aes-256-gcm")
}

#[test]
fn our_relay_to_our_server() -> Result<(), Failure> {
    hops(Program::Rust, &[Program::Adit], Program::Adit, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_relay_to_its_server() -> Result<(), Failure> {
    hops(Program::Adit, &[Program::Adit], Program::Rust, "2022-blake3-aes-256-gcm")
}

#[test]
fn our_manager_answers_as_its_manager_does_over_udp() -> Result<(), Failure> {
    answers_alike(Program::Rust, Over::Udp)
}

#[test]
fn our_manager_answers_as_its_manager_does_over_unix() -> Result<(), Failure> {
    answers_alike(Program::Rust, Over::Unix)
}

#[test]
fn our_server_reports_to_its_manager_over_udp() -> Result<(), Failure> {
    reports(Program::Adit, Program::Rust, Over::Udp)
}

#[test]
fn our_server_reports_to_its_manager_over_unix() -> Result<(), Failure> {
    reports(Program::Adit, Program::Rust, Over::Unix)
}

#[test]
fn its_server_reports_to_our_manager_over_udp() -> Result<(), Failure> {
    reports(Program::Rust, Program::Adit, Over::Udp)
}

#[test]
fn its_server_reports_to_our_manager_over_unix() -> Result<(), Failure> {
    reports(Program::Rust, Program::Adit, Over::Unix)
}
