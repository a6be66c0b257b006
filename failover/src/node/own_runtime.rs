//! Threads of its own for what must go on while the lock server is stuck.

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// A runtime that may be dropped anywhere: what still runs on it is ended.
pub(super) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub(super) fn new() -> std::io::Result<Self> {
        Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("node")
            .enable_all()
            .build()
            .map(|runtime| Self(Some(runtime)))
    }

    /// Runs something there and waits for it; ends it when that is dropped.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.0.as_ref().expect("there until it is dropped");
        match AbortOnDropHandle::new(runtime.spawn(work)).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// One may be busy with a resolver or a file while the other answers the peer.
const THREADS: usize = 2;
