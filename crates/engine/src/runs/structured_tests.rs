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
    output.check(&model(), answer(content), Some(SessionId("s".into())), None)
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
    let sent = output.prepare(&turn, &model());
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
        let checked = accepted(output(true).check(&model(), given, None, None));
        assert_eq!((checked.content.as_str(), checked.notes.is_empty()), ("{\"n\":", finish == Finish::ToolCalls));
    }
}

#[test]
fn instruction_follows_a_tool_result_as_a_message_of_its_own() {
    let messages = vec![Message::new(Role::User, "q"), Message::new(Role::Tool, "r"), Message::new(Role::System, "s")];
    let turn = Turn { messages, ..Turn::default() };
    let sent = output(true).prepare(&turn, &model()).into_owned();
    assert_eq!((sent.messages.len(), sent.messages[3].role, &*sent.messages[1].text), (4, Role::User, "r"));
}
