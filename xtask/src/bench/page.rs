//! `docs/BENCHMARKS.md`: what is measured stands between two marks and is written by the bench; the rest is prose. Pure.

use anyhow::{Context, Result};

const BEGIN: &str = "<!-- written by: cargo xtask bench --write -->";
const END: &str = "<!-- end -->";

/// The page with this between its marks.
pub(crate) fn with(page: &str, measured: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("the page has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("the page has no {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", measured.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("# A\n\n{BEGIN}\nold\n{END}\n\nB\n");
        let new = with(&page, "new\n").unwrap();
        assert_eq!(new, format!("# A\n\n{BEGIN}\n\nnew\n\n{END}\n\nB\n"));
        assert_eq!(with(&new, "new").unwrap(), new, "twice is once");
        assert!(with("# A", "new").is_err());
    }
}
