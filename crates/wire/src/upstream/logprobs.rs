//! Assembly of log probabilities from streamed pieces. They stay JSON text: each token is an object with alternatives.

use serde_json::value::RawValue;

use super::chunk::UpstreamLogprobs;

/// Log probabilities of one answer, as far as they have arrived.
#[derive(Debug, Default)]
pub(super) struct LogprobsAssembler {
    content: TokenList,
    refusal: TokenList,
}

/// Elements of a JSON array, separated by commas. `None` if there was no array.
#[derive(Debug, Default)]
struct TokenList(Option<String>);

impl LogprobsAssembler {
    /// Adds the tokens of one choice. A piece in another format is ignored.
    pub(super) fn add(&mut self, piece: &RawValue) {
        let Ok(piece) = serde_json::from_str::<UpstreamLogprobs<'_>>(piece.get()) else { return };
        self.content.add(piece.content);
        self.refusal.add(piece.refusal);
    }

    /// Bytes buffered so far.
    pub(super) fn size(&self) -> usize {
        self.content.size() + self.refusal.size()
    }

    /// Returns `{"content":[…],"refusal":…}`, or `None` if the upstream sent nothing.
    pub(super) fn take(&mut self) -> Option<String> {
        if self.content.0.is_none() && self.refusal.0.is_none() {
            return None;
        }
        let (content, refusal) = (self.content.take(), self.refusal.take());
        Some(format!("{{\"content\":{content},\"refusal\":{refusal}}}"))
    }
}

impl TokenList {
    fn add(&mut self, list: Option<&RawValue>) {
        let elements = list.and_then(|list| list.get().strip_prefix('[')?.strip_suffix(']'));
        let Some(elements) = elements.map(str::trim) else { return };
        let tokens = self.0.get_or_insert_default();
        if !tokens.is_empty() && !elements.is_empty() {
            tokens.push(',');
        }
        // A line break in valid JSON is only ever between its values. In a stream it would end the frame.
        tokens.extend(elements.split(['\n', '\r']));
    }

    fn size(&self) -> usize {
        self.0.as_ref().map_or(0, String::len)
    }

    fn take(&mut self) -> String {
        self.0.take().map_or_else(|| "null".to_owned(), |tokens| format!("[{tokens}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined() {
        for (pieces, whole) in [
            (vec![], None),
            (vec![r#"{"content":null}"#, "{}", r#"{"content":7}"#, "[1]", "7"], None),
            (vec![r#"{"content":[]}"#], Some(r#"{"content":[],"refusal":null}"#)),
            (
                vec![
                    r#"{"content":[{"token":"a"}, {"token":"]"}]}"#,
                    "{\"content\":[\n]}",
                    "{\"content\":[\r\n{\"token\":\n\"b\"}\n],\"refusal\":[1]}",
                ],
                Some(r#"{"content":[{"token":"a"}, {"token":"]"},{"token":"b"}],"refusal":[1]}"#),
            ),
        ] {
            let mut assembler = LogprobsAssembler::default();
            for piece in &pieces {
                assembler.add(serde_json::from_str(piece).unwrap());
            }
            assert_eq!(assembler.take().as_deref(), whole, "{pieces:?}");
        }
    }
}
