//! Client of Ollama's HTTP API: translates between it and the provider protocol.

use std::io::{self, BufRead, BufReader, ErrorKind};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use ureq::{Agent, Body, http};

use crate::host::base_url;
use crate::protocol::{AnswerDelta, AnswerSummary, EarlierMessage, ModelAnswer, ProviderError, ProviderRequest};

const DEFAULT_MODEL: &str = "llama3.2:latest";

/// Members of `config` that belong at the top level of Ollama's request instead of in its `options`.
const TOP_LEVEL_MEMBERS: [&str; 3] = ["keep_alive", "format", "think"];

/// The protocol allows five seconds for a health check. This is shorter, so that there is time to report the reason.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(4);

pub(crate) struct OllamaClient {
    url: String,
    /// Model for requests that name none.
    default_model: String,
}

/// Ollama's reply: the whole answer, or one line of a stream. The `thinking` of reasoning models is ignored.
#[derive(Debug, Deserialize)]
struct OllamaReply {
    #[serde(default)]
    response: String,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    model: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    error: Option<String>,
}

impl OllamaClient {
    pub(crate) fn new(host: Option<&str>, default_model: Option<String>) -> Result<Self, ProviderError> {
        let url = base_url(host).map_err(ProviderError::new)?;
        Ok(Self { url, default_model: default_model.unwrap_or_else(|| DEFAULT_MODEL.to_owned()) })
    }

    pub(crate) fn health(&self) -> Result<(), ProviderError> {
        let get = |path: &str| {
            let url = format!("{}/api/{path}", self.url);
            agent(Some(HEALTH_TIMEOUT)).get(url).call().map_err(|error| self.transport_error(&error))
        };
        // Servers that imitate Ollama's API may offer only the list of models.
        let response = match get("version")? {
            response if response.status() == 404 => get("tags")?,
            response => response,
        };
        // A status of 200 is not enough: a login page returns it for every path.
        let object = serde_json::from_reader::<_, Map<String, Value>>(check_status(response, "")?.into_reader());
        object.map_err(|_| ProviderError::new(format!("the server at {} is not Ollama", self.url)))?;
        Ok(())
    }

    pub(crate) fn generate(&self, request: &ProviderRequest) -> Result<ModelAnswer, ProviderError> {
        let (model, body) = self.send(request, false)?;
        let mut bytes = Vec::new();
        io::copy(&mut body.into_reader(), &mut bytes).map_err(|error| self.transport_error(&error.into()))?;
        let reply = self.parse(&bytes)?;
        if !reply.done {
            return Err(ProviderError::new("internal server error: Ollama's answer is not marked as done"));
        }
        let summary = reply.summary(&model);
        Ok(ModelAnswer { text: reply.response, summary })
    }

    /// Returns the answer piece by piece. The last piece has a summary; if none has, the stream was cut off.
    pub(crate) fn stream(
        &self,
        request: &ProviderRequest,
    ) -> Result<impl Iterator<Item = Result<AnswerDelta, ProviderError>>, ProviderError> {
        let (model, body) = self.send(request, true)?;
        // Lines are split as bytes: a character may be split over two reads, but never over two lines.
        let lines = BufReader::new(body.into_reader()).split(b'\n');
        Ok(lines.filter(|line| !line.as_ref().is_ok_and(|line| line.trim_ascii().is_empty())).map(move |line| {
            let line = line.map_err(|error| self.transport_error(&error.into()))?;
            let reply = self.parse(&line)?;
            let summary = reply.done.then(|| reply.summary(&model));
            Ok(AnswerDelta { text: reply.response, summary })
        }))
    }

    /// Sends the request. Returns the requested model and the body of a successful response.
    fn send(&self, request: &ProviderRequest, stream: bool) -> Result<(String, Body), ProviderError> {
        let body = translate(request, &self.default_model, stream)?;
        let model = body["model"].as_str().unwrap_or_default().to_owned();
        let url = format!("{}/api/generate", self.url);
        let sent = agent(None).post(url).content_type("application/json").send(body.to_string());
        let response = sent.map_err(|error| self.transport_error(&error))?;
        Ok((model.clone(), check_status(response, &model)?))
    }

    fn parse(&self, json: &[u8]) -> Result<OllamaReply, ProviderError> {
        let reply: OllamaReply = serde_json::from_slice(json).map_err(|error| {
            ProviderError::new(format!(
                "bad gateway: the server at {} is not Ollama, or its response was cut off: {error}",
                self.url
            ))
        })?;
        match reply.error {
            Some(error) => Err(ProviderError::new(format!("Ollama error: {error}"))),
            None => Ok(reply),
        }
    }

    /// Describes a transport error. Includes the error code by which the gateway classifies it.
    fn transport_error(&self, error: &ureq::Error) -> ProviderError {
        let url = &self.url;
        let kind = if let ureq::Error::Io(error) = error { Some(error.kind()) } else { None };
        let hang_ups =
            [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
        ProviderError::new(if kind == Some(ErrorKind::ConnectionRefused) {
            format!("connection refused: no Ollama at {url} (ECONNREFUSED); is it running? try: ollama serve")
        } else if kind.is_some_and(|kind| hang_ups.contains(&kind)) {
            format!("socket hang up: Ollama at {url} closed the connection early (ECONNRESET): {error}")
        } else if matches!(error, ureq::Error::HostNotFound) {
            format!("host not found: {url} (ENOTFOUND); check OLLAMA_HOST")
        } else if matches!(error, ureq::Error::Timeout(_)) {
            format!("no response from Ollama at {url} in time (ETIMEDOUT)")
        } else {
            format!("network error: {url}: {error}")
        })
    }
}

impl OllamaReply {
    fn summary(&self, requested_model: &str) -> AnswerSummary {
        AnswerSummary {
            tokens_used: self.prompt_eval_count.unwrap_or(0).saturating_add(self.eval_count.unwrap_or(0)),
            input_tokens: self.prompt_eval_count,
            output_tokens: self.eval_count,
            model: self.model.clone().unwrap_or_else(|| requested_model.to_owned()),
            finish_reason: if self.done_reason.as_deref() == Some("length") { "length" } else { "stop" },
        }
    }
}

/// Creates an HTTP client. It uses no proxy, because Ollama runs on this machine or in the local network. Only health
/// checks have a timeout: the gateway that started this program limits how long an answer may take.
fn agent(timeout: Option<Duration>) -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).max_redirects(0).proxy(None);
    config.timeout_global(timeout).build().into()
}

/// Returns the body of a successful response. Otherwise the error has the status and Ollama's own message.
fn check_status(mut response: http::Response<Body>, model: &str) -> Result<Body, ProviderError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let text = response.body_mut().read_to_string().unwrap_or_default();
    let error = serde_json::from_str::<OllamaReply>(&text).ok().and_then(|reply| reply.error);
    let message = error.as_deref().unwrap_or_else(|| text.trim());
    let hint = if status == 404 && !model.is_empty() { format!("; try: ollama pull {model}") } else { String::new() };
    Err(ProviderError::new(format!("{status}: {message}{hint}")))
}

/// Builds the body of `POST /api/generate`.
fn translate(request: &ProviderRequest, default_model: &str, stream: bool) -> Result<Value, ProviderError> {
    let mut options = request.config.clone().unwrap_or_default();
    let mut body = Map::new();
    let model = match options.remove("model") {
        None | Some(Value::Null) => default_model.to_owned(),
        Some(Value::String(model)) if model.is_empty() => default_model.to_owned(),
        Some(Value::String(model)) => model,
        Some(other) => {
            return Err(ProviderError::new(format!("invalid request: config.model is {other}, not a string")));
        }
    };
    body.insert("model".to_owned(), model.into());
    body.insert("prompt".to_owned(), prompt(request)?.into());
    body.insert("stream".to_owned(), stream.into());
    if let Some(system) = request.system_prompt.as_deref().filter(|system| !system.is_empty()) {
        body.insert("system".to_owned(), system.into());
    }
    for name in TOP_LEVEL_MEMBERS {
        if let Some(value) = options.remove(name) {
            body.insert(name.to_owned(), value);
        }
    }
    // Values of the request take precedence over the configuration.
    let overrides =
        [("num_predict", &request.max_tokens), ("temperature", &request.temperature), ("top_p", &request.top_p)];
    for (name, value) in overrides {
        if let Some(value) = value {
            options.insert(name.to_owned(), json!(value));
        }
    }
    if !options.is_empty() {
        body.insert("options".to_owned(), options.into());
    }
    if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        eprintln!("ollama-provider: tools are ignored: Ollama's generate API does not support them");
    }
    Ok(body.into())
}

/// Builds the prompt. Earlier turns precede it as text, because the generate API has no other place for them.
fn prompt(request: &ProviderRequest) -> Result<String, ProviderError> {
    let earlier = request.context.as_deref().unwrap_or_default();
    if earlier.is_empty() {
        if request.prompt.is_empty() {
            return Err(ProviderError::new("invalid request: prompt is empty"));
        }
        return Ok(request.prompt.clone());
    }
    let turns = earlier.iter().map(|EarlierMessage { role, content }| format!("[{}]\n{content}\n\n", label(role)));
    Ok(format!("{}[User]\n{}", turns.collect::<String>(), request.prompt))
}

fn label(role: &str) -> String {
    let mut letters = role.chars();
    letters.next().map_or_else(|| "User".to_owned(), |first| first.to_uppercase().chain(letters).collect())
}
