//! What is seen when there is no gateway, and what can be done then.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use crate::world::{World, command, server, until};

#[test]
fn a_gateway_that_cannot_start_says_why_and_is_tried_again() {
    let world = World::new();
    // The real one, and a mistake that people make.
    let models = world.path("repo/models.json");
    std::fs::write(&models, "{\"shop\": {\"driver\": \"codexx\", \"repoPath\": \".\"}}").unwrap();
    let window = world.open();
    let listed = window.titled("There is no gateway");
    world.screen.picture("cannot-start");
    let shown = world.screen.text_at(&listed, (450, 400));
    assert!(shown.contains("models.json") && shown.contains("codexx"), "{shown}");
    std::fs::remove_file(models).unwrap();
    world.screen.press(&["alt+t"]);
    window.ask(world.port, "how are you");
}

#[test]
fn one_that_takes_its_time_is_awaited_and_then_used() {
    let world = World::new();
    let slow = "echo 'looking for the keys' >&2; until [ -e \"$HOME/go\" ]; do sleep 0.1; done";
    let program = world.program("slow", &format!("{slow}; exec '{}' \"$@\"", server().display()));
    let window = world.open_with(&["--server", program.to_str().unwrap(), "--port", &world.port.to_string()]);
    until("it is started", || world.log().contains("looking for the keys"));
    window.focused();
    world.screen.picture("waiting");
    // Nobody gets another by asking twice, and there is nothing yet that a browser could show.
    world.screen.press(&["F5", "ctrl+r", "alt+f", "b"]);
    std::fs::write(world.path("home/go"), "").unwrap();
    window.ask(world.port, "how are you");
    assert_eq!(world.log().matches("looking for the keys").count(), 1, "one was started");
    assert_eq!(world.opened(), "");
    // Now there is.
    world.screen.press(&["alt+f", "b"]);
    until("it is in the browser", || world.opened() == format!("1\nhttp://127.0.0.1:{}/\n", world.port));
}

#[test]
fn a_port_that_is_taken_is_left_and_the_other_is_remembered() {
    let world = World::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, world.port)).unwrap();
    thread::spawn(move || {
        for mut caller in taken.incoming().flatten() {
            let mut asked = [0; 1024];
            let _all = caller.read(&mut asked);
            let _sent = caller.write_all(b"HTTP/1.0 404 Not Found\r\ncontent-length: 2\r\n\r\nno");
        }
    });
    let window = world.open();
    window.titled("There is no gateway");
    world.screen.picture("taken");
    world.screen.press(&["alt+u"]);
    until("another port is remembered", || world.remembered()["port"].is_u64());
    let port = u16::try_from(world.remembered()["port"].as_u64().unwrap()).unwrap();
    assert_ne!(port, world.port);
    window.ask(port, "how are you");
    world.screen.press(&["ctrl+q"]);
    assert_eq!(window.ended(), Some(0));
    let window = world.open_with(&["--server", server().to_str().unwrap()]);
    window.ask(port, "how are you");
}

#[test]
fn a_page_that_crashes_is_loaded_again() {
    let world = World::new();
    let window = world.open();
    window.ask(world.port, "how are you");
    let before = world.gateway();
    let (page, _) = world.processes().into_iter().find(|(_, line)| line.contains("WebKitWebProcess")).unwrap();
    assert!(command("kill").args(["-s", "KILL", &page.to_string()]).status().unwrap().success());
    window.titled("The page has crashed");
    world.screen.press(&["alt+t"]);
    window.shows(1);
    assert_eq!(world.gateway(), before);
}
