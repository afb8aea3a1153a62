//! Multipart forms. Pure.

use serde_json::Value;

use crate::layout::AnswerFile;

/// Content type and body of a form with a message and a file.
pub(super) fn form(json: &Value, file: &AnswerFile) -> (String, Vec<u8>) {
    let mut boundary = "trunkline-part".to_owned();
    while file.text.contains(&boundary) || json.to_string().contains(&boundary) {
        boundary.push('-');
    }
    let body = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"payload_json\"\r\ncontent-type: application/json\r\n\r\n\
         {json}\r\n--{boundary}\r\ncontent-disposition: form-data; name=\"files[0]\"; filename=\"{}\"\r\n\
         content-type: text/plain; charset=utf-8\r\n\r\n{}\r\n--{boundary}--\r\n",
        file.name, file.text
    );
    (format!("multipart/form-data; boundary={boundary}"), body.into_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn boundary_does_not_occur_in_the_parts() {
        let file = AnswerFile { name: "answer.md", text: "a trunkline-part and a trunkline-part-".to_owned() };
        let (kind, body) = form(&json!({"content": "c"}), &file);
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(body.split(&format!("--{boundary}")).count(), 4, "{body}");
        assert!(body.contains("\r\n\r\na trunkline-part and a trunkline-part-\r\n"), "{body}");
    }
}
