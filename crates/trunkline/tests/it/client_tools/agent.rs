//! Tools of the client on the built-in agent.

use serde_json::json;

use super::*;
use crate::agent::{text_reply, tool_calls_reply, with_llm};
use crate::fake_llm::FakeLlm;

/// Names of the tools in the nth request to the LLM.
fn offered(llm: &FakeLlm, nth: usize) -> Vec<String> {
    let seen = llm.seen();
    let tools = seen[nth].1["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn agent_calls_the_clients_tools_beside_its_own() {
    let llm = FakeLlm::new([
        tool_calls_reply("Looking.", &[("c1", "weather", json!({"city": "Rom"})), ("c2", "client_bash", json!({}))]),
        text_reply("It rains."),
    ]);
    let gateway = with_llm(TestGateway::new(), &llm).model("m", json!({"driver": "agent"})).start();
    let mut dialogue = Dialogue::new(&gateway, "weather?").with("tools", json!([tool("weather"), tool("bash")]));
    for (name, result) in [("weather", "rain"), ("bash", "no shell")] {
        let calls = dialogue.calls();
        assert_eq!((calls.len(), calls[0].1.as_str()), (1, name));
        dialogue.result(&calls[0].0, result);
    }
    assert_eq!(dialogue.send().content(), "It rains.");
    assert_eq!(offered(&llm, 0), ["read_file", "write_file", "edit_file", "bash", "weather", "client_bash"]);
    let results = crate::agent::request_messages(&llm, 1).into_iter().filter(|(role, _)| role == "tool");
    assert_eq!(results.map(|(_, text)| text).collect::<Vec<_>>(), ["rain", "no shell"]);
}

#[test]
fn agent_without_its_own_tools_has_only_the_clients() {
    let llm = FakeLlm::new([text_reply("Hello.")]);
    let gateway = with_llm(TestGateway::new(), &llm).model("m", json!({"driver": "agent", "ownTools": "off"})).start();
    assert_eq!(Dialogue::new(&gateway, "hello").send().content(), "Hello.");
    assert_eq!(offered(&llm, 0), ["weather", "time"]);
}
