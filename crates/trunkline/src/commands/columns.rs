//! Tables as aligned columns of text.

use unicode_width::UnicodeWidthStr;

/// Shortest prefix of an id that is shown: its time part, to the millisecond.
const MIN_ID_CHARS: usize = 13;

/// Rows with the columns `shown`, each as wide as its widest cell.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]], shown: &[usize]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let padded = |&column: &usize| row[column].clone() + &" ".repeat(widths[column] - row[column].width());
        shown.iter().map(padded).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The shortest prefix of `name` that is unique among `names`.
pub(super) fn short_name(names: &[&str], name: &str) -> String {
    let alone = |length: &usize| {
        let begins = |other: &&&str| name.get(..*length).is_some_and(|prefix| other.starts_with(prefix));
        names.iter().filter(begins).count() == 1
    };
    let length = (MIN_ID_CHARS..name.len()).find(alone).unwrap_or(name.len());
    name.get(..length).unwrap_or(name).to_owned()
}
