//! Inventory of spare worktrees: which ones are ready, how many are needed, and for how long. Pure: the caller passes
//! the time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::folder::Worktree;
use super::ledger::WorktreeState;
use super::repository_state::{CheckoutRules, RepositoryState};
use crate::warm::{IDLE_TIMEOUT, UsageHistory};

/// Assumed time to create a spare worktree before one was measured.
const INITIAL_CREATION_TIME: Duration = Duration::from_secs(1);

/// Number of failures after which no spare of a checkout is created for a while.
const MAX_FAILURES: u32 = 3;

/// Pause after the first failure. It grows with each further one.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Number of tracked checkouts above which unused ones are evicted.
const MAX_CHECKOUTS: usize = 64;

/// Spare worktrees of all checkouts.
#[derive(Default)]
pub(super) struct SpareInventory {
    checkouts: Vec<CheckoutSpares>,
    /// Number of the last spare.
    number: u64,
    /// Incremented when all requested counts are cleared.
    pub(super) generation: u64,
}

/// Spare worktrees of one checkout.
struct CheckoutSpares {
    request: SpareRequest,
    usage: UsageHistory,
    /// Number that is kept whether the checkout is used or not.
    requested: usize,
    ready: Vec<ReadySpare>,
    /// Number that is being created.
    pending: usize,
    /// Time that the last one took to create.
    took: Duration,
    /// Failures since the last success.
    failures: u32,
    last_failure: Option<Instant>,
}

/// A worktree without a run.
pub(super) struct SpareWorktree {
    /// Has an id of its own in place of a run id.
    pub(super) tree: Worktree,
    pub(super) rules: CheckoutRules,
    /// Fingerprint from when it became ready.
    pub(super) fingerprint: blake3::Hash,
    /// State that the ledger has.
    pub(super) state: WorktreeState,
}

/// A spare worktree that a turn can take. Its task learns through `back` what happened: dropped if the spare was used,
/// resolved with the spare if it was not.
pub(super) struct ReadySpare {
    number: u64,
    pub(super) spare: SpareWorktree,
    back: oneshot::Sender<SpareWorktree>,
}

/// Request to create a spare worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpareRequest {
    /// Git directory of the checkout, which identifies it here.
    pub(super) own: PathBuf,
    pub(super) common: PathBuf,
    /// Folder in which git is called.
    pub(super) repo: PathBuf,
}

/// Time that a spare worktree is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpareLifetime {
    Unlimited,
    Until(Instant),
}

impl SpareInventory {
    /// Records that a turn needs a worktree of this checkout.
    pub(super) fn used(&mut self, repository: &RepositoryState, repo: &Path, now: Instant) {
        self.checkout(repository, repo, now).usage.used(now);
    }

    /// Keeps at least `number` spares of a checkout from now on.
    pub(super) fn request(&mut self, repository: &RepositoryState, repo: &Path, number: usize, now: Instant) {
        let checkout = self.checkout(repository, repo, now);
        checkout.requested = checkout.requested.max(number);
    }

    /// Clears all requested numbers. Use alone decides how many spares are kept.
    pub(super) fn clear_requested(&mut self) {
        self.generation += 1;
        self.checkouts.iter_mut().for_each(|checkout| checkout.requested = 0);
    }

    fn checkout(&mut self, repository: &RepositoryState, repo: &Path, now: Instant) -> &mut CheckoutSpares {
        let at = match self.checkouts.iter().position(|checkout| checkout.request.own == repository.own) {
            Some(at) => at,
            None => {
                if self.checkouts.len() >= MAX_CHECKOUTS {
                    self.checkouts
                        .retain(|checkout| checkout.pending + checkout.ready.len() + checkout.target(now) > 0);
                }
                let (own, common, repo) = (repository.own.clone(), repository.common.clone(), repo.to_owned());
                self.checkouts.push(CheckoutSpares {
                    request: SpareRequest { own, common, repo },
                    usage: UsageHistory::default(),
                    requested: 0,
                    ready: Vec::new(),
                    pending: 0,
                    took: INITIAL_CREATION_TIME,
                    failures: 0,
                    last_failure: None,
                });
                self.checkouts.len() - 1
            }
        };
        &mut self.checkouts[at]
    }

    /// Takes a spare: of this commit if there is one, otherwise one that can be updated to it. Spares that were created
    /// under other rules fit no turn any more and are given back.
    pub(super) fn pop(&mut self, own: &Path, rules: &CheckoutRules, commit: &str) -> Option<ReadySpare> {
        let ready = &mut self.checkouts.iter_mut().find(|checkout| checkout.request.own == own)?.ready;
        ready.extract_if(.., |slot| slot.spare.rules != *rules).for_each(ReadySpare::give_back);
        let at = ready.iter().position(|slot| slot.spare.tree.base == commit).unwrap_or(0);
        (at < ready.len()).then(|| ready.remove(at))
    }

    /// Adds a spare. The receiver tells its task what happened to it.
    pub(super) fn put(
        &mut self,
        own: &Path,
        spare: SpareWorktree,
    ) -> Result<(u64, oneshot::Receiver<SpareWorktree>), Box<SpareWorktree>> {
        let Some(checkout) = self.checkouts.iter_mut().find(|checkout| checkout.request.own == own) else {
            return Err(spare.into());
        };
        let (back, given_back) = oneshot::channel();
        self.number += 1;
        checkout.ready.push(ReadySpare { number: self.number, spare, back });
        Ok((self.number, given_back))
    }

    /// Removes a spare that no turn has taken.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<SpareWorktree> {
        let ready = self.checkouts.iter_mut().map(|checkout| &mut checkout.ready);
        let (ready, at) =
            { ready }.find_map(|ready| ready.iter().position(|slot| slot.number == number).map(|at| (ready, at)))?;
        Some(ready.remove(at).spare)
    }

    /// Records that a pending spare was created within `took`, or that it failed.
    pub(super) fn created(&mut self, own: &Path, took: Option<Duration>, now: Instant) {
        let Some(checkout) = self.checkouts.iter_mut().find(|checkout| checkout.request.own == own) else { return };
        checkout.pending = checkout.pending.saturating_sub(1);
        match took {
            Some(took) => (checkout.took, checkout.failures, checkout.last_failure) = (took, 0, None),
            None => (checkout.failures, checkout.last_failure) = (checkout.failures + 1, Some(now)),
        }
    }

    /// Pause after a failure to create a spare.
    pub(super) fn pause(&self, own: &Path) -> Duration {
        match self.checkouts.iter().find(|checkout| checkout.request.own == own) {
            Some(checkout) if checkout.failures < MAX_FAILURES => RETRY_PAUSE * checkout.failures,
            Some(_) | None => IDLE_TIMEOUT,
        }
    }

    /// Returns the spares to create now, of the most recently used checkouts first. They count as pending from here on.
    pub(super) fn missing(&mut self, max: usize, now: Instant) -> Vec<SpareRequest> {
        let mut missing = Vec::new();
        while self.checkouts.iter().map(|checkout| checkout.pending + checkout.ready.len()).sum::<usize>() < max {
            let lacking = self.checkouts.iter_mut().filter(|checkout| checkout.lacks(now));
            let Some(checkout) = lacking.max_by_key(|checkout| checkout.usage.last()) else { break };
            checkout.pending += 1;
            missing.push(checkout.request.clone());
        }
        missing
    }

    pub(super) fn lifetime(&self, own: &Path, now: Instant) -> SpareLifetime {
        match self.checkouts.iter().find(|checkout| checkout.request.own == own) {
            // Spares that a burst added are removed when it is over.
            Some(checkout) if checkout.ready.len() <= checkout.requested => SpareLifetime::Unlimited,
            Some(checkout) => SpareLifetime::Until(checkout.usage.last().map_or(now, |last| last + IDLE_TIMEOUT)),
            None => SpareLifetime::Until(now),
        }
    }
}

impl ReadySpare {
    /// Gives back a spare that cannot be used. Its task removes it.
    pub(super) fn give_back(self) {
        // The task may have ended at shutdown.
        let _ = self.back.send(self.spare);
    }
}

impl CheckoutSpares {
    fn target(&self, now: Instant) -> usize {
        self.usage.target_count(1, self.took, now).max(self.requested)
    }

    fn lacks(&self, now: Instant) -> bool {
        let paused = self.failures >= MAX_FAILURES
            && self.last_failure.is_some_and(|failed| now.duration_since(failed) < IDLE_TIMEOUT);
        !paused && self.ready.len() + self.pending < self.target(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(commit: &str, rules: &str) -> SpareWorktree {
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
        SpareWorktree {
            tree,
            rules: blake3::hash(rules.as_bytes()),
            fingerprint: blake3::hash(b""),
            state: WorktreeState::Spare,
        }
    }

    fn repository() -> RepositoryState {
        RepositoryState {
            common: "/repo/.git".into(),
            own: "/repo/.git".into(),
            prefix: String::new(),
            head: "1".into(),
        }
    }

    #[test]
    fn keeps_one_spare_after_the_first_turn_and_more_when_turns_are_frequent() {
        let (mut inventory, now) = (SpareInventory::default(), Instant::now());
        let (own, repo) = (Path::new("/repo/.git"), Path::new("/repo"));
        assert_eq!(inventory.missing(8, now), []);
        inventory.used(&repository(), repo, now);
        let request = SpareRequest { own: own.into(), common: own.into(), repo: repo.into() };
        assert_eq!(inventory.missing(8, now), std::slice::from_ref(&request));
        assert_eq!(inventory.missing(8, now), [], "one is pending");
        inventory.created(own, Some(Duration::from_secs(10)), now);
        let (number, _back) = inventory.put(own, spare("1", "")).ok().unwrap();
        assert_eq!(inventory.missing(8, now), []);
        (0..8).for_each(|_| inventory.used(&repository(), repo, now));
        assert_eq!(
            inventory.missing(8, now),
            std::slice::from_ref(&request),
            "nine turns a minute, ten seconds for each spare"
        );
        inventory.created(own, None, now);
        assert_eq!(inventory.lifetime(own, now), SpareLifetime::Until(now + IDLE_TIMEOUT));
        assert!(inventory.withdraw(number).is_some() && inventory.withdraw(number).is_none());
        assert_eq!(inventory.missing(1, now).len(), 1, "no more than the maximum");
        assert_eq!(inventory.missing(8, now + IDLE_TIMEOUT), []);
    }

    #[test]
    fn pauses_a_checkout_when_creation_keeps_failing() {
        let (mut inventory, now) = (SpareInventory::default(), Instant::now());
        let (own, repo) = (Path::new("/repo/.git"), Path::new("/repo"));
        inventory.request(&repository(), repo, 1, now);
        for pause in [RETRY_PAUSE, RETRY_PAUSE * 2, IDLE_TIMEOUT] {
            assert_eq!(inventory.missing(8, now).len(), 1);
            inventory.created(own, None, now);
            assert_eq!(inventory.pause(own), pause);
        }
        assert_eq!(inventory.missing(8, now), []);
        assert_eq!(inventory.missing(8, now + IDLE_TIMEOUT).len(), 1);
    }

    #[test]
    fn requested_spares_are_kept_and_others_expire() {
        let (mut inventory, now) = (SpareInventory::default(), Instant::now());
        let (own, repo) = (Path::new("/repo/.git"), Path::new("/repo"));
        inventory.request(&repository(), repo, 1, now);
        let (_, _back) = inventory.put(own, spare("1", "")).ok().unwrap();
        assert_eq!(inventory.lifetime(own, now), SpareLifetime::Unlimited);
        inventory.used(&repository(), repo, now);
        let (number, _back) = inventory.put(own, spare("1", "")).ok().unwrap();
        assert_eq!(inventory.lifetime(own, now), SpareLifetime::Until(now + IDLE_TIMEOUT), "one more than requested");
        inventory.withdraw(number).unwrap();
        assert_eq!(inventory.lifetime(own, now), SpareLifetime::Unlimited);
        inventory.clear_requested();
        assert_eq!(inventory.lifetime(own, now), SpareLifetime::Until(now + IDLE_TIMEOUT), "kept for its use only");
        assert_eq!(inventory.missing(8, now + IDLE_TIMEOUT), []);
    }

    #[test]
    fn takes_a_spare_of_the_requested_commit_first_and_never_one_with_other_rules() {
        let (mut inventory, now) = (SpareInventory::default(), Instant::now());
        let (own, rules) = (Path::new("/repo/.git"), blake3::hash(b"rules"));
        inventory.request(&repository(), Path::new("/repo"), 3, now);
        let mut put = |commit, rules| inventory.put(own, spare(commit, rules)).ok().unwrap().1;
        let (mut old, mut other, mut new) = (put("old", "rules"), put("new", "other rules"), put("new", "rules"));
        let mut next = || inventory.pop(own, &rules, "new").map(|slot| slot.spare.tree.base);
        assert_eq!([next(), next(), next()], [Some("new".into()), Some("old".into()), None]);
        assert!(inventory.pop(Path::new("/other/.git"), &rules, "new").is_none());
        assert!(other.try_recv().is_ok(), "returned to its task");
        assert!(old.try_recv().is_err() && new.try_recv().is_err(), "taken");
    }
}
