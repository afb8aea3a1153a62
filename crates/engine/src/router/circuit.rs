//! A circuit for each provider: one that fails again and again is left alone for a while, then tried once. The rules are
//! pure, time comes in; [`Circuits`] keeps one for each name.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use trunkline_core::failure::Category;

/// When a circuit opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// So many failures …
    pub failures: u32,
    /// … within this time open it …
    pub window: Duration,
    /// … for as long as this.
    pub cooldown: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures: 5, window: Duration::from_secs(60), cooldown: Duration::from_secs(30) }
    }
}

/// A circuit as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CircuitState {
    Closed {
        /// Failures that still count.
        failures: usize,
    },
    Open {
        /// Until one may try.
        for_ms: u64,
    },
    /// Open no longer, but nobody has tried yet or one is trying now.
    HalfOpen,
}

#[derive(Debug, Default)]
struct Circuit {
    /// When it failed, of late.
    failures: VecDeque<Instant>,
    /// Set while it is open or half open.
    open_until: Option<Instant>,
    /// One is trying.
    trial: bool,
}

/// Who may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Free,
    Trial,
    Refused { wait: Duration },
}

impl Circuit {
    fn admission(&self, now: Instant) -> Admission {
        match self.open_until {
            None => Admission::Free,
            Some(until) if now < until => Admission::Refused { wait: until - now },
            // Somebody is trying: a second for whoever comes meanwhile.
            Some(_) if self.trial => Admission::Refused { wait: Duration::from_secs(1) },
            Some(_) => Admission::Trial,
        }
    }

    fn failed(&mut self, now: Instant, breaker: &Breaker) {
        /// Longer than any gateway runs, and short enough to be added to the time.
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        self.failures.retain(|&at| now - at < breaker.window);
        self.failures.push_back(now);
        self.trial = false;
        let enough = self.failures.len() >= breaker.failures as usize;
        let tried_in_vain = self.open_until.is_some();
        if enough || tried_in_vain {
            self.open_until = Some(now + breaker.cooldown.min(LONGEST));
            self.failures.clear();
        }
    }

    fn state(&self, now: Instant) -> CircuitState {
        match self.open_until {
            None => CircuitState::Closed { failures: self.failures.len() },
            Some(until) if now < until => {
                CircuitState::Open { for_ms: u64::try_from((until - now).as_millis()).unwrap_or(u64::MAX) }
            }
            Some(_) => CircuitState::HalfOpen,
        }
    }
}

/// Whether a failure says something about the provider, and not only about what was asked of it.
const fn counts(category: Category) -> bool {
    match category {
        Category::Quota
        | Category::RateLimit
        | Category::Authentication
        | Category::Network
        | Category::Server
        | Category::Timeout
        | Category::Unknown => true,
        Category::Validation | Category::NotFound | Category::Configuration | Category::Cancelled => false,
    }
}

/// Every provider's circuit, by its name.
#[derive(Debug, Default)]
pub(crate) struct Circuits {
    by_name: Mutex<BTreeMap<String, Circuit>>,
}

/// Leave to ask a provider. Its holder says how it went; one that is dropped before says nothing.
#[derive(Debug)]
pub(crate) struct Pass {
    circuits: Arc<Circuits>,
    name: String,
    breaker: Breaker,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ordinary,
    Trial,
    Settled,
}

impl Circuits {
    /// Whether there is a pass to be had, or how long to stay away. Taking it is for who can start at once.
    pub(crate) fn look(&self, name: &str) -> Result<(), Duration> {
        match self.locked().get(name).map(|circuit| circuit.admission(Instant::now())) {
            None | Some(Admission::Free | Admission::Trial) => Ok(()),
            Some(Admission::Refused { wait }) => Err(wait),
        }
    }

    /// A pass, or how long to stay away.
    pub(crate) fn enter(self: &Arc<Self>, name: &str, breaker: Breaker) -> Result<Pass, Duration> {
        let mut circuits = self.locked();
        let circuit = circuits.get_mut(name);
        let kind = match (circuit.as_ref().map(|circuit| circuit.admission(Instant::now())), circuit) {
            (Some(Admission::Refused { wait }), _) => return Err(wait),
            (Some(Admission::Trial), Some(circuit)) => {
                circuit.trial = true;
                Kind::Trial
            }
            (None | Some(Admission::Free | Admission::Trial), _) => Kind::Ordinary,
        };
        Ok(Pass { circuits: Arc::clone(self), name: name.to_owned(), breaker, kind })
    }

    /// Forgets those that nobody has any more.
    pub(crate) fn keep(&self, known: impl Fn(&str) -> bool) {
        self.locked().retain(|name, _| known(name));
    }

    pub(crate) fn state(&self, name: &str) -> CircuitState {
        let circuits = self.locked();
        circuits.get(name).map_or(CircuitState::Closed { failures: 0 }, |circuit| circuit.state(Instant::now()))
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Circuit>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass {
    /// It has answered: whatever failed before is forgotten.
    pub(crate) fn succeeded(&mut self) {
        if self.kind != Kind::Settled {
            self.kind = Kind::Settled;
            self.circuits.locked().remove(&self.name);
        }
    }

    /// It has begun to answer, which may take long: another may try meanwhile. How it ends is still to be seen.
    pub(crate) fn promising(&mut self) {
        if self.kind == Kind::Trial {
            self.kind = Kind::Ordinary;
            if let Some(circuit) = self.circuits.locked().get_mut(&self.name) {
                circuit.trial = false;
            }
        }
    }

    /// Whether this is the one try of a circuit that was open.
    pub(crate) fn is_trial(&self) -> bool {
        self.kind == Kind::Trial
    }

    pub(crate) fn failed(&mut self, category: Category) {
        if !counts(category) {
            return;
        }
        self.kind = Kind::Settled;
        let mut circuits = self.circuits.locked();
        circuits.entry(self.name.clone()).or_default().failed(Instant::now(), &self.breaker);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.kind == Kind::Trial
            && let Some(circuit) = self.circuits.locked().get_mut(&self.name)
        {
            circuit.trial = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKER: Breaker =
        Breaker { failures: 3, window: Duration::from_secs(60), cooldown: Duration::from_secs(30) };

    fn fail(circuits: &Arc<Circuits>) {
        circuits.enter("p", BREAKER).unwrap().failed(Category::Server);
    }

    async fn pass_time(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn case_68_it_opens_and_lets_one_try_and_closes_or_opens_again() {
        let circuits = Arc::new(Circuits::default());
        for failures in 0..3 {
            assert_eq!(circuits.state("p"), CircuitState::Closed { failures });
            fail(&circuits);
        }
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 });
        assert_eq!(circuits.enter("p", BREAKER).unwrap_err(), Duration::from_secs(30));
        circuits.enter("other", BREAKER).unwrap();

        pass_time(30).await;
        assert_eq!(circuits.state("p"), CircuitState::HalfOpen);
        let trials: Vec<_> = (0..1000).map(|_| circuits.enter("p", BREAKER)).filter_map(Result::ok).collect();
        assert_eq!(trials.len(), 1, "one may try, whoever waits");
        trials.into_iter().for_each(|mut trial| trial.failed(Category::Network));
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 }, "one failed trial is enough");

        pass_time(30).await;
        circuits.enter("p", BREAKER).unwrap().succeeded();
        assert_eq!(circuits.state("p"), CircuitState::Closed { failures: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_is_given_up_leaves_its_place_to_the_next() {
        let circuits = Arc::new(Circuits::default());
        (0..3).for_each(|_| fail(&circuits));
        pass_time(30).await;
        drop(circuits.enter("p", BREAKER).unwrap());
        let mut next = circuits.enter("p", BREAKER).unwrap();
        next.failed(Category::Validation);
        drop(next);
        circuits.enter("p", BREAKER).expect("a failure that says nothing about the provider settles nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_begins_to_answer_and_then_fails_has_failed() {
        let circuits = Arc::new(Circuits::default());
        for _ in 0..3 {
            let mut pass = circuits.enter("p", BREAKER).unwrap();
            pass.promising();
            pass.failed(Category::Server);
        }
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 });
        pass_time(30).await;
        let mut trial = circuits.enter("p", BREAKER).unwrap();
        assert!(circuits.look("p").is_err());
        trial.promising();
        circuits.look("p").expect("another may try while the first one answers");
        trial.failed(Category::Server);
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 });
    }

    #[tokio::test(start_paused = true)]
    async fn to_look_is_not_to_try() {
        let circuits = Arc::new(Circuits::default());
        (0..3).for_each(|_| fail(&circuits));
        assert_eq!(circuits.look("p"), Err(Duration::from_secs(30)));
        pass_time(30).await;
        circuits.look("p").unwrap();
        circuits.look("p").unwrap();
        let _trial = circuits.enter("p", BREAKER).unwrap();
        assert!(circuits.look("p").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn for_ever_is_a_time_too() {
        let circuits = Arc::new(Circuits::default());
        let breaker = Breaker { failures: 1, window: Duration::MAX, cooldown: Duration::MAX };
        circuits.enter("p", breaker).unwrap().failed(Category::Server);
        assert!(matches!(circuits.state("p"), CircuitState::Open { .. }));
        circuits.keep(|name| name != "p");
        assert_eq!(circuits.state("p"), CircuitState::Closed { failures: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn old_failures_are_forgotten() {
        let circuits = Arc::new(Circuits::default());
        for _ in 0..10 {
            fail(&circuits);
            pass_time(31).await;
        }
        assert_eq!(circuits.state("p"), CircuitState::Closed { failures: 2 });
        circuits.enter("p", BREAKER).unwrap().succeeded();
        assert_eq!(circuits.state("p"), CircuitState::Closed { failures: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_the_clients_fault_does_not_count() {
        let circuits = Arc::new(Circuits::default());
        for category in [Category::Validation, Category::NotFound, Category::Configuration, Category::Cancelled] {
            for _ in 0..5 {
                circuits.enter("p", BREAKER).unwrap().failed(category);
            }
        }
        assert_eq!(circuits.state("p"), CircuitState::Closed { failures: 0 });
    }
}
