//! Rate limit for requests with a wrong key or without one: beyond it, the answer is 429 instead of 401.
//!
//! Counted for each address and in total. Requests with a valid key are not counted and never delayed: many clients may share an
//! address, and one that guesses must not lock out the others. Guessing stays hopeless, because keys are long and random.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Wrong keys that one address may send at once,
const BURST_PER_ADDRESS: u32 = 20;
/// and the interval at which another is allowed.
const INTERVAL_PER_ADDRESS: Duration = Duration::from_secs(6);

/// The same for all addresses together.
const TOTAL_BURST: u32 = 200;
const TOTAL_INTERVAL: Duration = Duration::from_millis(600);

/// Maximum number of tracked addresses.
const MAX_TRACKED_ADDRESSES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct WrongKeys {
    state: Mutex<WrongKeyCounters>,
}

#[derive(Debug, Default)]
struct WrongKeyCounters {
    all: KeyAttempts,
    from: HashMap<IpAddr, KeyAttempts>,
}

/// Attempts that still count. One expires with each interval.
#[derive(Debug, Default)]
struct KeyAttempts {
    /// Time at which the last of them expires.
    forgiven_at: Option<Instant>,
}

impl KeyAttempts {
    /// Time until another attempt is allowed.
    fn wait(&self, burst: u32, every: Duration, now: Instant) -> Option<Duration> {
        let left = self.forgiven_at?.saturating_duration_since(now);
        left.checked_sub(every * (burst - 1)).filter(|wait| !wait.is_zero())
    }

    fn note(&mut self, every: Duration, now: Instant) {
        self.forgiven_at = Some(self.forgiven_at.map_or(now, |at| at.max(now)) + every);
    }

    fn is_expired(&self, now: Instant) -> bool {
        self.forgiven_at.is_none_or(|at| at <= now)
    }
}

impl WrongKeys {
    /// Counts a request without a valid key. The error is the time to wait.
    pub(crate) fn refuse(&self, from: IpAddr) -> Result<(), Duration> {
        self.refuse_at(network_of(from), Instant::now())
    }

    fn refuse_at(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut state = self.state();
        let wait = state.from.get(&from).and_then(|tries| tries.wait(BURST_PER_ADDRESS, INTERVAL_PER_ADDRESS, now));
        if let Some(wait) = wait.or_else(|| state.all.wait(TOTAL_BURST, TOTAL_INTERVAL, now)) {
            return Err(wait);
        }
        if state.from.len() >= MAX_TRACKED_ADDRESSES {
            state.from.retain(|_, tries| !tries.is_expired(now));
        }
        state.all.note(TOTAL_INTERVAL, now);
        if state.from.len() < MAX_TRACKED_ADDRESSES {
            state.from.entry(from).or_default().note(INTERVAL_PER_ADDRESS, now);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, WrongKeyCounters> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The network of an IPv6 address, which its owner cannot choose freely.
fn network_of(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn case_23_wrong_keys_are_rate_limited() {
        let (strangers, start) = (WrongKeys::default(), Instant::now());
        for _ in 0..BURST_PER_ADDRESS {
            assert_eq!(strangers.refuse_at(address(1), start), Ok(()));
        }
        let wait = strangers.refuse_at(address(1), start).unwrap_err();
        assert!(wait <= Duration::from_secs(120) && wait == INTERVAL_PER_ADDRESS, "{wait:?}");
        assert_eq!(strangers.refuse_at(address(2), start), Ok(()), "an address for itself");
        assert_eq!(strangers.refuse_at(address(1), start + INTERVAL_PER_ADDRESS), Ok(()));
        assert!(strangers.refuse_at(address(1), start + INTERVAL_PER_ADDRESS).is_err());
    }

    #[test]
    fn attempts_are_limited_in_total_when_they_come_from_many_addresses() {
        let (strangers, start) = (WrongKeys::default(), Instant::now());
        let from = |n: u32| IpAddr::from(n.to_be_bytes());
        let let_through = (0..100_000).filter(|n| strangers.refuse_at(from(*n), start).is_ok()).count();
        assert_eq!(let_through, TOTAL_BURST as usize);
        assert!(strangers.state().from.len() <= MAX_TRACKED_ADDRESSES);
    }

    #[test]
    fn ipv6_addresses_are_counted_by_network() {
        let same = |a: &str, b: &str| network_of(a.parse().unwrap()) == network_of(b.parse().unwrap());
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9") && !same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("::ffff:10.0.0.1", "10.0.0.2"));
    }
}
