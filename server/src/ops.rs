//! The operational HTTP endpoints.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::server::Shared;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(shared)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let text = shared.metrics.render(&shared.owner.report());
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text)
}

async fn healthz(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    match shared.stopping.is_cancelled() {
        false => (StatusCode::OK, "ok\n"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
    }
}

async fn readyz(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    match (shared.stopping.is_cancelled(), shared.is_ready()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "not the active server\n"),
        (false, true) => (StatusCode::OK, "ok\n"),
    }
}
