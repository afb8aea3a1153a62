//! How a model would run, without running it: the exact command, folder, environment additions and prompt delivery.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;

use trunkline_core::failure::Failure;
use trunkline_core::model::{Model, Sandbox};
use trunkline_core::provider::{Placeholder, Provider, Values};
use trunkline_core::turn::Turn;
use trunkline_core::vocabulary::Normalize;
use trunkline_core::vocabulary::{CliPermissions, Permissions, PromptDelivery};

use crate::sandbox;

/// The command of a model, as `trunkline check` prints it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub program: Result<PathBuf, Failure>,
    pub args: Vec<String>,
    pub cwd: PathBuf,
    /// Variables added to the inherited environment.
    pub env: Vec<(OsString, OsString)>,
    pub delivery: PromptDelivery,
}

/// Folders that arguments of a recipe may refer to.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    /// Folder with the recipe's own files.
    pub(crate) files: Option<String>,
    /// Home folder of the user.
    pub(crate) home: Option<String>,
}

/// Values of a model for the placeholders of a recipe. `usual` is the sandbox setting of models that do not set it.
pub(crate) fn values<'a>(
    model: &'a Model,
    provider: &Provider,
    usual: Sandbox,
    prompt: &'a str,
    cwd: &'a str,
    folders: &'a Folders,
) -> Values<'a> {
    let takes = |placeholder| provider.has_placeholder(placeholder);
    Values {
        prompt,
        request: prompt,
        cwd,
        model: model.upstream.as_deref(),
        max_turns: model.max_turns.filter(|_| takes(Placeholder::MaxTurns)),
        max_tokens: model.max_tokens,
        tools: if takes(Placeholder::Tool) { &model.allowed_tools } else { &[] },
        permissions: sandbox::told(model, usual, provider),
        files: folders.files.as_deref(),
        home: folders.home.as_deref(),
        extra: &model.args,
        ..Values::default()
    }
}

/// The turn with the model's limit of the answer's length, if the client sets none.
pub(crate) fn bounded<'a>(turn: &'a Turn, model: &Model) -> Cow<'a, Turn> {
    match (turn.options.max_tokens, model.max_tokens) {
        (None, Some(own)) => {
            let mut turn = turn.clone();
            turn.options.max_tokens = Some(own.get());
            Cow::Owned(turn)
        }
        (Some(_), _) | (None, None) => Cow::Borrowed(turn),
    }
}

/// Settings that have no effect when no program is started.
fn of_no_program(model: &Model) -> Vec<&'static str> {
    let all = [
        ("command", model.command.is_some()),
        ("args", !model.args.is_empty()),
        ("normalize", model.normalize != Normalize::None),
        ("mcpServers", !model.mcp_servers.is_empty()),
        ("allowMcpServers", !model.allow_mcp_servers.is_empty()),
    ];
    all.into_iter().filter_map(|(name, ignored)| ignored.then_some(name)).collect()
}

/// Settings of a model that its provider cannot honour.
pub fn ignored(model: &Model) -> Vec<&'static str> {
    let Some(provider) = model.backend.program() else { return of_no_program(model) };
    let grants =
        [CliPermissions::Read, CliPermissions::Edit, CliPermissions::Full].map(|told| provider.permissions.of(told));
    let same_grants = grants.iter().all(|grant| grant.args.is_empty() && grant.env.is_empty());
    [
        ("maxTurns", model.max_turns.is_some() && !provider.has_placeholder(Placeholder::MaxTurns)),
        ("allowedTools", !model.allowed_tools.is_empty() && !provider.has_placeholder(Placeholder::Tool)),
        (
            "maxTokens",
            model.max_tokens.is_some()
                && !provider.has_placeholder(Placeholder::MaxTokens)
                && provider.prompt != PromptDelivery::Request,
        ),
        (
            "model",
            (model.upstream.is_some() || provider.default_model.is_some())
                && !provider.has_placeholder(Placeholder::Model)
                && provider.prompt != PromptDelivery::Request,
        ),
        ("permissions", model.permissions != Permissions::default() && same_grants),
        ("mcpServers", !model.mcp_servers.is_empty() && !provider.takes_tools()),
        ("allowMcpServers", !model.allow_mcp_servers.is_empty() && !provider.takes_tools()),
    ]
    .into_iter()
    .filter_map(|(name, ignored)| ignored.then_some(name))
    .collect()
}
