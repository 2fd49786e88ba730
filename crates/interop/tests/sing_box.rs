//! With sing-box.

use adit_interop::{Failure, Program, both_ways, hops, identities, tunnels, tunnels_datagrams};

both_ways! {
    Program::SingBox;
    none = "none",
    aes_128_gcm = "aes-128-gcm",
    aes_192_gcm = "aes-192-gcm",
    aes_256_gcm = "aes-256-gcm",
    chacha20_ietf_poly1305 = "chacha20-ietf-poly1305",
    xchacha20_ietf_poly1305 = "xchacha20-ietf-poly1305",
    blake3_aes_128_gcm = "2022-blake3-aes-128-gcm",
    blake3_aes_256_gcm = "2022-blake3-aes-256-gcm",
    blake3_chacha20_poly1305 = "2022-blake3-chacha20-poly1305",
}

#[test]
fn our_client_is_a_user_aes_128() -> Result<(), Failure> {
    identities(Program::Adit, Program::SingBox, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_client_is_a_user_aes_256() -> Result<(), Failure> {
    identities(Program::Adit, Program::SingBox, "2022-blake3-aes-256-gcm")
}

#[test]
fn our_server_has_users_aes_128() -> Result<(), Failure> {
    identities(Program::SingBox, Program::Adit, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_server_has_users_aes_256() -> Result<(), Failure> {
    identities(Program::SingBox, Program::Adit, "2022-blake3-aes-256-gcm")
}

#[test]
fn our_tunnel_without_encryption() -> Result<(), Failure> {
    tunnels(Program::SingBox, "none")
}

#[test]
fn our_tunnel_2017() -> Result<(), Failure> {
    tunnels(Program::SingBox, "aes-256-gcm")
}

#[test]
fn our_tunnel_2022() -> Result<(), Failure> {
    tunnels(Program::SingBox, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_tunnel_with_datagrams_without_encryption() -> Result<(), Failure> {
    tunnels_datagrams(Program::Adit, Program::SingBox, "none")
}

#[test]
fn our_tunnel_with_datagrams_2017() -> Result<(), Failure> {
    tunnels_datagrams(Program::Adit, Program::SingBox, "aes-256-gcm")
}

#[test]
fn our_tunnel_with_datagrams_2022() -> Result<(), Failure> {
    tunnels_datagrams(Program::Adit, Program::SingBox, "2022-blake3-aes-128-gcm")
}

#[test]
fn its_tunnel_with_datagrams() -> Result<(), Failure> {
    tunnels_datagrams(Program::SingBox, Program::Adit, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_relay_to_our_server() -> Result<(), Failure> {
    hops(Program::SingBox, &[Program::Adit], Program::Adit, "2022-blake3-aes-128-gcm")
}

#[test]
fn our_relay_to_its_server() -> Result<(), Failure> {
    hops(Program::SingBox, &[Program::Adit], Program::SingBox, "2022-blake3-aes-256-gcm")
}

#[test]
fn our_relay_between_shadowsocks_rust_and_its_server() -> Result<(), Failure> {
    hops(Program::Rust, &[Program::Adit], Program::SingBox, "2022-blake3-aes-128-gcm")
}

#[test]
fn its_relay_between_ours() -> Result<(), Failure> {
    hops(Program::Adit, &[Program::SingBox], Program::Adit, "2022-blake3-aes-128-gcm")
}

#[test]
fn its_relay_and_ours_between_ours() -> Result<(), Failure> {
    let relays = [Program::SingBox, Program::Adit];
    hops(Program::Adit, &relays, Program::Adit, "2022-blake3-aes-256-gcm")
}

#[test]
fn our_relay_and_its_relay_between_ours() -> Result<(), Failure> {
    let relays = [Program::Adit, Program::SingBox];
    hops(Program::Adit, &relays, Program::Adit, "2022-blake3-aes-128-gcm")
}
