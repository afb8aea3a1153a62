use proptest::prelude::*;

use super::*;

fn rendered(text: &str, limit: usize) -> Vec<String> {
    split(text, limit).iter().map(Part::rendered).collect()
}

/// How often a code block is opened or closed, counted in another way than the code does.
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

#[track_caller]
fn holds(text: &str, limit: usize) {
    let parts = split(text, limit);
    let joined: String = parts.iter().map(|part| part.body).collect();
    assert_eq!(joined, text);
    for part in &parts {
        let sent = part.rendered();
        assert!(units(&sent) <= limit, "{} units: {sent:?}", units(&sent));
        assert_eq!(fences(&sent) % 2, 0, "torn: {sent:?} of {text:?}");
    }
}

#[test]
fn a_short_text_is_one_message_as_it_is() {
    assert_eq!(rendered("Hello.", LIMIT), ["Hello."]);
    assert_eq!(rendered("", LIMIT), Vec::<String>::new());
    assert_eq!(rendered(&"a".repeat(2000), LIMIT).len(), 1);
    assert_eq!(rendered(&"a".repeat(2001), LIMIT).len(), 2);
}

#[test]
fn paragraphs_come_before_lines_and_lines_before_words() {
    let paragraphs = format!("{}\n\n{}\nmore", "a ".repeat(30), "b ".repeat(10));
    assert_eq!(split(&paragraphs, 80)[1].body, format!("{}\nmore", "b ".repeat(10)));
    let words = "word ".repeat(30);
    assert!(split(&words, 64).iter().all(|part| part.body.ends_with(' ')));
}

#[test]
fn a_code_block_goes_on_in_the_next_message() {
    let text = format!("Look:\n```rust\n{}```\nDone.", "let a = 1;\n".repeat(60));
    let parts = rendered(&text, 200);
    assert!(parts.len() > 2);
    assert!(parts[0].starts_with("Look:\n```rust\nlet") && parts[0].ends_with("let a = 1;\n```"), "{parts:?}");
    assert!(parts[1].starts_with("```rust\nlet a = 1;\n") && parts[1].ends_with("```"), "{parts:?}");
    assert!(parts.last().unwrap().ends_with("```\nDone."), "{parts:?}");
    holds(&text, 200);
}

#[test]
fn a_code_block_that_is_never_closed_is_closed() {
    assert_eq!(rendered("```sh\nls", LIMIT), ["```sh\nls\n```"]);
    holds(&format!("```\n{}", "x".repeat(5000)), LIMIT);
}

#[test]
fn a_code_block_begins_in_the_message_where_its_code_is() {
    let text = format!("{}\n```py\n{}```", "a".repeat(150), "print()\n".repeat(20));
    let parts = rendered(&text, 170);
    assert!(!parts[0].contains("```"), "{parts:?}");
    assert!(parts[1].starts_with("```py\nprint()"), "{parts:?}");
}

#[test]
fn what_people_see_as_one_character_stays_one() {
    let family = "👨‍👩‍👧‍👦";
    for part in split(&family.repeat(300), 100) {
        assert!(part.body.starts_with('👨') && part.body.ends_with('👦'), "{part:?}");
    }
    holds(&"é".repeat(3000), LIMIT);
    holds(&"\u{301}".repeat(5000), LIMIT);
}

#[test]
fn backticks_are_not_torn() {
    for shift in 0..12 {
        holds(&format!("{}```rust\ncode\n``` and ```inline``` here", "a".repeat(40 + shift)), 64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text(
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
        holds(&pieces.join(" "), limit);
        holds(&pieces.concat(), limit);
    }
}
