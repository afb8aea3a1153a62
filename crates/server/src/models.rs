//! What can be asked for, and whether this server lives.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Serialize;
use trunkline_wire::error::ApiError;

use crate::{App, Door, HttpResponse, reply};

#[derive(Serialize)]
struct ModelList {
    object: &'static str,
    data: Vec<Model>,
}

#[derive(Serialize)]
struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    version: &'static str,
    models: usize,
}

pub(crate) async fn list<D: Door>(State(app): State<Arc<App<D>>>) -> HttpResponse {
    let data = app.door.models().into_iter().map(|id| model(&app, id)).collect();
    reply::json(StatusCode::OK, &ModelList { object: "list", data })
}

/// The id is everything after `/models/`, percent-decoded: names may hold `/` and `:`.
pub(crate) async fn one<D: Door>(
    State(app): State<Arc<App<D>>>,
    id: Result<Path<String>, PathRejection>,
) -> HttpResponse {
    match id {
        Ok(Path(id)) if app.door.models().contains(&id) => reply::json(StatusCode::OK, &model(&app, id)),
        Ok(_) | Err(_) => reply::error(&ApiError::no_such_model()),
    }
}

/// A server that stops says so, so that nobody sends it more.
pub(crate) async fn health<D: Door>(State(app): State<Arc<App<D>>>) -> HttpResponse {
    let (code, status) = if app.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else {
        (StatusCode::OK, "ok")
    };
    reply::json(code, &Health { status, version: env!("CARGO_PKG_VERSION"), models: app.door.models().len() })
}

fn model<D>(app: &App<D>, id: String) -> Model {
    Model { id, object: "model", created: app.started, owned_by: "trunkline" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Stop};
    use tokio_util::sync::CancellationToken;
    use trunkline_core::turn::Turn;
    use trunkline_engine::{Run, StartError};

    struct Empty;

    impl Door for Empty {
        type Run = Run;

        fn models(&self) -> Vec<String> {
            Vec::new()
        }

        async fn start(&self, _turn: Turn) -> Result<Run, StartError> {
            Err(StartError::UnknownModel { near: Vec::new() })
        }
    }

    #[tokio::test]
    async fn a_stopping_server_is_not_healthy() {
        let stop = Stop::default();
        let app = Arc::new(App {
            door: Arc::new(Empty),
            config: Config::default(),
            started: 0,
            stopping: stop.gently.child_token(),
            expired: CancellationToken::new(),
        });
        assert_eq!(health(State(Arc::clone(&app))).await.status(), 200);
        stop.gently.cancel();
        assert_eq!(health(State(app)).await.status(), 503);
    }
}
