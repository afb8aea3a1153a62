//! Discord's ids: numbers that increase with time, serialized as strings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Id of an object on Discord. Newer objects have larger ids.
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
        let invalid = |_| format!("{text:?} is not a Discord id: those are numbers, see Copy ID in Discord's menus");
        text.trim().parse().map(Self).map_err(invalid)
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
        enum SnowflakeRepr {
            Text(String),
            Number(u64),
        }
        match SnowflakeRepr::deserialize(deserializer)? {
            SnowflakeRepr::Text(text) => text.parse().map_err(de::Error::custom),
            SnowflakeRepr::Number(number) => Ok(Self(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_serialized_as_strings() {
        let id = Snowflake(1_234_567_890_123_456_789);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"1234567890123456789\"");
        assert_eq!(serde_json::from_str::<Snowflake>(&json).unwrap(), id);
        assert_eq!(serde_json::from_str::<Snowflake>("7").unwrap(), Snowflake(7));
        assert!("#general".parse::<Snowflake>().unwrap_err().contains("not a Discord id"));
    }
}
