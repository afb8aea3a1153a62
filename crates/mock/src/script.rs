//! Script: the answers of the mock, as data.
//!
//! The last user message selects the scenario, and the number of tool results after it selects the step. So the mock
//! needs no state besides the conversation in the request. docs/MOCK.md describes the file format.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use trunkline_core::near::did_you_mean;

use crate::fault::{self, DeliveryPlan, ScriptedError, Stall};

/// The default script, and a template for new ones.
pub const BUILT_IN: &str = include_str!("built-in.json");

/// Answer when a scenario has no more steps.
const COMPLETE: &str = "Scenario complete.";

/// Place of the last tool result in an answer.
const RESULT_MARK: &str = "{{result}}";

/// Answer when no scenario matches and the script has no `default_response`.
const NOT_UNDERSTOOD: &str = "I'm a mock server. I only understand specific test scenarios.";

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MockScript {
    #[serde(rename = "$schema", default)]
    _schema: Option<IgnoredField>,
    scenarios: Vec<ScriptScenario>,
    #[serde(default)]
    default_response: DefaultResponse,
}

/// Conversation that starts when the trigger matches.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptScenario {
    #[serde(rename = "name")]
    _name: Option<String>,
    /// Matches when the last user message contains it, ignoring case.
    #[serde(deserialize_with = "lowercase")]
    trigger: String,
    steps: Vec<ScriptStep>,
}

/// One answer of a scenario, and how it is delivered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptStep {
    pub outcome: StepOutcome,
    pub delivery: DeliveryPlan,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepOutcome {
    Response(ScriptedResponse),
    Error(ScriptedError),
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedResponse {
    pub content: Option<String>,
    #[serde(default)]
    pub tool_calls: Vec<ScriptedCall>,
}

/// Tool call in OpenAI's format: one of our four tools, or any other tool by its own name.
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
    /// JSON as text. It may be invalid, because models make such mistakes too.
    #[serde(deserialize_with = "text_or_object")]
    pub arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallKind {
    #[default]
    Function,
}

/// Answer when no scenario matches. It has no tool calls: the client would return with the result and get the same call
/// again, forever.
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

/// Error in a script, with line and column counted from one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} column {column}: {message}")]
pub struct ScriptError {
    pub line: usize,
    pub column: usize,
    pub message: String,
    pub hint: Option<String>,
}

impl MockScript {
    /// Parses a script.
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
        Self::parse(BUILT_IN).expect("the built-in script is valid: a test parses it")
    }

    /// Returns the step for a user message that is followed by `results` tool results. The first matching scenario
    /// wins.
    #[must_use]
    pub(crate) fn step(&self, user_message: &str, results: usize) -> ScriptStep {
        let message = user_message.to_lowercase();
        match self.scenarios.iter().find(|scenario| message.contains(&scenario.trigger)) {
            Some(scenario) => scenario.steps.get(results).cloned().unwrap_or_else(|| ScriptStep::text(COMPLETE)),
            None => ScriptStep::text(&self.default_response.content),
        }
    }
}

impl ScriptedResponse {
    /// Replaces `{{result}}` in the text and in the arguments of calls by the last tool result.
    #[must_use]
    pub(crate) fn with_result(mut self, result: &str) -> Self {
        self.content = self.content.map(|text| text.replace(RESULT_MARK, result));
        // Arguments are JSON, and the mark is within a string of it.
        let quoted = serde_json::Value::from(result).to_string();
        let escaped = &quoted[1..quoted.len() - 1];
        for call in &mut self.tool_calls {
            call.function.arguments = call.function.arguments.replace(RESULT_MARK, escaped);
        }
        self
    }
}

impl ScriptStep {
    fn text(content: &str) -> Self {
        let response = ScriptedResponse { content: Some(content.to_owned()), tool_calls: Vec::new() };
        Self { outcome: StepOutcome::Response(response), delivery: DeliveryPlan::default() }
    }
}

/// Fields of a step in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFields {
    response: Option<ScriptedResponse>,
    error: Option<ScriptedError>,
    #[serde(default, deserialize_with = "fault::pause")]
    delay_ms: Duration,
    #[serde(default, deserialize_with = "fault::pause")]
    pace_ms: Duration,
    #[serde(default, deserialize_with = "fault::stall")]
    stall: Option<Stall>,
    drop_after: Option<usize>,
    #[serde(default, deserialize_with = "fault::piece_size")]
    chunk_bytes: Option<usize>,
}

/// Written by hand, because an error of `#[serde(try_from)]` would have the position after the step.
impl<'de> Deserialize<'de> for ScriptStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StepVisitor;
        impl<'de> Visitor<'de> for StepVisitor {
            type Value = ScriptStep;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScriptStep, A::Error> {
                let fields = StepFields::deserialize(MapAccessDeserializer::new(map))?;
                ScriptStep::try_from(fields).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_map(StepVisitor)
    }
}

impl TryFrom<StepFields> for ScriptStep {
    type Error = &'static str;

    fn try_from(step: StepFields) -> Result<Self, Self::Error> {
        let outcome = match (step.response, step.error) {
            (Some(_), Some(_)) => return Err("a step has a `response` or an `error`, not both"),
            (Some(response), None) => StepOutcome::Response(response),
            (None, Some(error)) => StepOutcome::Error(error),
            (None, None) if step.stall == Some(Stall::BeforeHeaders) => {
                StepOutcome::Response(ScriptedResponse::default())
            }
            (None, None) => return Err("a step needs a `response`, an `error` or `\"stall\": true`"),
        };
        if step.stall.is_some() && step.drop_after.is_some() {
            return Err("a step has `stall` or `drop_after`, not both: a connection that stalls is not dropped");
        }
        let delivery = DeliveryPlan {
            delay: step.delay_ms,
            pace: step.pace_ms,
            stall: step.stall,
            drop_after: step.drop_after,
            chunk_bytes: step.chunk_bytes,
        };
        Ok(Self { outcome, delivery })
    }
}

/// Field that only editors use, such as `$schema`.
#[derive(Debug, Clone, PartialEq)]
struct IgnoredField;

impl<'de> Deserialize<'de> for IgnoredField {
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
        None => Err(D::Error::custom("arguments must be an object, or JSON in a string")),
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
