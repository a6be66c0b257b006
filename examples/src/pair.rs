//! The pair of the demo, and a client that knows it by its name.

use anyhow::Result;
use monolock_client::Client;

pub use monolock_failover::drill::pair::Pair;

/// A client that knows the name, and asks both nodes what it stands for.
///
/// # Errors
///
/// When the name cannot be used.
pub fn client(pair: &Pair) -> Result<Client> {
    Ok(Client::builder(&pair.server())
        .dns_servers(pair.dns_servers())
        .build()?)
}
