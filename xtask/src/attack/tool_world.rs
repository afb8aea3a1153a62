//! Environment of an attack on the tools of clients: a gateway with two models, whose agent calls a tool of the client, and
//! requests to it and to its MCP server.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::conformance::environment::{CliEnvironment, TrunklineChild};
use crate::conformance::http::{HttpMessage, SentHttpRequest, messages};

/// API keys of two clients.
pub(super) const KEYS: [&str; 2] = ["one-of-the-clients", "another-of-the-clients"];

/// Limit for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct ToolWorld {
    _folder: TempDir,
    gateway: TrunklineChild,
    repos: [PathBuf; 2],
}

/// A client whose run has called its tool. Each client has a model and a repository of its own.
pub(super) struct ParkedClient {
    client: usize,
    body: Value,
    pub(super) run: String,
    pub(super) calls: Vec<Value>,
}

impl ToolWorld {
    pub(super) fn start(parent: &Path, trunkline: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("t").tempdir_in(parent)?;
        let bin = folder.path().join("bin");
        fs::create_dir_all(&bin)?;
        let agent = format!("#!/usr/bin/env python3\n{}", include_str!("tool_agent.py"));
        fs::write(bin.join("gemini"), agent)?;
        fs::set_permissions(bin.join("gemini"), fs::Permissions::from_mode(0o755))?;
        let environment = CliEnvironment::new(&[], &bin, folder.path())?;
        let repos = [environment.another_repo("client-0")?, environment.another_repo("client-1")?];
        let model = |repo: &PathBuf| json!({"driver": "gemini", "repoPath": repo, "model": "any", "env": {"GEMINI_API_KEY": "x"}, "warm": 0});
        let models = json!({"client-0": model(&repos[0]), "client-1": model(&repos[1])});
        let gateway = environment.gateway(trunkline, "", &models, &KEYS, &["--sandbox", "required"])?;
        Ok(Self { _folder: folder, gateway, repos })
    }

    /// Starts a run of a client that offers a tool with this name, and returns when the agent has called it.
    pub(super) fn park(&self, client: usize, tool: &str, prompt: &str) -> Result<ParkedClient> {
        let function = json!({"name": tool, "parameters": {"type": "object"}});
        let body = json!({"model": format!("client-{client}"), "tools": [{"type": "function", "function": function}],
            "messages": [{"role": "user", "content": format!("{prompt}, request {}", fastrand::u32(..))}]});
        let mut parked = ParkedClient { client, body, run: String::new(), calls: Vec::new() };
        parked.read(&self.post(client, &parked.body.to_string())?)?;
        ensure!(!parked.calls.is_empty(), "the agent has not called its tool: {}", self.gateway.log());
        Ok(parked)
    }

    /// Sends a request of a client.
    pub(super) fn post(&self, client: usize, body: &str) -> Result<HttpMessage> {
        post(self.gateway.address, "/v1/chat/completions", &[("x-api-key", KEYS[client])], body)
    }

    /// Sends a message to the MCP server of the client's run, with the secret in `authorization`.
    pub(super) fn post_to_server(&self, client: usize, authorization: Option<&str>, body: &str) -> Result<HttpMessage> {
        let url = self.server(client)?["url"].as_str().context("no URL")?.to_owned();
        let (address, path) = url.trim_start_matches("http://").split_once('/').context("no path")?;
        let header = authorization.map(|value| ("authorization", value));
        post(address.parse()?, &format!("/{path}"), header.as_slice(), body)
    }

    /// The secret of the MCP server of a client's run, as its agent sends it.
    pub(super) fn authorization(&self, client: usize) -> Result<String> {
        let server = self.server(client)?;
        Ok(server["headers"][0]["value"].as_str().context("no secret")?.to_owned())
    }

    fn server(&self, client: usize) -> Result<Value> {
        Ok(self.port(client)?["server"].clone())
    }

    /// The file that the agent has written about its start.
    pub(super) fn port(&self, client: usize) -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(self.repos[client].join("port.json"))?)?)
    }

    /// File in the folder of a client's agent.
    pub(super) fn agent_file(&self, client: usize, name: &str) -> PathBuf {
        self.repos[client].join(name)
    }

    /// Sends the result of the only call, and returns how it reached the agent, or why it did not.
    pub(super) fn finish(&self, parked: &mut ParkedClient, result: &str) -> Result<Vec<String>> {
        let reply = self.answer(parked, result)?;
        let body = reply.json();
        let answer = &body["choices"][0];
        if answer["finish_reason"] != "stop" {
            return Ok(vec![format!("the run did not end with an answer: {} {}", reply.status(), reply.text())]);
        }
        let received = fs::read(self.agent_file(parked.client, "result"))?;
        let same = received == result.as_bytes();
        Ok(if same { Vec::new() } else { vec!["the agent received another result".to_owned()] })
    }

    /// Sends one result for all calls of a client.
    pub(super) fn answer(&self, parked: &mut ParkedClient, result: &str) -> Result<HttpMessage> {
        let body = parked.with_results(&json!(result));
        let reply = self.post(parked.client, &body.to_string())?;
        if reply.status() == 200 {
            parked.body = body;
            parked.read(&reply)?;
        }
        Ok(reply)
    }

    /// State of a run of a client.
    pub(super) fn state(&self, parked: &ParkedClient) -> Result<String> {
        let (path, key) = (format!("/v1/runs/{}", parked.run), KEYS[parked.client]);
        let run = SentHttpRequest::get(self.gateway.address, &path, &[("x-api-key", key)])?.reply()?.json();
        Ok(run["state"].as_str().unwrap_or_default().to_owned())
    }

    /// Harm that every attack may do: a gateway that no longer answers, or that runs nothing.
    pub(super) fn lasting_harm(&self) -> Result<Vec<String>> {
        let health = SentHttpRequest::get(self.gateway.address, "/health", &[])?.reply();
        if !health.is_ok_and(|health| health.status() == 200) {
            return Ok(vec!["the gateway no longer answers".to_owned()]);
        }
        let mut next = self.park(0, "weather", "call once")?;
        self.finish(&mut next, "rain")
    }
}

impl ParkedClient {
    fn read(&mut self, reply: &HttpMessage) -> Result<()> {
        let body = reply.json();
        ensure!(reply.status() == 200, "status {}: {}", reply.status(), reply.text());
        let message = body["choices"][0]["message"].clone();
        self.run = body["trunkline"]["run"].as_str().context("no run")?.to_owned();
        self.calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        self.body["messages"].as_array_mut().context("no messages")?.push(message);
        Ok(())
    }

    /// The next request, with this result for each call.
    pub(super) fn with_results(&self, result: &Value) -> Value {
        let mut body = self.body.clone();
        let results =
            self.calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        if let Some(messages) = body["messages"].as_array_mut() {
            messages.extend(results);
        }
        body
    }

    pub(super) fn call_name(&self) -> &str {
        self.calls.first().and_then(|call| call["function"]["name"].as_str()).unwrap_or_default()
    }

    pub(super) fn call_arguments(&self) -> &str {
        self.calls.first().and_then(|call| call["function"]["arguments"].as_str()).unwrap_or_default()
    }
}

/// Sends a request that may be refused before all of it is sent. A connection that is closed without an answer is an empty
/// message.
fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> Result<HttpMessage> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let extra: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n{extra}\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if sent.is_ok() && bytes.is_empty() => return Err(error).context("no answer in time"),
        Ok(_) | Err(_) => {}
    }
    Ok(messages(&bytes, |_| true).into_iter().next().unwrap_or_default())
}
