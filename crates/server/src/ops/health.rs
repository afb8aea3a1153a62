//! Liveness of the server, and health of its providers.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use trunkline_engine::Depth;
use trunkline_wire::error::ApiError;

use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::auth;
use crate::door::Door;

#[derive(Serialize)]
struct Health {
    status: &'static str,
    /// Reason of the status `degraded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    version: &'static str,
    models: usize,
    /// Number of turns that wait for a slot.
    waiting: usize,
}

/// Liveness: 503 only during shutdown, so that clients use another server. A server that cannot record runs is `degraded`.
pub(crate) async fn health<D: Door>(State(app): State<Arc<App<D>>>) -> HttpResponse {
    let reason = app.door.storage_trouble().await.map(|reason| app.config.secrets.mask(&reason));
    let (code, status) = match (app.stopping.is_cancelled(), &reason) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, Some(_)) => (StatusCode::OK, "degraded"),
        (false, None) => (StatusCode::OK, "ok"),
    };
    let (models, waiting) = (app.door.models().len(), app.door.waiting());
    reply::json(code, &Health { status, reason, version: env!("CARGO_PKG_VERSION"), models, waiting })
}

#[derive(Deserialize)]
pub(crate) struct HealthQuery {
    probe: Option<bool>,
}

/// Reports the health of all providers. With `?probe=true` each runs a tiny turn, which costs tokens.
pub(crate) async fn providers<D: Door>(
    State(app): State<Arc<App<D>>>,
    headers: HeaderMap,
    how: Result<Query<HealthQuery>, QueryRejection>,
) -> HttpResponse {
    let Ok(Query(how)) = how else {
        return reply::error(&ApiError::invalid("invalid_value", "probe is true or false").about("probe"));
    };
    let depth = if how.probe == Some(true) { Depth::Probe } else { Depth::Look };
    if depth == Depth::Probe
        && let Err(error) = auth::refuse_unintended(&headers)
    {
        return reply::error(&error);
    }
    reply::json(StatusCode::OK, &app.door.health(depth).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::ServerShutdown;
    use crate::config::ServerConfig;
    use tokio_util::sync::CancellationToken;
    use trunkline_core::turn::Turn;
    use trunkline_engine::{Explanation, Follow, HealthReport, Run, StartError, Status};

    struct Empty;

    impl Door for Empty {
        type Run = Run;
        type Feed = Follow;

        fn models(&self) -> Vec<String> {
            Vec::new()
        }

        async fn start(&self, _turn: Turn) -> Result<Run, StartError> {
            Err(StartError::UnknownModel { near: Vec::new(), models: Vec::new(), cli: None })
        }

        fn explain(&self, _model: &str) -> Option<Explanation> {
            None
        }

        async fn health(&self, _depth: Depth) -> HealthReport {
            HealthReport { status: Status::Down, age_ms: 0, providers: Vec::new() }
        }
    }

    #[tokio::test]
    async fn health_is_503_during_shutdown() {
        let stop = ServerShutdown::default();
        let app = Arc::new(App {
            chats: Arc::new(crate::pages::Chats::new(None)),
            door: Arc::new(Empty),
            config: ServerConfig::default(),
            started: 0,
            continuations: Arc::default(),
            wrong_keys: crate::auth::wrong_keys::WrongKeys::default(),
            repeats: crate::repeat::Repeats::default(),
            ollama_calls: crate::dialect::ollama::SentCalls::default(),
            stopping: stop.gently.child_token(),
            expired: CancellationToken::new(),
        });
        assert_eq!(health(State(Arc::clone(&app))).await.status(), 200);
        stop.gently.cancel();
        assert_eq!(health(State(app)).await.status(), 503);
    }
}
