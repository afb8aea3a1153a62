//! Execution of commands to the bridge.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Bridge, BridgeTaskResult};
use crate::allow::Speaker;
use crate::channel_state::{Arrival, ChannelState};
use crate::command::{BridgeCommand, definitions};
use crate::incoming::IncomingMessage;
use crate::rest::NewMessage;
use crate::shared::BridgeShared;
use crate::snowflake::Snowflake;
use crate::wire;

/// Activity in a channel, as commands report it.
#[derive(Default)]
pub(super) struct ChannelActivity {
    running: Option<(CancellationToken, Instant)>,
    waiting: usize,
}

impl BridgeShared {
    /// Executes a command and returns the response. `None` if the bridge shuts down.
    pub(super) async fn execute(
        &self,
        channel: Snowflake,
        command: BridgeCommand,
        activity: &ChannelActivity,
    ) -> Option<String> {
        let Self { store, backends, .. } = self;
        Some(match command {
            BridgeCommand::New => {
                store
                    .update_conversation(channel, |conversation| conversation.reset(conversation.model.clone()))
                    .await?;
                "A new conversation starts here.".to_owned()
            }
            BridgeCommand::Stop => match &activity.running {
                Some((stop, _)) => {
                    stop.cancel();
                    "Stopping.".to_owned()
                }
                None => "Nothing is being answered here.".to_owned(),
            },
            BridgeCommand::Status => {
                let conversation = store.conversation(channel).await?;
                let model = conversation.model.as_deref().unwrap_or_else(|| backends.first().name());
                let session = conversation.stored.session;
                let session = session.map_or_else(|| "none yet".to_owned(), |session| format!("`{session}`"));
                let now = activity.running.as_ref().map_or_else(
                    || "idle".to_owned(),
                    |(_, since)| format!("answering for {} s", since.elapsed().as_secs()),
                );
                format!("Model: {model}\nSession: {session}\nNow: {now}, {} waiting", activity.waiting)
            }
            BridgeCommand::Model(None) => format!("Models: {}", listed(&backends.names())),
            BridgeCommand::Model(Some(name)) => match backends.named(&name).map(|backend| backend.validate()) {
                Some(Ok(())) => {
                    store.update_conversation(channel, |conversation| conversation.reset(Some(name.clone()))).await?;
                    format!("{name} answers here from now on, in a new conversation.")
                }
                Some(Err(invalid)) => format!("{name} cannot be used: {}", invalid.why),
                None => format!("There is no model of that name. Models: {}", listed(&backends.names())),
            },
        })
    }

    /// Executes a command that was sent as a message, and replies to it.
    pub(super) async fn execute_message(
        &self,
        incoming: &IncomingMessage,
        command: BridgeCommand,
        activity: &ChannelActivity,
    ) {
        if let Some(response) = self.execute(incoming.channel, command, activity).await
            && self.store.mark_answered(incoming.id, "command").await.is_some()
        {
            self.reply(incoming.channel, incoming.id, &response).await;
        }
    }

    pub(super) async fn respond(&self, interaction: Snowflake, key: &str, response: &str) {
        if let Err(error) = self.rest.respond(interaction, key, response).await {
            tracing::warn!("{error}");
        }
    }

    pub(super) async fn reply(&self, channel: Snowflake, replies_to: Snowflake, content: &str) {
        let nonce = format!("{replies_to}.0");
        let message = NewMessage { content, file: None, replies_to: Some(replies_to), nonce: Some(&nonce) };
        if let Err(error) = self.rest.post(channel, message).await {
            tracing::warn!("{error}");
        }
    }
}

impl Bridge {
    pub(super) fn activity(&self, channel: Snowflake) -> ChannelActivity {
        let state = self.channels.get(&channel);
        let running = state.and_then(|state| state.running.as_ref());
        ChannelActivity {
            running: running.map(|running| (running.stop.clone(), running.since)),
            waiting: state.map_or(0, ChannelState::waiting),
        }
    }

    pub(super) fn interaction(&mut self, interaction: &wire::Interaction) {
        let user = interaction.member.as_ref().and_then(|member| member.user.as_ref()).or(interaction.user.as_ref());
        let (Some(user), Some(channel), Some(data)) = (user, interaction.channel_id, &interaction.data) else { return };
        let roles = interaction.member.as_ref().map(|member| member.roles.as_slice()).unwrap_or_default();
        let parent = self.locations.get(&channel).and_then(|location| location.parent);
        let speaker = Speaker { user: user.id, roles, guild: interaction.guild_id, channel, parent };
        let argument = data.options.first().and_then(|option| option.value.as_str()).map(str::to_owned);
        let (id, key) = (interaction.id, interaction.token.clone());
        let response = match BridgeCommand::named(&data.name, argument) {
            _ if !self.shared.settings.allow.admits(&speaker) => "You may not use this here.".to_owned(),
            // These change the conversation, so that they are executed in order with messages.
            Some(command @ (BridgeCommand::New | BridgeCommand::Model(Some(_)))) => {
                return self.enqueue(channel, Arrival::Interaction { id, key, command });
            }
            Some(command @ (BridgeCommand::Stop | BridgeCommand::Status | BridgeCommand::Model(None))) => {
                let (shared, activity) = (Arc::clone(&self.shared), self.activity(channel));
                return self.spawn(BridgeTaskResult::Responded, async move {
                    if let Some(response) = shared.execute(channel, command, &activity).await {
                        shared.respond(id, &key, &response).await;
                    }
                    BridgeTaskResult::Responded
                });
            }
            None => "There is no such command.".to_owned(),
        };
        let shared = Arc::clone(&self.shared);
        self.spawn(BridgeTaskResult::Responded, async move {
            shared.respond(id, &key, &response).await;
            BridgeTaskResult::Responded
        });
    }

    /// Registers the commands in a guild, once.
    pub(super) fn register(&mut self, guild: Snowflake) {
        let Some(application) = self.application else { return };
        let guilds = &self.shared.settings.allow.guilds;
        if !(guilds.is_empty() || guilds.contains(&guild)) || !self.guilds_with_commands.insert(guild) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn(BridgeTaskResult::Responded, async move {
            if let Err(error) = shared.rest.set_commands(application, guild, definitions()).await {
                tracing::warn!(%guild, "{error}; messages such as /new still work");
            }
            BridgeTaskResult::Responded
        });
    }
}

/// Names as a list that fits into a message.
fn listed(names: &[&str]) -> String {
    names.join(", ").chars().take(1800).collect()
}
