//! Arguments of a recipe: groups, placeholders, and words in braces that are not placeholders.

use std::fmt;

use serde::Deserialize;
use serde::de::Deserializer;

use crate::near::near;
use crate::vocabulary::named_enum;

named_enum! {
    /// Placeholder in an argument: a name in braces.
    pub enum Placeholder {
        Prompt = "prompt",
        Cwd = "cwd",
        Model = "model",
        Session = "session",
        MaxTurns = "max_turns",
        MaxTokens = "max_tokens",
        Tool = "tool",
        SystemFile = "system_file",
        Image = "image",
        Files = "files",
        Home = "home",
        Schema = "schema",
        SchemaFile = "schema_file",
    }
}

named_enum! {
    /// Placeholder that is a group by itself and stands for a list of arguments.
    pub(super) enum GroupPlaceholder {
        Permissions = "permissions",
        Extra = "extra",
    }
}

impl Placeholder {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|placeholder| placeholder.name() == name)
    }
}

impl GroupPlaceholder {
    /// Returns the placeholder that this group consists of.
    pub(super) fn of(group: &[String]) -> Option<Self> {
        let [only] = group else { return None };
        let name = only.strip_prefix('{')?.strip_suffix('}')?;
        Self::ALL.into_iter().find(|placeholder| placeholder.name() == name)
    }
}

/// Longer words in braces are not taken for placeholders.
const MAX_NAME_BYTES: usize = 24;

/// Word in braces that is not a placeholder. It is passed to the CLI unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPlaceholder {
    pub argument: String,
    /// Similar placeholders. If there are any, the word is a typo.
    pub near: Vec<String>,
}

impl fmt::Display for UnknownPlaceholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in the arguments is not a placeholder", self.argument)?;
        match self.near.as_slice() {
            [] => {
                let known: Vec<String> = Placeholder::NAMES.iter().map(|name| format!("{{{name}}}")).collect();
                write!(f, "; known: {}", known.join(", "))
            }
            near => write!(f, "; did you mean {{{}}}?", near.join("} or {")),
        }
    }
}

/// Returns the words in braces in these arguments that are not placeholders.
pub fn unknown_placeholders<'a>(args: impl IntoIterator<Item = &'a str>) -> Vec<UnknownPlaceholder> {
    args.into_iter().flat_map(words_in_braces).filter_map(unknown_placeholder).collect()
}

fn unknown_placeholder(word: &str) -> Option<UnknownPlaceholder> {
    let known = || Placeholder::NAMES.into_iter().chain(GroupPlaceholder::NAMES);
    let name = word.trim();
    if name == word && known().any(|known| known == word) {
        return None;
    }
    Some(UnknownPlaceholder { argument: format!("{{{word}}}"), near: near(name, known()) })
}

/// Returns the words in braces that could be names, unlike JSON or lists of a shell.
fn words_in_braces(arg: &str) -> Vec<&str> {
    let after = arg.split('{').skip(1);
    let words = after.filter_map(|rest| rest.split_once('}')).map(|(word, _)| word);
    let is_name = |word: &&str| {
        let name = word.trim();
        (2..=MAX_NAME_BYTES).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_' || c == '-')
    };
    words.filter(is_name).collect()
}

/// Whether an argument of these groups contains the placeholder.
pub(super) fn has_place(groups: &[Vec<String>], wanted: Placeholder) -> bool {
    groups.iter().flatten().any(|arg| placeholder(arg) == Some(wanted))
}

/// Returns the placeholder in the first `{…}` of an argument.
pub(super) fn placeholder(arg: &str) -> Option<Placeholder> {
    let (_, rest) = arg.split_once('{')?;
    let (name, _) = rest.split_once('}')?;
    Placeholder::from_name(name)
}

/// Whether an argument is nothing but this placeholder.
pub(super) fn is_alone(arg: &str, placeholder: Placeholder) -> bool {
    arg.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) == Some(placeholder.name())
}

/// Deserializes groups of arguments. An argument without brackets is a group by itself.
pub(super) fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<String>>, D::Error> {
    let written: Vec<ArgumentGroup> = Vec::deserialize(deserializer)?;
    Ok(written
        .into_iter()
        .map(|group| match group {
            ArgumentGroup::One(arg) => vec![arg],
            ArgumentGroup::Several(args) => args,
        })
        .collect())
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "each is an argument, or a list of arguments")]
enum ArgumentGroup {
    One(String),
    Several(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_placeholders_when_one_is_mistyped() {
        for (arg, words, close) in [
            ("{promt}", vec!["{promt}"], vec!["prompt"]),
            ("--ask={Prompt}", vec!["{Prompt}"], vec!["prompt"]),
            ("{ prompt }", vec!["{ prompt }"], vec!["prompt"]),
            ("{max-turns}", vec!["{max-turns}"], vec!["max_turns"]),
            ("{model}:{sesion}", vec!["{sesion}"], vec!["session"]),
            ("{branch}", vec!["{branch}"], vec![]),
            ("{prompt}", vec![], vec![]),
            ("{extra}", vec![], vec![]),
            (r#"{"agent":{"title":1}}"#, vec![], vec![]),
            ("{a,b}", vec![], vec![]),
            ("{}", vec![], vec![]),
            ("{x}", vec![], vec![]),
            ("a{b", vec![], vec![]),
        ] {
            let found = unknown_placeholders([arg]);
            assert_eq!(found.iter().map(|unknown| unknown.argument.as_str()).collect::<Vec<_>>(), words, "{arg}");
            assert_eq!(found.iter().flat_map(|unknown| unknown.near.clone()).collect::<Vec<_>>(), close, "{arg}");
        }
        assert!(unknown_placeholders(["{promt}"])[0].to_string().ends_with("did you mean {prompt}?"));
    }

    #[test]
    fn built_in_recipes_have_only_known_placeholders() {
        for (name, provider) in super::super::built_in() {
            assert_eq!(provider.no_placeholders(), [], "{name}");
        }
    }
}
