//! Expected output: lines with wildcards.

/// Matches any text within a line.
const ANY: &str = "[..]";

/// A line that matches any number of lines.
const ANY_LINES: &str = "...";

pub(super) fn matches(pattern: &[String], lines: &[String]) -> bool {
    match pattern.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == ANY_LINES => (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..])),
        Some((first, rest)) => lines.split_first().is_some_and(|(line, more)| one(first, line) && matches(rest, more)),
    }
}

fn one(pattern: &str, line: &str) -> bool {
    let (pattern, line) = (collapsed(pattern), collapsed(line));
    let mut parts = pattern.split(ANY);
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// A line with single spaces: the width of a column follows its longest cell, which may be an age or a duration.
fn collapsed(line: &str) -> String {
    let mut collapsed = String::new();
    for c in line.chars() {
        if c != ' ' || !collapsed.ends_with(' ') {
            collapsed.push(c);
        }
    }
    collapsed
}

/// Expected output for what was printed. Lines of the old pattern that still match keep their wildcards, and a single
/// `...` stays where it was, counted from the nearer end.
pub(super) fn rewrite(pattern: &[String], lines: &[String]) -> Vec<String> {
    let kept = |line: &String| pattern.iter().find(|old| *old != ANY_LINES && one(old, line)).cloned();
    let rewritten = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| kept(line).unwrap_or_else(|| masked(line))).collect()
    };
    let cuts: Vec<usize> = (0..pattern.len()).filter(|&index| pattern[index] == ANY_LINES).collect();
    let &[cut] = cuts.as_slice() else { return rewritten(lines) };
    let tail = pattern.len() - cut - 1;
    if lines.len() < cut + tail {
        return rewritten(lines);
    }
    let (before, after) = (&lines[..cut], &lines[lines.len() - tail..]);
    [rewritten(before), vec![ANY_LINES.to_owned()], rewritten(after)].concat()
}

/// A line without the ids and digests that differ from run to run.
fn masked(line: &str) -> String {
    let in_id = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut masked = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(in_id) {
        let end = rest[start..].find(|c| !in_id(c)).map_or(rest.len(), |length| start + length);
        let word = &rest[start..end];
        let is_id = (word.len() == 36 && word.matches('-').count() == 4) || (word.len() == 40 && !word.contains('-'));
        masked.push_str(&rest[..start]);
        masked.push_str(if is_id { ANY } else { word });
        rest = &rest[end..];
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn wildcards_match_within_and_across_lines() {
        for (pattern, printed, expected) in [
            ("a\nb", "a\nb", true),
            ("a", "a\nb", false),
            ("a\n...", "a\nb\nc", true),
            ("a\n...", "a", true),
            ("...\nc", "a\nb\nc", true),
            ("...\nc", "a\nb", false),
            ("took [..] s", "took 0.4 s", true),
            ("took [..] s", "took 0.4", false),
            ("[..]-[..]", "a-b", true),
            ("[..]", "", true),
            ("a[..]a", "a", false),
            ("id    age\n[..]  [..]  x", "id  age\n7   1s   x", true),
        ] {
            let printed = if printed.is_empty() { vec![String::new()] } else { lines(printed) };
            assert_eq!(matches(&lines(pattern), &printed), expected, "{pattern:?} {printed:?}");
        }
    }

    #[test]
    fn a_rewritten_pattern_matches_and_keeps_its_wildcards() {
        let printed = lines("run 01a1e236-cb98-7728-9788-183752c3d846 took 3 s\nnew\nmiddle\nend");
        let pattern = lines("run [..] took [..] s\nold\n...\nend");
        let rewritten = rewrite(&pattern, &printed);
        assert_eq!(rewritten, lines("run [..] took [..] s\nnew\n...\nend"));
        assert!(matches(&rewritten, &printed));
        let masked = rewrite(&[], &printed);
        assert_eq!(masked, lines("run [..] took 3 s\nnew\nmiddle\nend"));
        assert!(matches(&masked, &printed));
    }
}
