//! The console transcripts of the documentation, run against the real binary.
//!
//! A transcript is a fenced block marked `console`. A line that begins with `$ ` is a command, and the lines below it are
//! its expected output, stdout and stderr together. In expected output `[..]` matches any text within a line, a line `...`
//! any number of lines, and several spaces match one or more, so that columns may be aligned.
//!
//! `<!-- transcript: SCENE -->` above a block starts a new world: a temporary home and repository with the fake CLIs of
//! that scene. Later blocks of the page continue in it. `<!-- file: NAME -->` above a block of any kind writes the block
//! to that file of the repository. Neither comment is visible when the page is rendered.
//!
//! After a deliberate change of output, rewrite the pages and review the difference:
//! `TRUNKLINE_UPDATE_TRANSCRIPTS=1 cargo test -p trunkline --test it transcripts`

mod page;
mod pattern;
mod shell;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::test_gateway::{TestGateway, find, which};
use page::{Page, Part};
use shell::Shell;

/// Programs that transcripts use, besides those of every test.
const TOOLS: [&str; 5] = ["curl", "grep", "head", "jq", "python3"];

/// Longest time until a query shows what has happened.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn transcripts_are_what_the_binary_prints() {
    if find("curl").is_none() {
        eprintln!("left out: needs curl: the transcripts of the documentation");
        return;
    }
    let failures: Vec<String> = thread::scope(|scope| {
        let pages: Vec<_> = pages().into_iter().map(|path| scope.spawn(move || check(&path))).collect();
        pages.into_iter().flat_map(|page| page.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}\nto accept: TRUNKLINE_UPDATE_TRANSCRIPTS=1", failures.join("\n"));
}

/// README.md, CONTRIBUTING.md and every page of docs/.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    ["README.md", "CONTRIBUTING.md"].into_iter().map(|name| root.join(name)).chain(docs).collect()
}

/// Runs the transcripts of a page; the differences, unless they were to be accepted.
fn check(path: &Path) -> Vec<String> {
    let mut page = Page::parse(&fs::read_to_string(path).unwrap()).unwrap_or_else(|error| panic!("{error}"));
    let mut stage = None;
    let mut failures = Vec::new();
    for part in &mut page.parts {
        match part {
            Part::Text(_) => {}
            Part::Scene { name, .. } => {
                // The world before it ends first, so that its gateway is gone.
                drop(stage.take());
                stage = Some(Stage::new(name));
            }
            Part::File { name, lines } => {
                let stage = stage.as_ref().unwrap_or_else(|| panic!("{}: {name} has no scene", path.display()));
                stage.write(name, lines);
            }
            Part::Step(step) => {
                let stage = stage.as_mut().unwrap_or_else(|| panic!("{}: no scene", path.display()));
                let printed = stage.run_until(&step.command(), |printed| pattern::matches(&step.output, printed));
                if pattern::matches(&step.output, &printed) {
                    continue;
                }
                failures.push(format!(
                    "{}: $ {}\nexpected:\n{}\nprinted:\n{}\n",
                    path.display(),
                    step.command(),
                    step.output.join("\n"),
                    printed.join("\n")
                ));
                step.output = pattern::rewrite(&step.output, &printed);
            }
        }
    }
    if !failures.is_empty() && updating() {
        fs::write(path, page.text()).unwrap();
        failures.clear();
    }
    failures
}

#[expect(clippy::disallowed_methods, reason = "a switch of this test alone")]
fn updating() -> bool {
    std::env::var_os("TRUNKLINE_UPDATE_TRANSCRIPTS").is_some()
}

/// A world in which the commands of a page run, one after the other.
struct Stage {
    /// Ends before its world does.
    shell: Shell,
    gateway: TestGateway,
    /// Address of the server, in the test and in the documentation.
    server: Option<(String, &'static str)>,
}

impl Stage {
    fn new(scene: &str) -> Self {
        let gateway = scene_named(scene);
        gateway.write_models();
        symlink(env!("CARGO_BIN_EXE_trunkline"), gateway.path("bin/trunkline")).unwrap();
        for tool in TOOLS {
            // The first one on the search path may be a script of a version manager, which needs more than is here.
            let system = Path::new("/usr/bin").join(tool);
            let found = if system.exists() { system } else { which(tool) };
            symlink(found, gateway.path("tools").join(tool)).unwrap();
        }
        let server = (scene == "mock").then(|| (gateway.address().to_owned(), "127.0.0.1:8000"));
        Self { shell: Shell::new(&gateway), gateway, server }
    }

    fn write(&self, name: &str, lines: &[String]) {
        let path = self.gateway.repo().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, lines.join("\n") + "\n").unwrap();
    }

    /// Runs a command; the lines it printed. A query is repeated for a while: the end of a run reaches its client a moment
    /// before it reaches the database.
    fn run_until(&mut self, command: &str, expected: impl Fn(&[String]) -> bool) -> Vec<String> {
        let start = Instant::now();
        loop {
            let printed = self.run(command);
            if !command.starts_with("trunkline runs") || expected(&printed) || start.elapsed() > QUERY_TIMEOUT {
                return printed;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a command; the lines it printed, with the paths and the port that the documentation uses.
    fn run(&mut self, command: &str) -> Vec<String> {
        let printed = match command.trim_end_matches(['&', ' ']) {
            // A server prints its address once it accepts connections, and runs until the scene ends.
            "trunkline serve" => {
                self.gateway.restart();
                self.server = Some((self.gateway.address().to_owned(), "127.0.0.1:8765"));
                format!("listening on http://{}", self.gateway.address())
            }
            "trunkline mock-llm" => format!("listening on http://{}", self.gateway.address()),
            _ => self.shell.run(&self.addressed(command)),
        };
        let printed = self.shown(&printed);
        let mut lines: Vec<String> = printed.lines().map(|line| line.trim_end().to_owned()).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// A command with the test's own port.
    fn addressed(&self, command: &str) -> String {
        let Some((address, shown)) = &self.server else { return command.to_owned() };
        command.replace(shown, address).replace(&shown.replace("127.0.0.1", "localhost"), address)
    }

    fn shown(&self, printed: &str) -> String {
        let folders = [
            ("worktrees", "/tmp/agenticllm"),
            ("state", "/home/you/.local/state/trunkline"),
            ("bin", "/home/you/.local/bin"),
            ("repo", "/home/you/shop"),
            ("home", "/home/you"),
        ];
        let mut text = printed.to_owned();
        for (name, shown) in folders {
            text = text.replace(self.gateway.path(name).to_str().unwrap(), shown);
        }
        if let Some((address, shown)) = &self.server {
            text = text.replace(address.as_str(), shown);
        }
        text
    }
}

/// Claude Code, which answers as it was recorded.
const CLAUDE: &str = "case $1 in --version) echo '2.1.325 (Claude Code)'; exit;; esac
cat >/dev/null; replay claude/slow_streamjson_partial";

/// Codex, which changes a file.
const CODEX: &str = "case $1 in --version) echo 'codex-cli 0.166.0'; exit;; esac
cat >/dev/null; echo 'A repository.' >README.md; codex_answers 'I fixed the typo in README.md.'";

/// Fake CLIs, and the answers that the documentation shows.
fn scene_named(name: &str) -> TestGateway {
    let new = TestGateway::new;
    let with_examples = |gateway: TestGateway| {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        symlink(examples, gateway.repo().join("examples")).unwrap();
        gateway
    };
    match name {
        // No CLI is installed: the built-in agent answers.
        "fresh" => new(),
        // A checkout of this repository, as far as its examples go.
        "checkout" => with_examples(new()),
        // The mock LLM alone.
        "mock" => new().start_mock(),
        // Claude Code and Codex; both answer, and Codex changes a file.
        "shop" => new().cli("claude", CLAUDE).cli("codex", CODEX),
        // Claude Code, as it was recorded when it ran two tools.
        "tools" => new()
            .cli("claude", "cat >/dev/null; replay claude/twotools_streamjson_partial")
            .model("claude", json!({"driver": "claude"})),
        // Executables of a router: the first is rate limited, the last answers.
        "router" => new()
            .cli("limited", "refuses \"$1\" 'rate limit exceeded, retry after 100ms'")
            .cli("local", "answers \"$1\" 'Hello from the local model.'"),
        // Claude Code without a valid key.
        "unauthorized" => new()
            .cli("claude", "cat >/dev/null; replay claude/e401_streamjson_retries0")
            .model("claude", json!({"driver": "claude"})),
        other => panic!("no scene is named {other}"),
    }
}
