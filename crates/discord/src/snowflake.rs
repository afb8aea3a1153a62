//! Discord's ids: numbers that grow with time and travel as strings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The id of anything on Discord. A later thing has a larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snowflake(pub u64);

impl fmt::Display for Snowflake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Snowflake {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let not_one = |_| format!("{text:?} is not a Discord id: those are numbers, see Copy ID in Discord's menus");
        text.trim().parse().map(Self).map_err(not_one)
    }
}

impl Serialize for Snowflake {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Snowflake {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(u64),
        }
        match Written::deserialize(deserializer)? {
            Written::Text(text) => text.parse().map_err(de::Error::custom),
            Written::Number(number) => Ok(Self(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_travel_as_strings() {
        let id = Snowflake(1_234_567_890_123_456_789);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"1234567890123456789\"");
        assert_eq!(serde_json::from_str::<Snowflake>(&json).unwrap(), id);
        assert_eq!(serde_json::from_str::<Snowflake>("7").unwrap(), Snowflake(7));
        assert!("#general".parse::<Snowflake>().unwrap_err().contains("not a Discord id"));
    }
}
