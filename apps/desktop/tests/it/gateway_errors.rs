//! Errors shown when there is no gateway or the page crashes, and recovery from them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use crate::desktop::{TestDesktop, command, server, until};

#[test]
fn shows_log_and_can_retry_when_gateway_cannot_start() {
    let desktop = TestDesktop::new();
    // The real gateway with a typo in its configuration.
    let models = desktop.path("repo/models.json");
    std::fs::write(&models, "{\"shop\": {\"driver\": \"codexx\", \"repoPath\": \".\"}}").unwrap();
    let window = desktop.open();
    let listed = window.titled("The gateway is not available");
    desktop.screen.picture("cannot-start");
    let shown = desktop.screen.text_at(&listed, (450, 400));
    assert!(shown.contains("models.json") && shown.contains("codexx"), "{shown}");
    std::fs::remove_file(models).unwrap();
    desktop.screen.press(&["alt+t"]);
    window.ask(desktop.port, "how are you");
}

#[test]
fn waits_for_gateway_that_starts_slowly() {
    let desktop = TestDesktop::new();
    let slow = "echo 'starting slowly' >&2; until [ -e \"$HOME/go\" ]; do sleep 0.1; done";
    let program = desktop.program("slow", &format!("{slow}; exec '{}' \"$@\"", server().display()));
    let window = desktop.open_with(&["--server", program.to_str().unwrap(), "--port", &desktop.port.to_string()]);
    until("the gateway is started", || desktop.log().contains("starting slowly"));
    window.focused();
    desktop.screen.picture("waiting");
    // Reloading must not start a second gateway, and there is nothing to open in the browser yet.
    desktop.screen.press(&["F5", "ctrl+r", "alt+f", "b"]);
    std::fs::write(desktop.path("home/go"), "").unwrap();
    window.ask(desktop.port, "how are you");
    assert_eq!(desktop.log().matches("starting slowly").count(), 1, "only one gateway was started");
    assert_eq!(desktop.opened(), "");
    // Now the page can be opened in the browser.
    desktop.screen.press(&["alt+f", "b"]);
    until("the page is opened in the browser", || {
        desktop.opened() == format!("1\nhttp://127.0.0.1:{}/\n", desktop.port)
    });
}

#[test]
fn offers_another_port_and_saves_the_choice_when_port_is_taken() {
    let desktop = TestDesktop::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, desktop.port)).unwrap();
    thread::spawn(move || {
        for mut socket in taken.incoming().flatten() {
            let mut request = [0; 1024];
            let _ = socket.read(&mut request);
            let _ = socket.write_all(b"HTTP/1.0 404 Not Found\r\ncontent-length: 2\r\n\r\nno");
        }
    });
    let window = desktop.open();
    window.titled("The gateway is not available");
    desktop.screen.picture("taken");
    desktop.screen.press(&["alt+u"]);
    until("another port is saved", || desktop.saved_window()["port"].is_u64());
    let port = u16::try_from(desktop.saved_window()["port"].as_u64().unwrap()).unwrap();
    assert_ne!(port, desktop.port);
    window.ask(port, "how are you");
    desktop.screen.press(&["ctrl+q"]);
    assert_eq!(window.wait_for_exit(), Some(0));
    let window = desktop.open_with(&["--server", server().to_str().unwrap()]);
    window.ask(port, "how are you");
}

#[test]
fn page_can_be_reloaded_when_it_has_crashed() {
    let desktop = TestDesktop::new();
    let window = desktop.open();
    window.ask(desktop.port, "how are you");
    let before = desktop.gateway();
    let (page, _) = desktop.processes().into_iter().find(|(_, line)| line.contains("WebKitWebProcess")).unwrap();
    assert!(command("kill").args(["-s", "KILL", &page.to_string()]).status().unwrap().success());
    window.titled("The page has crashed");
    desktop.screen.press(&["alt+t"]);
    window.shows(1);
    assert_eq!(desktop.gateway(), before);
}
