//! Countries of addresses, from a MaxMind DB file (format 2.0, GeoLite2-Country and others).
//!
//! The file is a binary tree over address bits, whose leaves point to records, and metadata at its
//! end. [`reader`] decodes what records and metadata need; nothing in a file is trusted: offsets
//! are checked, depth and steps have bounds.

#[cfg(feature = "geoip")]
mod reader;

use std::fmt;

#[cfg(feature = "geoip")]
pub use reader::GeoDatabase;

/// A database of countries; this build has none.
#[cfg(not(feature = "geoip"))]
#[derive(Debug)]
pub enum GeoDatabase {}

#[cfg(not(feature = "geoip"))]
impl GeoDatabase {
    /// Reads no database.
    ///
    /// # Errors
    /// Always.
    pub fn from_bytes(_bytes: Vec<u8>) -> Result<Self, GeoError> {
        Err(GeoError::LeftOut)
    }

    /// Finds nothing.
    ///
    /// # Errors
    /// None; there is no such database.
    pub fn walk(&self, _found: &mut dyn FnMut(Country, u128, u128)) -> Result<(), GeoError> {
        match *self {}
    }
}

/// Why bytes are not a database. Whoever named the file should name another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GeoError {
    /// No MaxMind DB file at all, or of a version that is not 2.
    NotADatabase,
    /// It ends early, points outside of itself, or goes in circles.
    Damaged,
    /// This build cannot read any.
    LeftOut,
}

impl GeoError {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::NotADatabase => "geo_not_a_database",
            Self::Damaged => "geo_damaged",
            Self::LeftOut => "geo_left_out",
        }
    }
}

impl fmt::Display for GeoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotADatabase => "not a MaxMind DB file (.mmdb) of format version 2",
            Self::Damaged => "the MaxMind DB file is damaged or cut off",
            Self::LeftOut => "this small build reads no country databases; use the full one",
        })
    }
}

impl std::error::Error for GeoError {}

/// A country by its two letters (ISO 3166-1 alpha-2), in capitals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Country([u8; 2]);

impl Country {
    /// How many codes there can be.
    pub(crate) const COUNT: usize = 26 * 26;

    /// Reads two letters in either case.
    pub fn new(code: &str) -> Option<Self> {
        let letters = <[u8; 2]>::try_from(code.as_bytes()).ok()?;
        let is_code = letters.iter().all(u8::is_ascii_alphabetic);
        is_code.then(|| Self(letters.map(|letter| letter.to_ascii_uppercase())))
    }

    /// A number below [`Self::COUNT`].
    pub(crate) fn index(self) -> usize {
        let [first, second] = self.0.map(|letter| usize::from(letter - b'A'));
        first * 26 + second
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}
