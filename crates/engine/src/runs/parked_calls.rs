//! Calls of the client's tools that wait for results, and the results that have come.
//!
//! The registry does not know what it holds: an attempt refers to the state that contains the registry.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::event::ToolCall;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::{ClientId, Message, Role, Turn};

/// Takes over what is parked.
pub(super) type Taker = oneshot::Sender<Box<dyn Any + Send>>;

/// Maximum number of answered calls whose run is remembered, so that a repeated request joins it.
const MAX_ANSWERED: usize = 4096;

/// Time in which the same results lead to the run that has got them.
const REPEAT_WINDOW: Duration = Duration::from_mins(15);

/// All parked attempts.
#[derive(Default)]
pub(crate) struct ParkedRuns {
    state: Mutex<ParkedState>,
}

#[derive(Default)]
struct ParkedState {
    /// By the run that ended with the calls.
    runs: HashMap<String, ParkedEntry>,
    /// Run that waits for the result of a call.
    calls: HashMap<String, String>,
    /// Runs that have got the result of a call, by its id.
    answered: HashMap<String, AnsweredCall>,
}

/// A call whose result has come.
struct AnsweredCall {
    owner: ClientId,
    run: String,
    at: Instant,
}

struct ParkedEntry {
    owner: ClientId,
    calls: Vec<ToolCall>,
    /// Results that have arrived so far, by the id of their call.
    results: HashMap<String, String>,
    /// Dropping it ends the process.
    ask: oneshot::Sender<Taker>,
}

/// Effect of the tool results in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolResults {
    /// The request has no results of tools.
    None,
    /// All results of a parked attempt are here.
    Complete,
    /// Another request has brought the same results, and its run continues the attempt.
    Answered(String),
    /// Nothing waits for the results.
    Gone,
}

impl ParkedRuns {
    /// Notes the results of a request. Fails if a result is missing; those that came are kept.
    pub(crate) fn note(&self, turn: &Turn) -> Result<ToolResults, Failure> {
        let results = results_of(&turn.messages);
        if results.is_empty() {
            return Ok(ToolResults::None);
        }
        let mut state = self.lock();
        let Some(run) = results.iter().find_map(|(id, _)| state.calls.get(*id)).cloned() else {
            let answered = results.iter().find_map(|(id, _)| state.answered.get(*id));
            let answered = answered.filter(|call| call.owner == turn.owner && call.at.elapsed() < REPEAT_WINDOW);
            return Ok(answered.map_or(ToolResults::Gone, |call| ToolResults::Answered(call.run.clone())));
        };
        let Some(entry) = state.runs.get_mut(&run).filter(|entry| entry.owner == turn.owner) else {
            return Ok(ToolResults::Gone);
        };
        for (id, text) in results {
            if entry.calls.iter().any(|call| call.id == id) {
                entry.results.entry(id.to_owned()).or_insert_with(|| text.to_owned());
            }
        }
        let missing = entry.calls.iter().filter(|call| !entry.results.contains_key(&call.id));
        let missing: Vec<String> = missing.map(|call| format!("{} ({})", call.id, call.name)).collect();
        if missing.is_empty() {
            return Ok(ToolResults::Complete);
        }
        let message = format!("results are missing for these calls: {}", missing.join(", "));
        Err(Failure::new(Category::Validation, message)
            .hint("send the missing results; those that came are kept and need not be sent again"))
    }

    /// Takes the attempt that waits for the results of this request, for the run `by`.
    pub(super) async fn take(&self, turn: &Turn, by: &str) -> Option<(Box<dyn Any + Send>, HashMap<String, String>)> {
        let results = results_of(&turn.messages);
        let entry = {
            let mut state = self.lock();
            let run = results.iter().find_map(|(id, _)| state.calls.get(*id)).cloned()?;
            state.runs.get(&run).filter(|entry| entry.owner == turn.owner && entry.is_complete())?;
            let entry = state.remove(&run)?;
            if state.answered.len() >= MAX_ANSWERED {
                state.answered.retain(|_, call| call.at.elapsed() < REPEAT_WINDOW / 10);
            }
            for call in &entry.calls {
                let answered = AnsweredCall { owner: entry.owner.clone(), run: by.to_owned(), at: Instant::now() };
                state.answered.insert(call.id.clone(), answered);
            }
            entry
        };
        let (taker, taken) = oneshot::channel();
        entry.ask.send(taker).ok()?;
        let parked = taken.await.ok()?;
        let mut results = entry.results;
        // A message of the user after the results would otherwise be lost.
        if let Some(words) = user_words(&turn.messages)
            && let Some(last) = entry.calls.last().and_then(|call| results.get_mut(&call.id))
        {
            last.push_str(&format!("\n\n[User]\n{words}"));
        }
        Some((parked, results))
    }

    /// Whether a run waits for results of its client.
    pub(crate) fn contains(&self, run: &str) -> bool {
        self.lock().runs.contains_key(run)
    }

    /// Runs of a client that wait for results.
    pub(crate) fn of(&self, owner: &ClientId) -> Vec<String> {
        let state = self.lock();
        state.runs.iter().filter(|(_, entry)| entry.owner == *owner).map(|(run, _)| run.clone()).collect()
    }

    /// Ends the process of a parked run of this client. Returns whether there was one.
    pub(crate) fn end(&self, owner: &ClientId, run: &str) -> bool {
        let mut state = self.lock();
        state.runs.get(run).is_some_and(|entry| entry.owner == *owner) && state.remove(run).is_some()
    }

    /// Adds a run that waits for results. Fails if `limit` runs wait already.
    pub(super) fn add(
        &self,
        run: &str,
        owner: &ClientId,
        calls: &[ToolCall],
        ask: oneshot::Sender<Taker>,
        limit: usize,
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.runs.len() >= limit {
            let message = format!("{limit} runs wait for results of their clients' tools already");
            let failure = Failure::new(Category::RateLimit, message);
            return Err(failure.hint("send the results of earlier calls, or raise --max-parked"));
        }
        state.calls.extend(calls.iter().map(|call| (call.id.clone(), run.to_owned())));
        let entry = ParkedEntry { owner: owner.clone(), calls: calls.to_vec(), results: HashMap::new(), ask };
        state.runs.insert(run.to_owned(), entry);
        Ok(())
    }

    /// Removes a run that waits no longer.
    pub(super) fn remove(&self, run: &str) {
        self.lock().remove(run);
    }

    fn lock(&self) -> MutexGuard<'_, ParkedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParkedState {
    fn remove(&mut self, run: &str) -> Option<ParkedEntry> {
        let entry = self.runs.remove(run)?;
        for call in &entry.calls {
            self.calls.remove(&call.id);
        }
        Some(entry)
    }
}

impl ParkedEntry {
    fn is_complete(&self) -> bool {
        self.calls.iter().all(|call| self.results.contains_key(&call.id))
    }
}

/// Results of tools that a request brings: those after the last answer of the model.
fn results_of(messages: &[Message]) -> Vec<(&str, &str)> {
    let answered = messages.iter().rposition(|message| message.role == Role::Assistant).map_or(0, |at| at + 1);
    let new = messages[answered..].iter().filter(|message| message.role == Role::Tool);
    new.filter_map(|message| Some((message.call_id.as_deref()?, message.text.as_str()))).collect()
}

/// Messages of the user after the last answer of the model.
fn user_words(messages: &[Message]) -> Option<String> {
    let answered = messages.iter().rposition(|message| message.role == Role::Assistant).map_or(0, |at| at + 1);
    let words = messages[answered..].iter().filter(|message| message.role == Role::User && !message.text.is_empty());
    let words: Vec<&str> = words.map(|message| message.text.as_str()).collect();
    (!words.is_empty()).then(|| words.join("\n\n"))
}
