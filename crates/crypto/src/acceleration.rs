//! Names the backend and the processor features that it uses for AES-GCM.
//!
//! For the start-up log line: without AES instructions a server is many times slower, and whoever
//! runs it should read so. The conditions mirror those by which the backends pick their code.

/// The active backend and its acceleration in words, such as `AWS-LC (VAES, AVX-512)`.
pub fn acceleration() -> &'static str {
    detected()
}

/// AWS-LC: `crypto_gcm_avx512_enabled` in `modes/gcm.c`, then AES and carry-less multiplication.
#[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
fn detected() -> &'static str {
    use std::arch::is_x86_feature_detected as has;

    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    if avx512 && has!("vaes") && has!("vpclmulqdq") {
        "AWS-LC (VAES, AVX-512)"
    } else if crate::vaes::is_best() {
        "ring (VAES, AVX2) and AWS-LC"
    } else if has!("aes") && has!("pclmulqdq") {
        "AWS-LC (AES-NI)"
    } else {
        "AWS-LC (portable)"
    }
}

#[cfg(all(feature = "aws-lc", target_arch = "aarch64"))]
fn detected() -> &'static str {
    if std::arch::is_aarch64_feature_detected!("aes") {
        "AWS-LC (ARMv8 AES)"
    } else {
        "AWS-LC (portable)"
    }
}

#[cfg(all(feature = "aws-lc", not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn detected() -> &'static str {
    "AWS-LC (portable)"
}

#[cfg(all(not(feature = "aws-lc"), any(target_arch = "x86_64", target_arch = "x86")))]
fn detected() -> &'static str {
    use std::arch::is_x86_feature_detected as has;

    if !has!("aes") || !has!("pclmulqdq") {
        "RustCrypto (portable)"
    } else if has!("vaes") {
        "RustCrypto (VAES)"
    } else {
        "RustCrypto (AES-NI)"
    }
}

#[cfg(all(not(feature = "aws-lc"), target_arch = "aarch64"))]
fn detected() -> &'static str {
    if std::arch::is_aarch64_feature_detected!("aes") {
        "RustCrypto (ARMv8 AES)"
    } else {
        "RustCrypto (portable)"
    }
}

#[cfg(all(
    not(feature = "aws-lc"),
    not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64"))
))]
fn detected() -> &'static str {
    "RustCrypto (portable)"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_active_backend() {
        let backend = if cfg!(feature = "aws-lc") { "AWS-LC (" } else { "RustCrypto (" };
        assert!(acceleration().contains(backend.trim_end_matches(" (")), "{}", acceleration());
    }
}
