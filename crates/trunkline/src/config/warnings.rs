//! Warnings about models that are valid but will not run, or not as configured.

use trunkline_agent::tools::offered;
use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::{PLACEHOLDERS, Permissions, UnknownPlaceholder, unknown_placeholders};
use trunkline_engine::{ignored_options, locate};

use super::base_model::AGENT_FILE;
use super::environment::Environment;
use super::repository::no_worktree;

/// Subject of a warning: a model, or the model of a provider of the router.
#[derive(Debug, Clone, Copy)]
pub(super) enum WarningSubject {
    Model,
    Provider,
}

/// Warnings about a model: a folder, file or program that is missing, and options that its provider ignores.
pub(super) fn model_warnings(subject: WarningSubject, model: &Model, environment: &Environment) -> Vec<String> {
    let (what, name) = match subject {
        WarningSubject::Model => ("model", model.name.as_str()),
        WarningSubject::Provider => ("provider", model.backend.name()),
    };
    let mut warnings = Vec::new();
    if !model.repo.is_dir() {
        warnings.push(format!("{what} {name}: repoPath {} is not a folder", model.repo.display()));
    } else if let Some(file) = &model.agent_file
        && !model.repo.join(file).exists()
        && file != AGENT_FILE
    {
        warnings.push(format!("{what} {name}: agentFile {file} does not exist in {}", model.repo.display()));
    }
    if let Some((why, remedy)) = no_worktree_of(model) {
        warnings.push(format!("{what} {name}: worktree: {why} ({remedy})"));
    }
    if let Backend::Program(provider) = &model.backend
        && let Err(failure) = locate(provider, model.command.as_deref(), environment.search_path())
    {
        let hint = failure.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        warnings.push(format!("{what} {name}: {failure}{hint}"));
    }
    if let Backend::Agent(_) = &model.backend {
        let all = offered(Permissions::Full, &[]);
        for unknown in model.allowed_tools.iter().filter(|tool| !all.contains(&tool.as_str())) {
            warnings.push(format!(
                "{what} {name}: allowedTools: the agent has no tool {unknown:?}, only {}",
                all.join(", ")
            ));
        }
    }
    let ignored = ignored_options(model);
    if !ignored.is_empty() {
        warnings.push(format!("{what} {name}: {} cannot honour {}; ignored", model.backend.name(), ignored.join(", ")));
    }
    warnings
}

/// Reason why a model that wants a worktree cannot have one, and a remedy.
pub(crate) fn no_worktree_of(model: &Model) -> Option<(String, &'static str)> {
    if model.worktree && model.repo.is_dir() { no_worktree(&model.repo) } else { None }
}

/// Warnings about words in braces that are not placeholders, in a recipe's arguments and in those added to them. A word that
/// is close to a placeholder is an error.
pub(super) fn placeholder_warnings(
    of_recipe: Vec<UnknownPlaceholder>,
    added: &[String],
) -> Result<Vec<String>, UnknownPlaceholder> {
    let of_added = unknown_placeholders(added.iter().map(String::as_str));
    let (typos, odd): (Vec<_>, Vec<_>) = of_recipe.into_iter().chain(of_added).partition(|none| !none.near.is_empty());
    if let Some(typo) = typos.into_iter().next() {
        return Err(typo);
    }
    let filled = |arg: &&String| PLACEHOLDERS.iter().any(|name| arg.contains(&format!("{{{name}}}")));
    let unfilled = added.iter().filter(filled).map(|arg| {
        format!("{arg:?} in `args` is passed unchanged: placeholders are filled in only in a recipe's own arguments")
    });
    Ok(odd.iter().map(|none| format!("{none}; passed unchanged")).chain(unfilled).collect())
}
