#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| adit_policy::fuzz::quota_file(data));
