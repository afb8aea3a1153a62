//! Stored responses: the request is in the first record of its run, the answer in the run's events. There is no other record of a
//! response.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use trunkline_core::event::Event;
use trunkline_core::turn::{ClientId, Json};
use trunkline_engine::{RunQueryError, RunRow, RunState};
use trunkline_wire::error::ApiError;

use super::encoder::ResponseEncoder;
use super::frames::Written;
use super::ids;
use super::items::InputItem;
use super::object::Status;
use crate::answer::AnswerFeed;
use crate::app::App;
use crate::dialect::RunHead;
use crate::door::Door;
use crate::runs;

/// Name of the dialect in a stored request.
const DIALECT: &str = "responses";

/// Maximum size of the input that is stored with a run.
const MAX_STORED_INPUT_BYTES: usize = 1024 * 1024;

/// The request of a response, as far as answers and later requests need it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredRequest {
    /// Requests of other dialects have another name.
    pub(super) dialect: String,
    /// The members that the answer repeats, as far as the request gives them.
    pub(super) echo: Box<RawValue>,
    /// The last items of the input, as many as are stored.
    pub(super) input: Vec<Box<RawValue>>,
    /// Number of items before those.
    pub(super) omitted: usize,
    pub(super) previous: Option<String>,
    pub(super) background: bool,
    pub(super) tool_items: bool,
    /// Whether the response can be read later.
    #[serde(skip, default = "always")]
    pub(super) stored: bool,
}

const fn always() -> bool {
    true
}

impl StoredRequest {
    pub(super) fn new(echo: Box<RawValue>, input: &[InputItem], stored: bool) -> Self {
        let mut request = Self {
            dialect: DIALECT.to_owned(),
            echo,
            input: Vec::new(),
            omitted: input.len(),
            previous: None,
            background: false,
            tool_items: false,
            stored,
        };
        let mut size = 0;
        for item in input.iter().rev().filter(|_| stored) {
            let item = to_raw_value(&item.normalized()).expect("strings always serialise");
            size += item.get().len();
            if size > MAX_STORED_INPUT_BYTES {
                break;
            }
            request.input.insert(0, item);
            request.omitted -= 1;
        }
        request
    }

    /// The form in which it is recorded. `None` if it is not to be stored.
    pub(super) fn record(&self) -> Option<Json> {
        self.stored.then(|| to_raw_value(self).expect("strings and parsed JSON always serialise").into())
    }

    /// The items of the input, with ids.
    pub(super) fn items(&self, run: &str) -> Vec<InputItem> {
        let item = |(index, item): (usize, &RawValue)| {
            let mut item: InputItem = serde_json::from_str(item.get()).ok()?;
            if item.id.as_ref().is_none_or(String::is_empty) {
                item.id = Some(ids::input_item(run, self.omitted + index));
            }
            Some(item)
        };
        self.input.iter().map(|item| &**item).enumerate().filter_map(item).collect()
    }
}

/// A response of a client.
pub(super) struct StoredResponse {
    pub(super) row: RunRow,
    pub(super) request: StoredRequest,
}

/// Why there is no such response.
pub(super) enum Absent {
    /// It never existed, belongs to another client, or was not stored.
    Unknown,
    Deleted,
    /// It cannot be told.
    Failed(ApiError),
}

impl Absent {
    /// The error of a request whose path names the response.
    pub(super) fn into_error(self, id: &str) -> ApiError {
        match self {
            Self::Unknown | Self::Deleted => {
                let shown: String = id.chars().take(100).collect();
                ApiError::not_found("response_not_found", format!("Response with id '{shown}' not found."))
            }
            Self::Failed(error) => error,
        }
    }
}

/// Finds a response by its id.
pub(super) async fn find<D: Door>(app: &App<D>, client: &ClientId, id: &str) -> Result<StoredResponse, Absent> {
    let run = ids::run_of_response(id).ok_or(Absent::Unknown)?;
    find_run(app, client, &run).await
}

/// Finds the response of a run.
pub(super) async fn find_run<D: Door>(app: &App<D>, client: &ClientId, run: &str) -> Result<StoredResponse, Absent> {
    let absent = |error: RunQueryError| match error {
        RunQueryError::Unknown if app.door.was_deleted(client, run) => Absent::Deleted,
        RunQueryError::Unknown => Absent::Unknown,
        RunQueryError::NoMemory | RunQueryError::Store(_) => Absent::Failed(runs::refused(&error)),
    };
    let row = app.door.run(client, run).await.map_err(absent)?;
    let request = app.door.request(client, run).await.map_err(absent)?;
    let request = request.and_then(|request| serde_json::from_str::<StoredRequest>(&request).ok());
    let request = request.filter(|request| request.dialect == DIALECT).ok_or(Absent::Unknown)?;
    Ok(StoredResponse { row, request })
}

impl StoredResponse {
    /// Status of a response that has not ended.
    pub(super) fn status(&self) -> Status {
        match self.row.state {
            RunState::Queued => Status::Queued,
            RunState::Running
            | RunState::Finished
            | RunState::Failed
            | RunState::Cancelled
            | RunState::Interrupted
            | RunState::Parked => Status::InProgress,
        }
    }

    /// Reads the answer as far as it is in the log.
    pub(super) async fn read<D: Door>(self, app: &App<D>, client: &ClientId) -> Result<ResponseEncoder, RunQueryError> {
        let run = RunHead::new(&self.row.id);
        let mut feed = AnswerFeed::<D::Run>::Running(app.door.read_run(client, &run.id).await?);
        let secrets = std::sync::Arc::clone(&app.config.secrets);
        let mut encoder = ResponseEncoder::new(&run, self.request, secrets, Written::None).read_again();
        while !encoder.has_ended() {
            let event = tokio::select! {
                biased;
                event = feed.next(&app.config.secrets) => event,
                // The next event of a run in progress may take long.
                () = std::future::ready(()), if !self.row.state.is_over() => break,
            };
            let Ok(event) = event else { break };
            if matches!(event, Event::Finished(_) | Event::Failed(_)) {
                feed.describe(&mut encoder.trace);
            }
            encoder.take(&event, &mut Vec::new());
        }
        feed.describe(&mut encoder.trace);
        Ok(encoder)
    }
}
