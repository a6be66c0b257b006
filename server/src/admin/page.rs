//! The operator's page: one document without outside parts, under a policy that runs nothing but its own script.
//!
//! Lock names and identities are whatever clients chose, so the script writes them as text only. The policy is the second
//! line: it names style and script by their hashes, and forbids everything that is not named.

use std::sync::LazyLock;

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::{Html, IntoResponse};
use data_encoding::BASE64;
use ring::digest::{SHA256, digest};

pub(super) async fn page() -> impl IntoResponse {
    let headers = [
        (CONTENT_SECURITY_POLICY, PAGE.policy.as_str()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Html(PAGE.document.as_str()))
}

struct Page {
    document: String,
    policy: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| Page {
    document: DOCUMENT
        .replacen("{style}", STYLE, 1)
        .replacen("{script}", SCRIPT, 1),
    policy: format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
        source(STYLE),
        source(SCRIPT),
    ),
});

fn source(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    format!("'sha256-{}'", BASE64.encode(hash.as_ref()))
}

const DOCUMENT: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(include_str!("page.js"), include_str!("pair.js"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_exactly_what_stands_between_the_tags() {
        for (open, close) in [("<style>", "</style>"), ("<script type=\"module\">", "</script>")] {
            let (_, rest) = PAGE.document.split_once(open).expect("the element");
            let (text, after) = rest.split_once(close).expect("its end");
            assert!(!after.contains(open), "one element of its kind");
            assert!(PAGE.policy.contains(&source(text)), "{open}");
        }
    }
}
