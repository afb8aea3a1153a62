//! No more than so much of each thing: an agent may read a whole disk, the archive need not. What is cut says so.

use serde_json::Value;
use trunkline_core::event::Event;

/// The most that is kept of an event, as JSON.
pub(super) const EVENT: usize = 64 * 1024;

/// The most that is kept of a prompt, or of an answer.
pub(super) const TEXT: usize = 1024 * 1024;

/// How much is left of each string of an event that is too large; less and less, until it fits.
const STEPS: [usize; 5] = [32 * 1024, 8 * 1024, 1024, 128, 16];

/// An event as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bounded {
    pub(super) json: String,
    /// How large it was, if this is not all of it.
    pub(super) cut: Option<usize>,
}

/// What is kept is an event again.
pub(super) fn event(event: &Event) -> Bounded {
    let json = json(event);
    let size = json.len();
    if size <= EVENT {
        return Bounded { json, cut: None };
    }
    shortened(event).map_or_else(
        || {
            let notice = Event::Notice { message: format!("an event of {size} bytes, too many to keep") };
            Bounded { json: self::json(&notice), cut: Some(size) }
        },
        |json| Bounded { json, cut: Some(size) },
    )
}

/// With shorter strings, if that is enough.
fn shortened(event: &Event) -> Option<String> {
    let mut value = serde_json::to_value(event).ok()?;
    STEPS.into_iter().find_map(|most| {
        shorten(&mut value, most);
        Some(value.to_string()).filter(|json| json.len() <= EVENT)
    })
}

fn json(event: &Event) -> String {
    serde_json::to_string(event).expect("an event has no keys but strings, and no number that is none")
}

/// A text that is not an event's.
pub(super) fn text(mut text: String, most: usize) -> String {
    if text.len() > most {
        let left_out = text.len() - text.floor_char_boundary(most);
        text.truncate(text.floor_char_boundary(most));
        text.push_str(&format!("… [{left_out} bytes left out]"));
    }
    text
}

fn shorten(value: &mut Value, most: usize) {
    match value {
        Value::String(string) => *string = text(std::mem::take(string), most),
        Value::Array(values) => values.iter_mut().for_each(|value| shorten(value, most)),
        Value::Object(members) => members.values_mut().for_each(|value| shorten(value, most)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(given: &Event) -> (Event, Option<usize>) {
        let bounded = event(given);
        assert!(bounded.json.len() <= EVENT, "{}", bounded.json.len());
        (serde_json::from_str(&bounded.json).unwrap(), bounded.cut)
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let small = Event::ToolFinished { id: "1".into(), output: "x".repeat(60_000), ok: true };
        assert_eq!(kept(&small), (small, None));
    }

    #[test]
    fn a_long_output_is_cut_and_says_so() {
        let output = "é".repeat(100_000);
        let (event, cut) = kept(&Event::ToolFinished { id: "1".into(), output, ok: false });
        let Event::ToolFinished { id, output, ok: false } = event else { panic!("{event:?}") };
        assert_eq!((id.as_str(), cut.is_some()), ("1", true));
        assert!(output.starts_with("éé") && output.ends_with("é… [167232 bytes left out]"), "{}", &output[32_700..]);
    }

    #[test]
    fn many_strings_and_many_small_things_are_bounded_too() {
        let many = json!({"files": vec!["x".repeat(1000); 1000]});
        let (event, cut) = kept(&Event::ToolStarted { id: "1".into(), name: "write".into(), input: many });
        assert!(matches!(event, Event::ToolStarted { .. }) && cut.is_some(), "{event:?}");
        let numbers = json!(vec![1; 100_000]);
        let (event, cut) = kept(&Event::ToolStarted { id: "1".into(), name: "sum".into(), input: numbers });
        assert!(matches!(event, Event::Notice { .. }) && cut.is_some(), "{event:?}");
    }
}
