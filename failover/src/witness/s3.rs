//! An object in S3, or in a store that speaks it, as the witness.
//!
//! A swap is one write on the condition that the object's ETag is still the one of the expected record (`If-Match`), or
//! that there is no object (`If-None-Match: *`). An ETag is a digest of the bytes, and the bytes are the record, so equal
//! ETags are equal records. The store must check the conditions *atomically*: AWS does; of others, some ignore them and
//! some let several win. Run the self-test of `monolock-adapters` against a store before trusting it with this.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{Builder, RequestChecksumCalculation, ResponseChecksumValidation};
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use futures_util::future::BoxFuture;
use monolock_failover_core::Record;
use tokio::sync::OnceCell;

use super::{SwapOutcome, Witness, WitnessError, decode_record, encode_record};

/// Where an object is: `s3://BUCKET/KEY`, and after a `?`, joined by `&`, what differs from AWS's own: `region=`,
/// `endpoint=` (which also puts the bucket into the path), `quoted_etags=false` (for Ceph). Credentials come from where
/// the AWS tools look for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Location {
    bucket: String,
    key: String,
    region: Option<String>,
    endpoint: Option<String>,
    quoted_etags: bool,
}

/// A record in an object.
pub struct S3Witness {
    location: S3Location,
    time_limit: Duration,
    client: OnceCell<Client>,
    /// The record that was last seen in the object, and its ETag: most swaps expect just that.
    last_seen: Mutex<Option<Seen>>,
}

/// What the object held.
#[derive(Clone)]
struct Seen {
    record: Record,
    etag: String,
}

/// How a conditional write was answered.
enum Answer {
    Done {
        etag: Option<String>,
    },
    /// The condition did not hold, or another write was in progress: not written.
    Race,
    /// Refused for another reason: not written.
    Refused(WitnessError),
    /// No answer, or one that says nothing: written, not written, or still to be written.
    Lost(WitnessError),
}

impl S3Location {
    /// Reads `s3://BUCKET/KEY?region=...&endpoint=...`.
    ///
    /// # Errors
    ///
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("s3://")
            .ok_or("it begins otherwise than s3://")?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, key) = place
            .split_once('/')
            .ok_or("it names no object: write s3://bucket/key")?;
        if bucket.is_empty() || key.is_empty() {
            return Err("it names no object: write s3://bucket/key".into());
        }
        let mut location = Self {
            bucket: bucket.into(),
            key: key.into(),
            region: None,
            endpoint: None,
            quoted_etags: true,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("region", region)) => location.region = Some(region.into()),
                Some(("endpoint", endpoint)) => location.endpoint = Some(endpoint.into()),
                Some(("quoted_etags", "true")) => location.quoted_etags = true,
                Some(("quoted_etags", "false")) => location.quoted_etags = false,
                _ => {
                    return Err(format!(
                        "{option:?} is none of region=, endpoint=, quoted_etags=true and quoted_etags=false"
                    ));
                }
            }
        }
        Ok(location)
    }
}

impl S3Witness {
    /// How long a request may take, unless set otherwise.
    pub const TIME_LIMIT: Duration = Duration::from_secs(2);

    /// The witness at `location`. Looks for credentials and connects when first used: a node may start while its witness
    /// is down.
    #[must_use]
    pub fn new(location: S3Location) -> Self {
        Self {
            location,
            time_limit: Self::TIME_LIMIT,
            client: OnceCell::new(),
            last_seen: Mutex::default(),
        }
    }

    /// The witness at `location`, through a client with its own endpoint, region and credentials.
    #[must_use]
    pub fn with_client(location: S3Location, client: Client) -> Self {
        Self {
            client: OnceCell::new_with(Some(client)),
            ..Self::new(location)
        }
    }

    /// Bounds every request to `time_limit`. A swap is one request, or three after a lost race.
    #[must_use]
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    async fn client(&self) -> &Client {
        self.client.get_or_init(|| connect(&self.location)).await
    }

    async fn find(&self) -> Result<Option<Seen>, WitnessError> {
        let seen = tokio::time::timeout(self.time_limit, self.get())
            .await
            .unwrap_or_else(|_| Err(self.unreachable("it did not answer in time")))?;
        self.remember(seen.clone());
        Ok(seen)
    }

    async fn get(&self) -> Result<Option<Seen>, WitnessError> {
        let request = self
            .client()
            .await
            .get_object()
            .bucket(&self.location.bucket)
            .key(&self.location.key);
        let found = match request.customize().config_override(once()).send().await {
            Ok(found) => found,
            Err(error) if status_of(&error) == Some(404) && error.code() != Some(NO_BUCKET) => {
                return Ok(None);
            }
            Err(error) if status_of(&error).is_some_and(|status| (400..500).contains(&status)) => {
                return Err(self.refused(error));
            }
            Err(error) => return Err(self.unreachable(DisplayErrorContext(error))),
        };
        let not_a_record = |reason: String| WitnessError::NotARecord {
            witness: self.name(),
            reason,
        };
        if found.content_length.is_some_and(|length| length > MOST_BYTES) {
            return Err(not_a_record("it is far too large".into()));
        }
        let etag = found.e_tag.ok_or_else(|| not_a_record("it has no ETag".into()))?;
        let body = found.body.collect().await;
        let body = body.map_err(|error| self.unreachable(error))?.into_bytes();
        let record = decode_record(&body).map_err(not_a_record)?;
        Ok(Some(Seen { record, etag }))
    }

    async fn try_swap(&self, expected: Option<&Record>, new: &Record) -> SwapOutcome {
        let mut known = self.seen_as(expected);
        for _ in 0..ATTEMPTS {
            if expected.is_none() || known.is_some() {
                let putting = self.put(known.as_deref(), new);
                let answer = tokio::time::timeout(self.time_limit, putting)
                    .await
                    .unwrap_or_else(|_| Answer::Lost(self.unreachable("it did not answer in time")));
                match answer {
                    Answer::Done { etag } => {
                        self.remember(etag.map(|etag| Seen {
                            record: new.clone(),
                            etag,
                        }));
                        return SwapOutcome::Won;
                    }
                    Answer::Race => {}
                    Answer::Refused(error) => return SwapOutcome::Failed(error),
                    Answer::Lost(error) => {
                        self.remember(None);
                        return SwapOutcome::Unknown(error);
                    }
                }
            }
            let seen = match self.find().await {
                Ok(seen) => seen,
                Err(error) => return SwapOutcome::Failed(error),
            };
            if seen.as_ref().map(|seen| &seen.record) != expected {
                return SwapOutcome::Lost {
                    current: seen.map(|seen| seen.record),
                };
            }
            known = seen.map(|seen| seen.etag);
        }
        SwapOutcome::Failed(self.unreachable("it refuses the right ETag: for Ceph, add quoted_etags=false"))
    }

    /// Writes the record if the object has this ETag, or if there is none.
    async fn put(&self, etag: Option<&str>, new: &Record) -> Answer {
        let request = self
            .client()
            .await
            .put_object()
            .bucket(&self.location.bucket)
            .key(&self.location.key)
            .content_type("application/json")
            .body(ByteStream::from(encode_record(new)));
        let request = match etag {
            Some(etag) => request.if_match(self.as_condition(etag)),
            None => request.if_none_match("*"),
        };
        match request.customize().config_override(once()).send().await {
            Ok(done) => Answer::Done { etag: done.e_tag },
            Err(error) => self.answer_of(error),
        }
    }

    fn answer_of<E>(&self, error: SdkError<E, HttpResponse>) -> Answer
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let no_bucket = error.code() == Some(NO_BUCKET);
        match (status_of(&error), &error) {
            (_, SdkError::ConstructionFailure(_)) => Answer::Refused(self.refused(error)),
            (Some(404), _) if no_bucket => Answer::Refused(self.refused(error)),
            // 404: the object of the condition is gone. 409: another write of it is in progress.
            (Some(404 | 409 | 412), _) => Answer::Race,
            (Some(408), _) => Answer::Lost(self.unreachable(DisplayErrorContext(error))),
            (Some(300..500), _) => Answer::Refused(self.refused(error)),
            // No answer, or the server's own trouble: it can have happened.
            (Some(_) | None, _) => Answer::Lost(self.unreachable(DisplayErrorContext(error))),
        }
    }

    /// The ETag of the expected record, if that is what was last seen.
    fn seen_as(&self, expected: Option<&Record>) -> Option<String> {
        let last_seen = self.last_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = last_seen.as_ref()?;
        (Some(&seen.record) == expected).then(|| seen.etag.clone())
    }

    fn remember(&self, seen: Option<Seen>) {
        *self.last_seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// RFC 9110 wants quotes around an ETag; Ceph understands it only without.
    fn as_condition(&self, etag: &str) -> String {
        let bare = etag.trim_matches('"');
        if self.location.quoted_etags {
            format!("\"{bare}\"")
        } else {
            bare.into()
        }
    }

    fn name(&self) -> String {
        format!("s3://{}/{}", self.location.bucket, self.location.key)
    }

    fn refused<E>(&self, error: SdkError<E, HttpResponse>) -> WitnessError
    where
        E: std::error::Error + 'static,
    {
        WitnessError::Refused {
            witness: self.name(),
            reason: format!(
                "{}: the bucket must exist, and the credentials allow s3:GetObject, s3:PutObject and s3:ListBucket",
                DisplayErrorContext(error)
            ),
        }
    }

    fn unreachable(&self, reason: impl fmt::Display) -> WitnessError {
        WitnessError::Unreachable {
            witness: self.name(),
            reason: reason.to_string(),
        }
    }
}

impl fmt::Debug for S3Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Witness")
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

impl Witness for S3Witness {
    fn read(&self) -> BoxFuture<'_, Result<Option<Record>, WitnessError>> {
        Box::pin(async move { Ok(self.find().await?.map(|seen| seen.record)) })
    }

    fn swap<'a>(&'a self, expected: Option<&'a Record>, new: &'a Record) -> BoxFuture<'a, SwapOutcome> {
        Box::pin(self.try_swap(expected, new))
    }
}

async fn connect(location: &S3Location) -> Client {
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
    if let Some(region) = &location.region {
        loader = loader.region(Region::new(region.clone()));
    }
    let shared = loader.load().await;
    let mut config = aws_sdk_s3::config::Builder::from(&shared);
    if let Some(endpoint) = &location.endpoint {
        config = config.endpoint_url(endpoint).force_path_style(true);
    }
    Client::from_conf(config.build())
}

/// No retries behind our back (a repeated write that had landed answers "precondition failed"), and no checksum
/// trailers, which not every store reads.
fn once() -> Builder {
    Builder::new()
        .retry_config(RetryConfig::disabled())
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
}

fn status_of<E>(error: &SdkError<E, HttpResponse>) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

const NO_BUCKET: &str = "NoSuchBucket";
/// A record has about two hundred bytes.
const MOST_BYTES: i64 = 64 * 1024;
/// How often a write is tried that found the expected record and still lost: to somebody who has rewritten the same.
const ATTEMPTS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_bucket_a_key_and_options() {
        let plain = S3Location::parse("s3://bucket/pairs/a.json").unwrap();
        assert_eq!(
            (plain.bucket.as_str(), plain.key.as_str()),
            ("bucket", "pairs/a.json")
        );
        assert!(plain.quoted_etags && plain.region.is_none() && plain.endpoint.is_none());
        let text = "s3://b/k?region=eu-west-1&endpoint=https://ceph:8000&quoted_etags=false";
        let full = S3Location::parse(text).unwrap();
        assert_eq!(full.region.as_deref(), Some("eu-west-1"));
        assert_eq!(full.endpoint.as_deref(), Some("https://ceph:8000"));
        assert!(!full.quoted_etags);
        for wrong in [
            "s3://",
            "s3://b",
            "s3://b/",
            "s3:///k",
            "http://b/k",
            "s3://b/k?x=y",
            "s3://b/k?region",
        ] {
            S3Location::parse(wrong).expect_err(wrong);
        }
    }
}
