//! `GET /v1/route?model=…`: the order in query a turn would be tried now, and why.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use http::StatusCode;
use serde::Deserialize;
use trunkline_wire::error::ApiError;

use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::door::Door;

#[derive(Deserialize)]
pub(crate) struct RouteQuery {
    model: Option<String>,
}

pub(crate) async fn explain<D: Door>(
    State(app): State<Arc<App<D>>>,
    query: Result<Query<RouteQuery>, QueryRejection>,
) -> HttpResponse {
    let Some(model) = query.ok().and_then(|Query(query)| query.model).filter(|model| !model.is_empty()) else {
        let message = "which model? ask for /v1/route?model=…";
        return reply::error(&ApiError::invalid("missing_required_parameter", message).about("model"));
    };
    match app.door.explain(&model) {
        Some(explanation) => reply::json(StatusCode::OK, &explanation),
        None => {
            let names = app.door.models();
            reply::error(&ApiError::unknown_model(&near(&model, &names)).listing_models(&names))
        }
    }
}

fn near(model: &str, names: &[String]) -> Vec<String> {
    trunkline_core::near::near(model, names.iter().map(String::as_str))
}
