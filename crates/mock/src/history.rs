//! The conversation so far, reduced to the parts that select an answer: the last user message, the tool results after
//! it, and the client's working directory.

/// One entry of a conversation, independent of the API dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HistoryEntry {
    /// System and developer messages.
    Instructions(Vec<String>),
    User(Vec<String>),
    Assistant(Vec<String>),
    /// Id of a tool call that the model made.
    Call(String),
    /// Output of a tool.
    Result(Vec<String>),
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MockHistory(pub Vec<HistoryEntry>);

/// Blocks that CLIs add to the user's message, by start and end. Triggers must not match inside them.
const CONTEXT_BLOCKS: [(&str, &str); 5] = [
    ("<system-reminder>", "</system-reminder>"),
    ("<environment_context>", "</environment_context>"),
    ("<session_context>", "</session_context>"),
    ("<user_instructions>", "</user_instructions>"),
    ("# AGENTS.md instructions", "</INSTRUCTIONS>"),
];

/// Line that separates the repository's instructions from the task in a prompt of the gateway.
const TASK_HEADER: &str = "--- USER TASK ---";

/// Phrases by which CLIs name their working directory. The path follows, up to the end of the line or the next tag.
const FOLDER_MARKS: [&str; 5] = [
    "Primary working directory: ",
    "Working directory: ",
    "currently working in the directory: ",
    "**Workspace Directories:**\n  - ",
    "<cwd>",
];

impl MockHistory {
    /// Returns the last user message, without the blocks that the CLI added to it.
    #[must_use]
    pub(crate) fn user_message(&self) -> String {
        self.last_user().map(|(_, text)| text).unwrap_or_default()
    }

    /// Returns the number of tool results after the last user message.
    #[must_use]
    pub(crate) fn result_count(&self) -> usize {
        let after = self.last_user().map_or(0, |(index, _)| index);
        self.0[after..].iter().filter(|entry| matches!(entry, HistoryEntry::Result(_))).count()
    }

    /// Returns the text of the last tool result, if one came after the last user message.
    #[must_use]
    pub(crate) fn last_result(&self) -> Option<String> {
        let after = self.last_user().map_or(0, |(index, _)| index);
        self.0[after..].iter().rev().find_map(|entry| match entry {
            HistoryEntry::Result(texts) => Some(texts.join("\n")),
            HistoryEntry::Instructions(_)
            | HistoryEntry::User(_)
            | HistoryEntry::Assistant(_)
            | HistoryEntry::Call(_) => None,
        })
    }

    /// Returns the number of earlier calls with this id, including those that were made unique with a suffix.
    #[must_use]
    pub(crate) fn call_count(&self, id: &str) -> usize {
        let repeated = |call: &str| call.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        self.0.iter().filter(|entry| matches!(entry, HistoryEntry::Call(call) if repeated(call))).count()
    }

    /// Returns the client's working directory, if it is named. The last mention wins, because a session can change it.
    #[must_use]
    pub(crate) fn folder(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|entry| match entry {
            HistoryEntry::Instructions(texts) | HistoryEntry::User(texts) => {
                texts.iter().rev().find_map(|text| folder_in(text))
            }
            HistoryEntry::Assistant(_) | HistoryEntry::Call(_) | HistoryEntry::Result(_) => None,
        })
    }

    /// Estimates the number of tokens: four characters each.
    #[must_use]
    pub(crate) fn tokens(&self) -> u64 {
        let chars = |texts: &Vec<String>| texts.iter().map(|text| text.chars().count() as u64).sum::<u64>();
        let all: u64 = self
            .0
            .iter()
            .map(|entry| match entry {
                HistoryEntry::Instructions(texts)
                | HistoryEntry::User(texts)
                | HistoryEntry::Assistant(texts)
                | HistoryEntry::Result(texts) => chars(texts),
                HistoryEntry::Call(_) => 0,
            })
            .sum();
        all.div_ceil(4).max(1)
    }

    fn last_user(&self) -> Option<(usize, String)> {
        self.0.iter().enumerate().rev().find_map(|(index, entry)| match entry {
            HistoryEntry::User(texts) => {
                let parts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !is_context(text)).collect();
                let message = parts.join("\n");
                let task = message.rsplit_once(TASK_HEADER).map_or(message.as_str(), |(_, task)| task);
                (!task.trim().is_empty()).then(|| (index, task.to_owned()))
            }
            HistoryEntry::Instructions(_)
            | HistoryEntry::Assistant(_)
            | HistoryEntry::Call(_)
            | HistoryEntry::Result(_) => None,
        })
    }
}

fn is_context(text: &str) -> bool {
    let text = text.trim();
    CONTEXT_BLOCKS.iter().any(|(start, end)| text.starts_with(start) && text.ends_with(end))
}

fn folder_in(text: &str) -> Option<&str> {
    FOLDER_MARKS.iter().find_map(|mark| {
        let (_, rest) = text.rsplit_once(mark)?;
        let path = rest.split(['\n', '<']).next().unwrap_or_default().trim();
        path.starts_with('/').then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(texts: &[&str]) -> HistoryEntry {
        HistoryEntry::User(texts.iter().map(|&text| text.to_owned()).collect())
    }

    fn result() -> HistoryEntry {
        HistoryEntry::Result(vec!["OK".to_owned()])
    }

    #[test]
    fn finds_last_user_message_and_counts_results_after_it() {
        let assistant = || HistoryEntry::Assistant(vec!["on it".to_owned()]);
        for (entries, message, results) in [
            (vec![], "", 0),
            (vec![user(&["hello"])], "hello", 0),
            (vec![user(&["one"]), assistant(), result(), user(&["two"])], "two", 0),
            (vec![user(&["one"]), result(), user(&["two"]), result(), assistant(), result()], "two", 2),
            (vec![user(&["one", "more"])], "one\nmore", 0),
            // Claude's reminders: next to the task, and alone after a result.
            (vec![user(&["<system-reminder>\nhello\n</system-reminder>\n", "task"])], "task", 0),
            (vec![user(&["task"]), result(), user(&["<system-reminder>x</system-reminder>"])], "task", 1),
            // Codex's context is a user message of its own.
            (vec![user(&["# AGENTS.md instructions for /r\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>"])], "", 0),
            // The repository's instructions are in the same text as the task.
            (vec![user(&["say hello\n\n--- USER TASK ---\nbye"])], "\nbye", 0),
            (vec![result(), result()], "", 2),
        ] {
            let history = MockHistory(entries);
            assert_eq!((history.user_message().as_str(), history.result_count()), (message, results), "{history:?}");
        }
    }

    #[test]
    fn last_result_is_that_after_the_last_user_message() {
        let result = |text: &str| HistoryEntry::Result(vec![text.to_owned()]);
        for (entries, expected) in [
            (vec![user(&["one"])], None),
            (vec![user(&["one"]), result("first"), result("second")], Some("second")),
            (vec![user(&["one"]), result("first"), user(&["two"])], None),
            (vec![user(&["one"]), result("first"), user(&["<system-reminder>x</system-reminder>"])], Some("first")),
        ] {
            let history = MockHistory(entries);
            assert_eq!(history.last_result().as_deref(), expected, "{history:?}");
        }
    }

    #[test]
    fn finds_working_directory_as_each_cli_names_it() {
        for (text, folder) in [
            ("# Environment\n - Primary working directory: /r/claude\n - Is a git repository: true", Some("/r/claude")),
            ("<environment_context>\n  <cwd>/r/codex</cwd>\n  <shell>bash</shell>", Some("/r/codex")),
            ("- **Workspace Directories:**\n  - /r/gemini\n- **Directory Structure:**", Some("/r/gemini")),
            ("I'm currently working in the directory: /r/qwen\nHere is", Some("/r/qwen")),
            ("<env>\n  Working directory: /r/opencode\n  Workspace root folder: /r", Some("/r/opencode")),
            ("Working directory: unknown", None),
            ("hello", None),
        ] {
            assert_eq!(MockHistory(vec![user(&[text])]).folder(), folder, "{text}");
        }
        let moved = MockHistory(vec![user(&["<cwd>/old</cwd>"]), user(&["<cwd>/new</cwd>"]), user(&["task"])]);
        assert_eq!(moved.folder(), Some("/new"));
        let printed = MockHistory(vec![HistoryEntry::Result(vec!["<cwd>/elsewhere</cwd>".to_owned()])]);
        assert_eq!(printed.folder(), None, "tool output does not set the working directory");
    }
}
