//! Single requests, and what their answers mean.

use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{Builder, RequestChecksumCalculation, ResponseChecksumValidation};
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use monolock_protocol::Token;

use super::record::{Layout, RECORD_LEN, Record};
use crate::{BoxError, FenceError};

/// A client, a bucket, and how this endpoint wants its ETags.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) client: Client,
    pub(crate) name: String,
    /// RFC 9110 wants quotes around an ETag; some endpoints understand it only without.
    pub(crate) quoted_etags: bool,
}

/// What a key holds.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    /// The ETag; none when there is no object.
    pub(crate) etag: Option<String>,
    pub(crate) state: State,
    /// The payload, if the whole object was asked for; empty otherwise.
    pub(crate) payload: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No object.
    Absent,
    /// An object without a record: never written under a lock.
    Foreign,
    /// An object, or a tombstone.
    Fenced(Record),
}

/// How much of an object to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Record,
    Whole,
}

/// What became of a conditional write.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    /// Its condition did not hold, or another write was in progress: not written.
    Race(BoxError),
    /// Refused for another reason: not written.
    Refused(BoxError),
    /// No answer, or one that says nothing: written, not written, or still to be written.
    Lost(BoxError),
}

impl Current {
    pub(crate) fn token(&self) -> Token {
        match self.state {
            State::Absent | State::Foreign => Token::ZERO,
            State::Fenced(record) => record.token,
        }
    }

    pub(crate) fn write_id(&self) -> Option<u128> {
        match self.state {
            State::Absent | State::Foreign => None,
            State::Fenced(record) => Some(record.write_id),
        }
    }

    /// True when a reader finds something.
    pub(crate) fn is_present(&self) -> bool {
        match self.state {
            State::Absent => false,
            State::Foreign => true,
            State::Fenced(record) => !record.deleted,
        }
    }
}

impl Bucket {
    /// Reads a key. One request; two for an empty object that has no record.
    pub(crate) async fn read(
        &self,
        key: &str,
        layout: Layout,
        extent: Extent,
    ) -> Result<Current, FenceError> {
        let range = match (extent, layout) {
            (Extent::Whole, _) => None,
            (Extent::Record, Layout::Header) => Some(format!("bytes=0-{}", RECORD_LEN - 1)),
            (Extent::Record, Layout::Trailer) => Some(format!("bytes=-{RECORD_LEN}")),
        };
        match self.get(key, range).await {
            Ok((etag, bytes)) => Ok(Self::current(etag, bytes, layout)),
            Err(error) if status_of(&error) == Some(404) && error.code() != Some("NoSuchBucket") => {
                Ok(Current {
                    etag: None,
                    state: State::Absent,
                    payload: Bytes::new(),
                })
            }
            // No range fits an empty object.
            Err(error) if status_of(&error) == Some(416) => {
                let (etag, bytes) = self
                    .get(key, None)
                    .await
                    .map_err(|error| FenceError::Backend(boxed(error)))?;
                Ok(Self::current(etag, bytes, layout))
            }
            Err(error) => Err(FenceError::Backend(boxed(error))),
        }
    }

    /// Writes a whole object if the key is still as it was read.
    pub(crate) async fn put(&self, key: &str, body: Bytes, seen: Option<&str>) -> Answer {
        let mut put = self
            .client
            .put_object()
            .bucket(&self.name)
            .key(key)
            .body(ByteStream::from(body));
        put = match seen {
            Some(etag) => put.if_match(self.etag(etag)),
            None => put.if_none_match("*"),
        };
        match put.customize().config_override(plain()).send().await {
            Ok(_) => Answer::Done,
            Err(error) => answer_of(error),
        }
    }

    /// The ETag as this endpoint wants it in a condition.
    pub(crate) fn etag(&self, etag: &str) -> String {
        let bare = etag.trim_matches('"');
        if self.quoted_etags {
            format!("\"{bare}\"")
        } else {
            bare.to_owned()
        }
    }

    async fn get(
        &self,
        key: &str,
        range: Option<String>,
    ) -> Result<(String, Bytes), SdkError<aws_sdk_s3::operation::get_object::GetObjectError, HttpResponse>>
    {
        let get = self
            .client
            .get_object()
            .bucket(&self.name)
            .key(key)
            .set_range(range);
        let found = get.customize().config_override(reading()).send().await?;
        let etag = found.e_tag.unwrap_or_default();
        let body = found
            .body
            .collect()
            .await
            .map_err(SdkError::construction_failure)?;
        Ok((etag, body.into_bytes()))
    }

    fn current(etag: String, bytes: Bytes, layout: Layout) -> Current {
        let (state, payload) = match Record::find(layout, &bytes) {
            Some((record, range)) => (State::Fenced(record), bytes.slice(range)),
            None => (State::Foreign, bytes),
        };
        Current {
            etag: Some(etag),
            state,
            payload,
        }
    }
}

/// For writes: no retries behind our back (a repeated write that had landed answers "precondition failed"), and no
/// checksum trailers, which not every endpoint reads.
pub(crate) fn plain() -> Builder {
    Builder::new()
        .retry_config(RetryConfig::disabled())
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
}

/// For reads, which may be repeated as the client is configured.
pub(crate) fn reading() -> Builder {
    Builder::new().response_checksum_validation(ResponseChecksumValidation::WhenRequired)
}

pub(crate) fn answer_of<E>(error: SdkError<E, HttpResponse>) -> Answer
where
    E: std::error::Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    let no_such_bucket = error.code() == Some("NoSuchBucket");
    match (status_of(&error), &error) {
        (_, SdkError::ConstructionFailure(_)) => Answer::Refused(boxed(error)),
        (Some(404), _) if no_such_bucket => Answer::Refused(boxed(error)),
        // 404: the object of the precondition is gone. 409: another write of the key is in progress.
        (Some(404 | 409 | 412), _) => Answer::Race(boxed(error)),
        (Some(408), _) => Answer::Lost(boxed(error)),
        (Some(300..408 | 410..412 | 413..500), _) => Answer::Refused(boxed(error)),
        // No answer, a server's own trouble, or a success that turned into an error halfway: it can have happened.
        (Some(_) | None, _) => Answer::Lost(boxed(error)),
    }
}

/// The error with all its causes in one text: those of the SDK show only their outermost words.
pub(crate) fn boxed<E>(error: SdkError<E, HttpResponse>) -> BoxError
where
    E: std::error::Error + Send + Sync + 'static,
{
    DisplayErrorContext(error).to_string().into()
}

fn status_of<E>(error: &SdkError<E, HttpResponse>) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}
