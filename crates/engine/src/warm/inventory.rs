//! Inventory of warm processes: which ones are ready or held, which ones are missing, and which ones are evicted.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::event::SessionId;

use super::boot::WarmTarget;
use super::usage::{IDLE_TIMEOUT, UsageHistory};
use super::{BootSpec, FileStamps, WarmBudget, WarmProcess};

/// Memory that is assumed for a process before one was measured.
const ASSUMED_RESIDENT_BYTES: u64 = 200 << 20;

/// Number of failed starts after which no process of a kind is started for a while.
const MAX_FAILURES: u32 = 3;

/// Number of tracked kinds above which unused ones are evicted.
const MAX_GROUPS: usize = 64;

/// Warm processes of all kinds.
#[derive(Default)]
pub(super) struct WarmInventory {
    pub(super) groups: Vec<WarmGroup>,
    pub(super) held: Vec<HeldProcess>,
}

/// Ready processes of one kind, and the number to keep.
pub(super) struct WarmGroup {
    boot: Arc<BootSpec>,
    target: WarmTarget,
    pub(super) usage: UsageHistory,
    ready: Vec<WarmHandle>,
    /// Number of processes that are starting.
    pending: usize,
    /// Failed starts since the last success.
    failures: u32,
    last_failure: Option<Instant>,
}

/// A process that holds a session.
pub(super) struct HeldProcess {
    pub(super) session: SessionId,
    pub(super) provider: String,
    pub(super) handle: WarmHandle,
}

/// Handle of a waiting process. Dropping it ends the process.
pub(super) struct WarmHandle {
    pub(super) id: u32,
    pub(super) ask: oneshot::Sender<oneshot::Sender<WarmProcess>>,
    pub(super) stamps: FileStamps,
    /// Memory of the process, in bytes.
    pub(super) resident: u64,
    pub(super) since: Instant,
}

impl WarmInventory {
    /// Returns the group of a kind, and creates it if there is none.
    pub(super) fn group(&mut self, boot: &Arc<BootSpec>, target: WarmTarget) -> &mut WarmGroup {
        let at = match self.groups.iter().position(|group| group.boot == *boot) {
            Some(at) => at,
            None => {
                if self.groups.len() >= MAX_GROUPS {
                    let now = Instant::now();
                    self.groups.retain(|group| group.pending > 0 || group.target_count(Duration::ZERO, now) > 0);
                }
                let (ready, usage) = (Vec::new(), UsageHistory::default());
                self.groups.push(WarmGroup {
                    boot: Arc::clone(boot),
                    target,
                    usage,
                    ready,
                    pending: 0,
                    failures: 0,
                    last_failure: None,
                });
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[at];
        group.target = target;
        group
    }

    /// Takes a ready process of this kind. Stale ones are dropped, which ends them.
    pub(super) fn pop(&mut self, boot: &Arc<BootSpec>, stamps: &FileStamps) -> Option<WarmHandle> {
        let group = self.groups.iter_mut().find(|group| group.boot == *boot)?;
        group.ready.retain(|handle| handle.stamps == *stamps);
        group.ready.pop()
    }

    /// Adds a ready process, unless its group was removed.
    pub(super) fn put(&mut self, boot: &Arc<BootSpec>, handle: WarmHandle) -> Option<WarmTarget> {
        let group = self.groups.iter_mut().find(|group| group.boot == *boot)?;
        group.ready.push(handle);
        Some(group.target)
    }

    /// Records that a pending process has become ready, or has failed to.
    pub(super) fn booted(&mut self, boot: &Arc<BootSpec>, succeeded: bool) {
        let Some(group) = self.groups.iter_mut().find(|group| group.boot == *boot) else { return };
        group.pending = group.pending.saturating_sub(1);
        (group.failures, group.last_failure) =
            if succeeded { (0, None) } else { (group.failures + 1, Some(Instant::now())) };
    }

    /// Removes and returns the process that holds a session.
    pub(super) fn release(&mut self, provider: &str, session: &SessionId) -> Option<WarmHandle> {
        let at = self.held.iter().position(|held| held.provider == provider && held.session == *session)?;
        Some(self.held.remove(at).handle)
    }

    /// Adds a process that holds a session. Less recently used processes are evicted if the budget requires it.
    pub(super) fn hold(&mut self, budget: WarmBudget, held: HeldProcess) {
        // An older process of the same session ends.
        drop(self.release(&held.provider, &held.session));
        let (resident, now) = (held.handle.resident, held.handle.since);
        if self.make_room(budget, resident, now) {
            self.held.push(held);
        }
    }

    /// Removes a process. Returns its entry if it held a session.
    pub(super) fn forget(&mut self, id: u32) -> Option<HeldProcess> {
        self.groups.iter_mut().for_each(|group| group.ready.retain(|handle| handle.id != id));
        let at = self.held.iter().position(|held| held.handle.id == id)?;
        Some(self.held.remove(at))
    }

    /// Returns the processes to start now. They count as pending from here on. `boot_time` estimates the start time of
    /// a provider's process.
    pub(super) fn missing(
        &mut self,
        budget: WarmBudget,
        now: Instant,
        boot_time: impl Fn(&str) -> Duration,
    ) -> Vec<Arc<BootSpec>> {
        let mut missing = Vec::new();
        loop {
            let lacking =
                self.groups.iter().enumerate().filter(|(_, group)| group.lacks(boot_time(&group.boot.provider), now));
            let Some((at, _)) = lacking.max_by_key(|(_, group)| group.last()) else { return missing };
            let (cost, last) = (self.cost(&self.groups[at].boot.provider), self.groups[at].last().unwrap_or(now));
            if !self.make_room(budget, cost, last) {
                return missing;
            }
            let group = &mut self.groups[at];
            group.pending += 1;
            missing.push(Arc::clone(&group.boot));
        }
    }

    /// Returns the processes of a provider: ready ones and held ones.
    pub(super) fn of(&self, provider: &str) -> (Vec<&WarmHandle>, Vec<&WarmHandle>) {
        let groups = self.groups.iter().filter(|group| group.boot.provider == provider);
        let held = self.held.iter().filter(|held| held.provider == provider);
        (groups.flat_map(|group| &group.ready).collect(), held.map(|held| &held.handle).collect())
    }

    /// Estimates the memory of another process of a provider from the present ones.
    fn cost(&self, provider: &str) -> u64 {
        let (ready, held) = self.of(provider);
        ready.into_iter().chain(held).map(|handle| handle.resident).max().unwrap_or(ASSUMED_RESIDENT_BYTES)
    }

    /// Evicts processes that were last used before `before` until one more fits. Returns false if it does not fit.
    fn make_room(&mut self, budget: WarmBudget, cost: u64, before: Instant) -> bool {
        loop {
            let pending: u64 = self.groups.iter().map(|group| group.pending as u64 * ASSUMED_RESIDENT_BYTES).sum();
            let ready = self.groups.iter().flat_map(|group| &group.ready);
            let all: Vec<u64> =
                ready.chain(self.held.iter().map(|held| &held.handle)).map(|handle| handle.resident).collect();
            let processes = all.len() + self.groups.iter().map(|group| group.pending).sum::<usize>();
            if processes < budget.lines && all.iter().sum::<u64>() + pending + cost <= budget.bytes {
                return true;
            }
            let held = self.held.iter().map(|held| (held.handle.since, held.handle.id));
            let by_use = self.groups.iter().filter(|group| group.target == WarmTarget::ByUse);
            let ready = by_use
                .flat_map(|group| group.ready.iter().map(|handle| (group.last().unwrap_or(handle.since), handle.id)));
            let Some((since, id)) = held.chain(ready).min().filter(|(since, _)| *since < before) else { return false };
            tracing::debug!(idle = ?before.duration_since(since), "evicting a warm process");
            self.forget(id);
        }
    }
}

impl WarmGroup {
    fn last(&self) -> Option<Instant> {
        self.usage.last()
    }

    /// Number of processes that should be ready.
    fn target_count(&self, boot_time: Duration, now: Instant) -> usize {
        match self.target {
            WarmTarget::Fixed(number) => number,
            WarmTarget::ByUse => self.usage.target_count(self.boot.uses_first, boot_time, now),
        }
    }

    fn lacks(&self, boot_time: Duration, now: Instant) -> bool {
        let paused = self.failures >= MAX_FAILURES
            && self.last_failure.is_some_and(|failed| now.duration_since(failed) < IDLE_TIMEOUT);
        !paused && self.ready.len() + self.pending < self.target_count(boot_time, now)
    }
}
