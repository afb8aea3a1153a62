//! `trunkline mock-llm`: the command itself, and a gateway that uses the mock as its upstream.

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
fn answers_from_the_built_in_script_and_exits_cleanly_on_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = TestGateway::new().start_mock();
        assert!(ask(&gateway, "Hello!").contains("mock LLM"));
        assert_eq!(gateway.get("/health").status, 200);
        gateway.signal(signal);
        assert_eq!(gateway.wait_for_exit(), Some(0), "{signal:?}");
    }
}

#[test]
fn scenario_file_is_reloaded_when_it_changes() {
    let gateway = TestGateway::new();
    let path = gateway.path("scenarios.json");
    fs::write(&path, script("one")).unwrap();
    let gateway = gateway.args(&["--scenarios", path.to_str().unwrap()]).start_mock();
    assert_eq!(ask(&gateway, "hi"), "one");
    fs::write(&path, script("twenty-two")).unwrap();
    assert_eq!(ask(&gateway, "hi"), "twenty-two");
    fs::write(&path, "{").unwrap();
    assert_eq!(ask(&gateway, "hi"), "twenty-two");
    until("the broken file is reported", || gateway.log().contains("keeping the last valid script"));
}

#[test]
fn mock_fails_with_the_error_position_when_scenario_file_is_bad() {
    let gateway = TestGateway::new();
    let path = gateway.path("scenarios.json");
    let file = path.to_str().unwrap();
    for (text, position, message) in [
        ("{\n  \"scenarios\": [\n    {\"triger\": \"x\"}\n  ]\n}", ":3:13: ", "did you mean `trigger`?"),
        ("{\"scenarios\": [", ":1:15: ", "EOF"),
    ] {
        fs::write(&path, text).unwrap();
        let ran = gateway.run(&["mock-llm", "--port", "0", "--scenarios", file]).exits(3);
        assert!(ran.stderr.contains(&format!("{file}{position}")) && ran.stderr.contains(message), "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
    fs::remove_file(&path).unwrap();
    let ran = gateway.run(&["mock-llm", "--port", "0", "--scenarios", file]).exits(3);
    assert!(ran.stderr.contains("cannot read the script"), "{}", ran.stderr);
}

#[test]
fn printed_scenarios_can_be_loaded_again() {
    let gateway = TestGateway::new();
    let printed = gateway.run(&["mock-llm", "--print-scenarios"]).exits(0).stdout;
    let path = gateway.path("scenarios.json");
    fs::write(&path, printed).unwrap();
    let gateway = gateway.args(&["--scenarios", path.to_str().unwrap()]).start_mock();
    assert_eq!(ask(&gateway, "How are you?"), "I'm doing well, thank you for asking!");
}

#[test]
fn gateway_answers_when_mock_is_its_upstream() {
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
