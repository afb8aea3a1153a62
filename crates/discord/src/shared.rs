//! What every task of the bridge needs.

use std::sync::OnceLock;

use tokio_util::sync::CancellationToken;

use crate::Settings;
use crate::backend::Backends;
use crate::files::Files;
use crate::ledger::Ledger;
use crate::rest::Rest;
use crate::snowflake::Snowflake;

pub(crate) struct Shared {
    pub(crate) rest: Rest,
    pub(crate) ledger: Ledger,
    pub(crate) files: Files,
    pub(crate) backends: Backends,
    pub(crate) settings: Settings,
    /// Who we are on Discord, once it has said so.
    pub(crate) me: OnceLock<Snowflake>,
    /// What is going on is to end now; it will be taken up again at the next start.
    pub(crate) interrupted: CancellationToken,
}
