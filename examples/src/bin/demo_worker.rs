//! The worker of the pair demo as a process of its own, so that it can be frozen.

use clap::Parser as _;
use monolock_examples::worker;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    worker::run(worker::Settings::parse()).await
}
