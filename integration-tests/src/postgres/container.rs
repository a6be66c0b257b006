//! PostgreSQL in a container.
//!
//! The container's handle needs a runtime that lives as long as it does. A thread keeps both, so that tests with and
//! without a runtime of their own can use it.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use testcontainers::core::error::TestcontainersError;
use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use crate::guardian::Guardian;
use crate::wait::PATIENCE;

use super::READY;

const PORT: u16 = 5432;

#[derive(Debug)]
pub(super) struct Container {
    host: String,
    port: u16,
    keeper: Option<(Sender<()>, JoinHandle<()>)>,
    _guardian: Guardian,
}

struct Started {
    id: String,
    host: String,
    port: u16,
}

impl Container {
    pub(super) fn start() -> Self {
        let image = build_image();
        let (end, ended) = mpsc::channel();
        let (started, start) = mpsc::channel();
        let keeper = thread::spawn(move || keep(&image, &started, &ended));
        let Started { id, host, port } = start
            .recv()
            .expect("the keeper reports before it ends")
            .unwrap_or_else(|error| panic!("the PostgreSQL container does not start: {error}"));
        Self {
            host,
            port,
            keeper: Some((end, keeper)),
            _guardian: Guardian::new(r#"docker rm --force --volumes "$0""#, &id),
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Container {
    /// Waits until the container is removed.
    fn drop(&mut self) {
        if let Some((end, keeper)) = self.keeper.take() {
            drop(end);
            let _ = keeper.join();
        }
    }
}

/// Runs the container until `ended` is closed.
fn keep(image: &str, started: &Sender<Result<Started, TestcontainersError>>, ended: &Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    match runtime.block_on(run_on_a_free_port(image)) {
        Ok((container, report)) => {
            let _ = started.send(Ok(report));
            let _ = ended.recv();
            if let Err(error) = runtime.block_on(container.rm()) {
                eprintln!("a PostgreSQL container is left behind (make clean-test removes it): {error}");
            }
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    }
}

/// The engine picks the port on this machine, and when several containers start at once it can pick one that another has
/// just got; then the container does not start.
async fn run_on_a_free_port(
    image: &str,
) -> Result<(ContainerAsync<GenericImage>, Started), TestcontainersError> {
    for _ in 1..PORT_TRIES {
        match run(image).await {
            Err(error) if error.to_string().contains("address already in use") => {
                eprintln!("the engine picked a port in use: {error}");
            }
            ended => return ended,
        }
    }
    run(image).await
}

const PORT_TRIES: u32 = 5;

async fn run(image: &str) -> Result<(ContainerAsync<GenericImage>, Started), TestcontainersError> {
    let (name, tag) = image.split_once(':').expect("the script prints name:tag");
    let container = GenericImage::new(name, tag)
        .with_exposed_port(PORT.tcp())
        .with_wait_for(WaitFor::message_on_stderr(READY))
        .with_startup_timeout(PATIENCE)
        .start()
        .await?;
    let report = Started {
        id: container.id().to_owned(),
        host: container.get_host().await?.to_string(),
        port: container.get_host_port_ipv4(PORT.tcp()).await?,
    };
    Ok((container, report))
}

/// Makes the image unless it is there; returns `name:tag`.
fn build_image() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("images/build");
    let mut command = Command::new(&script);
    let output = command
        .arg("postgres")
        .output()
        .unwrap_or_else(|error| panic!("{} does not start: {error}", script.display()));
    assert!(
        output.status.success(),
        "{} postgres failed: {}",
        script.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
