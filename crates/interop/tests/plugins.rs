//! Through Debian's simple-obfs, with our programs and others at its ends.

use adit_interop::{Failure, Guise, Program, disguises};

const METHOD: &str = "chacha20-ietf-poly1305";

#[test]
fn our_client_with_libev_as_http() -> Result<(), Failure> {
    disguises(Program::Adit, Program::Libev, METHOD, Guise::Http)
}

#[test]
fn our_client_with_libev_as_tls() -> Result<(), Failure> {
    disguises(Program::Adit, Program::Libev, METHOD, Guise::Tls)
}

#[test]
fn our_server_with_libev_as_http() -> Result<(), Failure> {
    disguises(Program::Libev, Program::Adit, METHOD, Guise::Http)
}

#[test]
fn our_server_with_libev_as_tls() -> Result<(), Failure> {
    disguises(Program::Libev, Program::Adit, METHOD, Guise::Tls)
}

#[test]
fn our_client_with_rust_as_http() -> Result<(), Failure> {
    disguises(Program::Adit, Program::Rust, "2022-blake3-aes-256-gcm", Guise::Http)
}

#[test]
fn our_server_with_rust_as_tls() -> Result<(), Failure> {
    disguises(Program::Rust, Program::Adit, "2022-blake3-aes-256-gcm", Guise::Tls)
}

#[test]
fn both_ends_ours_2022_as_http() -> Result<(), Failure> {
    disguises(Program::Adit, Program::Adit, "2022-blake3-aes-128-gcm", Guise::Http)
}

#[test]
fn both_ends_ours_2022_as_tls() -> Result<(), Failure> {
    disguises(Program::Adit, Program::Adit, "2022-blake3-aes-128-gcm", Guise::Tls)
}
