//! A mock LLM: answers from a script, without a model, an account or a network.
//!
//! It speaks OpenAI's chat completions and responses, Anthropic's messages and Gemini's generateContent, whole and
//! streamed, so that the real agent CLIs run against it. A [`MockScript`] defines the answers and the faults to
//! inject. The server keeps no state: the history in each request selects the answer. docs/MOCK.md is the guide.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use trunkline_mock::{MockScript, serve};
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let stop = tokio_util::sync::CancellationToken::new();
//! serve(listener, MockScript::built_in().into(), stop).await;
//! # Ok(())
//! # }
//! ```

mod body;
mod dialect;
mod fault;
mod history;
mod reply;
mod script;
mod script_source;
mod server;
mod shell;
mod tools;

pub use script::{BUILT_IN, MockScript, ScriptError};
pub use script_source::{ScriptSource, ScriptSourceError};
pub use server::serve;
