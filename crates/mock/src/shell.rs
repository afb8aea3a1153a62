//! Shell commands and patches that do the work of our file tools, for clients without file tools. Nothing is run here.

/// Returns a command that prints a file.
pub(crate) fn read(path: &str) -> String {
    format!("cat {}", quoted(path))
}

/// Returns a command that writes a file exactly, and creates its folders.
pub(crate) fn write(path: &str, content: &str) -> String {
    let folder = match path.rsplit_once('/') {
        Some((folder, _)) if !folder.is_empty() => format!("mkdir -p {} && ", quoted(folder)),
        _ => String::new(),
    };
    format!("{folder}printf %s {} > {}", quoted(content), quoted(path))
}

/// Returns a command that replaces the only occurrence of a text. It uses awk, which is available wherever a shell is.
/// The `x` at the end protects trailing newlines, which command substitution would strip.
pub(crate) fn edit(path: &str, old: &str, new: &str) -> String {
    const REPLACE: &str = r#"{ text = text $0 "\n" }
END { old = ENVIRON["OLD"]; at = index(text, old); rest = substr(text, at + length(old))
if (!at || index(rest, old)) { print (at ? "not unique" : "not found") > "/dev/stderr"; exit 1 }
printf "%sx", substr(text, 1, at - 1) ENVIRON["NEW"] rest }"#;
    format!(
        "edited=$(OLD={} NEW={} awk {} {path}) && printf %s \"${{edited%x}}\" > {path}",
        quoted(old),
        quoted(new),
        quoted(REPLACE),
        path = quoted(path)
    )
}

/// Returns a patch that adds a file; `None` if the patch format cannot represent the content exactly.
pub(crate) fn add_file_patch(path: &str, content: &str) -> Option<String> {
    let lines = content.strip_suffix('\n')?;
    if content.contains('\r') || path.contains('\n') {
        return None;
    }
    let added: String = lines.split('\n').map(|line| format!("+{line}\n")).collect();
    Some(format!("*** Begin Patch\n*** Add File: {path}\n{added}*** End Patch\n"))
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const ODD: &str = "it's \"odd\" $HOME `x` \\n %s\n\tGröße 漢字 && exit 7";

    /// Runs a command as a client would. Returns whether it succeeded, and its output.
    #[expect(clippy::disallowed_methods, reason = "the commands are tested in a real shell")]
    fn sh(folder: &Path, command: &str) -> (bool, String) {
        let output = std::process::Command::new("sh").args(["-c", command]).current_dir(folder).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn written_files_are_read_back_exactly() {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in [("a.txt", ODD), ("deep/er/it's.txt", "x\n\n"), ("empty", ""), ("-n", "--")] {
            let path = if path == "-n" { "./-n" } else { path };
            assert!(sh(folder.path(), &write(path, content)).0, "{path}");
            assert_eq!(fs::read_to_string(folder.path().join(path)).unwrap(), content);
            assert_eq!(sh(folder.path(), &read(path)), (true, content.to_owned()));
        }
    }

    #[test]
    fn edit_replaces_the_only_occurrence_and_fails_when_not_unique() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it's.txt");
        for (before, old, new, after) in [
            ("The answer is 41.\n", "41", "42", Some("The answer is 42.\n")),
            ("a\nb\nc\n\n", "a\nb", "x\ny", Some("x\ny\nc\n\n")),
            ("one\n", "one\n", "", Some("")),
            ("x = 1\n", "1", ODD, Some(&format!("x = {ODD}\n"))),
            (&format!("<{ODD}>\n"), ODD, "plain", Some("<plain>\n")),
            ("a a\n", "a", "b", None),
            ("a\n", "z", "b", None),
            ("a\n", "", "b", None),
        ] {
            fs::write(&file, before).unwrap();
            let (ok, _) = sh(folder.path(), &edit("it's.txt", old, new));
            assert_eq!(ok, after.is_some(), "{before:?} {old:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), after.unwrap_or(before), "{before:?} {old:?}");
        }
    }

    #[test]
    fn patch_is_none_when_content_cannot_be_represented() {
        let patch = "*** Begin Patch\n*** Add File: a\n+x\n+\n+y\n*** End Patch\n";
        for (content, expected) in
            [("x\n\ny\n", Some(patch.to_owned())), ("x", None), ("", None), ("x\r\n", None), ("x\ny", None)]
        {
            assert_eq!(add_file_patch("a", content), expected, "{content:?}");
        }
    }
}
