//! Reads messages that were sent to a channel while the bridge was not connected.

use std::collections::HashMap;

use crate::allow::Speaker;
use crate::incoming::{ChannelLocation, IncomingMessage, addressed_message};
use crate::shared::{BridgeShared, Undelivered};
use crate::snowflake::Snowflake;
use crate::wire::{DiscordMessage, GuildMember};

/// Pages of a hundred messages that are read. Later messages are missed.
const MAX_PAGES: usize = 50;

/// Result of reading a channel's history.
#[derive(Debug, Default)]
pub(crate) struct MissedMessages {
    pub(crate) location: Option<ChannelLocation>,
    /// Messages for the bot, oldest first.
    pub(crate) messages: Vec<IncomingMessage>,
    /// Last message that was read.
    pub(crate) read: Option<Snowflake>,
}

/// Reads the messages after the cursor. A channel without a cursor gets one at its latest message.
pub(crate) async fn catch_up(shared: &BridgeShared, channel: Snowflake) -> MissedMessages {
    let mut missed = MissedMessages::default();
    match read(shared, channel, &mut missed).await {
        Ok(()) | Err(Undelivered::Interrupted) => {}
        Err(Undelivered::Refused(error)) => tracing::warn!(%channel, "cannot catch up: {error}"),
    }
    missed
}

async fn read(shared: &BridgeShared, channel: Snowflake, missed: &mut MissedMessages) -> Result<(), Undelivered> {
    let found = shared.retry(|| shared.rest.channel(channel)).await?;
    let location = ChannelLocation { guild: found.guild_id, parent: found.thread_of() };
    missed.location = Some(location);
    let Some(cursor) = shared.store.cursor(channel).await.ok_or(Undelivered::Interrupted)? else {
        let latest = shared.retry(|| shared.rest.messages(channel, None)).await?;
        if let Some(latest) = latest.last() {
            // Saved at once, so that later messages are read even if the process ends now.
            shared.store.set_cursor(channel, latest.id).await.ok_or(Undelivered::Interrupted)?;
        }
        return Ok(());
    };
    let (mut members, mut after) = (HashMap::new(), cursor);
    for _page in 0..MAX_PAGES {
        let page = shared.retry(|| shared.rest.messages(channel, Some(after))).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.id;
        for mut message in page {
            message.member = member(shared, &message, location, &mut members).await?;
            let Some(me) = shared.me.get() else { continue };
            missed.messages.extend(addressed_message(&message, *me, location, &shared.settings.allow));
        }
        missed.read = Some(after);
    }
    tracing::warn!(%channel, "too many messages while disconnected; only the oldest were read");
    Ok(())
}

/// Whether a message that an earlier process recorded is still allowed. The allow lists may have changed.
pub(crate) async fn is_still_admitted(
    shared: &BridgeShared,
    incoming: &IncomingMessage,
    location: ChannelLocation,
) -> Result<bool, Undelivered> {
    let (user, guild) = (incoming.author, incoming.guild);
    let member = fetch_member(shared, user, guild).await?;
    let roles = member.as_ref().map(|member| member.roles.as_slice()).unwrap_or_default();
    let speaker = Speaker { user, roles, guild, channel: incoming.channel, parent: location.parent };
    Ok(shared.settings.allow.admits(&speaker))
}

/// GuildMember data of an author. The history does not contain roles, so that they are looked up if the allow lists need them.
async fn member(
    shared: &BridgeShared,
    message: &DiscordMessage,
    location: ChannelLocation,
    members: &mut HashMap<Snowflake, Option<GuildMember>>,
) -> Result<Option<GuildMember>, Undelivered> {
    let user = message.author.id;
    if message.author.bot {
        return Ok(None);
    }
    if let Some(known) = members.get(&user) {
        return Ok(known.clone());
    }
    let member = fetch_member(shared, user, location.guild).await?;
    members.insert(user, member.clone());
    Ok(member)
}

async fn fetch_member(
    shared: &BridgeShared,
    user: Snowflake,
    guild: Option<Snowflake>,
) -> Result<Option<GuildMember>, Undelivered> {
    let allow = &shared.settings.allow;
    let Some(guild) = guild.filter(|_| !allow.roles.is_empty() && !allow.users.contains(&user)) else {
        return Ok(None);
    };
    match shared.retry(|| shared.rest.member(guild, user)).await {
        Ok(member) => Ok(Some(member)),
        // The user is no longer a member.
        Err(Undelivered::Refused(_)) => Ok(None),
        Err(interrupted) => Err(interrupted),
    }
}
