//! Splits a text into messages that fit Discord's limit and still render correctly: code blocks are closed and reopened,
//! and words stay whole if possible. Pure.
//!
//! Code blocks follow Discord's rules, not CommonMark's: three backticks open a block and the next three close it, anywhere
//! in a line.

use unicode_segmentation::UnicodeSegmentation;

/// Maximum length of a message, in UTF-16 units. A text never has fewer units than characters, so that the limit is safe
/// whichever of the two Discord counts.
pub const MAX_MESSAGE_UNITS: usize = 2000;

/// Closes a code block that continues in the next part.
const CLOSING_FENCE: &str = "\n```";

/// One message of a longer text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePart<'t> {
    /// Language, possibly empty, of the code block that continues from the previous part.
    pub reopened: Option<&'t str>,
    /// Section of the text. All bodies together are the whole text.
    pub body: &'t str,
    /// Whether a code block has to be closed at the end.
    pub closed: bool,
}

impl MessagePart<'_> {
    /// The message as it is sent.
    #[must_use]
    pub fn rendered(&self) -> String {
        let open = self.reopened.map(|language| format!("```{language}\n")).unwrap_or_default();
        let close = match self.closed {
            true if self.body.ends_with('\n') => CLOSING_FENCE.trim_start(),
            true => CLOSING_FENCE,
            false => "",
        };
        format!("{open}{}{close}", self.body)
    }
}

/// Splits a text into parts of at most `limit` units.
#[must_use]
pub fn split(text: &str, limit: usize) -> Vec<MessagePart<'_>> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, None);
    while start < text.len() {
        let taken = open.map_or(0, |language: &str| units(language) + 4);
        let end = cut(text, start, open, limit.saturating_sub(taken).max(16));
        let after = open_after(text, start..end, open);
        parts.push(MessagePart { reopened: open, body: &text[start..end], closed: after.is_some() });
        (start, open) = (end, after);
    }
    parts
}

/// Length of a text in UTF-16 units.
pub(crate) fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// End of the part that begins at `start`.
fn cut<'t>(text: &'t str, start: usize, open: Option<&'t str>, budget: usize) -> usize {
    let rest = &text[start..];
    let closing = if open_after(text, start..text.len(), open).is_some() { CLOSING_FENCE.len() } else { 0 };
    if units(rest) + closing <= budget {
        return text.len();
    }
    let last = start + fitting(rest, budget - CLOSING_FENCE.len());
    let candidates = breaks(text, start..last, open);
    let enough = |share: usize| start + (last - start) / share;
    let best = candidates.iter().filter(|(_, at)| *at >= enough(2)).max().or_else(|| {
        let late = candidates.iter().filter(|(_, at)| *at >= enough(8));
        late.max_by_key(|(_, at)| *at)
    });
    if let Some((_, at)) = best {
        return *at;
    }
    let space = text[start..last].rfind(' ').map(|at| start + at + 1).filter(|at| *at >= enough(8));
    outside_fence(text, start, space.unwrap_or_else(|| grapheme_before(text, start, last)))
}

/// Length in bytes of the longest prefix with at most `budget` units.
fn fitting(text: &str, budget: usize) -> usize {
    let mut used = 0;
    let beyond = text.char_indices().find(|(_, c)| {
        used += c.len_utf16();
        used > budget
    });
    beyond.map_or(text.len(), |(at, _)| at)
}

/// Line ends in the range with their rank: 1 within a code block, 2 between lines, 3 between paragraphs.
fn breaks<'t>(text: &'t str, range: std::ops::Range<usize>, open: Option<&'t str>) -> Vec<(u8, usize)> {
    let (mut found, mut line, mut state) = (Vec::new(), range.start, open);
    while let Some(end) = text[line..range.end].find('\n').map(|at| line + at + 1) {
        let after = open_after(text, line..end, state);
        let next = text[end..].trim_start_matches('\n');
        let blank = text[line..end].trim().is_empty();
        let rank = match (state, after) {
            (_, None) if blank || next.starts_with("```") => Some(3),
            (_, None) => Some(2),
            // A block must not be split directly after its first line or directly before its end.
            (None, Some(_)) => None,
            (Some(_), Some(_)) => (!next.starts_with("```")).then_some(1),
        };
        found.extend(rank.map(|rank| (rank, end)));
        (line, state) = (end, after);
    }
    found
}

/// Language of the code block that is open after the range.
fn open_after<'t>(text: &'t str, range: std::ops::Range<usize>, open: Option<&'t str>) -> Option<&'t str> {
    let (mut state, mut at) = (open, range.start);
    while let Some(found) = text[at..range.end].find("```").map(|found| at + found) {
        let end = found + text[found..].bytes().take_while(|byte| *byte == b'`').count();
        state = if state.is_some() { None } else { Some(language(&text[end..])) };
        at = end.min(range.end);
    }
    state
}

/// Language name that follows the backticks, or an empty text.
fn language(after: &str) -> &str {
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.' | '#');
    let length = after.find(|c| !named(c)).unwrap_or(after.len());
    if length <= 32 && after[length..].starts_with('\n') { &after[..length] } else { "" }
}

/// `at`, or the start of the backticks if a cut at `at` would split them or separate them from their language.
fn outside_fence(text: &str, start: usize, at: usize) -> usize {
    let before = text[..at].trim_end_matches(|c: char| c != '`' && c != '\n' && c != ' ');
    let ticks = before.len() - before.trim_end_matches('`').len();
    let is_split = ticks > 0 && (before.len() == at && text[at..].starts_with('`') || ticks >= 3);
    let fence = before.len() - ticks;
    if is_split && fence > start && before.len() + 40 > at { fence } else { at }
}

/// The last boundary between two grapheme clusters up to `last`.
fn grapheme_before(text: &str, start: usize, last: usize) -> usize {
    // A few characters before `last` are enough to find the start of the last cluster.
    let window = text[start..last].char_indices().rev().nth(64).map_or(start, |(at, _)| start + at);
    let ahead = text[last..].chars().take(16).map(char::len_utf8).sum::<usize>();
    let ends = text[window..last + ahead].grapheme_indices(true).map(|(at, _)| window + at);
    ends.take_while(|at| *at <= last).last().filter(|at| *at > start).unwrap_or(last)
}

#[cfg(test)]
mod tests;
