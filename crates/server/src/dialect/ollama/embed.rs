//! `POST /api/embed`, and the older `POST /api/embeddings` for a single text: translations of OpenAI's embeddings.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use http::StatusCode;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use trunkline_core::turn::Json;
use trunkline_wire::body;
use trunkline_wire::error::ApiError;

use super::names;
use super::times::nanoseconds;
use crate::admission;
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::connection::body as request_body;
use crate::dialect::embeddings::{compute, respond};
use crate::door::Door;

#[derive(Deserialize)]
struct EmbedRequest {
    model: Option<String>,
    input: Option<Box<RawValue>>,
    prompt: Option<String>,
    dimensions: Option<Box<RawValue>>,
}

/// The embeddings in OpenAI's format. The vectors stay text.
#[derive(Deserialize)]
struct OpenAiEmbeddings<'a> {
    #[serde(borrow)]
    data: Vec<OpenAiEmbedding<'a>>,
    #[serde(default)]
    usage: Option<OpenAiUsage>,
}

#[derive(Deserialize)]
struct OpenAiEmbedding<'a> {
    #[serde(borrow)]
    embedding: &'a RawValue,
    #[serde(default)]
    index: usize,
}

#[derive(Deserialize)]
struct OpenAiUsage {
    #[serde(default)]
    prompt_tokens: u64,
}

#[derive(Serialize)]
struct Embeddings<'a> {
    model: &'a str,
    embeddings: Vec<&'a RawValue>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: u64,
}

#[derive(Serialize)]
struct OneEmbedding<'a> {
    embedding: &'a RawValue,
}

pub(super) async fn several<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    respond(&app, &head, embed_several(&app, &head, body)).await
}

pub(super) async fn one<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    respond(&app, &head, embed_one(&app, &head, body)).await
}

async fn embed_several<D: Door>(app: &App<D>, head: &Parts, body: Body) -> Result<HttpResponse, ApiError> {
    let began = Instant::now();
    let mut request = read(app, head, body).await?;
    let (name, input) = (names::required(request.model.take())?, request.input.take());
    let answer = match input.filter(|input| !matches!(input.get(), "\"\"" | "[]" | "null")) {
        Some(input) if input.get().starts_with(['"', '[']) => {
            embed(app, head, &name, input.into(), request.dimensions).await?
        }
        Some(_) => {
            let message = "`input` is a string or an array of strings";
            return Err(ApiError::invalid("invalid_value", message).about("input"));
        }
        // As with an empty prompt, the client only loads the model.
        None => names::known(&*app.door, &name).map(|_| br#"{"data":[]}"#.to_vec())?,
    };
    let OpenAiEmbeddings { data, usage } = parse(&answer)?;
    let embeddings = Embeddings {
        model: &name,
        embeddings: data.iter().map(|one| one.embedding).collect(),
        total_duration: nanoseconds(began.elapsed()),
        load_duration: 0,
        prompt_eval_count: usage.map_or(0, |usage| usage.prompt_tokens),
    };
    Ok(reply::json(StatusCode::OK, &embeddings))
}

async fn embed_one<D: Door>(app: &App<D>, head: &Parts, body: Body) -> Result<HttpResponse, ApiError> {
    let mut request = read(app, head, body).await?;
    let name = names::required(request.model.take())?;
    let answer = match request.prompt.filter(|prompt| !prompt.is_empty()) {
        Some(prompt) => embed(app, head, &name, Json::from(&json!(prompt)), None).await?,
        None => names::known(&*app.door, &name).map(|_| br#"{"data":[{"embedding":[]}]}"#.to_vec())?,
    };
    let embedding = parse(&answer)?.data.first().map_or(RawValue::NULL, |one| one.embedding);
    Ok(reply::json(StatusCode::OK, &OneEmbedding { embedding }))
}

async fn read<D: Door>(app: &App<D>, head: &Parts, body: Body) -> Result<EmbedRequest, ApiError> {
    let body = request_body::read_json(&head.headers, body, &app.config.limits).await?;
    body::parse(&body)
}

async fn embed<D: Door>(
    app: &App<D>,
    head: &Parts,
    name: &str,
    input: Json,
    dimensions: Option<Box<RawValue>>,
) -> Result<Vec<u8>, ApiError> {
    let model = names::known(&*app.door, name)?.to_owned();
    let mut members = vec![("input".to_owned(), input), ("encoding_format".to_owned(), Json::from(&json!("float")))];
    members.extend(dimensions.map(|dimensions| ("dimensions".to_owned(), dimensions.into())));
    compute(app, admission::client(head), model, members).await
}

/// The vectors, in the order of the input.
fn parse(answer: &[u8]) -> Result<OpenAiEmbeddings<'_>, ApiError> {
    let mut embeddings: OpenAiEmbeddings<'_> = serde_json::from_slice(answer).map_err(|error| {
        tracing::warn!(%error, "the embeddings of a service cannot be parsed");
        ApiError::internal()
    })?;
    embeddings.data.sort_by_key(|one| one.index);
    Ok(embeddings)
}
