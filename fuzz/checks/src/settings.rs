//! Texts that an operator writes: addresses, lists of servers, names, keys.

use monolock_client::Endpoint;
use monolock_failover::dns::{ServiceZone, TsigKey};
use monolock_failover::peer::PeerAddress;

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(address) = text.parse::<PeerAddress>() {
        assert_eq!(address.to_string().parse(), Ok(address), "{text:?}");
    }
    if let Ok(endpoint) = text.parse::<Endpoint>() {
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint), "{text:?}");
    }
    if let Ok(list) = Endpoint::parse_list(text) {
        assert_eq!(list.len(), text.split(',').count(), "{text:?}");
    }
    if let Ok(zone) = ServiceZone::new(text, &[]) {
        let again = ServiceZone::new(&zone.name(), &[]).expect("a name is one again");
        assert_eq!(again.name(), zone.name(), "{text:?}");
    }
    match TsigKey::parse(text) {
        Ok(key) => assert!(format!("{key:?}").ends_with("hidden)"), "{key:?}"),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}
