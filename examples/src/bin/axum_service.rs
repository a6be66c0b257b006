//! An HTTP service that refuses a stale client: `make example-axum`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{Method, Request};
use axum::routing::get;
use monolock_adapters::max_seen::Database;
use monolock_adapters::sqlite::{self, Fence};
use monolock_adapters::tower::{CarryToken as _, FenceLayer, Guarding, check_answer};
use monolock_adapters::{FenceError, Grant};
use monolock_examples::stage::{self, GuardedResource, http, servers::Running};

/// The service: whatever changes the display must carry the token of the lock "display".
async fn service(folder: PathBuf) -> Result<Router> {
    let (tokens, table) = (sqlite::open(folder.join("tokens.db")).await?, Fence::new());
    table.install(&tokens).await?;
    let seen = Database::new(tokens, table); // on disk before a request is let through
    let fence = FenceLayer::new(seen, |request: &Request<_>| match *request.method() {
        Method::GET => Guarding::Nothing,
        _ => Guarding::resource("display"),
    });
    Ok(Router::new()
        .route("/display", get(show).put(change))
        .with_state(Text::default())
        .layer(fence))
}

/// The client.
struct Display {
    address: String,
}

impl GuardedResource for Display {
    const LOCK: &str = "display";

    async fn open(address: &str) -> Result<Self> {
        let address = address.to_owned();
        Ok(Self { address })
    }

    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Under the lock: `grant` is what the client hands to the work. One that is over makes no request.
    async fn write(&self, grant: &dyn Grant, text: &str) -> Result<(), FenceError> {
        let stamp = grant.stamp()?;
        let request = Request::put("/display").carry(&stamp)?.body(text.to_owned());
        let request = request.map_err(FenceError::caller)?;
        let answer = http::send(&self.address, request).await;
        let answer = answer.map_err(|source| FenceError::Unknown {
            stamp: stamp.clone(),
            source,
        })?;
        check_answer(&answer, &stamp)
    }

    async fn read(&self) -> Result<String> {
        let request = Request::get("/display").body(String::new())?;
        let answer = http::send(&self.address, request).await;
        Ok(answer.map_err(anyhow::Error::from_boxed)?.into_body())
    }
}

type Text = Arc<Mutex<String>>;

async fn show(State(text): State<Text>) -> String {
    text.lock().expect("no handler panics").clone()
}

async fn change(State(text): State<Text>, new: String) {
    *text.lock().expect("no handler panics") = new;
}

#[tokio::main]
async fn main() -> ExitCode {
    let start = async |folder| -> Result<Running> { http::serve(service(folder).await?).await };
    stage::play::<Display>(start).await
}
