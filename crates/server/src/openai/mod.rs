//! OpenAI's API: chat completions and the list of models.

pub(crate) mod chat;
pub(crate) mod models;
