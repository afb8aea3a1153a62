use proptest::prelude::*;

use super::*;
use crate::repl::style::ColourMode;

fn shown(source: &str, width: usize) -> Vec<String> {
    render(source, width, None, &mut ListNumbering::default()).iter().map(|row| ColourMode::None.line(row)).collect()
}

fn led(source: &str) -> Vec<String> {
    let lead = StyledSpan::new("Agent: ", TextStyle::default());
    render(source, 40, Some(lead), &mut ListNumbering::default()).iter().map(|row| ColourMode::None.line(row)).collect()
}

#[test]
fn renders_blocks_to_rows() {
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
fn table_is_shown_row_by_row_when_it_is_too_wide() {
    let source = "| name | what |\n|-|-|\n| a | a rather long description |\n| b | short |";
    assert_eq!(shown(source, 20), ["name: a", "what: a rather long description", "", "name: b", "what: short"]);
    assert_eq!(shown("| a rather long name | what |\n|-|-|\n", 20), ["a rather long name", "what"], "it has no rows");
}

#[test]
fn reference_definitions_are_shown_as_text() {
    for (source, rows) in [
        ("[1]: https://x.y/docs\n", vec!["[1]: https://x.y/docs"]),
        (
            "[1]: https://x.y/docs\n[b]: <u> \"T\"\nand text\n",
            vec!["[1]: https://x.y/docs", "[b]: <u> \"T\"", "and text"],
        ),
        ("[a]: x\n[a]: y\n", vec!["[a]: x", "[a]: y"]),
        ("- [a]: x\n", vec!["• [a]: x"]),
        ("> [a]: x\n", vec!["│ [a]: x"]),
        ("see [the docs][1]", vec!["see [the docs][1]"]),
    ] {
        assert_eq!(shown(source, 40), rows, "{source:?}");
    }
    assert_eq!(led("[1]: https://x.y"), ["Agent: [1]: https://x.y"]);
}

#[test]
fn numbering_continues_when_a_list_arrives_in_pieces() {
    let mut numbering = ListNumbering::default();
    let mut numbers = |source: &str| -> Vec<String> {
        render(source, 40, None, &mut numbering).iter().map(|row| ColourMode::None.line(row)).collect()
    };
    assert_eq!(numbers("1. a"), ["1. a"]);
    assert_eq!(numbers("1. b\n1. c"), ["2. b", "3. c"]);
    assert_eq!(numbers("7. d"), ["7. d"], "an explicit higher number is kept");
    assert_eq!(numbers("1. e\n   1. inner"), ["8. e", "   1. inner"]);
    assert_eq!(numbers("1. f"), ["9. f"]);
    assert_eq!(numbers("text"), ["text"]);
    assert_eq!(numbers("1. again"), ["1. again"]);
    assert_eq!(numbers("> 1. quoted"), ["│ 1. quoted"]);
    assert_eq!(numbers("1. again"), ["1. again"]);
}

#[test]
fn rows_are_wrapped_within_their_margins() {
    let source = "- one two three four five six seven";
    assert_eq!(shown(source, 24), ["• one two three four", "  five six seven"]);
}

#[test]
fn text_follows_the_lead_and_other_blocks_begin_below_it() {
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
fn renders_styles() {
    for (source, row) in [
        ("# Head `x`", "\u{1b}[1mHead \u{1b}[0m\u{1b}[1;36mx\u{1b}[0m"),
        ("**a *b***", "\u{1b}[1ma \u{1b}[0m\u{1b}[1;3mb\u{1b}[0m"),
        ("    code", "\u{1b}[2m    code\u{1b}[0m"),
    ] {
        let rows = render(source, 40, None, &mut ListNumbering::default());
        assert_eq!(ColourMode::Colours.line(&rows[0]), row, "{source:?}");
    }
}

#[test]
fn encoded_control_characters_are_removed() {
    let source = "a &#27;]0;OWNED&#7; &#x1b;[10;10H &#x9b;2J &#x202e;b `&#27;[32m` [l](http://x/&#27;[35m)&#13;";
    let rows = shown(source, 200);
    assert_eq!(rows[0], "a ]0;OWNED [10;10H 2J b &#27;[32m l (http://x/[35m)");
}

proptest! {
    #[test]
    fn rendered_text_has_no_control_characters(
        parts in proptest::collection::vec("&#(27|7|8|13|155|8238|8203);|&#x(1b|9b|07);|[\\[\\]()`*|>#\n-]|[a-z ]{1,3}", 0..30)
    ) {
        for row in shown(&parts.concat(), 30) {
            prop_assert!(row.chars().all(|c| !c.is_control() && crate::repl::plain::is_shown(c)), "{row:?}");
        }
    }

    #[test]
    fn no_letter_of_a_text_is_lost(source in "(([a-z]{1,8}|\\[[a-z]{1,3}\\]: ?)[ \n*_`>#-]{1,3}){0,30}") {
        let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
        // The language of a code block is not shown.
        let source = source.replace("```", "``");
        prop_assert_eq!(letters(&shown(&source, 30).concat()), letters(&source));
    }
}
