//! One file for each command.

pub(crate) mod agent;
pub(crate) mod check;
pub(crate) mod decode;
#[cfg(feature = "discord")]
pub(crate) mod discord;
pub(crate) mod doctor;
mod doing;
pub(crate) mod history;
pub(crate) mod mock_llm;
pub(crate) mod models;
pub(crate) mod provider;
mod reload;
mod retention;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sessions;
