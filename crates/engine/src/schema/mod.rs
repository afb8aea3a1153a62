//! Answers in the form that a client asked for: JSON, or JSON that matches a schema.
//!
//! ```text
//! AnswerFormat ──compile──▶ AnswerContract ──instruction──▶ end of the prompt
//!  (limits)                    │
//!                 answer ──check──▶ Accepted(bare JSON) or Rejected(problems) ──correction──▶ one more turn
//!                        (extract, cost)
//! ```
//!
//! Schemas come from clients, answers from models: neither may hang the gateway or end it. Nothing is fetched, patterns run
//! on a linear engine, and the number of steps of a check is computed before it is made. When an answer is checked, and
//! what follows, is decided in [`crate::runs`].

mod cost;
mod deep_stack;
mod extract;
mod limits;
#[cfg(test)]
mod tests;
mod wording;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use trunkline_core::provider::SchemaRules;
use trunkline_core::turn::{AnswerFormat, JsonShape};

use cost::exceeds;
use deep_stack::on_deep_stack;

/// Maximum size of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 256 * 1024;

/// Maximum number of problems that are reported for an answer.
const MAX_PROBLEMS: usize = 10;

/// Maximum length of the description of a problem.
const MAX_PROBLEM_CHARS: usize = 300;

/// Depth beyond which an answer is not checked.
const MAX_ANSWER_DEPTH: usize = 64;

/// Form of an answer that can be checked.
pub(crate) struct AnswerContract {
    shape: ContractShape,
    strict: bool,
}

enum ContractShape {
    Object,
    Schema { text: String, schema: Value, validator: Validator },
}

/// Outcome of a check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The answer as bare JSON.
    Accepted(String),
    Rejected(Rejection),
}

/// Reasons why an answer was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Whether the answer is JSON at all.
    pub(crate) is_json: bool,
    /// At most [`MAX_PROBLEMS`], each with the JSON pointer of its place.
    pub(crate) problems: Vec<String>,
}

impl AnswerContract {
    /// Compiles the form. The error says which part of the schema is invalid, and why.
    pub(crate) fn compile(format: &AnswerFormat) -> Result<Self, String> {
        let shape = match &format.shape {
            JsonShape::Object => ContractShape::Object,
            JsonShape::Schema(json) => {
                let text = json.as_str().to_owned();
                on_deep_stack(|| compile(text)).map_err(|error| format!("cannot be compiled now: {error}"))??
            }
        };
        Ok(Self { shape, strict: format.strict })
    }

    /// Returns the schema as a CLI with these rules passes it on to its model. None if the rules forbid it.
    pub(crate) fn native(&self, rules: SchemaRules) -> Option<String> {
        match &self.shape {
            ContractShape::Object => None,
            ContractShape::Schema { text, schema, .. } => rules.native(text, schema),
        }
    }

    /// Whether an answer in another form is a failure of the run.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Checks an answer. Code fences and prose around the JSON are removed if the rest is valid.
    pub(crate) fn check(&self, answer: &str) -> Verdict {
        on_deep_stack(|| self.check_here(answer)).unwrap_or_else(|error| {
            Verdict::Rejected(Rejection { is_json: false, problems: vec![format!("cannot be checked now: {error}")] })
        })
    }

    fn check_here(&self, answer: &str) -> Verdict {
        let mut first = None;
        for candidate in extract::candidates(answer) {
            let problems = self.problems(&candidate.value);
            if problems.is_empty() {
                return Verdict::Accepted(candidate.text.to_owned());
            }
            first.get_or_insert(problems);
        }
        Verdict::Rejected(match first {
            Some(problems) => Rejection { is_json: true, problems },
            None => Rejection { is_json: false, problems: vec![extract::why_not_json(answer)] },
        })
    }

    /// The first problems of a value, or none if it is valid.
    fn problems(&self, value: &Value) -> Vec<String> {
        if limits::depth_exceeds(value, MAX_ANSWER_DEPTH) {
            return vec![format!("the JSON is nested deeper than {MAX_ANSWER_DEPTH} levels")];
        }
        match &self.shape {
            ContractShape::Object if value.is_object() => Vec::new(),
            ContractShape::Object => vec!["the JSON is not an object".to_owned()],
            ContractShape::Schema { schema, validator, .. } => {
                if exceeds(schema, value) {
                    return vec!["the schema takes too many steps to check this answer".to_owned()];
                }
                let describe = |error: jsonschema::ValidationError<'_>| {
                    let place = error.instance_path().to_string();
                    let place = if place.is_empty() { "the whole answer".to_owned() } else { place };
                    let text = format!("{place}: {}", error.masked());
                    text.chars().take(MAX_PROBLEM_CHARS).collect()
                };
                validator.iter_errors(value).take(MAX_PROBLEMS).map(describe).collect()
            }
        }
    }
}

fn compile(text: String) -> Result<ContractShape, String> {
    let schema = limits::read(&text)?;
    let options = jsonschema::options()
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES))
        .should_validate_formats(false);
    let validator = options.build(&schema).map_err(|error| {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { String::new() } else { format!("at {place}: ") };
        format!("{place}{error}").chars().take(MAX_PROBLEM_CHARS).collect::<String>()
    })?;
    Ok(ContractShape::Schema { text, schema, validator })
}
