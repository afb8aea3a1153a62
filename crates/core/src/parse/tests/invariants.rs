//! The four numbered invariants of the adapter protocol, for every built-in provider and the three plain formats.

use proptest::prelude::*;

use super::super::*;
use super::agent_formats;
use crate::failure::Category;
use crate::provider;
use crate::vocabulary::Normalize;

/// Output of a CLI, and its content.
const ANSWERS: [(&[Format], &str, &str); 9] = [
    (&[Format::Text], "Hello! I'm an AI assistant.\n", "Hello! I'm an AI assistant."),
    (&[Format::Json], r#"{"content": "Hello! How can I help you?"}"#, "Hello! How can I help you?"),
    (&[Format::Json], r#"{"result": "no", "text": "yes"}"#, "yes"),
    (&[Format::Json], r#"{"content": [{"type": "text", "text": "Hi"}]}"#, "Hi"),
    (&[Format::Json], r#"{"choices": [{"message": {"content": "Hi"}}]}"#, "Hi"),
    (&[Format::Json], r#"{"message": {"text": "Hi"}}"#, "Hi"),
    (
        &[Format::Claude, Format::StreamJson],
        "{\"type\":\"turn.started\",\"id\":\"turn_123\"}\n{\"type\":\"content\",\"content\":\"Hello! \"}\n\
         {\"type\":\"content\",\"content\":\"How can I help?\"}\n\
         {\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":10,\"output_tokens\":8}}\n",
        "Hello! How can I help?",
    ),
    (
        &[Format::Codex, Format::StreamJson],
        "{\"type\":\"thread.started\",\"thread_id\":\"thread_abc\"}\n\
         {\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"Here's my response.\"}}\n\
         {\"type\":\"turn.completed\"}\n",
        "Here's my response.",
    ),
    (
        &[Format::Ax, Format::StreamJson],
        "{\"role\":\"user\",\"content\":\"Hello\"}\n{\"role\":\"assistant\",\"content\":\"Hi there!\"}\n",
        "Hi there!",
    ),
];

/// Message of each category, and whether the protocol allows a retry and a fallback.
const WORDINGS: [(Category, &str, bool, bool); 10] = [
    (Category::Quota, "insufficient_quota", false, true),
    (Category::RateLimit, "429 Too Many Requests", true, false),
    (Category::Authentication, "invalid_api_key", false, false),
    (Category::Validation, "invalid_request", false, false),
    (Category::Network, "connect ECONNREFUSED 10.0.0.1", true, true),
    (Category::Server, "503 Service Unavailable", true, true),
    (Category::Timeout, "the request timed out", true, true),
    (Category::NotFound, "model_not_found", false, true),
    (Category::Configuration, "cli_not_installed", false, false),
    (Category::Unknown, "the dog ate it", false, true),
];

fn decode(format: Format, stdout: &[u8], stderr: &str, ending: Ending<'_>) -> Conclusion {
    let mut decoder = Decoder::new(format, Context { program: "cli".into(), ..Context::default() });
    let _events = decoder.push(stdout);
    decoder.conclude(ending, stderr, "")
}

/// Decodes the output with each built-in provider.
fn decode_as_each(stdout: &[u8], stderr: &str, ending: Ending<'_>) -> Vec<(String, Conclusion)> {
    let each = provider::built_in().into_iter().map(|(name, provider)| {
        let mut decoder = provider.decoder(Normalize::None, OutputForm::Streamed);
        let _events = decoder.push(stdout);
        (name, decoder.conclude(ending, stderr, ""))
    });
    each.collect()
}

proptest! {
    /// INV-CLI-PARSE-001: parse without exception.
    #[test]
    fn inv_cli_parse_001_any_output_gives_an_answer_or_a_failure(
        stdout in prop::collection::vec(any::<u8>(), 0..120), stderr in "\\PC{0,40}", code in -3i32..4,
    ) {
        let ending = if code < 0 { Ending::Signal(-code) } else { Ending::Code(code) };
        for (name, conclusion) in decode_as_each(&stdout, &stderr, ending) {
            let text = conclusion.failure.as_ref().map_or(&conclusion.content, |failure| &failure.message);
            prop_assert!(!text.is_empty() || !stdout.is_empty(), "{}", name);
        }
        for format in agent_formats() {
            decode(format, &stdout, &stderr, ending);
        }
    }
}

/// INV-CLI-PARSE-002: content extraction accuracy.
#[test]
fn inv_cli_parse_002_extracts_the_exact_content_of_each_format() {
    for (formats, stdout, content) in ANSWERS {
        for format in formats {
            let conclusion = decode(*format, stdout.as_bytes(), "", Ending::Code(0));
            assert_eq!((conclusion.content.as_str(), conclusion.failure), (content, None), "{format:?}: {stdout}");
        }
    }
}

/// INV-CLI-PARSE-003: error classification coverage.
#[test]
fn inv_cli_parse_003_every_provider_classifies_every_category_with_its_retry_and_fallback() {
    for (category, wording, retry, fallback) in WORDINGS {
        for (name, conclusion) in decode_as_each(b"", &format!("Error: {wording}"), Ending::Code(1)) {
            let found = conclusion.failure.unwrap().category;
            assert_eq!(found, category, "{name}: {wording}");
            assert_eq!((found.policy().retry, found.policy().fallback), (retry, fallback), "{category:?}");
        }
    }
    let tested: Vec<Category> = WORDINGS.iter().map(|(category, ..)| *category).collect();
    // The gateway finds these two itself.
    let ours = [Category::SchemaMismatch, Category::Cancelled];
    let all: Vec<Category> = Category::ALL.into_iter().filter(|category| !ours.contains(category)).collect();
    assert_eq!(tested, all, "every category is tested");
}

/// INV-CLI-PARSE-004: ANSI stripping.
#[test]
fn inv_cli_parse_004_answers_and_errors_contain_no_terminal_escapes() {
    let coloured = "\u{1b}[2K\u{1b}[1G\u{1b}[32mgreen\u{1b}[0m \u{1b}]0;title\u{7}\u{1b}(Bword\u{1b}M";
    let json = serde_json::json!({"type": "content", "content": coloured}).to_string();
    let ended = "{\"type\":\"turn.completed\"}";
    for (format, stdout) in [
        (Format::Text, coloured.to_owned()),
        (Format::Json, serde_json::json!({"content": coloured}).to_string()),
        (Format::StreamJson, format!("{json}\n{ended}\n")),
        (Format::Claude, format!("{json}\n{ended}\n")),
    ] {
        assert_eq!(decode(format, stdout.as_bytes(), "", Ending::Code(0)).content, "green word", "{format:?}");
    }
    for (name, conclusion) in decode_as_each(b"", &format!("Error: {coloured}"), Ending::Code(1)) {
        assert_eq!(conclusion.failure.unwrap().message, "Error: green word", "{name}");
    }
    for (name, conclusion) in decode_as_each(coloured.as_bytes(), "", Ending::Code(0)) {
        assert_eq!(conclusion.content, "green word", "{name}");
    }
}
