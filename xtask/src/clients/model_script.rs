//! The model's side of the cases *tools*, *schema* and *edit*: a script of the mock LLM that a real CLI calls. It is written for
//! one client, with words that no other place has, so that each step of a client must have worked for the next one.
//!
//! | case | the model |
//! |---|---|
//! | tools | calls `relay` with a text, calls it again with the result, and reports the second result |
//! | schema | answers with a JSON object; with `typed_tools`, it calls `relay` before and puts the result into the object |
//! | edit | makes the calls in the row of the client, and says that it is done |

use serde_json::{Map, Value, json};

use super::case::LabCase;
use super::row::{ClientRow, ToolLoop};

/// Words of a case.
#[derive(Debug, Clone)]
pub(super) struct CaseWords {
    /// In the prompt.
    pub(super) word: String,
    /// In the result of the tool, or in the answer of the model.
    pub(super) token: String,
}

/// Name of the tool that the scripts of libraries offer: it returns the token, a dash, and the text that it was called with.
const RELAY: &str = "relay";

/// Text of the first call of the tool.
pub(super) const FIRST_TEXT: &str = "first";

/// Beginning of the last answer in the case *tools*.
pub(super) const REPORT: &str = "The relay says";

/// Last answer in the case *edit*.
pub(super) const EDITED: &str = "The lighthouse has its new colour.";

/// Script for a client whose repository is `repo`.
pub(super) fn model_script(row: &ClientRow, repo: &str, words: impl Fn(LabCase) -> CaseWords) -> Value {
    let mut scenarios = tool_scenarios(row.tool_loop, &words(LabCase::Tools));
    scenarios.push(schema_scenario(row, &words(LabCase::Schema)));
    scenarios.push(edit_scenario(row, repo, &words(LabCase::Edit)));
    json!({"scenarios": scenarios, "default_response": {"content": "The model was asked for nothing."}})
}

/// Object of the case *schema*.
pub(super) fn typed_answer(row: &ClientRow, token: &str) -> Value {
    let keeper = if row.typed_tools { format!("{token}-{FIRST_TEXT}") } else { token.to_owned() };
    json!({"keeper": keeper, "height": 41, "lamps": ["red", "green"]})
}

fn tool_scenarios(style: ToolLoop, words: &CaseWords) -> Vec<Value> {
    let CaseWords { word, token } = words;
    let once = format!("{token}-{FIRST_TEXT}");
    let twice = format!("{token}-{once}");
    match style {
        ToolLoop::Results => vec![scenario(
            word,
            &[
                call(RELAY, &json!({"text": FIRST_TEXT})),
                call(RELAY, &json!({"text": "{{result}}"})),
                text(&format!("{REPORT} {{{{result}}}}.")),
            ],
        )],
        // The results are part of the next prompt. The first scenario that matches is played.
        ToolLoop::Prompts => vec![
            scenario(&twice, &[call("final_answer", &json!({"answer": format!("{REPORT} {twice}.")}))]),
            scenario(&once, &[call(RELAY, &json!({"text": once}))]),
            scenario(word, &[call(RELAY, &json!({"text": FIRST_TEXT}))]),
        ],
        ToolLoop::ReAct => vec![
            scenario(
                "observation_2",
                &[text(&fields(&[("reasoning", "It said so."), ("answer", &format!("{REPORT} {twice}."))]))],
            ),
            scenario(&twice, &[text(&react("finish", &json!({})))]),
            scenario(&once, &[text(&react(RELAY, &json!({"text": once})))]),
            scenario(word, &[text(&react(RELAY, &json!({"text": FIRST_TEXT})))]),
        ],
    }
}

fn schema_scenario(row: &ClientRow, words: &CaseWords) -> Value {
    let mut answer = typed_answer(row, &words.token);
    let mut steps = Vec::new();
    if row.typed_tools {
        steps.push(call(RELAY, &json!({"text": FIRST_TEXT})));
        answer["keeper"] = "{{result}}".into();
    }
    steps.push(match &row.schema_tool {
        Some(tool) => call(tool, &answer),
        None => text(&answer.to_string()),
    });
    scenario(&words.word, &steps)
}

fn edit_scenario(row: &ClientRow, repo: &str, words: &CaseWords) -> Value {
    let fill = |text: &str| text.replace("{repo}", repo).replace("{token}", &words.token);
    let mut steps: Vec<Value> = row.edit.iter().map(|edit| call(&edit.tool, &filled(&edit.arguments, &fill))).collect();
    steps.push(text(EDITED));
    scenario(&words.word, &steps)
}

/// Arguments with all texts replaced.
fn filled(arguments: &Map<String, Value>, fill: &impl Fn(&str) -> String) -> Value {
    fn value(given: &Value, fill: &impl Fn(&str) -> String) -> Value {
        match given {
            Value::String(text) => fill(text).into(),
            Value::Array(items) => items.iter().map(|item| value(item, fill)).collect(),
            Value::Object(members) => filled(members, fill),
            Value::Null | Value::Bool(_) | Value::Number(_) => given.clone(),
        }
    }
    Value::Object(arguments.iter().map(|(name, given)| (name.clone(), value(given, fill))).collect())
}

fn scenario(trigger: &str, steps: &[Value]) -> Value {
    json!({"trigger": trigger, "steps": steps})
}

fn text(content: &str) -> Value {
    json!({"response": {"content": content}})
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({"response": {"tool_calls": [{"function": {"name": name, "arguments": arguments}}]}})
}

/// A step of DSPy's ReAct, in the format of its prompts.
fn react(tool: &str, arguments: &Value) -> String {
    fields(&[("next_thought", "I ask the tool."), ("next_tool_name", tool), ("next_tool_args", &arguments.to_string())])
}

fn fields(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("[[ ## {name} ## ]]\n{value}\n\n")).collect();
    format!("{}[[ ## completed ## ]]", pairs.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(case: LabCase) -> CaseWords {
        CaseWords { word: format!("word-{}", case.name()), token: format!("token-{}", case.name()) }
    }

    #[test]
    fn script_is_written_for_every_client() {
        for row in ClientRow::all().unwrap() {
            let script = model_script(&row, "/repo", words);
            let scenarios = script["scenarios"].as_array().unwrap();
            let find = |trigger: &str| scenarios.iter().find(|scenario| scenario["trigger"] == trigger).unwrap();
            let edit = find("word-edit");
            assert_eq!(edit["steps"].as_array().unwrap().len(), row.edit.len() + 1, "{}", row.name);
            if !row.edit.is_empty() {
                assert!(edit.to_string().contains("token-edit"), "{}: {edit}", row.name);
                assert!(!edit.to_string().contains("{repo}"), "{}: {edit}", row.name);
            }
            let schema = find("word-schema");
            assert_eq!(schema["steps"].as_array().unwrap().len(), 1 + usize::from(row.typed_tools), "{}", row.name);
        }
    }
}
