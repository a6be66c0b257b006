//! The glob as its definition reads.

/// Whether the rest of the pattern covers the rest of the text, for every pair of rests, shortest first.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let mut covers = vec![vec![false; text.len() + 1]; pattern.len() + 1];
    covers[pattern.len()][text.len()] = true;
    for p in (0..pattern.len()).rev() {
        for t in (0..=text.len()).rev() {
            covers[p][t] = match pattern[p] {
                '*' => covers[p + 1][t] || (t < text.len() && covers[p][t + 1]),
                '?' => t < text.len() && covers[p + 1][t + 1],
                wanted => t < text.len() && wanted == text[t] && covers[p + 1][t + 1],
            };
        }
    }
    covers[0][0]
}
