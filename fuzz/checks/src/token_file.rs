//! The token file: what is read is written back as the same epoch.

#[allow(unreachable_pub, reason = "a part of another crate")]
#[path = "../../../server/src/token_file/content.rs"]
mod content;

pub(crate) fn check(bytes: &[u8]) {
    if let Ok(epoch) = content::decode(bytes) {
        assert_eq!(content::decode(&content::encode(epoch)), Ok(epoch));
    }
    // Any number survives, whatever the bytes spell.
    let mut number = [0; 8];
    for (to, from) in number.iter_mut().zip(bytes) {
        *to = *from;
    }
    let epoch = u64::from_be_bytes(number);
    let mut file = content::encode(epoch);
    assert_eq!(content::decode(&file), Ok(epoch));
    // One digit more or less is noticed.
    if let Some(at) = bytes.get(8).map(|at| usize::from(*at) % file.len())
        && file[at].is_ascii_digit()
    {
        file[at] = if file[at] == b'9' { b'1' } else { file[at] + 1 };
        assert!(
            content::decode(&file).is_err(),
            "{}",
            String::from_utf8_lossy(&file)
        );
    }
}
