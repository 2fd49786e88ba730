//! Counts heap allocations: none when a worker asks who was right a moment ago, or remembers it.

#![allow(unsafe_code, reason = "a counting allocator is a GlobalAlloc, which is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use adit_users::{TagKey, Verified};

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

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(1)))), 1);
}

#[test]
fn a_worker_asks_and_remembers_without_allocating() {
    let key = TagKey::new([4; 32]);
    let mut verified = Verified::new(1024, 1000, TagKey::new([5; 32]));
    let password = [b'x'; 255];
    let count = allocations(|| {
        for user in 0..5000u32 {
            let name = user.to_le_bytes();
            assert!(!verified.knows(&name, &password, 10));
            verified.remember(&name, &password, 10);
            assert!(verified.knows(&name, &password, 10));
            let _ = black_box(key.user(&name));
        }
        verified.clear();
    });
    assert_eq!(count, 0);
}
