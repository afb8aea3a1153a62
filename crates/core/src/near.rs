//! "Did you mean" suggestions for an unknown name.

/// Longer names get no suggestions.
const MAX_NAME_BYTES: usize = 256;

/// Returns up to three of the `known` names that are close to `name`, the closest first.
pub fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    // A comparison takes time proportional to the product of both lengths, and `name` may come from a client.
    if name.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let name = name.to_lowercase();
    let mut scored: Vec<(usize, &str)> = known
        .into_iter()
        .map(|candidate| (distance(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count().max(name.chars().count()) / 3)
        .collect();
    scored.sort();
    // Next to a close name, a distant one only confuses.
    let best = scored.first().map_or(0, |(distance, _)| *distance);
    scored.retain(|(distance, _)| *distance <= best + 1);
    scored.into_iter().take(3).map(|(_, candidate)| candidate.to_owned()).collect()
}

/// Returns a suggestion for serde's ``unknown field `x`, expected one of `a`, `b` ``.
#[must_use]
pub fn did_you_mean(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next().filter(|_| message.starts_with("unknown "))?;
    let known: Vec<&str> = quoted.collect();
    let near = near(unknown, known.iter().copied());
    (!near.is_empty()).then(|| format!("did you mean `{}`?", near.join("` or `")))
}

/// Number of edits between two names. A name that is a prefix of the other counts as one edit away.
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
    fn suggests_names_for_typos_and_prefixes() {
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
