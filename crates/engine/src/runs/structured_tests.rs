use std::path::Path;

use serde_json::json;
use trunkline_core::api::Llm;
use trunkline_core::turn::{AnswerFormat, Json, JsonShape};

use super::*;

fn output(strict: bool) -> StructuredOutput {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = AnswerFormat { shape: JsonShape::Schema(Json::from(&schema)), strict, member: "format" };
    StructuredOutput::new(Arc::new(AnswerContract::compile(&format).unwrap()))
}

fn model() -> Model {
    Model::new("agent", Backend::Agent(Arc::new(Llm::Embedded)), Path::new("/"))
}

fn answer(content: &str) -> Answer {
    let usage = Usage { input_tokens: 10, output_tokens: 1, ..Usage::default() };
    Answer::new(content, usage, Finish::Stop)
}

fn check(output: &mut StructuredOutput, content: &str) -> AnswerCheck {
    output.check(&model(), CheckTime::BeforeShown, answer(content), Some(SessionId("s".into())), None)
}

fn accepted(check: AnswerCheck) -> Answer {
    match check {
        AnswerCheck::Accepted(answer) => answer,
        AnswerCheck::Repair(failure) | AnswerCheck::Rejected(failure) => panic!("{failure}"),
    }
}

#[test]
fn valid_answer_is_bare_json_without_notes() {
    let answer = accepted(check(&mut output(true), "```json\n{\"n\": 1}\n```"));
    assert_eq!((answer.content.as_str(), answer.notes.len(), answer.usage.input_tokens), ("{\"n\": 1}", 0, 10));
}

#[test]
fn repaired_answer_has_the_usage_of_both_turns() {
    let mut output = output(true);
    let AnswerCheck::Repair(failure) = check(&mut output, "{\"n\": \"one\"}") else { panic!("no repair") };
    assert_eq!(failure.category, Category::SchemaMismatch);
    let turn = Turn { messages: vec![Message::new(Role::User, "count")], ..Turn::default() };
    let sent = output.prepare(&turn, &model()).turn;
    let texts: Vec<&str> = sent.messages.iter().map(|message| message.text.as_str()).collect();
    assert!(texts[0].starts_with("count\n\nAnswer with exactly one JSON value"), "{texts:?}");
    assert_eq!((texts.len(), texts[1], sent.session.as_ref().map(|id| &*id.0)), (3, "{\"n\": \"one\"}", Some("s")));
    assert!(texts[2].contains("- /n: "), "{texts:?}");
    let answer = accepted(check(&mut output, "{\"n\": 1}"));
    assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens, answer.notes.len()), (20, 2, 1));
}

#[test]
fn answer_that_never_matches_is_a_failure_only_if_strict() {
    for (first, second, best) in [("prose", "more prose", "more prose"), ("{}", "prose", "{}"), ("{}", "[]", "[]")] {
        let mut strict = output(true);
        assert!(matches!(check(&mut strict, first), AnswerCheck::Repair(_)));
        let AnswerCheck::Rejected(failure) = check(&mut strict, second) else { panic!("not rejected") };
        assert!(failure.message.ends_with(&format!("The answer was:\n{best}")), "{}", failure.message);
        let mut lenient = output(false);
        assert!(matches!(check(&mut lenient, first), AnswerCheck::Repair(_)));
        let answer = accepted(check(&mut lenient, second));
        assert_eq!((answer.content.as_str(), answer.notes.len()), (best, 1));
    }
}

#[test]
fn calls_of_the_client_and_truncated_answers_are_not_repaired() {
    for finish in [Finish::ToolCalls, Finish::Length, Finish::ContentFilter] {
        let given = Answer { finish, ..answer("{\"n\":") };
        let checked = accepted(output(true).check(&model(), CheckTime::BeforeShown, given, None, None));
        assert_eq!((checked.content.as_str(), checked.notes.is_empty()), ("{\"n\":", finish == Finish::ToolCalls));
    }
}

#[test]
fn instruction_follows_a_tool_result_as_a_message_of_its_own() {
    let messages = vec![Message::new(Role::User, "q"), Message::new(Role::Tool, "r"), Message::new(Role::System, "s")];
    let turn = Turn { messages, ..Turn::default() };
    let sent = output(true).prepare(&turn, &model()).turn.into_owned();
    assert_eq!((sent.messages.len(), sent.messages[3].role, &*sent.messages[1].text), (4, Role::User, "r"));
}

#[test]
fn cli_that_passes_schemas_on_gets_no_instruction_in_its_messages() {
    let provider = trunkline_core::provider::built_in().remove("codex").unwrap();
    let codex = Model::new("codex", Backend::Program(Arc::new(provider)), Path::new("/"));
    let turn = Turn { messages: vec![Message::new(Role::User, "count")], ..Turn::default() };
    let closed = json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
    for (schema, passed_on) in [(closed, true), (json!({"type": "object"}), false)] {
        let format = AnswerFormat { shape: JsonShape::Schema(Json::from(&schema)), strict: true, member: "format" };
        let mut output = StructuredOutput::new(Arc::new(AnswerContract::compile(&format).unwrap()));
        let prepared = output.prepare(&turn, &codex);
        assert_eq!(prepared.schema.as_ref().map(|schema| schema.text.clone()), passed_on.then(|| schema.to_string()));
        assert_eq!(prepared.turn.messages[0].text == "count", passed_on);
        let checked = output.check(&codex, CheckTime::BeforeShown, answer("prose"), Some(SessionId("s".into())), None);
        assert!(matches!(checked, AnswerCheck::Repair(_)));
        let repair = output.prepare(&turn, &codex);
        let instruction = repair.schema.map(|schema| schema.instruction);
        assert_eq!(instruction, passed_on.then_some(None), "the session knows the schema");
    }
}

#[test]
fn answer_that_was_shown_is_not_repaired() {
    for (content, strict, accepted, notes) in [
        ("{\"n\": 1}", true, true, 0),
        ("It is {\"n\": 1}.", true, true, 1),
        ("prose", false, true, 1),
        ("prose", true, false, 0),
    ] {
        match output(strict).check(&model(), CheckTime::AfterShown, answer(content), None, None) {
            AnswerCheck::Accepted(answer) => {
                assert_eq!((accepted, answer.content.as_str(), answer.notes.len()), (true, content, notes));
            }
            AnswerCheck::Rejected(failure) => assert!(!accepted && failure.category == Category::SchemaMismatch),
            AnswerCheck::Repair(failure) => panic!("{failure}"),
        }
    }
}
