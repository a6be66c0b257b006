//! What the checks of network code share: one runtime for the life of the process.

use std::sync::OnceLock;

use tokio::runtime::Runtime;

/// The runtime: servers of earlier inputs go on running on it.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts")
    })
}

/// The first byte and the rest; zero when there is none.
pub(crate) fn split(bytes: &[u8]) -> (u8, &[u8]) {
    bytes
        .split_first()
        .map_or((0, bytes), |(first, rest)| (*first, rest))
}
