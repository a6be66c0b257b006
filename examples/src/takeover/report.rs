//! What the story comes to.

use std::fmt;
use std::time::Duration;

use monolock_client::Token;

/// Something that was claimed and looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is claimed.
    pub text: &'static str,
    /// Whether it held.
    pub held: bool,
    /// What was seen, for a claim that did not hold.
    pub otherwise: String,
}

/// How long something took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// What.
    pub what: &'static str,
    /// How long.
    pub took: Duration,
}

/// Claims, times, tokens and writes of one story.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which they were made.
    pub claims: Vec<Claim>,
    /// In the order in which they were taken.
    pub measures: Vec<Measure>,
    /// What was granted, in that order.
    pub tokens: Vec<(&'static str, Token)>,
    /// Writes that the resource took.
    pub accepted: usize,
    /// Writes that the resource refused.
    pub refused: usize,
}

impl Report {
    pub(super) fn token(&mut self, what: &'static str, token: Token) {
        self.tokens.push((what, token));
    }

    /// Whether every claim held.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.claims.is_empty() && self.claims.iter().all(|claim| claim.held)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.held {
            write!(f, "[ok] {}", self.text)
        } else {
            write!(f, "[FAILED] {}: {}", self.text, self.otherwise)
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = "-".repeat(64);
        writeln!(f, "{:<46}{:>18}", "measured", "milliseconds")?;
        writeln!(f, "{rule}")?;
        for Measure { what, took } in &self.measures {
            writeln!(f, "{what:<46}{:>18}", took.as_millis())?;
        }
        writeln!(f)?;
        writeln!(f, "{:<46}{:>18}", "granted, in this order", "token")?;
        writeln!(f, "{rule}")?;
        for (what, token) in &self.tokens {
            writeln!(f, "{what:<46}{token:>18}")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<46}{:>18}",
            "writes accepted by the resource", self.accepted
        )?;
        writeln!(f, "{:<46}{:>18}", "writes refused as stale", self.refused)?;
        let held = self.claims.iter().filter(|claim| claim.held).count();
        write!(
            f,
            "{:<46}{:>18}",
            "claims that held",
            format!("{held} of {}", self.claims.len())
        )
    }
}
