//! A preloadable library that counts every heap call of a process, C code included.
//!
//! `LD_PRELOAD=libadit_malloc_counter.so ADIT_MALLOC_COUNTER=FILE program` makes the program's
//! `malloc`, `calloc`, `realloc`, `reallocarray`, `posix_memalign`, `aligned_alloc`, `memalign` and
//! `free` pass through here: each call bumps a counter in `FILE`, which is mapped shared so that
//! another process can read it while the program runs, and then goes on to glibc's own
//! `__libc_*` entry. Those entries are linked by name, so there is no `dlsym` (which allocates).
//!
//! Contract with the reader (`adit bench alloc`): the file is 4096 bytes, an array of
//! 64 slots of 64 bytes, native byte order. A process takes the first slot that is zero or
//! that already has its process id (a program that replaced itself by `exec` keeps its slot):
//!
//! | offset | field | counts |
//! |---|---|---|
//! | 0 | `u32` process id | 0 while the slot is unused |
//! | 8 | `u64` calls | allocation calls, a `realloc` being one |
//! | 16 | `u64` bytes | bytes asked for by those calls |
//! | 24 | `u64` frees | `free` of something other than NULL |
//!
//! Invariants: works from the first call, before any constructor has run; never allocates, locks or
//! prints; leaves `errno` alone. A forked child that does not `exec` counts into its parent's slot.
//! Without the variable, or when the file cannot be mapped or all slots are taken, calls are only
//! forwarded and the reader finds no slot. A program linked statically is not touched by
//! `LD_PRELOAD` and shows up as a missing slot too. Mapping memory directly (`mmap`) is not counted.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(unsafe_code, reason = "replacing the C allocator's symbols is an FFI boundary by nature")]

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Slots in the file; one per process that inherits the environment.
const SLOTS: usize = 64;
/// Length of the counter file.
const FILE_LEN: usize = SLOTS * size_of::<Slot>();

/// One process's counters. All zero is a valid unused slot.
#[repr(C, align(64))]
struct Slot {
    pid: AtomicU32,
    calls: AtomicU64,
    bytes: AtomicU64,
    frees: AtomicU64,
}

impl Slot {
    const fn unused() -> Self {
        Self {
            pid: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            frees: AtomicU64::new(0),
        }
    }

    fn add_call(&self, bytes: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn absorb(&self, other: &Self) {
        let moved = |from: &AtomicU64, to: &AtomicU64| {
            to.fetch_add(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        };
        moved(&other.calls, &self.calls);
        moved(&other.bytes, &self.bytes);
        moved(&other.frees, &self.frees);
    }
}

/// Counts calls made before the file is mapped; moved into the file when that happens.
static PENDING: Slot = Slot::unused();
/// This process's slot in the mapped file, or null.
static MAPPED: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Where the search for the slot stands.
static STATE: AtomicU8 = AtomicU8::new(NOT_TRIED);

/// The C library has not set up the environment yet, or nobody has looked.
const NOT_TRIED: u8 = 0;
/// One thread is mapping the file; calls of others go to `PENDING`.
const TRYING: u8 = 1;
/// Decided: `MAPPED` is the slot, or stays null for good.
const DECIDED: u8 = 2;

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
    static environ: *const *const core::ffi::c_char;
}

/// The slot to count into.
fn slot() -> &'static Slot {
    if STATE.load(Ordering::Acquire) == NOT_TRIED {
        attach();
    }
    let mapped = MAPPED.load(Ordering::Acquire);
    if mapped.is_null() {
        return &PENDING;
    }
    // SAFETY: `MAPPED` is only ever set to a slot inside a mapping that is never unmapped; the slot
    // is aligned to 64 bytes, and all its fields are atomics, so sharing it is sound.
    unsafe { &*mapped }
}

/// Finds this process's slot once the environment can be read.
#[cold]
fn attach() {
    // SAFETY: `environ` is a plain pointer variable of the C library, read before threads exist or
    // while it is stable.
    if unsafe { environ }.is_null() {
        return; // The loader is still at work: try again at the next call.
    }
    if STATE.compare_exchange(NOT_TRIED, TRYING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    // SAFETY: the C library is set up (see above), so `errno` exists for this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer from `__errno_location` is valid for the calling thread.
    let saved = unsafe { *errno };
    if let Some(slot) = map_file().and_then(claim) {
        slot.absorb(&PENDING);
        MAPPED.store(ptr::from_ref(slot).cast_mut(), Ordering::Release);
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
    STATE.store(DECIDED, Ordering::Release);
}

/// Maps the file that the environment names. The mapping stays for the life of the process.
fn map_file() -> Option<&'static [Slot; SLOTS]> {
    // SAFETY: the name is a C string; the environment is not being changed this early.
    let path = unsafe { libc::getenv(c"ADIT_MALLOC_COUNTER".as_ptr()) };
    if path.is_null() {
        return None;
    }
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: `path` is a C string owned by the environment.
    let fd = unsafe { libc::open(path, flags, 0o600) };
    if fd < 0 {
        return None;
    }
    // SAFETY: `fd` was just opened; growing or keeping the length leaves other slots as they are.
    let sized = unsafe { libc::ftruncate(fd, FILE_LEN as libc::off_t) } == 0;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let base = if sized {
        // SAFETY: a fresh shared mapping of an open file at an address of the kernel's choosing.
        unsafe { libc::mmap(ptr::null_mut(), FILE_LEN, protection, libc::MAP_SHARED, fd, 0) }
    } else {
        libc::MAP_FAILED
    };
    // SAFETY: `fd` is ours, and the mapping does not need it.
    unsafe { libc::close(fd) };
    if base == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is page aligned, `FILE_LEN` long and never removed; every bit pattern is
    // a valid array of slots, whose fields are atomics.
    Some(unsafe { &*base.cast::<[Slot; SLOTS]>() })
}

/// Takes the slot of this process, or the first unused one.
fn claim(slots: &'static [Slot; SLOTS]) -> Option<&'static Slot> {
    // SAFETY: `getpid` has no preconditions.
    let pid = unsafe { libc::getpid() }.cast_unsigned();
    slots.iter().find(|slot| {
        match slot.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(owner) => owner == pid,
        }
    })
}

/// Counts and forwards `malloc`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    slot().add_call(size);
    // SAFETY: forwarded unchanged.
    unsafe { __libc_malloc(size) }
}

/// Counts and forwards `calloc`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    slot().add_call(count.saturating_mul(size));
    // SAFETY: forwarded unchanged.
    unsafe { __libc_calloc(count, size) }
}

/// Counts and forwards `realloc`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    slot().add_call(size);
    // SAFETY: forwarded unchanged; the block came from the same allocator.
    unsafe { __libc_realloc(block, size) }
}

/// Counts and forwards `reallocarray`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    slot().add_call(count.saturating_mul(size));
    let Some(total) = count.checked_mul(size) else {
        // SAFETY: a program that calls this has a C library that is set up.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the pointer from `__errno_location` is valid for the calling thread.
        unsafe { *errno = libc::ENOMEM };
        return ptr::null_mut();
    };
    // SAFETY: forwarded with the product that the contract asks for.
    unsafe { __libc_realloc(block, total) }
}

/// Counts and forwards `memalign`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    slot().add_call(size);
    // SAFETY: forwarded unchanged.
    unsafe { __libc_memalign(alignment, size) }
}

/// Counts and forwards `aligned_alloc`, which glibc treats as `memalign`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    slot().add_call(size);
    // SAFETY: forwarded unchanged.
    unsafe { __libc_memalign(alignment, size) }
}

/// Counts and forwards `posix_memalign`.
///
/// # Safety
/// As for the C function: `out` must be valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    slot().add_call(size);
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: the alignment was checked as POSIX asks.
    let block = unsafe { __libc_memalign(alignment, size) };
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller gave a place for the pointer.
    unsafe { *out = block };
    0
}

/// Counts and forwards `free`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if !block.is_null() {
        slot().frees.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: forwarded unchanged; the block came from the same allocator.
    unsafe { __libc_free(block) }
}
