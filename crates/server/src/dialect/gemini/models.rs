//! The list of models in Google's shape.

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
use crate::door::Door;

/// Calls that every model accepts.
const METHODS: [&str; 3] = ["generateContent", "streamGenerateContent", "countTokens"];

#[derive(Serialize)]
struct ModelList {
    models: Vec<ModelObject>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModelObject {
    /// `models/` and the name.
    name: String,
    version: &'static str,
    display_name: String,
    supported_generation_methods: [&'static str; 3],
    trunkline: Option<Abilities>,
}

/// Whether a client expects this shape on a path that other dialects have, too. Google's clients send both headers.
pub(crate) fn are_asked_for(headers: &HeaderMap) -> bool {
    ["x-goog-api-client", "x-goog-api-key"].iter().any(|name| headers.contains_key(*name))
}

/// All models, on one page.
pub(crate) fn list<D: Door>(app: &App<D>) -> HttpResponse {
    let models = app.door.models().iter().map(|name| model(app, name)).collect();
    reply::json(StatusCode::OK, &ModelList { models })
}

/// One model, which exists.
pub(crate) fn one<D: Door>(app: &App<D>, name: &str) -> HttpResponse {
    reply::json(StatusCode::OK, &model(app, name))
}

/// `GET /v1beta/models`.
pub(super) async fn list_route<D: Door>(State(app): State<Arc<App<D>>>) -> HttpResponse {
    list(&app)
}

/// `GET /v1beta/models/{name}`. The name is everything after `/models/`, percent-decoded.
pub(super) async fn one_route<D: Door>(
    State(app): State<Arc<App<D>>>,
    name: Result<Path<String>, PathRejection>,
) -> HttpResponse {
    match name.as_ref().map(|name| name.strip_suffix('/').unwrap_or(name)) {
        Ok(name) if may_name_a_model(name) && app.door.knows(name) => one(&app, name),
        Ok(_) | Err(_) => reply::error(&ApiError::no_such_model().listing_models(&app.door.models())),
    }
}

fn model<D: Door>(app: &App<D>, name: &str) -> ModelObject {
    ModelObject {
        name: ["models/", name].concat(),
        version: "1",
        display_name: app.door.display_name(name).unwrap_or_else(|| name.to_owned()),
        supported_generation_methods: METHODS,
        trunkline: Abilities::of(app, name),
    }
}
