use proptest::prelude::*;
use serde_json::{Value, json};
use trunkline_core::turn::{AnswerFormat, Json, JsonShape};

use super::*;

fn contract(schema: &Value) -> Result<AnswerContract, String> {
    compiled(JsonShape::Schema(Json::from(schema)))
}

fn compiled(shape: JsonShape) -> Result<AnswerContract, String> {
    AnswerContract::compile(&AnswerFormat { shape, strict: true, member: "response_format" })
}

fn accepted(contract: &AnswerContract, answer: &str) -> Option<String> {
    match contract.check(answer) {
        Verdict::Accepted(text) => Some(text),
        Verdict::Rejected(_) => None,
    }
}

fn problems(contract: &AnswerContract, answer: &str) -> Vec<String> {
    match contract.check(answer) {
        Verdict::Accepted(_) => Vec::new(),
        Verdict::Rejected(rejection) => rejection.problems,
    }
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name"], "additionalProperties": false,
    })
}

#[test]
fn json_is_found_behind_fences_and_prose_when_the_rest_is_valid() {
    let bare = r#"{"name": "Ada", "tags": ["a", "b"]}"#;
    let contract = contract(&person()).unwrap();
    for answer in [
        bare.to_owned(),
        format!("\n  {bare}\n"),
        format!("```json\n{bare}\n```"),
        format!("Here it is:\n\n```\n{bare}\n```\nDone."),
        format!("~~~~json\n{bare}\n~~~~"),
        format!("  ```JSON\r\n{bare}\r\n  ```\r\n"),
        format!("The answer is {bare} as you asked."),
        format!("Use {{placeholders}} and [links]: {bare}"),
        format!("First try:\n```json\n{{\"name\": 7}}\n```\nCorrected:\n```json\n{bare}\n```"),
        format!("```sh\nls\n```\n{bare}"),
    ] {
        assert_eq!(accepted(&contract, &answer).as_deref(), Some(bare), "{answer}");
    }
}

#[test]
fn part_of_a_broken_answer_is_not_the_answer() {
    let object = compiled(JsonShape::Object).unwrap();
    for answer in [
        r#"{"outer": {"inner": 1}, oops}"#,
        r#"{"outer": {"inner": 1}"#,
        "```json\n{\"outer\": {\"inner\": 1},}\n```",
        r#"[{"inner": 1}, }"#,
        "",
        "no JSON here",
        "[1, 2]",
        "7",
    ] {
        assert_eq!(accepted(&object, answer), None, "{answer}");
    }
    assert_eq!(problems(&object, " "), ["the answer is empty"]);
    assert_eq!(problems(&object, "[1]"), ["the JSON is not an object"]);
    assert!(problems(&object, "hello")[0].starts_with("the answer is not JSON: "));
}

#[test]
fn problems_have_their_place() {
    let contract = contract(&person()).unwrap();
    let found = problems(&contract, r#"{"name": 7, "tags": ["a", 3]}"#);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|problem| problem.starts_with("/name: ")), "{found:?}");
    assert!(found.iter().any(|problem| problem.starts_with("/tags/1: ")), "{found:?}");
    let found = problems(&contract, "{}");
    assert!(found[0].starts_with("the whole answer: ") && found[0].contains("name"), "{found:?}");
    let many = json!({"type": "array", "items": {"type": "string"}});
    let contract = super::tests::contract(&many).unwrap();
    assert_eq!(problems(&contract, &json!(vec![1; 500]).to_string()).len(), MAX_PROBLEMS);
    let long = problems(&contract, &json!([[["x".repeat(10_000)]]]).to_string());
    assert!(long[0].chars().count() <= MAX_PROBLEM_CHARS);
}

#[test]
fn schemas_of_every_draft_are_checked() {
    for (schema, valid, invalid) in [
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"type": "string"}},
            "type": "array", "items": {"$ref": "#/definitions/a"}}),
            "[\"x\"]",
            "[1]",
        ),
        (
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/x",
            "$defs": {"a/b": {"type": "string"}}, "$ref": "#/$defs/a~1b"}),
            "\"x\"",
            "1",
        ),
        (json!({"$defs": {"a b": {"const": 1}}, "$ref": "#/$defs/a%20b"}), "1", "2"),
        (
            json!({"type": "object", "properties": {"$ref": {"type": "string"}, "$id": {"type": "string"},
            "enum": {"type": "integer"}}}),
            r#"{"$ref": "http://x", "enum": 1}"#,
            r#"{"enum": "a"}"#,
        ),
        (json!({"enum": [{"$ref": "http://example.org"}]}), r#"{"$ref": "http://example.org"}"#, "1"),
        (json!({}), "null", "nul"),
    ] {
        let contract = contract(&schema).unwrap();
        assert!(accepted(&contract, valid).is_some(), "{schema} {valid}");
        assert!(accepted(&contract, invalid).is_none(), "{schema} {invalid}");
    }
}

#[test]
fn invalid_and_hostile_schemas_are_refused_with_their_place() {
    let mut deep = json!({"type": "string"});
    for _ in 0..40 {
        deep = json!({"properties": {"a": deep}});
    }
    let chain = |length: usize| {
        let definition = |n: usize| {
            let next = json!({"properties": {"x": {"$ref": format!("#/$defs/a{}", n + 1)}}});
            (format!("a{n}"), if n == length { json!({}) } else { next })
        };
        json!({"$defs": (0..=length).map(definition).collect::<serde_json::Map<_, _>>(), "$ref": "#/$defs/a0"})
    };
    let patterns: serde_json::Map<_, _> = (0..300).map(|n| (format!("p{n}"), json!({"pattern": "a"}))).collect();
    for (schema, expected) in [
        (json!({"properties": {"a": {"type": "strng"}}}), "at /properties/a/type: "),
        (json!({"$ref": "https://example.org/schema.json"}), "/$ref: `https://example.org/schema.json` is not within"),
        (json!({"items": {"$ref": "file:///etc/passwd"}}), "/items/$ref: `file:///etc/passwd` is not within"),
        (json!({"items": {"$ref": "other.json#/a"}}), "/items/$ref: `other.json#/a` is not within"),
        (json!({"$ref": "#anchor"}), "/$ref: `#anchor` is not within"),
        (json!({"$ref": "#/$defs/none"}), "/$ref: there is no `#/$defs/none`"),
        (json!({"$defs": {"a": {"$id": "https://example.org/b"}}}), "/$defs/a/$id: only the whole schema"),
        (json!({"$schema": "https://example.org/meta"}), "Unknown meta-schema"),
        (json!({"pattern": "(?=a)b"}), "(?=a)b"),
        (json!({"pattern": "(a)\\1"}), "(a)"),
        (json!({"pattern": "\\w{1000}{100}"}), "\\w"),
        (json!({"properties": patterns}), "more than 256 patterns"),
        (json!([1]), "not an object"),
        (json!({"description": "x".repeat(1024 * 1024)}), "larger than 1048576 bytes"),
        (deep, "deeper than 64 levels"),
        (chain(3000), "more than 4096 levels"),
    ] {
        let error = contract(&schema).err().unwrap_or_default();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn deepest_allowed_schema_and_answer_fit_the_stack() {
    let definition = |n: usize| (format!("a{n}"), json!({"allOf": [{"$ref": format!("#/$defs/a{}", n + 1)}]}));
    let mut definitions: serde_json::Map<_, _> = (0..1000).map(definition).collect();
    definitions.insert("a1000".to_owned(), json!({"properties": {"x": {"$ref": "#/$defs/a0"}}}));
    let contract = contract(&json!({"$defs": definitions, "$ref": "#/$defs/a0"})).unwrap();
    assert!(accepted(&contract, "{}").is_some());
    let nested = |depth: usize| format!("{}{{}}{}", "{\"x\":".repeat(depth), "}".repeat(depth));
    assert!(accepted(&contract, &nested(2)).is_some());
    assert_eq!(problems(&contract, &nested(20)), ["the schema takes too many steps to check this answer"]);
    assert_eq!(problems(&contract, &nested(100)), ["the JSON is nested deeper than 64 levels"]);
}

#[test]
fn loops_of_references_end() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"anyOf": [{"$ref": "#"}, {"not": {"$ref": "#"}}]}),
    ] {
        contract(&schema).unwrap().check("{\"a\": 1}");
    }
    let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false});
    let contract = contract(&tree).unwrap();
    assert!(accepted(&contract, r#"{"next": {"next": {}}}"#).is_some());
    assert!(accepted(&contract, r#"{"next": {"next": {"other": 1}}}"#).is_none());
}

#[test]
fn schemas_that_take_exponential_time_are_not_run() {
    let definition = |n: usize| {
        let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
        (format!("a{n}"), json!({"allOf": [next, next]}))
    };
    let mut definitions: serde_json::Map<_, _> = (0..60).map(definition).collect();
    definitions.insert("a60".to_owned(), json!({"type": "string"}));
    let laughs = json!({"$defs": definitions, "$ref": "#/$defs/a0"});
    let child = json!({"properties": {"a": {"$ref": "#"}}});
    let twice_per_level = json!({"anyOf": [child, child], "allOf": [child, child]});
    let deep = format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60));
    for (schema, answer) in [(laughs, "\"x\""), (twice_per_level, deep.as_str())] {
        let contract = contract(&schema).unwrap();
        assert_eq!(problems(&contract, answer), ["the schema takes too many steps to check this answer"]);
    }
}

#[test]
fn catastrophic_pattern_runs_in_linear_time() {
    let contract = contract(&json!({"type": "string", "pattern": "^(a+)+$"})).unwrap();
    assert!(accepted(&contract, &json!("a".repeat(50_000) + "!").to_string()).is_none());
    assert!(accepted(&contract, "\"aaa\"").is_some());
}

#[test]
fn texts_for_the_model_name_the_schema_and_the_problems() {
    let contract = contract(&person()).unwrap();
    assert!(contract.instruction().ends_with(&format!("JSON Schema:\n{}", person())));
    let Verdict::Rejected(rejection) = contract.check(r#"{"name": 7}"#) else { panic!("accepted") };
    assert!(rejection.is_json);
    assert!(contract.correction(&rejection).contains("\n- /name: "));
    assert!(compiled(JsonShape::Object).unwrap().instruction().contains("one JSON object"));
}

fn json_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~\u{e4}`{}\\[\\]\n]{0,12}".prop_map(Value::from),
    ];
    let nested = scalar.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z`{]{0,4}", inner, 0..4).prop_map(|members| json!(members)),
        ]
    });
    prop::collection::btree_map("[a-z`{]{0,4}", nested, 0..4).prop_map(|members| json!(members))
}

proptest! {
    #[test]
    fn any_object_survives_fences_and_prose(
        value in json_value(),
        before in "[A-Za-z ,.:!\n]{0,30}",
        after in "[A-Za-z ,.:!\n]{0,30}",
        fence in prop_oneof![Just(""), Just("```"), Just("~~~~")],
        pretty in any::<bool>(),
    ) {
        let bare = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
        let answer = match fence {
            "" => format!("{before}{bare}{after}"),
            fence => format!("{before}\n{fence}json\n{bare}\n{fence}\n{after}"),
        };
        prop_assert_eq!(accepted(&compiled(JsonShape::Object).unwrap(), &answer), Some(bare));
    }

    #[test]
    fn any_text_can_be_checked(answer in any::<String>()) {
        if let Verdict::Accepted(text) = compiled(JsonShape::Object).unwrap().check(&answer) {
            prop_assert!(serde_json::from_str::<serde_json::Map<String, Value>>(&text).is_ok());
        }
    }
}
