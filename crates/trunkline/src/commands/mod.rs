//! One file per subcommand, and what they share.

pub(crate) mod agent;
pub(crate) mod check;
mod columns;
pub(crate) mod decode;
pub(crate) mod desktop;
#[cfg(feature = "discord")]
pub(crate) mod discord;
pub(crate) mod doctor;
mod gateway;
pub(crate) mod history;
pub(crate) mod mock_llm;
pub(crate) mod models;
mod progress;
pub(crate) mod provider;
mod reload;
mod retention;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod sessions;
