//! What holds for any file.

use proptest::prelude::*;
use serde_json::json;

use super::{Setting, load_text};

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _either = Setting::new().load(bytes);
    }

    /// Pieces of real files, in any order.
    #[test]
    fn no_yaml_makes_it_panic(pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..40)) {
        let _either = load_text(&pieces.concat());
    }

    #[test]
    fn any_model_that_is_text_is_a_model(model in "[^\\p{C}\\s$]{1,20}") {
        let text = json!({"providers": [{"name": "p", "type": "cli", "config": {"path": "/p", "model": model}}]});
        let (router, _) = load_text(&text.to_string()).unwrap();
        prop_assert_eq!(router.providers[0].options.model.as_ref(), Some(&model));
    }
}

const PIECES: [&str; 40] = [
    "providers:",
    "routing:",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "name: ",
    "a",
    "type: ",
    "cli",
    "api",
    "agent",
    "config: ",
    "path: ",
    "base_url: ",
    "models: ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    ": ",
    "*x",
    "&x ",
    "<<: ",
    "!!str ",
    "'",
    "\"",
    "|",
    ">",
    "#",
    "---",
    "${KEY}",
    "${",
    "0x1f",
    "1e999",
    "~",
    "true",
    "\t",
    "é",
];
