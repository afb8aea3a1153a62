//! Seed inputs of the targets: recorded output of real CLIs, and the examples of our documentation.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes the seeds of a target into its corpus, in addition to the inputs that earlier runs have found.
pub(super) fn write_seeds(target: &str, corpus: &Path) -> Result<()> {
    fs::create_dir_all(corpus)?;
    let seeds = match target {
        "decoders" => recordings()?,
        "sse" => streams(),
        "models_json" => examples("docs/CONFIGURATION.md", "json")?,
        "router_yaml" => examples("docs/CONFIGURATION.md", "yaml")?,
        "http_body" => bodies(),
        other => anyhow::bail!("the target {other} has no seeds"),
    };
    for (number, seed) in seeds.into_iter().enumerate() {
        fs::write(corpus.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

/// Recordings of each CLI. The first byte selects the decoder, as in the target `decoders`.
fn recordings() -> Result<Vec<Vec<u8>>> {
    let dialects = [("claude", 0), ("codex", 1), ("gemini", 2), ("qwen", 3), ("opencode", 4), ("ax", 5)];
    let mut seeds = Vec::new();
    for (provider, dialect) in dialects {
        for case in fs::read_dir(Path::new("fixtures").join(provider))
            .with_context(|| format!("cannot read fixtures/{provider}"))?
        {
            let stdout = fs::read(case?.path().join("stdout")).unwrap_or_default();
            if !stdout.is_empty() && stdout.len() < 16 * 1024 {
                seeds.push([&[dialect, 63], &stdout[..]].concat());
            }
        }
    }
    Ok(seeds)
}

fn streams() -> Vec<Vec<u8>> {
    let chunk = r#"data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"hi"}}]}"#;
    let call = r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}"#;
    let end = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    [
        format!("{chunk}\n\n{end}\n\ndata: [DONE]\n\n"),
        format!("{call}\r\n\r\n: ping\r\n\r\n{end}\r\n\r\n"),
        r#"{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{}}"#.to_owned(),
        r#"data: {"error":{"message":"no","type":"rate_limit_error","code":429}}"#.to_owned() + "\n\n",
    ]
    .map(|stream| [&[0, 7], stream.as_bytes()].concat())
    .to_vec()
}

fn bodies() -> Vec<Vec<u8>> {
    [
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}"#,
        r#"{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"},{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"f"}}],"session_id":"s","metadata":{"a":"b"},"n":1}"#,
    ]
    .map(|body| body.as_bytes().to_vec())
    .to_vec()
}

/// The code blocks of a document in one language.
fn examples(document: &str, language: &str) -> Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(document).with_context(|| format!("cannot read {document}"))?;
    let (open, mut found) = (format!("```{language}\n"), Vec::new());
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once(&open) {
        let (example, further) =
            after.split_once("\n```").with_context(|| format!("{document} has a code block without an end"))?;
        found.push(example.as_bytes().to_vec());
        rest = further;
    }
    Ok(found)
}
