//! `trunkline discord`: the Discord bridge.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use trunkline_core::near::near;
use trunkline_core::turn::AnswerTiming;
use trunkline_discord::{
    Allow, BridgeError, BridgeShutdown, ChatBackend, ChatBackends, DiscordSettings, EngineBackend, Snowflake, Token,
    run as run_bridge,
};
use trunkline_engine::{Caps, Engine};

use crate::config::{ConfigError, DEFAULT_BACKEND, Environment, parse_span};
use crate::engine_args::EngineArgs;
use crate::setup::{LoadedConfig, runtime};
use crate::signals::StopSignals;

/// Answer on Discord: each channel, thread or direct message is a conversation with an agent
///
/// The agent is the CLI of AGENT_BACKEND (claude by default), or any model. It works in this folder.
#[derive(Debug, Args)]
#[command(after_help = "\
DISCORD_TOKEN holds the bot's token. Only allowed users, roles, channels and servers are answered. To copy an id, turn on
developer mode in Discord, then right click and choose Copy ID. In the environment, lists are separated by commas.

Example:
  DISCORD_TOKEN=… trunkline discord --allow-user 123456789012345678 --listen-channel 234567890123456789")]
pub(crate) struct DiscordArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Model that answers, one of `trunkline models` [default: the one of AGENT_BACKEND]
    #[arg(long, short, env = "TRUNKLINE_DISCORD_MODEL")]
    model: Option<String>,
    /// Server where mentions are answered; can be repeated, like the next four
    #[arg(long, value_name = "ID", env = "TRUNKLINE_DISCORD_ALLOW_GUILD", value_delimiter = ',')]
    allow_guild: Vec<Snowflake>,
    /// Channel, with its threads, where mentions are answered
    #[arg(long, value_name = "ID", env = "TRUNKLINE_DISCORD_ALLOW_CHANNEL", value_delimiter = ',')]
    allow_channel: Vec<Snowflake>,
    /// Role whose members are answered
    #[arg(long, value_name = "ID", env = "TRUNKLINE_DISCORD_ALLOW_ROLE", value_delimiter = ',')]
    allow_role: Vec<Snowflake>,
    /// User whose messages are answered, also direct messages
    #[arg(long, value_name = "ID", env = "TRUNKLINE_DISCORD_ALLOW_USER", value_delimiter = ',')]
    allow_user: Vec<Snowflake>,
    /// Channel, with its threads, where every message is answered, with or without a mention
    #[arg(long, value_name = "ID", env = "TRUNKLINE_DISCORD_LISTEN_CHANNEL", value_delimiter = ',')]
    listen_channel: Vec<Snowflake>,
    /// System prompt for the agent, instead of the built-in one about answering on Discord
    #[arg(long, value_name = "TEXT", env = "TRUNKLINE_DISCORD_SYSTEM_PROMPT")]
    system_prompt: Option<String>,
    /// Post each answer when it is complete, instead of editing a message as it grows; runs the CLI without streaming
    #[arg(long, env = "TRUNKLINE_DISCORD_AT_ONCE")]
    at_once: bool,
    /// Queue length of each channel, in messages
    #[arg(long, value_name = "N", env = "TRUNKLINE_DISCORD_QUEUE", default_value_t = 20)]
    queue: usize,
    /// Time limit of each answer [default: the model's own limit]
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_DISCORD_TIMEOUT", value_parser = parse_span)]
    timeout: Option<Duration>,
    /// Time for open answers to finish after a stop signal; unfinished ones are restarted at the next start
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_DRAIN", default_value = "30s", value_parser = parse_span)]
    drain: Duration,
    /// Address of Discord's REST API
    #[arg(long, value_name = "URL", env = "TRUNKLINE_DISCORD_API", hide = true)]
    discord_api: Option<String>,
    /// Address of Discord's gateway
    #[arg(long, value_name = "URL", env = "TRUNKLINE_DISCORD_GATEWAY", hide = true)]
    discord_gateway: Option<String>,
}

impl DiscordArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut environment = Environment::read()?;
        let allow = self.allow()?;
        let token = token(&environment)?;
        if self.model.is_none() && environment.variable("AGENT_BACKEND").is_none() {
            environment.env.retain(|(name, _)| name != "AGENT_BACKEND");
            environment.env.push(("AGENT_BACKEND".into(), DEFAULT_BACKEND.into()));
        }
        let loaded = LoadedConfig::within(environment, &self.engine_args)?;
        for warning in &loaded.config.warnings {
            tracing::warn!("{warning}");
        }
        runtime()?.block_on(self.serve(loaded, &token, allow))?;
        Ok(ExitCode::SUCCESS)
    }

    async fn serve(self, loaded: LoadedConfig, token: &Token, allow: Allow) -> Result<()> {
        let model = self.model(&loaded)?;
        let engine = loaded.engine(Caps::default(), None)?;
        let backends = self.backends(&engine, &model)?;
        let mut signals = StopSignals::listen()?;
        let _lock = lock(&loaded.state)?;
        engine.sweep().await;
        let store = engine.require_store(&loaded.state).await?;
        let settings = DiscordSettings::new(allow, loaded.state.clone());
        let settings = DiscordSettings {
            api: self.discord_api,
            gateway: self.discord_gateway,
            system_prompt: self.system_prompt.unwrap_or(settings.system_prompt),
            queue: self.queue.max(1),
            drain: self.drain,
            secrets: engine.secrets().clone(),
            shown: if self.at_once { AnswerTiming::AtTheEnd } else { AnswerTiming::AsItComes },
            ..settings
        };
        tracing::info!(model, "answering on Discord");
        let stop = BridgeShutdown::default();
        let outcome = tokio::select! {
            outcome = run_bridge(settings, token, backends, store.clone(), stop.clone()) => outcome,
            () = stop_on(&mut signals, &stop) => Ok(()),
            () = engine.give_back_memory() => Ok(()),
            () = engine.keep_sweeping() => Ok(()),
        };
        engine.shutdown().await;
        store.close().await;
        outcome.map_err(|error| with_hint(error).into())
    }

    fn allow(&self) -> Result<Allow, ConfigError> {
        let allow = Allow {
            guilds: self.allow_guild.clone(),
            channels: self.allow_channel.clone(),
            listen: self.listen_channel.clone(),
            roles: self.allow_role.clone(),
            users: self.allow_user.clone(),
        };
        if allow.is_empty() { Err(no_user_allowed()) } else { Ok(allow) }
    }

    /// The name of the model that answers.
    fn model(&self, loaded: &LoadedConfig) -> Result<String, ConfigError> {
        let models = &loaded.config.models;
        if let Some(model) = &self.model {
            if models.knows(model) {
                return Ok(model.clone());
            }
            let names = models.names();
            let near = near(model, names.iter().map(String::as_str));
            let hint = if near.is_empty() {
                "see: trunkline models".to_owned()
            } else {
                format!("did you mean {}?", near.join(" or "))
            };
            return Err(ConfigError::elsewhere(format!("unknown model {model:?}")).hint(hint));
        }
        let named = loaded.environment.variable("AGENT_BACKEND").unwrap_or(DEFAULT_BACKEND);
        let mut providers = loaded.config.providers.values();
        let provider = providers.find(|p| p.name == named || p.aliases.iter().any(|alias| alias == named));
        Ok(provider.map_or_else(|| named.to_owned(), |provider| provider.name.clone()))
    }

    /// Backends for the model that answers and for those that users can switch to. The first one must be valid.
    fn backends(&self, engine: &Engine, model: &str) -> Result<ChatBackends, ConfigError> {
        let backend = |name: String| EngineBackend::new(engine.clone(), name, self.timeout);
        let first = backend(model.to_owned());
        first.validate().map_err(|invalid| ConfigError::elsewhere(invalid.to_string()))?;
        let names = engine.models().names();
        let others = names.into_iter().map(|name| Arc::new(backend(name)) as Arc<dyn ChatBackend>);
        Ok(ChatBackends::new(Arc::new(first)).with(others))
    }
}

/// Locks the state folder: two bridges on one database would answer every message twice. The kernel releases the lock when
/// the process ends.
fn lock(state: &Path) -> Result<File> {
    let path = state.join("discord.lock");
    fs::create_dir_all(state).with_context(|| format!("cannot create {}", state.display()))?;
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let error =
                ConfigError::elsewhere(format!("another bridge runs with the state folder {}", state.display()));
            Err(error.hint("give each its own with --state").into())
        }
        // On a file system without locks, a second bridge cannot be detected.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// The first signal lets open answers finish, the second interrupts them. Never returns.
async fn stop_on(signals: &mut StopSignals, stop: &BridgeShutdown) {
    for (token, how) in [(&stop.gently, "; send the signal again to stop now"), (&stop.now, " now")] {
        signals.next().await;
        tracing::info!("stopping{how}");
        token.cancel();
    }
    std::future::pending().await
}

fn token(environment: &Environment) -> Result<Token, ConfigError> {
    let missing = || {
        ConfigError::elsewhere("DISCORD_TOKEN is not set").hint(
            "make a bot at https://discord.com/developers/applications: New Application, then Bot; turn on Message \
             Content Intent, copy its token into DISCORD_TOKEN, and invite it with the scopes bot and \
             applications.commands",
        )
    };
    environment
        .variable("DISCORD_TOKEN")
        .map(str::trim)
        .filter(|token| !token.is_empty())
        .map(Token::new)
        .ok_or_else(missing)
}

fn no_user_allowed() -> ConfigError {
    ConfigError::elsewhere("no user is allowed to talk to the agent, which can run commands on this machine").hint(
        "allow some: --allow-user, --allow-role, --allow-guild, --allow-channel or --listen-channel with an id, or \
         TRUNKLINE_DISCORD_ALLOW_USER and so on",
    )
}

/// The error with a hint on how to solve it.
fn with_hint(error: BridgeError) -> ConfigError {
    let hint = match &error {
        BridgeError::NoUserAllowed => return no_user_allowed(),
        BridgeError::Token => {
            "copy DISCORD_TOKEN again from the Bot page at https://discord.com/developers/applications"
        }
        BridgeError::Intents => {
            "turn on Message Content Intent on the Bot page at https://discord.com/developers/applications"
        }
        BridgeError::Tls(_) => "are the system's CA certificates installed?",
        BridgeError::Refused(_) => "see https://discord.com/developers/docs/topics/opcodes-and-status-codes",
    };
    ConfigError::elsewhere(error.to_string()).hint(hint)
}
