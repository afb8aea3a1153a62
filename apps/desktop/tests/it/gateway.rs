//! Choice and life cycle of the gateway behind the window.

use std::fs;

use crate::desktop::{TestDesktop, command, server, until};

#[test]
fn running_gateway_is_used_and_keeps_running_when_window_closes() {
    let desktop = TestDesktop::new();
    let gateway = desktop.serve();
    let window = desktop.open();
    window.ask(desktop.port, "how are you");
    assert_eq!(desktop.gateway(), gateway.0.id(), "no second gateway was started");
    desktop.screen.press(&["ctrl+q"]);
    assert_eq!(window.wait_for_exit(), Some(0));
    until("only the gateway is left", || {
        desktop.processes().iter().all(|(pid, line)| *pid == gateway.0.id() || line.contains("__keeper"))
    });
    assert!(desktop.get(desktop.port, "/health").is_some());
}

#[test]
fn reload_starts_a_gateway_when_the_one_in_use_is_gone() {
    let desktop = TestDesktop::new();
    let gateway = desktop.serve();
    let window = desktop.open();
    window.ask(desktop.port, "how are you");
    drop(gateway);
    desktop.screen.press(&["ctrl+r"]);
    until("the new gateway responds", || desktop.get(desktop.port, "/health").is_some());
    window.ask(desktop.port, "how are you");
    window.signal("TERM");
    assert_eq!(window.wait_for_exit(), Some(0));
    desktop.wait_for_no_processes();
}

#[test]
fn error_is_shown_and_retry_starts_a_gateway_when_ours_is_killed() {
    let desktop = TestDesktop::new();
    let window = desktop.open();
    window.ask(desktop.port, "how are you");
    let gateway = desktop.gateway();
    assert!(command("kill").args(["-s", "KILL", &gateway.to_string()]).status().unwrap().success());
    window.titled("The gateway is not available");
    desktop.screen.picture("died");
    desktop.screen.press(&["alt+t"]);
    window.ask(desktop.port, "how are you");
    assert_ne!(desktop.gateway(), gateway);
}

#[test]
fn binary_is_found_on_path_and_error_is_shown_when_missing() {
    let desktop = TestDesktop::new();
    let port = desktop.port.to_string();
    desktop.program("trunkline", &format!("exec '{}' \"$@\"", server().display()));
    let window = desktop.open_with(&["--port", &port]);
    window.ask(desktop.port, "how are you");
    window.signal("TERM");
    assert_eq!(window.wait_for_exit(), Some(0));
    fs::remove_file(desktop.path("bin/trunkline")).unwrap();
    let window = desktop.open_with(&["--port", &port]);
    let listed = window.titled("The gateway is not available");
    desktop.screen.picture("not-installed");
    assert_eq!(listed.size, (900, 700));
}
