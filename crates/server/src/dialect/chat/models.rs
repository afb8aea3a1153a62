//! `GET /v1/models`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use trunkline_wire::error::ApiError;
use trunkline_wire::request::may_name_a_model;

use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::dialect::abilities::Abilities;
use crate::dialect::{gemini, messages};
use crate::door::Door;

#[derive(Serialize)]
struct ModelList {
    object: &'static str,
    data: Vec<ModelObject>,
}

#[derive(Serialize)]
struct ModelObject {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// Display name of the upstream model, if the provider has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    trunkline: Option<Abilities>,
}

pub(crate) async fn list<D: Door>(State(app): State<Arc<App<D>>>, headers: HeaderMap) -> HttpResponse {
    if messages::models::are_asked_for(&headers) {
        return messages::models::list(&app);
    }
    if gemini::models::are_asked_for(&headers) {
        return gemini::models::list(&app);
    }
    let data = app.door.models().into_iter().map(|id| model(&app, id)).collect();
    reply::json(StatusCode::OK, &ModelList { object: "list", data })
}

/// Returns one model. Accepts every name that a chat request accepts. The id is everything after `/models/`, percent-decoded: names
/// may contain `/` and `:`.
pub(crate) async fn one<D: Door>(
    State(app): State<Arc<App<D>>>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> HttpResponse {
    let found = |id: &str| may_name_a_model(id) && app.door.knows(id);
    match id {
        Ok(Path(id)) if found(id.strip_suffix('/').unwrap_or(&id)) => {
            let id = id.strip_suffix('/').unwrap_or(&id).to_owned();
            if messages::models::are_asked_for(&headers) {
                return messages::models::one(&app, &id);
            }
            if gemini::models::are_asked_for(&headers) {
                return gemini::models::one(&app, &id);
            }
            reply::json(StatusCode::OK, &model(&app, id))
        }
        Ok(_) | Err(_) => reply::error(&ApiError::no_such_model().listing_models(&app.door.models())),
    }
}

fn model<D: Door>(app: &App<D>, id: String) -> ModelObject {
    ModelObject {
        name: app.door.display_name(&id),
        trunkline: Abilities::of(app, &id),
        id,
        object: "model",
        created: app.started,
        owned_by: "trunkline",
    }
}
