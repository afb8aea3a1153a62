use serde_json::json;
use trunkline_core::event::Finish;

use super::*;

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn tool(id: &str, name: &str, input: serde_json::Value) -> Event {
    Event::ToolStarted { id: id.into(), name: name.into(), input }
}

fn done(id: &str, ok: bool, output: &str) -> Event {
    Event::ToolFinished { id: id.into(), output: output.into(), ok }
}

fn finished() -> Event {
    Event::Finished(Answer::new("", Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() }, Finish::Stop))
}

fn shown(terminal: Terminal, turns: &[&[Event]]) -> String {
    let mut view = TurnView::new(Vec::new(), terminal, || 40);
    for turn in turns {
        view.begin().unwrap();
        turn.iter().for_each(|event| view.event(event).unwrap());
        view.end().unwrap();
    }
    String::from_utf8(view.out).unwrap()
}

/// Final content of a full terminal: without erased rows and without times.
fn screen(turns: &[&[Event]]) -> String {
    let text = shown(Terminal::Full(ColourMode::None), turns);
    let rows = text.split('\n').map(|row| row.rsplit("\r\u{1b}[K").next().unwrap());
    rows.map(|row| row.split(" out, ").next().unwrap().to_owned() + "\n").collect()
}

fn a_turn_with_tools() -> Vec<Event> {
    vec![
        text("Let me "),
        text("look.\n\n"),
        tool("1", "read_file", json!({"path": "src/main.py"})),
        done("1", true, "…"),
        tool("2", "edit_file", json!({"path": "src/main.py", "old_string": "a", "new_string": "b"})),
        done("2", false, "\nold_string not found\nat all"),
        text("\n\nIt is "),
        text("*done*.\n"),
        finished(),
    ]
}

#[test]
fn turn_in_a_pipe_is_not_rendered() {
    let turn = a_turn_with_tools();
    let notice = "· edit_file failed: old_string not found\n";
    let typed = format!(
        "Agent: Let me look.\n\n\
         [Tool: read_file(\"src/main.py\")]\n\
         [Tool: edit_file(\"src/main.py\", ...)]\n\
         {notice}\n\
         Agent: It is *done*.\n"
    );
    assert_eq!(shown(Terminal::Basic, &[&turn]), format!("\n{typed}\n"));
    let piped = typed.replace(notice, "");
    assert_eq!(shown(Terminal::None, &[&turn]), piped, "notices go to stderr");
    assert_eq!(shown(Terminal::None, &[&turn, &turn]), format!("{piped}\n{piped}"));
}

#[test]
fn only_blank_lines_before_an_answer_are_removed() {
    for deltas in [vec!["\n  \n    code\n", "\ntext\n"], vec!["\n ", " \n", "  ", "  ", "code", "\n\n", "text"]] {
        let turn: Vec<Event> = deltas.into_iter().map(text).collect();
        assert_eq!(shown(Terminal::None, &[&turn]), "Agent:     code\n\ntext\n");
    }
    assert_eq!(
        shown(Terminal::None, &[&[text(" \n"), tool("1", "ls", json!({})), text("a")]]),
        "[Tool: ls()]\n\nAgent: a\n"
    );
}

#[test]
fn turn_on_a_terminal_is_rendered() {
    let expected = "\n\
                    Agent: Let me look.\n\n\
                    [Tool: read_file(\"src/main.py\")]\n\
                    [Tool: edit_file(\"src/main.py\", ...)]\n\
                    · edit_file failed: old_string not found\n\n\
                    Agent: It is done.\n\n\
                    · 3 tokens in, 2\n\n\n";
    assert_eq!(screen(&[&a_turn_with_tools()]), expected);
}

#[test]
fn blocks_are_separated_and_lines_of_code_are_not() {
    let whole = "# Head\none\n\n```sh\nls\n\npwd\n```\nend";
    let pieces: Vec<Event> = whole.split_inclusive('\n').map(text).collect();
    let expected = "\nAgent: Head\n\none\n\n    ls\n    \n    pwd\n\nend\n\n\n";
    assert_eq!(screen(&[&[text(whole)]]), expected);
    assert_eq!(screen(&[&pieces]), expected);
    assert_eq!(screen(&[&[text("```\nx\n```\n")]]), "\nAgent:\n    x\n\n\n");
}

#[test]
fn output_of_an_agent_cannot_control_the_terminal() {
    let evil = "\u{1b}]0;owned\u{7}\u{9b}2Jx\u{8}\u{1b}[2J";
    let turn = [
        text(evil),
        Event::Thinking { delta: evil.into() },
        tool("1", evil, json!({"command": evil})),
        done("1", false, evil),
        Event::Notice { message: evil.into() },
        finished(),
    ];
    let control = |text: &str| text.replace("\r\u{1b}[K", "").chars().any(|c| c.is_control() && c != '\n');
    for terminal in [Terminal::None, Terminal::Basic, Terminal::Full(ColourMode::None)] {
        let text = shown(terminal, &[&turn]);
        assert!(text.contains("2Jx") && !control(&text), "{text:?}");
    }
}

#[test]
fn shows_an_empty_answer_and_an_interrupted_one() {
    assert_eq!(shown(Terminal::None, &[&[finished()]]), "");
    assert_eq!(shown(Terminal::None, &[&[text("half")]]), "Agent: half\n");
    let cut = Event::Finished(Answer::new("", Usage::default(), Finish::Length));
    let expected = "\nAgent: half\n\n· the answer was cut off at the model's output limit\n\n";
    assert_eq!(shown(Terminal::Basic, &[&[text("half"), cut]]), expected);
}

#[test]
fn status_never_takes_more_than_one_row() {
    let long = "word ".repeat(50);
    let text = shown(Terminal::Full(ColourMode::None), &[&[text(&long), Event::Thinking { delta: long.clone() }]]);
    for row in text.split("\r\u{1b}[K").flat_map(|part| part.split('\n')) {
        assert!(row.chars().count() < 40, "{row:?}");
    }
}

#[test]
fn notice_is_wrapped_only_on_a_full_terminal() {
    let notice = Event::Notice { message: "one two three four five six seven eight nine".into() };
    let row = "· one two three four five six seven\neight nine\n";
    assert_eq!(screen(&[std::slice::from_ref(&notice)]), format!("\n{row}\n\n"));
    assert_eq!(shown(Terminal::Basic, &[&[notice]]), "\n· one two three four five six seven eight nine\n\n");
}

/// Status rows in the order they were shown.
fn statuses(text: &str) -> Vec<&str> {
    text.split("\r\u{1b}[K").skip(1).filter(|row| row.contains('…')).collect()
}

#[test]
fn status_shows_thinking_and_has_no_tabs() {
    let thought = |delta: &str| Event::Thinking { delta: delta.into() };
    let turn = [thought("Let me"), thought("\tsee"), tool("1", "ls", json!({})), done("1", true, ""), text("a\tb")];
    let text = shown(Terminal::Full(ColourMode::None), &[&turn]);
    let expected = ["thinking…", "Let me…", "Let me see…", "running ls()…", "thinking…", "a b…"];
    assert_eq!(statuses(&text), expected, "{text:?}");
}

thread_local! {
    static COLUMNS: std::cell::Cell<usize> = const { std::cell::Cell::new(40) };
}

#[test]
fn no_stale_status_rows_remain_when_the_window_gets_narrower() {
    let mut view = TurnView::new(Vec::new(), Terminal::Full(ColourMode::None), || COLUMNS.get());
    view.begin().unwrap();
    view.event(&text(&"word ".repeat(9))).unwrap();
    let wide = view.out.len();
    COLUMNS.set(20);
    view.tick().unwrap();
    let narrow = String::from_utf8(view.out.split_off(wide)).unwrap();
    assert!(narrow.starts_with("\r\u{1b}[1A\u{1b}[J\r\u{1b}[K") && width(statuses(&narrow)[0]) < 20, "{narrow:?}");
    COLUMNS.set(9);
    view.tick().unwrap();
    view.event(&Event::Thinking { delta: "hm".into() }).unwrap();
    let tiny = String::from_utf8(view.out.split_off(wide)).unwrap();
    assert_eq!(tiny, "\r\u{1b}[1A\u{1b}[J\r\u{1b}[K", "too narrow for a status");
}

#[test]
fn numbering_continues_in_a_loose_list() {
    let list = "1. one\n\n1. two\n\n```\nx\n```\n\n1. again\n";
    assert_eq!(screen(&[&[text(list)]]), "\nAgent:\n1. one\n\n2. two\n\n    x\n\n1. again\n\n\n");
}
