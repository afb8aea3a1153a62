//! "Did you mean": the names closest to one that nobody knows.

/// Nobody mistypes a name as long as this.
const LONGEST: usize = 256;

/// At most three of `known`, best first, that are close enough to `name` to be what was meant.
pub fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    // Comparing takes the product of both lengths, and a name may be anything a stranger sent.
    if name.len() > LONGEST {
        return Vec::new();
    }
    let name = name.to_lowercase();
    let mut scored: Vec<(usize, &str)> = known
        .into_iter()
        .map(|candidate| (distance(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count().max(name.chars().count()) / 3)
        .collect();
    scored.sort();
    // Beside a close one, a distant one is only confusing.
    let best = scored.first().map_or(0, |(distance, _)| *distance);
    scored.retain(|(distance, _)| *distance <= best + 1);
    scored.into_iter().take(3).map(|(_, candidate)| candidate.to_owned()).collect()
}

/// A suggestion for serde's ``unknown field `x`, expected one of `a`, `b` ``.
#[must_use]
pub fn did_you_mean(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next().filter(|_| message.starts_with("unknown "))?;
    let known: Vec<&str> = quoted.collect();
    let near = near(unknown, known.iter().copied());
    (!near.is_empty()).then(|| format!("did you mean `{}`?", near.join("` or `")))
}

/// Edits between two names; one that begins with the other is close however much longer it is.
fn distance(name: &str, candidate: &str) -> usize {
    if !name.is_empty() && (candidate.starts_with(name) || name.starts_with(candidate)) {
        return 1;
    }
    strsim::damerau_levenshtein(name, candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_and_beginnings() {
        let known = ["repoPath", "agentFile", "worktree", "keepWorktree", "driver"];
        for (name, expected) in [
            ("repopath", vec!["repoPath"]),
            ("wroktree", vec!["worktree"]),
            ("agent", vec!["agentFile"]),
            ("zzz", vec![]),
            (&"driver".repeat(100_000), vec![]),
        ] {
            assert_eq!(near(name, known), expected, "{name}");
        }
    }
}
