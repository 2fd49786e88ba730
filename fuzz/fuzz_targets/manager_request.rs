#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| adit_config::fuzz::manager_request(data));
