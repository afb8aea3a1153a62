//! Protocols that a process is kept with.

use crate::vocabulary::named_enum;

named_enum! {
    /// Protocol that a kept process speaks over its stdio.
    pub enum LiveProtocol {
        /// Claude Code's `--input-format stream-json`.
        Claude = "claude",
        /// Codex's `app-server`.
        AppServer = "app-server",
        /// The Agent Client Protocol.
        Acp = "acp",
    }
}
