//! Truncation of long text: between lines if a line ends near the limit, otherwise between characters.

/// Maximum distance from the limit to the end of a line.
const MAX_LINE_DISTANCE_BYTES: usize = 4096;

/// The beginning of `bytes`, without a last line or character that may be incomplete.
pub(super) fn head(bytes: &[u8]) -> &[u8] {
    let near = bytes.len().saturating_sub(MAX_LINE_DISTANCE_BYTES);
    if let Some(end) = memchr::memrchr(b'\n', &bytes[near..]) {
        return &bytes[..=near + end];
    }
    // An incomplete last character begins at most three bytes before the end.
    let from = bytes.len().saturating_sub(3);
    let cut = bytes[from..].iter().rposition(|&byte| byte >= 0xc0).map(|start| from + start);
    match cut {
        Some(start) if bytes.len() - start < length(bytes[start]) => &bytes[..start],
        _ => bytes,
    }
}

/// The end of `bytes`, without a first line or character that may be incomplete.
pub(super) fn tail(bytes: &[u8]) -> &[u8] {
    let near = bytes.len().min(MAX_LINE_DISTANCE_BYTES);
    if let Some(end) = memchr::memchr(b'\n', &bytes[..near]) {
        return &bytes[end + 1..];
    }
    let whole = bytes.iter().take(3).take_while(|&&byte| (0x80..0xc0).contains(&byte)).count();
    &bytes[whole..]
}

/// Length of the character that begins with this byte.
const fn length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_at_a_line_end_when_it_is_near() {
        let long = "x".repeat(2 * MAX_LINE_DISTANCE_BYTES);
        for (text, cut_head, cut_tail) in [
            ("one\ntwo\nth", "one\ntwo\n", "two\nth"),
            ("one\n", "one\n", ""),
            ("one", "one", "one"),
            ("", "", ""),
            (&format!("a\n{long}\nb"), &format!("a\n{long}\n"), &format!("{long}\nb")),
            (&format!("{long}\n{long}"), &format!("{long}\n{long}"), &format!("{long}\n{long}")),
        ] {
            assert_eq!(head(text.as_bytes()), cut_head.as_bytes(), "{text}");
            assert_eq!(tail(text.as_bytes()), cut_tail.as_bytes(), "{text}");
        }
    }

    #[test]
    fn cuts_between_characters() {
        for whole in ["aé", "a€", "a😀", "abc"] {
            let bytes = whole.as_bytes();
            assert_eq!(head(bytes), bytes, "{whole}");
            for end in 2..bytes.len() {
                let cut = if whole == "abc" { &bytes[..end] } else { b"a".as_slice() };
                assert_eq!(head(&bytes[..end]), cut, "{whole} at {end}");
            }
        }
        for whole in ["éa", "€a", "😀a"] {
            assert_eq!(tail(&whole.as_bytes()[1..]), b"a", "{whole}");
        }
        assert_eq!(head(b"a\xff\xff\xff\xff"), b"a\xff\xff\xff", "invalid text loses one byte at most");
    }
}
