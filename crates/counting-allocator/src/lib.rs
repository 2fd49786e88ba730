//! A global allocator for tests that counts each thread's heap allocations.
//!
//! A test that uses [`allocations`] is linked with it. Rust code is counted; what C code takes from
//! `malloc` is not: `malloc-counter` counts that in whole processes.

#![allow(unsafe_code, reason = "a counting allocator is a GlobalAlloc, which is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // After thread-local storage is gone nothing is under test.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to `System` unchanged; counting touches only a const-initialised cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps `alloc`'s contract, which is passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps `alloc_zeroed`'s contract, which is passed on unchanged.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout, since all of our calls go there.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; `new_size` is the caller's, who keeps `realloc`'s contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` allocates, or makes an allocation longer, on this thread. Giving memory back
/// does not count.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::allocations;

    #[test]
    fn each_way_to_allocate_counts() {
        assert_eq!(allocations(|| drop(black_box(Box::new(1)))), 1);
        assert_eq!(allocations(|| drop(black_box(vec![0_u8; 100]))), 1);
        let mut longer = Vec::<u8>::with_capacity(1);
        assert_eq!(allocations(|| black_box(&mut longer).reserve(100)), 1);
        assert_eq!(allocations(|| drop(longer)), 0);
        assert_eq!(allocations(|| ()), 0);
    }
}
