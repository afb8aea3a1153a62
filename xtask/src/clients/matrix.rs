//! The matrix of clients and cases: for the terminal, and as the page `docs/CLIENTS.md`.

use std::time::Duration;

use super::case::LabCase;
use super::row::ClientRow;

/// Result of one client in one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Passed(Duration),
    Failed(String),
    /// The client has no such function; the reason is in its row.
    CannotExist(String),
    /// Failed as `clients.toml` expects, with the reason.
    KnownFailure(String),
    /// Passed although `clients.toml` expects a failure.
    UnexpectedlyPassed,
    /// The gateway does not have the route that the client needs.
    NoRoute(&'static str),
}

/// A client with its cells, in the order of `LabCase::ALL`.
pub(super) struct MatrixRow {
    pub(super) client: ClientRow,
    pub(super) versions: String,
    pub(super) cells: Vec<Cell>,
}

pub(super) struct Matrix {
    pub(super) rows: Vec<MatrixRow>,
}

const INTRODUCTION: &str = r#"# Clients

After reading this page you can point a client that you already use at Trunkline, and you know what was tested with it.

This page is written by `cargo xtask clients`. It runs each client, at the version shown, against a real gateway with a
fake CLI behind it, in a network that has only loopback. In the cases *tools*, *schema* and *edit* the CLI is a real one, Codex
or Claude Code, and its model is the [mock LLM](MOCK.md).

A program that works with tools of its own, such as Claude Code or Cline, needs a model whose CLI has none, so that the CLI does
not work with files of the gateway's machine instead ([Tools of the client](TOOLS.md)):

```json
{
  "lab": { "driver": "codex", "repoPath": ".", "ownTools": "off" }
}
```

The client `web-page` is a page in Chromium whose origin the gateway allows. In the cases *models* and *whole*, a page of a
foreign origin asks first, and must be refused.

Open WebUI 0.12.4 was tried by hand: set `OPENAI_API_BASE_URL=http://127.0.0.1:8000/v1` and `OPENAI_API_KEY`, or
`OLLAMA_BASE_URL=http://127.0.0.1:8000`. Models, whole and streamed chats and a second turn work. Its requests for titles,
tags, follow-ups, search queries and autocompletion are [side requests](RUNS.md#side-requests).
"#;

const CASES: &str = "\
| case | the client |
|---|---|
| models | lists the models |
| whole | gets an answer in one piece |
| stream | gets an answer in pieces |
| memory | asks twice, and the second answer needs the first question |
| wrong key | shows that the API key is wrong |
| unknown model | shows that there is no such model, and nothing runs |
| failing CLI | shows why the CLI failed; the CLI runs once |
| cancel | stops in the middle of an answer, and the run is cancelled |
| time-out | is less patient than the CLI; the CLI runs once, and a client that repeats its request gets the answer |
| tools | runs a tool twice in one turn of a CLI, the second time with the first result, and shows the second result. DSPy and smolagents send results as text, in a turn of its own |
| schema | gets an object of a schema; agents with types and tools run a tool before |
| edit | edits a file with its own tools, which a CLI without tools of its own tells it to |
";

impl Matrix {
    /// The cells that failed and were expected to pass.
    pub(super) fn failures(&self) -> Vec<String> {
        self.each_cell()
            .filter_map(|(row, case, cell)| {
                let Cell::Failed(why) = cell else { return None };
                Some(format!("✗ {}, {}: {why}", row.client.name, case.title()))
            })
            .collect()
    }

    /// Table for the terminal, and below it the reasons.
    pub(super) fn for_terminal(&self) -> String {
        let mut notes = Vec::new();
        let mut text = self.table(&mut notes, |cells, widths| {
            let cells: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            format!("{}\n", cells.join("  ").trim_end())
        });
        text += &numbered(&notes);
        for (row, case, cell) in self.each_cell() {
            if *cell == Cell::UnexpectedlyPassed {
                text += &format!("! {}, {}: passes; remove it from `known`\n", row.client.name, case.title());
            }
        }
        text
    }

    /// The page `docs/CLIENTS.md`.
    pub(super) fn page(&self) -> String {
        let mut page = format!("{INTRODUCTION}\n## Point a client at Trunkline\n\n");
        page +=
            "The examples assume a gateway at `http://localhost:8765`, the API key `KEY` and the model `lab`. If the\n";
        page += "gateway has no API keys, any key will do.\n";
        for row in &self.rows {
            let setup = row.client.setup.trim();
            page += &format!("\n### {}\n\n{} · `{}`\n\n", row.client.name, row.versions, row.client.route.title());
            page += &format!("```{}\n{setup}\n```\n", row.client.language);
            if !row.client.edit.is_empty() {
                page += "\nTo work with its own tools, it needs a model with `\"ownTools\": \"off\"`. ";
                page += &format!("Tested with `\"driver\": \"{}\"`.\n", row.client.cli);
            }
        }
        let mut notes = Vec::new();
        let mut heading = true;
        page += "\n## What was tested\n\n";
        page += CASES;
        page.push('\n');
        page += &self.table(&mut notes, |cells, widths| {
            let line = format!("| {} |\n", cells.join(" | "));
            let rule = if heading { format!("|{}\n", "---|".repeat(widths.len())) } else { String::new() };
            heading = false;
            line + &rule
        });
        page += "\n✓ works, ✗ does not, – does not apply.\n";
        page += &numbered(&notes);
        page
    }

    fn table(&self, notes: &mut Vec<String>, mut line: impl FnMut(&[String], &[usize]) -> String) -> String {
        let head = std::iter::once("client").chain(LabCase::ALL.map(LabCase::title)).map(str::to_owned).collect();
        let mut lines: Vec<Vec<String>> = vec![head];
        for row in &self.rows {
            let cells = row.cells.iter().map(|cell| shown(cell, notes));
            lines.push(std::iter::once(row.client.name.clone()).chain(cells).collect());
        }
        let widths: Vec<usize> = (0..=LabCase::ALL.len())
            .map(|column| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0))
            .collect();
        lines.iter().map(|cells| line(cells, &widths)).collect()
    }

    fn each_cell(&self) -> impl Iterator<Item = (&MatrixRow, LabCase, &Cell)> {
        self.rows
            .iter()
            .flat_map(|row| LabCase::ALL.into_iter().zip(&row.cells).map(move |(case, cell)| (row, case, cell)))
    }
}

/// Text of a cell. Reasons become numbered notes.
fn shown(cell: &Cell, notes: &mut Vec<String>) -> String {
    let mut note = |text: String| {
        let known = notes.iter().position(|note| *note == text);
        known.unwrap_or_else(|| {
            notes.push(text);
            notes.len() - 1
        }) + 1
    };
    match cell {
        Cell::Passed(_) | Cell::UnexpectedlyPassed => "✓".to_owned(),
        Cell::Failed(_) => "✗".to_owned(),
        Cell::CannotExist(why) => format!("– {}", note(why.clone())),
        Cell::KnownFailure(why) => format!("✗ {}", note(why.clone())),
        Cell::NoRoute(route) => format!("– {}", note(format!("Skipped: this gateway has no `{route}`."))),
    }
}

fn numbered(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = notes.iter().enumerate().map(|(index, note)| format!("{}. {note}\n", index + 1)).collect();
    format!("\n{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(cells: Vec<Cell>) -> Matrix {
        let client = ClientRow {
            name: "parrot".to_owned(),
            language: "sh".to_owned(),
            setup: "export BASE=http://localhost:8765".to_owned(),
            ..ClientRow::default()
        };
        Matrix { rows: vec![MatrixRow { client, versions: "parrot 1.0".to_owned(), cells }] }
    }

    #[test]
    fn only_unexpected_failures_count() {
        let mut cells = vec![Cell::Passed(Duration::ZERO); LabCase::ALL.len()];
        cells[1] = Cell::CannotExist("It always streams.".to_owned());
        cells[2] = Cell::KnownFailure("It counts wrong.".to_owned());
        cells[3] = Cell::NoRoute("/v1/responses");
        cells[4] = Cell::UnexpectedlyPassed;
        assert_eq!(matrix(cells.clone()).failures(), Vec::<String>::new());
        cells[8] = Cell::Failed("3 runs".to_owned());
        assert_eq!(matrix(cells).failures(), ["✗ parrot, time-out: 3 runs"]);
    }

    #[test]
    fn equal_reasons_share_a_note() {
        let mut cells = vec![Cell::Passed(Duration::ZERO); LabCase::ALL.len()];
        cells[7] = Cell::CannotExist("It has no keyboard.".to_owned());
        cells[8] = Cell::CannotExist("It has no keyboard.".to_owned());
        let page = matrix(cells).page();
        assert!(page.contains("| parrot | ✓ | ✓ | ✓ | ✓ | ✓ | ✓ | ✓ | – 1 | – 1 | ✓ | ✓ | ✓ |\n"), "{page}");
        assert!(page.contains("| client | models | whole |") && page.contains("\n|---|---|"), "{page}");
        assert!(page.ends_with("\n1. It has no keyboard.\n"), "{page}");
        assert!(page.contains("### parrot\n\nparrot 1.0 · `/v1/chat/completions`\n\n```sh\nexport BASE="), "{page}");
    }
}
