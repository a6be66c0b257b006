//! The admin API and the operator's page.

mod guard;
mod page;

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router, middleware};
use monolock_core::{ClaimId, ForceRelease, LockView, Now};
use monolock_protocol::{BootInstant, Glob, LockName, Token};
use serde::{Deserialize, Serialize};

use crate::clock::{now, rfc3339};
use crate::config::{AuditTarget, Config};
use crate::metrics::Figures;
use crate::server::Shared;
use crate::session::Session;
use guard::Guard;

/// Everything on the admin address, with the routes of the embedding program.
pub(crate) fn router(shared: Arc<Shared>, extra: Router) -> Router {
    let guard = Arc::new(Guard::new(&shared));
    Router::new()
        .route("/", get(page::page))
        .route("/api/info", get(info))
        .route("/api/metrics", get(metrics))
        .route("/api/locks", get(locks))
        .route("/api/locks/{name}", get(lock))
        .route("/api/locks/{name}/release", post(release))
        .route("/api/locks/{name}/waiters/{remote_addr}", delete(kick))
        .with_state(shared)
        .merge(extra)
        .fallback(|| async { not_found("there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            problem(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path does not take this method",
            )
        })
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

async fn info(State(shared): State<Arc<Shared>>) -> Json<Info> {
    let report = shared.owner.report();
    let uptime = monolock_clock::boot_now().saturating_duration_since(shared.started);
    Json(Info {
        version: concat!("v", env!("CARGO_PKG_VERSION")),
        uptime_ms: uptime.as_millis(),
        config: ShownConfig::from(&shared.config),
        locks: report.locks,
        sessions: shared.metrics.connections_active.get(),
    })
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Json<ShownMetrics> {
    Json(ShownMetrics {
        time: rfc3339(now().wall),
        figures: shared.metrics.figures(&shared.owner.report()),
    })
}

async fn locks(State(shared): State<Arc<Shared>>, Query(filter): Query<Filter>) -> Json<Locks> {
    let pattern = filter.pattern.map(|pattern| Glob::new(&pattern));
    let matches = |lock: &LockView| {
        pattern
            .as_ref()
            .is_none_or(|glob| glob.matches(lock.lock.as_str()))
    };
    let locks = shared.owner.view(|table, session, now| {
        let shown = table.locks().filter(matches);
        shown.map(|lock| ShownLock::new(lock, session, now)).collect()
    });
    Json(Locks { locks })
}

async fn lock(State(shared): State<Arc<Shared>>, name: Result<Path<String>, PathRejection>) -> Response {
    let Some(name) = name.ok().and_then(|Path(name)| LockName::new(&name).ok()) else {
        return not_found("no such lock");
    };
    let shown = shared.owner.view(|table, session, now| {
        let lock = table.lock(&name)?;
        Some(ShownLock::new(lock, session, now))
    });
    match shown {
        Some(lock) => Json(lock).into_response(),
        None => not_found("nobody holds this lock or waits for it"),
    }
}

async fn release(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
    condition: Result<Query<Condition>, QueryRejection>,
) -> Response {
    let Some(name) = name.ok().and_then(|Path(name)| LockName::new(&name).ok()) else {
        return not_found("no such lock");
    };
    let Ok(Query(Condition { token })) = condition else {
        return problem(StatusCode::BAD_REQUEST, "token is not a number");
    };
    let done = shared.owner.step(|table, now| {
        let holder = table.lock(&name).and_then(|lock| lock.holder);
        let is_meant =
            token.is_none_or(|token| holder.is_some_and(|holder| holder.token == Token::new(token)));
        is_meant.then(|| table.handle_force_release(&name, now))
    });
    match done {
        Some(done @ (ForceRelease::Released(_) | ForceRelease::GraceEnded)) => {
            tracing::info!(lock = %name, ?done, "an operator released a lock");
            Json(Done { ok: true }).into_response()
        }
        Some(ForceRelease::NotHeld) => not_found("nobody holds this lock"),
        None => problem(
            StatusCode::CONFLICT,
            "the holder with this token no longer has the lock",
        ),
    }
}

async fn kick(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Response {
    let Ok(Path((name, remote_addr))) = path else {
        return not_found("no such lock");
    };
    let Ok(name) = LockName::new(&name) else {
        return not_found("no such lock");
    };
    if shared.owner.kick(&name, &remote_addr) {
        tracing::info!(lock = %name, remote_addr, "an operator removed a waiter");
        return Json(Done { ok: true }).into_response();
    }
    not_found("no waiter of this lock has this address")
}

fn not_found(what: &'static str) -> Response {
    problem(StatusCode::NOT_FOUND, what)
}

fn problem(status: StatusCode, error: &'static str) -> Response {
    (status, Json(Problem { error })).into_response()
}

#[derive(Serialize)]
struct Problem {
    error: &'static str,
}

#[derive(Serialize)]
struct Done {
    ok: bool,
}

#[derive(Deserialize)]
struct Filter {
    #[serde(rename = "match")]
    pattern: Option<String>,
}

/// Releases only the holder with this token: not one that came while an operator made up his mind.
#[derive(Deserialize)]
struct Condition {
    token: Option<u64>,
}

#[derive(Serialize)]
struct ShownMetrics {
    time: String,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Serialize)]
struct Info {
    version: &'static str,
    uptime_ms: u128,
    config: ShownConfig,
    locks: usize,
    sessions: i64,
}

/// What is off is an empty text.
#[derive(Serialize)]
struct ShownConfig {
    listen: String,
    ops_listen: String,
    admin_listen: String,
    tls: bool,
    mtls: bool,
    acl_file: String,
    audit_log: String,
    io_timeout_ms: u128,
}

impl From<&Config> for ShownConfig {
    fn from(config: &Config) -> Self {
        let path = |path: &std::path::PathBuf| path.display().to_string();
        Self {
            listen: config.listen.clone(),
            ops_listen: config.ops_listen.clone().unwrap_or_default(),
            admin_listen: config.admin_listen.clone().unwrap_or_default(),
            tls: config.tls.is_some(),
            mtls: config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
            acl_file: config.acl_file.as_ref().map(path).unwrap_or_default(),
            audit_log: match &config.audit_log {
                None => String::new(),
                Some(AuditTarget::Stdout) => "-".to_owned(),
                Some(AuditTarget::File(file)) => path(file),
            },
            io_timeout_ms: config.io_timeout.as_millis(),
        }
    }
}

#[derive(Serialize)]
struct Locks {
    locks: Vec<ShownLock>,
}

#[derive(Serialize)]
struct ShownLock {
    name: LockName,
    holder: Option<ShownHolder>,
    waiters: Vec<ShownWaiter>,
}

#[derive(Serialize)]
struct ShownHolder {
    identity: String,
    remote_addr: String,
    since: String,
    lease_ms: u32,
    token: u64,
}

#[derive(Serialize)]
struct ShownWaiter {
    identity: String,
    remote_addr: String,
    queued_at: String,
}

impl ShownLock {
    fn new(lock: LockView, session: &dyn Fn(ClaimId) -> Option<Arc<Session>>, now: Now) -> Self {
        let peer = |claim| match session(claim) {
            Some(session) => (session.identity.to_string(), session.remote_addr.to_string()),
            None => Default::default(),
        };
        let holder = lock.holder.map(|holder| {
            let (identity, remote_addr) = peer(holder.claim);
            ShownHolder {
                identity,
                remote_addr,
                since: wall_time_of(holder.since, now),
                lease_ms: holder.lease.as_millis(),
                token: holder.token.get(),
            }
        });
        let waiters = lock.waiters.into_iter().map(|waiter| {
            let (identity, remote_addr) = peer(waiter.claim);
            ShownWaiter {
                identity,
                remote_addr,
                queued_at: wall_time_of(waiter.queued_at, now),
            }
        });
        Self {
            name: lock.lock,
            holder,
            waiters: waiters.collect(),
        }
    }
}

fn wall_time_of(moment: BootInstant, now: Now) -> String {
    rfc3339(
        now.wall
            .saturating_sub(now.boot.saturating_duration_since(moment)),
    )
}
