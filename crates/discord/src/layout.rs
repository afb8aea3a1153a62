//! Layout of an answer: a few messages, or its beginning and a file if there would be too many. Pure.

use crate::split::{MAX_MESSAGE_UNITS, MessagePart, split, units};

/// Maximum number of messages. More would push everything else off the screen.
const MAX_PARTS: usize = 5;

/// One message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) content: String,
    pub(crate) file: Option<AnswerFile>,
}

/// A file with a whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerFile {
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

/// The messages of an answer; at least one.
pub(crate) fn layout(answer: &str) -> Vec<Post> {
    let answer = answer.trim();
    let parts: Vec<String> = split(answer, MAX_MESSAGE_UNITS).iter().map(MessagePart::rendered).collect();
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.trim().is_empty()).collect();
    if parts.is_empty() {
        return vec![plain("*(no answer)*".to_owned())];
    }
    if parts.len() <= MAX_PARTS {
        return parts.into_iter().map(plain).collect();
    }
    let file = match lone_diff(answer) {
        Some(diff) => AnswerFile { name: "changes.diff", text: diff.to_owned() },
        None => AnswerFile { name: "answer.md", text: answer.to_owned() },
    };
    let note = format!("-# Truncated; the whole answer ({} characters) is in {}.", answer.chars().count(), file.name);
    let room = MAX_MESSAGE_UNITS - units(&note) - 1;
    let beginning = split(answer, room).first().map(MessagePart::rendered).unwrap_or_default();
    vec![plain(beginning), Post { content: note, file: Some(file) }]
}

fn plain(content: String) -> Post {
    Post { content, file: None }
}

/// The diff of an answer that consists mostly of one diff.
fn lone_diff(answer: &str) -> Option<&str> {
    let (before, rest) = answer.split_once("```diff\n")?;
    let (diff, after) = rest.rsplit_once("```")?;
    (before.len() + after.len() < answer.len() / 4 && !diff.contains("```")).then_some(diff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_sent_as_messages_when_it_has_few_parts() {
        assert_eq!(layout(" hi\n"), [plain("hi".to_owned())]);
        assert_eq!(layout(" \n")[0].content, "*(no answer)*");
        let five = "word ".repeat(1900);
        let posts = layout(&five);
        assert_eq!(posts.len(), 5);
        assert!(posts.iter().all(|post| post.file.is_none() && units(&post.content) <= MAX_MESSAGE_UNITS));
    }

    #[test]
    fn answer_is_sent_as_file_when_it_has_many_parts() {
        let long = "line of text\n".repeat(2000);
        let posts = layout(&long);
        assert_eq!(posts.len(), 2);
        assert!(units(&posts[0].content) <= MAX_MESSAGE_UNITS && posts[1].content.contains("25999 characters"));
        let file = posts[1].file.as_ref().unwrap();
        assert_eq!((file.name, file.text.as_str()), ("answer.md", long.trim()));
    }

    #[test]
    fn file_is_a_diff_when_answer_is_mostly_a_diff() {
        let diff = "+added\n-removed\n".repeat(1000);
        let posts = layout(&format!("Here it is:\n```diff\n{diff}```\nDone."));
        let file = posts[1].file.as_ref().unwrap();
        assert_eq!((file.name, file.text.as_str()), ("changes.diff", diff.as_str()));
        assert!(posts[0].content.starts_with("Here it is:\n```diff\n+added") && posts[0].content.ends_with("```"));
    }
}
