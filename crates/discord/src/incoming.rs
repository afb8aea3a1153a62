//! Converts Discord's messages to prompts for an agent. Pure.

use serde::{Deserialize, Serialize};

use crate::allow::{Allow, Speaker};
use crate::snowflake::Snowflake;
use crate::wire::{Attachment, DiscordMessage};

/// A message to answer, in the form in which it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IncomingMessage {
    pub(crate) id: Snowflake,
    pub(crate) channel: Snowflake,
    #[serde(default)]
    pub(crate) guild: Option<Snowflake>,
    pub(crate) author: Snowflake,
    /// Text without the mention of the bot.
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) attachments: Vec<Attachment>,
}

/// Guild and parent channel of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChannelLocation {
    pub(crate) guild: Option<Snowflake>,
    /// Channel of a thread.
    pub(crate) parent: Option<Snowflake>,
}

/// Message types that people write: plain messages and replies. Other types report pins, calls and new members.
const USER_MESSAGE_TYPES: [u8; 2] = [0, 19];

/// Converts a message that is addressed to the bot by an allowed user. `None` for all others.
pub(crate) fn addressed_message(
    message: &DiscordMessage,
    me: Snowflake,
    location: ChannelLocation,
    allow: &Allow,
) -> Option<IncomingMessage> {
    if message.author.bot || message.author.id == me || message.webhook_id.is_some() {
        return None;
    }
    if !USER_MESSAGE_TYPES.contains(&message.kind) {
        return None;
    }
    let guild = message.guild_id.or(location.guild);
    let roles = message.member.as_ref().map(|member| member.roles.as_slice()).unwrap_or_default();
    let speaker =
        Speaker { user: message.author.id, roles, guild, channel: message.channel_id, parent: location.parent };
    let mentioned = message.mentions.iter().any(|user| user.id == me);
    if !allow.admits(&speaker) || !(guild.is_none() || mentioned || allow.listens(&speaker)) {
        return None;
    }
    let text = without_mention(&message.content, me);
    let quoted = message.referenced_message.as_deref().filter(|quoted| quoted.author.id != me);
    let text = quoted.map_or_else(|| text.clone(), |quoted| format!("{}{text}", quote(&quoted.content)));
    if text.trim().is_empty() && message.attachments.is_empty() {
        return None;
    }
    let (id, channel, author) = (message.id, message.channel_id, message.author.id);
    Some(IncomingMessage { id, channel, guild, author, text, attachments: message.attachments.clone() })
}

/// Quotes another user's message, which the agent has not seen.
fn quote(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
    if lines.is_empty() { String::new() } else { format!("{}\n\n", lines.join("\n")) }
}

fn without_mention(text: &str, me: Snowflake) -> String {
    let mut text = text.to_owned();
    for mention in [format!("<@{me}>"), format!("<@!{me}>")] {
        text = text.replace(&format!("{mention} "), "").replace(&mention, "");
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ME: Snowflake = Snowflake(1);

    fn text(change: serde_json::Value) -> Option<String> {
        let mut whole = json!({"id": "100", "channel_id": "20", "guild_id": "10", "author": {"id": "40"},
            "content": "<@1> hi", "mentions": [{"id": "1"}], "attachments": [], "type": 0});
        for (key, value) in change.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let allow = Allow { guilds: vec![Snowflake(10)], listen: vec![Snowflake(21)], ..Allow::default() };
        let allow = Allow { users: vec![Snowflake(40)], ..allow };
        let message = serde_json::from_value(whole).unwrap();
        addressed_message(&message, ME, ChannelLocation::default(), &allow).map(|incoming| incoming.text)
    }

    #[test]
    fn converts_only_messages_that_are_addressed_to_the_bot() {
        for (name, change, expected) in [
            ("a mention", json!({}), Some("hi")),
            ("a mention within", json!({"content": "so <@!1> hi"}), Some("so hi")),
            ("a reply to us", json!({"content": "and then?", "type": 19}), Some("and then?")),
            (
                "a reply to another",
                json!({"content": "<@1> why?", "type": 19, "referenced_message":
                    {"id": "99", "channel_id": "20", "author": {"id": "41"}, "content": "it fails\nhere"}}),
                Some("> it fails\n> here\n\nwhy?"),
            ),
            ("no mention", json!({"content": "hi", "mentions": []}), None),
            ("a mention of another user", json!({"content": "<@2> hi", "mentions": [{"id": "2"}]}), None),
            ("a listened channel", json!({"content": "hi", "mentions": [], "channel_id": "21"}), Some("hi")),
            ("a direct message", json!({"content": "hi", "mentions": [], "guild_id": null}), Some("hi")),
            ("a bot", json!({"author": {"id": "40", "bot": true}}), None),
            ("a webhook", json!({"webhook_id": "5"}), None),
            ("the bot itself", json!({"author": {"id": "1"}}), None),
            ("a pin", json!({"type": 6}), None),
            ("a stranger", json!({"author": {"id": "41"}}), None),
            ("only a mention", json!({"content": "<@1>"}), None),
            (
                "only a file",
                json!({"content": "<@1>", "attachments": [{"filename": "a", "size": 1, "url": "u"}]}),
                Some(""),
            ),
        ] {
            assert_eq!(text(change).as_deref(), expected, "{name}");
        }
    }
}
