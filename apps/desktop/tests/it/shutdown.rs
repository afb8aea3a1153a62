//! A gateway that the window started stops with it, however the window ends.

use std::net::TcpListener;

use crate::desktop::{DesktopWindow, TestDesktop, server, until, window_binary};

#[test]
fn gateway_stops_when_window_is_closed_signalled_or_killed() {
    let desktop = TestDesktop::new();
    for end in ["TERM", "INT", "HUP", "KILL", "ABRT", "closed"] {
        let window = desktop.open();
        let listed = window.listed();
        until("a gateway responds", || desktop.get(desktop.port, "/health").is_some());
        desktop.gateway();
        if end == "closed" {
            desktop.screen.run("wmctrl", &["-i", "-c", &listed.id]).unwrap();
        } else {
            window.signal(end);
        }
        let status = window.wait_for_exit();
        assert_eq!(status, if ["KILL", "ABRT"].contains(&end) { None } else { Some(0) }, "{end}");
        desktop.wait_for_no_processes();
    }
}

#[test]
fn window_survives_hangup_when_started_with_nohup() {
    let desktop = TestDesktop::new();
    let window = desktop.open_as(
        "nohup".as_ref(),
        &[
            window_binary().to_str().unwrap(),
            "--server",
            server().to_str().unwrap(),
            "--port",
            &desktop.port.to_string(),
        ],
    );
    window.listed();
    window.signal("HUP");
    window.ask(desktop.port, "how are you");
    window.signal("INT");
    assert_eq!(window.wait_for_exit(), Some(0));
    desktop.wait_for_no_processes();
}

#[test]
fn quitting_asks_first_when_an_answer_is_in_progress() {
    let (_llm, url) = silent_llm();
    let desktop = TestDesktop::new().env("LLM_BASE_URL", url);
    let window = desktop.open();
    start_answer(&desktop, &window);
    let number = window.listed().number();
    desktop.screen.press(&["ctrl+q"]);
    until("the quit dialog is open", || desktop.screen.active().is_some_and(|active| active != number));
    desktop.screen.picture("question");
    desktop.screen.press(&["Escape"]);
    until("the quit dialog is closed", || desktop.screen.active() == Some(number));
    desktop.screen.press(&["ctrl+q"]);
    until("the quit dialog is open", || desktop.screen.active().is_some_and(|active| active != number));
    desktop.screen.press(&["alt+q"]);
    assert_eq!(window.wait_for_exit(), Some(0));
    desktop.wait_for_no_processes();
}

#[test]
fn second_window_opens_after_first_has_exited_when_first_is_shutting_down() {
    let (_llm, url) = silent_llm();
    let desktop = TestDesktop::new().env("LLM_BASE_URL", url);
    let first = desktop.open();
    start_answer(&desktop, &first);
    let gateway = desktop.gateway();
    first.signal("TERM");
    until("the first window is hidden", || desktop.screen.windows().is_empty());
    // The first gateway still gives the answer a few seconds to finish.
    let second = desktop.open();
    second.listed();
    assert_eq!(first.wait_for_exit(), Some(0));
    until("the page is loaded", || second.text().contains("New chat"));
    assert_ne!(desktop.gateway(), gateway);
}

/// Returns an LLM server that never responds, and its base URL.
fn silent_llm() -> (TcpListener, String) {
    let llm = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", llm.local_addr().unwrap());
    (llm, url)
}

/// Sends a message and waits until the page reports that the answer is in progress.
fn start_answer(desktop: &TestDesktop, window: &DesktopWindow<'_>) {
    until("the page is loaded", || window.text().contains("New chat"));
    let mut tries = 0;
    until("the answer is in progress", || {
        if tries % 20 == 0 {
            window.write("fix it");
            desktop.screen.press(&["Return"]);
        }
        tries += 1;
        window.listed().title == "⋯ fix it – Trunkline"
    });
}
