//! A message with a file. Pure.

use serde_json::Value;

use crate::layout::File;

/// A message with a file, as a form: its content type and its body.
pub(super) fn form(json: &Value, file: &File) -> (String, Vec<u8>) {
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
    fn what_separates_the_parts_is_in_none_of_them() {
        let file = File { name: "answer.md", text: "a trunkline-part and a trunkline-part-".to_owned() };
        let (kind, body) = form(&json!({"content": "c"}), &file);
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(body.split(&format!("--{boundary}")).count(), 4, "{body}");
        assert!(body.contains("\r\n\r\na trunkline-part and a trunkline-part-\r\n"), "{body}");
    }
}
