//! An S3 object that refuses a stale writer: `make example-s3`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use monolock_adapters::s3::Objects;
use monolock_adapters::{FenceError, Grant};
use monolock_examples::stage::s3::{self, BUCKET, client};
use monolock_examples::stage::{self, GuardedResource};

struct Report {
    objects: Objects,
}

impl GuardedResource for Report {
    const LOCK: &str = "nightly-report";

    async fn open(address: &str) -> Result<Self> {
        let objects = Objects::new(client(address), BUCKET);
        Ok(Self { objects })
    }

    /// Some endpoints only pretend to check conditions: ask once, when you choose one.
    async fn prepare(&self) -> Result<()> {
        self.objects.self_test("self-test/").await?;
        Ok(())
    }

    /// Under the lock: `grant` is what the client hands to the work.
    async fn write(&self, grant: &dyn Grant, text: &str) -> Result<(), FenceError> {
        self.objects.put(grant, "latest.csv", text.to_owned()).await
    }

    async fn read(&self) -> Result<String> {
        let found = self.objects.get("latest.csv").await?.context("never written")?;
        Ok(String::from_utf8(found.payload.to_vec())?)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    stage::play::<Report>(s3::endpoint).await
}
