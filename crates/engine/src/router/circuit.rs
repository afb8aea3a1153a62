//! Circuit breakers, one for each provider: after repeated failures a provider is skipped for a while, then tried once. The rules
//! are pure and take the time as an argument; [`Circuits`] holds one circuit for each name.
//!
//! Only failures that may pass with time are counted. An open circuit remembers the failures that opened it: the caller gets the
//! last of them, and another provider is tried only if all of them allow a fallback.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use trunkline_core::failure::{Category, Failure};

use super::RetryPolicy;

/// Rule for opening a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// Number of failures
    pub failures: u32,
    /// within this time that open the circuit
    pub window: Duration,
    /// for this long.
    pub cooldown: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures: 5, window: Duration::from_secs(60), cooldown: Duration::from_secs(30) }
    }
}

/// Public state of a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CircuitState {
    Closed {
        /// Failures inside the window.
        failures: usize,
    },
    Open {
        /// Time until a trial is allowed.
        for_ms: u64,
    },
    /// A trial is allowed, or in progress.
    HalfOpen,
}

#[derive(Debug, Default)]
struct Circuit {
    /// Recent failures with their times.
    failures: VecDeque<(Instant, Category)>,
    /// Set while the circuit is open or half open.
    open: Option<Open>,
    /// Whether a trial is in progress.
    trial: bool,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    because: Arc<Because>,
}

/// Failures that opened a circuit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Because {
    categories: Vec<Category>,
    pub(crate) last: Failure,
}

impl Because {
    /// Whether another provider may take over after failures like these.
    pub(crate) fn falls_back(&self, policy: &RetryPolicy) -> bool {
        self.categories.iter().all(|category| policy.falls_back(*category))
    }
}

/// A provider whose circuit is open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refused {
    /// Time until a trial is allowed.
    pub(crate) wait: Duration,
    pub(crate) because: Arc<Because>,
}

/// Decision about one request.
#[derive(Debug, Clone, PartialEq)]
enum Admission {
    Free,
    Trial,
    Refused(Refused),
}

impl Circuit {
    fn admission(&self, now: Instant) -> Admission {
        let refused = |open: &Open, wait| Admission::Refused(Refused { wait, because: Arc::clone(&open.because) });
        match &self.open {
            None => Admission::Free,
            Some(open) if now < open.until => refused(open, open.until - now),
            // A trial is in progress: other requests wait a second.
            Some(open) if self.trial => refused(open, Duration::from_secs(1)),
            Some(_) => Admission::Trial,
        }
    }

    fn failed(&mut self, failure: &Failure, now: Instant, breaker: &Breaker) {
        /// Longer than any gateway runs, and short enough to be added to an `Instant`.
        const MAX_OPEN: Duration = Duration::from_secs(365 * 24 * 3600);
        self.failures.retain(|&(at, _)| now - at < breaker.window);
        self.failures.push_back((now, failure.category));
        self.trial = false;
        let enough = self.failures.len() >= breaker.failures as usize;
        let tried_in_vain = self.open.is_some();
        if enough || tried_in_vain {
            let categories = self.failures.drain(..).map(|(_, category)| category).collect();
            let because = Arc::new(Because { categories, last: failure.clone() });
            self.open = Some(Open { until: now + breaker.cooldown.min(MAX_OPEN), because });
        }
    }

    fn state(&self, now: Instant) -> CircuitState {
        match &self.open {
            None => CircuitState::Closed { failures: self.failures.len() },
            Some(open) if now < open.until => {
                CircuitState::Open { for_ms: u64::try_from((open.until - now).as_millis()).unwrap_or(u64::MAX) }
            }
            Some(_) => CircuitState::HalfOpen,
        }
    }
}

/// Whether skipping the provider for a while may help against such a failure. Otherwise an open circuit would only hide the
/// reason from the next caller.
const fn counts(category: Category) -> bool {
    match category {
        // The service is slow, broken or rate limited: fewer requests help.
        Category::RateLimit | Category::Network | Category::Server | Category::Timeout => true,
        // Starting a program that keeps crashing wastes time.
        Category::Unknown => true,
        // Every call fails fast until a person logs in or changes the key.
        Category::Authentication => false,
        // The quota renews at a time that the provider names, usually hours away, or with a payment.
        Category::Quota => false,
        // The request is at fault; another may succeed.
        Category::Validation => false,
        // A program or model is missing until it is installed or another is requested.
        Category::NotFound => false,
        // A setting is wrong until it is changed.
        Category::Configuration => false,
        // The provider answers; the model does not keep to the schema.
        Category::SchemaMismatch => false,
        // The client cancelled the run.
        Category::Cancelled => false,
    }
}

/// Circuits of all providers, by name.
#[derive(Debug, Default)]
pub(crate) struct Circuits {
    by_name: Mutex<BTreeMap<String, Circuit>>,
}

/// Permission to try a provider. The holder reports the result; dropping it without a report leaves the circuit as it is.
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
    /// Checks whether a pass is available, without taking it: only a caller that can start at once may take a trial.
    pub(crate) fn check(&self, name: &str) -> Result<(), Refused> {
        match self.locked().get(name).map(|circuit| circuit.admission(Instant::now())) {
            None | Some(Admission::Free | Admission::Trial) => Ok(()),
            Some(Admission::Refused(refused)) => Err(refused),
        }
    }

    /// Takes a pass. Fails with the time to wait if the circuit is open.
    pub(crate) fn enter(self: &Arc<Self>, name: &str, breaker: Breaker) -> Result<Pass, Refused> {
        let mut circuits = self.locked();
        let circuit = circuits.get_mut(name);
        let kind = match (circuit.as_ref().map(|circuit| circuit.admission(Instant::now())), circuit) {
            (Some(Admission::Refused(refused)), _) => return Err(refused),
            (Some(Admission::Trial), Some(circuit)) => {
                circuit.trial = true;
                Kind::Trial
            }
            (None | Some(Admission::Free | Admission::Trial), _) => Kind::Ordinary,
        };
        Ok(Pass { circuits: Arc::clone(self), name: name.to_owned(), breaker, kind })
    }

    /// Drops the circuits of providers that are no longer configured.
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
    /// Reports success: earlier failures are forgotten.
    pub(crate) fn succeeded(&mut self) {
        if self.kind != Kind::Settled {
            self.kind = Kind::Settled;
            self.circuits.locked().remove(&self.name);
        }
    }

    /// Reports the first output. The answer may take long, so other requests may try meanwhile; the result is still open.
    pub(crate) fn promising(&mut self) {
        if self.kind == Kind::Trial {
            self.kind = Kind::Ordinary;
            if let Some(circuit) = self.circuits.locked().get_mut(&self.name) {
                circuit.trial = false;
            }
        }
    }

    /// Whether this pass is the trial of a half-open circuit.
    pub(crate) fn is_trial(&self) -> bool {
        self.kind == Kind::Trial
    }

    /// Reports a failure. Its message is kept for callers that find the circuit open, so it must be masked and short.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        if !counts(failure.category) {
            return;
        }
        self.kind = Kind::Settled;
        let mut circuits = self.circuits.locked();
        circuits.entry(self.name.clone()).or_default().failed(failure, Instant::now(), &self.breaker);
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
        circuits.enter("p", BREAKER).unwrap().failed(&Failure::new(Category::Server, "no"));
    }

    async fn pass_time(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn case_68_circuit_opens_after_failures_allows_one_trial_and_closes_when_it_succeeds() {
        let circuits = Arc::new(Circuits::default());
        for failures in 0..3 {
            assert_eq!(circuits.state("p"), CircuitState::Closed { failures });
            fail(&circuits);
        }
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 });
        assert_eq!(circuits.enter("p", BREAKER).unwrap_err().wait, Duration::from_secs(30));
        circuits.enter("other", BREAKER).unwrap();

        pass_time(30).await;
        assert_eq!(circuits.state("p"), CircuitState::HalfOpen);
        let trials: Vec<_> = (0..1000).map(|_| circuits.enter("p", BREAKER)).filter_map(Result::ok).collect();
        assert_eq!(trials.len(), 1, "only one trial is allowed");
        trials.into_iter().for_each(|mut trial| trial.failed(&Failure::new(Category::Network, "no")));
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 }, "one failed trial is enough");

        pass_time(30).await;
        circuits.enter("p", BREAKER).unwrap().succeeded();
        assert_eq!(circuits.state("p"), CircuitState::Closed { failures: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn next_request_gets_the_trial_when_a_trial_is_dropped() {
        let circuits = Arc::new(Circuits::default());
        (0..3).for_each(|_| fail(&circuits));
        pass_time(30).await;
        drop(circuits.enter("p", BREAKER).unwrap());
        let mut next = circuits.enter("p", BREAKER).unwrap();
        next.failed(&Failure::new(Category::Validation, "no"));
        drop(next);
        circuits.enter("p", BREAKER).expect("a failure that is not counted leaves the circuit half open");
    }

    #[tokio::test(start_paused = true)]
    async fn failure_counts_when_it_comes_after_the_first_output() {
        let circuits = Arc::new(Circuits::default());
        for _ in 0..3 {
            let mut pass = circuits.enter("p", BREAKER).unwrap();
            pass.promising();
            pass.failed(&Failure::new(Category::Server, "no"));
        }
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 });
        pass_time(30).await;
        let mut trial = circuits.enter("p", BREAKER).unwrap();
        assert!(circuits.check("p").is_err());
        trial.promising();
        circuits.check("p").expect("other requests may try while the trial answers");
        trial.failed(&Failure::new(Category::Server, "no"));
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 });
    }

    #[tokio::test(start_paused = true)]
    async fn checking_does_not_take_the_trial() {
        let circuits = Arc::new(Circuits::default());
        (0..3).for_each(|_| fail(&circuits));
        assert_eq!(circuits.check("p").unwrap_err().wait, Duration::from_secs(30));
        pass_time(30).await;
        circuits.check("p").unwrap();
        circuits.check("p").unwrap();
        let _trial = circuits.enter("p", BREAKER).unwrap();
        assert!(circuits.check("p").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn open_time_is_bounded_when_it_is_configured_as_forever() {
        let circuits = Arc::new(Circuits::default());
        let breaker = Breaker { failures: 1, window: Duration::MAX, cooldown: Duration::MAX };
        circuits.enter("p", breaker).unwrap().failed(&Failure::new(Category::Server, "no"));
        assert!(matches!(circuits.state("p"), CircuitState::Open { .. }));
        circuits.keep(|name| name != "p");
        assert_eq!(circuits.state("p"), CircuitState::Closed { failures: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn failures_outside_the_window_do_not_count() {
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
    async fn circuit_stays_closed_after_failures_that_time_does_not_cure() {
        let circuits = Arc::new(Circuits::default());
        for category in Category::ALL.into_iter().filter(|category| !counts(*category)) {
            for _ in 0..5 {
                circuits.enter("p", BREAKER).unwrap().failed(&Failure::new(category, "no"));
            }
        }
        assert_eq!(circuits.state("p"), CircuitState::Closed { failures: 0 });
        let counted: Vec<Category> = Category::ALL.into_iter().filter(|category| counts(*category)).collect();
        use Category::{Network, RateLimit, Server, Timeout, Unknown};
        assert_eq!(counted, [RateLimit, Network, Server, Timeout, Unknown]);
    }

    #[tokio::test(start_paused = true)]
    async fn open_circuit_allows_fallback_only_if_all_that_opened_it_do() {
        let circuits = Arc::new(Circuits::default());
        let fail = |category, words: &str| circuits.enter("p", BREAKER).unwrap().failed(&Failure::new(category, words));
        fail(Category::Server, "a");
        fail(Category::RateLimit, "b");
        fail(Category::Server, "c");
        let because = circuits.check("p").unwrap_err().because;
        assert_eq!(because.last.message, "c");
        assert!(!because.falls_back(&RetryPolicy::default()), "a rate limit does not allow it");
        let allowing = RetryPolicy { fallback_on: vec![Category::RateLimit], ..RetryPolicy::default() };
        assert!(because.falls_back(&allowing));
        pass_time(30).await;
        fail(Category::Network, "d");
        let because = circuits.check("p").unwrap_err().because;
        assert!(because.falls_back(&RetryPolicy::default()), "opened again by another failure");
    }
}
