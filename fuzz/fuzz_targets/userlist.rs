#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| adit_users::fuzz::userlist(data));
