//! What the bridge itself is told, and what it says to that.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Bridge, Done};
use crate::allow::Speaker;
use crate::command::{Command, definitions};
use crate::desk::{Arrival, Desk};
use crate::incoming::Incoming;
use crate::rest::NewMessage;
use crate::shared::Shared;
use crate::snowflake::Snowflake;
use crate::wire;

/// What goes on in a channel, as a command sees it.
#[derive(Default)]
pub(super) struct Doing {
    running: Option<(CancellationToken, Instant)>,
    waiting: usize,
}

impl Shared {
    /// Does as it is told, and what to say to that; none if we are to end.
    pub(super) async fn obey(&self, channel: Snowflake, command: Command, doing: &Doing) -> Option<String> {
        let Self { ledger, backends, .. } = self;
        Some(match command {
            Command::New => {
                ledger.change_talk(channel, |talk| talk.anew(talk.model.clone())).await?;
                "A new conversation begins here.".to_owned()
            }
            Command::Stop => match &doing.running {
                Some((stop, _)) => {
                    stop.cancel();
                    "Stopping.".to_owned()
                }
                None => "Nothing is being answered here.".to_owned(),
            },
            Command::Status => {
                let talk = ledger.talk(channel).await?;
                let model = talk.model.as_deref().unwrap_or_else(|| backends.first().name());
                let session = talk.kept.session.map_or_else(|| "none yet".to_owned(), |session| format!("`{session}`"));
                let now = doing.running.as_ref().map_or_else(
                    || "idle".to_owned(),
                    |(_, since)| format!("answering for {} s", since.elapsed().as_secs()),
                );
                format!("Model: {model}\nSession: {session}\nNow: {now}, {} waiting", doing.waiting)
            }
            Command::Model(None) => format!("Models: {}", listed(&backends.names())),
            Command::Model(Some(name)) => match backends.named(&name).map(|backend| backend.validate()) {
                Some(Ok(())) => {
                    ledger.change_talk(channel, |talk| talk.anew(Some(name.clone()))).await?;
                    format!("{name} answers here from now on, in a new conversation.")
                }
                Some(Err(invalid)) => format!("{name} cannot be used: {}", invalid.why),
                None => format!("There is no model of that name. There are: {}", listed(&backends.names())),
            },
        })
    }

    /// The same for a message that is a command, and says so.
    pub(super) async fn obey_message(&self, incoming: &Incoming, command: Command, doing: &Doing) {
        if let Some(said) = self.obey(incoming.channel, command, doing).await
            && self.ledger.answered(incoming.id, "command").await.is_some()
        {
            self.say(incoming.channel, incoming.id, &said).await;
        }
    }

    pub(super) async fn respond(&self, interaction: Snowflake, key: &str, said: &str) {
        if let Err(error) = self.rest.respond(interaction, key, said).await {
            tracing::warn!("{error}");
        }
    }

    pub(super) async fn say(&self, channel: Snowflake, replies_to: Snowflake, content: &str) {
        let nonce = format!("{replies_to}.0");
        let message = NewMessage { content, file: None, replies_to: Some(replies_to), nonce: Some(&nonce) };
        if let Err(error) = self.rest.post(channel, message).await {
            tracing::warn!("{error}");
        }
    }
}

impl Bridge {
    pub(super) fn doing(&self, channel: Snowflake) -> Doing {
        let desk = self.desks.get(&channel);
        let running = desk.and_then(|desk| desk.running.as_ref());
        Doing {
            running: running.map(|running| (running.stop.clone(), running.since)),
            waiting: desk.map_or(0, Desk::behind),
        }
    }

    pub(super) fn interaction(&mut self, interaction: &wire::Interaction) {
        let user = interaction.member.as_ref().and_then(|member| member.user.as_ref()).or(interaction.user.as_ref());
        let (Some(user), Some(channel), Some(data)) = (user, interaction.channel_id, &interaction.data) else { return };
        let roles = interaction.member.as_ref().map(|member| member.roles.as_slice()).unwrap_or_default();
        let parent = self.places.get(&channel).and_then(|place| place.parent);
        let speaker = Speaker { user: user.id, roles, guild: interaction.guild_id, channel, parent };
        let argument = data.options.first().and_then(|option| option.value.as_str()).map(str::to_owned);
        let (id, key) = (interaction.id, interaction.token.clone());
        let said = match Command::named(&data.name, argument) {
            _ if !self.shared.settings.allow.admits(&speaker) => "You may not use this here.".to_owned(),
            // They change what is said next: in their order.
            Some(command @ (Command::New | Command::Model(Some(_)))) => {
                return self.arrive(channel, Arrival::Interaction { id, key, command });
            }
            Some(command @ (Command::Stop | Command::Status | Command::Model(None))) => {
                let (shared, doing) = (Arc::clone(&self.shared), self.doing(channel));
                return self.start(Done::Said, async move {
                    if let Some(said) = shared.obey(channel, command, &doing).await {
                        shared.respond(id, &key, &said).await;
                    }
                    Done::Said
                });
            }
            None => "There is no such command.".to_owned(),
        };
        let shared = Arc::clone(&self.shared);
        self.start(Done::Said, async move {
            shared.respond(id, &key, &said).await;
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
