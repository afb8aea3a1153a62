//! What Discord says, as far as we read it. Everything else passes unread: Discord adds fields as it likes.

use serde::Deserialize;
use serde_json::Value;

use crate::snowflake::Snowflake;

/// A message, from the gateway or from a channel's history. History does not tell guild and member.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: Snowflake,
    pub(crate) channel_id: Snowflake,
    #[serde(default)]
    pub(crate) guild_id: Option<Snowflake>,
    pub(crate) author: User,
    #[serde(default)]
    pub(crate) member: Option<Member>,
    #[serde(default)]
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) mentions: Vec<User>,
    #[serde(default)]
    pub(crate) attachments: Vec<Attachment>,
    #[serde(default)]
    pub(crate) webhook_id: Option<Snowflake>,
    #[serde(default)]
    pub(crate) message_reference: Option<Reference>,
    /// What it replies to.
    #[serde(default)]
    pub(crate) referenced_message: Option<Box<Message>>,
    #[serde(default, rename = "type")]
    pub(crate) kind: u8,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct User {
    pub(crate) id: Snowflake,
    #[serde(default)]
    pub(crate) bot: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Member {
    #[serde(default)]
    pub(crate) roles: Vec<Snowflake>,
    /// Only where a member stands for its user.
    #[serde(default)]
    pub(crate) user: Option<User>,
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
pub(crate) struct Reference {
    #[serde(default)]
    pub(crate) message_id: Option<Snowflake>,
}

/// A channel or a thread.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Channel {
    pub(crate) id: Snowflake,
    #[serde(default)]
    pub(crate) guild_id: Option<Snowflake>,
    /// Of a thread: its channel. Of a channel: its category.
    #[serde(default)]
    pub(crate) parent_id: Option<Snowflake>,
    #[serde(default, rename = "type")]
    pub(crate) kind: u8,
}

impl Channel {
    /// The channel a thread belongs to.
    pub(crate) fn thread_of(&self) -> Option<Snowflake> {
        self.parent_id.filter(|_| matches!(self.kind, 10..=12))
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Ready {
    pub(crate) user: User,
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

/// A slash command that somebody used.
#[derive(Debug, Deserialize)]
pub(crate) struct Interaction {
    pub(crate) id: Snowflake,
    /// Allows one answer; not ours to show.
    pub(crate) token: String,
    #[serde(default)]
    pub(crate) channel_id: Option<Snowflake>,
    #[serde(default)]
    pub(crate) guild_id: Option<Snowflake>,
    #[serde(default)]
    pub(crate) member: Option<Member>,
    /// In a direct message, where nobody is a member.
    #[serde(default)]
    pub(crate) user: Option<User>,
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
