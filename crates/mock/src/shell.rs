//! What our file tools do, for clients that have only a shell or a patch tool. Nothing is run here.

/// Prints a file.
pub(crate) fn read(path: &str) -> String {
    format!("cat {}", quoted(path))
}

/// Writes a file, byte for byte, with its folders.
pub(crate) fn write(path: &str, content: &str) -> String {
    let folder = match path.rsplit_once('/') {
        Some((folder, _)) if !folder.is_empty() => format!("mkdir -p {} && ", quoted(folder)),
        _ => String::new(),
    };
    format!("{folder}printf %s {} > {}", quoted(content), quoted(path))
}

/// Replaces the only occurrence of a text. awk, because it is wherever a shell is; the `x` keeps newlines at the end, which
/// a substitution would eat.
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

/// A patch that adds a file; `None` where its lines could not say the content exactly.
pub(crate) fn patch_that_adds(path: &str, content: &str) -> Option<String> {
    let lines = content.strip_suffix('\n')?;
    if content.contains('\r') || path.contains('\n') {
        return None;
    }
    let added: String = lines.split('\n').map(|line| format!("+{line}\n")).collect();
    Some(format!("*** Begin Patch\n*** Add File: {path}\n{added}*** End Patch\n"))
}

/// One word for a shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const ODD: &str = "it's \"odd\" $HOME `x` \\n %s\n\tGröße 漢字 && exit 7";

    /// Runs a command as a client would.
    #[expect(clippy::disallowed_methods, reason = "what a shell makes of these commands is what is tested")]
    fn sh(folder: &Path, command: &str) -> (bool, String) {
        let output = std::process::Command::new("sh").args(["-c", command]).current_dir(folder).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn what_is_written_is_read_byte_for_byte() {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in [("a.txt", ODD), ("deep/er/it's.txt", "x\n\n"), ("empty", ""), ("-n", "--")] {
            let path = if path == "-n" { "./-n" } else { path };
            assert!(sh(folder.path(), &write(path, content)).0, "{path}");
            assert_eq!(fs::read_to_string(folder.path().join(path)).unwrap(), content);
            assert_eq!(sh(folder.path(), &read(path)), (true, content.to_owned()));
        }
    }

    #[test]
    fn an_edit_replaces_the_only_occurrence_or_nothing() {
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
    fn a_patch_says_it_exactly_or_not_at_all() {
        let patch = "*** Begin Patch\n*** Add File: a\n+x\n+\n+y\n*** End Patch\n";
        for (content, expected) in
            [("x\n\ny\n", Some(patch.to_owned())), ("x", None), ("", None), ("x\r\n", None), ("x\ny", None)]
        {
            assert_eq!(patch_that_adds("a", content), expected, "{content:?}");
        }
    }
}
