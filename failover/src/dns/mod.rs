//! The service's name: what clients resolve to find the active node.

mod embedded;
mod key;
mod primary;
mod publisher;
mod service;
mod zone;

pub use embedded::{DnsListenError, EmbeddedDns};
pub use key::{TsigKey, TsigKeyError};
pub(crate) use primary::{DnsFailure, Update};
pub use primary::{DnsPrimary, NameError};
pub use publisher::{NameProgress, NamePublisher, PublishError, Published, Shown};
pub use service::NameKeeper;
pub use zone::{ServiceState, ServiceZone, ZoneError};
