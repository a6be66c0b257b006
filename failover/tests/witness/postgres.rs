//! A row in a real PostgreSQL as the witness.

use std::time::Duration;

use monolock_failover::witness::{PostgresWitness, SwapOutcome, Witness, WitnessError};
use monolock_integration_tests::postgres::Postgres;
use sqlx::{Connection as _, PgConnection};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::suite::{Store, conforms, lost, record, won};

struct PostgresStore(Postgres);

impl PostgresStore {
    fn start() -> Self {
        Self(Postgres::local())
    }

    async fn connection(&self) -> PgConnection {
        PgConnection::connect(self.0.url()).await.unwrap()
    }

    fn witness(&self) -> PostgresWitness {
        witness(self.0.url())
    }
}

fn witness(url: &str) -> PostgresWitness {
    PostgresWitness::new(url, "pair")
        .unwrap()
        .with_time_limit(Duration::from_secs(30))
}

impl Store for PostgresStore {
    async fn open(&self) -> Box<dyn Witness> {
        Box::new(self.witness())
    }

    async fn delete(&self) {
        let done = sqlx::query("DELETE FROM monolock_witness")
            .execute(&mut self.connection().await)
            .await;
        assert_eq!(done.unwrap().rows_affected(), 1);
    }

    async fn back_up(&self) -> Vec<u8> {
        let record: String = sqlx::query_scalar("SELECT record FROM monolock_witness")
            .fetch_one(&mut self.connection().await)
            .await
            .unwrap();
        record.into_bytes()
    }

    async fn restore(&self, backup: &[u8]) {
        sqlx::query("UPDATE monolock_witness SET record = $1")
            .bind(std::str::from_utf8(backup).unwrap())
            .execute(&mut self.connection().await)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms() {
    conforms(&PostgresStore::start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pairs_have_rows_of_their_own() {
    let store = PostgresStore::start();
    let other = PostgresWitness::new(store.0.url(), "other pair").unwrap();
    won(&store.witness(), None, &record(1, 1)).await;
    won(&other, None, &record(2, 2)).await;
    assert_eq!(store.witness().read().await.unwrap(), Some(record(1, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_in_other_letters_is_the_same_record_and_one_that_is_none_is_refused() {
    let store = PostgresStore::start();
    let witness = store.witness();
    won(&witness, None, &record(1, 1)).await;
    let text = String::from_utf8(store.back_up().await).unwrap();
    store.restore(text.replace(',', ", ").as_bytes()).await;
    lost(&witness, Some(&record(9, 9)), &record(2, 1), Some(&record(1, 1))).await;
    won(&witness, Some(&record(1, 1)), &record(2, 1)).await;
    store.restore(b"{}").await;
    assert!(matches!(
        witness.read().await,
        Err(WitnessError::NotARecord { .. })
    ));
    let outcome = witness.swap(Some(&record(2, 1)), &record(3, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Failed(WitnessError::NotARecord { .. })),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_is_certain_not_to_have_happened() {
    let store = PostgresStore::start();
    won(&store.witness(), None, &record(1, 1)).await;
    let mut admin = store.connection().await;
    for statement in [
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON monolock_witness TO reader",
    ] {
        sqlx::query(statement).execute(&mut admin).await.unwrap();
    }
    let reader = witness(&store.0.url().replace("postgres@", "reader@"));
    assert_eq!(reader.read().await.unwrap(), Some(record(1, 1)));
    let outcome = reader.swap(Some(&record(1, 1)), &record(2, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Failed(WitnessError::Refused { .. })),
        "{outcome:?}"
    );
    let stranger = witness(&store.0.url().replace("postgres@", "stranger@"));
    let error = stranger.read().await.unwrap_err();
    assert!(matches!(error, WitnessError::Refused { .. }), "{error}");
    let nowhere = witness("postgres://postgres@127.0.0.1:1/postgres");
    let outcome = nowhere.swap(None, &record(1, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Failed(WitnessError::Unreachable { .. })),
        "{outcome:?}"
    );
    assert!(PostgresWitness::new("mysql://x", "pair").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_whose_answer_is_lost_is_unknown_and_the_next_operation_connects_anew() {
    let store = PostgresStore::start();
    won(&store.witness(), None, &record(1, 1)).await;
    let port = store
        .0
        .url()
        .split(':')
        .next_back()
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let target = format!("127.0.0.1:{port}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap().port();
    let (cut, mut cuts) = tokio::sync::watch::channel(());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&target).await.unwrap();
            cuts.mark_unchanged();
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = cuts.changed() => {}
            }
        }
    });
    let through = store.0.url().replace(&format!(":{port}/"), &format!(":{proxy}/"));
    let witness = witness(&through);
    assert_eq!(witness.read().await.unwrap(), Some(record(1, 1)));
    // The row is locked by somebody, so that the swap is on its way when the line is cut.
    let mut admin = store.connection().await;
    sqlx::query("BEGIN").execute(&mut admin).await.unwrap();
    sqlx::query("SELECT * FROM monolock_witness FOR UPDATE")
        .execute(&mut admin)
        .await
        .unwrap();
    let swap = async {
        let outcome = witness.swap(Some(&record(1, 1)), &record(2, 1)).await;
        assert!(matches!(outcome, SwapOutcome::Unknown(_)), "{outcome:?}");
    };
    let cutting = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let mut watcher = store.connection().await;
        loop {
            let waiting: i64 = sqlx::query_scalar(waits).fetch_one(&mut watcher).await.unwrap();
            if waiting == 1 {
                break;
            }
        }
        cut.send_replace(());
    };
    tokio::join!(swap, cutting);
    sqlx::query("COMMIT").execute(&mut admin).await.unwrap();
    let current = witness.read().await.unwrap();
    assert!(
        current == Some(record(1, 1)) || current == Some(record(2, 1)),
        "{current:?}"
    );
}
