//! HttpLimits on requests with a wrong key, or with none: so many are told so, the others to come back later.
//!
//! Counted for each address and for all. A right key is not counted and never held up: many clients share an address, and
//! one that guesses must not lock out the others. To guess stays hopeless all the same, keys being long and random.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Wrong tries from one address: this many at once, then one in so long.
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_secs(6);

/// The same of all addresses together.
const BURST_OF_ALL: u32 = 200;
const EVERY_OF_ALL: Duration = Duration::from_millis(600);

/// How many addresses are remembered.
const MAX_ADDRESSES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct WrongKeys {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    all: Tries,
    from: HashMap<IpAddr, Tries>,
}

/// Tries that are not forgiven yet: one is, each time so much has passed.
#[derive(Debug, Default)]
struct Tries {
    /// When the last of them is.
    forgiven_at: Option<Instant>,
}

impl Tries {
    /// How long until another may be made.
    fn wait(&self, burst: u32, every: Duration, now: Instant) -> Option<Duration> {
        let left = self.forgiven_at?.saturating_duration_since(now);
        left.checked_sub(every * (burst - 1)).filter(|wait| !wait.is_zero())
    }

    fn note(&mut self, every: Duration, now: Instant) {
        self.forgiven_at = Some(self.forgiven_at.map_or(now, |at| at.max(now)) + every);
    }

    fn is_forgiven(&self, now: Instant) -> bool {
        self.forgiven_at.is_none_or(|at| at <= now)
    }
}

impl WrongKeys {
    /// Counts a request without a right key; an error is how long to stay away.
    pub(crate) fn refuse(&self, from: IpAddr) -> Result<(), Duration> {
        self.refuse_at(network_of(from), Instant::now())
    }

    fn refuse_at(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut state = self.state();
        let wait = state.from.get(&from).and_then(|tries| tries.wait(BURST, EVERY, now));
        if let Some(wait) = wait.or_else(|| state.all.wait(BURST_OF_ALL, EVERY_OF_ALL, now)) {
            return Err(wait);
        }
        if state.from.len() >= MAX_ADDRESSES {
            state.from.retain(|_, tries| !tries.is_forgiven(now));
        }
        state.all.note(EVERY_OF_ALL, now);
        if state.from.len() < MAX_ADDRESSES {
            state.from.entry(from).or_default().note(EVERY, now);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of an IPv6 address the part that its owner cannot choose.
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
    fn case_23_wrong_keys_are_slowed_down() {
        let (strangers, start) = (WrongKeys::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(strangers.refuse_at(address(1), start), Ok(()));
        }
        let wait = strangers.refuse_at(address(1), start).unwrap_err();
        assert!(wait <= Duration::from_secs(120) && wait == EVERY, "{wait:?}");
        assert_eq!(strangers.refuse_at(address(2), start), Ok(()), "an address for itself");
        assert_eq!(strangers.refuse_at(address(1), start + EVERY), Ok(()));
        assert!(strangers.refuse_at(address(1), start + EVERY).is_err());
    }

    #[test]
    fn many_addresses_are_many_tries_and_are_forgotten() {
        let (strangers, start) = (WrongKeys::default(), Instant::now());
        let from = |n: u32| IpAddr::from(n.to_be_bytes());
        let let_through = (0..100_000).filter(|n| strangers.refuse_at(from(*n), start).is_ok()).count();
        assert_eq!(let_through, BURST_OF_ALL as usize);
        assert!(strangers.state().from.len() <= MAX_ADDRESSES);
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let same = |a: &str, b: &str| network_of(a.parse().unwrap()) == network_of(b.parse().unwrap());
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9") && !same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("::ffff:10.0.0.1", "10.0.0.2"));
    }
}
