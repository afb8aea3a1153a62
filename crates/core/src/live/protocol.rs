//! Protocols of kept processes.

use crate::vocabulary::named_enum;

named_enum! {
    /// Protocol between us and a kept process, over its stdio.
    pub enum LiveProtocol {
        /// Claude Code's `--input-format stream-json`.
        Claude = "claude",
        /// Codex's `app-server`.
        AppServer = "app-server",
        /// The Agent Client Protocol.
        Acp = "acp",
    }
}
