//! Events without secrets, for whatever is kept of them.

use std::borrow::Cow;

use serde_json::Value;
use trunkline_core::event::{Answer, Event};
use trunkline_core::failure::Failure;
use trunkline_core::secret::Secrets;

/// The same event without secrets, and no string of it longer than this.
pub(crate) fn masked(event: &Event, secrets: &Secrets, most: usize) -> Event {
    let mask = |value: Result<Value, serde_json::Error>| {
        let mut value = value?;
        mask_strings(&mut value, secrets, most);
        serde_json::from_value(value)
    };
    // What cannot be read back was changed where it must not be.
    mask(serde_json::to_value(event))
        .unwrap_or_else(|_| Event::Notice { message: "an event that holds a secret".to_owned() })
}

/// The same event without secrets, whatever its length. Pieces of text are most of what there is, and made fast.
pub(crate) fn masked_whole<'a>(event: &'a Event, secrets: &Secrets) -> Cow<'a, Event> {
    match event {
        Event::Text { delta } => Cow::Owned(Event::Text { delta: secrets.mask(delta) }),
        Event::Thinking { delta } => Cow::Owned(Event::Thinking { delta: secrets.mask(delta) }),
        Event::ToolFinished { id, output, ok } => {
            Cow::Owned(Event::ToolFinished { id: id.clone(), output: secrets.mask(output), ok: *ok })
        }
        Event::Notice { message } => Cow::Owned(Event::Notice { message: secrets.mask(message) }),
        Event::Unknown { line } => Cow::Owned(Event::Unknown { line: secrets.mask(line) }),
        Event::Failed(failure) => Cow::Owned(Event::Failed(Failure {
            message: secrets.mask(&failure.message),
            hint: failure.hint.as_deref().map(|hint| secrets.mask(hint)),
            ..failure.clone()
        })),
        // It may be as long as a book, and the rest of it is short.
        Event::Finished(Answer { content, usage, finish, calls, metadata }) => {
            let rest = Answer { calls: calls.clone(), metadata: metadata.clone(), ..Answer::new("", *usage, *finish) };
            let mut rest = masked(&Event::Finished(rest), secrets, usize::MAX);
            if let Event::Finished(rest) = &mut rest {
                rest.content = secrets.mask(content);
            }
            Cow::Owned(rest)
        }
        // What was masked already, or is ours.
        Event::Started { .. } | Event::Workspace(_) | Event::Attempted(_) => Cow::Borrowed(event),
        Event::ToolStarted { .. } | Event::ToolCall { .. } => Cow::Owned(masked(event, secrets, usize::MAX)),
    }
}

/// The beginning of a text.
pub(crate) fn head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn mask_strings(value: &mut Value, secrets: &Secrets, most: usize) {
    match value {
        Value::String(text) => *text = secrets.mask(head(text, most)),
        Value::Array(values) => values.iter_mut().for_each(|value| mask_strings(value, secrets, most)),
        Value::Object(members) => members.values_mut().for_each(|value| mask_strings(value, secrets, most)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
