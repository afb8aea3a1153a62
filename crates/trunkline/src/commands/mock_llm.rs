//! `trunkline mock-llm`: a model that answers from a script.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use trunkline_mock::{BUILT_IN, MockScript, ScriptSource, ScriptSourceError, serve};

use crate::config::ConfigError;
use crate::setup::{StopSignals, runtime, say};

/// Start a mock LLM: answers from a script, for development without an account, costs or a network
///
/// Speaks OpenAI chat completions and responses, Anthropic messages and Gemini generateContent.
#[derive(Debug, Args)]
#[command(after_help = "Then, for example:\n  \
    curl http://127.0.0.1:8000/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n  \
    ANTHROPIC_API_KEY=x ANTHROPIC_BASE_URL=http://127.0.0.1:8000 claude -p 'Hello'")]
pub(crate) struct MockLlm {
    /// Port; 0 picks a free one
    #[arg(long, value_name = "N", default_value_t = 8000)]
    port: u16,
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// The script: a JSON file, read again whenever it changes [default: a built-in one]
    #[arg(long, value_name = "FILE")]
    scenarios: Option<PathBuf>,
    /// Print the built-in script, as a start for one's own
    #[arg(long, conflicts_with = "scenarios")]
    print_scenarios: bool,
}

impl MockLlm {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.print_scenarios {
            say(BUILT_IN.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let script = match &self.scenarios {
            Some(path) => ScriptSource::file(path).map_err(|error| refusal(path, error))?,
            None => MockScript::built_in().into(),
        };
        runtime()?.block_on(answer(SocketAddr::new(self.listen, self.port), script))?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn answer(address: SocketAddr, script: ScriptSource) -> Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    // Whoever reads the next line may send a signal at once.
    let mut signals = StopSignals::listen()?;
    say(format!("listening on http://{}", listener.local_addr()?))?;
    let stop = CancellationToken::new();
    tokio::join!(serve(listener, script, stop.clone()), async {
        signals.next().await;
        stop.cancel();
    });
    Ok(())
}

/// A script that cannot be played is a matter of configuration.
fn refusal(path: &Path, error: ScriptSourceError) -> ConfigError {
    match error {
        ScriptSourceError::Unreadable(error) => ConfigError::new(path, format!("cannot read the script: {error}")),
        ScriptSourceError::Invalid(wrong) => {
            let refusal = ConfigError::new(path, wrong.message).place((wrong.line, wrong.column));
            match wrong.hint {
                Some(hint) => refusal.hint(hint),
                None => refusal,
            }
        }
    }
}
