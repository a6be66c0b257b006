//! Which identity may ask for which lock.

use monolock_protocol::{Glob, LockName};

/// Access rules: denied unless one rule allows it. Rules have no order and no exceptions.
///
/// ```
/// use monolock_core::{Acl, AclRule};
/// use monolock_protocol::{Glob, LockName};
///
/// let acl = Acl::new(vec![AclRule {
///     identity: Glob::new("spiffe://prod/worker/*"),
///     locks: vec![Glob::new("nightly/*")],
/// }])?;
/// assert!(acl.allows("spiffe://prod/worker/7", &LockName::new("nightly/import")?));
/// assert!(!acl.allows("spiffe://staging/worker/7", &LockName::new("nightly/import")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    rules: Vec<AclRule>,
}

/// Identities that match may ask for locks that match one of the patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclRule {
    /// Over the whole identity of the client.
    pub identity: Glob,
    /// Over the whole lock name.
    pub locks: Vec<Glob>,
}

/// A rule that can never allow anything is a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// The identity pattern is missing or empty.
    #[error("rule {rule} has no identity: write \"*\" to mean everybody")]
    NoIdentity {
        /// Its place in the file, from 1.
        rule: usize,
    },
    /// There is no lock pattern, or an empty one, which no lock name matches.
    #[error("rule {rule} has no locks, or an empty lock pattern: write \"*\" to mean every lock")]
    NoLocks {
        /// Its place in the file, from 1.
        rule: usize,
    },
}

impl Acl {
    /// Takes rules; none at all denies everything.
    ///
    /// # Errors
    ///
    /// [`AclError`] names the first rule that can never allow anything.
    pub fn new(rules: Vec<AclRule>) -> Result<Self, AclError> {
        for (rule, number) in rules.iter().zip(1..) {
            if rule.identity.as_str().is_empty() {
                return Err(AclError::NoIdentity { rule: number });
            }
            if rule.locks.is_empty() || rule.locks.iter().any(|lock| lock.as_str().is_empty()) {
                return Err(AclError::NoLocks { rule: number });
            }
        }
        Ok(Self { rules })
    }

    /// Whether some rule allows this identity this lock.
    #[must_use]
    pub fn allows(&self, identity: &str, lock: &LockName) -> bool {
        self.rules
            .iter()
            .filter(|rule| rule.identity.matches(identity))
            .any(|rule| rule.locks.iter().any(|pattern| pattern.matches(lock.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(identity: &str, locks: &[&str]) -> AclRule {
        AclRule {
            identity: Glob::new(identity),
            locks: locks.iter().map(|pattern| Glob::new(pattern)).collect(),
        }
    }

    #[test]
    fn deny_by_default_and_the_union_of_what_matches() {
        let acl = Acl::new(vec![
            rule("spiffe://prod/worker/*", &["nightly/*", "shard-?"]),
            rule("spiffe://prod/worker/7", &["special"]),
            rule("admin.svc.cluster.local", &["*"]),
        ])
        .expect("valid");
        for (identity, lock, allowed) in [
            ("spiffe://prod/worker/7", "nightly/import", true),
            ("spiffe://prod/worker/7", "nightly/a/b", true),
            ("spiffe://prod/worker/7", "shard-3", true),
            ("spiffe://prod/worker/7", "shard-31", false),
            ("spiffe://prod/worker/7", "special", true),
            ("spiffe://prod/worker/8", "special", false),
            ("admin.svc.cluster.local", "anything", true),
            ("spiffe://staging/worker/1", "nightly/import", false),
            ("", "nightly/import", false),
        ] {
            let lock = LockName::new(lock).expect("valid");
            assert_eq!(acl.allows(identity, &lock), allowed, "{identity} on {lock}");
        }
        assert!(
            !Acl::new(Vec::new())
                .expect("valid")
                .allows("a", &LockName::new("b").expect("valid"))
        );
    }

    #[test]
    fn a_rule_that_can_never_allow_is_refused_by_its_number() {
        let fine = rule("*", &["*"]);
        for (bad, error) in [
            (rule("", &["*"]), AclError::NoIdentity { rule: 2 }),
            (rule("*", &[]), AclError::NoLocks { rule: 2 }),
            (rule("*", &["a", ""]), AclError::NoLocks { rule: 2 }),
        ] {
            assert_eq!(Acl::new(vec![fine.clone(), bad]), Err(error));
        }
    }
}
