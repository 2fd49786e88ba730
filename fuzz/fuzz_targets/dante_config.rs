#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    adit_socks_config::fuzz::configuration(data, adit_socks_config::Language::Dante);
});
