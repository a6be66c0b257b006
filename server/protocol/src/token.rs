//! Fencing tokens.

use std::fmt;

/// How many bits of a token count the grants within its second.
pub const COUNTER_BITS: u32 = 20;

/// The number of a grant, strictly larger than the number of every earlier grant of any lock.
///
/// `epoch_seconds << 20 | counter`, below 2^53 until the year 2242, so that it survives JSON numbers and fits a
/// signed SQL `BIGINT`. A resource accepts a write only if it has accepted none with a larger token.
///
/// Tokens of *different locks* say nothing about each other: one lock guards one resource, and only tokens of that
/// one lock may be compared there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token(u64);

impl Token {
    /// The token below every granted one.
    pub const ZERO: Self = Self(0);
    /// The largest number a token can be.
    pub const MAX: Self = Self(u64::MAX);

    /// A token of this number.
    #[must_use]
    pub const fn new(token: u64) -> Self {
        Self(token)
    }

    /// The first token of a unix second; [`Token::MAX`] when the second does not fit.
    #[must_use]
    pub const fn first_of_epoch(epoch_seconds: u64) -> Self {
        if epoch_seconds > u64::MAX >> COUNTER_BITS {
            return Self::MAX;
        }
        Self(epoch_seconds << COUNTER_BITS)
    }

    /// The token as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The unix second in the token.
    #[must_use]
    pub const fn epoch_seconds(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The next larger token; [`Token::MAX`] stays where it is.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stay_below_two_to_the_53_until_2242() {
        let first_second_of_2242 = 8_583_494_400;
        assert!(Token::first_of_epoch(first_second_of_2242).get() < 1 << 53);
    }

    #[test]
    fn an_epoch_beyond_the_field_saturates() {
        assert_eq!(Token::first_of_epoch(1 << 44), Token::MAX);
        assert_eq!(Token::MAX.next(), Token::MAX);
    }

    #[test]
    fn the_counter_carries_into_the_seconds() {
        let last_of_second = Token::new(Token::first_of_epoch(8).get() - 1);
        assert_eq!(last_of_second.epoch_seconds(), 7);
        assert_eq!(last_of_second.next(), Token::first_of_epoch(8));
    }
}
