//! Use of the page in the window: messages, keyboard shortcuts, and saved window state.

use crate::desktop::{TestDesktop, until};
use crate::fake_gateway::FakeGateway;

#[test]
fn message_is_answered_and_no_process_is_left_after_quitting() {
    let desktop = TestDesktop::new();
    let window = desktop.open();
    assert_eq!(window.listed().size, (900, 700));
    window.ask(desktop.port, "how are you");
    let text = window.text();
    assert!(text.contains("how are you") && text.contains("I'm doing well, thank you for asking!"), "{text}");
    desktop.screen.picture("answered");
    desktop.screen.press(&["ctrl+q"]);
    assert_eq!(window.wait_for_exit(), Some(0));
    desktop.wait_for_no_processes();
}

#[test]
fn conversation_is_restored_after_restart_and_reload() {
    let desktop = TestDesktop::new();
    let window = desktop.open();
    window.ask(desktop.port, "how are you");
    desktop.screen.press(&["ctrl+q"]);
    assert_eq!(window.wait_for_exit(), Some(0));
    // The same cookie with a new gateway on the same state folder.
    let window = desktop.open();
    window.shows(1);
    // And after a reload.
    desktop.screen.press(&["F5"]);
    window.shows(1);
}

#[test]
fn text_can_be_pasted_and_zoom_is_saved() {
    let desktop = TestDesktop::new();
    let window = desktop.open();
    window.ask(desktop.port, "how are you");
    let before = desktop.answered(desktop.port);
    desktop.screen.copy("how are you, once more");
    window.write("");
    desktop.screen.press(&["ctrl+v", "Return"]);
    until("the pasted message is answered", || desktop.answered(desktop.port) > before);
    window.shows(2);
    assert!(window.text().contains("how are you, once more"));
    desktop.screen.press(&["ctrl+plus", "ctrl+plus", "ctrl+minus", "ctrl+equal", "ctrl+q"]);
    assert_eq!(window.wait_for_exit(), Some(0));
    assert_eq!(desktop.saved_window()["zoom"], 120);
    let window = desktop.open();
    window.focused();
    desktop.screen.press(&["ctrl+0", "ctrl+w"]);
    assert_eq!(window.wait_for_exit(), Some(0));
    assert_eq!(desktop.saved_window()["zoom"], 100);
}

/// A static page without an input field.
const STATIC_PAGE: &str = "<!doctype html><title>Static</title>static";

#[test]
fn zoom_is_saved_when_window_is_killed() {
    let desktop = TestDesktop::new();
    let _fake = FakeGateway::new(desktop.port, STATIC_PAGE);
    let window = desktop.open();
    window.titled("Static");
    window.focused();
    desktop.screen.press(&["ctrl+plus"]);
    until("the change is saved", || desktop.saved_window()["zoom"] == 110);
    window.signal("KILL");
    assert_eq!(window.wait_for_exit(), None);
}

#[test]
fn size_and_position_are_restored_when_window_was_killed() {
    let desktop = TestDesktop::new();
    let window = desktop.open();
    let id = window.listed().id;
    desktop.screen.run("wmctrl", &["-i", "-r", &id, "-e", "0,40,60,700,500"]).unwrap();
    until("the window is resized", || window.listed().size == (700, 500));
    let place = desktop.screen.xdotool(&["getwindowgeometry", &id]);
    // Saved while the window is open, so that a kill does not lose it.
    until("the change is saved", || desktop.saved_window()["size"] == serde_json::json!([700, 500]));
    window.signal("KILL");
    assert_eq!(window.wait_for_exit(), None);
    let window = desktop.open();
    let listed = window.listed();
    assert_eq!(listed.size, (700, 500));
    let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&desktop.screen.xdotool(&["getwindowgeometry", &listed.id])), lines(&place));
}

#[test]
fn second_start_raises_the_existing_window() {
    let desktop = TestDesktop::new();
    let window = desktop.open();
    let listed = window.listed();
    desktop.screen.xdotool(&["windowminimize", &listed.id]);
    until("the window is minimized", || desktop.screen.active() != Some(listed.number()));
    assert_eq!(desktop.open().wait_for_exit(), Some(0));
    until("the window is in front", || desktop.screen.active() == Some(listed.number()));
    assert_eq!(desktop.screen.windows().len(), 1);
}
