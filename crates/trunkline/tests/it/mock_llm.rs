//! `trunkline mock-llm`: the command around the mock, and the gateway in front of it.

use std::fs;

use rustix::process::Signal;

use crate::http::RequestBuilder;
use crate::observe::until;
use crate::test_gateway::TestGateway;

fn script(content: &str) -> String {
    format!(r#"{{"scenarios": [{{"trigger": "hi", "steps": [{{"response": {{"content": "{content}"}}}}]}}]}}"#)
}

fn ask(gateway: &TestGateway, text: &str) -> String {
    RequestBuilder::new(gateway.address(), "any", text).send().content()
}

#[test]
fn answers_from_the_built_in_script_and_ends_well_when_asked_to() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = TestGateway::new().start_mock();
        assert!(ask(&gateway, "Hello!").contains("mock LLM"));
        assert_eq!(gateway.get("/health").status, 200);
        gateway.signal(signal);
        assert_eq!(gateway.wait_for_exit(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_file_is_played_as_it_changes() {
    let gateway = TestGateway::new();
    let path = gateway.path("scenarios.json");
    fs::write(&path, script("one")).unwrap();
    let gateway = gateway.args(&["--scenarios", path.to_str().unwrap()]).start_mock();
    assert_eq!(ask(&gateway, "hi"), "one");
    fs::write(&path, script("twenty-two")).unwrap();
    assert_eq!(ask(&gateway, "hi"), "twenty-two");
    fs::write(&path, "{").unwrap();
    assert_eq!(ask(&gateway, "hi"), "twenty-two");
    until("the broken file is reported", || gateway.log().contains("the last good script stays"));
}

#[test]
fn a_bad_file_is_refused_with_its_place() {
    let gateway = TestGateway::new();
    let path = gateway.path("scenarios.json");
    let file = path.to_str().unwrap();
    for (text, place, words) in [
        ("{\n  \"scenarios\": [\n    {\"triger\": \"x\"}\n  ]\n}", ":3:13: ", "did you mean `trigger`?"),
        ("{\"scenarios\": [", ":1:15: ", "EOF"),
    ] {
        fs::write(&path, text).unwrap();
        let ran = gateway.run(&["mock-llm", "--port", "0", "--scenarios", file]).exits(3);
        assert!(ran.stderr.contains(&format!("{file}{place}")) && ran.stderr.contains(words), "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
    fs::remove_file(&path).unwrap();
    let ran = gateway.run(&["mock-llm", "--port", "0", "--scenarios", file]).exits(3);
    assert!(ran.stderr.contains("cannot read the script"), "{}", ran.stderr);
}

#[test]
fn the_built_in_script_can_be_printed_and_played() {
    let gateway = TestGateway::new();
    let printed = gateway.run(&["mock-llm", "--print-scenarios"]).exits(0).stdout;
    let path = gateway.path("scenarios.json");
    fs::write(&path, printed).unwrap();
    let gateway = gateway.args(&["--scenarios", path.to_str().unwrap()]).start_mock();
    assert_eq!(ask(&gateway, "How are you?"), "I'm doing well, thank you for asking!");
}

#[test]
fn the_gateway_in_front_of_it() {
    let mock = TestGateway::new().start_mock();
    let router = format!(
        "providers:\n  - name: mock\n    type: api\n    config:\n      base_url: http://{}/v1\n      model: any\n",
        mock.address()
    );
    let gateway = TestGateway::new().config("router.yaml", &router).start();
    assert_eq!(gateway.chat("How are you?").model("mock").send().content(), "I'm doing well, thank you for asking!");
    let streamed = gateway.chat("How are you?").model("mock").streamed().send();
    assert_eq!(streamed.streamed_text(), "I'm doing well, thank you for asking!");
    let limited = gateway.chat("Please rehearse a rate limit").model("mock").send();
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("2")), "{limited:?}");
}
