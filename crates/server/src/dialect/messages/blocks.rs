//! Messages and their content blocks exactly as on the wire.
//!
//! Parsed leniently: unknown members, such as `cache_control`, are ignored, and every optional member may be null.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::text_or::TextOr;

/// Maximum number of blocks of a message.
const MAX_BLOCKS: usize = 4096;

/// Content of a message, of a tool's result, or of the system prompt.
pub(super) type Content = TextOr<Block, MAX_BLOCKS>;

#[derive(Debug, Deserialize)]
pub(super) struct WireMessage {
    pub(super) role: Option<String>,
    pub(super) content: Option<Content>,
}

/// One block. A flat struct rather than an enum, so that a parse error can name the path inside it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Block {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
    /// Of an image or a document. Raw JSON, because blocks of other types have other values here.
    pub(super) source: Option<Box<RawValue>>,
    /// Of a document.
    pub(super) title: Option<String>,
    /// Of a `tool_use`.
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) input: Option<Box<RawValue>>,
    /// Of a `tool_result`.
    pub(super) tool_use_id: Option<String>,
    pub(super) is_error: Option<bool>,
    pub(super) content: Option<Box<RawValue>>,
}

/// Source of an image or a document.
#[derive(Debug, Deserialize)]
pub(super) struct Source<'a> {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) media_type: Option<String>,
    #[serde(borrow)]
    pub(super) data: Option<Cow<'a, str>>,
    pub(super) url: Option<String>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
}
