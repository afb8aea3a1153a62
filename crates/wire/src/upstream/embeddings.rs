//! Embeddings: the request to an upstream, and the check of its answer. Both are passed on as they are, except for the name of the
//! model.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use trunkline_core::failure::{Category, Failure, FailureRule};
use trunkline_core::turn::Json;

use super::failure::{in_band, summarize};

/// Returns the request body for these members on the upstream's `model`.
#[must_use]
pub fn embeddings_request(model: Option<&str>, members: &[(String, Json)]) -> Vec<u8> {
    let body = EmbeddingsBody { model, members };
    serde_json::to_vec(&body).expect("text and JSON that was parsed before always serialise")
}

struct EmbeddingsBody<'a> {
    model: Option<&'a str>,
    members: &'a [(String, Json)],
}

impl Serialize for EmbeddingsBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        if let Some(model) = self.model {
            body.serialize_entry("model", model)?;
        }
        for (name, value) in self.members.iter().filter(|(name, _)| name != "model") {
            body.serialize_entry(name, value)?;
        }
        body.end()
    }
}

/// Checks that the body of a successful response has embeddings. Some servers report an error with status 200.
pub fn check_embeddings(body: &[u8], rules: &[FailureRule]) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct UpstreamEmbeddings<'a> {
        data: Option<Vec<IgnoredAny>>,
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    match serde_json::from_slice::<UpstreamEmbeddings<'_>>(body) {
        Ok(UpstreamEmbeddings { data: Some(_), .. }) => Ok(()),
        Ok(UpstreamEmbeddings { error: Some(error), .. }) => Err(in_band(error.get(), rules)),
        Ok(_) | Err(_) => {
            let head = summarize(&String::from_utf8_lossy(&body[..body.len().min(2000)]));
            let head = head.map(|head| format!(": {head}")).unwrap_or_default();
            let message = format!("the upstream did not answer with embeddings{head}");
            Err(Failure::new(Category::Configuration, message).hint("check base_url: it usually ends in /v1"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn request_has_the_model_of_the_upstream_and_all_other_members() {
        let members = [("model", json!("ours")), ("input", json!([[1, 2], [3]])), ("dimensions", json!(8))];
        let members: Vec<(String, Json)> =
            members.iter().map(|(name, value)| ((*name).to_owned(), Json::from(value))).collect();
        let body = |model| serde_json::from_slice::<Value>(&embeddings_request(model, &members)).unwrap();
        assert_eq!(body(Some("theirs")), json!({"model": "theirs", "input": [[1, 2], [3]], "dimensions": 8}));
        assert_eq!(body(None), json!({"input": [[1, 2], [3]], "dimensions": 8}));
    }

    #[test]
    fn answer_without_embeddings_is_a_failure() {
        for (body, category, message) in [
            (r#"{"error": {"message": "no such model", "code": 404}}"#, Category::NotFound, "no such model"),
            (
                "<html><title>Hi</title></html>",
                Category::Configuration,
                "the upstream did not answer with embeddings: Hi",
            ),
            ("{}", Category::Configuration, "the upstream did not answer with embeddings: {}"),
            ("", Category::Configuration, "the upstream did not answer with embeddings"),
        ] {
            let failure = check_embeddings(body.as_bytes(), &[]).unwrap_err();
            assert_eq!((failure.category, failure.message.as_str()), (category, message));
        }
        assert_eq!(check_embeddings(br#"{"data": [{"embedding": [0.5]}], "error": null}"#, &[]), Ok(()));
    }
}
