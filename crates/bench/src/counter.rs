//! Reading the file that the malloc counter library (`adit-malloc-counter`) keeps.
//!
//! The layout is that crate's contract: 64 slots of 64 bytes, native byte order, each
//! `pid: u32, pad, calls: u64, bytes: u64, frees: u64`.

use std::fs;
use std::path::Path;

use crate::error::{Context, Error};

/// File name of the library.
pub(crate) const LIBRARY: &str = "libadit_malloc_counter.so";
/// Environment variable that names the file.
pub(crate) const VARIABLE: &str = "ADIT_MALLOC_COUNTER";
const SLOT_LEN: usize = 64;

/// Heap calls of one process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Allocation calls.
    pub(crate) calls: u64,
    /// Bytes asked for.
    pub(crate) bytes: u64,
    /// Frees.
    pub(crate) frees: u64,
}

impl Counts {
    /// What happened since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            calls: self.calls.wrapping_sub(earlier.calls),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            frees: self.frees.wrapping_sub(earlier.frees),
        }
    }
}

/// The counters of process `pid`; `None` when the library never ran in it.
pub(crate) fn read(file: &Path, pid: u32) -> Result<Option<Counts>, Error> {
    if !file.exists() {
        return Ok(None);
    }
    let bytes = fs::read(file).context(|| format!("cannot read {}", file.display()))?;
    Ok(find(&bytes, pid))
}

fn find(bytes: &[u8], pid: u32) -> Option<Counts> {
    let slot = bytes.chunks_exact(SLOT_LEN).find(|slot| slot.starts_with(&pid.to_ne_bytes()))?;
    let field = |at: usize| {
        let bytes = slot.get(at..at + 8)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    };
    Some(Counts { calls: field(8)?, bytes: field(16)?, frees: field(24)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(pid: u32, fields: [u64; 3]) -> Vec<u8> {
        let mut slot = vec![0; SLOT_LEN];
        slot[..4].copy_from_slice(&pid.to_ne_bytes());
        for (at, field) in [8, 16, 24].into_iter().zip(fields) {
            slot[at..at + 8].copy_from_slice(&field.to_ne_bytes());
        }
        slot
    }

    #[test]
    fn finds_the_slot_of_a_process() {
        let file = [slot(5, [1, 2, 3]), slot(77, [10, 20, 30]), slot(0, [0; 3])].concat();
        let counts = find(&file, 77).unwrap();
        assert_eq!((counts.calls, counts.bytes, counts.frees), (10, 20, 30));
        assert_eq!(find(&file, 78), None);
    }

    #[test]
    fn subtracts_field_by_field() {
        let file = [slot(5, [1, 2, 3]), slot(6, [4, 7, 3])].concat();
        let moved = find(&file, 6).unwrap().since(find(&file, 5).unwrap());
        assert_eq!((moved.calls, moved.bytes, moved.frees), (3, 5, 0));
    }
}
