#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| adit_shadowsocks::fuzz::packet_server(data));
