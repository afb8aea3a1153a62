use super::*;
use crate::answer::streaming;
use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::mpsc;
use trunkline_core::event::{Answer, Finish, SessionId, Usage};
use trunkline_wire::chat::CallFormat;
use trunkline_wire::response::Head;
use trunkline_wire::sse;
use trunkline_wire::stream::{Chunks, UsageChunk};

const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A run whose events a test sends.
struct Scripted(mpsc::UnboundedReceiver<Event>);

impl RunEvents for Scripted {
    fn id(&self) -> &str {
        "run-1"
    }

    fn provider(&self) -> &str {
        "fake"
    }

    fn attempts(&self) -> usize {
        1
    }

    async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

fn terms() -> Terms {
    Terms {
        secrets: Arc::default(),
        began: Instant::now(),
        keep_alive: KEEP_ALIVE,
        waiting: Arc::new(|| 0),
        expired: CancellationToken::new(),
    }
}

fn head() -> Head {
    Head { id: "cmpl-1".into(), created: 7, model: "m".into(), calls: CallFormat::default() }
}

async fn whole(feed: AnswerFeed<Scripted>, terms: Terms) -> HttpResponse {
    super::whole(feed, head(), terms).await
}

async fn streamed(feed: AnswerFeed<Scripted>, usage: UsageChunk, terms: Terms) -> HttpResponse {
    let chunks = Chunks::new(head(), usage, Arc::clone(&terms.secrets));
    streaming::streamed(feed, chunks, terms).await
}

/// A running feed with its first events.
fn feed(events: impl IntoIterator<Item = Event>) -> (mpsc::UnboundedSender<Event>, AnswerFeed<Scripted>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    for event in events {
        sender.send(event).unwrap();
    }
    (sender, AnswerFeed::Running(Scripted(receiver)))
}

fn refused(error: StartError) -> AnswerFeed<Scripted> {
    AnswerFeed::Starting(Box::pin(async move { Err(error) }))
}

fn started() -> Event {
    Event::Started { session: Some(SessionId("s-1".into())), model: None }
}

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn finished(content: &str) -> Event {
    let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
    Event::Finished(Answer::new(content, usage, Finish::Stop))
}

fn failed(category: Category) -> Event {
    Event::Failed(Failure::new(category, "no"))
}

fn header<'a>(response: &'a HttpResponse, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn body(response: HttpResponse) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

async fn next_frame(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    Some(String::from_utf8(frame.into()).unwrap())
}

async fn error(response: HttpResponse) -> (u16, Value) {
    let status = response.status().as_u16();
    let body: Value = serde_json::from_str(&body(response).await).unwrap();
    (status, body["error"].clone())
}

#[tokio::test]
async fn whole_answer_is_one_response() {
    let (_run, feed) = feed([started(), text("he"), text("llo"), finished("hello")]);
    let response = whole(feed, terms()).await;
    assert_eq!((header(&response, "x-trunkline-provider"), header(&response, "x-trunkline-session")), ("fake", "s-1"));
    let body: Value = serde_json::from_str(&body(response).await).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "hello");
    assert_eq!((&body["trunkline"]["run"], &body["trunkline"]["session_id"]), (&"run-1".into(), &"s-1".into()));
}

#[tokio::test]
async fn failure_of_a_whole_answer_is_a_status() {
    let (_run, feed) = feed([started(), text("he"), failed(Category::Timeout)]);
    let (status, error) = error(whole(feed, terms()).await).await;
    assert_eq!((status, &error["message"], &error["code"]), (504, &"CLI failed: no".into(), &"timeout".into()));
}

#[tokio::test]
async fn refusal_is_a_status_when_the_run_never_starts() {
    let busy = || StartError::Busy { message: "full".into(), retry_after: Duration::from_secs(3) };
    let invalid = || StartError::from(Failure::new(Category::Validation, "too long"));
    let unknown = || StartError::UnknownModel { near: vec!["n".into()], models: vec!["n".into()], cli: None };
    let expected = [(503, "overloaded"), (400, "invalid_value"), (400, "model_not_found")];
    for (make, (status, code)) in [&busy as &dyn Fn() -> StartError, &invalid, &unknown].into_iter().zip(expected) {
        let (found, error_body) = error(whole(refused(make()), terms()).await).await;
        assert_eq!((found, error_body["code"].as_str()), (status, Some(code)));
        let (found, error_body) = error(streamed(refused(make()), UsageChunk::No, terms()).await).await;
        assert_eq!((found, error_body["code"].as_str()), (status, Some(code)));
    }
}

#[tokio::test]
async fn run_that_ends_without_an_answer_is_a_failure() {
    let (run, feed) = feed([started()]);
    drop(run);
    let (status, error) = error(whole(feed, terms()).await).await;
    assert_eq!((status, &error["detail"]), (500, &"the run ended without an answer".into()));
}

#[tokio::test]
async fn stream_starts_with_the_first_visible_event() {
    let (run, feed) = feed([started(), Event::Notice { message: "hm".into() }, text("a")]);
    let response = streamed(feed, UsageChunk::No, terms()).await;
    assert_eq!(header(&response, "content-type"), "text/event-stream");
    assert_eq!(header(&response, "cache-control"), "no-cache");
    assert_eq!((header(&response, "x-trunkline-provider"), header(&response, "x-trunkline-session")), ("fake", "s-1"));
    let mut body = response.into_body();
    let first = next_frame(&mut body).await.unwrap();
    assert_eq!(sse::SseDecoder::default().push(first.as_bytes()).len(), 3, "role, notice, text: {first}");
    run.send(text("b")).unwrap();
    assert!(next_frame(&mut body).await.unwrap().contains("\"content\":\"b\""));
    run.send(finished("ab")).unwrap();
    let last = next_frame(&mut body).await.unwrap();
    assert!(last.contains("\"finish_reason\":\"stop\"") && last.contains("\"run\":\"run-1\""), "{last}");
    assert!(last.ends_with("data: [DONE]\n\n"));
    assert!(run.is_closed(), "the run is dropped with the last frame");
    assert_eq!(next_frame(&mut body).await, None);
}

#[tokio::test]
async fn case_19_failure_is_a_status_before_the_stream_starts() {
    let (_run, feed) = feed([started(), Event::Unknown { line: "?".into() }, failed(Category::RateLimit)]);
    let response = streamed(feed, UsageChunk::Wanted, terms()).await;
    assert_eq!((header(&response, "retry-after"), header(&response, "x-trunkline-provider")), ("1", "fake"));
    assert_eq!(error(response).await.0, 429);
}

#[tokio::test]
async fn failure_is_a_frame_after_the_stream_has_started() {
    let (_run, feed) = feed([text("a"), failed(Category::Server)]);
    let response = streamed(feed, UsageChunk::No, terms()).await;
    assert_eq!(response.status(), 200);
    let frames = sse::SseDecoder::default().push(body(response).await.as_bytes());
    let last: Value = serde_json::from_str(frames.last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "server");
}

#[tokio::test]
async fn usage_chunk_is_sent_when_requested() {
    for (usage, expected) in [(UsageChunk::Wanted, 1), (UsageChunk::No, 0)] {
        let (_run, feed) = feed([text("a"), finished("a")]);
        let body = body(streamed(feed, usage, terms()).await).await;
        assert_eq!(body.matches("\"choices\":[],\"usage\":{").count(), expected, "{body}");
        assert!(body.ends_with("data: [DONE]\n\n"));
    }
}

#[tokio::test(start_paused = true)]
async fn case_20_silent_stream_is_kept_alive_by_comments() {
    let began = Instant::now();
    let (run, feed) = feed([]);
    let response = streamed(feed, UsageChunk::No, terms()).await;
    assert_eq!((began.elapsed(), response.status().as_u16()), (KEEP_ALIVE, 200));
    let mut body = response.into_body();
    assert_eq!(next_frame(&mut body).await.as_deref(), Some(": keep-alive\n\n"));
    // Invisible events do not reset the keep-alive timer.
    tokio::time::sleep(KEEP_ALIVE / 2).await;
    run.send(Event::Unknown { line: "?".into() }).unwrap();
    assert_eq!(next_frame(&mut body).await.as_deref(), Some(": keep-alive\n\n"));
    assert_eq!(began.elapsed(), KEEP_ALIVE * 2);
    run.send(failed(Category::Network)).unwrap();
    assert!(next_frame(&mut body).await.unwrap().starts_with("data: {\"error\""));
    assert_eq!(next_frame(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn stream_starts_with_comments_while_waiting_for_a_slot() {
    let waiting: AnswerFeed<Scripted> = AnswerFeed::Starting(Box::pin(async {
        tokio::time::sleep(KEEP_ALIVE * 3 / 2).await;
        Err(StartError::Busy { message: "full".into(), retry_after: Duration::from_secs(1) })
    }));
    let response = streamed(waiting, UsageChunk::No, terms()).await;
    assert_eq!((response.status().as_u16(), header(&response, "x-trunkline-provider")), (200, ""));
    let body = body(response).await;
    assert!(body.starts_with(": keep-alive\n\ndata: {\"error\":{\"message\":\"full\""), "{body}");
}

#[tokio::test(start_paused = true)]
async fn refusal_after_a_keep_alive_lists_the_attempts() {
    let attempt = Attempted {
        provider: "p".into(),
        model: "m".into(),
        category: Some(Category::NotFound),
        message: None,
        duration: Duration::ZERO,
        workspace: None,
        sandbox: None,
    };
    let failure = Failure::new(Category::NotFound, "not there");
    let error = StartError::Failed { failure, run: "run-1".into(), attempts: vec![attempt] };
    let late: AnswerFeed<Scripted> = AnswerFeed::Starting(Box::pin(async move {
        tokio::time::sleep(2 * KEEP_ALIVE).await;
        Err(error)
    }));
    let response = streamed(late, UsageChunk::No, terms()).await;
    assert_eq!(response.status(), 200);
    let body = body(response).await;
    let frame = body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let frame: Value = serde_json::from_str(frame).unwrap();
    assert_eq!(
        (&frame["error"]["code"], &frame["trunkline"]["attempts"][0]["provider"]),
        (&"not_found".into(), &"p".into())
    );
}

#[tokio::test]
async fn answers_end_with_an_error_when_the_drain_is_over() {
    let terms_of_end = terms();
    let expired = terms_of_end.expired.clone();
    let (run, running) = feed([text("a")]);
    let response = streamed(running, UsageChunk::No, terms_of_end).await;
    expired.cancel();
    let body = body(response).await;
    assert!(body.contains("shutting_down") && !body.contains("[DONE]"), "{body}");
    assert!(run.is_closed());

    let terms_of_end = terms();
    terms_of_end.expired.cancel();
    let (_run, running) = feed([]);
    assert_eq!(error(whole(running, terms_of_end).await).await.0, 503);
}

#[tokio::test]
async fn dropping_the_answer_drops_the_run() {
    let (run, running) = feed([text("a")]);
    let response = streamed(running, UsageChunk::No, terms()).await;
    assert!(!run.is_closed());
    drop(response);
    assert!(run.is_closed());
}
