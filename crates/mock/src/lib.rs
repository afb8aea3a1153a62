//! A mock LLM: answers from a script, without a model, an account or a network.
//!
//! It speaks OpenAI's chat completions and responses, Anthropic's messages and Gemini's generateContent, whole and
//! streamed, so that the real agent CLIs run against it. A [`Script`] says what is answered and what goes wrong on
//! purpose; the request's own history is the only state. docs/MOCK.md is the guide.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use trunkline_mock::{Script, serve};
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let stop = tokio_util::sync::CancellationToken::new();
//! serve(listener, Script::built_in().into(), stop).await;
//! # Ok(())
//! # }
//! ```

mod answer;
mod body;
mod dialect;
mod fault;
mod history;
mod playing;
mod script;
mod server;
mod shell;
mod tools;

pub use playing::{PlayError, Playing};
pub use script::{BUILT_IN, Script, ScriptError};
pub use server::serve;
