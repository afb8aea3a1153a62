//! Which gateway is behind the window, and what becomes of it.

use std::fs;

use crate::world::{World, command, server, until};

#[test]
fn one_that_runs_is_used_and_survives() {
    let world = World::new();
    let gateway = world.serve();
    let window = world.open();
    window.ask(world.port, "how are you");
    assert_eq!(world.gateway(), gateway.0.id(), "no other was started");
    world.screen.press(&["ctrl+q"]);
    assert_eq!(window.ended(), Some(0));
    until("only the gateway is left", || {
        world.processes().iter().all(|(pid, line)| *pid == gateway.0.id() || line.contains("__keeper"))
    });
    assert!(world.get(world.port, "/health").is_some());
}

#[test]
fn when_the_one_that_was_used_is_gone_a_reload_starts_another() {
    let world = World::new();
    let gateway = world.serve();
    let window = world.open();
    window.ask(world.port, "how are you");
    drop(gateway);
    world.screen.press(&["ctrl+r"]);
    until("there is another", || world.get(world.port, "/health").is_some());
    window.ask(world.port, "how are you");
    window.signal("TERM");
    assert_eq!(window.ended(), Some(0));
    world.nothing_is_left();
}

#[test]
fn one_that_dies_is_told_of_and_started_again() {
    let world = World::new();
    let window = world.open();
    window.ask(world.port, "how are you");
    let gateway = world.gateway();
    assert!(command("kill").args(["-s", "KILL", &gateway.to_string()]).status().unwrap().success());
    window.titled("There is no gateway");
    world.screen.picture("died");
    world.screen.press(&["alt+t"]);
    window.ask(world.port, "how are you");
    assert_ne!(world.gateway(), gateway);
}

#[test]
fn the_binary_is_found_beside_the_window_and_on_the_search_path() {
    let world = World::new();
    let port = world.port.to_string();
    world.program("trunkline", &format!("exec '{}' \"$@\"", server().display()));
    let window = world.open_with(&["--port", &port]);
    window.ask(world.port, "how are you");
    window.signal("TERM");
    assert_eq!(window.ended(), Some(0));
    fs::remove_file(world.path("bin/trunkline")).unwrap();
    let window = world.open_with(&["--port", &port]);
    let listed = window.titled("There is no gateway");
    world.screen.picture("not-installed");
    assert_eq!(listed.size, (900, 700));
}
