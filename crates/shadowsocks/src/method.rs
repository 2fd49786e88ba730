//! Cipher names and their sizes.
//!
//! Names are matched exactly, as every Shadowsocks program does. Stream ciphers of the first
//! generation have no authentication and are refused with the AEAD method to write instead.

use std::fmt;

use adit_crypto::Aead;

/// A Shadowsocks cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `none` / `plain`: no encryption at all.
    None,
    /// `aes-128-gcm`.
    Aes128Gcm,
    /// `aes-192-gcm`.
    Aes192Gcm,
    /// `aes-256-gcm`.
    Aes256Gcm,
    /// `chacha20-ietf-poly1305`.
    ChaCha20IetfPoly1305,
    /// `xchacha20-ietf-poly1305`.
    XChaCha20IetfPoly1305,
    /// `2022-blake3-aes-128-gcm`.
    Blake3Aes128Gcm,
    /// `2022-blake3-aes-256-gcm`.
    Blake3Aes256Gcm,
    /// `2022-blake3-chacha20-poly1305`.
    Blake3ChaCha20Poly1305,
    /// `2022-blake3-chacha12-poly1305`.
    Blake3ChaCha12Poly1305,
    /// `2022-blake3-chacha8-poly1305`.
    Blake3ChaCha8Poly1305,
}

/// Why a method name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MethodError {
    /// A cipher without authentication that Shadowsocks removed.
    Removed {
        /// The AEAD method to configure instead, on both ends.
        replacement: Method,
    },
    /// An AEAD method that other programs have as an extra and Adit does not.
    Unsupported {
        /// The AEAD method to configure instead, on both ends.
        replacement: Method,
    },
    /// Not a method name.
    Unknown,
}

impl fmt::Display for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed { replacement } => write!(
                f,
                "this stream cipher is not authenticated and was removed; write \"{}\" on both ends instead",
                replacement.name()
            ),
            Self::Unsupported { replacement } => write!(
                f,
                "this cipher is not supported; write \"{}\" on both ends instead",
                replacement.name()
            ),
            Self::Unknown => {
                f.write_str("unknown method; write one of ")?;
                for (i, method) in Method::ALL.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    f.write_str(method.name())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for MethodError {}

impl Method {
    /// Every method, strongest recommendation first.
    pub const ALL: [Self; 11] = [
        Self::Blake3Aes256Gcm,
        Self::Blake3Aes128Gcm,
        Self::Blake3ChaCha20Poly1305,
        Self::Blake3ChaCha12Poly1305,
        Self::Blake3ChaCha8Poly1305,
        Self::Aes256Gcm,
        Self::ChaCha20IetfPoly1305,
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::XChaCha20IetfPoly1305,
        Self::None,
    ];

    /// Finds a method by its configured name.
    ///
    /// # Errors
    /// Names the method to use instead when the cipher was removed or is not supported.
    pub fn from_name(name: &str) -> Result<Self, MethodError> {
        if name == "plain" {
            return Ok(Self::None);
        }
        if let Some(method) = Self::ALL.into_iter().find(|m| m.name() == name) {
            return Ok(method);
        }
        let lower = name.to_ascii_lowercase();
        let replacement = if lower.contains("chacha") || lower.contains("salsa") {
            Self::ChaCha20IetfPoly1305
        } else {
            Self::Aes256Gcm
        };
        if is_removed_stream_cipher(&lower) {
            Err(MethodError::Removed { replacement })
        } else if ["-ccm", "-gcm-siv", "sm4-gcm"].iter().any(|s| lower.ends_with(s)) {
            Err(MethodError::Unsupported { replacement })
        } else {
            Err(MethodError::Unknown)
        }
    }

    /// The configured name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::ChaCha20IetfPoly1305 => "chacha20-ietf-poly1305",
            Self::XChaCha20IetfPoly1305 => "xchacha20-ietf-poly1305",
            Self::Blake3Aes128Gcm => "2022-blake3-aes-128-gcm",
            Self::Blake3Aes256Gcm => "2022-blake3-aes-256-gcm",
            Self::Blake3ChaCha20Poly1305 => "2022-blake3-chacha20-poly1305",
            Self::Blake3ChaCha12Poly1305 => "2022-blake3-chacha12-poly1305",
            Self::Blake3ChaCha8Poly1305 => "2022-blake3-chacha8-poly1305",
        }
    }

    /// The AEAD that protects TCP records; none for [`Method::None`].
    pub const fn aead(self) -> Option<Aead> {
        Some(match self {
            Self::None => return None,
            Self::Aes128Gcm | Self::Blake3Aes128Gcm => Aead::Aes128Gcm,
            Self::Aes192Gcm => Aead::Aes192Gcm,
            Self::Aes256Gcm | Self::Blake3Aes256Gcm => Aead::Aes256Gcm,
            Self::ChaCha20IetfPoly1305 | Self::Blake3ChaCha20Poly1305 => Aead::ChaCha20Poly1305,
            Self::XChaCha20IetfPoly1305 => Aead::XChaCha20Poly1305,
            Self::Blake3ChaCha12Poly1305 => Aead::ChaCha12Poly1305,
            Self::Blake3ChaCha8Poly1305 => Aead::ChaCha8Poly1305,
        })
    }

    /// Key length in bytes; 0 for [`Method::None`].
    pub const fn key_len(self) -> usize {
        match self.aead() {
            Some(aead) => aead.key_len(),
            None => 0,
        }
    }

    /// Salt length in bytes, equal to the key length in both editions.
    pub const fn salt_len(self) -> usize {
        self.key_len()
    }

    /// Whether this is a method of the 2022 edition (SIP022).
    pub const fn is_2022(self) -> bool {
        matches!(
            self,
            Self::Blake3Aes128Gcm
                | Self::Blake3Aes256Gcm
                | Self::Blake3ChaCha20Poly1305
                | Self::Blake3ChaCha12Poly1305
                | Self::Blake3ChaCha8Poly1305
        )
    }

    /// Whether identity headers, and so several users on one port, exist for it (SIP023).
    pub const fn supports_identity(self) -> bool {
        matches!(self, Self::Blake3Aes128Gcm | Self::Blake3Aes256Gcm)
    }

    /// Largest payload of one record that a receiver must take, bytes.
    pub const fn record_payload_max(self) -> usize {
        if self.is_2022() { 0xFFFF } else { 0x3FFF }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn is_removed_stream_cipher(lower: &str) -> bool {
    const NAMES: [&str; 11] = [
        "table",
        "rc4",
        "rc4-md5",
        "rc4-md5-6",
        "salsa20",
        "chacha20",
        "chacha20-ietf",
        "xchacha20",
        "bf-cfb",
        "cast5-cfb",
        "des-cfb",
    ];
    const SUFFIXES: [&str; 8] =
        ["-cfb", "-cfb1", "-cfb8", "-cfb128", "-ctr", "-ofb", "-cbc", "-md5"];
    NAMES.contains(&lower) || SUFFIXES.iter().any(|s| lower.ends_with(s))
}
