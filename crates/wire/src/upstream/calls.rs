//! Assembly of tool calls from streamed pieces. The pieces are renumbered as our clients expect them.

use trunkline_core::event::{Call, Event};

use super::chunk::ToolCallPiece;

/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 1024;

/// The tool calls of one answer, as far as they have arrived.
#[derive(Debug, Default)]
pub(super) struct CallAssembler {
    slots: Vec<PartialCall>,
    /// Bytes buffered so far.
    pub(super) size: usize,
}

#[derive(Debug)]
struct PartialCall {
    /// The upstream's own index and id of the call, if it sent them.
    index: Option<u64>,
    id: Option<String>,
    call: Call,
}

/// The answer has more than [`MAX_CALLS`] calls.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyCalls;

impl CallAssembler {
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.slots).into_iter().map(|slot| slot.call).collect()
    }

    /// Adds a piece of a call, or a complete call if `whole`. Returns an event if the piece has anything new.
    pub(super) fn add(&mut self, mut piece: ToolCallPiece<'_>, whole: bool) -> Result<Option<Event>, TooManyCalls> {
        let function = piece.function();
        let arguments = function.arguments().into_owned();
        let id = piece.id.0.filter(|id| !id.is_empty());
        let name = function.name.0.filter(|name| !name.is_empty());
        let known = if whole {
            None
        } else {
            self.find(piece.index.0, id.as_deref(), name.as_deref(), !arguments.trim().is_empty())
        };
        if known.is_none() && id.is_none() && name.is_none() && arguments.is_empty() {
            return Ok(None);
        }
        let at = known.unwrap_or(self.slots.len());
        let mut new_id = None;
        if known.is_none() {
            if at == MAX_CALLS {
                return Err(TooManyCalls);
            }
            // The client refers to the call by its id, so there must be one.
            let call = Call { id: id.clone().unwrap_or_else(|| format!("call_{at}")), ..Call::default() };
            new_id = Some(call.id.clone());
            self.slots.push(PartialCall { index: piece.index.0, id: None, call });
        }
        let slot = &mut self.slots[at];
        slot.id = slot.id.take().or(id);
        // Some servers repeat the name with every piece, and some split the name too.
        let name = name.filter(|name| slot.call.arguments.trim().is_empty() && slot.call.name != *name);
        if let Some(name) = &name {
            slot.call.name.push_str(name);
        }
        slot.call.arguments.push_str(&arguments);
        self.size += arguments.len() + name.as_ref().map_or(0, String::len);
        let has_news = new_id.is_some() || name.is_some() || !arguments.is_empty();
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        Ok(has_news.then_some(Event::ToolCall { index, id: new_id, name, arguments }))
    }

    /// Finds the call that a piece continues. Servers omit the index, the id or both, give every call the index 0, repeat
    /// the name with each piece, or generate a new id for each piece. Therefore a different id together with a name
    /// starts another call whatever its index, and so does a name after a complete call.
    fn find(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>, has_arguments: bool) -> Option<usize> {
        let same_id = |slot: &PartialCall| id.is_some() && slot.id.as_deref() == id;
        // Parsed only if the last character allows it: a call may come in thousands of pieces.
        let complete = |slot: &PartialCall| {
            let arguments = slot.call.arguments.trim_end();
            arguments.ends_with(['}', ']']) && serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
        };
        if let Some(at) = self.slots.iter().rposition(same_id) {
            let slot = &self.slots[at];
            // Some models give every call the same id.
            let another = index.is_some() && slot.index != index && name.is_some() && has_arguments && complete(slot);
            return (!another).then_some(at);
        }
        let at = match (index, id) {
            (Some(_), _) => self.slots.iter().rposition(|slot| slot.index == index),
            (None, Some(_)) => None,
            (None, None) => self.slots.len().checked_sub(1),
        }?;
        let slot = &self.slots[at];
        let other_id = id.is_some() && slot.id.is_some();
        let begins = name.is_some_and(|name| {
            let begun = !slot.call.arguments.trim_end().is_empty();
            let other_name = !slot.call.name.is_empty() && slot.call.name != name && begun;
            other_id || other_name || (has_arguments && complete(slot))
        });
        (!begins).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, name: &str, arguments: &str) -> Call {
        Call { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn pieces_are_assigned_to_their_call() {
        let two = vec![call("a", "f", "{}"), call("b", "g", "{}")];
        for (case, pieces, expected) in [
            (
                "one id for all",
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}]"#,
                vec![call("a", "f", "{}"), call("a", "g", "{}")],
            ),
            (
                "numbered, interleaved",
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":""}},{"index":1,"id":"b","function":{"name":"g"}},
                {"index":0,"function":{"arguments":"{"}},{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":"}"}}]"#,
                two.clone(),
            ),
            (
                "all numbered 0",
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},
                {"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
                two.clone(),
            ),
            (
                "by id alone",
                r#"[{"id":"a","function":{"name":"f","arguments":"{"}},{"id":"b","function":{"name":"g","arguments":"{}"}},
                {"id":"a","function":{"arguments":"}"}}]"#,
                two.clone(),
            ),
            (
                "empty id and the name again in later pieces",
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}},{"index":0,"id":"","function":{"name":"f","arguments":"}"}},
                {"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
                two,
            ),
            (
                "neither id nor index",
                r#"[{"function":{"name":"f","arguments":"{"}},{"function":{"arguments":"}"}},{"function":{"name":"g","arguments":{"a": 1}}}]"#,
                vec![call("call_0", "f", "{}"), call("call_1", "g", r#"{"a": 1}"#)],
            ),
            (
                "an index that does not start at 0",
                r#"[{"index":3,"id":"a","function":{"name":"f","arguments":null}}]"#,
                vec![call("a", "f", "")],
            ),
            (
                "free text, and null where the other kind would be",
                r#"[{"id":"a","type":"custom","function":null,"custom":{"name":"f","input":"hm","arguments":null}},
                {"id":"b","custom":null,"function":{"name":"g","arguments":"{}","input":null}}]"#,
                vec![call("a", "f", "hm"), call("b", "g", "{}")],
            ),
            (
                "two without ids, both numbered 0",
                r#"[{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":0,"function":{"name":"g","arguments":"{}"}}]"#,
                vec![call("call_0", "f", "{}"), call("call_1", "g", "{}")],
            ),
            (
                "the same function twice, both numbered 0",
                r#"[{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":0,"function":{"name":"f","arguments":"{}"}}]"#,
                vec![call("call_0", "f", "{}"), call("call_1", "f", "{}")],
            ),
            (
                "a name in pieces, and whitespace after the end",
                r#"[{"index":0,"id":"a","function":{"name":"get_"}},{"index":0,"function":{"name":"weather"}},
                {"index":0,"function":{"arguments":"{\"a\":"}},{"index":0,"function":{"arguments":"1}"}},{"index":0,"function":{"name":"get_weather","arguments":"\n"}}]"#,
                vec![call("a", "get_weather", "{\"a\":1}\n")],
            ),
            (
                "another id with every piece",
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}},{"index":0,"id":"x","function":{"arguments":"}"}}]"#,
                vec![call("a", "f", "{}")],
            ),
            ("nothing at all", r#"[{},{"index":0,"function":{"arguments":""}},{"function":7}]"#, vec![]),
        ] {
            let mut calls = CallAssembler::default();
            let pieces: Vec<ToolCallPiece<'_>> = serde_json::from_str(pieces).unwrap();
            let mut received: Vec<Call> = Vec::new();
            for event in pieces.into_iter().filter_map(|piece| calls.add(piece, false).unwrap()) {
                let Event::ToolCall { index, id, name, arguments } = event else { panic!("{event:?}") };
                if let Some(id) = id {
                    assert_eq!(index as usize, received.len(), "{case}");
                    received.push(call(&id, "", ""));
                }
                let call = &mut received[index as usize];
                call.name.push_str(&name.unwrap_or_default());
                call.arguments.push_str(&arguments);
            }
            assert_eq!(received, expected, "{case}: from the events");
            assert_eq!(calls.take(), expected, "{case}: assembled");
        }
    }

    #[test]
    fn each_entry_is_a_separate_call_when_answer_is_not_streamed() {
        let mut calls = CallAssembler::default();
        for piece in [r#"{"id":"a","function":{"name":"f","arguments":"{}"}}"#; 2] {
            calls.add(serde_json::from_str(piece).unwrap(), true).unwrap();
        }
        assert_eq!(calls.take(), vec![call("a", "f", "{}"); 2]);
    }

    #[test]
    fn number_of_calls_is_limited() {
        let mut calls = CallAssembler::default();
        for index in 0..MAX_CALLS {
            let piece = format!(r#"{{"index":{index},"id":"{index}"}}"#);
            assert!(calls.add(serde_json::from_str(&piece).unwrap(), false).is_ok());
        }
        assert_eq!(calls.add(serde_json::from_str(r#"{"id":"more"}"#).unwrap(), false), Err(TooManyCalls));
    }
}
