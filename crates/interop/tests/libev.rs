//! With shadowsocks-libev, which knows the methods of 2017 only.

use adit_interop::{Failure, Program, both_ways, tunnels, tunnels_datagrams};

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
