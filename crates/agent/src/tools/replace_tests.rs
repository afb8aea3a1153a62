//! Tables of edits and refusals, and properties of the untouched part of a file.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn edited(file: &str, old: &str, new: &str) -> Result<String, String> {
    replace(file.as_bytes(), old, new).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn replaces_a_unique_match_and_keeps_line_endings() {
    for (file, old, new, expected) in [
        ("one two three", "two", "2", "one 2 three"),
        ("one two three", "two ", "", "one three"),
        ("a\nb\nc\n", "b\n", "", "a\nc\n"),
        ("a\nb", "b", "b\n", "a\nb\n"),
        ("\u{feff}fn a() {}\n", "fn a", "fn b", "\u{feff}fn b() {}\n"),
        ("größe = 1", "größe", "länge", "länge = 1"),
        ("é", "é", "è", "è"),
        ("x", "x", "", ""),
        // A file with \r\n keeps it, however the model writes its lines.
        ("a\r\nb\r\nc\r\n", "b\nc", "x\ny", "a\r\nx\r\ny\r\n"),
        ("a\r\nb\r\nc\r\n", "b\r\nc", "x\ny", "a\r\nx\r\ny\r\n"),
        ("a\r\nb\r\nc\r\n", "b\nc", "x\r\ny", "a\r\nx\r\ny\r\n"),
        ("a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"),
        ("a\r\nb", "b", "b\nc", "a\r\nb\r\nc"),
        ("a\r\nb\r\nc\r\n", "\nb", "", "a\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\n", "", "b\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "\nb\n", "\n", "a\r\nc\r\n"),
        ("a\r\nb\r\nc", "a\nb\nc", "x", "x"),
        ("a\r\nb", "a", "\n", "\r\n\r\nb"),
        // With mixed line endings each line keeps its own, and new lines end like their neighbours.
        ("a\r\nb\nc\r\n", "a\nb\nc", "x\ny\nz", "x\r\ny\nz\r\n"),
        ("a\r\nb\nc\r\n", "a\nb\nc", "0\na\nb\nc", "0\r\na\r\nb\nc\r\n"),
        ("a\r\nb\nc\n", "b", "b\nb", "a\r\nb\nb\nc\n"),
        ("a\nb\r\nc\r\n", "b", "b\nb", "a\nb\r\nb\r\nc\r\n"),
        // A \r\n of the model is taken literally.
        ("a\r\nb\na\nb\n", "a\r\nb", "x", "x\na\nb\n"),
        ("a\nb\n", "b", "b\r\nc", "a\nb\r\nc\n"),
        ("a\nb\n", "a\nb", "a\r\nc", "a\nc\n"),
        // A single \r is an ordinary character.
        ("a\rb\r\nc", "a\rb", "d", "d\r\nc"),
        ("a\r\r\nb", "\nb", "\nc", "a\r\r\nc"),
    ] {
        assert_eq!(edited(file, old, new).as_deref(), Ok(expected), "{file:?}: {old:?} -> {new:?}");
    }
}

#[test]
fn refusal_explains_why_there_is_no_unique_match() {
    let advice = "use read_file, and copy the text exactly as it is";
    let code = "fn main() {\n    let a = 1;\n\tlet b = 2;\n}\n";
    for (file, old, new, expected) in [
        ("a", "", "b", "old_string is empty; give the text to replace, or use write_file for the whole file".into()),
        ("a", "a", "a", "old_string and new_string are the same".into()),
        (
            "a\r\n",
            "a\r\n",
            "a\n",
            "old_string and new_string differ only in line endings, which an edit keeps; use bash (sed)".into(),
        ),
        ("", "a", "b", "the file is empty; use write_file".into()),
        ("a\nb\n", "c", "d", format!("old_string was not found; {advice}")),
        (
            "a\nb\na\n",
            "a",
            "c",
            "old_string occurs 2 times, at lines 1 and 3; include more of the text around the one you mean".into(),
        ),
        (
            "aaa",
            "aa",
            "b",
            "old_string occurs 2 times, at line 1; include more of the text around the one you mean".into(),
        ),
        (
            "a\nb\r\na\r\nb",
            "a\nb",
            "c",
            "old_string occurs 2 times, at lines 1 and 3; include more of the text around the one you mean".into(),
        ),
        (
            &"x\n".repeat(12),
            "x",
            "y",
            "old_string occurs 12 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more; \
             include more of the text around the one you mean"
                .into(),
        ),
        (
            "a\nb\nc\n",
            "b\r\nc",
            "d",
            "old_string has \\r\\n where the file has \\n, on lines 2 to 3; use \\n, which matches both".into(),
        ),
        (
            code,
            "  let a = 1;\n  let b = 2;",
            "x",
            "old_string was not found exactly, only with other whitespace, on lines 2 to 3:\n    \
             let a = 1;\n\tlet b = 2;"
                .into(),
        ),
        (
            code,
            "let a = 1; ",
            "x",
            "old_string was not found exactly, only with other whitespace, on line 2:\n    let a = 1;".into(),
        ),
        (
            code,
            "let a = 1;\nlet c = 3;",
            "x",
            format!("old_string was not found: its first line is at line 2, but the rest does not follow; {advice}"),
        ),
        (code, " \n \n \n", "x", format!("old_string was not found; {advice}")),
    ] {
        assert_eq!(edited(file, old, new), Err(expected), "{file:?}: {old:?} -> {new:?}");
    }
}

#[test]
fn stops_counting_matches_at_the_limit() {
    let message = edited(&"x".repeat(1 << 20), "x", "y").unwrap_err();
    assert!(message.starts_with("old_string occurs 100 or more times, at line 1;"), "{message}");
}

#[test]
fn quote_is_truncated_when_it_is_too_long() {
    let message = edited(&"é x\n".repeat(2000), &"é  x\n".repeat(2000), "y").unwrap_err();
    assert!(message.ends_with("\n[truncated]") && message.len() < MAX_QUOTE_BYTES + 200, "{message}");
}

/// Any bytes except `<` and `>`, which mark the match. Line endings of both kinds are frequent.
fn surroundings() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        any::<u8>().prop_map(|b| vec![b])
    ];
    vec(byte, 0..30).prop_map(|parts| parts.concat().into_iter().filter(|b| !b"<>".contains(b)).collect())
}

fn normalized(bytes: &[u8]) -> Vec<u8> {
    NormalizedText::new(bytes).bytes.into_owned()
}

proptest! {
    #[test]
    fn bytes_outside_the_match_are_unchanged(
        before in surroundings(), after in surroundings(), old in "<[a-c\n]{0,8}>", new in "[a-c\n]{0,8}", crlf in any::<bool>(),
    ) {
        let written = if crlf { old.replace('\n', "\r\n") } else { old.clone() };
        let file = [&before[..], written.as_bytes(), &after[..]].concat();
        let edited = replace(&file, &old, &new).unwrap();
        prop_assert!(edited.starts_with(&before) && edited.ends_with(&after));
        let middle = &edited[before.len()..edited.len() - after.len()];
        prop_assert_eq!(normalized(middle), new.as_bytes());
    }

    #[test]
    fn refuses_edit_without_a_match(file in surroundings(), old in "<[a-c\n]{0,8}>", new in "[a-c\n]{0,8}") {
        prop_assert!(replace(&file, &old, &new).is_err());
    }

    #[test]
    fn reverse_edit_restores_the_file(
        before in "[a-c\n]{0,20}", after in "[a-c\n]{0,20}", old in "<[a-c\n]{0,8}>", new in "<[d-f\n]{0,8}>", crlf in any::<bool>(),
    ) {
        prop_assume!(old != new);
        // The last line ending shows the style of the file, even if the match covers everything else.
        let file = format!("{before}{old}{after}\n");
        let file = if crlf { file.replace('\n', "\r\n") } else { file };
        let edited = replace(file.as_bytes(), &old, &new).unwrap();
        prop_assert_eq!(NormalizedText::new(&edited).crlf.len(), if crlf { edited.iter().filter(|&&b| b == b'\n').count() } else { 0 });
        let back = replace(&edited, &new, &old).unwrap();
        prop_assert_eq!(String::from_utf8(back).unwrap(), file);
    }

    #[test]
    fn never_panics(file in vec(any::<u8>(), 0..60), old in "[a\r\n é]{0,4}", new in "[a\r\n é]{0,4}") {
        let _ = replace(&file, &old, &new);
    }
}
