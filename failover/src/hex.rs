//! Bytes as lower-case hexadecimal text.

use std::fmt::Write as _;

/// Writes bytes as hexadecimal text.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes everything");
            text
        })
}

/// Reads exactly `N` bytes; `None` for any other text.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N * 2 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_agree_and_anything_else_is_refused() {
        assert_eq!(encode(&[0x00, 0x0f, 0xff]), "000fff");
        assert_eq!(decode::<3>("000fFF"), Some([0x00, 0x0f, 0xff]));
        for wrong in ["", "00", "000ff", "000fff0", "00+fff", "zz0fff", "é00ff"] {
            assert_eq!(decode::<3>(wrong), None, "{wrong:?}");
        }
    }
}
