//! What an upstream says of its models, as far as its health depends on it.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// How many models the body of `GET /models` lists; none if it is no such list.
#[must_use]
pub fn models(body: &[u8]) -> Option<usize> {
    #[derive(Deserialize)]
    struct Listed {
        data: Option<Vec<IgnoredAny>>,
    }
    let bare = || serde_json::from_slice::<Vec<IgnoredAny>>(body).ok();
    match body.iter().find(|byte| !byte.is_ascii_whitespace())? {
        b'[' => bare().map(|list| list.len()),
        // A server without models may say null.
        _ => serde_json::from_slice::<Listed>(body).ok().map(|listed| listed.data.map_or(0, |list| list.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted_and_other_things_are_not() {
        for (body, count) in [
            (r#"{"object":"list","data":[{"id":"a","object":"model"},{"id":"b"}]}"#, Some(2)),
            (r#"{"object":"list","data":null}"#, Some(0)),
            (r#" [{"id":"a"}]"#, Some(1)),
            (r#"{"data":"none"}"#, None),
            ("<html>", None),
            ("", None),
        ] {
            assert_eq!(models(body.as_bytes()), count, "{body}");
        }
    }
}
