use trunkline_core::event::{Answer, ToolCall, Usage};
use trunkline_core::failure::{Category, Failure};

use super::*;
use crate::upstream::UpstreamReader;

/// Two choices as OpenAI streams them: interleaved, each with its own end, the usage of both at the end.
const TWO_CHOICES: &str = r#"data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":1,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":0,"delta":{"content":"He"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":1,"delta":{"content":"Tai"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":0,"delta":{"content":"ads"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":1,"delta":{"content":"ls"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":1,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}

data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6,"total_tokens":15}}

data: [DONE]

"#;

/// Reads a body for a request of this number of choices. Returns the text of the events, and the end.
fn read(wanted: u32, body: &str) -> (String, Result<Answer, Failure>) {
    let mut reader = UpstreamReader::new(&[]).choices_wanted(wanted);
    let mut events = reader.push(body.as_bytes());
    events.extend(reader.conclude("four"));
    let end = events.pop().unwrap().end().unwrap();
    let texts =
        events.into_iter().filter_map(|event| if let Event::Text { delta } = event { Some(delta) } else { None });
    (texts.collect(), end)
}

fn alternative(content: &str, finish: Finish) -> Alternative {
    Alternative { content: content.into(), finish, calls: Vec::new(), logprobs: None }
}

#[test]
fn other_choices_are_alternatives_of_the_answer_when_they_were_asked_for() {
    let (text, end) = read(2, TWO_CHOICES);
    assert_eq!(text, "Heads", "the events are those of the first choice");
    let answer = end.unwrap();
    assert_eq!((answer.content.as_str(), answer.finish, answer.usage.output_tokens), ("Heads", Finish::Stop, 6));
    assert_eq!(answer.alternatives, [alternative("Tails", Finish::Length)]);
    assert_eq!(read(1, TWO_CHOICES).1.unwrap().alternatives, [], "not asked for");

    let whole = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},
        {"message":{"content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    let answer = read(2, whole).1.unwrap();
    let call = ToolCall { id: "c".into(), name: "f".into(), arguments: "{}".into() };
    let expected = Alternative { calls: vec![call], ..alternative("", Finish::ToolCalls) };
    assert_eq!((answer.content.as_str(), answer.alternatives), ("a", vec![expected]));
    assert_eq!(answer.usage, Usage::estimate("four", "af{}"), "the estimate counts all choices");
}

#[test]
fn answer_is_complete_when_all_choices_are() {
    let before_end = |mark: &str| &TWO_CHOICES[..TWO_CHOICES.find(mark).unwrap()];
    let first_finished = before_end(r#"{"content":"ls"}"#).rsplit_once("data:").unwrap().0;
    let mut reader = UpstreamReader::new(&[]).choices_wanted(2);
    reader.push(first_finished.as_bytes());
    assert!(!reader.finished(), "the second choice is open");
    let failure = read(2, first_finished).1.unwrap_err();
    assert_eq!(failure.category, Category::Network, "{failure:?}");
    reader.push(&TWO_CHOICES.as_bytes()[first_finished.len()..TWO_CHOICES.find(r#""choices":[],"#).unwrap()]);
    assert!(reader.finished());

    let one = r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    let answer = read(2, one).1.unwrap();
    assert_eq!(answer.alternatives, [], "the upstream ignored the number");
}
