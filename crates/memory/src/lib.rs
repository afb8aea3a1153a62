//! Memory that was freed, given back to the system.
//!
//! The C library keeps what a process once had, for the next time: after two hundred large answers at once that was 600 MB,
//! for as long as the process lived. It gives all of it back if it is asked to, and by a single call.

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

/// Gives back what is free. Takes some milliseconds after much was used, in which other threads may wait for memory: not
/// to be called often, nor on a thread that others wait for. Elsewhere than in glibc it does nothing.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "a call into the C library")]
        // SAFETY: it takes a number, asks for nothing else, and is safe from any thread at any time (malloc_trim(3)).
        let _whether_any = unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::give_back;

    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    fn what_is_free_is_given_back() {
        // Small enough not to be given back by itself, and with something in use above it all.
        let much: Vec<Vec<u8>> = (0..40_000).map(|_| vec![1; 2000]).collect();
        let above = vec![1_u8; 2000];
        let full = resident();
        drop(much);
        give_back();
        assert!(resident() + 60_000_000 < full, "{} of {full}", resident());
        drop(above);
    }
}
