//! `previous_response_id` and `item_reference`: what a request takes over from earlier responses.
//!
//! The last response of a session is continued in the session. An older one is a fork, as an edited history is in chat completions:
//! a new session begins with all messages up to that response.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use trunkline_core::event::SessionId;
use trunkline_core::turn::{ClientId, Message};
use trunkline_engine::{RunFilter, RunRow, RunState};
use trunkline_wire::error::ApiError;

use super::items::InputItem;
use super::stored::{Absent, StoredResponse, find, find_run};
use super::{ids, messages};
use crate::app::App;
use crate::continuations::Continuation;
use crate::door::Door;
use crate::runs;

/// Runs of a session that are looked at to find a later one.
const MAX_LATER_RUNS: u32 = 50;

/// Time in which the turn of another request begins.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);

const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum length of a chain of responses that a fork repeats.
const MAX_CHAIN: usize = 1000;

/// The conversation that a response continues.
pub(super) enum Continued {
    /// A session that knows everything that was said.
    Session(SessionId, Continuation),
    /// All that was said, for a new session or a model without sessions.
    History(Vec<Message>),
}

/// Finds what `previous_response_id` leads to. Results of the client's tools belong to an unfinished turn, which a session may have
/// lost: they come with all that was said.
pub(super) async fn resolve<D: Door>(
    app: &App<D>,
    client: &ClientId,
    model: &str,
    id: &str,
    brings_results: bool,
) -> Result<Continued, ApiError> {
    let previous = find(app, client, id).await.map_err(|absent| absent_previous(absent, id))?;
    if !previous.row.state.is_over() {
        let message = format!("Previous response with id '{id}' is still in progress.");
        return Err(ApiError::invalid("previous_response_in_progress", message).about(PARAM));
    }
    if let Some(session) = &previous.row.session
        && !brings_results
        && previous.row.model == model
        && app.door.keeps_sessions(model)
        && let Some(continuation) = claim(app, client, &previous.row, &session.0).await?
    {
        return Ok(Continued::Session(SessionId(session.0.as_str().into()), continuation));
    }
    history(app, client, previous).await.map(Continued::History)
}

const PARAM: &str = "previous_response_id";

fn absent_previous(absent: Absent, id: &str) -> ApiError {
    let shown: String = id.chars().take(100).collect();
    const CODE: &str = "previous_response_not_found";
    match absent {
        Absent::Unknown => ApiError::not_found(CODE, format!("Previous response with id '{shown}' not found.")),
        Absent::Deleted => ApiError::invalid(CODE, format!("Previous response with id '{shown}' was deleted.")),
        Absent::Failed(error) => return error,
    }
    .about(PARAM)
}

/// Claims the right to continue a run in its session. `None` if another turn came after it.
async fn claim<D: Door>(
    app: &App<D>,
    client: &ClientId,
    row: &RunRow,
    session: &str,
) -> Result<Option<Continuation>, ApiError> {
    let deadline = Instant::now() + CLAIM_TIMEOUT;
    loop {
        let claimed = app.continuations.claim(&row.id);
        if is_followed(app, client, row, session).await? {
            return Ok(None);
        }
        // Another request has claimed the run. Either its turn begins soon, and this one is a fork, or it is refused.
        if claimed.is_some() || Instant::now() > deadline {
            return Ok(claimed);
        }
        sleep(CLAIM_POLL_INTERVAL).await;
    }
}

/// Whether another turn of the session came after a run. A turn that failed leaves the session as it was.
async fn is_followed<D: Door>(app: &App<D>, client: &ClientId, row: &RunRow, session: &str) -> Result<bool, ApiError> {
    let filter = RunFilter { session: Some(session.to_owned()), limit: MAX_LATER_RUNS, ..RunFilter::default() };
    let rows = app.door.runs(client, filter).await.map_err(|error| runs::refused(&error))?;
    let found = rows.iter().any(|other| other.id <= row.id);
    let counts = |state: RunState| match state {
        RunState::Queued | RunState::Running | RunState::Finished | RunState::Parked => true,
        RunState::Failed | RunState::Cancelled | RunState::Interrupted => false,
    };
    Ok(!found || rows.iter().any(|other| other.id > row.id && counts(other.state)))
}

/// The messages of a chain of responses, the first one first.
async fn history<D: Door>(app: &App<D>, client: &ClientId, last: StoredResponse) -> Result<Vec<Message>, ApiError> {
    let (mut turns, mut next) = (Vec::new(), Some(last));
    while let Some(response) = next.take().filter(|_| turns.len() < MAX_CHAIN) {
        let (run, previous) = (response.row.id.clone(), response.request.previous.clone());
        let mut items = response.request.items(&run);
        items.extend(output(app, client, response).await?);
        turns.push(items);
        // The conversation before a deleted response is not known any more.
        next = match previous {
            Some(previous) => find(app, client, &previous).await.ok(),
            None => None,
        };
    }
    let mut messages = Vec::new();
    for items in turns.into_iter().rev() {
        let items = items.into_iter().map(InputItem::without_missing_files).collect();
        messages::append(&mut messages, items, PARAM)?;
    }
    Ok(messages)
}

/// The output of a response as items of an input.
async fn output<D: Door>(
    app: &App<D>,
    client: &ClientId,
    response: StoredResponse,
) -> Result<Vec<InputItem>, ApiError> {
    let encoder = response.read(app, client).await.map_err(|error| runs::refused(&error))?;
    Ok(encoder.items().iter().filter_map(|item| serde_json::from_str(item).ok()).collect())
}

/// Replaces references to items of earlier responses with the items.
pub(super) async fn follow_references<D: Door>(
    app: &App<D>,
    client: &ClientId,
    items: &mut [InputItem],
) -> Result<(), ApiError> {
    let mut responses: HashMap<String, Vec<InputItem>> = HashMap::new();
    for (index, item) in items.iter_mut().enumerate() {
        if !item.is_reference() {
            continue;
        }
        let id = item.id.clone().unwrap_or_default();
        let unknown = || {
            let shown: String = id.chars().take(100).collect();
            ApiError::not_found("item_not_found", format!("Item with id '{shown}' not found."))
                .about(format!("input[{index}].id"))
        };
        let run = ids::run_of_item(&id).ok_or_else(unknown)?;
        if !responses.contains_key(&run) {
            let response = find_run(app, client, &run).await.map_err(|absent| match absent {
                Absent::Unknown | Absent::Deleted => unknown(),
                Absent::Failed(error) => error,
            })?;
            let mut known = response.request.items(&run);
            known.extend(output(app, client, response).await?);
            responses.insert(run.clone(), known);
        }
        let found = responses[&run].iter().find(|known| known.id.as_deref() == Some(&*id));
        *item = found.cloned().ok_or_else(unknown)?.without_missing_files();
    }
    Ok(())
}
