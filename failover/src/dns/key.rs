//! The key that a DNS server knows us by (TSIG, RFC 8945).

use std::fmt;

use data_encoding::BASE64;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::{Name, TSigner};

/// A TSIG key. Its secret is never shown.
#[derive(Clone)]
pub struct TsigKey(TSigner);

/// Why a text is no key. Never shows the text.
#[derive(Debug, thiserror::Error)]
#[error(
    "the TSIG key cannot be used: {problem}: give the key file that tsig-keygen writes, or algorithm:name:base64, with \
     hmac-sha256, hmac-sha384 or hmac-sha512"
)]
pub struct TsigKeyError {
    problem: String,
}

impl TsigKey {
    /// Reads a key as `tsig-keygen` and BIND's configuration write it, or as `dig -y` takes it:
    /// `[algorithm:]name:base64`, where the algorithm is hmac-sha256 unless named.
    ///
    /// # Errors
    ///
    /// [`TsigKeyError`]: no key, an algorithm that is too weak, a name or secret that is none.
    pub fn parse(text: &str) -> Result<Self, TsigKeyError> {
        let problem = |problem: &str| TsigKeyError {
            problem: problem.into(),
        };
        let [algorithm, name, secret] = parse_statement(text)
            .or_else(|| parse_triple(text))
            .ok_or_else(|| problem("it has no name and secret"))?;
        let algorithm = match algorithm.to_ascii_lowercase().trim_end_matches('.') {
            "hmac-sha256" => TsigAlgorithm::HmacSha256,
            "hmac-sha384" => TsigAlgorithm::HmacSha384,
            "hmac-sha512" => TsigAlgorithm::HmacSha512,
            _ => return Err(problem("its algorithm is not supported")),
        };
        let name = Name::from_ascii(name).map_err(|_| problem("its name is no domain name"))?;
        let secret = BASE64
            .decode(secret.as_bytes())
            .ok()
            .filter(|secret| !secret.is_empty())
            .ok_or_else(|| problem("its secret is not in base64"))?;
        TSigner::new(secret, algorithm, name.to_lowercase(), FUDGE_SECONDS)
            .map(Self)
            .map_err(|error| problem(&error.to_string()))
    }

    pub(super) fn signer(&self) -> &TSigner {
        &self.0
    }
}

impl fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TsigKey({}, hidden)", self.0.signer_name())
    }
}

/// `key "name" { algorithm hmac-sha256; secret "base64"; };`
fn parse_statement(text: &str) -> Option<[&str; 3]> {
    let (name, body) = text.trim().strip_prefix("key")?.split_once('{')?;
    let body = body.rsplit_once('}')?.0;
    let value = |wanted: &str| {
        let mut statements = body.split(';').map(str::trim);
        statements.find_map(|statement| Some(unquoted(statement.strip_prefix(wanted)?)))
    };
    Some([value("algorithm")?, unquoted(name), value("secret")?])
}

fn parse_triple(text: &str) -> Option<[&str; 3]> {
    let parts: Vec<_> = text.trim().split(':').collect();
    match parts.as_slice() {
        [name, secret] => Some(["hmac-sha256", name, secret]),
        [algorithm, name, secret] => Some([algorithm, name, secret]),
        _ => None,
    }
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches('"')
}

/// How far our clock and the server's may be apart.
const FUDGE_SECONDS: u16 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_give_the_same_key() {
        let file = "key \"pair-key\" {\n\talgorithm hmac-sha256;\n\tsecret \"c2VjcmV0IHNlY3JldA==\";\n};\n";
        for text in [
            file,
            "hmac-sha256:pair-key:c2VjcmV0IHNlY3JldA==",
            "Pair-Key:c2VjcmV0IHNlY3JldA==\n",
        ] {
            let key = TsigKey::parse(text).expect(text);
            assert_eq!(key.signer().key(), b"secret secret");
            assert_eq!(key.signer().signer_name().to_ascii(), "pair-key.");
            assert_eq!(format!("{key:?}"), "TsigKey(pair-key., hidden)");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        for wrong in [
            "",
            "name",
            "name:###",
            "name:",
            "hmac-md5:name:c2VjcmV0",
            "key \"x\" { algorithm hmac-sha256; };",
            "a..b:c2VjcmV0",
        ] {
            let error = TsigKey::parse(wrong).expect_err(wrong).to_string();
            assert!(error.contains("tsig-keygen"), "{error}");
            assert!(!error.contains("c2VjcmV0"), "{error}");
        }
    }
}
