//! Ollama's HTTP API: the protocol's request in its words, its answer in the protocol's.

use std::io::{self, BufRead, BufReader, ErrorKind};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use ureq::{Agent, Body, http};

use crate::host::base_url;
use crate::protocol::{Answer, End, Failure, Message, Piece, Request};

const DEFAULT_MODEL: &str = "llama3.2:latest";

/// Members of `config` that Ollama takes beside its options.
const TOP_LEVEL: [&str; 3] = ["keep_alive", "format", "think"];

/// A health check is given five seconds: ours fails sooner, so that it can still say why.
const HEALTH_LIMIT: Duration = Duration::from_secs(4);

pub(crate) struct Ollama {
    url: String,
    /// Answers when the request names no model.
    default_model: String,
}

/// What Ollama sends: the whole answer, or one line of a stream. A thinking model's `thinking` is not read at all.
#[derive(Debug, Deserialize)]
struct Reply {
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

impl Ollama {
    pub(crate) fn new(host: Option<&str>, default_model: Option<String>) -> Result<Self, Failure> {
        let url = base_url(host).map_err(Failure::new)?;
        Ok(Self { url, default_model: default_model.unwrap_or_else(|| DEFAULT_MODEL.to_owned()) })
    }

    pub(crate) fn health(&self) -> Result<(), Failure> {
        let get = |path: &str| {
            let url = format!("{}/api/{path}", self.url);
            agent(Some(HEALTH_LIMIT)).get(url).call().map_err(|error| self.unreachable(&error))
        };
        // Servers that only speak Ollama's language may know its list alone.
        let response = match get("version")? {
            response if response.status() == 404 => get("tags")?,
            response => response,
        };
        // A login page says 200 to everything.
        let said: serde_json::Map<String, serde_json::Value> =
            serde_json::from_reader(check_status(response, "")?.into_reader())
                .map_err(|_not_json| Failure::new(format!("what answers at {} is not Ollama", self.url)))?;
        drop(said);
        Ok(())
    }

    pub(crate) fn generate(&self, request: &Request) -> Result<Answer, Failure> {
        let (model, body) = self.ask(request, false)?;
        let mut bytes = Vec::new();
        io::copy(&mut body.into_reader(), &mut bytes).map_err(|error| self.unreachable(&error.into()))?;
        let reply = self.read(&bytes)?;
        if !reply.done {
            return Err(Failure::new("internal server error: Ollama's answer is not marked as done"));
        }
        let end = reply.end(&model);
        Ok(Answer { text: reply.response, end })
    }

    /// The answer's pieces. The last one has the end; if none has, the stream was cut off.
    pub(crate) fn stream(&self, request: &Request) -> Result<impl Iterator<Item = Result<Piece, Failure>>, Failure> {
        let (model, body) = self.ask(request, true)?;
        // Lines are taken apart as bytes: a character may be split over two reads, but never over two lines.
        let lines = BufReader::new(body.into_reader()).split(b'\n');
        Ok(lines.filter(|line| !line.as_ref().is_ok_and(|line| line.trim_ascii().is_empty())).map(move |line| {
            let line = line.map_err(|error| self.unreachable(&error.into()))?;
            let reply = self.read(&line)?;
            let end = reply.done.then(|| reply.end(&model));
            Ok(Piece { text: reply.response, end })
        }))
    }

    /// Sends the request; the model asked and the body of a reply that is not an error.
    fn ask(&self, request: &Request, stream: bool) -> Result<(String, Body), Failure> {
        let asked = translate(request, &self.default_model, stream)?;
        let model = asked["model"].as_str().unwrap_or_default().to_owned();
        let url = format!("{}/api/generate", self.url);
        let sent = agent(None).post(url).content_type("application/json").send(asked.to_string());
        let response = sent.map_err(|error| self.unreachable(&error))?;
        Ok((model.clone(), check_status(response, &model)?))
    }

    fn read(&self, json: &[u8]) -> Result<Reply, Failure> {
        let reply: Reply = serde_json::from_slice(json).map_err(|error| {
            Failure::new(format!("bad gateway: what answers at {} is not Ollama, or was cut off: {error}", self.url))
        })?;
        match reply.error {
            Some(error) => Err(Failure::new(format!("Ollama error: {error}"))),
            None => Ok(reply),
        }
    }

    /// Why there was no answer, with the name of the error that tools look for.
    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let url = &self.url;
        let kind = if let ureq::Error::Io(error) = error { Some(error.kind()) } else { None };
        let cut =
            [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
        Failure::new(if kind == Some(ErrorKind::ConnectionRefused) {
            format!("connection refused: no Ollama at {url} (ECONNREFUSED); is it running? try: ollama serve")
        } else if kind.is_some_and(|kind| cut.contains(&kind)) {
            format!("socket hang up: Ollama at {url} closed the connection early (ECONNRESET): {error}")
        } else if matches!(error, ureq::Error::HostNotFound) {
            format!("host not found: {url} (ENOTFOUND); check OLLAMA_HOST")
        } else if matches!(error, ureq::Error::Timeout(_)) {
            format!("no answer in time from Ollama at {url} (ETIMEDOUT)")
        } else {
            format!("network error: {url}: {error}")
        })
    }
}

impl Reply {
    fn end(&self, asked_model: &str) -> End {
        End {
            tokens_used: self.prompt_eval_count.unwrap_or(0).saturating_add(self.eval_count.unwrap_or(0)),
            input_tokens: self.prompt_eval_count,
            output_tokens: self.eval_count,
            model: self.model.clone().unwrap_or_else(|| asked_model.to_owned()),
            finish_reason: if self.done_reason.as_deref() == Some("length") { "length" } else { "stop" },
        }
    }
}

/// Without a proxy: Ollama is on this machine or close by. Without a time limit but a health check's: how long an
/// answer may take is for whoever started us to say.
fn agent(limit: Option<Duration>) -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).max_redirects(0).proxy(None);
    config.timeout_global(limit).build().into()
}

/// The body of a reply, unless it is an error: then Ollama's own words after the status.
fn check_status(mut response: http::Response<Body>, model: &str) -> Result<Body, Failure> {
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let text = response.body_mut().read_to_string().unwrap_or_default();
    let told = serde_json::from_str::<Reply>(&text).ok().and_then(|reply| reply.error);
    let words = told.as_deref().unwrap_or_else(|| text.trim());
    let hint = if status == 404 && !model.is_empty() { format!("; try: ollama pull {model}") } else { String::new() };
    Err(Failure::new(format!("{status}: {words}{hint}")))
}

/// The body of `POST /api/generate`.
fn translate(request: &Request, default_model: &str, stream: bool) -> Result<Value, Failure> {
    let mut options = request.config.clone().unwrap_or_default();
    let mut body = Map::new();
    let model = match options.remove("model") {
        None | Some(Value::Null) => default_model.to_owned(),
        Some(Value::String(model)) if model.is_empty() => default_model.to_owned(),
        Some(Value::String(model)) => model,
        Some(other) => return Err(Failure::new(format!("invalid request: config.model is {other}, not a string"))),
    };
    body.insert("model".to_owned(), model.into());
    body.insert("prompt".to_owned(), prompt(request)?.into());
    body.insert("stream".to_owned(), stream.into());
    if let Some(system) = request.system_prompt.as_deref().filter(|system| !system.is_empty()) {
        body.insert("system".to_owned(), system.into());
    }
    for name in TOP_LEVEL {
        if let Some(value) = options.remove(name) {
            body.insert(name.to_owned(), value);
        }
    }
    // What the caller says wins over what the configuration says.
    let said = [("num_predict", &request.max_tokens), ("temperature", &request.temperature), ("top_p", &request.top_p)];
    for (name, value) in said {
        if let Some(value) = value {
            options.insert(name.to_owned(), json!(value));
        }
    }
    if !options.is_empty() {
        body.insert("options".to_owned(), options.into());
    }
    if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        eprintln!("ollama-provider: tools are ignored: Ollama's generate API has none");
    }
    Ok(body.into())
}

/// The prompt, after the conversation so far: the generate API has no other place for it.
fn prompt(request: &Request) -> Result<String, Failure> {
    let earlier = request.context.as_deref().unwrap_or_default();
    if earlier.is_empty() {
        if request.prompt.is_empty() {
            return Err(Failure::new("invalid request: prompt is empty"));
        }
        return Ok(request.prompt.clone());
    }
    let turns = earlier.iter().map(|Message { role, content }| format!("[{}]\n{content}\n\n", label(role)));
    Ok(format!("{}[User]\n{}", turns.collect::<String>(), request.prompt))
}

fn label(role: &str) -> String {
    let mut letters = role.chars();
    letters.next().map_or_else(|| "User".to_owned(), |first| first.to_uppercase().chain(letters).collect())
}
