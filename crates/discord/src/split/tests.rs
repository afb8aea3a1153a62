use proptest::prelude::*;

use super::*;

fn rendered(text: &str, limit: usize) -> Vec<String> {
    split(text, limit).iter().map(MessagePart::rendered).collect()
}

/// Number of fences, counted independently of the implementation.
fn fences(text: &str) -> usize {
    let mut runs = 0;
    let mut run = 0;
    for c in text.chars().chain(['\n']) {
        if c == '`' {
            run += 1;
        } else {
            runs += usize::from(run >= 3);
            run = 0;
        }
    }
    runs
}

/// Checks that the parts are complete, short enough and have balanced fences.
#[track_caller]
fn check(text: &str, limit: usize) {
    let parts = split(text, limit);
    let joined: String = parts.iter().map(|part| part.body).collect();
    assert_eq!(joined, text);
    for part in &parts {
        let sent = part.rendered();
        assert!(units(&sent) <= limit, "{} units: {sent:?}", units(&sent));
        assert_eq!(fences(&sent) % 2, 0, "unbalanced: {sent:?} of {text:?}");
    }
}

#[test]
fn short_text_is_one_unchanged_message() {
    assert_eq!(rendered("Hello.", MAX_MESSAGE_UNITS), ["Hello."]);
    assert_eq!(rendered("", MAX_MESSAGE_UNITS), Vec::<String>::new());
    assert_eq!(rendered(&"a".repeat(2000), MAX_MESSAGE_UNITS).len(), 1);
    assert_eq!(rendered(&"a".repeat(2001), MAX_MESSAGE_UNITS).len(), 2);
}

#[test]
fn splits_at_paragraphs_before_lines_before_words() {
    let paragraphs = format!("{}\n\n{}\nmore", "a ".repeat(30), "b ".repeat(10));
    assert_eq!(split(&paragraphs, 80)[1].body, format!("{}\nmore", "b ".repeat(10)));
    let words = "word ".repeat(30);
    assert!(split(&words, 64).iter().all(|part| part.body.ends_with(' ')));
}

#[test]
fn code_block_is_reopened_in_the_next_message() {
    let text = format!("Look:\n```rust\n{}```\nDone.", "let a = 1;\n".repeat(60));
    let parts = rendered(&text, 200);
    assert!(parts.len() > 2);
    assert!(parts[0].starts_with("Look:\n```rust\nlet") && parts[0].ends_with("let a = 1;\n```"), "{parts:?}");
    assert!(parts[1].starts_with("```rust\nlet a = 1;\n") && parts[1].ends_with("```"), "{parts:?}");
    assert!(parts.last().unwrap().ends_with("```\nDone."), "{parts:?}");
    check(&text, 200);
}

#[test]
fn unclosed_code_block_is_closed() {
    assert_eq!(rendered("```sh\nls", MAX_MESSAGE_UNITS), ["```sh\nls\n```"]);
    check(&format!("```\n{}", "x".repeat(5000)), MAX_MESSAGE_UNITS);
}

#[test]
fn code_block_is_not_split_after_its_first_line() {
    let text = format!("{}\n```py\n{}```", "a".repeat(150), "print()\n".repeat(20));
    let parts = rendered(&text, 170);
    assert!(!parts[0].contains("```"), "{parts:?}");
    assert!(parts[1].starts_with("```py\nprint()"), "{parts:?}");
}

#[test]
fn grapheme_clusters_are_not_split() {
    let family = "👨‍👩‍👧‍👦";
    for part in split(&family.repeat(300), 100) {
        assert!(part.body.starts_with('👨') && part.body.ends_with('👦'), "{part:?}");
    }
    check(&"é".repeat(3000), MAX_MESSAGE_UNITS);
    check(&"\u{301}".repeat(5000), MAX_MESSAGE_UNITS);
}

#[test]
fn backticks_are_not_split() {
    for shift in 0..12 {
        check(&format!("{}```rust\ncode\n``` and ```inline``` here", "a".repeat(40 + shift)), 64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_text_is_split_correctly(
        pieces in proptest::collection::vec(prop_oneof![
            4 => "[a-z ]{0,40}".prop_map(String::from),
            2 => Just("\n".to_owned()),
            1 => Just("\n\n".to_owned()),
            2 => Just("```".to_owned()),
            1 => Just("\n```rust\n".to_owned()),
            1 => Just("````".to_owned()),
            1 => Just("`x`".to_owned()),
            1 => "\\PC{0,30}".prop_filter("no runs of its own", |text| !text.contains("``")),
            1 => "[a-z]{60,200}".prop_map(String::from),
        ], 0..60),
        limit in 96usize..400,
    ) {
        // A space between two pieces keeps their backticks apart.
        check(&pieces.join(" "), limit);
        check(&pieces.concat(), limit);
    }
}
