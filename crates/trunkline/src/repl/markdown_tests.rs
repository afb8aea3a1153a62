use proptest::prelude::*;

use super::*;
use crate::repl::style::Paint;

fn shown(source: &str, width: usize) -> Vec<String> {
    render(source, width, None).iter().map(|row| Paint::None.line(row)).collect()
}

fn led(source: &str) -> Vec<String> {
    let lead = Span::new("Agent: ", Style::default());
    render(source, 40, Some(lead)).iter().map(|row| Paint::None.line(row)).collect()
}

#[test]
fn blocks_as_rows() {
    for (source, rows) in [
        ("plain text", vec!["plain text"]),
        ("one\ntwo", vec!["one two"]),
        ("one  \ntwo", vec!["one", "two"]),
        ("# Head\ntext", vec!["Head", "", "text"]),
        ("*a* **b** ~~c~~ `d`", vec!["a b c d"]),
        ("- a\n- b\n  - c\n- d", vec!["• a", "• b", "  • c", "• d"]),
        ("3. a\n4. b", vec!["3. a", "4. b"]),
        ("- a\n\n  more\n\n- b", vec!["• a", "  ", "  more", "", "• b"]),
        ("- [x] done\n- [ ] open", vec!["• [x] done", "• [ ] open"]),
        ("-", vec!["• "]),
        ("> quoted\n> text", vec!["│ quoted text"]),
        ("1. a\n   ```\n   x\n   ```", vec!["1. a", "       x"]),
        ("see [the page](http://x.y/z)", vec!["see the page (http://x.y/z)"]),
        ("<http://x.y>", vec!["http://x.y"]),
        ("![alt](a.png)", vec!["alt (a.png)"]),
        ("a <b> & &amp; c", vec!["a <b> & & c"]),
        ("a\n\n---\n\nb", vec!["a", "", "────────────────────────────────────────", "", "b"]),
        ("| a | bb |\n|---|---:|\n| ccc | d |", vec!["a    bb", "───  ──", "ccc   d"]),
    ] {
        assert_eq!(shown(source, 40), rows, "{source:?}");
    }
}

#[test]
fn a_table_that_is_too_wide_is_shown_row_by_row() {
    let source = "| name | what |\n|-|-|\n| a | a rather long description |\n| b | short |";
    assert_eq!(shown(source, 20), ["name: a", "what: a rather long description", "", "name: b", "what: short"]);
}

#[test]
fn rows_are_wrapped_beside_their_margins() {
    let source = "- one two three four five six seven";
    assert_eq!(shown(source, 24), ["• one two three four", "  five six seven"]);
}

#[test]
fn running_text_follows_the_lead_and_other_blocks_leave_it_a_row() {
    for (source, rows) in [
        ("hello", vec!["Agent: hello"]),
        ("# Head", vec!["Agent: Head"]),
        ("one two three four five six seven eight nine", {
            vec!["Agent: one two three four five six seven", "eight nine"]
        }),
        ("- a\n- b", vec!["Agent:", "• a", "• b"]),
        ("> a", vec!["Agent:", "│ a"]),
        ("    code", vec!["Agent:", "    code"]),
    ] {
        assert_eq!(led(source), rows, "{source:?}");
    }
}

#[test]
fn looks() {
    for (source, row) in [
        ("# Head `x`", "\u{1b}[1mHead \u{1b}[0m\u{1b}[1;36mx\u{1b}[0m"),
        ("**a *b***", "\u{1b}[1ma \u{1b}[0m\u{1b}[1;3mb\u{1b}[0m"),
        ("    code", "\u{1b}[2m    code\u{1b}[0m"),
    ] {
        assert_eq!(Paint::Colours.line(&render(source, 40, None)[0]), row, "{source:?}");
    }
}

proptest! {
    #[test]
    fn no_letter_of_a_text_is_lost(source in "([a-z]{1,8}[ \n*_`>#-]{1,3}){0,30}") {
        let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
        // The name of a code block's language is no text.
        let source = source.replace("```", "``");
        prop_assert_eq!(letters(&shown(&source, 30).concat()), letters(&source));
    }
}
