//! Bodies of fuzz targets; they live here so that `fuzz/` needs nothing private.

use crate::limits::{Calendar, QuotaBook};

/// Reads `data` as a quota file; what is read is written so that it is read again.
pub fn quota_file(data: &[u8]) {
    let today = Calendar::of_local_seconds(1_796_083_200);
    let mut book = QuotaBook::new(64, [1, 2]);
    if book.decode(data, today).is_ok() {
        let text = book.encode(today);
        let again = QuotaBook::new(64, [3, 4]).decode(text.as_bytes(), today);
        assert_eq!(again, Ok(()));
    }
}
