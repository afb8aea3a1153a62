//! Objects of Discord's API, as far as the bridge reads them. Unknown fields are ignored, because Discord adds new ones.

use serde::Deserialize;
use serde_json::Value;

use crate::snowflake::Snowflake;

/// A message from the gateway or from a channel's history. In the history `guild_id` and `member` are missing.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DiscordMessage {
    pub(crate) id: Snowflake,
    pub(crate) channel_id: Snowflake,
    #[serde(default)]
    pub(crate) guild_id: Option<Snowflake>,
    pub(crate) author: DiscordUser,
    #[serde(default)]
    pub(crate) member: Option<GuildMember>,
    #[serde(default)]
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) mentions: Vec<DiscordUser>,
    #[serde(default)]
    pub(crate) attachments: Vec<Attachment>,
    #[serde(default)]
    pub(crate) webhook_id: Option<Snowflake>,
    #[serde(default)]
    pub(crate) message_reference: Option<MessageReference>,
    /// The message that this one replies to.
    #[serde(default)]
    pub(crate) referenced_message: Option<Box<DiscordMessage>>,
    #[serde(default, rename = "type")]
    pub(crate) kind: u8,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DiscordUser {
    pub(crate) id: Snowflake,
    #[serde(default)]
    pub(crate) bot: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct GuildMember {
    #[serde(default)]
    pub(crate) roles: Vec<Snowflake>,
    /// Present in interactions.
    #[serde(default)]
    pub(crate) user: Option<DiscordUser>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
pub(crate) struct Attachment {
    pub(crate) filename: String,
    pub(crate) size: u64,
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) content_type: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MessageReference {
    #[serde(default)]
    pub(crate) message_id: Option<Snowflake>,
}

/// A channel or a thread.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Channel {
    pub(crate) id: Snowflake,
    #[serde(default)]
    pub(crate) guild_id: Option<Snowflake>,
    /// Channel of a thread, or category of a channel.
    #[serde(default)]
    pub(crate) parent_id: Option<Snowflake>,
    #[serde(default, rename = "type")]
    pub(crate) kind: u8,
}

impl Channel {
    /// Channel of a thread; `None` for other channels.
    pub(crate) fn thread_of(&self) -> Option<Snowflake> {
        self.parent_id.filter(|_| matches!(self.kind, 10..=12))
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReadyEvent {
    pub(crate) user: DiscordUser,
    pub(crate) application: Application,
    #[serde(default)]
    pub(crate) guilds: Vec<Guild>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Application {
    pub(crate) id: Snowflake,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Guild {
    pub(crate) id: Snowflake,
    #[serde(default)]
    pub(crate) threads: Vec<Channel>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ThreadList {
    pub(crate) guild_id: Snowflake,
    #[serde(default)]
    pub(crate) threads: Vec<Channel>,
}

/// Use of a slash command.
#[derive(Debug, Deserialize)]
pub(crate) struct Interaction {
    pub(crate) id: Snowflake,
    /// Secret that allows one response.
    pub(crate) token: String,
    #[serde(default)]
    pub(crate) channel_id: Option<Snowflake>,
    #[serde(default)]
    pub(crate) guild_id: Option<Snowflake>,
    #[serde(default)]
    pub(crate) member: Option<GuildMember>,
    /// Present in direct messages, where `member` is missing.
    #[serde(default)]
    pub(crate) user: Option<DiscordUser>,
    #[serde(default)]
    pub(crate) data: Option<CommandData>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CommandData {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) options: Vec<CommandOption>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CommandOption {
    #[serde(default)]
    pub(crate) value: Value,
}
