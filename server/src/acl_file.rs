//! The file of access rules.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use monolock_core::{Acl, AclRule};
use monolock_protocol::{Glob, LockName};
use serde::Deserialize;

use crate::config::SettingError;

/// The rules for new claims.
#[derive(Debug)]
pub(crate) struct AclFile {
    path: PathBuf,
    current: ArcSwap<Acl>,
}

impl AclFile {
    pub(crate) fn load(path: &Path) -> Result<Self, SettingError> {
        Ok(Self {
            path: path.to_owned(),
            current: ArcSwap::from_pointee(load(path)?),
        })
    }

    /// Reads the file again; when that fails the old rules stay.
    pub(crate) fn reload(&self) -> Result<(), SettingError> {
        self.current.store(Arc::new(load(&self.path)?));
        Ok(())
    }

    pub(crate) fn allows(&self, identity: &str, lock: &LockName) -> bool {
        self.current.load().allows(identity, lock)
    }
}

fn load(path: &Path) -> Result<Acl, SettingError> {
    let unusable = |why: &dyn std::fmt::Display| {
        SettingError::new(
            "MONOLOCK_ACL_FILE",
            format!("{}: cannot be used: {why}", path.display()),
        )
    };
    let text = std::fs::read(path).map_err(|error| unusable(&error))?;
    parse(&text).map_err(|why| unusable(&why))
}

fn parse(text: &[u8]) -> Result<Acl, String> {
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
