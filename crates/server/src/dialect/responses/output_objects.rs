//! Output items and the events about them, as they are serialised. They borrow their texts, and cost nothing in an answer whose
//! frames are not written.

use serde::Serialize;

/// An item.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ItemObject<'a> {
    Message {
        id: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        status: &'static str,
        role: &'static str,
        content: Vec<PartObject<'a>>,
    },
    Reasoning {
        id: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        status: &'static str,
        summary: Vec<PartObject<'a>>,
    },
    Call {
        id: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
}

/// The part of a message or of a reasoning.
#[derive(Serialize)]
#[serde(tag = "type")]
pub(super) enum PartObject<'a> {
    #[serde(rename = "output_text")]
    Text { text: &'a str, annotations: [(); 0], logprobs: [(); 0] },
    #[serde(rename = "summary_text")]
    Summary { text: &'a str },
}

/// Members of an event about an item.
#[derive(Serialize)]
pub(super) struct ItemEvent<T> {
    pub(super) output_index: usize,
    pub(super) item: T,
}

/// Members of an event about a part. One of the two last indices is set.
#[derive(Serialize)]
pub(super) struct PartEvent<'a> {
    pub(super) item_id: &'a str,
    pub(super) output_index: usize,
    #[serde(flatten)]
    pub(super) place: PartPlace,
    pub(super) part: PartObject<'a>,
}

/// Members of the event that ends a text or the arguments of a call.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum TextDone<'a> {
    Message { item_id: &'a str, output_index: usize, content_index: u32, text: &'a str, logprobs: [(); 0] },
    Reasoning { item_id: &'a str, output_index: usize, summary_index: u32, text: &'a str },
    Call { item_id: &'a str, output_index: usize, name: &'a str, arguments: &'a str },
}

/// Index of the only part of an item.
#[derive(Serialize)]
pub(super) enum PartPlace {
    #[serde(rename = "content_index")]
    Content(u32),
    #[serde(rename = "summary_index")]
    Summary(u32),
}

impl<'a> PartObject<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self::Text { text, annotations: [], logprobs: [] }
    }
}
