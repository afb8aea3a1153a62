//! A script: what the mock answers, as data.
//!
//! The last user message chooses the scenario, and the tool results after it choose the step; so the conversation itself
//! is all the state there is. What a file may say is in docs/MOCK.md.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use trunkline_core::near::did_you_mean;

use crate::fault::{self, Delivery, ErrorAnswer, Stall};

/// The script that is played when none is given, and a start for one's own.
pub const BUILT_IN: &str = include_str!("built-in.json");

/// What is said when a scenario has no more steps.
const COMPLETE: &str = "Scenario complete.";

/// What is said when no scenario matches and the script has no answer for that.
const NOT_UNDERSTOOD: &str = "I'm a mock server. I only understand specific test scenarios.";

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    #[serde(rename = "$schema", default)]
    _schema: Option<Ignored>,
    scenarios: Vec<Scenario>,
    #[serde(default)]
    default_response: DefaultResponse,
}

/// A conversation that a trigger begins.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    #[serde(rename = "name")]
    _name: Option<String>,
    /// Matches when the last user message has it, in whatever case.
    #[serde(deserialize_with = "lowercase")]
    trigger: String,
    steps: Vec<Step>,
}

/// One answer of a scenario, and what happens to it on its way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub outcome: Outcome,
    pub delivery: Delivery,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Response(Response),
    Error(ErrorAnswer),
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Response {
    pub content: Option<String>,
    #[serde(default)]
    pub tool_calls: Vec<ScriptedCall>,
}

/// A call as OpenAI writes it, of one of our four tools or of any other by its own name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedCall {
    pub id: Option<String>,
    #[serde(rename = "type", default)]
    _kind: CallKind,
    pub function: ScriptedFunction,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedFunction {
    pub name: String,
    /// As text, which need not be valid JSON: models get that wrong, too.
    #[serde(deserialize_with = "text_or_object")]
    pub arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallKind {
    #[default]
    Function,
}

/// No calls here: whoever made one would come back with its result, and be answered with the same call again.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultResponse {
    content: String,
}

impl Default for DefaultResponse {
    fn default() -> Self {
        Self { content: NOT_UNDERSTOOD.to_owned() }
    }
}

/// What is wrong with a script, and where: line and column, counted from one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} column {column}: {message}")]
pub struct ScriptError {
    pub line: usize,
    pub column: usize,
    pub message: String,
    pub hint: Option<String>,
}

impl Script {
    /// Reads a script.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        serde_json::from_str(text).map_err(|error| {
            let whole = error.to_string();
            let message = whole.split(" at line ").next().unwrap_or(&whole).to_owned();
            let hint = did_you_mean(&message);
            ScriptError { line: error.line().max(1), column: error.column().max(1), message, hint }
        })
    }

    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).expect("a test reads it")
    }

    /// What follows `results` tool results after a user message. The first scenario of the file that matches is played.
    #[must_use]
    pub(crate) fn step(&self, user_message: &str, results: usize) -> Step {
        let message = user_message.to_lowercase();
        match self.scenarios.iter().find(|scenario| message.contains(&scenario.trigger)) {
            Some(scenario) => scenario.steps.get(results).cloned().unwrap_or_else(|| Step::saying(COMPLETE)),
            None => Step::saying(&self.default_response.content),
        }
    }
}

impl Step {
    fn saying(content: &str) -> Self {
        let response = Response { content: Some(content.to_owned()), tool_calls: Vec::new() };
        Self { outcome: Outcome::Response(response), delivery: Delivery::default() }
    }
}

/// A step as written: flat.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStep {
    response: Option<Response>,
    error: Option<ErrorAnswer>,
    #[serde(default, deserialize_with = "fault::pause")]
    delay_ms: Duration,
    #[serde(default, deserialize_with = "fault::pause")]
    pace_ms: Duration,
    #[serde(default, deserialize_with = "fault::stall")]
    stall: Option<Stall>,
    drop_after: Option<usize>,
    #[serde(default, deserialize_with = "fault::piece")]
    chunk_bytes: Option<usize>,
}

/// By hand, because the error of a `try_from` would point behind the step, at whatever comes next.
impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Checked;
        impl<'de> Visitor<'de> for Checked {
            type Value = Step;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Step, A::Error> {
                let written = WrittenStep::deserialize(MapAccessDeserializer::new(map))?;
                Step::try_from(written).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_map(Checked)
    }
}

impl TryFrom<WrittenStep> for Step {
    type Error = &'static str;

    fn try_from(step: WrittenStep) -> Result<Self, Self::Error> {
        let outcome = match (step.response, step.error) {
            (Some(_), Some(_)) => return Err("a step has a `response` or an `error`, not both"),
            (Some(response), None) => Outcome::Response(response),
            (None, Some(error)) => Outcome::Error(error),
            (None, None) if step.stall == Some(Stall::AtOnce) => Outcome::Response(Response::default()),
            (None, None) => return Err("a step needs a `response`, an `error` or `\"stall\": true`"),
        };
        if step.stall.is_some() && step.drop_after.is_some() {
            return Err("a step has `stall` or `drop_after`, not both: a connection that stalls is not dropped");
        }
        let delivery = Delivery {
            delay: step.delay_ms,
            pace: step.pace_ms,
            stall: step.stall,
            drop_after: step.drop_after,
            chunk_bytes: step.chunk_bytes,
        };
        Ok(Self { outcome, delivery })
    }
}

/// For editors, not for us.
#[derive(Debug, Clone, PartialEq)]
struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

fn lowercase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| text.to_lowercase())
}

fn text_or_object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None if value.is_object() => Ok(value.to_string()),
        None => Err(D::Error::custom("arguments are an object, or JSON in a string")),
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
