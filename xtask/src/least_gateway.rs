//! The least that a gateway can be: a request is read, the program is run with its prompt, and what it says is the answer.
//!
//! Nothing is routed, limited, resumed, logged or kept, nobody is asked who he is, and what a program leaves behind stays.
//! What this costs is what the machine asks of any gateway; what ours costs beyond it is ours.

use std::env;
use std::process::Stdio;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let agent = env::args().nth(1).context("which program?")?;
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
    while let Some(length) = head(&mut stream).await? {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let request: Value = serde_json::from_slice(&body)?;
        let prompt = request["messages"][0]["content"].as_str().context("no prompt")?;
        let model = request["model"].as_str().context("no model")?;
        let answer = answer(agent, model, prompt).await?;
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"});
        let body = json!({"object": "chat.completion", "model": model, "choices": [choice]}).to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
        stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    }
    Ok(())
}

/// How long the body is; none when the client has gone.
async fn head(stream: &mut BufReader<TcpStream>) -> Result<Option<usize>> {
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

/// The text of the program's message.
#[expect(clippy::disallowed_methods, reason = "no keeper is part of the least there can be")]
async fn answer(agent: &str, mode: &str, prompt: &str) -> Result<String> {
    let mut command = Command::new(agent);
    command.env_clear().env("FAKE_AGENT", mode).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // Who does not read it need not.
    let _unread = child.stdin.take().context("it is piped")?.write_all(prompt.as_bytes()).await;
    let mut output = Vec::new();
    child.stdout.take().context("it is piped")?.read_to_end(&mut output).await?;
    child.wait().await?;
    let lines = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut text = String::new();
    for line in lines {
        let event: Value = serde_json::from_slice(line)?;
        text.push_str(event["item"]["text"].as_str().unwrap_or_default());
    }
    Ok(text)
}
