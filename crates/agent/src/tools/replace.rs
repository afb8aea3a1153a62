//! Replaces a string that occurs exactly once in a file. The error explains why there is no such string. Pure.
//!
//! The code works on bytes, so that everything outside the match stays unchanged, even if it is not text. Line endings need
//! not match exactly: models write `\n` and do not see that a file has `\r\n`. A `\n` in the model's string matches both,
//! and an inserted `\n` becomes the line ending of the lines around it. A `\r\n` in the model's string is taken literally.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

/// Matches that are counted.
const MAX_MATCHES: usize = 100;

/// Line numbers that are listed in a message.
const MAX_LISTED_LINES: usize = 10;

/// Bytes of a near match that are quoted.
const MAX_QUOTE_BYTES: usize = 2000;

/// Returns `file` with `new` in place of `old`, or a message for the model.
pub(super) fn replace(file: &[u8], old: &str, new: &str) -> Result<Vec<u8>, String> {
    if old.is_empty() {
        return Err("old_string is empty; give the text to replace, or use write_file for the whole file".into());
    }
    if old == new {
        return Err("old_string and new_string are the same".into());
    }
    let (file, old, new) =
        (NormalizedText::new(file), NormalizedText::new(old.as_bytes()), NormalizedText::new(new.as_bytes()));
    if old.bytes == new.bytes {
        return Err("old_string and new_string differ only in line endings, which an edit keeps; use bash (sed)".into());
    }
    let found = file.all(&old);
    match found[..] {
        [] => Err(near_miss(&file, &old)),
        [at] => Ok(splice(&file, at, &old, &new)),
        _ => {
            let more = if found.len() == MAX_MATCHES { " or more" } else { "" };
            let count = found.len();
            Err(format!(
                "old_string occurs {count}{more} times, at {}; include more of the text around the one you mean",
                file.lines(&found)
            ))
        }
    }
}

/// Text in which every line ending is one byte: `\r\n` is replaced by `\n`.
struct NormalizedText<'a> {
    whole: &'a [u8],
    bytes: Cow<'a, [u8]>,
    /// Offsets in `bytes` of each `\n` that was `\r\n`.
    crlf: Vec<usize>,
}

impl<'a> NormalizedText<'a> {
    fn new(whole: &'a [u8]) -> Self {
        let pairs: Vec<usize> = memmem::find_iter(whole, b"\r\n").collect();
        if pairs.is_empty() {
            return Self { whole, bytes: Cow::Borrowed(whole), crlf: pairs };
        }
        let mut bytes = Vec::with_capacity(whole.len());
        let mut done = 0;
        let mut crlf = Vec::with_capacity(pairs.len());
        for pair in pairs {
            bytes.extend_from_slice(&whole[done..pair]);
            crlf.push(bytes.len());
            done = pair + 1;
        }
        bytes.extend_from_slice(&whole[done..]);
        Self { whole, bytes: Cow::Owned(bytes), crlf }
    }

    /// Offsets of all matches of `old`. Overlapping matches count, because they are just as ambiguous.
    fn all(&self, old: &NormalizedText<'_>) -> Vec<usize> {
        let endings_match = |at: &usize| old.crlf.iter().all(|inside| self.is_crlf(at + inside));
        everywhere(&self.bytes, &old.bytes).filter(endings_match).take(MAX_MATCHES).collect()
    }

    fn is_crlf(&self, at: usize) -> bool {
        self.crlf.binary_search(&at).is_ok()
    }

    /// Offset in the original text for an offset in `bytes`.
    fn offset(&self, at: usize) -> usize {
        at + self.crlf.partition_point(|&pair| pair < at)
    }

    fn line(&self, at: usize) -> usize {
        1 + memchr::memchr_iter(b'\n', &self.bytes[..at]).count()
    }

    /// Line numbers of these offsets as text: `line 3`, `lines 3, 7 and 9`, `lines 1, 2, … and more`.
    fn lines(&self, offsets: &[usize]) -> String {
        let mut numbers: Vec<usize> = offsets.iter().map(|&at| self.line(at)).collect();
        numbers.dedup();
        let words: Vec<String> = numbers.iter().take(MAX_LISTED_LINES).map(usize::to_string).collect();
        match &words[..] {
            [one] => format!("line {one}"),
            many if many.len() < numbers.len() => format!("lines {} and more", many.join(", ")),
            [rest @ .., last] => format!("lines {} and {last}", rest.join(", ")),
            [] => String::new(),
        }
    }

    /// Whether lines inserted in place of `range` should end in `\r\n`: one value for each line ending in the range. If it
    /// has none, the value of the next line ending, or else of the previous one.
    fn endings(&self, range: Range<usize>) -> Vec<bool> {
        let inside = memchr::memchr_iter(b'\n', &self.bytes[range.clone()]).map(|at| self.is_crlf(range.start + at));
        let inside: Vec<bool> = inside.collect();
        if !inside.is_empty() {
            return inside;
        }
        let next = memchr::memchr(b'\n', &self.bytes[range.end..]).map(|at| range.end + at);
        let nearest = next.or_else(|| memchr::memrchr(b'\n', &self.bytes[..range.start]));
        vec![nearest.is_some_and(|at| self.is_crlf(at))]
    }
}

/// Offsets of `needle` in `hay`, including overlapping ones.
fn everywhere<'a>(hay: &'a [u8], needle: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let finder = memmem::Finder::new(needle);
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + finder.find(hay.get(from..)?)?;
        from = at + 1;
        Some(at)
    })
}

/// Replaces `old` by `new`. Their common prefix and suffix stay untouched, so that those lines keep their endings.
fn splice(file: &NormalizedText<'_>, at: usize, old: &NormalizedText<'_>, new: &NormalizedText<'_>) -> Vec<u8> {
    let before = common_prefix(old.bytes.iter(), new.bytes.iter());
    let after = common_prefix(old.bytes[before..].iter().rev(), new.bytes[before..].iter().rev());
    let range = at + before..at + old.bytes.len() - after;
    let endings = file.endings(range.clone());

    let mut edited = file.whole[..file.offset(range.start)].to_vec();
    let mut lines = 0;
    for place in before..new.bytes.len() - after {
        let byte = new.bytes[place];
        if byte == b'\n' {
            // Line by line as before; additional lines end like the last one.
            if new.is_crlf(place) || endings[lines.min(endings.len() - 1)] {
                edited.push(b'\r');
            }
            lines += 1;
        }
        edited.push(byte);
    }
    edited.extend_from_slice(&file.whole[file.offset(range.end)..]);
    edited
}

/// Length of the common prefix.
fn common_prefix<'a>(one: impl Iterator<Item = &'a u8>, other: impl Iterator<Item = &'a u8>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).count()
}

/// Message that explains why `old` does not match, with the closest match.
fn near_miss(file: &NormalizedText<'_>, old: &NormalizedText<'_>) -> String {
    if file.bytes.is_empty() {
        return "the file is empty; use write_file".into();
    }
    if let Some(at) = everywhere(&file.bytes, &old.bytes).next() {
        let lines = lines_of(file, at..at + old.bytes.len());
        return format!("old_string has \\r\\n where the file has \\n, on {lines}; use \\n, which matches both");
    }
    if let Some(range) = find_ignoring_whitespace(&file.bytes, &old.bytes) {
        let lines = lines_of(file, range.clone());
        return format!(
            "old_string was not found exactly, only with other whitespace, on {lines}:\n{}",
            quote(file, range)
        );
    }
    let advice = "use read_file, and copy the text exactly as it is";
    let mut lines = old.bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    if let (Some(first), Some(_)) = (lines.next(), lines.next()) {
        let found: Vec<usize> = everywhere(&file.bytes, first).take(MAX_MATCHES).collect();
        if !found.is_empty() {
            let places = file.lines(&found);
            return format!(
                "old_string was not found: its first line is at {places}, but the rest does not follow; {advice}"
            );
        }
    }
    format!("old_string was not found; {advice}")
}

/// Finds `old` with all whitespace ignored.
fn find_ignoring_whitespace(file: &[u8], old: &[u8]) -> Option<Range<usize>> {
    let without_whitespace =
        |bytes: &[u8]| bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<u8>>();
    let (hay, needle) = (without_whitespace(file), without_whitespace(old));
    let last = needle.len().checked_sub(1)?;
    let at = memmem::find(&hay, &needle)?;
    let mut places = file.iter().enumerate().filter(|(_, byte)| !byte.is_ascii_whitespace()).map(|(place, _)| place);
    let start = places.nth(at)?;
    let end = if last == 0 { start } else { places.nth(last - 1)? };
    Some(start..end + 1)
}

fn lines_of(file: &NormalizedText<'_>, range: Range<usize>) -> String {
    let (first, last) = (file.line(range.start), file.line(range.end - 1));
    if first == last { format!("line {first}") } else { format!("lines {first} to {last}") }
}

/// The complete lines of a range, for the model to copy.
fn quote(file: &NormalizedText<'_>, range: Range<usize>) -> String {
    let start = memchr::memrchr(b'\n', &file.bytes[..range.start]).map_or(0, |at| at + 1);
    let end = memchr::memchr(b'\n', &file.bytes[range.end..]).map_or(file.bytes.len(), |at| range.end + at);
    let lines = String::from_utf8_lossy(&file.bytes[start..end]);
    if lines.len() <= MAX_QUOTE_BYTES {
        return lines.into_owned();
    }
    format!("{}\n[truncated]", &lines[..lines.floor_char_boundary(MAX_QUOTE_BYTES)])
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
