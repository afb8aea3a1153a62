//! Routes of stored responses: reading, cancelling, deleting, and listing the input.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use trunkline_core::turn::ClientId;
use trunkline_engine::{CancelOutcome, DeleteOutcome};
use trunkline_wire::error::ApiError;

use super::encoder::ResponseEncoder;
use super::frames::Written;
use super::items::InputItem;
use super::stored::{StoredResponse, find};
use crate::admission;
use crate::answer::reply::HttpResponse;
use crate::answer::streaming::streamed;
use crate::answer::{AnswerFeed, describe_in_headers, reply};
use crate::app::App;
use crate::dialect::RunHead;
use crate::door::Door;
use crate::runs;

/// Default number of items in a list, and the maximum.
const DEFAULT_ITEMS: usize = 20;
const MAX_ITEMS: usize = 100;

#[derive(Deserialize)]
pub(crate) struct ReadQuery {
    stream: Option<bool>,
    starting_after: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    after: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
    order: Option<Order>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Order {
    Asc,
    Desc,
}

#[derive(Serialize)]
struct ItemList {
    object: &'static str,
    data: Vec<InputItem>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

#[derive(Serialize)]
struct Deleted<'a> {
    id: &'a str,
    object: &'static str,
    deleted: bool,
}

/// `GET /v1/responses/{id}`: the response as far as it has come, or its stream from any event on.
pub(crate) async fn read<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(client): Extension<ClientId>,
    Path(id): Path<String>,
    query: Result<Query<ReadQuery>, QueryRejection>,
) -> HttpResponse {
    let reading = async {
        let query = query.map_err(|error| ApiError::invalid("invalid_value", error.body_text()))?.0;
        if query.starting_after.is_some() && query.stream != Some(true) {
            let message = "`starting_after` is for streams: add stream=true";
            return Err(ApiError::invalid("invalid_value", message).about("starting_after"));
        }
        let response = find(&app, &client, &id).await.map_err(|absent| absent.into_error(&id))?;
        if query.stream == Some(true) {
            stream(&app, &client, response, query.starting_after).await
        } else {
            whole(&app, &client, response).await
        }
    };
    reading.await.unwrap_or_else(|error| reply::error(&error))
}

async fn stream<D: Door>(
    app: &App<D>,
    client: &ClientId,
    response: StoredResponse,
    starting_after: Option<u64>,
) -> Result<HttpResponse, ApiError> {
    let run = RunHead::new(&response.row.id);
    let feed = AnswerFeed::Running(app.door.read_run(client, &run.id).await.map_err(|error| runs::refused(&error))?);
    let written = starting_after.map_or(Written::All, Written::After);
    let encoder = ResponseEncoder::new(&run, response.request, Arc::clone(&app.config.secrets), written);
    let mut response = streamed::<D::Run, _>(feed, encoder.read_again(), app.terms()).await;
    admission::identify(&mut response, &run.id, false);
    Ok(response)
}

async fn whole<D: Door>(app: &App<D>, client: &ClientId, response: StoredResponse) -> Result<HttpResponse, ApiError> {
    let (run, status) = (response.row.id.clone(), response.status());
    let encoder = response.read(app, client).await.map_err(|error| runs::refused(&error))?;
    let mut reply = reply::json_bytes(StatusCode::OK, encoder.object(status));
    describe_in_headers(reply.headers_mut(), &encoder.trace, encoder.trace.attempts.len());
    admission::identify(&mut reply, &run, false);
    Ok(reply)
}

/// `POST /v1/responses/{id}/cancel`. A response that has ended is returned as it is.
pub(crate) async fn cancel<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(client): Extension<ClientId>,
    Path(id): Path<String>,
) -> HttpResponse {
    let cancelling = async {
        let response = find(&app, &client, &id).await.map_err(|absent| absent.into_error(&id))?;
        let outcome = app.door.cancel(&client, &response.row.id).await.map_err(|error| runs::refused(&error))?;
        let row = match outcome {
            CancelOutcome::Stopped(row) | CancelOutcome::WasOver(row) => *row,
            CancelOutcome::Elsewhere(_) => return Err(elsewhere()),
        };
        whole(&app, &client, StoredResponse { row, ..response }).await
    };
    cancelling.await.unwrap_or_else(|error| reply::error(&error))
}

/// `DELETE /v1/responses/{id}`. The run is deleted with everything about it.
pub(crate) async fn delete<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(client): Extension<ClientId>,
    Path(id): Path<String>,
) -> HttpResponse {
    let deleting = async {
        let response = find(&app, &client, &id).await.map_err(|absent| absent.into_error(&id))?;
        match app.door.delete(&client, &response.row.id).await {
            Ok(DeleteOutcome::Deleted) => Ok(Deleted { id: &id, object: "response", deleted: true }),
            Ok(DeleteOutcome::Elsewhere) => Err(elsewhere()),
            Err(error) => Err(runs::refused(&error)),
        }
    };
    match deleting.await {
        Ok(deleted) => reply::json(StatusCode::OK, &deleted),
        Err(error) => reply::error(&error),
    }
}

/// `GET /v1/responses/{id}/input_items`, the last one first unless `order=asc`.
pub(crate) async fn input_items<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(client): Extension<ClientId>,
    Path(id): Path<String>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> HttpResponse {
    let listing = async {
        let query = query.map_err(|error| ApiError::invalid("invalid_value", error.body_text()))?.0;
        let response = find(&app, &client, &id).await.map_err(|absent| absent.into_error(&id))?;
        list(response.request.items(&response.row.id), query)
    };
    match listing.await {
        Ok(list) => reply::json(StatusCode::OK, &list),
        Err(error) => reply::error(&error),
    }
}

fn list(mut items: Vec<InputItem>, query: ListQuery) -> Result<ItemList, ApiError> {
    let limit = query.limit.unwrap_or(DEFAULT_ITEMS);
    if !(1..=MAX_ITEMS).contains(&limit) {
        return Err(ApiError::invalid("invalid_value", format!("limit is 1 to {MAX_ITEMS}")).about("limit"));
    }
    if query.order != Some(Order::Asc) {
        items.reverse();
    }
    let position = |id: &str| items.iter().position(|item| item.id.as_deref() == Some(id));
    let start = query.after.as_deref().and_then(position).map_or(0, |at| at + 1);
    let end = query.before.as_deref().and_then(position).unwrap_or(items.len()).max(start);
    let mut data: Vec<InputItem> = items.drain(start..end).collect();
    let has_more = data.len() > limit;
    data.truncate(limit);
    let id = |item: Option<&InputItem>| item.and_then(|item| item.id.clone());
    Ok(ItemList { object: "list", first_id: id(data.first()), last_id: id(data.last()), data, has_more })
}

fn elsewhere() -> ApiError {
    ApiError::conflict("run_elsewhere", "the response is made by another process of this machine").hint("stop it there")
}
