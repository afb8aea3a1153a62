//! `trunkline mock-llm`: the command around the mock, and the gateway in front of it.

use std::fs;

use rustix::process::Signal;

use crate::http::Ask;
use crate::line::Line;
use crate::look::until;

fn script(content: &str) -> String {
    format!(r#"{{"scenarios": [{{"trigger": "hi", "steps": [{{"response": {{"content": "{content}"}}}}]}}]}}"#)
}

fn ask(line: &Line, text: &str) -> String {
    Ask::new(line.address(), "any", text).send().content()
}

#[test]
fn answers_from_the_built_in_script_and_ends_well_when_asked_to() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut line = Line::new().start_mock();
        assert!(ask(&line, "Hello!").contains("mock LLM"));
        assert_eq!(line.get("/health").status, 200);
        line.signal(signal);
        assert_eq!(line.ended(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_file_is_played_as_it_changes() {
    let line = Line::new();
    let path = line.path("scenarios.json");
    fs::write(&path, script("one")).unwrap();
    let line = line.args(&["--scenarios", path.to_str().unwrap()]).start_mock();
    assert_eq!(ask(&line, "hi"), "one");
    fs::write(&path, script("twenty-two")).unwrap();
    assert_eq!(ask(&line, "hi"), "twenty-two");
    fs::write(&path, "{").unwrap();
    assert_eq!(ask(&line, "hi"), "twenty-two");
    until("the broken file is reported", || line.log().contains("keeping the last valid script"));
}

#[test]
fn a_bad_file_is_refused_with_its_place() {
    let line = Line::new();
    let path = line.path("scenarios.json");
    let file = path.to_str().unwrap();
    for (text, place, words) in [
        ("{\n  \"scenarios\": [\n    {\"triger\": \"x\"}\n  ]\n}", ":3:13: ", "did you mean `trigger`?"),
        ("{\"scenarios\": [", ":1:15: ", "EOF"),
    ] {
        fs::write(&path, text).unwrap();
        let ran = line.run(&["mock-llm", "--port", "0", "--scenarios", file]).exits(3);
        assert!(ran.stderr.contains(&format!("{file}{place}")) && ran.stderr.contains(words), "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
    fs::remove_file(&path).unwrap();
    let ran = line.run(&["mock-llm", "--port", "0", "--scenarios", file]).exits(3);
    assert!(ran.stderr.contains("cannot read the script"), "{}", ran.stderr);
}

#[test]
fn the_built_in_script_can_be_printed_and_played() {
    let line = Line::new();
    let printed = line.run(&["mock-llm", "--print-scenarios"]).exits(0).stdout;
    let path = line.path("scenarios.json");
    fs::write(&path, printed).unwrap();
    let line = line.args(&["--scenarios", path.to_str().unwrap()]).start_mock();
    assert_eq!(ask(&line, "How are you?"), "I'm doing well, thank you for asking!");
}

#[test]
fn the_gateway_in_front_of_it() {
    let mock = Line::new().start_mock();
    let router = format!(
        "providers:\n  - name: mock\n    type: api\n    config:\n      base_url: http://{}/v1\n      model: any\n",
        mock.address()
    );
    let line = Line::new().config("router.yaml", &router).start();
    assert_eq!(line.chat("How are you?").model("mock").send().content(), "I'm doing well, thank you for asking!");
    let streamed = line.chat("How are you?").model("mock").streamed().send();
    assert_eq!(streamed.streamed_text(), "I'm doing well, thank you for asking!");
    let limited = line.chat("Please rehearse a rate limit").model("mock").send();
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("2")), "{limited:?}");
}
