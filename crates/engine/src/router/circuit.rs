//! A circuit for each provider: one that fails again and again is left alone for a while, then tried once. The rules are
//! pure, time comes in; [`Circuits`] keeps one for each name.
//!
//! Only failures that time may cure are counted. A circuit that is open remembers which failures opened it: the caller
//! is told the last of them, and another provider is asked only if all of them allow that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use trunkline_core::failure::{Category, Failure};

use super::RetryPolicy;

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
    /// When it failed, of late, and how.
    failures: VecDeque<(Instant, Category)>,
    /// Set while it is open or half open.
    open: Option<Open>,
    /// One is trying.
    trial: bool,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    because: Arc<Because>,
}

/// The failures that opened a circuit.
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

/// A provider that is not to be asked now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refused {
    /// How long to stay away.
    pub(crate) wait: Duration,
    pub(crate) because: Arc<Because>,
}

/// Who may be asked.
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
            // One request is trying: a second for those that come meanwhile.
            Some(open) if self.trial => refused(open, Duration::from_secs(1)),
            Some(_) => Admission::Trial,
        }
    }

    fn failed(&mut self, failure: &Failure, now: Instant, breaker: &Breaker) {
        /// Longer than any gateway runs, and short enough to be added to the time.
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        self.failures.retain(|&(at, _)| now - at < breaker.window);
        self.failures.push_back((now, failure.category));
        self.trial = false;
        let enough = self.failures.len() >= breaker.failures as usize;
        let tried_in_vain = self.open.is_some();
        if enough || tried_in_vain {
            let categories = self.failures.drain(..).map(|(_, category)| category).collect();
            let because = Arc::new(Because { categories, last: failure.clone() });
            self.open = Some(Open { until: now + breaker.cooldown.min(LONGEST), because });
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

/// Whether leaving the provider alone for a while may cure such a failure. One that it cannot cure would only hide its
/// reason from the next caller.
const fn counts(category: Category) -> bool {
    match category {
        // The service is slow, broken or asks for fewer requests: fewer requests help.
        Category::RateLimit | Category::Network | Category::Server | Category::Timeout => true,
        // A program that crashes again and again is not worth its start each time.
        Category::Unknown => true,
        // Until a person logs in or changes the key, every call says so, and fast.
        Category::Authentication => false,
        // It ends at a time that the provider names, mostly hours away, or when somebody pays.
        Category::Quota => false,
        // The request is to blame; another one may be fine.
        Category::Validation => false,
        // A program or a model is missing until somebody installs it or asks for another.
        Category::NotFound => false,
        // A setting is wrong until somebody changes it.
        Category::Configuration => false,
        // The client has stopped it.
        Category::Cancelled => false,
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
    pub(crate) fn look(&self, name: &str) -> Result<(), Refused> {
        match self.locked().get(name).map(|circuit| circuit.admission(Instant::now())) {
            None | Some(Admission::Free | Admission::Trial) => Ok(()),
            Some(Admission::Refused(refused)) => Err(refused),
        }
    }

    /// A pass, or how long to stay away.
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

    /// Counts a failure, if it is one that counts. Its words are kept for those who find the circuit open: they must be
    /// masked and short.
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
    async fn case_68_it_opens_and_lets_one_try_and_closes_or_opens_again() {
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
        assert_eq!(trials.len(), 1, "one may try, whoever waits");
        trials.into_iter().for_each(|mut trial| trial.failed(&Failure::new(Category::Network, "no")));
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
        next.failed(&Failure::new(Category::Validation, "no"));
        drop(next);
        circuits.enter("p", BREAKER).expect("a failure that says nothing about the provider settles nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_begins_to_answer_and_then_fails_has_failed() {
        let circuits = Arc::new(Circuits::default());
        for _ in 0..3 {
            let mut pass = circuits.enter("p", BREAKER).unwrap();
            pass.promising();
            pass.failed(&Failure::new(Category::Server, "no"));
        }
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 });
        pass_time(30).await;
        let mut trial = circuits.enter("p", BREAKER).unwrap();
        assert!(circuits.look("p").is_err());
        trial.promising();
        circuits.look("p").expect("another may try while the first one answers");
        trial.failed(&Failure::new(Category::Server, "no"));
        assert_eq!(circuits.state("p"), CircuitState::Open { for_ms: 30_000 });
    }

    #[tokio::test(start_paused = true)]
    async fn to_look_is_not_to_try() {
        let circuits = Arc::new(Circuits::default());
        (0..3).for_each(|_| fail(&circuits));
        assert_eq!(circuits.look("p").unwrap_err().wait, Duration::from_secs(30));
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
        circuits.enter("p", breaker).unwrap().failed(&Failure::new(Category::Server, "no"));
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
        let because = circuits.look("p").unwrap_err().because;
        assert_eq!(because.last.message, "c");
        assert!(!because.falls_back(&RetryPolicy::default()), "a rate limit does not allow it");
        let allowing = RetryPolicy { fallback_on: vec![Category::RateLimit], ..RetryPolicy::default() };
        assert!(because.falls_back(&allowing));
        pass_time(30).await;
        fail(Category::Network, "d");
        let because = circuits.look("p").unwrap_err().because;
        assert!(because.falls_back(&RetryPolicy::default()), "it was opened anew, by something else");
    }
}
