//! What was said in a channel while nobody listened.

use std::collections::HashMap;

use crate::allow::Speaker;
use crate::incoming::{Incoming, Whereabouts, heard};
use crate::shared::{Shared, Unsent};
use crate::snowflake::Snowflake;
use crate::wire::{Member, Message};

/// So many pages of a hundred messages are read; who was away for longer has missed something.
const PAGES: usize = 50;

/// What a channel's history told.
#[derive(Debug, Default)]
pub(crate) struct Missed {
    pub(crate) place: Option<Whereabouts>,
    /// In the order it was said.
    pub(crate) heard: Vec<Incoming>,
    /// The last message that was read.
    pub(crate) read: Option<Snowflake>,
}

/// Reads what came after the last message that was read. A channel that was never read begins now.
pub(crate) async fn catch_up(shared: &Shared, channel: Snowflake) -> Missed {
    let mut missed = Missed::default();
    match read(shared, channel, &mut missed).await {
        Ok(()) | Err(Unsent::Interrupted) => {}
        Err(Unsent::Refused(error)) => tracing::warn!(%channel, "cannot catch up: {error}"),
    }
    missed
}

async fn read(shared: &Shared, channel: Snowflake, missed: &mut Missed) -> Result<(), Unsent> {
    let found = shared.persist(|| shared.rest.channel(channel)).await?;
    let place = Whereabouts { guild: found.guild_id, parent: found.thread_of() };
    missed.place = Some(place);
    let Some(cursor) = shared.ledger.cursor(channel).await.ok_or(Unsent::Interrupted)? else {
        let latest = shared.persist(|| shared.rest.messages(channel, None)).await?;
        if let Some(latest) = latest.last() {
            // At once: what comes after it counts, even if we end before this is told.
            shared.ledger.set_cursor(channel, latest.id).await.ok_or(Unsent::Interrupted)?;
        }
        return Ok(());
    };
    let (mut members, mut after) = (HashMap::new(), cursor);
    for _page in 0..PAGES {
        let page = shared.persist(|| shared.rest.messages(channel, Some(after))).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.id;
        for mut message in page {
            message.member = member(shared, &message, place, &mut members).await?;
            let Some(me) = shared.me.get() else { continue };
            missed.heard.extend(heard(&message, *me, place, &shared.settings.allow));
        }
        missed.read = Some(after);
    }
    tracing::warn!(%channel, "too much was said meanwhile; only the beginning was read");
    Ok(())
}

/// Whether a message that an earlier bridge took in is for us still: its lists may have been others.
pub(crate) async fn is_still_admitted(
    shared: &Shared,
    incoming: &Incoming,
    place: Whereabouts,
) -> Result<bool, Unsent> {
    let (user, guild) = (incoming.author, incoming.guild);
    let member = look_up(shared, user, guild).await?;
    let roles = member.as_ref().map(|member| member.roles.as_slice()).unwrap_or_default();
    let speaker = Speaker { user, roles, guild, channel: incoming.channel, parent: place.parent };
    Ok(shared.settings.allow.admits(&speaker))
}

/// History does not tell which roles people have: they are looked up where that matters.
async fn member(
    shared: &Shared,
    message: &Message,
    place: Whereabouts,
    members: &mut HashMap<Snowflake, Option<Member>>,
) -> Result<Option<Member>, Unsent> {
    let user = message.author.id;
    if message.author.bot {
        return Ok(None);
    }
    if let Some(known) = members.get(&user) {
        return Ok(known.clone());
    }
    let member = look_up(shared, user, place.guild).await?;
    members.insert(user, member.clone());
    Ok(member)
}

async fn look_up(shared: &Shared, user: Snowflake, guild: Option<Snowflake>) -> Result<Option<Member>, Unsent> {
    let allow = &shared.settings.allow;
    let Some(guild) = guild.filter(|_| !allow.roles.is_empty() && !allow.users.contains(&user)) else {
        return Ok(None);
    };
    match shared.persist(|| shared.rest.member(guild, user)).await {
        Ok(member) => Ok(Some(member)),
        // No longer one.
        Err(Unsent::Refused(_)) => Ok(None),
        Err(interrupted) => Err(interrupted),
    }
}
