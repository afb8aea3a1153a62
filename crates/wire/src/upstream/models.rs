//! The model list of an upstream, as far as the health check needs it.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Returns the number of models in the body of `GET /models`, or `None` if it is not a model list.
#[must_use]
pub fn models(body: &[u8]) -> Option<usize> {
    #[derive(Deserialize)]
    struct UpstreamModels {
        data: Option<Vec<IgnoredAny>>,
    }
    let bare = || serde_json::from_slice::<Vec<IgnoredAny>>(body).ok();
    match body.iter().find(|byte| !byte.is_ascii_whitespace())? {
        b'[' => bare().map(|list| list.len()),
        // A server without models may send null.
        _ => serde_json::from_slice::<UpstreamModels>(body).ok().map(|listed| listed.data.map_or(0, |list| list.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_counted_only_when_body_is_a_list() {
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
