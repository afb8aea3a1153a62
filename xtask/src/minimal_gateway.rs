//! The smallest possible gateway: it reads a request, runs the program with the prompt and answers with its output, whole
//! or as a stream.
//!
//! There is no routing, authentication, limit, session, log or cleanup of child processes. The cost of this program is the
//! minimum for any gateway on this machine; anything above it is overhead of trunkline.

use std::env;
use std::process::Stdio;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let agent = env::args().nth(1).context("usage: minimal-gateway PROGRAM")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        while connections.try_join_next().is_some() {}
        let agent = agent.clone();
        connections.spawn(async move {
            if let Err(error) = connection(BufReader::new(stream), &agent).await {
                eprintln!("{error:#}");
            }
        });
    }
}

async fn connection(mut stream: BufReader<TcpStream>, agent: &str) -> Result<()> {
    while let Some(length) = read_head(&mut stream).await? {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let request: Value = serde_json::from_slice(&body)?;
        let prompt = request["messages"][0]["content"].as_str().context("no prompt")?;
        let model = request["model"].as_str().context("no model")?;
        let mut child = start(agent, model, prompt).await?;
        let output = child.stdout.take().context("stdout is not piped")?;
        if request["stream"] == true {
            send_stream(&mut stream, model, output).await?;
            child.wait().await?;
            // The answer has no length: the end of the connection is its end.
            return Ok(());
        }
        let answer = whole_text(output).await?;
        child.wait().await?;
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"});
        let body = json!({"object": "chat.completion", "model": model, "choices": [choice]}).to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
        stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    }
    Ok(())
}

/// Reads the request head and returns the length of the body; `None` when the client has disconnected.
async fn read_head(stream: &mut BufReader<TcpStream>) -> Result<Option<usize>> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse()?,
            None if line == "\r\n" => return Ok(Some(length)),
            Some(_) | None => {}
        }
    }
}

/// Starts the program and gives it the prompt.
#[expect(clippy::disallowed_methods, reason = "a minimal gateway has no keeper")]
async fn start(agent: &str, mode: &str, prompt: &str) -> Result<Child> {
    let mut command = Command::new(agent);
    command.env_clear().env("FAKE_AGENT", mode).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // The program may exit without reading its stdin.
    let _ = child.stdin.take().context("stdin is not piped")?.write_all(prompt.as_bytes()).await;
    Ok(child)
}

/// Sends each text of the program as soon as it is printed.
async fn send_stream(stream: &mut BufReader<TcpStream>, model: &str, output: ChildStdout) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n").await?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        let Some(text) = text_of(line.as_bytes())? else { continue };
        let choice = json!({"index": 0, "delta": {"content": text}});
        let chunk = json!({"object": "chat.completion.chunk", "model": model, "choices": [choice]});
        stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await?;
    }
    Ok(stream.write_all(b"data: [DONE]\n\n").await?)
}

/// Reads the output to its end.
async fn whole_text(mut output: ChildStdout) -> Result<String> {
    let (mut bytes, mut text) = (Vec::new(), String::new());
    output.read_to_end(&mut bytes).await?;
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        text.push_str(text_of(line)?.as_deref().unwrap_or_default());
    }
    Ok(text)
}

/// The text in a line of the program: a message, or a part of one.
fn text_of(line: &[u8]) -> Result<Option<String>> {
    let event: Value = serde_json::from_slice(line)?;
    Ok(event["item"]["text"].as_str().or(event["content"].as_str()).map(str::to_owned))
}
