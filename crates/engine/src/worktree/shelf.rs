//! The book of spare worktrees: which there are, which are wanted, and for how long. Pure but for the clock it is told.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::folder::Worktree;
use super::ledger::Standing;
use super::repository_state::{Ground, Rules};
use crate::warm::{Demand, IDLE};

/// How long one takes to make, before one was made.
const GUESS: Duration = Duration::from_secs(1);

/// How often none may come about before a checkout is left alone for a while.
const PATIENCE: u32 = 3;

/// How long after it came to nothing it is tried again, the first time.
const AGAIN: Duration = Duration::from_secs(5);

/// Checkouts that are remembered before those that nobody uses are let go.
const MANY: usize = 64;

#[derive(Default)]
pub(super) struct Shelf {
    checkouts: Vec<Checkout>,
    number: u64,
    /// How often all that was wanted was taken back.
    pub(super) era: u64,
}

/// The spares of one checkout.
struct Checkout {
    order: Order,
    demand: Demand,
    /// So many are wanted whether it is used or not.
    fixed: usize,
    ready: Vec<Slot>,
    coming: usize,
    took: Duration,
    /// How often none came about, since one did, and when the last time was.
    failures: u32,
    failed: Option<Instant>,
}

/// A worktree that nobody works in.
pub(super) struct Spare {
    /// Named after itself, as it has no run.
    pub(super) tree: Worktree,
    pub(super) rules: Rules,
    /// How it looked when it was ready.
    pub(super) looks: blake3::Hash,
    /// As the ledger says.
    pub(super) standing: Standing,
}

/// A spare that is to be had. Whoever waits with it is told by the end of `back`, or is given it back.
pub(super) struct Slot {
    number: u64,
    pub(super) spare: Spare,
    back: oneshot::Sender<Spare>,
}

/// A spare that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    /// What git keeps of the checkout; its name here.
    pub(super) own: PathBuf,
    pub(super) common: PathBuf,
    /// Where git is asked.
    pub(super) repo: PathBuf,
}

/// How long a spare waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    ForGood,
    Until(Instant),
}

impl Shelf {
    /// A turn wants a worktree of this checkout.
    pub(super) fn used(&mut self, ground: &Ground, repo: &Path, now: Instant) {
        self.checkout(ground, repo, now).demand.used(now);
    }

    /// So many are wanted from now on.
    pub(super) fn fix(&mut self, ground: &Ground, repo: &Path, fixed: usize, now: Instant) {
        let checkout = self.checkout(ground, repo, now);
        checkout.fixed = checkout.fixed.max(fixed);
    }

    /// None are wanted any more but for their use.
    pub(super) fn unfix(&mut self) {
        self.era += 1;
        self.checkouts.iter_mut().for_each(|checkout| checkout.fixed = 0);
    }

    fn checkout(&mut self, ground: &Ground, repo: &Path, now: Instant) -> &mut Checkout {
        let at = match self.checkouts.iter().position(|checkout| checkout.order.own == ground.own) {
            Some(at) => at,
            None => {
                if self.checkouts.len() >= MANY {
                    self.checkouts.retain(|checkout| checkout.coming + checkout.ready.len() + checkout.target(now) > 0);
                }
                let (own, common, repo) = (ground.own.clone(), ground.common.clone(), repo.to_owned());
                self.checkouts.push(Checkout {
                    order: Order { own, common, repo },
                    demand: Demand::default(),
                    fixed: 0,
                    ready: Vec::new(),
                    coming: 0,
                    took: GUESS,
                    failures: 0,
                    failed: None,
                });
                self.checkouts.len() - 1
            }
        };
        &mut self.checkouts[at]
    }

    /// One to try: of this commit if there is such, else one that can be brought there. Those that were made by other
    /// rules are nobody's any more, and given back.
    pub(super) fn pop(&mut self, own: &Path, rules: &Rules, commit: &str) -> Option<Slot> {
        let ready = &mut self.checkouts.iter_mut().find(|checkout| checkout.order.own == own)?.ready;
        ready.extract_if(.., |slot| slot.spare.rules != *rules).for_each(Slot::give_back);
        let at = ready.iter().position(|slot| slot.spare.tree.base == commit).unwrap_or(0);
        (at < ready.len()).then(|| ready.remove(at))
    }

    /// Adds one; who waits with it hears of its end by the receiver.
    pub(super) fn put(&mut self, own: &Path, spare: Spare) -> Result<(u64, oneshot::Receiver<Spare>), Box<Spare>> {
        let Some(checkout) = self.checkouts.iter_mut().find(|checkout| checkout.order.own == own) else {
            return Err(spare.into());
        };
        let (back, given_back) = oneshot::channel();
        self.number += 1;
        checkout.ready.push(Slot { number: self.number, spare, back });
        Ok((self.number, given_back))
    }

    /// Takes one off that nobody took.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<Spare> {
        let ready = self.checkouts.iter_mut().map(|checkout| &mut checkout.ready);
        let (ready, at) =
            { ready }.find_map(|ready| ready.iter().position(|slot| slot.number == number).map(|at| (ready, at)))?;
        Some(ready.remove(at).spare)
    }

    /// One that was on its way has come about, in such a time, or has not.
    pub(super) fn came(&mut self, own: &Path, took: Option<Duration>, now: Instant) {
        let Some(checkout) = self.checkouts.iter_mut().find(|checkout| checkout.order.own == own) else { return };
        checkout.coming = checkout.coming.saturating_sub(1);
        match took {
            Some(took) => (checkout.took, checkout.failures, checkout.failed) = (took, 0, None),
            None => (checkout.failures, checkout.failed) = (checkout.failures + 1, Some(now)),
        }
    }

    /// How long one that did not come about is not tried again.
    pub(super) fn pause(&self, own: &Path) -> Duration {
        match self.checkouts.iter().find(|checkout| checkout.order.own == own) {
            Some(checkout) if checkout.failures < PATIENCE => AGAIN * checkout.failures,
            Some(_) | None => IDLE,
        }
    }

    /// What is to be made now, the most recently used first. Each counts as on its way from here on.
    pub(super) fn wanted(&mut self, most: usize, now: Instant) -> Vec<Order> {
        let mut wanted = Vec::new();
        while self.checkouts.iter().map(|checkout| checkout.coming + checkout.ready.len()).sum::<usize>() < most {
            let lacking = self.checkouts.iter_mut().filter(|checkout| checkout.lacks(now));
            let Some(checkout) = lacking.max_by_key(|checkout| checkout.demand.last()) else { break };
            checkout.coming += 1;
            wanted.push(checkout.order.clone());
        }
        wanted
    }

    pub(super) fn stay(&self, own: &Path, now: Instant) -> Stay {
        match self.checkouts.iter().find(|checkout| checkout.order.own == own) {
            // Those that a burst added go when it is over.
            Some(checkout) if checkout.ready.len() <= checkout.fixed => Stay::ForGood,
            Some(checkout) => Stay::Until(checkout.demand.last().map_or(now, |last| last + IDLE)),
            None => Stay::Until(now),
        }
    }
}

impl Slot {
    /// It is not fit to be used. Who waits with it takes it down.
    pub(super) fn give_back(self) {
        let _nobody_waits_when_all_is_over = self.back.send(self.spare);
    }
}

impl Checkout {
    fn target(&self, now: Instant) -> usize {
        self.demand.wanted(1, self.took, now).max(self.fixed)
    }

    fn lacks(&self, now: Instant) -> bool {
        let left_alone =
            self.failures >= PATIENCE && self.failed.is_some_and(|failed| now.duration_since(failed) < IDLE);
        !left_alone && self.ready.len() + self.coming < self.target(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(commit: &str, rules: &str) -> Spare {
        let tree = Worktree {
            path: "/base/spare".into(),
            cwd: "/base/spare".into(),
            run: "spare".into(),
            repo: "/repo".into(),
            common: "/repo/.git".into(),
            registration: "/repo/.git/worktrees/spare".into(),
            base: commit.into(),
            session: None,
        };
        Spare { tree, rules: blake3::hash(rules.as_bytes()), looks: blake3::hash(b""), standing: Standing::Spare }
    }

    fn ground() -> Ground {
        Ground { common: "/repo/.git".into(), own: "/repo/.git".into(), prefix: String::new(), head: "1".into() }
    }

    #[test]
    fn one_after_the_first_turn_and_more_when_they_come_faster() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        let (own, repo) = (Path::new("/repo/.git"), Path::new("/repo"));
        assert_eq!(shelf.wanted(8, now), []);
        shelf.used(&ground(), repo, now);
        let order = Order { own: own.into(), common: own.into(), repo: repo.into() };
        assert_eq!(shelf.wanted(8, now), std::slice::from_ref(&order));
        assert_eq!(shelf.wanted(8, now), [], "it is on its way");
        shelf.came(own, Some(Duration::from_secs(10)), now);
        let (number, _back) = shelf.put(own, spare("1", "")).ok().unwrap();
        assert_eq!(shelf.wanted(8, now), []);
        (0..8).for_each(|_| shelf.used(&ground(), repo, now));
        assert_eq!(shelf.wanted(8, now), std::slice::from_ref(&order), "nine a minute, ten seconds each");
        shelf.came(own, None, now);
        assert_eq!(shelf.stay(own, now), Stay::Until(now + IDLE));
        assert!(shelf.withdraw(number).is_some() && shelf.withdraw(number).is_none());
        assert_eq!(shelf.wanted(1, now).len(), 1, "no more than may be");
        assert_eq!(shelf.wanted(8, now + IDLE), []);
    }

    #[test]
    fn a_checkout_that_fails_is_left_alone_for_a_while() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        let (own, repo) = (Path::new("/repo/.git"), Path::new("/repo"));
        shelf.fix(&ground(), repo, 1, now);
        for pause in [AGAIN, AGAIN * 2, IDLE] {
            assert_eq!(shelf.wanted(8, now).len(), 1);
            shelf.came(own, None, now);
            assert_eq!(shelf.pause(own), pause);
        }
        assert_eq!(shelf.wanted(8, now), []);
        assert_eq!(shelf.wanted(8, now + IDLE).len(), 1);
    }

    #[test]
    fn as_many_as_were_asked_for_stay_and_no_more_than_that() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        let (own, repo) = (Path::new("/repo/.git"), Path::new("/repo"));
        shelf.fix(&ground(), repo, 1, now);
        let (_, _back) = shelf.put(own, spare("1", "")).ok().unwrap();
        assert_eq!(shelf.stay(own, now), Stay::ForGood);
        shelf.used(&ground(), repo, now);
        let (number, _back) = shelf.put(own, spare("1", "")).ok().unwrap();
        assert_eq!(shelf.stay(own, now), Stay::Until(now + IDLE), "one too many");
        shelf.withdraw(number).unwrap();
        assert_eq!(shelf.stay(own, now), Stay::ForGood);
        shelf.unfix();
        assert_eq!(shelf.stay(own, now), Stay::Until(now + IDLE), "only for its use");
        assert_eq!(shelf.wanted(8, now + IDLE), []);
    }

    #[test]
    fn the_commit_that_is_asked_for_comes_first_and_other_rules_never() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        let (own, rules) = (Path::new("/repo/.git"), blake3::hash(b"rules"));
        shelf.fix(&ground(), Path::new("/repo"), 3, now);
        let mut put = |commit, rules| shelf.put(own, spare(commit, rules)).ok().unwrap().1;
        let (mut old, mut other, mut new) = (put("old", "rules"), put("new", "other rules"), put("new", "rules"));
        let mut next = || shelf.pop(own, &rules, "new").map(|slot| slot.spare.tree.base);
        assert_eq!([next(), next(), next()], [Some("new".into()), Some("old".into()), None]);
        assert!(shelf.pop(Path::new("/other/.git"), &rules, "new").is_none());
        assert!(other.try_recv().is_ok(), "given back");
        assert!(old.try_recv().is_err() && new.try_recv().is_err(), "taken");
    }
}
