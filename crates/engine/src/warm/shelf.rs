//! The book of lines: which there are, which are wanted, and who makes room for whom. Pure but for the clock it is told.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::event::SessionId;

use super::boot::Wish;
use super::demand::{Demand, IDLE};
use super::pool::Budget;
use super::{Boot, Stamps, WarmProcess};

/// What a line costs before one was measured.
const GUESS: u64 = 200 << 20;

/// How often a kind may fail to come up before it is left alone for a while.
const PATIENCE: u32 = 3;

/// Kinds that are remembered before those that nobody uses are let go.
const MANY: usize = 64;

#[derive(Default)]
pub(super) struct State {
    pub(super) shelves: Vec<Shelf>,
    pub(super) held: Vec<Held>,
}

/// Lines of one kind.
pub(super) struct Shelf {
    boot: Arc<Boot>,
    wish: Wish,
    pub(super) demand: Demand,
    ready: Vec<Ticket>,
    coming: usize,
    /// How often none came up, since one did, and when the last time was.
    failures: u32,
    failed: Option<Instant>,
}

/// A process that holds a session.
pub(super) struct Held {
    pub(super) session: SessionId,
    pub(super) provider: String,
    pub(super) ticket: Ticket,
}

/// The right to one line that waits. Dropping it ends the line.
pub(super) struct Ticket {
    pub(super) id: u32,
    pub(super) ask: oneshot::Sender<oneshot::Sender<WarmProcess>>,
    pub(super) stamps: Stamps,
    pub(super) resident: u64,
    pub(super) since: Instant,
}

impl State {
    /// The shelf of a kind, made when there is none.
    pub(super) fn shelf(&mut self, boot: &Arc<Boot>, wish: Wish) -> &mut Shelf {
        let at = match self.shelves.iter().position(|shelf| shelf.boot == *boot) {
            Some(at) => at,
            None => {
                if self.shelves.len() >= MANY {
                    let now = Instant::now();
                    self.shelves.retain(|shelf| shelf.coming > 0 || shelf.target(Duration::ZERO, now) > 0);
                }
                let (ready, demand) = (Vec::new(), Demand::default());
                self.shelves.push(Shelf {
                    boot: Arc::clone(boot),
                    wish,
                    demand,
                    ready,
                    coming: 0,
                    failures: 0,
                    failed: None,
                });
                self.shelves.len() - 1
            }
        };
        let shelf = &mut self.shelves[at];
        shelf.wish = wish;
        shelf
    }

    /// A line of this kind to ask for. One that is stale ends, and the next is looked at.
    pub(super) fn pop(&mut self, boot: &Arc<Boot>, stamps: &Stamps) -> Option<Ticket> {
        let shelf = self.shelves.iter_mut().find(|shelf| shelf.boot == *boot)?;
        shelf.ready.retain(|ticket| ticket.stamps == *stamps);
        shelf.ready.pop()
    }

    /// Adds a line, unless its shelf is gone.
    pub(super) fn put(&mut self, boot: &Arc<Boot>, ticket: Ticket) -> Option<Wish> {
        let shelf = self.shelves.iter_mut().find(|shelf| shelf.boot == *boot)?;
        shelf.ready.push(ticket);
        Some(shelf.wish)
    }

    /// One that was on its way has come up, or has not.
    pub(super) fn came(&mut self, boot: &Arc<Boot>, well: bool) {
        let Some(shelf) = self.shelves.iter_mut().find(|shelf| shelf.boot == *boot) else { return };
        shelf.coming = shelf.coming.saturating_sub(1);
        (shelf.failures, shelf.failed) = if well { (0, None) } else { (shelf.failures + 1, Some(Instant::now())) };
    }

    /// What holds a session, to be asked for it.
    pub(super) fn release(&mut self, provider: &str, session: &SessionId) -> Option<Ticket> {
        let at = self.held.iter().position(|held| held.provider == provider && held.session == *session)?;
        Some(self.held.remove(at).ticket)
    }

    /// Keeps what holds a session; those held longest make room.
    pub(super) fn hold(&mut self, budget: Budget, held: Held) {
        let _of_the_same_session = self.release(&held.provider, &held.session);
        let (resident, now) = (held.ticket.resident, held.ticket.since);
        if self.make_room(budget, resident, now) {
            self.held.push(held);
        }
    }

    /// A line is gone; the session that it held, if it did.
    pub(super) fn forget(&mut self, id: u32) -> Option<Held> {
        self.shelves.iter_mut().for_each(|shelf| shelf.ready.retain(|ticket| ticket.id != id));
        let at = self.held.iter().position(|held| held.ticket.id == id)?;
        Some(self.held.remove(at))
    }

    /// What is to be started now. Each counts as on its way from here on.
    pub(super) fn wanted(&mut self, budget: Budget, now: Instant, start: impl Fn(&str) -> Duration) -> Vec<Arc<Boot>> {
        let mut wanted = Vec::new();
        loop {
            let lacking =
                self.shelves.iter().enumerate().filter(|(_, shelf)| shelf.lacks(start(&shelf.boot.provider), now));
            let Some((at, _)) = lacking.max_by_key(|(_, shelf)| shelf.last()) else { return wanted };
            let (cost, last) = (self.cost(&self.shelves[at].boot.provider), self.shelves[at].last().unwrap_or(now));
            if !self.make_room(budget, cost, last) {
                return wanted;
            }
            let shelf = &mut self.shelves[at];
            shelf.coming += 1;
            wanted.push(Arc::clone(&shelf.boot));
        }
    }

    /// The lines of a provider: ready, and held.
    pub(super) fn of(&self, provider: &str) -> (Vec<&Ticket>, Vec<&Ticket>) {
        let shelves = self.shelves.iter().filter(|shelf| shelf.boot.provider == provider);
        let held = self.held.iter().filter(|held| held.provider == provider);
        (shelves.flat_map(|shelf| &shelf.ready).collect(), held.map(|held| &held.ticket).collect())
    }

    /// What another line of a provider will cost, going by those there are.
    fn cost(&self, provider: &str) -> u64 {
        let (ready, held) = self.of(provider);
        ready.into_iter().chain(held).map(|ticket| ticket.resident).max().unwrap_or(GUESS)
    }

    /// Ends what was used less recently than `than`, until one more fits; false if it does not.
    fn make_room(&mut self, budget: Budget, cost: u64, than: Instant) -> bool {
        loop {
            let coming: u64 = self.shelves.iter().map(|shelf| shelf.coming as u64 * GUESS).sum();
            let ready = self.shelves.iter().flat_map(|shelf| &shelf.ready);
            let all: Vec<u64> =
                ready.chain(self.held.iter().map(|held| &held.ticket)).map(|ticket| ticket.resident).collect();
            let lines = all.len() + self.shelves.iter().map(|shelf| shelf.coming).sum::<usize>();
            if lines < budget.lines && all.iter().sum::<u64>() + coming + cost <= budget.bytes {
                return true;
            }
            let held = self.held.iter().map(|held| (held.ticket.since, held.ticket.id));
            let by_use = self.shelves.iter().filter(|shelf| shelf.wish == Wish::ByUse);
            let ready = by_use
                .flat_map(|shelf| shelf.ready.iter().map(|ticket| (shelf.last().unwrap_or(ticket.since), ticket.id)));
            let Some((since, id)) = held.chain(ready).min().filter(|(since, _)| *since < than) else { return false };
            tracing::debug!(idle = ?than.duration_since(since), "a line makes room for another");
            self.forget(id);
        }
    }
}

impl Shelf {
    fn last(&self) -> Option<Instant> {
        self.demand.last()
    }

    /// How many there should be.
    fn target(&self, start: Duration, now: Instant) -> usize {
        match self.wish {
            Wish::Fixed(number) => number,
            Wish::ByUse => self.demand.wanted(self.boot.uses_first, start, now),
        }
    }

    fn lacks(&self, start: Duration, now: Instant) -> bool {
        let left_alone =
            self.failures >= PATIENCE && self.failed.is_some_and(|failed| now.duration_since(failed) < IDLE);
        !left_alone && self.ready.len() + self.coming < self.target(start, now)
    }
}
