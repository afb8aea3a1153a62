//! Cutting a text into messages that Discord takes, and that still look right: no code block is torn, no word if it can
//! be helped. Pure.
//!
//! Discord's own reading of code blocks counts, not CommonMark's: three backticks open one, the next three close it,
//! wherever in a line they stand.

use unicode_segmentation::UnicodeSegmentation;

/// The longest message. Counted in UTF-16 units, of which no text has fewer than characters: safe whichever is meant.
pub const LIMIT: usize = 2000;

/// What closes a code block that goes on in the next part.
const CLOSE: &str = "\n```";

/// One message of a longer text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'t> {
    /// The language of the code block that went on from the part before, perhaps none.
    pub reopened: Option<&'t str>,
    /// What it holds of the text. All bodies together are the text.
    pub body: &'t str,
    /// Whether a code block has to be closed behind it.
    pub closed: bool,
}

impl Part<'_> {
    /// As it is sent.
    #[must_use]
    pub fn rendered(&self) -> String {
        let open = self.reopened.map(|language| format!("```{language}\n")).unwrap_or_default();
        let close = match self.closed {
            true if self.body.ends_with('\n') => CLOSE.trim_start(),
            true => CLOSE,
            false => "",
        };
        format!("{open}{}{close}", self.body)
    }
}

/// The text in parts of at most `limit` units each.
#[must_use]
pub fn split(text: &str, limit: usize) -> Vec<Part<'_>> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, None);
    while start < text.len() {
        let taken = open.map_or(0, |language: &str| units(language) + 4);
        let end = cut(text, start, open, limit.saturating_sub(taken).max(16));
        let after = open_after(text, start..end, open);
        parts.push(Part { reopened: open, body: &text[start..end], closed: after.is_some() });
        (start, open) = (end, after);
    }
    parts
}

/// The length of a text as Discord's clients count.
pub(crate) fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Where the part that begins at `start` ends.
fn cut<'t>(text: &'t str, start: usize, open: Option<&'t str>, budget: usize) -> usize {
    let rest = &text[start..];
    let closing = if open_after(text, start..text.len(), open).is_some() { CLOSE.len() } else { 0 };
    if units(rest) + closing <= budget {
        return text.len();
    }
    let last = start + fitting(rest, budget - CLOSE.len());
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

/// How many bytes of `text` are at most `budget` units.
fn fitting(text: &str, budget: usize) -> usize {
    let mut used = 0;
    let beyond = text.char_indices().find(|(_, c)| {
        used += c.len_utf16();
        used > budget
    });
    beyond.map_or(text.len(), |(at, _)| at)
}

/// Ends of lines in the range, from good to better: within a code block, between lines, between paragraphs.
fn breaks<'t>(text: &'t str, range: std::ops::Range<usize>, open: Option<&'t str>) -> Vec<(u8, usize)> {
    let (mut found, mut line, mut state) = (Vec::new(), range.start, open);
    while let Some(end) = text[line..range.end].find('\n').map(|at| line + at + 1) {
        let after = open_after(text, line..end, state);
        let next = text[end..].trim_start_matches('\n');
        let blank = text[line..end].trim().is_empty();
        let rank = match (state, after) {
            (_, None) if blank || next.starts_with("```") => Some(3),
            (_, None) => Some(2),
            // Nothing but its first line would stand here, or nothing but its end there.
            (None, Some(_)) => None,
            (Some(_), Some(_)) => (!next.starts_with("```")).then_some(1),
        };
        found.extend(rank.map(|rank| (rank, end)));
        (line, state) = (end, after);
    }
    found
}

/// The language of the code block that is open after the range, if one is.
fn open_after<'t>(text: &'t str, range: std::ops::Range<usize>, open: Option<&'t str>) -> Option<&'t str> {
    let (mut state, mut at) = (open, range.start);
    while let Some(found) = text[at..range.end].find("```").map(|found| at + found) {
        let end = found + text[found..].bytes().take_while(|byte| *byte == b'`').count();
        state = if state.is_some() { None } else { Some(language(&text[end..])) };
        at = end.min(range.end);
    }
    state
}

/// What stands on the line behind the backticks, if it is the name of a language.
fn language(behind: &str) -> &str {
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.' | '#');
    let length = behind.find(|c| !named(c)).unwrap_or(behind.len());
    if length <= 32 && behind[length..].starts_with('\n') { &behind[..length] } else { "" }
}

/// `at`, or where the backticks begin that it would tear, or tear from their language.
fn outside_fence(text: &str, start: usize, at: usize) -> usize {
    let before = text[..at].trim_end_matches(|c: char| c != '`' && c != '\n' && c != ' ');
    let ticks = before.len() - before.trim_end_matches('`').len();
    let torn = ticks > 0 && (before.len() == at && text[at..].starts_with('`') || ticks >= 3);
    let fence = before.len() - ticks;
    if torn && fence > start && before.len() + 40 > at { fence } else { at }
}

/// The last place up to `last` between two characters as people see them.
fn grapheme_before(text: &str, start: usize, last: usize) -> usize {
    // A few characters back are enough to know where the last one begins.
    let window = text[start..last].char_indices().rev().nth(64).map_or(start, |(at, _)| start + at);
    let ahead = text[last..].chars().take(16).map(char::len_utf8).sum::<usize>();
    let ends = text[window..last + ahead].grapheme_indices(true).map(|(at, _)| window + at);
    ends.take_while(|at| *at <= last).last().filter(|at| *at > start).unwrap_or(last)
}

#[cfg(test)]
mod tests;
