//! Third level of health: whether a provider answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::limits::RunLimits;
use trunkline_core::model::Model;
use trunkline_core::turn::{AnswerTiming, ClientId, Message, Role, Turn};
use trunkline_core::vocabulary::Permissions;

use super::report::Probed;
use super::{MAX_MESSAGE_CHARS, millis};
use crate::attempt::begin::begin;
use crate::attempt::request::{AttemptRequest, BeginError};
use crate::router::models::Models;
use crate::shared::Shared;

/// Time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(90);

/// Runs one tiny turn in an empty folder, without fallback.
pub(super) async fn probe(shared: &Arc<Shared>, models: &Models, model: &Model) -> Probed {
    let began = Instant::now();
    let answered = timeout(PROBE_TIMEOUT, ask(shared, models, model)).await;
    let answered = answered.unwrap_or_else(|_elapsed| Err(Failure::timed_out()));
    let (ok, message, category) = match answered {
        Ok(answer) => (true, answer, None),
        Err(failure) => (false, failure.message, Some(failure.category)),
    };
    let message = shared.settings.secrets.mask(&message).chars().take(MAX_MESSAGE_CHARS).collect();
    Probed { ok, message, category, duration_ms: millis(began.elapsed()) }
}

async fn ask(shared: &Arc<Shared>, models: &Models, model: &Model) -> Result<String, Failure> {
    let folder = shared.settings.state.join("probe");
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(Category::Configuration, format!("cannot make {}: {error}", folder.display())))?;
    let model = Arc::new(Model {
        repo: folder,
        agent_file: None,
        worktree: false,
        permissions: Permissions::Read,
        limits: RunLimits::all(PROBE_TIMEOUT),
        ..model.clone()
    });
    let turn = Turn {
        messages: vec![Message::new(Role::User, "Reply with the single word OK.")],
        shown: AnswerTiming::AtTheEnd,
        ..Turn::default()
    };
    let id = format!("probe-{}", uuid::Uuid::now_v7());
    let permit = shared
        .admission
        .enter(&ClientId::default(), &model.name, None)
        .await
        .map_err(|_busy| Failure::new(Category::Cancelled, "not probed: busy"))?;
    let attempt = AttemptRequest {
        schema: None,
        turn: &turn,
        model: &model,
        models,
        id: &id,
        run: &id,
        session: None,
        place: None,
        again: false,
        standby: None,
    };
    let mut attempt = begin(shared, attempt, permit).await.map_err(|not_begun| match not_begun {
        BeginError::Failed(failure) => failure,
        BeginError::Exhausted(message) => Failure::new(Category::Cancelled, format!("not probed: {message}")),
    })?;
    while let Some(event) = attempt.next().await {
        if let Some(end) = event.end() {
            return end.map(|answer| answer.content);
        }
    }
    Err(Failure::new(Category::Unknown, "the run ended without an answer"))
}
