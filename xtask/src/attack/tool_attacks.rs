//! Attacks on the tools of clients: by an agent, by another process of the machine, and by a client.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::scenario::{AttackMode, AttackStart, AttackVariant};
use super::table::AttackOutcome;
use super::tool_world::ToolWorld;
use crate::conformance::observe::wait_until;

const LARGE_BYTES: usize = 50 * 1024 * 1024;

const DEEP_LEVELS: usize = 100_000;

/// Calls of the agent that is asked to `call often`.
const MANY_CALLS: u64 = 10_000;

/// Limit for most of those calls to end.
const MANY_CALLS_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of requests of a client until all calls of its agent have results.
const MAX_ANSWERS: usize = 50;

/// The settings of every attack on tools.
const VARIANT: AttackVariant =
    AttackVariant { mode: AttackMode::Checkout, start: AttackStart::Cold, sandbox: "required" };

pub(super) struct ToolAttack {
    pub(super) name: &'static str,
    /// The step that succeeds for its rightful process.
    control: &'static str,
    attack: fn(&ToolWorld) -> Result<Vec<String>>,
}

pub(super) static ALL: [ToolAttack; 9] = [
    ToolAttack {
        name: "calls the tool of a client without the secret of the run",
        control: "with the secret, the tool is listed",
        attack: without_secret,
    },
    ToolAttack {
        name: "calls the tool of a client with the secret of another run",
        control: "the other run's own tool is listed",
        attack: with_secret_of_another_run,
    },
    ToolAttack {
        name: "sends a result for the tool call of another client",
        control: "the result of the right client arrives",
        attack: result_of_another_client,
    },
    ToolAttack {
        name: "sends 50 MB to the server of the client's tools",
        control: "a small message is answered",
        attack: large_message,
    },
    ToolAttack {
        name: "calls a tool with arguments of 100,000 levels",
        control: "the client receives the same arguments",
        attack: deep_arguments,
    },
    ToolAttack {
        name: "calls a tool 10,000 times at once",
        control: "the calls that wait are answered",
        attack: many_calls,
    },
    ToolAttack {
        name: "result of a tool of 50 MB",
        control: "a small result arrives afterwards",
        attack: large_result,
    },
    ToolAttack {
        name: "result of a tool with terminal escapes or 100,000 levels",
        control: "the agent receives the same bytes",
        attack: strange_results,
    },
    ToolAttack { name: "tool named like a flag", control: "the client receives its own name", attack: flag_as_name },
];

impl ToolAttack {
    /// Runs the attack. An attack whose control fails is an error.
    pub(super) fn run(&self, parent: &Path, trunkline: &Path) -> Result<AttackOutcome> {
        let world = ToolWorld::start(parent, trunkline)?;
        let mut harm = (self.attack)(&world).with_context(|| self.name.to_owned())?;
        harm.extend(world.lasting_harm()?);
        let mut outcome = AttackOutcome::new(self.name, false, vec![self.control.to_owned()]);
        outcome.add(VARIANT, harm);
        Ok(outcome)
    }
}

fn without_secret(world: &ToolWorld) -> Result<Vec<String>> {
    let mut parked = world.park(0, "weather", "call once")?;
    let right = world.authorization(0)?;
    let listed = world.post_to_server(0, Some(&right), &message("tools/list", &json!({})))?;
    ensure!(listed.text().contains("\"weather\""), "the tool is not listed: {}", listed.text());
    let mut harm = Vec::new();
    let wrong =
        [None, Some("Bearer "), Some("Bearer 0"), Some(&right[..right.len() - 1]), right.strip_prefix("Bearer ")];
    for authorization in wrong {
        for method in ["initialize", "tools/list", "tools/call"] {
            let reply = world.post_to_server(0, authorization, &message(method, &json!({"name": "weather"})))?;
            if reply.status() != 401 {
                harm.push(format!("{method} with {authorization:?} is answered with {}", reply.status()));
            }
        }
    }
    harm.extend(world.finish(&mut parked, "rain")?);
    let after = world.post_to_server(0, Some(&right), &message("tools/list", &json!({})))?;
    // The process is kept for its session, and its secret with it.
    if after.status() != 401 && !after.text().contains("\"weather\"") {
        harm.push(format!("the secret leads elsewhere after the run: {}", after.text()));
    }
    Ok(harm)
}

fn with_secret_of_another_run(world: &ToolWorld) -> Result<Vec<String>> {
    let (mut parked, _other) = (world.park(0, "weather", "call once")?, world.park(1, "tide", "call once")?);
    let others = world.authorization(1)?;
    let listed = world.post_to_server(0, Some(&others), &message("tools/list", &json!({})))?.text();
    ensure!(listed.contains("\"tide\""), "the tool of the other run is not listed: {listed}");
    let mut harm = Vec::new();
    if listed.contains("weather") {
        harm.push(format!("the tools of the run are listed: {listed}"));
    }
    let call = message("tools/call", &json!({"name": "weather", "arguments": {}}));
    let reply = world.post_to_server(0, Some(&others), &call)?;
    if reply.json()["error"]["code"] != -32602 {
        harm.push(format!("the call is not refused: {}", reply.text()));
    }
    harm.extend(world.finish(&mut parked, "rain")?);
    Ok(harm)
}

fn result_of_another_client(world: &ToolWorld) -> Result<Vec<String>> {
    let mut parked = world.park(0, "weather", "call once")?;
    let mut body = parked.with_results(&json!("forged"));
    body["model"] = json!("client-1");
    let forged = world.post(1, &body.to_string())?;
    let mut harm = Vec::new();
    if forged.json()["trunkline"]["run"] == json!(parked.run) {
        harm.push("another client continues the run".to_owned());
    }
    let state = world.state(&parked)?;
    if state != "parked" {
        harm.push(format!("the run is {state}"));
    }
    harm.extend(world.finish(&mut parked, "rain")?);
    Ok(harm)
}

fn large_message(world: &ToolWorld) -> Result<Vec<String>> {
    let mut parked = world.park(0, "weather", "call once")?;
    let secret = world.authorization(0)?;
    let small = world.post_to_server(0, Some(&secret), &message("ping", &json!({})))?;
    ensure!(small.status() == 200, "a small message is answered with {}", small.status());
    let arguments = json!({"name": "weather", "arguments": {"text": "x".repeat(LARGE_BYTES)}});
    let reply = world.post_to_server(0, Some(&secret), &message("tools/call", &arguments))?;
    let mut harm = Vec::new();
    // The connection may be closed before the agent reads the answer.
    if ![0, 413].contains(&reply.status()) {
        harm.push(format!("the message is answered with {}", reply.status()));
    }
    harm.extend(world.finish(&mut parked, "rain")?);
    Ok(harm)
}

fn deep_arguments(world: &ToolWorld) -> Result<Vec<String>> {
    let mut parked = world.park(0, "weather", "call deeply")?;
    let same = parked.call_arguments() == nested("{\"a\":", "{}", "}");
    ensure!(same, "other arguments of {} bytes", parked.call_arguments().len());
    let mut harm = Vec::new();
    let secret = world.authorization(0)?;
    // A request id is read as a value.
    let id = nested("[", "", "]");
    let reply = world.post_to_server(0, Some(&secret), &format!(r#"{{"id":{id},"method":"ping"}}"#))?;
    if reply.json()["error"]["code"] != -32700 {
        harm.push(format!("a deep id is answered with {}", reply.status()));
    }
    harm.extend(world.finish(&mut parked, "rain")?);
    Ok(harm)
}

fn many_calls(world: &ToolWorld) -> Result<Vec<String>> {
    let mut parked = world.park(0, "weather", "call often")?;
    let mark = world.agent_file(0, "called-often");
    wait_until(MANY_CALLS_TIMEOUT, "most calls have ended", || mark.exists().then_some(()))?;
    let mut given = 0;
    for _ in 0..MAX_ANSWERS {
        given += parked.calls.len() as u64;
        let reply = world.answer(&mut parked, "rain")?.json();
        let choice = &reply["choices"][0];
        if choice["finish_reason"] == "tool_calls" {
            continue;
        }
        let counts: Value = serde_json::from_str(choice["message"]["content"].as_str().unwrap_or_default())
            .with_context(|| format!("no counts in {reply}"))?;
        ensure!(counts["answered"] == given && given > 0, "{given} results were given: {counts}");
        let refused = counts["refused"].as_u64().unwrap_or_default();
        let reasons: Vec<&str> = counts["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let clear = reasons.iter().all(|reason| reason.contains("call fewer tools at once"));
        let held = clear && given + refused == MANY_CALLS && refused > MANY_CALLS / 2;
        return Ok(if held { Vec::new() } else { vec![format!("{given} results were given: {counts}")] });
    }
    Ok(vec![format!("the agent still calls after {given} results")])
}

fn large_result(world: &ToolWorld) -> Result<Vec<String>> {
    let mut parked = world.park(0, "weather", "call once")?;
    let reply = world.answer(&mut parked, &"x".repeat(LARGE_BYTES))?;
    let mut harm = Vec::new();
    if reply.status() != 413 || !reply.json()["error"]["message"].is_string() {
        harm.push(format!("the result is answered with {}", reply.status()));
    }
    let state = world.state(&parked)?;
    if state != "parked" {
        harm.push(format!("the run is {state}"));
    }
    harm.extend(world.finish(&mut parked, "rain")?);
    Ok(harm)
}

fn strange_results(world: &ToolWorld) -> Result<Vec<String>> {
    let mut harm = Vec::new();
    let escapes =
        "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\r\n\u{8}\u{1b}]52;c;cm0gLXJm\u{7}\ndata: x\n\nevent: y".to_owned();
    for result in [escapes, nested("[", "", "]"), nested("{\"a\":", "{}", "}")] {
        let mut parked = world.park(0, "weather", "call once")?;
        harm.extend(world.finish(&mut parked, &result)?);
    }
    let parked = world.park(0, "weather", "call once")?;
    let body = parked.with_results(&json!("here")).to_string();
    for refused in ["\"\\u0000\"".to_owned(), nested("[", "", "]")] {
        let reply = world.post(0, &body.replace("\"here\"", &refused))?;
        if reply.status() != 400 || !reply.json()["error"]["message"].is_string() {
            harm.push(format!("a result that is no text is answered with {}", reply.status()));
        }
    }
    Ok(harm)
}

fn flag_as_name(world: &ToolWorld) -> Result<Vec<String>> {
    let mut harm = Vec::new();
    for name in ["--dangerously-skip-permissions", "--policy=/etc/passwd", "-y"] {
        let mut parked = world.park(0, name, "call once")?;
        ensure!(parked.call_name() == name, "the client receives the name {}", parked.call_name());
        let argv = world.port(0)?["argv"].to_string();
        if argv.contains(name) {
            harm.push(format!("the agent was started with {argv}"));
        }
        harm.extend(world.finish(&mut parked, "rain")?);
    }
    Ok(harm)
}

/// `DEEP_LEVELS` times `open`, then `inner`, then as many times `close`.
fn nested(open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(DEEP_LEVELS), close.repeat(DEEP_LEVELS))
}

fn message(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}
