//! However the window ends, the gateway that it started does.

use std::net::TcpListener;

use crate::world::{Window, World, server, until, window_binary};

#[test]
fn the_gateway_ends_with_the_window_however_that_ends() {
    let world = World::new();
    for end in ["TERM", "INT", "HUP", "KILL", "ABRT", "closed"] {
        let window = world.open();
        let listed = window.listed();
        until("there is a gateway", || world.get(world.port, "/health").is_some());
        world.gateway();
        if end == "closed" {
            world.screen.run("wmctrl", &["-i", "-c", &listed.id]).unwrap();
        } else {
            window.signal(end);
        }
        let status = window.ended();
        assert_eq!(status, if ["KILL", "ABRT"].contains(&end) { None } else { Some(0) }, "{end}");
        world.nothing_is_left();
    }
}

#[test]
fn a_terminal_that_goes_away_means_nothing_to_a_window_that_was_told_so() {
    let world = World::new();
    let window = world.open_as(
        "nohup".as_ref(),
        &[window_binary().to_str().unwrap(), "--server", server().to_str().unwrap(), "--port", &world.port.to_string()],
    );
    window.listed();
    window.signal("HUP");
    window.ask(world.port, "how are you");
    window.signal("INT");
    assert_eq!(window.ended(), Some(0));
    world.nothing_is_left();
}

#[test]
fn an_answer_is_not_cut_short_without_a_question() {
    let (_silent, url) = silent();
    let world = World::new().env("LLM_BASE_URL", url);
    let window = world.open();
    works(&world, &window);
    let number = window.listed().number();
    world.screen.press(&["ctrl+q"]);
    until("there is a question", || world.screen.active().is_some_and(|active| active != number));
    world.screen.picture("question");
    world.screen.press(&["Escape"]);
    until("the question is gone", || world.screen.active() == Some(number));
    world.screen.press(&["ctrl+q"]);
    until("there is a question", || world.screen.active().is_some_and(|active| active != number));
    world.screen.press(&["alt+q"]);
    assert_eq!(window.ended(), Some(0));
    world.nothing_is_left();
}

#[test]
fn a_window_that_is_opened_while_another_goes_comes_after_it() {
    let (_silent, url) = silent();
    let world = World::new().env("LLM_BASE_URL", url);
    let first = world.open();
    works(&world, &first);
    let gateway = world.gateway();
    first.signal("TERM");
    until("it is out of sight", || world.screen.windows().is_empty());
    // Its gateway gives the answer a few seconds.
    let second = world.open();
    second.listed();
    assert_eq!(first.ended(), Some(0));
    until("there is a page", || second.text().contains("New chat"));
    assert_ne!(world.gateway(), gateway);
}

/// An LLM that never answers, and where it is.
fn silent() -> (TcpListener, String) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", silent.local_addr().unwrap());
    (silent, url)
}

/// Asks something, and waits until it is worked on.
fn works(world: &World, window: &Window<'_>) {
    until("there is a page", || window.text().contains("New chat"));
    let mut tries = 0;
    until("it works", || {
        if tries % 20 == 0 {
            window.write("mend it");
            world.screen.press(&["Return"]);
        }
        tries += 1;
        window.listed().title == "⋯ mend it – Trunkline"
    });
}
