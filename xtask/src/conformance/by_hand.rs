//! A CLI started without the gateway, as a user starts it for one prompt: in the same folder, with the same permissions and
//! an equal home folder, against the same tap.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use trunkline_core::provider::{self, Told};

use super::context::CaseContext;
use crate::test::command;

/// Arguments of a CLI for one prompt on stdin.
pub(crate) struct ByHandArgs {
    pub(crate) before: &'static [&'static str],
    /// The flag that names the model.
    pub(crate) model: &'static str,
    pub(crate) after: &'static [&'static str],
}

/// Runs the CLI to its end.
pub(crate) fn ask(context: &CaseContext<'_>, permissions: Told, prompt: &str) -> Result<()> {
    let cli = context.world.cli;
    let model = cli.model(context.tap.address, &context.marker, &Value::Null);
    let recipe = provider::built_in().remove(cli.name).context("no recipe for this CLI")?;
    let grant = recipe.permissions.of(permissions);
    let texts = |name: &str| model[name].as_array().into_iter().flatten().filter_map(Value::as_str);
    let variables = model["env"].as_object().into_iter().flatten();
    let mut child = command(cli.name)
        .args(cli.by_hand.before)
        .args(&grant.args)
        .args([cli.by_hand.model, model["model"].as_str().context("a model without a name")?])
        .args(texts("args"))
        .args(cli.by_hand.after)
        .env_clear()
        .envs(context.world.by_hand.iter().cloned())
        .envs(variables.filter_map(|(name, value)| Some((name, value.as_str()?))))
        .envs(&grant.env)
        .current_dir(context.repo())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {} by hand", cli.name))?;
    child.stdin.take().context("stdin is not piped")?.write_all(prompt.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{} by hand: {}: {}", cli.name, output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
