use super::*;
use serde_json::json;
use trunkline_wire::page::{PageDone, PageError};

fn text(content: &str) -> PageEvent {
    PageEvent::Text(content.into())
}

fn tool(id: &str) -> PageEvent {
    PageEvent::Tool { id: id.into(), name: "bash".into(), input: json!({"command": "ls"}) }
}

fn result(id: &str, output: &str) -> PageEvent {
    PageEvent::ToolResult { id: id.into(), name: "bash".into(), output: output.into(), ok: true }
}

fn kept(words: &[PageEvent]) -> Value {
    let mut transcript = ChatTranscript::default();
    transcript.ask("hi", "m");
    words.iter().for_each(|word| transcript.add(word));
    serde_json::to_value(&transcript.items()[1..]).unwrap()
}

#[test]
fn visible_events_are_kept() {
    let running =
        json!({"type": "tool", "id": "t", "name": "bash", "input": {"command": "ls"}, "output": null, "ok": null});
    let mut ended = running.clone();
    (ended["output"], ended["ok"]) = ("a".into(), true.into());
    let trouble = PageError { message: "no".into(), code: "server".into(), hint: None };
    let usage = Usage::default();
    let done = PageDone { model: Some("m".into()), usage: Some(usage), ..PageDone::default() };
    for (words, items) in [
        (vec![text("a"), text("b")], json!([{"type": "text", "content": "ab"}])),
        (
            vec![text("a"), tool("t"), text("b")],
            json!([{"type": "text", "content": "a"}, running, {"type": "text", "content": "b"}]),
        ),
        (vec![tool("t"), result("t", "a"), result("t", "late"), result("x", "?")], json!([ended])),
        (vec![tool("t"), result("t", "a"), tool("t"), result("t", "a")], json!([ended, ended])),
        (
            vec![PageEvent::Error(trouble), PageEvent::Done(PageDone::default())],
            json!([{"type": "error", "message": "no", "code": "server"}]),
        ),
        (
            vec![PageEvent::Done(PageDone { interrupted: true, ..PageDone::default() })],
            json!([{"type": "interrupted"}]),
        ),
        (vec![PageEvent::Done(done)], json!([{"type": "done", "model": "m", "usage": usage}])),
    ] {
        assert_eq!(kept(&words), items, "{words:?}");
    }
}

#[test]
fn withdrawn_message_is_removed() {
    let mut transcript = ChatTranscript::default();
    transcript.ask("one", "m");
    transcript.add(&text("1"));
    let before = transcript.clone();
    transcript.ask("two", "m");
    transcript.add(&PageEvent::Notice("hm".into()));
    transcript.withdraw();
    assert_eq!(transcript, before);
}

#[test]
fn old_outputs_are_shortened_first_and_old_turns_removed_last() {
    let long = "x".repeat(50_000);
    let mut transcript = ChatTranscript::default();
    for turn in 0..3 {
        transcript.ask(&format!("question {turn}"), "m");
        for word in [PageEvent::Thinking(long.clone()), tool("t"), result("t", &long), text(&long)] {
            transcript.add(&word);
        }
    }
    let sizes = |transcript: &ChatTranscript| transcript.items.iter().map(Item::size).collect::<Vec<_>>();
    let whole = sizes(&transcript);

    let mut shorter = transcript.clone();
    shorter.bound(420_000);
    let mut expected = whole.clone();
    expected[2] = expected[2] - long.len() + SHORTENED_BYTES;
    assert_eq!(sizes(&shorter), expected, "one output is enough");

    shorter.bound(260_000);
    assert_eq!((shorter.items.len(), shorter.items[1].size()), (12, SHORTENED_BYTES), "then thoughts");

    shorter.bound(120_000);
    assert_eq!(shorter.items.len(), 8, "then turns");
    assert!(matches!(&shorter.items[0], Item::User { text, .. } if text == "question 1"));

    shorter.bound(0);
    assert!(matches!(&shorter.items[0], Item::User { text, .. } if text == "question 2"), "never the last");
}

#[test]
fn inputs_keep_their_structure_if_possible() {
    let long = "é".repeat(1000);
    for (input, limit, members) in [
        (json!({"path": "a", "content": long}), 5000, Some(2000)),
        (json!({"path": "a", "content": long}), 200, Some(100)),
        (json!((0..1000).collect::<Vec<_>>()), 200, None),
    ] {
        let short = shortened(&input, limit);
        assert!(weight(&short) <= limit, "{short}");
        assert_eq!(short["content"].as_str().map(str::len), members, "{short}");
    }
}
