//! The connection over which Discord tells what happens. Identifying, heartbeats, resuming and coming back after a cut
//! are twilight's; here its messages become our words.

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

/// What happens, as far as it is of interest.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A new session: what happened before it is not told.
    Ready(wire::Ready),
    /// The old session goes on: nothing was lost.
    Resumed,
    Message(wire::Message),
    Interaction(wire::Interaction),
    /// A guild we are in, with its threads.
    Guild(wire::Guild),
    Thread(wire::Channel),
    /// Discord will not have us; the code says why.
    Refused(Option<u16>),
}

pub(crate) fn connect(token: &Token, gateway: Option<&str>) -> Shard {
    let intents = Intents::GUILDS | Intents::GUILD_MESSAGES | Intents::DIRECT_MESSAGES | Intents::MESSAGE_CONTENT;
    let config = ConfigBuilder::new(token.header(), intents);
    let config = match gateway {
        // Whoever stands in for Discord has limits of its own, if any.
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

/// Follows the connection until Discord refuses us or nobody listens any more. A slow listener slows it down; if that
/// takes too long the connection is cut and resumed, and nothing is lost.
pub(crate) async fn follow(mut shard: Shard, happenings: mpsc::Sender<Happening>) {
    let mut code = None;
    loop {
        let message = tokio::select! {
            message = shard.next() => message,
            () = happenings.closed() => break,
        };
        let happening = match message {
            Some(Ok(Message::Text(text))) => read(&text),
            Some(Ok(Message::Close(frame))) => {
                code = frame.map(|frame| frame.code);
                tracing::info!(?code, "the connection to Discord was closed");
                None
            }
            Some(Err(error)) => {
                tracing::warn!("the connection to Discord failed: {error}; trying again");
                None
            }
            None => Some(Happening::Refused(code)),
        };
        let Some(happening) = happening else { continue };
        let refused = matches!(happening, Happening::Refused(_));
        if happenings.send(happening).await.is_err() {
            break;
        }
        if refused {
            // There is no connection any more, and twilight minds being asked for one.
            return;
        }
    }
    // Discord shows us as gone at once rather than after a while.
    shard.close(CloseFrame::NORMAL);
    let _in_time = tokio::time::timeout(Duration::from_secs(1), async {
        while let Some(Ok(message)) = shard.next().await {
            if message.is_close() {
                break;
            }
        }
    })
    .await;
}

/// What one message of the gateway tells, if it tells something of interest.
fn read(text: &str) -> Option<Happening> {
    #[derive(Deserialize)]
    struct Dispatch<'a> {
        t: Option<&'a str>,
        #[serde(borrow)]
        d: Option<&'a RawValue>,
    }
    fn data<T: DeserializeOwned>(name: &str, raw: &RawValue) -> Option<T> {
        let read = serde_json::from_str(raw.get());
        read.inspect_err(|error| tracing::warn!("cannot read {name} from Discord: {error}")).ok()
    }
    let Dispatch { t: Some(name), d: Some(raw) } = serde_json::from_str(text).ok()? else { return None };
    match name {
        "READY" => data(name, raw).map(Happening::Ready),
        "RESUMED" => Some(Happening::Resumed),
        "MESSAGE_CREATE" => data(name, raw).map(Happening::Message),
        "INTERACTION_CREATE" => data(name, raw).map(Happening::Interaction),
        "GUILD_CREATE" => data(name, raw).map(Happening::Guild),
        "THREAD_CREATE" | "THREAD_UPDATE" => data(name, raw).map(Happening::Thread),
        "THREAD_LIST_SYNC" => {
            let wire::ThreadList { guild_id, threads } = data(name, raw)?;
            Some(Happening::Guild(wire::Guild { id: guild_id, threads }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_of_interest_is_read() {
        let message =
            r#"{"op":0,"s":3,"t":"MESSAGE_CREATE","d":{"id":"5","channel_id":"6","author":{"id":"7"},"new":1}}"#;
        assert!(matches!(read(message), Some(Happening::Message(message)) if message.id.0 == 5));
        assert!(matches!(read(r#"{"op":0,"s":4,"t":"RESUMED","d":{}}"#), Some(Happening::Resumed)));
        for other in
            [r#"{"op":11}"#, r#"{"op":0,"s":1,"t":"TYPING_START","d":{}}"#, "{}", "", r#"{"op":0,"t":"READY","d":1}"#]
        {
            assert!(read(other).is_none(), "{other}");
        }
    }
}
