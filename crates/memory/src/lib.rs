//! Memory that was freed, given back to the system.
//!
//! The C library keeps what a process once had, for the next time: after two hundred large answers at once that was 600 MB,
//! for as long as the process lived. It gives all of it back if it is asked to, and by a single call.
//!
//! All but what each thread keeps for itself: a few hundred small pieces, which no call reaches. They are little, but after
//! a rush they lie far apart, and each keeps the page it is on: some 3 MB. A thread loses them when it ends, or by taking
//! them itself; so those that never end take theirs [before they sleep](before_sleep), when they were [called
//! in](call_in), and one that ends at once lets go of them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The sizes of which a thread keeps pieces, in bytes: the C library's own, which end here.
const SIZES: std::ops::RangeInclusive<usize> = 24..=1032;

/// From one such size to the next.
const STEP: usize = 16;

/// How many a thread keeps of each, or more than that.
const EACH: usize = 16;

/// How often threads were called in.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// What they have brought; none while nobody waits for it.
static BROUGHT: Mutex<Option<Vec<Vec<u8>>>> = Mutex::new(None);

thread_local! {
    /// Which call this thread has heard.
    static HEARD: Cell<u64> = const { Cell::new(0) };
}

/// What is larger is taken from the system by itself, and goes back as soon as it is free; and of what is free at the end of
/// the rest, no more than this is kept. The C library begins with the same, but takes more once it has seen more.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: libc::c_int = 128 * 1024;

/// Keeps little of what was freed, from now on. To be called before there is a second thread.
pub fn keep_little() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for setting in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        #[expect(unsafe_code, reason = "a call into the C library")]
        // SAFETY: it takes two numbers and asks only that nobody allocates meanwhile, which there is nobody to do.
        let _whether_it_is_known = unsafe { libc::mallopt(setting, KEPT) };
    }
}

/// Every thread that sleeps from now on brings what it has kept, once. Who sleeps already is to be woken.
pub fn call_in() {
    BROUGHT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// To be called by a thread that is about to sleep: brings what it has kept if it was called in. Nearly always it was not.
pub fn before_sleep() {
    let calls = CALLS.load(Ordering::Relaxed);
    if HEARD.replace(calls) == calls || !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return;
    }
    let kept: Vec<Vec<u8>> = SIZES
        .step_by(STEP)
        .flat_map(|size| std::iter::repeat_with(move || Vec::with_capacity(size)).take(EACH))
        .collect();
    if let Some(brought) = &mut *BROUGHT.lock().unwrap_or_else(PoisonError::into_inner) {
        brought.extend(kept);
    }
}

/// What threads have brought is freed by one that keeps it no longer than it lives.
fn free_what_was_brought() {
    let brought = BROUGHT.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(brought) = brought.filter(|brought| !brought.is_empty()) {
        let _it_cannot_panic = thread::spawn(move || drop(brought)).join();
    }
}

/// Gives back what is free. Takes some milliseconds after much was used, in which other threads may wait for memory: not
/// to be called often, nor on a thread that others wait for. Elsewhere than in glibc it does nothing.
pub fn give_back() {
    free_what_was_brought();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "a call into the C library")]
        // SAFETY: it takes a number, asks for nothing else, and is safe from any thread at any time (malloc_trim(3)).
        let _whether_any = unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    /// One test: another one's memory would be counted, too.
    #[test]
    fn what_is_free_is_given_back_and_what_a_thread_has_kept() {
        // Small enough not to be given back by itself, and with something in use above it all.
        let much: Vec<Vec<u8>> = (0..40_000).map(|_| vec![1; 2000]).collect();
        let above = vec![1_u8; 2000];
        let full = resident();
        drop(much);
        give_back();
        assert!(resident() + 60_000_000 < full, "{} of {full}", resident());
        drop(above);

        // Of each size the first ones that are freed are kept, and these lie far apart.
        let sizes: Vec<usize> = SIZES.step_by(STEP).collect();
        let mut pieces: Vec<Option<Vec<u8>>> =
            (0..100 * sizes.len()).map(|n| Some(vec![1; sizes[n % sizes.len()]])).collect();
        (0..pieces.len()).rev().step_by(11).for_each(|n| pieces[n] = None);
        drop(pieces);
        give_back();
        let kept = resident();
        before_sleep();
        give_back();
        assert!(resident() + 200_000 > kept, "nobody was called in");
        call_in();
        before_sleep();
        let brought = || BROUGHT.lock().unwrap().as_ref().map(Vec::len);
        assert_eq!(brought(), Some(EACH * sizes.len()));
        before_sleep();
        assert_eq!(brought(), Some(EACH * sizes.len()), "once for each call");
        give_back();
        assert!(resident() + 800_000 < kept, "{} of {kept}", resident());
        call_in();
        give_back();
        before_sleep();
        assert_eq!(brought(), None, "who comes too late keeps his");
    }
}
