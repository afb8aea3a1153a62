//! `docs/BENCHMARKS.md`: the bench writes the results between two markers; the rest is prose. Pure functions.

use anyhow::{Context, Result};

const BEGIN: &str = "<!-- written by: cargo xtask bench --write -->";
const END: &str = "<!-- end -->";

/// Replaces the text between the markers.
pub(crate) fn with(page: &str, results: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("the page has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("the page has no {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", results.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_markers_changes() {
        let page = format!("# A\n\n{BEGIN}\nold\n{END}\n\nB\n");
        let new = with(&page, "new\n").unwrap();
        assert_eq!(new, format!("# A\n\n{BEGIN}\n\nnew\n\n{END}\n\nB\n"));
        assert_eq!(with(&new, "new").unwrap(), new, "a second write changes nothing");
        assert!(with("# A", "new").is_err());
    }
}
