//! The items of a response's output, from the pieces of an answer.
//!
//! At most one item is open, except for tools of the agent, which may overlap with everything:
//!
//! ```text
//!            text ┌─────────┐ reasoning
//!        ┌───────▶│ Message │◀───────┐
//!        │        └────┬────┘        ▼
//!   (no item open)     │        ┌───────────┐
//!        │             ▼        │ Reasoning │     every change of the kind closes the open item
//!        └───────▶ ┌──────┐     └───────────┘
//!            call  │ Call │◀─────────┘
//!                  └──────┘
//! ```

use serde_json::{Value, json};
use trunkline_core::event::ToolCall;

use super::frames::FrameWriter;
use super::ids;
use super::output_objects::{ItemEvent, ItemObject, PartEvent, PartObject, PartPlace, TextDone};
use crate::dialect::json::json as append_json;

/// The output of a response so far.
#[derive(Debug)]
pub(super) struct Output {
    run: String,
    /// JSON of the items in order; empty for an item that is open.
    items: Vec<String>,
    open: Option<OpenItem>,
    tools: Vec<OpenTool>,
    /// Whether there is a message or a call, open or closed.
    has_answer: bool,
    has_calls: bool,
}

/// The item that is being written.
#[derive(Debug)]
struct OpenItem {
    kind: OpenKind,
    index: usize,
    id: String,
    text: String,
    /// The members of a delta before its text.
    before_delta: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OpenKind {
    Message,
    Reasoning,
    Call { number: u32, call_id: String, name: String },
}

/// A tool of the agent that has started.
#[derive(Debug)]
struct OpenTool {
    index: usize,
    /// The agent's id, which may repeat.
    tool: String,
    item: Value,
}

/// State of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    /// The run ended before the item did.
    Incomplete,
}

impl ItemStatus {
    const fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }
}

impl Output {
    pub(super) fn new(run: &str) -> Self {
        Self {
            run: run.to_owned(),
            items: Vec::new(),
            open: None,
            tools: Vec::new(),
            has_answer: false,
            has_calls: false,
        }
    }

    /// Whether there is a message or a call.
    pub(super) fn has_answer(&self) -> bool {
        self.has_answer
    }

    pub(super) fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// The JSON of all items. Those that are open are as far as they have come.
    pub(super) fn items(&self) -> Vec<String> {
        let mut items = self.items.clone();
        if let Some(open) = &self.open {
            items[open.index] = as_json(&open.item(ItemStatus::InProgress));
        }
        for tool in &self.tools {
            items[tool.index] = tool.item.to_string();
        }
        items
    }

    pub(super) fn text(&mut self, delta: &str, frames: &mut FrameWriter, out: &mut Vec<u8>) {
        self.delta(OpenKind::Message, delta, frames, out);
    }

    pub(super) fn reasoning(&mut self, delta: &str, frames: &mut FrameWriter, out: &mut Vec<u8>) {
        self.delta(OpenKind::Reasoning, delta, frames, out);
    }

    /// Adds a piece of a call. The first one of each number has the id and the name.
    pub(super) fn call(
        &mut self,
        number: u32,
        id: Option<&str>,
        name: Option<&str>,
        arguments: &str,
        frames: &mut FrameWriter,
        out: &mut Vec<u8>,
    ) {
        let kind = match &self.open {
            Some(OpenItem { kind: kind @ OpenKind::Call { number: open, .. }, .. }) if *open == number => kind.clone(),
            Some(_) | None => OpenKind::Call {
                number,
                call_id: id.map_or_else(|| ids::item("call", &self.run, self.items.len()), str::to_owned),
                name: name.unwrap_or_default().to_owned(),
            },
        };
        self.delta(kind, arguments, frames, out);
    }

    /// Adds calls that were reported all at once.
    pub(super) fn calls(&mut self, calls: &[ToolCall], frames: &mut FrameWriter, out: &mut Vec<u8>) {
        for (number, ToolCall { id, name, arguments }) in (0..).zip(calls) {
            let id = Some(id.as_str()).filter(|id| !id.is_empty());
            self.call(number, id, Some(name), arguments, frames, out);
        }
    }

    pub(super) fn tool_started(
        &mut self,
        tool: &str,
        name: &str,
        input: &Value,
        frames: &mut FrameWriter,
        out: &mut Vec<u8>,
    ) {
        self.close(ItemStatus::Completed, frames, out);
        let index = self.items.len();
        let item = json!({
            "id": ids::item("tool", &self.run, index), "type": "trunkline:tool_call", "status": "in_progress",
            "name": name, "input": input, "output": null, "ok": null,
        });
        frames.frame("response.output_item.added", &ItemEvent { output_index: index, item: &item }, out);
        self.items.push(String::new());
        self.tools.push(OpenTool { index, tool: tool.to_owned(), item });
    }

    pub(super) fn tool_finished(
        &mut self,
        tool: &str,
        output: &str,
        ok: bool,
        frames: &mut FrameWriter,
        out: &mut Vec<u8>,
    ) {
        // Ids come from CLIs and may repeat.
        let Some(position) = self.tools.iter().rposition(|open| open.tool == tool) else { return };
        let mut open = self.tools.remove(position);
        open.item["output"] = output.into();
        open.item["ok"] = ok.into();
        self.close_tool(open, ItemStatus::Completed, frames, out);
    }

    /// Closes everything that is open.
    pub(super) fn end(&mut self, status: ItemStatus, frames: &mut FrameWriter, out: &mut Vec<u8>) {
        for tool in std::mem::take(&mut self.tools) {
            self.close_tool(tool, ItemStatus::Incomplete, frames, out);
        }
        self.close(status, frames, out);
    }

    fn close_tool(&mut self, mut open: OpenTool, status: ItemStatus, frames: &mut FrameWriter, out: &mut Vec<u8>) {
        open.item["status"] = status.name().into();
        frames.frame("response.output_item.done", &ItemEvent { output_index: open.index, item: &open.item }, out);
        self.items[open.index] = open.item.to_string();
    }

    fn delta(&mut self, kind: OpenKind, delta: &str, frames: &mut FrameWriter, out: &mut Vec<u8>) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(ItemStatus::Completed, frames, out);
            self.open(kind, frames, out);
        }
        let Some(open) = self.open.as_mut().filter(|_| !delta.is_empty()) else { return };
        open.text.push_str(delta);
        let (name, after): (_, &[u8]) = match open.kind {
            OpenKind::Message => ("response.output_text.delta", b",\"logprobs\":[]"),
            OpenKind::Reasoning => ("response.reasoning_summary_text.delta", b""),
            OpenKind::Call { .. } => ("response.function_call_arguments.delta", b""),
        };
        frames.frame_with(name, out, |out| {
            out.extend_from_slice(&open.before_delta);
            append_json(out, delta);
            out.extend_from_slice(after);
        });
    }

    fn open(&mut self, kind: OpenKind, frames: &mut FrameWriter, out: &mut Vec<u8>) {
        let index = self.items.len();
        let (prefix, part) = match kind {
            OpenKind::Message => ("msg", ",\"content_index\":0"),
            OpenKind::Reasoning => ("rs", ",\"summary_index\":0"),
            OpenKind::Call { .. } => ("fc", ""),
        };
        let id = ids::item(prefix, &self.run, index);
        let before_delta = format!(",\"item_id\":\"{id}\",\"output_index\":{index}{part},\"delta\":").into_bytes();
        self.has_calls |= prefix == "fc";
        self.has_answer |= prefix != "rs";
        let open = OpenItem { kind, index, id, text: String::new(), before_delta };
        let item = open.item(ItemStatus::InProgress);
        frames.frame("response.output_item.added", &ItemEvent { output_index: index, item }, out);
        match open.kind {
            OpenKind::Message => frames.frame("response.content_part.added", &open.part(true), out),
            OpenKind::Reasoning => frames.frame("response.reasoning_summary_part.added", &open.part(true), out),
            OpenKind::Call { .. } => {}
        }
        self.items.push(String::new());
        self.open = Some(open);
    }

    /// Closes the open item.
    fn close(&mut self, status: ItemStatus, frames: &mut FrameWriter, out: &mut Vec<u8>) {
        let Some(open) = self.open.take() else { return };
        let OpenItem { kind, index, id: item_id, text, .. } = &open;
        let output_index = *index;
        match kind {
            OpenKind::Message => {
                let done = TextDone::Message { item_id, output_index, content_index: 0, text, logprobs: [] };
                frames.frame("response.output_text.done", &done, out);
                frames.frame("response.content_part.done", &open.part(false), out);
            }
            OpenKind::Reasoning => {
                let done = TextDone::Reasoning { item_id, output_index, summary_index: 0, text };
                frames.frame("response.reasoning_summary_text.done", &done, out);
                frames.frame("response.reasoning_summary_part.done", &open.part(false), out);
            }
            OpenKind::Call { name, .. } => {
                let done = TextDone::Call { item_id, output_index, name, arguments: text };
                frames.frame("response.function_call_arguments.done", &done, out);
            }
        }
        let item = open.item(status);
        self.items[output_index] = as_json(&item);
        frames.frame("response.output_item.done", &ItemEvent { output_index, item }, out);
    }
}

impl OpenItem {
    /// The item. Its content is empty while it has no text.
    fn item(&self, status: ItemStatus) -> ItemObject<'_> {
        let Self { kind, id, text, .. } = self;
        let begun = status != ItemStatus::InProgress || !text.is_empty();
        let status = status.name();
        match kind {
            OpenKind::Message => {
                let content = begun.then(|| PartObject::text(text)).into_iter().collect();
                ItemObject::Message { id, kind: "message", status, role: "assistant", content }
            }
            OpenKind::Reasoning => {
                let summary = begun.then_some(PartObject::Summary { text }).into_iter().collect();
                ItemObject::Reasoning { id, kind: "reasoning", status, summary }
            }
            OpenKind::Call { call_id, name, .. } => {
                ItemObject::Call { id, kind: "function_call", status, call_id, name, arguments: text }
            }
        }
    }

    /// The members of the events about the only part of a message or of a reasoning.
    fn part(&self, empty: bool) -> PartEvent<'_> {
        let text = if empty { "" } else { &self.text };
        let (place, part) = match self.kind {
            OpenKind::Reasoning => (PartPlace::Summary(0), PartObject::Summary { text }),
            OpenKind::Message | OpenKind::Call { .. } => (PartPlace::Content(0), PartObject::text(text)),
        };
        PartEvent { item_id: &self.id, output_index: self.index, place, part }
    }
}

fn as_json(item: &ItemObject<'_>) -> String {
    serde_json::to_string(item).expect("strings always serialise")
}
