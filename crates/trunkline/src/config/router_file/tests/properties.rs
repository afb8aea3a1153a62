//! Properties of any file.

use proptest::prelude::*;
use serde_json::json;

use super::{RouterFolder, load_text};

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RouterFolder::new().load(bytes);
    }

    /// Pieces of real files, in any order.
    #[test]
    fn no_yaml_causes_a_panic(pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..40)) {
        let _ = load_text(&pieces.concat());
    }

    #[test]
    fn any_text_is_accepted_as_a_model(model in "[^\\p{C}\\s$]{1,20}") {
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
