//! Quoting for shell commands that are shown to the user.

/// `text` as a shell reads it as one word.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_only_when_a_shell_would_read_something_else() {
        for (text, word) in [
            ("/a/b-c.d", "/a/b-c.d"),
            ("--format=json", "--format=json"),
            ("/a b", "'/a b'"),
            ("/it's", r"'/it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }
}
