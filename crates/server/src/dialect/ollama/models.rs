//! `/api/version`, `/api/tags`, `/api/show` and `/api/ps`, and the refusal of routes that would change models.
//!
//! A model here is an agent or a service, not a file. Members about files are zero or empty.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use http::{Method, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use trunkline_engine::{ModelAbilities, RunFilter, RunState};
use trunkline_wire::body;
use trunkline_wire::error::ApiError;

use super::names;
use super::times::{after_now, rfc3339};
use crate::admission;
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::connection::body as request_body;
use crate::dialect::abilities::Abilities;
use crate::door::Door;

/// Version of Ollama whose API this is. Some clients refuse to talk to an old one.
const OLLAMA_VERSION: &str = "0.30.0";

/// Context length that is reported for every model, in tokens. Clients shorten their requests to it; the true one is unknown.
const ASSUMED_CONTEXT_LENGTH: u64 = 131_072;

/// Limit of the runs that `/api/ps` looks at.
const MAX_RUNS: u32 = 100;

/// Time after which a model is said to leave the memory, for clients that show it.
const EXPIRES_AFTER: Duration = Duration::from_secs(300);

#[derive(Serialize)]
struct ModelDetails {
    parent_model: &'static str,
    format: &'static str,
    family: String,
    families: [String; 1],
    parameter_size: &'static str,
    quantization_level: &'static str,
}

#[derive(Serialize)]
struct ListedModel {
    name: String,
    model: String,
    modified_at: String,
    size: u64,
    digest: String,
    details: ModelDetails,
}

#[derive(Serialize)]
struct RunningModel {
    #[serde(flatten)]
    model: ListedModel,
    expires_at: String,
    size_vram: u64,
    context_length: u64,
}

#[derive(Deserialize)]
struct ShowRequest {
    model: Option<String>,
    name: Option<String>,
}

pub(super) async fn version() -> HttpResponse {
    reply::json(StatusCode::OK, &json!({"version": OLLAMA_VERSION}))
}

pub(super) async fn tags<D: Door>(State(app): State<Arc<App<D>>>) -> HttpResponse {
    let models: Vec<ListedModel> = app.door.models().into_iter().map(|name| listed(&app, name)).collect();
    reply::json(StatusCode::OK, &json!({"models": models}))
}

/// The models of the client's runs that are in progress.
pub(super) async fn running<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, _body) = request.into_parts();
    let client = admission::client(&head);
    let filter = RunFilter { state: Some(RunState::Running), limit: MAX_RUNS, ..RunFilter::default() };
    // A gateway that keeps no runs has none to list.
    let runs = app.door.runs(&client, filter).await.unwrap_or_default();
    let names: BTreeSet<String> = runs.into_iter().map(|run| run.model).collect();
    let expires_at = after_now(EXPIRES_AFTER);
    let models: Vec<RunningModel> = names
        .into_iter()
        .map(|name| RunningModel {
            model: listed(&app, name),
            expires_at: expires_at.clone(),
            size_vram: 0,
            context_length: ASSUMED_CONTEXT_LENGTH,
        })
        .collect();
    reply::json(StatusCode::OK, &json!({"models": models}))
}

pub(super) async fn show<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    let shown = async {
        let body = request_body::read_json(&head.headers, body, &app.config.limits).await?;
        let request: ShowRequest = body::parse(&body)?;
        let name = names::required(request.model.or(request.name))?;
        describe(&app, names::known(&*app.door, &name)?)
    };
    match shown.await {
        Ok(model) => reply::json(StatusCode::OK, &model),
        Err(error) => reply::error(&error),
    }
}

/// Models are configured in files of the gateway.
pub(super) async fn refuse_change(method: Method, uri: Uri) -> HttpResponse {
    let message = format!("{method} {} is not supported: the models of this gateway cannot be changed", uri.path());
    let error = ApiError::invalid("unsupported_operation", message);
    reply::error(&error.hint("add a model to models.json or a provider to router.yaml"))
}

fn describe<D: Door>(app: &App<D>, name: &str) -> Result<Value, ApiError> {
    let abilities = app.door.abilities(name).ok_or_else(ApiError::no_such_model)?;
    let mut capabilities = vec!["completion"];
    for (has, name) in [(abilities.tools, "tools"), (abilities.images, "vision"), (abilities.reasoning, "thinking")] {
        capabilities.extend(has.then_some(name));
    }
    let family = &abilities.provider;
    let mut info = Map::new();
    info.insert("general.architecture".to_owned(), family.as_str().into());
    info.insert("general.basename".to_owned(), name.into());
    info.insert(format!("{family}.context_length"), ASSUMED_CONTEXT_LENGTH.into());
    Ok(json!({
        "license": "",
        "modelfile": format!("# This model is configured in models.json or router.yaml.\nFROM {name}\n"),
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": details(&abilities),
        "model_info": info,
        "capabilities": capabilities,
        "modified_at": rfc3339(app.started),
        "trunkline": Abilities::of(app, name),
    }))
}

fn listed<D: Door>(app: &App<D>, name: String) -> ListedModel {
    let abilities = app.door.abilities(&name).unwrap_or_default();
    ListedModel {
        modified_at: rfc3339(app.started),
        size: 0,
        digest: blake3::hash(name.as_bytes()).to_hex().to_string(),
        details: details(&abilities),
        model: name.clone(),
        name,
    }
}

fn details(abilities: &ModelAbilities) -> ModelDetails {
    ModelDetails {
        parent_model: "",
        format: "trunkline",
        family: abilities.provider.clone(),
        families: [abilities.provider.clone()],
        parameter_size: "",
        quantization_level: "",
    }
}
