//! A page of documentation, cut into its transcripts and the text between them.

/// A page whose parts, joined, are its text.
pub(super) struct Page {
    pub(super) parts: Vec<Part>,
}

pub(super) enum Part {
    /// Lines that are kept as they are.
    Text(Vec<String>),
    /// A comment that starts a new world.
    Scene { name: String, line: String },
    /// Lines of a file, without the fences around them.
    File { name: String, lines: Vec<String> },
    /// A command of a transcript and its output.
    Step(Step),
}

pub(super) struct Step {
    /// Lines of the command, with `$ ` before the first.
    lines: Vec<String>,
    pub(super) output: Vec<String>,
}

impl Step {
    /// The command as a shell reads it.
    pub(super) fn command(&self) -> String {
        self.lines.join("\n").trim_start_matches("$ ").to_owned()
    }
}

impl Page {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut lines = text.lines().map(str::to_owned).peekable();
        let mut file: Option<String> = None;
        while let Some(line) = lines.next() {
            if let Some(name) = comment(&line, "transcript") {
                parts.push(Part::Scene { name, line });
                continue;
            }
            if let Some(name) = comment(&line, "file") {
                file = Some(name);
            }
            let fence = line.strip_prefix("```").map(str::to_owned);
            push(&mut parts, line);
            let Some(language) = fence else { continue };
            let mut block = Vec::new();
            let end = loop {
                match lines.next() {
                    Some(line) if line == "```" => break line,
                    Some(line) => block.push(line),
                    None => return Err(format!("a block of {language:?} does not end")),
                }
            };
            match (language.as_str(), file.take()) {
                ("console", None) => parts.extend(steps(block)?.into_iter().map(Part::Step)),
                (_, Some(name)) => parts.push(Part::File { name, lines: block }),
                (_, None) => block.into_iter().for_each(|line| push(&mut parts, line)),
            }
            push(&mut parts, end);
        }
        Ok(Self { parts })
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            let (before, after): (&[String], &[String]) = match part {
                Part::Text(lines) | Part::File { lines, .. } => (lines, &[]),
                Part::Scene { line, .. } => (std::slice::from_ref(line), &[]),
                Part::Step(step) => (&step.lines, &step.output),
            };
            for line in before.iter().chain(after) {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

/// The value of `<!-- key: value -->`.
fn comment(line: &str, key: &str) -> Option<String> {
    let inside = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    Some(inside.strip_prefix(key)?.strip_prefix(": ")?.to_owned())
}

fn push(parts: &mut Vec<Part>, line: String) {
    match parts.last_mut() {
        Some(Part::Text(lines)) => lines.push(line),
        Some(Part::Scene { .. } | Part::File { .. } | Part::Step(_)) | None => parts.push(Part::Text(vec![line])),
    }
}

fn steps(block: Vec<String>) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut continues = false;
    for line in block {
        let command = line.starts_with("$ ");
        match steps.last_mut() {
            Some(step) if continues => step.lines.push(line.clone()),
            _ if command => steps.push(Step { lines: vec![line.clone()], output: Vec::new() }),
            Some(step) => step.output.push(line.clone()),
            None => return Err(format!("a transcript begins with output: {line:?}")),
        }
        continues = (continues || command) && line.ends_with('\\');
    }
    Ok(steps)
}

#[test]
fn a_page_is_cut_into_steps_and_joined_again() {
    let text = "# A\n\n<!-- transcript: fresh -->\n```console\n$ one \\\n    two\nout\n$ three\n```\n\n\
                <!-- file: a.json -->\n```json\n{}\n```\n\n```sh\n$ not run\n```\n";
    let page = Page::parse(text).unwrap();
    assert_eq!(page.text(), text);
    let steps: Vec<_> =
        page.parts.iter().filter_map(|part| if let Part::Step(step) = part { Some(step) } else { None }).collect();
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[0].command().as_str(), steps[0].output.as_slice()), ("one \\\n    two", &["out".to_owned()][..]));
    assert_eq!((steps[1].command().as_str(), steps[1].output.len()), ("three", 0));
    assert!(page.parts.iter().any(|part| matches!(part, Part::Scene { name, .. } if name == "fresh")));
    assert!(
        page.parts
            .iter()
            .any(|part| matches!(part, Part::File { name, lines } if name == "a.json" && lines == &["{}"]))
    );
    assert!(Page::parse("```console\n$ one\n").is_err());
    assert!(Page::parse("```console\none\n```\n").is_err());
}
