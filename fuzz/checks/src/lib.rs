//! What must hold whatever bytes come from outside.
//!
//! Each check takes any bytes and panics where a promise is broken. The fuzz targets beside this crate search for such
//! bytes; a test runs the seeds that are kept with them.
//!
//! Code that no crate exports is included by its path, so that nothing is made public for the sake of a check.

mod acl_file;
mod client_session;
mod dns_answers;
mod dns_questions;
mod frame_decode;
mod glob;
mod lock_table;
mod loopback;
mod naive_glob;
mod name_lookup;
mod peer_answers;
mod peer_messages;
mod peer_requests;
mod settings;
mod state_file;
mod token_file;
mod witness_file;

// The client's way from a name to addresses.
#[allow(dead_code, unreachable_pub, reason = "a part of another crate")]
#[path = "../../../server/client/src/address.rs"]
mod address;
#[allow(dead_code, unreachable_pub, reason = "a part of another crate")]
#[path = "../../../server/client/src/resolve.rs"]
mod resolve;

/// A check: panics if these bytes break a promise.
pub type Check = fn(&[u8]);

/// Every check, under the name of its fuzz target.
pub const CHECKS: &[(&str, Check)] = &[
    ("acl_file", acl_file::check),
    ("client_session", client_session::check),
    ("dns_answers", dns_answers::check),
    ("dns_questions", dns_questions::check),
    ("frame_decode", frame_decode::check),
    ("glob", glob::check),
    ("lock_table", lock_table::check),
    ("name_lookup", name_lookup::check),
    ("peer_answers", peer_answers::check),
    ("peer_messages", peer_messages::check),
    ("peer_requests", peer_requests::check),
    ("settings", settings::check),
    ("state_file", state_file::check),
    ("token_file", token_file::check),
    ("witness_file", witness_file::check),
];

/// Runs the check of this name.
///
/// # Panics
///
/// When there is none, or when the bytes break a promise.
pub fn check(name: &str, bytes: &[u8]) {
    let (_, check) = CHECKS
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("there is no check {name:?}"));
    check(bytes);
}
