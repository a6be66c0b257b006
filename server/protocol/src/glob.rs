//! The pattern language of ACL rules and of the admin API's `match` filter.

use std::fmt;

/// A pattern over a whole string: `*` is any substring (also empty, also across `/`), `?` is exactly one character,
/// everything else stands for itself. Case sensitive; there is no escape.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Glob(Box<str>);

impl Glob {
    /// Takes a pattern; every string is one.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self(pattern.into())
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern covers all of `text`. Takes at most `pattern * text` steps and no memory.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let (mut pattern, mut rest) = (&*self.0, text);
        // After the last `*`: the pattern behind it, and the text from where that was last tried.
        let mut retry: Option<(&str, &str)> = None;
        loop {
            if let Some(behind_star) = pattern.strip_prefix('*') {
                retry = Some((behind_star, rest));
                pattern = behind_star;
                continue;
            }
            if let Some((pattern_left, text_left)) = match_one(pattern, rest) {
                (pattern, rest) = (pattern_left, text_left);
                continue;
            }
            if pattern.is_empty() && rest.is_empty() {
                return true;
            }
            let Some((behind_star, tried)) = retry else {
                return false;
            };
            let mut shorter = tried.chars();
            if shorter.next().is_none() {
                return false;
            }
            retry = Some((behind_star, shorter.as_str()));
            (pattern, rest) = (behind_star, shorter.as_str());
        }
    }
}

/// Takes one literal character or `?` off the pattern and the character it covers off the text.
fn match_one<'a, 'b>(pattern: &'a str, text: &'b str) -> Option<(&'a str, &'b str)> {
    let (mut pattern_chars, mut text_chars) = (pattern.chars(), text.chars());
    let (wanted, found) = (pattern_chars.next()?, text_chars.next()?);
    (wanted == '?' || wanted == found).then_some((pattern_chars.as_str(), text_chars.as_str()))
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_questions_and_literals() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("nightly/*", "nightly/import", true),
            ("nightly/*", "nightly", false),
            ("*/import", "a/b/import", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("?", "é", true),
            ("a*b*c", "axxbyybzzc", true),
            ("a*b*c", "axxbyybzz", false),
            ("A", "a", false),
            ("[a]", "a", false),
            ("[a]", "[a]", true),
            ("**", "x", true),
            ("*?", "", false),
        ] {
            assert_eq!(
                Glob::new(pattern).matches(text),
                expected,
                "{pattern:?} on {text:?}"
            );
        }
    }

    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((&'*', rest)) => (0..=text.len()).any(|skipped| naive(rest, &text[skipped..])),
            Some((wanted, rest)) => match text.split_first() {
                Some((found, text)) => (*wanted == '?' || wanted == found) && naive(rest, text),
                None => false,
            },
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_recursion(pattern in "[ab?*é]{0,8}", text in "[abé]{0,10}") {
            let chars: (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(Glob::new(&pattern).matches(&text), naive(&chars.0, &chars.1));
        }
    }
}
