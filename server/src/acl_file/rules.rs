//! The text of the file. It depends on nothing of this crate, so that it can be fuzzed by itself.

use monolock_core::{Acl, AclRule};
use monolock_protocol::Glob;
use serde::Deserialize;

pub(crate) fn parse(text: &[u8]) -> Result<Acl, String> {
    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let rules = file.rules.into_iter().map(|rule| AclRule {
        identity: Glob::new(&rule.identity),
        locks: rule.locks.iter().map(|pattern| Glob::new(pattern)).collect(),
    });
    Acl::new(rules.collect()).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct File {
    rules: Vec<Rule>,
}

/// What is missing is empty, and refused as such: that names the rule.
#[derive(Deserialize)]
struct Rule {
    #[serde(default)]
    identity: String,
    #[serde(default)]
    locks: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolock_protocol::LockName;

    #[test]
    fn rules_are_read_and_mistakes_named() {
        let acl = parse(br#"{"rules":[{"identity":"a*","locks":["x","y/*"]}]}"#).expect("valid");
        assert!(acl.allows("ab", &LockName::new("y/1").expect("valid")));
        for (text, problem) in [
            (&br#"{"rules":[{"locks":["x"]}]}"#[..], "rule 1 has no identity"),
            (br#"{"rules":[{"identity":"a"}]}"#, "rule 1 has no locks"),
            (
                br#"{"rules":[{"identity":"a","locks":[]}]}"#,
                "rule 1 has no locks",
            ),
            (br#"{"rules":{}}"#, "invalid type"),
            (br#"{}"#, "missing field `rules`"),
            (b"rules", "expected value"),
        ] {
            let found = parse(text).expect_err("refused");
            assert!(found.contains(problem), "{found}");
        }
    }
}
