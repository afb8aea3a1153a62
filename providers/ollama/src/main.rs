//! `ollama-provider`: Ollama's models over the executable provider protocol. The reference provider, meant to be read
//! and copied; docs/PROVIDERS.md is the contract.
//!
//! ```text
//! ollama-provider generate < request.json     one JSON object on stdout
//! ollama-provider stream   < request.json     one JSON object per line, while the model generates
//! ollama-provider health                      exit status 0 if Ollama responds
//! ```
//!
//! `OLLAMA_HOST` is the address of Ollama, `OLLAMA_MODEL` the model for requests that name none.

mod host;
mod ollama;
mod protocol;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ollama::OllamaClient;
use protocol::{GenerateOutput, ProviderError, ProviderRequest, StreamLine, print};

const USAGE: &str = "usage: ollama-provider generate|stream|health (the request is JSON on stdin)";

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["generate"] => generate(),
        ["stream"] => stream(),
        ["health"] => health(),
        ["--help" | "-h" | "help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => usage_error(&format!("no command; {USAGE}")),
        others => usage_error(&format!("unknown command {:?}; {USAGE}", others.join(" "))),
    }
}

/// Prints the complete answer as one object.
fn generate() -> ExitCode {
    let start = Instant::now();
    let answer = || -> Result<(), ProviderError> {
        let request = ProviderRequest::read(io::stdin().lock())?;
        let answer = client()?.generate(&request)?;
        print(&GenerateOutput::new(answer, start.elapsed()))
    };
    exit_code(answer(), |error| print(&GenerateOutput::failed(error, start.elapsed())))
}

/// Prints the answer line by line while the model generates it.
fn stream() -> ExitCode {
    let mut content = String::new();
    let mut stream = || -> Result<(), ProviderError> {
        let request = ProviderRequest::read(io::stdin().lock())?;
        for delta in client()?.stream(&request)? {
            let delta = delta?;
            content.push_str(&delta.text);
            let done = delta.summary.is_some();
            print(&StreamLine::new(&content, delta))?;
            if done {
                return Ok(());
            }
        }
        Err(ProviderError::new("socket hang up: Ollama ended the stream before it was done (ECONNRESET)"))
    };
    let outcome = stream();
    exit_code(outcome, |error| print(&StreamLine::failed(&content, error)))
}

/// Prints whether Ollama responds. The output is for people: plain text, and stdin is not read.
fn health() -> ExitCode {
    match client().and_then(|client| client.health()) {
        Ok(()) => {
            println!("OK");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("Error: {error}");
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reports an error to three readers: in the `error` field, by the exit status, and on stderr for the log.
fn exit_code(
    outcome: Result<(), ProviderError>,
    report: impl FnOnce(&ProviderError) -> Result<(), ProviderError>,
) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    // Both outputs may be closed.
    let _ = report(&error);
    let _ = writeln!(io::stderr(), "ollama-provider: {error}");
    ExitCode::FAILURE
}

fn usage_error(message: &str) -> ExitCode {
    let error = ProviderError::new(message);
    exit_code(Err(error), |error| print(&GenerateOutput::failed(error, Duration::ZERO)));
    ExitCode::from(2)
}

fn client() -> Result<OllamaClient, ProviderError> {
    OllamaClient::new(variable("OLLAMA_HOST").as_deref(), variable("OLLAMA_MODEL"))
}

/// Reads an environment variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "this program reads its environment only here")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
