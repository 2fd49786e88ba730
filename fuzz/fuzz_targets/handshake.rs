#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| adit_handshake::fuzz::handshake(data));
