//! The smallest HTTP client that can measure: one connection, kept alive, one request at a time.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), address })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<u16> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        self.stream.write_all(head.as_bytes()).await?;
        let (status, length) = self.head().await?;
        self.skip(length).await?;
        Ok(status)
    }

    /// One chat completion; the answer is read and thrown away.
    pub(crate) async fn chat(&mut self, model: &str) -> Result<()> {
        self.post(model, false).await?;
        let (status, length) = self.head().await?;
        self.skip(length).await?;
        if status != 200 {
            bail!("status {status}");
        }
        Ok(())
    }

    /// Begins a streamed completion; its lines come from [`Client::line`].
    pub(crate) async fn stream(&mut self, model: &str) -> Result<()> {
        self.post(model, true).await?;
        let (status, _) = self.head().await?;
        if status != 200 {
            bail!("status {status}");
        }
        Ok(())
    }

    pub(crate) async fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await?;
        Ok((read > 0).then_some(line))
    }

    async fn post(&mut self, model: &str, stream: bool) -> Result<()> {
        let body = format!(r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#);
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        Ok(self.stream.write_all(head.as_bytes()).await?)
    }

    async fn head(&mut self) -> Result<(u16, usize)> {
        let first = self.line().await?.context("the gateway closed the connection")?;
        let status = first.split(' ').nth(1).context("no status")?.parse()?;
        let mut length = 0;
        loop {
            let line = self.line().await?.context("the head ended early")?.to_lowercase();
            if line == "\r\n" {
                return Ok((status, length));
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
    }

    async fn skip(&mut self, length: usize) -> Result<()> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(())
    }
}

/// How long ago the time in `<…>` of a line was, in seconds.
pub(crate) fn age(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once('<')?;
    let printed: u128 = rest.split_once('>')?.0.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos();
    Some(now.saturating_sub(printed) as f64 / 1e9)
}
