//! The file of access rules: any bytes, and rules whose decisions are known.

use arbitrary::{Arbitrary, Unstructured};
use monolock_protocol::LockName;

use crate::naive_glob;

#[path = "../../../server/src/acl_file/rules.rs"]
mod rules;

#[derive(Arbitrary, Debug)]
struct Known {
    rules: Vec<(String, Vec<String>)>,
    identity: String,
    lock: String,
}

pub(crate) fn check(bytes: &[u8]) {
    if let Ok(acl) = rules::parse(bytes) {
        let lock = LockName::new("nightly/import").expect("valid");
        let _ = acl.allows("", &lock);
        let _ = acl.allows("spiffe://prod/worker/7", &lock);
    }
    if let Ok(known) = Known::arbitrary(&mut Unstructured::new(bytes)) {
        decides_as_known(&known);
    }
}

fn decides_as_known(
    Known {
        rules,
        identity,
        lock,
    }: &Known,
) {
    let listed = rules
        .iter()
        .map(|(identity, locks)| serde_json::json!({ "identity": identity, "locks": locks }));
    let file = serde_json::json!({ "rules": listed.collect::<Vec<_>>() }).to_string();
    let can_allow = |(identity, locks): &(String, Vec<String>)| {
        !identity.is_empty() && !locks.is_empty() && locks.iter().all(|lock| !lock.is_empty())
    };
    let parsed = rules::parse(file.as_bytes());
    assert_eq!(parsed.is_ok(), rules.iter().all(can_allow), "{file}: {parsed:?}");
    let (Ok(acl), Ok(lock)) = (parsed, LockName::new(lock)) else {
        return;
    };
    let expected = rules.iter().any(|(allowed, locks)| {
        naive_glob::matches(allowed, identity)
            && locks
                .iter()
                .any(|pattern| naive_glob::matches(pattern, lock.as_str()))
    });
    assert_eq!(
        acl.allows(identity, &lock),
        expected,
        "{identity:?} on {lock:?} by {file}"
    );
}
