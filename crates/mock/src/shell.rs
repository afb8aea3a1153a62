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
