#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| adit_acl::fuzz::acl_geo(data));
