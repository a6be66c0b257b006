//! An object in a real S3 server as the witness: MiniStack, which `integration-tests/setup` installs.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use monolock_failover::witness::{S3Location, S3Witness, SwapOutcome, Witness, WitnessError};
use monolock_integration_tests::port::free_port;
use monolock_integration_tests::process::Process;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::suite::{Store, conforms, lost, record, won};

struct S3Store {
    process: Option<Process>,
    port: u16,
    folder: TempDir,
}

impl S3Store {
    async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("s3").tempdir().unwrap();
        let mut store = Self {
            process: None,
            port: free_port(),
            folder,
        };
        store.run().await;
        let created = store.client().create_bucket().bucket("bucket").send().await;
        created.expect("a bucket");
        store
    }

    async fn run(&mut self) {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let program = target.join("test-tools/python/bin/ministack");
        assert!(
            program.exists(),
            "{} is needed for this test: run integration-tests/setup",
            program.display()
        );
        let folder = self.folder.path();
        let mut command = Command::new(program);
        command
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", self.port.to_string())
            .env("SERVICES", "s3")
            .env("S3_PERSIST", "1")
            .env("S3_DATA_DIR", folder.join("data"))
            .env("TMPDIR", folder)
            .env("HOME", folder)
            .current_dir(folder);
        self.process = Some(Process::spawn("ministack", command));
        let client = self.client();
        let starting = async {
            while client.list_buckets().send().await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), starting)
            .await
            .expect("MiniStack starts");
    }

    fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    fn client(&self) -> Client {
        client(self.port)
    }

    fn witness(&self) -> S3Witness {
        witness(self.client(), "s3://bucket/pair")
    }

    async fn put(&self, bytes: &[u8], metadata: &str) {
        self.client()
            .put_object()
            .bucket("bucket")
            .key("pair")
            .metadata("by", metadata)
            .body(ByteStream::from(bytes.to_vec()))
            .send()
            .await
            .unwrap();
    }
}

fn client(port: u16) -> Client {
    let http = Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .endpoint_url(format!("http://127.0.0.1:{port}"))
        .force_path_style(true)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .build();
    Client::from_conf(config)
}

fn witness(client: Client, location: &str) -> S3Witness {
    S3Witness::with_client(S3Location::parse(location).unwrap(), client)
        .with_time_limit(Duration::from_secs(30))
}

impl Store for S3Store {
    async fn open(&self) -> Box<dyn Witness> {
        Box::new(self.witness())
    }

    async fn delete(&self) {
        let client = self.client();
        let deleting = client.delete_object().bucket("bucket").key("pair");
        deleting.send().await.unwrap();
    }

    async fn back_up(&self) -> Vec<u8> {
        let client = self.client();
        let found = client
            .get_object()
            .bucket("bucket")
            .key("pair")
            .send()
            .await
            .unwrap();
        found.body.collect().await.unwrap().to_vec()
    }

    async fn restore(&self, backup: &[u8]) {
        self.put(backup, "backup").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_conforms() {
    conforms(&S3Store::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_swap_survives_the_death_of_the_server() {
    let mut store = S3Store::start().await;
    let witness = store.witness();
    won(&witness, None, &record(1, 1)).await;
    won(&witness, Some(&record(1, 1)), &record(2, 1)).await;
    store.stop();
    let outcome = witness.swap(Some(&record(2, 1)), &record(3, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Unknown(WitnessError::Unreachable { .. })),
        "{outcome:?}"
    );
    store.run().await;
    assert_eq!(witness.read().await.unwrap(), Some(record(2, 1)));
    won(&witness, Some(&record(2, 1)), &record(3, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_in_other_letters_is_the_same_record_and_one_that_is_none_is_refused() {
    let store = S3Store::start().await;
    let witness = store.witness();
    won(&witness, None, &record(1, 1)).await;
    let text = String::from_utf8(store.back_up().await).unwrap();
    store.put(text.replace(',', ", ").as_bytes(), "hand").await;
    lost(&witness, Some(&record(9, 9)), &record(2, 1), Some(&record(1, 1))).await;
    won(&witness, Some(&record(1, 1)), &record(2, 1)).await;
    store.put(b"{}", "hand").await;
    let outcome = witness.swap(Some(&record(2, 1)), &record(3, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Failed(WitnessError::NotARecord { .. })),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_bucket_is_no_missing_record() {
    let store = S3Store::start().await;
    let nowhere = witness(store.client(), "s3://no-such-bucket/pair");
    let error = nowhere.read().await.unwrap_err();
    assert!(matches!(error, WitnessError::Refused { .. }), "{error}");
    for expected in [None, Some(&record(1, 1))] {
        let outcome = nowhere.swap(expected, &record(2, 1)).await;
        assert!(
            matches!(outcome, SwapOutcome::Failed(WitnessError::Refused { .. })),
            "{outcome:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_whose_answer_is_lost_is_unknown_though_it_was_made() {
    let store = S3Store::start().await;
    won(&store.witness(), None, &record(1, 1)).await;
    let target = ("127.0.0.1", store.port);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(target).await.unwrap();
            tokio::spawn(cut_after_write(client, server));
        }
    });
    let through = witness(client(proxy), "s3://bucket/pair");
    let outcome = through.swap(Some(&record(1, 1)), &record(2, 1)).await;
    assert!(matches!(outcome, SwapOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(store.witness().read().await.unwrap(), Some(record(2, 1)));
    assert_eq!(through.read().await.unwrap(), Some(record(2, 1)));
    let outcome = through.swap(Some(&record(2, 1)), &record(3, 1)).await;
    assert!(matches!(outcome, SwapOutcome::Unknown(_)), "{outcome:?}");
}

/// Passes everything on until a write has been answered, and withholds that answer.
async fn cut_after_write(mut client: TcpStream, mut server: TcpStream) {
    let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
    let mut writing = false;
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(read @ 1..) = read else { return };
                writing |= from_client[..read].starts_with(b"PUT ");
                if server.write_all(&from_client[..read]).await.is_err() { return; }
            }
            read = server.read(&mut from_server) => {
                let Ok(read @ 1..) = read else { return };
                if writing && !from_server[..read].starts_with(b"HTTP/1.1 100") { return; }
                if client.write_all(&from_server[..read]).await.is_err() { return; }
            }
        }
    }
}
