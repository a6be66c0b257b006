//! The matcher against a table of all pairs of rests.

use arbitrary::{Arbitrary as _, Unstructured};
use monolock_protocol::Glob;

use crate::naive_glob;

pub(crate) fn check(bytes: &[u8]) {
    let Ok((mut pattern, mut text, narrow)) =
        <(String, String, bool)>::arbitrary_take_rest(Unstructured::new(bytes))
    else {
        return;
    };
    if narrow {
        // Few characters: near misses and long retries are then likely.
        pattern = narrowed(&pattern, &['a', 'b', '*', '?', 'é']);
        text = narrowed(&text, &['a', 'b', 'é']);
    }
    let found = Glob::new(&pattern).matches(&text);
    assert_eq!(
        found,
        naive_glob::matches(&pattern, &text),
        "{pattern:?} on {text:?}"
    );
}

fn narrowed(text: &str, alphabet: &[char]) -> String {
    text.bytes()
        .map(|byte| alphabet[usize::from(byte) % alphabet.len()])
        .collect()
}
