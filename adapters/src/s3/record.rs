//! The line that makes an object's bytes, and so its ETag, different for every write.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use monolock_protocol::Token;

/// Where an object keeps its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// The record is the first line; the payload follows.
    #[default]
    Header,
    /// The payload comes first; the record is the last line.
    Trailer,
}

/// Who wrote an object, and which write it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) token: Token,
    pub(crate) write_id: u128,
    pub(crate) deleted: bool,
}

/// The length of a live object's record, line end included. A tombstone's is shorter, so that a listing tells them
/// apart by size alone.
pub(crate) const RECORD_LEN: usize = MAGIC.len() + 20 + WRITE.len() + 32 + DATA.len();
const TOMBSTONE_LEN: usize = MAGIC.len() + 20 + WRITE.len() + 32 + GONE.len();

const MAGIC: &str = "fencing-record/1 token=";
const WRITE: &str = " write=";
const DATA: &str = " object\n";
const GONE: &str = " gone\n";

impl Record {
    /// A record for a write of its own.
    pub(crate) fn new(token: Token) -> Self {
        Self {
            token,
            write_id: fastrand::u128(..),
            deleted: false,
        }
    }

    pub(crate) fn tombstone(token: Token) -> Self {
        Self {
            deleted: true,
            ..Self::new(token)
        }
    }

    /// The bytes to store.
    pub(crate) fn wrap(&self, layout: Layout, payload: &[u8]) -> Bytes {
        let line = self.line();
        let mut body = BytesMut::with_capacity(line.len() + payload.len());
        match layout {
            _ if self.deleted => body.extend_from_slice(line.as_bytes()),
            Layout::Header => {
                body.extend_from_slice(line.as_bytes());
                body.extend_from_slice(payload);
            }
            Layout::Trailer => {
                body.extend_from_slice(payload);
                body.extend_from_slice(line.as_bytes());
            }
        }
        body.freeze()
    }

    /// The record of an object, given at least its first (or, with a trailer, last) [`RECORD_LEN`] bytes, and where the
    /// payload is within the given bytes. None for an object that somebody else wrote.
    pub(crate) fn find(layout: Layout, bytes: &[u8]) -> Option<(Self, Range<usize>)> {
        if bytes.len() == TOMBSTONE_LEN {
            return Self::parse(bytes).map(|record| (record, 0..0));
        }
        let payload_len = bytes.len().checked_sub(RECORD_LEN)?;
        let (line, payload) = match layout {
            Layout::Header => (&bytes[..RECORD_LEN], RECORD_LEN..bytes.len()),
            Layout::Trailer => (&bytes[payload_len..], 0..payload_len),
        };
        Self::parse(line)
            .filter(|record| !record.deleted)
            .map(|record| (record, payload))
    }

    fn line(&self) -> String {
        let end = if self.deleted { GONE } else { DATA };
        format!(
            "{MAGIC}{:020}{WRITE}{:032x}{end}",
            self.token.get(),
            self.write_id
        )
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let rest = std::str::from_utf8(line).ok()?.strip_prefix(MAGIC)?;
        let (token, rest) = (rest.get(..20)?, rest.get(20..)?.strip_prefix(WRITE)?);
        let (write_id, end) = (rest.get(..32)?, rest.get(32..)?);
        let record = Self {
            token: Token::new(token.parse().ok()?),
            write_id: u128::from_str_radix(write_id, 16).ok()?,
            deleted: match end {
                DATA => false,
                GONE => true,
                _ => return None,
            },
        };
        // Only what we write ourselves, not what merely parses: "+1" or capital letters.
        (record.line().as_bytes() == line).then_some(record)
    }
}

/// True for the size of a tombstone, which no live object has.
pub(crate) fn is_tombstone_size(size: i64) -> bool {
    usize::try_from(size) == Ok(TOMBSTONE_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = Record {
        token: Token::new(42),
        write_id: 0xab,
        deleted: false,
    };

    #[test]
    fn a_record_is_a_line_that_people_can_read() {
        assert_eq!(
            RECORD.line(),
            "fencing-record/1 token=00000000000000000042 write=000000000000000000000000000000ab object\n"
        );
    }

    #[test]
    fn payloads_come_back_whatever_they_are() {
        let tricky = RECORD.wrap(Layout::Header, b"x");
        let payloads: [&[u8]; 4] = [b"", b"x", b"\n\n\xff", &tricky];
        for layout in [Layout::Header, Layout::Trailer] {
            for payload in payloads {
                let body = RECORD.wrap(layout, payload);
                let (record, range) = Record::find(layout, &body).expect("a record");
                assert_eq!((record, &body[range]), (RECORD, payload));
            }
        }
    }

    #[test]
    fn a_tombstone_has_a_size_of_its_own() {
        for layout in [Layout::Header, Layout::Trailer] {
            let tombstone = Record {
                deleted: true,
                ..RECORD
            };
            let body = tombstone.wrap(layout, b"ignored");
            assert!(is_tombstone_size(body.len().try_into().expect("small")));
            assert_eq!(Record::find(layout, &body), Some((tombstone, 0..0)));
            assert!(!is_tombstone_size(
                RECORD.wrap(layout, b"").len().try_into().expect("small")
            ));
        }
    }

    #[test]
    fn what_others_wrote_has_no_record() {
        let line = RECORD.line();
        let spoiled = [
            String::new(),
            line[1..].to_owned(),
            line.replace("ab object", "AB object"),
            line.replace("00042", "+0042"),
            line.replace("object", "absent"),
            format!("{line}{}", &line[..3]),
        ];
        for other in &spoiled {
            assert_eq!(Record::find(Layout::Trailer, other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn every_write_has_other_bytes() {
        let (one, two) = (Record::new(Token::new(1)), Record::new(Token::new(1)));
        assert_ne!(
            one.wrap(Layout::Header, b"same"),
            two.wrap(Layout::Header, b"same")
        );
    }
}
