use super::*;
use serde_json::json;
use trunkline_core::event::{Answer, Finish, SessionId};
use trunkline_core::failure::Failure;

fn frames_of(events: &[Event]) -> String {
    let mut words = PageEvents::new("m".into(), Arc::new(Secrets::new(["hunter2-hunter2".to_owned()])));
    let mut out = Vec::new();
    for event in events {
        words.of(event).iter().for_each(|word| word.frame(&mut out));
    }
    String::from_utf8(out).unwrap()
}

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn finished(content: &str) -> Event {
    let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
    Event::Finished(Answer::new(content, usage, Finish::Stop))
}

const DONE: &str = "event: done\ndata: {\"model\":\"m\",\"usage\":{\"input_tokens\":3,\"output_tokens\":2,\
    \"cached_tokens\":0,\"estimated\":false}}\n\n";

#[test]
fn events_become_frames() {
    let tool = Event::ToolStarted { id: "t1".into(), name: "bash".into(), input: json!({"command": "ls"}) };
    let result = |id: &str| Event::ToolFinished { id: id.into(), output: "a\nb".into(), ok: true };
    let unchanged = Receipt { base: "0".into(), ..Receipt::unchanged() };
    let changed = Receipt { branch: Some("trunkline/r".into()), files_changed: Some(1), ..unchanged.clone() };
    let failed = |category, message: &str| Event::Failed(Failure::new(category, message).hint("log in"));
    let receipt = serde_json::to_string(&changed).unwrap();
    for (events, frames) in [
        (vec![text("a\nb"), text("")], "event: text\ndata: {\"content\":\"a\\nb\"}\n\n".to_owned()),
        (vec![Event::Thinking { delta: "hm".into() }], "event: thinking\ndata: {\"content\":\"hm\"}\n\n".to_owned()),
        (
            vec![tool, result("t1"), result("t2")],
            "event: tool\ndata: {\"name\":\"bash\",\"input\":{\"command\":\"ls\"},\"args\":{\"command\":\"ls\"},\
             \"id\":\"t1\"}\n\n\
             event: tool_result\ndata: {\"id\":\"t1\",\"name\":\"bash\",\"output\":\"a\\nb\",\"ok\":true}\n\n\
             event: tool_result\ndata: {\"id\":\"t2\",\"name\":\"\",\"output\":\"a\\nb\",\"ok\":true}\n\n"
                .to_owned(),
        ),
        (
            vec![Event::Notice { message: "again".into() }],
            "event: notice\ndata: {\"message\":\"again\"}\n\n".to_owned(),
        ),
        (vec![Event::Workspace(unchanged), Event::Unknown { line: "?".into() }], String::new()),
        (vec![Event::Workspace(changed)], format!("event: workspace\ndata: {receipt}\n\n")),
        (vec![finished("")], DONE.to_owned()),
        (vec![finished("late")], format!("event: text\ndata: {{\"content\":\"late\"}}\n\n{DONE}")),
        (vec![text("a"), finished("a")], format!("event: text\ndata: {{\"content\":\"a\"}}\n\n{DONE}")),
        (
            vec![failed(Category::Authentication, "no: hunter2-hunter2")],
            "event: error\ndata: {\"message\":\"no: ***\",\"code\":\"authentication\",\"hint\":\"log in\"}\n\n\
             event: done\ndata: {}\n\n"
                .to_owned(),
        ),
        (vec![failed(Category::Cancelled, "stopped")], "event: done\ndata: {\"interrupted\":true}\n\n".to_owned()),
    ] {
        assert_eq!(frames_of(&events), frames, "{events:?}");
    }
}

#[test]
fn answer_follows_the_tools_when_it_comes_only_at_the_end() {
    let tool = || Event::ToolStarted { id: "t".into(), name: "bash".into(), input: json!({}) };
    let late = "event: text\ndata: {\"content\":\"\\n\\nFound.\"}\n\n";
    for (events, times) in [
        (vec![text("Looking."), tool(), finished("Found.")], 1),
        (vec![text("Looking."), tool(), text("Found."), finished("Found.")], 0),
        (vec![text("Found."), tool(), finished("Found.")], 0),
    ] {
        assert_eq!(frames_of(&events).matches(late).count(), times, "{events:?}");
    }
}

#[test]
fn done_frame_has_the_session() {
    let started = Event::Started { session: Some(SessionId("s-1".into())), model: None };
    assert!(frames_of(&[started, finished("")]).contains("\"session\":\"s-1\""));
}

#[test]
fn error_has_the_gateways_message_when_there_is_no_detail() {
    let trouble = PageError::of(&ApiError::stopping());
    assert_eq!((trouble.message.as_str(), trouble.code.as_str()), ("the server is shutting down", "shutting_down"));
}

proptest::proptest! {
    #[test]
    fn truncated_text_is_a_prefix(text in "\\PC{0,80}", limit in 10usize..60) {
        let short = cut(&text, limit);
        assert!(short.len() <= limit.max(CUT.len()));
        assert!(short == text || text.starts_with(short.strip_suffix(CUT).unwrap()));
    }
}
