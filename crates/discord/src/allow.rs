//! Access control: which users are answered in which channels. Empty lists allow nothing. Pure.

use crate::snowflake::Snowflake;

/// Lists of allowed places and people. If both kinds are given, a message must match both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    pub guilds: Vec<Snowflake>,
    /// Channels in which mentions are answered, with their threads.
    pub channels: Vec<Snowflake>,
    /// Channels in which every message is answered, with their threads.
    pub listen: Vec<Snowflake>,
    pub roles: Vec<Snowflake>,
    pub users: Vec<Snowflake>,
}

/// Author and place of a message or command.
#[derive(Debug, Clone, Copy)]
pub struct Speaker<'a> {
    pub user: Snowflake,
    pub roles: &'a [Snowflake],
    /// `None` in a direct message.
    pub guild: Option<Snowflake>,
    pub channel: Snowflake,
    /// Channel of a thread.
    pub parent: Option<Snowflake>,
}

impl Allow {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.guilds, &self.channels, &self.listen, &self.roles, &self.users].into_iter().all(Vec::is_empty)
    }

    /// Whether the speaker may use the bot here. Direct messages require a listed user.
    #[must_use]
    pub fn admits(&self, speaker: &Speaker<'_>) -> bool {
        let Some(guild) = speaker.guild else { return self.users.contains(&speaker.user) };
        let no_places = self.guilds.is_empty() && self.channels.is_empty() && self.listen.is_empty();
        let no_people = self.users.is_empty() && self.roles.is_empty();
        let place = self.guilds.contains(&guild) || speaker.is_in(&self.channels) || speaker.is_in(&self.listen);
        let person = self.users.contains(&speaker.user) || speaker.roles.iter().any(|role| self.roles.contains(role));
        match (no_places, no_people) {
            (true, true) => false,
            (true, false) => person,
            (false, true) => place,
            (false, false) => place && person,
        }
    }

    /// Whether every message is answered here, even without a mention.
    #[must_use]
    pub fn listens(&self, speaker: &Speaker<'_>) -> bool {
        speaker.guild.is_some() && speaker.is_in(&self.listen)
    }
}

impl Speaker<'_> {
    fn is_in(&self, channels: &[Snowflake]) -> bool {
        channels.contains(&self.channel) || self.parent.is_some_and(|parent| channels.contains(&parent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUILD: Snowflake = Snowflake(10);
    const CHANNEL: Snowflake = Snowflake(20);
    const THREAD: Snowflake = Snowflake(21);
    const ROLE: Snowflake = Snowflake(30);
    const USER: Snowflake = Snowflake(40);

    fn list(ids: &[Snowflake]) -> Vec<Snowflake> {
        ids.to_vec()
    }

    #[test]
    fn admits_and_listens_according_to_lists() {
        let closed = Allow::default();
        let guild = Allow { guilds: list(&[GUILD]), ..Allow::default() };
        let channel = Allow { channels: list(&[CHANNEL]), ..Allow::default() };
        let listen = Allow { listen: list(&[CHANNEL]), ..Allow::default() };
        let user = Allow { users: list(&[USER]), ..Allow::default() };
        let role = Allow { roles: list(&[ROLE]), ..Allow::default() };
        let both = Allow { guilds: list(&[GUILD]), users: list(&[USER]), ..Allow::default() };
        let stranger = Snowflake(41);
        let elsewhere = Snowflake(11);
        // (lists, user, roles, guild, channel, parent) → admitted, listened to
        for (name, allow, user, roles, guild, channel, parent, admitted, listened) in [
            ("nothing listed", &closed, USER, &[ROLE][..], Some(GUILD), CHANNEL, None, false, false),
            ("nothing listed, direct", &closed, USER, &[], None, CHANNEL, None, false, false),
            ("a guild", &guild, stranger, &[], Some(GUILD), CHANNEL, None, true, false),
            ("another guild", &guild, stranger, &[], Some(elsewhere), CHANNEL, None, false, false),
            ("a guild does not open direct messages", &guild, USER, &[], None, CHANNEL, None, false, false),
            ("a channel", &channel, stranger, &[], Some(GUILD), CHANNEL, None, true, false),
            ("another channel", &channel, stranger, &[], Some(GUILD), Snowflake(22), None, false, false),
            ("a thread of the channel", &channel, stranger, &[], Some(GUILD), THREAD, Some(CHANNEL), true, false),
            ("a listened channel", &listen, stranger, &[], Some(GUILD), CHANNEL, None, true, true),
            ("a thread of it", &listen, stranger, &[], Some(GUILD), THREAD, Some(CHANNEL), true, true),
            ("a user, direct", &user, USER, &[], None, CHANNEL, None, true, false),
            ("a stranger, direct", &user, stranger, &[], None, CHANNEL, None, false, false),
            ("a user, in any guild", &user, USER, &[], Some(elsewhere), CHANNEL, None, true, false),
            ("a role", &role, stranger, &[ROLE], Some(GUILD), CHANNEL, None, true, false),
            ("without the role", &role, stranger, &[Snowflake(31)], Some(GUILD), CHANNEL, None, false, false),
            ("a role, direct", &role, stranger, &[ROLE], None, CHANNEL, None, false, false),
            ("both, and both fit", &both, USER, &[], Some(GUILD), CHANNEL, None, true, false),
            ("both, wrong user", &both, stranger, &[], Some(GUILD), CHANNEL, None, false, false),
            ("both, wrong guild", &both, USER, &[], Some(elsewhere), CHANNEL, None, false, false),
            ("both, direct", &both, USER, &[], None, CHANNEL, None, true, false),
        ] {
            let speaker = Speaker { user, roles, guild, channel, parent };
            assert_eq!((allow.admits(&speaker), allow.listens(&speaker)), (admitted, listened), "{name}");
        }
        assert!(closed.is_empty() && !listen.is_empty());
    }
}
