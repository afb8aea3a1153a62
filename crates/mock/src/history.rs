//! What was said so far, as far as a script cares: the last user message, the tool results after it, and the folder the
//! client says it works in.

/// One entry of a conversation, whoever's words it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// System and developer messages.
    Instructions(Vec<String>),
    User(Vec<String>),
    Assistant(Vec<String>),
    /// A call the model made, by its id.
    Call(String),
    /// What a tool returned.
    Result(Vec<String>),
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct History(pub Vec<Entry>);

/// Blocks that CLIs put beside the user's own words; a trigger must not be found in them.
const CONTEXT: [(&str, &str); 5] = [
    ("<system-reminder>", "</system-reminder>"),
    ("<environment_context>", "</environment_context>"),
    ("<session_context>", "</session_context>"),
    ("<user_instructions>", "</user_instructions>"),
    ("# AGENTS.md instructions", "</INSTRUCTIONS>"),
];

/// The line between a repository's instructions and the task in a gateway's prompt.
const TASK: &str = "--- USER TASK ---";

/// How CLIs say which folder they work in: the path follows, up to the end of the line or the next tag.
const FOLDER: [&str; 5] = [
    "Primary working directory: ",
    "Working directory: ",
    "currently working in the directory: ",
    "**Workspace Directories:**\n  - ",
    "<cwd>",
];

impl History {
    /// The last thing the user said, without what the CLI added to it.
    #[must_use]
    pub(crate) fn user_message(&self) -> String {
        self.last_user().map(|(_, text)| text).unwrap_or_default()
    }

    /// How many tool results came after the last user message.
    #[must_use]
    pub(crate) fn results(&self) -> usize {
        let after = self.last_user().map_or(0, |(index, _)| index);
        self.0[after..].iter().filter(|entry| matches!(entry, Entry::Result(_))).count()
    }

    /// How many calls had this id already.
    #[must_use]
    pub(crate) fn calls_of(&self, id: &str) -> usize {
        let repeated = |call: &str| call.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        self.0.iter().filter(|entry| matches!(entry, Entry::Call(call) if repeated(call))).count()
    }

    /// The folder the client works in, if it says so. The last word counts: sessions move.
    #[must_use]
    pub(crate) fn folder(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|entry| match entry {
            Entry::Instructions(texts) | Entry::User(texts) => texts.iter().rev().find_map(|text| folder_in(text)),
            Entry::Assistant(_) | Entry::Call(_) | Entry::Result(_) => None,
        })
    }

    /// An estimate: a token is four characters.
    #[must_use]
    pub(crate) fn tokens(&self) -> u64 {
        let chars = |texts: &Vec<String>| texts.iter().map(|text| text.chars().count() as u64).sum::<u64>();
        let all: u64 = self
            .0
            .iter()
            .map(|entry| match entry {
                Entry::Instructions(texts) | Entry::User(texts) | Entry::Assistant(texts) | Entry::Result(texts) => {
                    chars(texts)
                }
                Entry::Call(_) => 0,
            })
            .sum();
        all.div_ceil(4).max(1)
    }

    fn last_user(&self) -> Option<(usize, String)> {
        self.0.iter().enumerate().rev().find_map(|(index, entry)| match entry {
            Entry::User(texts) => {
                let own: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !is_context(text)).collect();
                let own = own.join("\n");
                let task = own.rsplit_once(TASK).map_or(own.as_str(), |(_, task)| task);
                (!task.trim().is_empty()).then(|| (index, task.to_owned()))
            }
            Entry::Instructions(_) | Entry::Assistant(_) | Entry::Call(_) | Entry::Result(_) => None,
        })
    }
}

fn is_context(text: &str) -> bool {
    let text = text.trim();
    CONTEXT.iter().any(|(start, end)| text.starts_with(start) && text.ends_with(end))
}

fn folder_in(text: &str) -> Option<&str> {
    FOLDER.iter().find_map(|mark| {
        let (_, rest) = text.rsplit_once(mark)?;
        let path = rest.split(['\n', '<']).next().unwrap_or_default().trim();
        path.starts_with('/').then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(texts: &[&str]) -> Entry {
        Entry::User(texts.iter().map(|&text| text.to_owned()).collect())
    }

    fn result() -> Entry {
        Entry::Result(vec!["OK".to_owned()])
    }

    #[test]
    fn the_last_user_message_and_the_results_after_it() {
        let assistant = || Entry::Assistant(vec!["on it".to_owned()]);
        for (entries, message, results) in [
            (vec![], "", 0),
            (vec![user(&["hello"])], "hello", 0),
            (vec![user(&["one"]), assistant(), result(), user(&["two"])], "two", 0),
            (vec![user(&["one"]), result(), user(&["two"]), result(), assistant(), result()], "two", 2),
            (vec![user(&["one", "more"])], "one\nmore", 0),
            // Claude's reminders, beside the task and alone beside a result.
            (vec![user(&["<system-reminder>\nhello\n</system-reminder>\n", "task"])], "task", 0),
            (vec![user(&["task"]), result(), user(&["<system-reminder>x</system-reminder>"])], "task", 1),
            // Codex's context is a user message of its own.
            (vec![user(&["# AGENTS.md instructions for /r\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>"])], "", 0),
            // The repository's instructions stand in the same text as the task.
            (vec![user(&["say hello\n\n--- USER TASK ---\nbye"])], "\nbye", 0),
            (vec![result(), result()], "", 2),
        ] {
            let history = History(entries);
            assert_eq!((history.user_message().as_str(), history.results()), (message, results), "{history:?}");
        }
    }

    #[test]
    fn the_folder_as_each_cli_names_it() {
        for (text, folder) in [
            ("# Environment\n - Primary working directory: /r/claude\n - Is a git repository: true", Some("/r/claude")),
            ("<environment_context>\n  <cwd>/r/codex</cwd>\n  <shell>bash</shell>", Some("/r/codex")),
            ("- **Workspace Directories:**\n  - /r/gemini\n- **Directory Structure:**", Some("/r/gemini")),
            ("I'm currently working in the directory: /r/qwen\nHere is", Some("/r/qwen")),
            ("<env>\n  Working directory: /r/opencode\n  Workspace root folder: /r", Some("/r/opencode")),
            ("Working directory: unknown", None),
            ("hello", None),
        ] {
            assert_eq!(History(vec![user(&[text])]).folder(), folder, "{text}");
        }
        let moved = History(vec![user(&["<cwd>/old</cwd>"]), user(&["<cwd>/new</cwd>"]), user(&["task"])]);
        assert_eq!(moved.folder(), Some("/new"));
        let printed = History(vec![Entry::Result(vec!["<cwd>/elsewhere</cwd>".to_owned()])]);
        assert_eq!(printed.folder(), None, "what a tool prints is not where the client is");
    }
}
