//! A client of the endpoint that the example uses.

use std::env;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use super::servers;

/// The bucket that the example writes to.
pub const BUCKET: &str = "monolock-example";

/// A client with the credentials of the environment; any will do for an endpoint that does not check them.
#[must_use]
pub fn client(endpoint: &str) -> Client {
    let variable = |name: &str, otherwise: &str| env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let credentials = Credentials::new(
        variable("AWS_ACCESS_KEY_ID", "example"),
        variable("AWS_SECRET_ACCESS_KEY", "example"),
        None,
        None,
        "environment",
    );
    let http = Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    // The SDK waits for an answer without end unless it is told otherwise.
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(30))
        .build();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .timeout_config(timeouts)
        .endpoint_url(endpoint)
        .force_path_style(true)
        .region(Region::new(variable("AWS_REGION", "us-east-1")))
        .credentials_provider(credentials)
        .build();
    Client::from_conf(config)
}

/// An endpoint with the example's bucket: that of [`servers::s3`].
///
/// # Errors
///
/// When there is none, or it does not take the bucket.
pub async fn endpoint(folder: std::path::PathBuf) -> anyhow::Result<servers::Running> {
    let running = servers::s3(folder).await?;
    let created = client(&running.address)
        .create_bucket()
        .bucket(BUCKET)
        .send()
        .await;
    if let Err(refused) = created.map_err(aws_sdk_s3::Error::from) {
        match refused {
            aws_sdk_s3::Error::BucketAlreadyOwnedByYou(_) => {}
            other => return Err(other.into()),
        }
    }
    Ok(running)
}
