//! Serializes hashes as hexadecimal digits.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(crate) fn serialize<S: Serializer>(hash: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    let digits: String = hash
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect();
    serializer.serialize_str(&digits)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let digits = String::deserialize(deserializer)?;
    let digit = |at: usize| (*digits.as_bytes().get(at)? as char).to_digit(16);
    let byte = |at: usize| u8::try_from(digit(2 * at)? * 16 + digit(2 * at + 1)?).ok();
    let mut hash = [0; 32];
    for (at, value) in hash.iter_mut().enumerate() {
        *value = byte(at).filter(|_| digits.len() == 64).ok_or_else(|| D::Error::custom("not a hash of 32 bytes"))?;
    }
    Ok(hash)
}
