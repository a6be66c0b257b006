//! The one thread that keeps every claim of the process alive.
//!
//! Heartbeats must not wait behind a caller's busy or blocked runtime, so they run on a runtime of their own: one
//! thread, however many claims there are.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;

use crate::sync::lock;
use crate::timers::Timers;

/// Handshakes cost processor time on the thread that sends the heartbeats; this many run at once.
const MAX_HANDSHAKES: usize = 4;

/// Reading certificates and the resolver's files, which may block.
const MAX_BLOCKING_THREADS: usize = 2;

#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) runtime: Handle,
    pub(crate) timers: Timers,
    pub(crate) handshakes: Semaphore,
}

/// The background thread, started by the first caller.
///
/// # Errors
///
/// When the system gives no thread or no descriptors for it; the next call tries again.
pub(crate) fn background() -> io::Result<Arc<Background>> {
    static STARTED: Mutex<Option<Arc<Background>>> = Mutex::new(None);
    let mut started = lock(&STARTED);
    match &*started {
        Some(background) => Ok(Arc::clone(background)),
        None => Ok(Arc::clone(started.insert(start()?))),
    }
}

fn start() -> io::Result<Arc<Background>> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("monolock-files")
        .build()?;
    let background = Arc::new(Background {
        runtime: runtime.handle().clone(),
        timers: Timers::default(),
        handshakes: Semaphore::new(MAX_HANDSHAKES),
    });
    let timers = background.timers.clone();
    std::thread::Builder::new()
        .name("monolock-claims".to_owned())
        .spawn(move || runtime.block_on(timers.drive()))?;
    Ok(background)
}
