//! Tests successful answers, streamed or in one piece.

use trunkline_core::event::{Event, Finish, ToolCall, Usage};
use trunkline_core::turn::{Message, Role, Turn};
use trunkline_upstream::{Upstream, UpstreamTimeouts};

use crate::fake::{DONE, FakeUpstream, LIMIT, STOP, all, call, delta, end, text};

#[tokio::test]
async fn streamed_answer_arrives_as_it_is_sent() {
    let fake = FakeUpstream::new().await;
    let mut call = call(&fake.api());
    let pieces = [": hello\n\n".to_owned(), delta("a")];
    let (mut connection, first) = tokio::join!(fake.stream(pieces), call.next());
    assert_eq!(first, Some(Event::Started { session: None, model: Some("m".into()) }));
    assert_eq!(call.next().await, Some(Event::Text { delta: "a".into() }), "before the server sends more");
    connection.send_chunk(delta("b").as_bytes()).await;
    assert_eq!(call.next().await, Some(Event::Text { delta: "b".into() }));
    connection.send_chunk(format!("{STOP}{DONE}").as_bytes()).await;
    // The body is still open: its end is not awaited.
    let answer = end(all(call).await).unwrap();
    let usage = Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 0, estimated: false };
    assert_eq!((answer.content.as_str(), answer.finish, answer.usage), ("ab", Finish::Stop, usage));
}

#[tokio::test]
async fn request_has_the_expected_path_headers_and_body() {
    let fake = FakeUpstream::new().await;
    let turn = Turn { messages: vec![Message::new(Role::User, "hi")], ..Turn::default() };
    let body = trunkline_wire::upstream::request(&turn, None, Some("m"));
    let call = Upstream::new().call(
        &fake.api_with_key("hunter2-hunter2"),
        body.clone(),
        &[],
        UpstreamTimeouts::in_all(LIMIT),
        String::new().into(),
    );
    let (connection, events) = tokio::join!(fake.stream([STOP, DONE]), all(call));
    assert!(end(events).is_ok());
    assert!(connection.head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{}", connection.head);
    let agent = format!("user-agent: trunkline/{}", env!("CARGO_PKG_VERSION"));
    for line in ["authorization: bearer hunter2-hunter2", "content-type: application/json", agent.as_str()] {
        assert!(connection.head.lines().any(|sent| sent == line), "{line} in {}", connection.head);
    }
    assert!(!connection.head.contains("accept-encoding"), "a compressed stream is delayed");
    assert_eq!(connection.body, body);
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_event_is_requested() {
    let fake = FakeUpstream::new().await;
    drop(call(&fake.api_with_key("the-first-one")));
    let call = call(&fake.api_with_key("the-second-one"));
    let (connection, events) = tokio::join!(fake.answer("200 OK", "", "{\"choices\":[{\"message\":{}}]}"), all(call));
    assert!(connection.head.contains("the-second-one") && end(events).is_ok());
    assert!(!connection.head.contains("the-first"));
}

#[tokio::test]
async fn answer_in_one_piece_becomes_one_text_event() {
    let fake = FakeUpstream::new().await;
    let body = r#"{"object":"chat.completion","choices":[{"message":{"content":"grüezi"},"finish_reason":"length"}]}"#;
    let (_, events) = tokio::join!(fake.answer("200 OK", "", body), all(call(&fake.api())));
    assert_eq!(text(&events), "grüezi");
    let answer = end(events).unwrap();
    assert_eq!((answer.finish, answer.usage), (Finish::Length, Usage::estimate("four", "grüezi")));
}

#[tokio::test]
async fn tool_calls_are_read_from_streamed_and_complete_answers() {
    let expected = [ToolCall { id: "c1".into(), name: "f".into(), arguments: "{\"a\":1}".into() }];
    let fake = FakeUpstream::new().await;
    let pieces = [
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\":1}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
        DONE,
    ];
    let (_, streamed) = tokio::join!(fake.stream(pieces), all(call(&fake.api())));
    let count = streamed.iter().filter(|event| matches!(event, Event::ToolCall { .. })).count();
    assert_eq!(count, 2, "{streamed:?}");
    let whole = r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}]}"#;
    let (_, whole) = tokio::join!(fake.answer("200 OK", "", whole), all(call(&fake.api())));
    for events in [streamed, whole] {
        let answer = end(events).unwrap();
        assert_eq!((answer.calls.as_slice(), answer.finish), (expected.as_slice(), Finish::ToolCalls));
    }
}

#[tokio::test]
async fn text_is_intact_when_characters_are_split_between_chunks() {
    let fake = FakeUpstream::new().await;
    let body = format!("{}{}{STOP}{DONE}", delta("日本"), delta("🎉"));
    let (_, events) = tokio::join!(fake.stream(body.as_bytes().chunks(1)), all(call(&fake.api())));
    assert_eq!(text(&events), "日本🎉");
    assert_eq!(end(events).unwrap().content, "日本🎉");
}

#[tokio::test]
async fn no_event_is_lost_when_the_future_is_dropped() {
    let fake = FakeUpstream::new().await;
    let texts = (0..50).map(|number| delta(&format!("{number} ")));
    let pieces = texts.chain([STOP.to_owned(), DONE.to_owned()]);
    let dropping = async {
        let mut call = call(&fake.api());
        let (mut events, mut dropped) = (Vec::new(), 0);
        loop {
            tokio::select! {
                biased;
                event = call.next() => match event {
                    Some(event) => events.push(event),
                    None => return (events, dropped),
                },
                () = tokio::task::yield_now() => dropped += 1,
            }
        }
    };
    let (_, (events, dropped)) = tokio::join!(fake.stream(pieces), dropping);
    assert!(dropped > 0);
    let expected: String = (0..50).map(|number| format!("{number} ")).collect();
    assert_eq!((text(&events), end(events).unwrap().content), (expected.clone(), expected));
}

#[tokio::test]
async fn models_are_counted() {
    let fake = FakeUpstream::new().await;
    let (upstream, api) = (Upstream::new(), fake.api_with_key("hunter2-hunter2"));
    let list = r#"{"object":"list","data":[{"id":"a"},{"id":"b"}]}"#;
    let (connection, count) =
        tokio::join!(fake.answer("200 OK", "connection: close\r\n", list), upstream.models(&api, LIMIT));
    assert_eq!(count.unwrap(), 2);
    assert!(
        connection.head.starts_with("get /v1/models http/1.1\r\n")
            && connection.head.contains("bearer hunter2-hunter2")
    );
    let body = r#"{"error":{"message":"bad key hunter2-hunter2"}}"#;
    let answer = fake.answer("401 Unauthorized", "connection: close\r\n", body);
    let failure = tokio::join!(answer, upstream.models(&api, LIMIT)).1.unwrap_err();
    assert_eq!((failure.message.as_str(), failure.hint.as_deref()), ("bad key ***", Some("check the key in FAKE_KEY")));
    let page = fake.answer("200 OK", "connection: close\r\n", "<html>");
    let failure = tokio::join!(page, upstream.models(&api, LIMIT)).1.unwrap_err();
    assert!(failure.message.contains("did not answer with a list"), "{failure}");
}
