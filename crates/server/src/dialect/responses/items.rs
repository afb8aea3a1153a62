//! Input items exactly as on the wire. Output items of an earlier response are valid input items, too.
//!
//! Parsed leniently, like chat messages: unknown members are ignored, and every optional member may be null.

use serde::{Deserialize, Serialize};

use crate::dialect::text_or::TextOr;

/// Maximum number of items in a request.
pub(super) const MAX_ITEMS: usize = 8192;

/// Maximum number of parts of an item.
const MAX_PARTS: usize = 4096;

/// Maximum size of an image or file that is stored with its item.
const MAX_STORED_FILE_BYTES: usize = 64 * 1024;

/// The `input` of a request.
pub(super) type Input = TextOr<InputItem, MAX_ITEMS>;

/// Content of a message, or output of a call.
pub(super) type Content = TextOr<Part, MAX_PARTS>;

/// One item. A flat struct rather than an enum, so that a parse error can name the path inside it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct InputItem {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// A message if absent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Content>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<String>,
    /// Of a custom tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Content>,
    /// Of a reasoning item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Content>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Part {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filename: Option<String>,
}

impl InputItem {
    /// A message of the user.
    pub(super) fn of_user(text: String) -> Self {
        Self { role: Some("user".to_owned()), content: Some(Content::Text(text)), ..Self::default() }
    }

    /// Whether it stands for an item of an earlier response.
    pub(super) fn is_reference(&self) -> bool {
        self.kind() == "item_reference"
    }

    pub(super) fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("message")
    }

    /// The item as it is stored and listed: with parts, without the bytes of large images and files.
    pub(super) fn normalized(&self) -> Self {
        let mut item = Self { kind: Some(self.kind().to_owned()), ..self.without_content() };
        item.output = self.output.as_ref().map(Content::without_large_files);
        item.content = self.content.as_ref().map(Content::without_large_files);
        if self.kind() == "message" {
            item.status.get_or_insert_with(|| "completed".to_owned());
            if let Some(Content::Text(text)) = item.content {
                let kind = if self.role.as_deref() == Some("assistant") { "output_text" } else { "input_text" };
                let part = Part { kind: kind.to_owned(), text: Some(text), ..Part::default() };
                item.content = Some(Content::List(vec![part]));
            }
        }
        item
    }

    /// The item for a history: names in place of images and files that were not stored.
    pub(super) fn without_missing_files(mut self) -> Self {
        for content in [&mut self.content, &mut self.output].into_iter().flatten() {
            if let Content::List(parts) = content {
                parts.iter_mut().for_each(Part::name_missing_file);
            }
        }
        self
    }

    fn without_content(&self) -> Self {
        let Self { id, kind, status, role, call_id, name, arguments, input, summary, .. } = self;
        Self {
            id: id.clone(),
            kind: kind.clone(),
            status: status.clone(),
            role: role.clone(),
            content: None,
            call_id: call_id.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
            input: input.clone(),
            output: None,
            summary: summary.clone(),
        }
    }
}

impl Content {
    fn without_large_files(&self) -> Self {
        let Self::List(parts) = self else { return self.clone() };
        let small = |data: &Option<String>| data.clone().filter(|data| data.len() <= MAX_STORED_FILE_BYTES);
        let part = |part: &Part| Part {
            kind: part.kind.clone(),
            text: part.text.clone(),
            refusal: part.refusal.clone(),
            image_url: small(&part.image_url),
            detail: part.detail.clone(),
            file_id: part.file_id.clone(),
            file_url: part.file_url.clone(),
            file_data: small(&part.file_data),
            filename: part.filename.clone(),
        };
        Self::List(parts.iter().map(part).collect())
    }
}

impl Part {
    fn name_missing_file(&mut self) {
        let name = match self.kind.as_str() {
            "input_image" if self.image_url.is_none() => "[image]".to_owned(),
            "input_file" if self.file_data.is_none() => {
                format!("[File: {}]", self.filename.as_deref().unwrap_or("file"))
            }
            _ => return,
        };
        *self = Self { kind: "input_text".to_owned(), text: Some(name), ..Self::default() };
    }
}
