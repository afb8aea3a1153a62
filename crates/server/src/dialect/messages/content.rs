//! The content of an answer: blocks, as frames of a stream or as a list.
//!
//! At most one block is open, and every change of the kind closes it:
//!
//! ```text
//! (none) ──▶ Text ◀──▶ Thinking ◀──▶ Call ◀──▶ Text
//! ```

use serde_json::json;
use serde_json::value::RawValue;

use super::frames::frame;
use crate::dialect::json::json as append_json;

/// How the content is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As frames, while it comes.
    Frames,
    /// As a list, at the end.
    List,
}

#[derive(Debug)]
pub(super) struct Content {
    form: Form,
    /// Prefix of the ids of calls that have none.
    call_prefix: String,
    open: Option<OpenBlock>,
    /// Number of blocks so far.
    count: usize,
    /// The JSON of the closed blocks, with commas between them. Only as a list.
    list: Vec<u8>,
    has_answer: bool,
    has_calls: bool,
}

#[derive(Debug)]
struct OpenBlock {
    kind: OpenKind,
    /// Text or arguments so far. Only as a list.
    text: String,
    /// Beginning of the frame of a delta. Only as frames.
    before_delta: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OpenKind {
    Text,
    Thinking,
    Call { number: u32, id: String, name: String },
}

impl Content {
    pub(super) fn new(form: Form, run: &str) -> Self {
        Self {
            form,
            call_prefix: format!("toolu_{run}_"),
            open: None,
            count: 0,
            list: Vec::new(),
            has_answer: false,
            has_calls: false,
        }
    }

    /// Whether there is a text or a call.
    pub(super) fn has_answer(&self) -> bool {
        self.has_answer
    }

    pub(super) fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// The JSON of all blocks.
    pub(super) fn list(&self) -> &[u8] {
        &self.list
    }

    pub(super) fn text(&mut self, delta: &str, out: &mut Vec<u8>) {
        if !self.is_open(&OpenKind::Text) {
            self.open(OpenKind::Text, out);
        }
        self.delta(delta, out);
    }

    pub(super) fn thinking(&mut self, delta: &str, out: &mut Vec<u8>) {
        if !self.is_open(&OpenKind::Thinking) {
            self.open(OpenKind::Thinking, out);
        }
        self.delta(delta, out);
    }

    /// Adds a piece of a call. The first one of each number has the id and the name.
    pub(super) fn call(
        &mut self,
        number: u32,
        id: Option<&str>,
        name: Option<&str>,
        arguments: &str,
        out: &mut Vec<u8>,
    ) {
        let continues = matches!(
            &self.open,
            Some(OpenBlock { kind: OpenKind::Call { number: open, .. }, .. }) if *open == number
        );
        if !continues {
            let id = id.filter(|id| !id.is_empty());
            let id = id.map_or_else(|| format!("{}{}", self.call_prefix, self.next_index()), str::to_owned);
            self.open(OpenKind::Call { number, id, name: name.unwrap_or_default().to_owned() }, out);
        }
        self.delta(arguments, out);
    }

    /// Closes the open block.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        let Some(open) = self.open.take() else { return };
        match self.form {
            Form::Frames => {
                let index = self.count - 1;
                if open.kind == OpenKind::Thinking {
                    // Clients expect one. There is nothing to sign: thinking that comes back is ignored.
                    frame(out, "content_block_delta", |out| {
                        out.extend_from_slice(
                            format!(r#","index":{index},"delta":{{"type":"signature_delta","signature":""}}"#)
                                .as_bytes(),
                        );
                    });
                }
                frame(out, "content_block_stop", |out| {
                    out.extend_from_slice(format!(r#","index":{index}"#).as_bytes());
                });
            }
            Form::List => {
                if !self.list.is_empty() {
                    self.list.push(b',');
                }
                open.write(&mut self.list);
            }
        }
    }

    fn is_open(&self, kind: &OpenKind) -> bool {
        self.open.as_ref().is_some_and(|open| open.kind == *kind)
    }

    /// Index of the next block.
    fn next_index(&self) -> usize {
        self.count
    }

    fn open(&mut self, kind: OpenKind, out: &mut Vec<u8>) {
        self.close(out);
        let index = self.next_index();
        self.count += 1;
        self.has_calls |= matches!(kind, OpenKind::Call { .. });
        self.has_answer |= kind != OpenKind::Thinking;
        let mut open = OpenBlock { kind, text: String::new(), before_delta: Vec::new() };
        if self.form == Form::Frames {
            frame(out, "content_block_start", |out| {
                out.extend_from_slice(format!(r#","index":{index},"content_block":"#).as_bytes());
                open.write(out);
            });
            let (delta, member) = match open.kind {
                OpenKind::Text => ("text_delta", "text"),
                OpenKind::Thinking => ("thinking_delta", "thinking"),
                OpenKind::Call { .. } => ("input_json_delta", "partial_json"),
            };
            open.before_delta = format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\
                 \"delta\":{{\"type\":\"{delta}\",\"{member}\":"
            )
            .into_bytes();
        }
        self.open = Some(open);
    }

    fn delta(&mut self, delta: &str, out: &mut Vec<u8>) {
        let Some(open) = self.open.as_mut().filter(|_| !delta.is_empty()) else { return };
        match self.form {
            Form::List => open.text.push_str(delta),
            Form::Frames => {
                out.reserve(open.before_delta.len() + delta.len() + 8);
                out.extend_from_slice(&open.before_delta);
                append_json(out, delta);
                out.extend_from_slice(b"}}\n\n");
            }
        }
    }
}

impl OpenBlock {
    /// Appends the JSON of the block.
    fn write(&self, out: &mut Vec<u8>) {
        match &self.kind {
            OpenKind::Text => append_json(out, &json!({"type": "text", "text": self.text})),
            OpenKind::Thinking => {
                append_json(out, &json!({"type": "thinking", "thinking": self.text, "signature": ""}));
            }
            OpenKind::Call { id, name, .. } => {
                append_json(out, &json!({"type": "tool_use", "id": id, "name": name}));
                out.pop();
                out.extend_from_slice(b",\"input\":");
                write_arguments(&self.text, out);
                out.push(b'}');
            }
        }
    }
}

/// Appends the arguments of a call, which are an object in this dialect. A model may have written something else.
fn write_arguments(text: &str, out: &mut Vec<u8>) {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(arguments) if arguments.get().starts_with('{') => out.extend_from_slice(arguments.get().as_bytes()),
        Ok(_) | Err(_) if text.trim().is_empty() => out.extend_from_slice(b"{}"),
        Ok(_) | Err(_) => append_json(out, &json!({"arguments": text})),
    }
}
