//! Replaces one string by another in a file that holds it exactly once; else says why not. Pure.
//!
//! It works on bytes, so that whatever is not replaced stays as it is, be it text or not. Line endings are the exception
//! to "exactly": models write `\n` and do not see that a file has `\r\n`. A `\n` of theirs stands for both, and where one
//! is inserted, it becomes what the lines around it have. A `\r\n` of theirs is meant as such.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

/// More places than anybody wants to hear of.
const MOST_MATCHES: usize = 100;
/// How many of them are named.
const MOST_NAMED: usize = 10;
/// How much of the file is quoted when it nearly matches.
const LONGEST_QUOTE: usize = 2000;

/// `file` with `new` in the place of `old`, or what the model should know.
pub(super) fn replace(file: &[u8], old: &str, new: &str) -> Result<Vec<u8>, String> {
    if old.is_empty() {
        return Err("old_string is empty; give the text to replace, or use write_file for the whole file".into());
    }
    if old == new {
        return Err("old_string and new_string are the same".into());
    }
    let (file, old, new) = (Flat::new(file), Flat::new(old.as_bytes()), Flat::new(new.as_bytes()));
    if old.bytes == new.bytes {
        return Err("old_string and new_string differ only in line endings, which an edit keeps; use bash (sed)".into());
    }
    let found = file.all(&old);
    match found[..] {
        [] => Err(near_miss(&file, &old)),
        [at] => Ok(splice(&file, at, &old, &new)),
        _ => {
            let more = if found.len() == MOST_MATCHES { " or more" } else { "" };
            let count = found.len();
            Err(format!(
                "old_string is there {count}{more} times, at {}; include more of the text around the one you mean",
                file.lines(&found)
            ))
        }
    }
}

/// Bytes in which every line ending is one byte: `\n`, also where it was `\r\n`.
struct Flat<'a> {
    whole: &'a [u8],
    bytes: Cow<'a, [u8]>,
    /// Where in `bytes` a `\n` was `\r\n`.
    crlf: Vec<usize>,
}

impl<'a> Flat<'a> {
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

    /// Every place where `old` is, those that overlap too: they are just as ambiguous.
    fn all(&self, old: &Flat<'_>) -> Vec<usize> {
        let meant = |at: &usize| old.crlf.iter().all(|inside| self.is_crlf(at + inside));
        everywhere(&self.bytes, &old.bytes).filter(meant).take(MOST_MATCHES).collect()
    }

    fn is_crlf(&self, at: usize) -> bool {
        self.crlf.binary_search(&at).is_ok()
    }

    /// Where in the whole a place in the flat bytes is.
    fn offset(&self, at: usize) -> usize {
        at + self.crlf.partition_point(|&pair| pair < at)
    }

    fn line(&self, at: usize) -> usize {
        1 + memchr::memchr_iter(b'\n', &self.bytes[..at]).count()
    }

    /// Names the lines of these places: `line 3`, `lines 3, 7 and 9`, `lines 1, 2, … and more`.
    fn lines(&self, places: &[usize]) -> String {
        let mut numbers: Vec<usize> = places.iter().map(|&at| self.line(at)).collect();
        numbers.dedup();
        let words: Vec<String> = numbers.iter().take(MOST_NAMED).map(usize::to_string).collect();
        match &words[..] {
            [one] => format!("line {one}"),
            many if many.len() < numbers.len() => format!("lines {} and more", many.join(", ")),
            [rest @ .., last] => format!("lines {} and {last}", rest.join(", ")),
            [] => String::new(),
        }
    }

    /// Whether lines that are inserted in place of `range` should end in `\r\n`: one answer for each line ending that
    /// is there now, or else that of the next line, or of the one before.
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

/// Where `needle` begins in `hay`, overlaps included.
fn everywhere<'a>(hay: &'a [u8], needle: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let finder = memmem::Finder::new(needle);
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + finder.find(hay.get(from..)?)?;
        from = at + 1;
        Some(at)
    })
}

/// Puts `new` where `old` is. What both begin and end with is not touched: those lines keep their endings.
fn splice(file: &Flat<'_>, at: usize, old: &Flat<'_>, new: &Flat<'_>) -> Vec<u8> {
    let before = alike(old.bytes.iter(), new.bytes.iter());
    let after = alike(old.bytes[before..].iter().rev(), new.bytes[before..].iter().rev());
    let range = at + before..at + old.bytes.len() - after;
    let endings = file.endings(range.clone());

    let mut edited = file.whole[..file.offset(range.start)].to_vec();
    let mut lines = 0;
    for place in before..new.bytes.len() - after {
        let byte = new.bytes[place];
        if byte == b'\n' {
            // Line by line as before, and further lines like the last.
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

/// How many bytes are the same, from the first on.
fn alike<'a>(one: impl Iterator<Item = &'a u8>, other: impl Iterator<Item = &'a u8>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).count()
}

/// Why `old` is not there, and what is there instead.
fn near_miss(file: &Flat<'_>, old: &Flat<'_>) -> String {
    if file.bytes.is_empty() {
        return "the file is empty; use write_file".into();
    }
    if let Some(at) = everywhere(&file.bytes, &old.bytes).next() {
        let lines = lines_of(file, at..at + old.bytes.len());
        return format!("old_string has \\r\\n where the file has \\n, on {lines}; use \\n, which stands for both");
    }
    if let Some(range) = but_for_whitespace(&file.bytes, &old.bytes) {
        let lines = lines_of(file, range.clone());
        return format!(
            "old_string is not there exactly, only with other whitespace, on {lines}:\n{}",
            quote(file, range)
        );
    }
    let advice = "use read_file, and copy the text exactly as it is";
    let mut lines = old.bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    if let (Some(first), Some(_)) = (lines.next(), lines.next()) {
        let found: Vec<usize> = everywhere(&file.bytes, first).take(MOST_MATCHES).collect();
        if !found.is_empty() {
            let places = file.lines(&found);
            return format!("old_string is not there: its first line is, at {places}, but not what follows; {advice}");
        }
    }
    format!("old_string is not there; {advice}")
}

/// Where `old` would be if there were no whitespace.
fn but_for_whitespace(file: &[u8], old: &[u8]) -> Option<Range<usize>> {
    let black = |bytes: &[u8]| bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<u8>>();
    let (hay, needle) = (black(file), black(old));
    let last = needle.len().checked_sub(1)?;
    let at = memmem::find(&hay, &needle)?;
    let mut places = file.iter().enumerate().filter(|(_, byte)| !byte.is_ascii_whitespace()).map(|(place, _)| place);
    let start = places.nth(at)?;
    let end = if last == 0 { start } else { places.nth(last - 1)? };
    Some(start..end + 1)
}

fn lines_of(file: &Flat<'_>, range: Range<usize>) -> String {
    let (first, last) = (file.line(range.start), file.line(range.end - 1));
    if first == last { format!("line {first}") } else { format!("lines {first} to {last}") }
}

/// The whole lines of a range, for the model to copy.
fn quote(file: &Flat<'_>, range: Range<usize>) -> String {
    let start = memchr::memrchr(b'\n', &file.bytes[..range.start]).map_or(0, |at| at + 1);
    let end = memchr::memchr(b'\n', &file.bytes[range.end..]).map_or(file.bytes.len(), |at| range.end + at);
    let lines = String::from_utf8_lossy(&file.bytes[start..end]);
    if lines.len() <= LONGEST_QUOTE {
        return lines.into_owned();
    }
    format!("{}\n[and so on]", &lines[..lines.floor_char_boundary(LONGEST_QUOTE)])
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
