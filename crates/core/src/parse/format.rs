//! Formats of standard output. Recipes and messages take the names from this table; a test compares the schema with it.

use crate::live::LiveProtocol;
use crate::vocabulary::named_enum;

named_enum! {
    /// Format of a CLI's standard output.
    pub enum Format {
        Claude = "claude",
        Codex = "codex",
        Gemini = "gemini",
        Qwen = "qwen",
        Opencode = "opencode",
        Ax = "ax",
        /// Plain text: the whole output is the answer.
        Text = "text",
        /// One JSON object with the answer in a well-known field.
        Json = "json",
        /// JSON lines of the common event types.
        StreamJson = "stream-json",
        /// Output of an executable that speaks the provider protocol.
        Protocol = "protocol",
    }
}

impl Format {
    /// Whether the decoder of this format understands a kept process that speaks `protocol`.
    #[must_use]
    pub const fn reads(self, protocol: LiveProtocol) -> bool {
        match (protocol, self) {
            (LiveProtocol::Claude, Self::Claude | Self::Qwen | Self::StreamJson)
            | (LiveProtocol::AppServer, Self::Codex)
            | (
                LiveProtocol::Acp,
                Self::Claude | Self::Codex | Self::Gemini | Self::Qwen | Self::Opencode | Self::Ax | Self::StreamJson,
            ) => true,
            (
                LiveProtocol::Claude,
                Self::Codex | Self::Gemini | Self::Opencode | Self::Ax | Self::Text | Self::Json | Self::Protocol,
            )
            | (
                LiveProtocol::AppServer,
                Self::Claude
                | Self::Gemini
                | Self::Qwen
                | Self::Opencode
                | Self::Ax
                | Self::Text
                | Self::Json
                | Self::StreamJson
                | Self::Protocol,
            )
            | (LiveProtocol::Acp, Self::Text | Self::Json | Self::Protocol) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Editors complete and check configuration files with the schema.
    #[test]
    fn the_schema_lists_every_format_and_every_live_protocol() {
        let schema: Value = serde_json::from_str(include_str!("../../../../schemas/router.schema.json")).unwrap();
        let listed = |pointer: &str| schema.pointer(pointer).cloned().unwrap_or_else(|| panic!("no {pointer}"));
        assert_eq!(listed("/$defs/format/enum"), serde_json::json!(Format::NAMES));
        assert_eq!(
            listed("/$defs/agent/properties/live/properties/protocol/enum"),
            serde_json::json!(LiveProtocol::NAMES)
        );
    }
}
