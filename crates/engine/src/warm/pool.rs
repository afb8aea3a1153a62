//! The lines there are: ready ones by what they were started as, and those that hold a session.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::event::SessionId;
use trunkline_core::live::Protocol;
use trunkline_core::secret::Secrets;
use trunkline_process::Keepers;

use super::boot::Wish;
use super::demand::IDLE;
use super::figures::{Figures, Ledger};
use super::marks::Marks;
use super::shelf::{Held, State, Ticket};
use super::{Boot, Stamps, WarmProcess};
use crate::attempt::scratch::Scratch;
use crate::settings::EngineSettings;

/// How long a process is kept for the next turn of its session.
const HELD: Duration = Duration::from_secs(5 * 60);

/// What all lines together may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Processes, busy ones not counted.
    pub lines: usize,
    /// Their memory, in bytes.
    pub bytes: u64,
}

impl Budget {
    /// The memory that is free for programs now, in bytes; nothing if the system does not say.
    #[must_use]
    pub fn free_memory() -> u64 {
        let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    }
}

pub(crate) struct WarmPool {
    /// Not set while nobody wants lines.
    budget: OnceLock<Budget>,
    state: Mutex<State>,
    marks: Marks,
    pub(crate) ledger: Ledger,
    /// One comes up at a time: it fills a core while it does.
    turnstile: Semaphore,
    closing: CancellationToken,
    keepers: Keepers,
    tracker: TaskTracker,
    secrets: Secrets,
    state_folder: PathBuf,
    linger: Duration,
}

/// A line for a turn.
pub(crate) struct Taken {
    pub(crate) kept: WarmProcess,
    /// It was never spoken to: a session to go on with must be named to it.
    pub(crate) fresh: bool,
}

impl WarmPool {
    pub(crate) fn new(settings: &EngineSettings, keepers: Keepers, tracker: TaskTracker) -> Self {
        Self {
            marks: Marks::new(&settings.state),
            state_folder: settings.state.clone(),
            secrets: settings.secrets.clone(),
            linger: settings.linger,
            keepers,
            tracker,
            budget: OnceLock::new(),
            state: Mutex::default(),
            ledger: Ledger::default(),
            turnstile: Semaphore::new(1),
            closing: CancellationToken::new(),
        }
    }

    /// From now on lines are kept, within these bounds.
    pub(crate) fn open(&self, budget: Budget) {
        let _it_was_opened_before = self.budget.set(budget);
    }

    /// Whether warm processes are kept at all.
    pub(crate) fn is_open(&self) -> bool {
        self.budget.get().is_some_and(|budget| budget.lines > 0) && !self.closing.is_cancelled()
    }

    /// Ends all lines; there will be no others.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.clear();
    }

    /// Ends the lines there are.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.shelves.clear();
        state.held.clear();
    }

    /// A turn of a session begins: whether the process that holds it, should there be one, knows all that was said in it.
    pub(crate) fn begin_in(&self, provider: &str, session: &SessionId) -> bool {
        self.marks.lift(provider, session)
    }

    /// A line that fits this turn, if there is one. A session's own process that does not fit is ended first.
    pub(crate) async fn take(&self, boot: &Arc<Boot>, wish: Wish, session: Option<&SessionId>) -> Option<Taken> {
        if !self.is_open() {
            return None;
        }
        let stamps = stamps(boot);
        if let Some(session) = session
            && let Some(kept) = self.held(boot, &stamps, session).await
        {
            self.ledger.note(&boot.provider, |figures| figures.resumed += 1);
            return Some(Taken { kept, fresh: false });
        }
        // Others go on with a session only when they are started for it.
        if session.is_some() && boot.protocol != Protocol::AppServer {
            return None;
        }
        self.state().shelf(boot, wish).demand.used(Instant::now());
        loop {
            let ticket = self.state().pop(boot, &stamps);
            let Some(ticket) = ticket else { break };
            if let Some(kept) = ticket.redeem().await {
                self.ledger.note(&boot.provider, |figures| figures.hits += 1);
                return Some(Taken { kept, fresh: true });
            }
        }
        self.ledger.note(&boot.provider, |figures| figures.misses += 1);
        None
    }

    async fn held(&self, boot: &Boot, stamps: &Stamps, session: &SessionId) -> Option<WarmProcess> {
        let ticket = self.state().release(&boot.provider, session)?;
        let kept = ticket.redeem().await?;
        if *kept.boot == *boot && kept.stamps == *stamps {
            return Some(kept);
        }
        kept.end(self.linger).await;
        None
    }

    /// Ends the process that holds a session, if one does: two with one session would each go on in their own way.
    pub(crate) async fn part_from(&self, provider: &str, session: &SessionId) {
        let ticket = self.state().release(provider, session);
        if let Some(ticket) = ticket
            && let Some(kept) = ticket.redeem().await
        {
            kept.end(self.linger).await;
        }
    }

    /// How the lines of a provider are doing; none where there never was anything to do.
    pub(crate) fn all_figures(&self) -> BTreeMap<String, Figures> {
        let providers = self.ledger.providers();
        providers.into_iter().filter_map(|name| self.figures(&name).map(|figures| (name, figures))).collect()
    }

    pub(crate) fn figures(&self, provider: &str) -> Option<Figures> {
        let mut figures = self.ledger.of(provider)?;
        let state = self.state();
        let (ready, held) = state.of(provider);
        figures.ready = ready.len();
        figures.held = held.len();
        figures.resident_mib = ready.into_iter().chain(held).map(|ticket| ticket.resident).sum::<u64>() >> 20;
        Some(figures)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmPool {
    /// A kind of line is wanted from now on, whether it is used or not.
    pub(crate) fn want(self: &Arc<Self>, boot: &Arc<Boot>, wish: Wish) {
        if self.is_open() {
            self.state().shelf(boot, wish);
            self.refill();
        }
    }

    /// Starts what is wanted and not there, beside whatever else goes on.
    pub(crate) fn refill(self: &Arc<Self>) {
        if !self.is_open() {
            return;
        }
        let Some(budget) = self.budget.get() else { return };
        let estimate = |provider: &str| self.ledger.of(provider).and_then(|known| known.mean_boot_ms);
        let wanted = self.state().wanted(*budget, Instant::now(), |provider| {
            estimate(provider).map_or(Duration::from_secs(5), Duration::from_millis)
        });
        for boot in wanted {
            let pool = Arc::clone(self);
            self.tracker.spawn(async move { pool.add(boot).await });
        }
    }

    async fn add(self: Arc<Self>, boot: Arc<Boot>) {
        let closing = self.closing.clone();
        let id = format!("line-{}", uuid::Uuid::now_v7());
        let coming = async {
            let _turn = self.turnstile.acquire().await;
            let began = Instant::now();
            match self.boot(&boot, &id).await {
                // The first start of a CLI may bring its settings up to date; the second finds them so.
                Ok(stale) if stale.stamps != stamps(&boot) => {
                    stale.end(self.linger).await;
                    let began = Instant::now();
                    (self.boot(&boot, &id).await, began.elapsed())
                }
                kept => (kept, began.elapsed()),
            }
        };
        let Some((kept, took)) = closing.run_until_cancelled(coming).await else {
            self.state().came(&boot, false);
            return;
        };
        let provider = boot.provider.as_str();
        self.state().came(&boot, kept.is_ok());
        match kept {
            Ok(kept) => {
                tracing::debug!(provider, pid = kept.running.pid(), ?took, "a line is ready");
                self.ledger.booted(provider, took);
                self.shelve(kept).await;
            }
            Err(why) => {
                let why = self.secrets.mask(&why);
                tracing::info!(provider, "no line could be made ready: {why}");
                self.ledger.note(provider, |figures| {
                    figures.failed_boots += 1;
                    figures.error = Some(why);
                });
            }
        }
    }

    async fn boot(&self, boot: &Arc<Boot>, id: &str) -> Result<WarmProcess, String> {
        let (stamps, scratch) = (stamps(boot), Scratch::new(&self.state_folder, id));
        WarmProcess::boot(Arc::clone(boot), stamps, id, scratch, &self.keepers).await
    }

    /// Puts a line where the next turn of its kind finds it, and waits with it.
    async fn shelve(self: &Arc<Self>, kept: WarmProcess) {
        let (ticket, asked) = Ticket::new(&kept);
        let (id, boot) = (ticket.id, Arc::clone(&kept.boot));
        let patience = match self.state().put(&boot, ticket) {
            Some(Wish::Fixed(_)) => None,
            // Dropped meanwhile: the line notices that nobody can ask for it.
            Some(Wish::ByUse) | None => Some(IDLE),
        };
        kept.wait(asked, patience, self.linger).await;
        self.state().forget(id);
    }

    /// Keeps a process for the next turn of its session.
    pub(crate) fn hold(self: &Arc<Self>, kept: WarmProcess, session: SessionId) {
        let (ticket, asked) = Ticket::new(&kept);
        let id = ticket.id;
        if let Some(budget) = self.budget.get().filter(|_| self.is_open()) {
            let provider = kept.boot.provider.clone();
            match self.marks.set(&provider, &session) {
                Ok(()) => self.state().hold(*budget, Held { session, provider, ticket }),
                Err(error) => tracing::warn!(%error, "no process can be kept for its session"),
            }
        }
        let pool = Arc::clone(self);
        self.tracker.spawn(async move {
            kept.wait(asked, Some(HELD), pool.linger).await;
            if let Some(held) = pool.state().forget(id) {
                pool.marks.lift(&held.provider, &held.session);
            }
        });
    }
}

/// The files a process like this reads, as they are now.
fn stamps(boot: &Boot) -> Stamps {
    let home = boot.spec.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| Path::new(home));
    Stamps::now(&boot.spec.program, &boot.reads, &boot.spec.cwd, home)
}

impl Ticket {
    fn new(kept: &WarmProcess) -> (Self, oneshot::Receiver<oneshot::Sender<WarmProcess>>) {
        let (ask, asked) = oneshot::channel();
        let stamps = kept.stamps.clone();
        (
            Self { id: kept.running.keeper(), ask, stamps, resident: kept.running.resident(), since: Instant::now() },
            asked,
        )
    }

    /// The line, unless it has ended.
    async fn redeem(self) -> Option<WarmProcess> {
        let (taker, kept) = oneshot::channel();
        self.ask.send(taker).ok()?;
        kept.await.ok()
    }
}
