//! Can this S3 endpoint fence anything? Tries its conditional writes, and says what is wrong with them.
//!
//! ```text
//! AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... \
//!     cargo run -p monolock-adapters --features s3 --example s3-self-test -- http://127.0.0.1:9000 BUCKET [REGION]
//! ```
//!
//! The bucket is created if it is not there.

use std::process::ExitCode;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use monolock_adapters::s3::Objects;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (endpoint, bucket, region) = match arguments.as_slice() {
        [endpoint, bucket] => (endpoint, bucket, "us-east-1"),
        [endpoint, bucket, region] => (endpoint, bucket, region.as_str()),
        _ => {
            eprintln!("usage: s3-self-test ENDPOINT BUCKET [REGION]");
            return ExitCode::from(2);
        }
    };
    let client = client(endpoint, region);
    if let Err(error) = client.create_bucket().bucket(bucket).send().await {
        eprintln!(
            "bucket {bucket} was not created: {}",
            aws_sdk_s3::error::DisplayErrorContext(error)
        );
    }
    match Objects::new(client, bucket).self_test("self-test/").await {
        Ok(report) => {
            println!("{endpoint} passed: {report:?}");
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            println!("{endpoint} failed: {refusal}");
            ExitCode::FAILURE
        }
    }
}

fn client(endpoint: &str, region: &str) -> Client {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| "test".to_owned());
    let credentials = Credentials::new(
        variable("AWS_ACCESS_KEY_ID"),
        variable("AWS_SECRET_ACCESS_KEY"),
        None,
        None,
        "environment",
    );
    let http = Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(30))
        .build();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .timeout_config(timeouts)
        .endpoint_url(endpoint)
        .force_path_style(true)
        .region(Region::new(region.to_owned()))
        .credentials_provider(credentials)
        .build();
    Client::from_conf(config)
}
