//! Those who come with a wrong key, or with none: so many are told so, the others to come back later.
//!
//! Counted for each address and for all. A network behind one address must not be locked out by one guest of its own, so
//! who has come in from there before is still let in; and whoever guesses cannot tell a right key from a wrong one there.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use trunkline_core::turn::Owner;

/// Wrong tries from one address: this many at once, then one in so long.
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_secs(6);

/// The same of all addresses together.
const BURST_OF_ALL: u32 = 200;
const EVERY_OF_ALL: Duration = Duration::from_millis(600);

/// How many addresses and guests are remembered.
const MANY: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Strangers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    all: Tries,
    from: HashMap<IpAddr, Tries>,
    guests: HashSet<(IpAddr, Owner)>,
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

impl Strangers {
    /// Notes who came, and with a right key or not; and how long they have to stay away, if so.
    pub(crate) fn meet(&self, from: IpAddr, came_in: Option<&Owner>) -> Result<(), Duration> {
        self.meet_at(network_of(from), came_in, Instant::now())
    }

    fn meet_at(&self, from: IpAddr, came_in: Option<&Owner>, now: Instant) -> Result<(), Duration> {
        let mut state = self.state();
        let wait = state.from.get(&from).and_then(|tries| tries.wait(BURST, EVERY, now));
        if let Some(owner) = came_in {
            let guest = (from, owner.clone());
            return match wait {
                Some(wait) if !state.guests.contains(&guest) => Err(wait),
                Some(_) | None => {
                    if state.guests.len() < MANY {
                        state.guests.insert(guest);
                    }
                    Ok(())
                }
            };
        }
        // A right key is not held up by what others do from elsewhere; only a wrong one is.
        if let Some(wait) = wait.or_else(|| state.all.wait(BURST_OF_ALL, EVERY_OF_ALL, now)) {
            return Err(wait);
        }
        if state.from.len() >= MANY {
            state.from.retain(|_, tries| !tries.is_forgiven(now));
        }
        state.all.note(EVERY_OF_ALL, now);
        if state.from.len() < MANY {
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
        let (strangers, start) = (Strangers::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(strangers.meet_at(address(1), None, start), Ok(()));
        }
        let wait = strangers.meet_at(address(1), None, start).unwrap_err();
        assert!(wait <= Duration::from_secs(120) && wait == EVERY, "{wait:?}");
        assert_eq!(strangers.meet_at(address(2), None, start), Ok(()), "an address for itself");
        assert_eq!(strangers.meet_at(address(1), None, start + EVERY), Ok(()));
        assert!(strangers.meet_at(address(1), None, start + EVERY).is_err());
    }

    #[test]
    fn a_right_guess_looks_like_a_wrong_one_and_a_guest_is_let_in() {
        let (strangers, start) = (Strangers::default(), Instant::now());
        let (guest, new) = (Owner::of_key("a"), Owner::of_key("b"));
        assert_eq!(strangers.meet_at(address(1), Some(&guest), start), Ok(()));
        while strangers.meet_at(address(1), None, start).is_ok() {}
        assert_eq!(strangers.meet_at(address(1), Some(&guest), start), Ok(()));
        assert_eq!(strangers.meet_at(address(1), Some(&new), start), Err(EVERY));
        assert_eq!(strangers.meet_at(address(2), Some(&new), start), Ok(()));
    }

    #[test]
    fn many_addresses_are_many_tries_and_are_forgotten() {
        let (strangers, start) = (Strangers::default(), Instant::now());
        let from = |n: u32| IpAddr::from(n.to_be_bytes());
        let let_through = (0..100_000).filter(|n| strangers.meet_at(from(*n), None, start).is_ok()).count();
        assert_eq!(let_through, BURST_OF_ALL as usize);
        assert_eq!(strangers.meet_at(from(7), Some(&Owner::of_key("a")), start), Ok(()));
        assert!(strangers.state().from.len() <= MANY);
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let same = |a: &str, b: &str| network_of(a.parse().unwrap()) == network_of(b.parse().unwrap());
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9") && !same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("::ffff:10.0.0.1", "10.0.0.2"));
    }
}
