//! The matcher against a table of all pairs of rests.
#![no_main]

mod naive;

use libfuzzer_sys::fuzz_target;
use monolock_protocol::Glob;

fuzz_target!(|input: (String, String, bool)| {
    let (mut pattern, mut text, narrow) = input;
    if narrow {
        // Few characters: near misses and long retries are then likely.
        pattern = narrowed(&pattern, &['a', 'b', '*', '?', 'é']);
        text = narrowed(&text, &['a', 'b', 'é']);
    }
    let found = Glob::new(&pattern).matches(&text);
    assert_eq!(found, naive::glob(&pattern, &text), "{pattern:?} on {text:?}");
});

fn narrowed(text: &str, alphabet: &[char]) -> String {
    text.bytes().map(|byte| alphabet[usize::from(byte) % alphabet.len()]).collect()
}
