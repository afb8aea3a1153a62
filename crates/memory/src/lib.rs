//! Returns freed heap memory to the operating system.
//!
//! The C library keeps freed memory for later allocations: after two hundred large answers at once, 600 MB stayed with
//! the process for the rest of its life. A single call, `malloc_trim`, returns it.
//!
//! That call does not reach the cache of each thread (glibc's tcache): a few hundred small blocks. They are small, but
//! after a burst of load they are scattered, and each pins the page it is on: about 3 MB in total. A thread's cache is
//! emptied when the thread ends, or when the thread allocates the blocks itself. So threads that never end allocate
//! theirs [before they sleep](before_sleep), if a flush was [requested](call_in), and hand them to a short-lived thread
//! that frees them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Block sizes that glibc caches per thread, in bytes.
const CACHED_SIZES_BYTES: std::ops::RangeInclusive<usize> = 24..=1032;

/// Distance between two cached sizes.
const SIZE_STEP_BYTES: usize = 16;

/// Blocks to allocate of each size: at least as many as a thread caches.
const BLOCKS_PER_SIZE: usize = 16;

/// Number of flush requests so far.
static FLUSH_REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Blocks from the caches of all threads; `None` while no flush is in progress.
static FLUSHED_BLOCKS: Mutex<Option<Vec<Vec<u8>>>> = Mutex::new(None);

thread_local! {
    /// Number of the last flush request that this thread has handled.
    static HANDLED_REQUEST: Cell<u64> = const { Cell::new(0) };
}

/// Value for both malloc thresholds. Larger allocations are mapped separately and returned as soon as they are freed,
/// and at most this much free memory is kept at the top of the heap. glibc starts with the same value, but raises it
/// after large allocations; setting it explicitly turns that off.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MALLOC_THRESHOLD_BYTES: libc::c_int = 128 * 1024;

/// Limits the freed memory that the C library keeps from now on. Must be called before a second thread is started.
pub fn keep_little() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for setting in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        #[expect(unsafe_code, reason = "calls the C library")]
        // SAFETY: `mallopt` takes two integers. No other thread may allocate meanwhile, and none exists yet.
        let _ = unsafe { libc::mallopt(setting, MALLOC_THRESHOLD_BYTES) };
    }
}

/// Requests that every thread flushes its cache once, the next time it goes to sleep. The caller wakes threads that are
/// already asleep.
pub fn call_in() {
    FLUSHED_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    FLUSH_REQUESTS.fetch_add(1, Ordering::Relaxed);
}

/// Flushes the cache of this thread if that was requested. Every thread calls this before it sleeps; in nearly all
/// cases there is no request, and the call returns at once.
pub fn before_sleep() {
    let requests = FLUSH_REQUESTS.load(Ordering::Relaxed);
    if HANDLED_REQUEST.replace(requests) == requests || !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return;
    }
    let blocks: Vec<Vec<u8>> = CACHED_SIZES_BYTES
        .step_by(SIZE_STEP_BYTES)
        .flat_map(|size| std::iter::repeat_with(move || Vec::with_capacity(size)).take(BLOCKS_PER_SIZE))
        .collect();
    if let Some(flushed) = &mut *FLUSHED_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner) {
        flushed.extend(blocks);
    }
}

/// Frees the flushed blocks on a new thread, so that they end up in a cache that is released with that thread.
fn free_flushed_blocks() {
    let flushed = FLUSHED_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(blocks) = flushed.filter(|blocks| !blocks.is_empty()) {
        let _ = thread::spawn(move || drop(blocks)).join();
    }
}

/// Returns all free memory to the system. After heavy use this takes some milliseconds, during which other threads may
/// wait for the allocator. So do not call it often, or on a thread that others wait for. Without glibc it does nothing.
pub fn give_back() {
    free_flushed_blocks();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "calls the C library")]
        // SAFETY: `malloc_trim` takes an integer, has no preconditions, and is thread-safe (malloc_trim(3)).
        let _ = unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Resident memory of this process in bytes.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    /// A single test, because the memory of a parallel one would be measured too.
    #[test]
    fn free_memory_and_requested_thread_caches_are_returned() {
        // The blocks are too small to be returned when they are freed, and a block above them stays in use.
        let blocks: Vec<Vec<u8>> = (0..40_000).map(|_| vec![1; 2000]).collect();
        let above = vec![1_u8; 2000];
        let full = resident();
        drop(blocks);
        give_back();
        assert!(resident() + 60_000_000 < full, "{} of {full}", resident());
        drop(above);

        // The thread caches the first freed blocks of each size. Freeing every eleventh one first scatters them.
        let sizes: Vec<usize> = CACHED_SIZES_BYTES.step_by(SIZE_STEP_BYTES).collect();
        let mut blocks: Vec<Option<Vec<u8>>> =
            (0..100 * sizes.len()).map(|n| Some(vec![1; sizes[n % sizes.len()]])).collect();
        (0..blocks.len()).rev().step_by(11).for_each(|n| blocks[n] = None);
        drop(blocks);
        give_back();
        let with_cache = resident();
        before_sleep();
        give_back();
        assert!(resident() + 200_000 > with_cache, "no flush was requested");
        call_in();
        before_sleep();
        let flushed = || FLUSHED_BLOCKS.lock().unwrap().as_ref().map(Vec::len);
        assert_eq!(flushed(), Some(BLOCKS_PER_SIZE * sizes.len()));
        before_sleep();
        assert_eq!(flushed(), Some(BLOCKS_PER_SIZE * sizes.len()), "a thread flushes once per request");
        give_back();
        assert!(resident() + 800_000 < with_cache, "{} of {with_cache}", resident());
        call_in();
        give_back();
        before_sleep();
        assert_eq!(flushed(), None, "a thread that is too late keeps its cache");
    }
}
