//! What stands in a token file; no I/O.

use serde::{Deserialize, Serialize};

/// The format that is written, and the only one that is read.
pub(crate) const FORMAT: u32 = 1;

/// Why bytes are no token file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A format of another version.
    Format(u32),
    /// Not what a server wrote, and what is wrong with it.
    Damaged(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
    reserved_epoch: u64,
    crc32: u32,
}

impl Content {
    fn new(reserved_epoch: u64) -> Self {
        Self {
            format: FORMAT,
            reserved_epoch,
            crc32: crc32fast::hash(&reserved_epoch.to_be_bytes()),
        }
    }
}

pub(crate) fn encode(reserved_epoch: u64) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(&Content::new(reserved_epoch)).expect("numbers always serialise");
    bytes.push(b'\n');
    bytes
}

/// The epoch that was reserved.
pub(crate) fn decode(bytes: &[u8]) -> Result<u64, Fault> {
    let content: Content =
        serde_json::from_slice(bytes).map_err(|error| Fault::Damaged(error.to_string()))?;
    if content.format != FORMAT {
        return Err(Fault::Format(content.format));
    }
    if content.crc32 != Content::new(content.reserved_epoch).crc32 {
        return Err(Fault::Damaged("its check sum is wrong".to_owned()));
    }
    Ok(content.reserved_epoch)
}
