//! Bounds the texts of a record: an agent may print a whole disk, which the archive need not store. A cut text ends with a note.

use serde_json::Value;
use trunkline_core::event::Event;

/// Limit of an event as JSON.
pub(super) const MAX_EVENT_BYTES: usize = 64 * 1024;

/// Limit of a prompt, and of an answer.
pub(super) const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// Limits for each string of an event that is too large. They are tried in turn until the event fits.
const STRING_LIMITS: [usize; 5] = [32 * 1024, 8 * 1024, 1024, 128, 16];

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoundedEvent {
    pub(super) json: String,
    /// Original size in bytes, if it was cut.
    pub(super) cut: Option<usize>,
}

/// Bounds an event. The result can be parsed as an event again.
pub(super) fn event(event: &Event) -> BoundedEvent {
    let json = json(event);
    let size = json.len();
    if size <= MAX_EVENT_BYTES {
        return BoundedEvent { json, cut: None };
    }
    shortened(event).map_or_else(
        || {
            let notice = Event::Notice { message: format!("an event of {size} bytes, too large to store") };
            BoundedEvent { json: self::json(&notice), cut: Some(size) }
        },
        |json| BoundedEvent { json, cut: Some(size) },
    )
}

/// Shortens the strings of an event. None if that is not enough.
fn shortened(event: &Event) -> Option<String> {
    let mut value = serde_json::to_value(event).ok()?;
    STRING_LIMITS.into_iter().find_map(|limit| {
        shorten(&mut value, limit);
        Some(value.to_string()).filter(|json| json.len() <= MAX_EVENT_BYTES)
    })
}

fn json(event: &Event) -> String {
    serde_json::to_string(event).expect("an event has only string keys and finite numbers")
}

/// Bounds a text, and notes at its end how much was cut.
pub(super) fn text(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let left_out = text.len() - text.floor_char_boundary(limit);
        text.truncate(text.floor_char_boundary(limit));
        text.push_str(&format!("… [{left_out} bytes left out]"));
    }
    text
}

fn shorten(value: &mut Value, limit: usize) {
    match value {
        Value::String(string) => *string = text(std::mem::take(string), limit),
        Value::Array(values) => values.iter_mut().for_each(|value| shorten(value, limit)),
        Value::Object(members) => members.values_mut().for_each(|value| shorten(value, limit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(given: &Event) -> (Event, Option<usize>) {
        let bounded = event(given);
        assert!(bounded.json.len() <= MAX_EVENT_BYTES, "{}", bounded.json.len());
        (serde_json::from_str(&bounded.json).unwrap(), bounded.cut)
    }

    #[test]
    fn event_is_stored_unchanged_when_it_fits() {
        let small = Event::ToolFinished { id: "1".into(), output: "x".repeat(60_000), ok: true };
        assert_eq!(stored(&small), (small, None));
    }

    #[test]
    fn long_output_is_cut_with_a_note() {
        let output = "é".repeat(100_000);
        let (event, cut) = stored(&Event::ToolFinished { id: "1".into(), output, ok: false });
        let Event::ToolFinished { id, output, ok: false } = event else { panic!("{event:?}") };
        assert_eq!((id.as_str(), cut.is_some()), ("1", true));
        assert!(output.starts_with("éé") && output.ends_with("é… [167232 bytes left out]"), "{}", &output[32_700..]);
    }

    #[test]
    fn event_with_many_values_is_bounded() {
        let many = json!({"files": vec!["x".repeat(1000); 1000]});
        let (event, cut) = stored(&Event::ToolStarted { id: "1".into(), name: "write".into(), input: many });
        assert!(matches!(event, Event::ToolStarted { .. }) && cut.is_some(), "{event:?}");
        let numbers = json!(vec![1; 100_000]);
        let (event, cut) = stored(&Event::ToolStarted { id: "1".into(), name: "sum".into(), input: numbers });
        assert!(matches!(event, Event::Notice { .. }) && cut.is_some(), "{event:?}");
    }
}
