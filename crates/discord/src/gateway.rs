//! The connection over which Discord sends events. Twilight identifies, sends heartbeats, reconnects and resumes; this
//! module parses the events.

use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use twilight_gateway::queue::InMemoryQueue;
use twilight_gateway::{CloseFrame, ConfigBuilder, Intents, Message, Shard, ShardId};

use crate::token::Token;
use crate::wire;

/// An event that the bridge handles.
#[derive(Debug)]
pub(crate) enum DiscordEvent {
    /// A new gateway session. Events before it are not delivered.
    Ready(wire::ReadyEvent),
    /// The old gateway session was resumed. No event was lost.
    Resumed,
    Message(wire::DiscordMessage),
    Interaction(wire::Interaction),
    /// A guild of the bot, with its threads.
    Guild(wire::Guild),
    Thread(wire::Channel),
    /// Discord refuses the connection, with the close code.
    Refused(Option<u16>),
}

pub(crate) fn connect(token: &Token, gateway: Option<&str>) -> Shard {
    let intents = Intents::GUILDS | Intents::GUILD_MESSAGES | Intents::DIRECT_MESSAGES | Intents::MESSAGE_CONTENT;
    let config = ConfigBuilder::new(token.header(), intents);
    let config = match gateway {
        // A replacement of Discord has its own limits, if any.
        Some(url) => config.proxy_url(url.trim_end_matches('/').to_owned()).queue(InMemoryQueue::new(
            0,
            u32::MAX,
            Duration::from_hours(24),
            u32::MAX,
        )),
        None => config,
    };
    Shard::with_config(ShardId::ONE, config.build())
}

/// Forwards events until Discord refuses the connection or the receiver is dropped. A slow receiver delays the connection.
/// If the delay is too long, the connection is closed and resumed, and no event is lost.
pub(crate) async fn forward_events(mut shard: Shard, events: mpsc::Sender<DiscordEvent>) {
    let mut code = None;
    loop {
        let message = tokio::select! {
            message = shard.next() => message,
            () = events.closed() => break,
        };
        let event = match message {
            Some(Ok(Message::Text(text))) => parse(&text),
            Some(Ok(Message::Close(frame))) => {
                code = frame.map(|frame| frame.code);
                tracing::info!(?code, "the connection to Discord was closed");
                None
            }
            Some(Err(error)) => {
                tracing::warn!("the connection to Discord failed: {error}; retrying");
                None
            }
            None => Some(DiscordEvent::Refused(code)),
        };
        let Some(event) = event else { continue };
        let refused = matches!(event, DiscordEvent::Refused(_));
        if events.send(event).await.is_err() {
            break;
        }
        if refused {
            // The connection is gone, and twilight panics if it is polled again.
            return;
        }
    }
    // A clean close shows the bot as offline at once.
    shard.close(CloseFrame::NORMAL);
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        while let Some(Ok(message)) = shard.next().await {
            if message.is_close() {
                break;
            }
        }
    })
    .await;
}

/// Parses a gateway message. `None` if the bridge does not handle it.
fn parse(text: &str) -> Option<DiscordEvent> {
    #[derive(Deserialize)]
    struct Dispatch<'a> {
        t: Option<&'a str>,
        #[serde(borrow)]
        d: Option<&'a RawValue>,
    }
    fn data<T: DeserializeOwned>(name: &str, raw: &RawValue) -> Option<T> {
        let parsed = serde_json::from_str(raw.get());
        parsed.inspect_err(|error| tracing::warn!("cannot parse {name} from Discord: {error}")).ok()
    }
    let Dispatch { t: Some(name), d: Some(raw) } = serde_json::from_str(text).ok()? else { return None };
    match name {
        "READY" => data(name, raw).map(DiscordEvent::Ready),
        "RESUMED" => Some(DiscordEvent::Resumed),
        "MESSAGE_CREATE" => data(name, raw).map(DiscordEvent::Message),
        "INTERACTION_CREATE" => data(name, raw).map(DiscordEvent::Interaction),
        "GUILD_CREATE" => data(name, raw).map(DiscordEvent::Guild),
        "THREAD_CREATE" | "THREAD_UPDATE" => data(name, raw).map(DiscordEvent::Thread),
        "THREAD_LIST_SYNC" => {
            let wire::ThreadList { guild_id, threads } = data(name, raw)?;
            Some(DiscordEvent::Guild(wire::Guild { id: guild_id, threads }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_only_events_that_the_bridge_handles() {
        let message =
            r#"{"op":0,"s":3,"t":"MESSAGE_CREATE","d":{"id":"5","channel_id":"6","author":{"id":"7"},"new":1}}"#;
        assert!(matches!(parse(message), Some(DiscordEvent::Message(message)) if message.id.0 == 5));
        assert!(matches!(parse(r#"{"op":0,"s":4,"t":"RESUMED","d":{}}"#), Some(DiscordEvent::Resumed)));
        for other in
            [r#"{"op":11}"#, r#"{"op":0,"s":1,"t":"TYPING_START","d":{}}"#, "{}", "", r#"{"op":0,"t":"READY","d":1}"#]
        {
            assert!(parse(other).is_none(), "{other}");
        }
    }
}
