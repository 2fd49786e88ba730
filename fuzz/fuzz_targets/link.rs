#![no_main]

libfuzzer_sys::fuzz_target!(|data: &str| adit_config::fuzz::link(data));
