//! OpenAI's embeddings: `POST /v1/embeddings`. The body goes to the HTTP service of its model, and the answer comes back, both as
//! they are. There is no run, so nothing of [`crate::dialect::answer`] applies except the limits of the client.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::post;
use http::StatusCode;
use http::request::Parts;
use serde_json::value::RawValue;
use trunkline_core::turn::{ClientId, Json};
use trunkline_engine::{EmbeddingError, EmbeddingRequest};
use trunkline_wire::body;
use trunkline_wire::error::ApiError;
use trunkline_wire::request::{may_name_a_model, missing};

use crate::admission;
use crate::answer::reply::HttpResponse;
use crate::answer::{reply, start_refusal};
use crate::app::App;
use crate::connection::body as request_body;
use crate::door::Door;

/// Maximum number of names that an error lists.
const MAX_LISTED: usize = 20;

/// Adds the routes of this dialect.
pub(crate) fn routes<D: Door>(mut router: Router<Arc<App<D>>>) -> Router<Arc<App<D>>> {
    for base in ["/v1", ""] {
        for slash in ["/", ""] {
            router = router.route(&format!("{base}/embeddings{slash}"), post(embed));
        }
    }
    router
}

async fn embed<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    respond(&app, &head, async { openai(&app, &head, body).await.map(|body| reply::json_bytes(StatusCode::OK, body)) })
        .await
}

/// The response to a request for embeddings in any dialect.
pub(in crate::dialect) async fn respond<D: Door>(
    app: &App<D>,
    head: &Parts,
    answer: impl Future<Output = Result<HttpResponse, ApiError>>,
) -> HttpResponse {
    let mut response = answer.await.unwrap_or_else(|error| reply::error(&error));
    if let Some(allowance) = app.door.allowance(&admission::client(head)) {
        reply::name_allowance(response.headers_mut(), allowance);
    }
    response
}

async fn openai<D: Door>(app: &App<D>, head: &Parts, body: Body) -> Result<Vec<u8>, ApiError> {
    let body = request_body::read_json(&head.headers, body, &app.config.limits).await?;
    let mut members: BTreeMap<String, Box<RawValue>> = body::parse(&body)?;
    let model = members.remove("model").filter(|model| model.get() != "null").ok_or_else(|| missing("model"))?;
    let model: String = serde_json::from_str(model.get())
        .map_err(|_| ApiError::invalid("invalid_value", "`model` is a string").about("model"))?;
    let input = members.get("input").map(|input| input.get()).filter(|input| *input != "null");
    match input.ok_or_else(|| missing("input"))?.as_bytes().first() {
        Some(b'"' | b'[') => {}
        Some(_) | None => {
            let message = "`input` is a string, or an array of strings or tokens";
            return Err(ApiError::invalid("invalid_value", message).about("input"));
        }
    }
    let members = members.into_iter().map(|(name, value)| (name, value.into())).collect();
    compute(app, admission::client(head), model, members).await
}

/// Computes embeddings. Returns an answer in OpenAI's format.
pub(in crate::dialect) async fn compute<D: Door>(
    app: &App<D>,
    owner: ClientId,
    model: String,
    members: Vec<(String, Json)>,
) -> Result<Vec<u8>, ApiError> {
    if !may_name_a_model(&model) {
        return Err(ApiError::unknown_model(&[]));
    }
    let secrets = &app.config.secrets;
    let name = model.clone();
    app.door.embed(EmbeddingRequest { owner, model, members }).await.map_err(|error| match error {
        EmbeddingError::Refused(error) => start_refusal(&error, secrets),
        EmbeddingError::Failed(failure) => ApiError::failed(&failure, secrets),
        EmbeddingError::NoService { models } => {
            let message = format!("{name} has no embeddings: it is an agent, and only HTTP services have them");
            let error = ApiError::invalid("unsupported_model", message).about("model");
            match models.as_slice() {
                [] => error.hint("add an HTTP service to router.yaml"),
                models => error.hint(format!("models with embeddings: {}", listed(models))),
            }
        }
    })
}

fn listed(models: &[String]) -> String {
    let names = models.iter().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = models.len().saturating_sub(MAX_LISTED);
    if more > 0 { format!("{names} and {more} more") } else { names }
}
