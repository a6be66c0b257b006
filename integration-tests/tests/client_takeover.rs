//! What a holder with the client library is told when its pair changes hands, and that it comes back with a larger token.

use std::future::Future;
use std::time::Duration;

use monolock_client::{AcquireError, Client, ErrorCode, Guard, Lost, Token};
use monolock_examples::pair::{self, Pair};
use monolock_failover::core::NodeId;
use monolock_integration_tests::{TempDir, binaries};
use tokio::sync::{Mutex, MutexGuard};

/// Long enough for a busy machine, as in `pair.rs`.
const TTL: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);
/// One pair at a time, for the same reason.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A pair, and a claim that its active node has granted.
struct Fixture {
    pair: Pair,
    active: NodeId,
    client: Client,
    guard: Guard,
    token: Token,
    _folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Fixture {
    async fn new() -> Self {
        let turn = ONE_AT_A_TIME.lock().await;
        let folder = TempDir::with_prefix("monolock-cause-").expect("a temporary folder can be made");
        let program = binaries::path("monolock-failover");
        let pair = Pair::start(&program, folder.path(), TTL, None).expect("the pair starts");
        let (active, _) = pair.wait_until_healthy().await.expect("healthy");
        let client = pair::client(&pair).expect("a client");
        let guard = acquire(&client).await;
        assert_eq!(guard.grant().server(), pair.lock_address(active));
        let token = guard.token().expect("held");
        Self {
            pair,
            active,
            client,
            guard,
            token,
            _folder: folder,
            _turn: turn,
        }
    }

    /// Waits for the loss, and then for the next grant, which must be the other node's and larger.
    async fn lose_and_come_back(self) -> Lost {
        let cause = patiently(self.guard.lost()).await;
        assert_eq!(self.guard.token(), Err(cause.clone()));
        let again = acquire(&self.client).await;
        assert_eq!(again.grant().server(), self.pair.lock_address(self.active.peer()));
        let after = again.token().expect("held");
        assert!(after > self.token, "{after} after {}", self.token);
        cause
    }
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it happens in time")
}

async fn acquire(client: &Client) -> Guard {
    let acquired: Result<Guard, AcquireError> =
        patiently(client.claim("cause", LEASE).acquire_with_retry()).await;
    acquired.expect("granted")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_active_is_a_closed_connection() {
    let mut fixture = Fixture::new().await;
    fixture.pair.kill(fixture.active).await.expect("killed");
    let cause = fixture.lose_and_come_back().await;
    assert!(matches!(cause, Lost::Closed(_)), "{cause:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_active_is_a_heartbeat_timeout() {
    let mut fixture = Fixture::new().await;
    fixture.pair.freeze(fixture.active).expect("frozen");
    let cause = fixture.lose_and_come_back().await;
    assert!(matches!(cause, Lost::HeartbeatTimeout { .. }), "{cause:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_is_told_as_a_server_that_shuts_down() {
    let fixture = Fixture::new().await;
    patiently(fixture.pair.hand_over()).await.expect("handed over");
    let cause = fixture.lose_and_come_back().await;
    let told = matches!(
        &cause,
        Lost::Server {
            code: ErrorCode::ShuttingDown,
            ..
        }
    );
    assert!(told, "{cause:?}");
}
