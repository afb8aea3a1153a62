//! The window and its page: a message is answered, keys do what people expect, and where it was is remembered.

use crate::standin::StandIn;
use crate::world::{World, until};

#[test]
fn a_message_is_answered_and_quitting_leaves_nothing() {
    let world = World::new();
    let window = world.open();
    assert_eq!(window.listed().size, (900, 700));
    window.ask(world.port, "how are you");
    let text = window.text();
    assert!(text.contains("how are you") && text.contains("I'm doing well, thank you for asking!"), "{text}");
    world.screen.picture("answered");
    world.screen.press(&["ctrl+q"]);
    assert_eq!(window.ended(), Some(0));
    world.nothing_is_left();
}

#[test]
fn a_conversation_is_there_again() {
    let world = World::new();
    let window = world.open();
    window.ask(world.port, "how are you");
    world.screen.press(&["ctrl+q"]);
    assert_eq!(window.ended(), Some(0));
    // The same visitor to another gateway on the same state.
    let window = world.open();
    window.shows(1);
    // And after a reload.
    world.screen.press(&["F5"]);
    window.shows(1);
}

#[test]
fn text_is_pasted_and_the_page_zoomed() {
    let world = World::new();
    let window = world.open();
    window.ask(world.port, "how are you");
    let before = world.answered(world.port);
    world.screen.copy("how are you, once more");
    window.write("");
    world.screen.press(&["ctrl+v", "Return"]);
    until("what was pasted is answered", || world.answered(world.port) > before);
    window.shows(2);
    assert!(window.text().contains("how are you, once more"));
    world.screen.press(&["ctrl+plus", "ctrl+plus", "ctrl+minus", "ctrl+equal", "ctrl+q"]);
    assert_eq!(window.ended(), Some(0));
    assert_eq!(world.remembered()["zoom"], 120);
    let window = world.open();
    window.focused();
    world.screen.press(&["ctrl+0", "ctrl+w"]);
    assert_eq!(window.ended(), Some(0));
    assert_eq!(world.remembered()["zoom"], 100);
}

/// A page in which nothing moves, and nobody need write.
const STILL: &str = "<!doctype html><title>Still</title>still";

#[test]
fn zoom_is_remembered_also_if_it_does_not_end_well() {
    let world = World::new();
    let _stand_in = StandIn::new(world.port, STILL);
    let window = world.open();
    window.titled("Still");
    window.focused();
    world.screen.press(&["ctrl+plus"]);
    until("it is remembered", || world.remembered()["zoom"] == 110);
    window.signal("KILL");
    assert_eq!(window.ended(), None);
}

#[test]
fn size_and_place_are_remembered() {
    let world = World::new();
    let window = world.open();
    let id = window.listed().id;
    world.screen.run("wmctrl", &["-i", "-r", &id, "-e", "0,40,60,700,500"]).unwrap();
    until("it is smaller", || window.listed().size == (700, 500));
    let place = world.screen.xdotool(&["getwindowgeometry", &id]);
    // Also if it does not end well.
    until("it is remembered", || world.remembered()["size"] == serde_json::json!([700, 500]));
    window.signal("KILL");
    assert_eq!(window.ended(), None);
    let window = world.open();
    let listed = window.listed();
    assert_eq!(listed.size, (700, 500));
    let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&world.screen.xdotool(&["getwindowgeometry", &listed.id])), lines(&place));
}

#[test]
fn the_second_window_is_the_first() {
    let world = World::new();
    let window = world.open();
    let listed = window.listed();
    world.screen.xdotool(&["windowminimize", &listed.id]);
    until("it is out of sight", || world.screen.active() != Some(listed.number()));
    assert_eq!(world.open().ended(), Some(0));
    until("it is in front", || world.screen.active() == Some(listed.number()));
    assert_eq!(world.screen.windows().len(), 1);
}
