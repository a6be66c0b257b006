//! The service's name: what clients resolve to find the active node.

mod embedded;
mod zone;

pub use embedded::{DnsListenError, EmbeddedDns};
pub use zone::{ServiceState, ServiceZone, ZoneError};
