//! What the bridge itself is told, and what it says to that.

use std::sync::Arc;

use super::{Bridge, Done};
use crate::allow::Speaker;
use crate::command::{Command, definitions};
use crate::rest::NewMessage;
use crate::shared::Shared;
use crate::snowflake::Snowflake;
use crate::wire;

impl Bridge {
    pub(super) async fn command(&mut self, channel: Snowflake, command: Command) -> String {
        let Shared { ledger, backends, .. } = &*self.shared;
        let desk = self.desks.get(&channel);
        let running = desk.and_then(|desk| desk.running.as_ref());
        match command {
            Command::New => {
                ledger.change_talk(channel, |talk| talk.anew(talk.model.clone())).await;
                "A new conversation begins here.".to_owned()
            }
            Command::Stop => match running {
                Some(running) => {
                    running.stop.cancel();
                    "Stopping.".to_owned()
                }
                None => "Nothing is being answered here.".to_owned(),
            },
            Command::Status => {
                let talk = ledger.talk(channel).await;
                let model = talk.model.as_deref().unwrap_or_else(|| backends.first().name());
                let session = talk.kept.session.map_or_else(|| "none yet".to_owned(), |session| format!("`{session}`"));
                let doing = running.map_or_else(
                    || "idle".to_owned(),
                    |running| format!("answering for {} s", running.since.elapsed().as_secs()),
                );
                let waiting = desk.map_or(0, |desk| desk.waiting.len());
                format!("Model: {model}\nSession: {session}\nNow: {doing}, {waiting} waiting")
            }
            Command::Model(None) => format!("Models: {}", listed(&backends.names())),
            Command::Model(Some(name)) => match backends.named(&name).map(|backend| backend.validate()) {
                Some(Ok(())) => {
                    ledger.change_talk(channel, |talk| talk.anew(Some(name.clone()))).await;
                    format!("{name} answers here from now on, in a new conversation.")
                }
                Some(Err(invalid)) => format!("{name} cannot be used: {}", invalid.why),
                None => format!("There is no model of that name. There are: {}", listed(&backends.names())),
            },
        }
    }

    pub(super) async fn interaction(&mut self, interaction: &wire::Interaction) {
        let user = interaction.member.as_ref().and_then(|member| member.user.as_ref()).or(interaction.user.as_ref());
        let (Some(user), Some(channel), Some(data)) = (user, interaction.channel_id, &interaction.data) else { return };
        let roles = interaction.member.as_ref().map(|member| member.roles.as_slice()).unwrap_or_default();
        let parent = self.places.get(&channel).and_then(|place| place.parent);
        let speaker = Speaker { user: user.id, roles, guild: interaction.guild_id, channel, parent };
        let argument = data.options.first().and_then(|option| option.value.as_str()).map(str::to_owned);
        let said = match Command::named(&data.name, argument) {
            _ if !self.shared.settings.allow.admits(&speaker) => "You may not use this here.".to_owned(),
            Some(command) => self.command(channel, command).await,
            None => "There is no such command.".to_owned(),
        };
        let (shared, id, key) = (Arc::clone(&self.shared), interaction.id, interaction.token.clone());
        self.start(Done::Said, async move {
            if let Err(error) = shared.rest.respond(id, &key, &said).await {
                tracing::warn!("{error}");
            }
            Done::Said
        });
    }

    pub(super) fn say(&mut self, channel: Snowflake, replies_to: Snowflake, content: String) {
        let shared = Arc::clone(&self.shared);
        self.start(Done::Said, async move {
            let nonce = format!("{replies_to}.0");
            let message =
                NewMessage { content: &content, file: None, replies_to: Some(replies_to), nonce: Some(&nonce) };
            if let Err(error) = shared.rest.post(channel, message).await {
                tracing::warn!("{error}");
            }
            Done::Said
        });
    }

    /// Tells a guild our commands, once.
    pub(super) fn register(&mut self, guild: Snowflake) {
        let Some(application) = self.application else { return };
        let guilds = &self.shared.settings.allow.guilds;
        if !(guilds.is_empty() || guilds.contains(&guild)) || !self.commanded.insert(guild) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.start(Done::Said, async move {
            if let Err(error) = shared.rest.set_commands(application, guild, definitions()).await {
                tracing::warn!(%guild, "{error}; messages such as /new still work");
            }
            Done::Said
        });
    }
}

/// Names, as many as fit into a message.
fn listed(names: &[&str]) -> String {
    names.join(", ").chars().take(1800).collect()
}
