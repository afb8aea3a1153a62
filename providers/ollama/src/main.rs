//! `ollama-provider`: Ollama's models over the executable provider protocol. The reference provider, meant to be read and
//! copied; docs/PROVIDERS.md is the contract.
//!
//! ```text
//! ollama-provider generate < request.json     one JSON object on stdout
//! ollama-provider stream   < request.json     one JSON object a line, as the model speaks
//! ollama-provider health                      exit status 0 when Ollama answers
//! ```
//!
//! `OLLAMA_HOST` says where Ollama is, `OLLAMA_MODEL` which model answers when the request does not say.

mod host;
mod ollama;
mod protocol;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use ollama::Ollama;
use protocol::{Chunk, Failure, Request, Response, print};

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
        [] => misused(&format!("no command; {USAGE}")),
        others => misused(&format!("unknown command {:?}; {USAGE}", others.join(" "))),
    }
}

/// The whole answer at once.
fn generate() -> ExitCode {
    let began = Instant::now();
    let answered = || -> Result<(), Failure> {
        let request = Request::read(io::stdin().lock())?;
        let answer = ollama()?.generate(&request)?;
        print(&Response::new(answer, began.elapsed()))
    };
    ended(answered(), |failure| print(&Response::failed(failure, began.elapsed())))
}

/// The answer as it comes.
fn stream() -> ExitCode {
    let mut content = String::new();
    let mut streamed = || -> Result<(), Failure> {
        let request = Request::read(io::stdin().lock())?;
        for piece in ollama()?.stream(&request)? {
            let piece = piece?;
            content.push_str(&piece.text);
            let done = piece.end.is_some();
            print(&Chunk::new(&content, piece))?;
            if done {
                return Ok(());
            }
        }
        Err(Failure::new("socket hang up: Ollama ended the stream before it was done (ECONNRESET)"))
    };
    let outcome = streamed();
    ended(outcome, |failure| print(&Chunk::failed(&content, failure)))
}

/// Whether Ollama answers. This one speaks to people: no JSON, no stdin.
fn health() -> ExitCode {
    match ollama().and_then(|ollama| ollama.health()) {
        Ok(()) => {
            println!("OK");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("Error: {failure}");
            eprintln!("Error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A failure is said three times, to three readers: in `error`, by the exit status, and on stderr for the log.
fn ended(outcome: Result<(), Failure>, report: impl FnOnce(&Failure) -> Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    let _nobody_may_be_reading = report(&failure);
    let _nobody_may_be_reading = writeln!(io::stderr(), "ollama-provider: {failure}");
    ExitCode::FAILURE
}

fn misused(message: &str) -> ExitCode {
    let failure = Failure::new(message);
    ended(Err(failure), |failure| print(&Response::failed(failure, std::time::Duration::ZERO)));
    ExitCode::from(2)
}

fn ollama() -> Result<Ollama, Failure> {
    Ollama::new(variable("OLLAMA_HOST").as_deref(), variable("OLLAMA_MODEL"))
}

/// A variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "a program of its own, and this is where it reads its environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
