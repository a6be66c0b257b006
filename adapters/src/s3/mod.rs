//! Objects of S3 and its compatibles, fenced by conditional writes.
//!
//! ```no_run
//! use monolock_adapters::s3::Objects;
//! use monolock_adapters::{FenceError, Grant};
//!
//! # async fn publish(client: aws_sdk_s3::Client, grant: &dyn Grant) -> Result<(), Box<dyn std::error::Error>> {
//! let objects = Objects::new(client, "reports");
//! objects.self_test("self-test/").await?; // once: refuses an endpoint that only pretends to check conditions
//!
//! match objects.put(grant, "latest.csv", "a;b\n1;2\n").await {
//!     Ok(()) => println!("written"),
//!     Err(FenceError::Stale { highest, .. }) => println!("the lock is lost: {highest} was here"),
//!     Err(other) => return Err(other.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is fenced, and how
//!
//! **Each object by itself**: a write reads the object's record, compares tokens, and writes under `If-Match` (or
//! `If-None-Match: *`) with the ETag it read. If anything came in between, it starts over with what is there then. For
//! many objects under one lock use a [`Draft`]: immutable data objects, made visible by one fenced pointer.
//!
//! An ETag is a digest of the *bytes*. If a newer holder writes the very bytes that are there already, the ETag stays, and
//! the precondition of a paused stale writer still holds. Metadata does not change that: it is not part of the ETag. So
//! each object carries a **record** within its bytes: one line of text with the token and a random number of the write.
//!
//! | layout | a plain reader (`curl`, `aws s3 cp`) sees | fenced | cost of a write |
//! | --- | --- | --- | --- |
//! | [`Layout::Header`] | the record as the first line, then the payload | yes | 1 ranged GET, 1 PUT |
//! | [`Layout::Trailer`] | the payload, then the record as the last line | yes | 1 ranged GET, 1 PUT |
//! | [`Draft`] | data objects as they are, under names that are never reused; the pointer lists them after its record | yes, all of them at once | 1 PUT for each data object, 1 GET and 1 PUT for the pointer |
//! | token in the metadata, payload as it is | the payload | **no** (see above): not offered | |
//! | token in an object beside it | the payload | **no**: two objects are not written in one step; not offered | |
//!
//! The record: `fencing-record/1 token=` 20 digits ` write=` 32 hex digits ` object` and a line feed; 90 bytes.
//!
//! A **delete** leaves a tombstone, a record that ends in ` gone`, without payload: a deleted object that was simply gone
//! would have forgotten its token. A plain reader finds the tombstone's line; [`Objects::get`] and [`Objects::list`] find
//! nothing. An object that has no record yet counts as written with token zero and is taken over by the first write.
//!
//! # What the client needs
//!
//! The permissions `s3:GetObject`, `s3:PutObject` and `s3:ListBucket` (without the last one S3 answers 403 for an object that
//! is not there), and time-outs: by default the SDK waits for an answer without end.
//!
//! # Lost answers
//!
//! The SDK's own retries are off for writes: a repeated write that had landed would be told that its precondition
//! failed. Instead the object is read again: it shows the random number of the write if that landed. As long as the object is
//! unchanged, the same write is repeated (both can land only once, the precondition sees to that). What cannot be found
//! out is [`FenceError::Unknown`].

mod draft;
mod multipart;
mod record;
mod request;
mod self_test;
mod write;

use std::fmt;

use aws_sdk_s3::Client;
use bytes::Bytes;
use monolock_protocol::Token;

pub use draft::{Draft, Manifest};
pub use record::Layout;
pub use self_test::{Report, SelfTestError};

use crate::{FenceError, Grant, Retry};
use record::is_tombstone_size;
use request::{Bucket, Extent, State, boxed, reading};
use write::{Content, Wanted, Write};

/// The fenced objects of one bucket. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    bucket: Bucket,
    layout: Layout,
    retry: Retry,
    multipart_from: Option<usize>,
}

/// An object as a reader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The token it was written (or last claimed) with; [`Token::ZERO`] if it was never written under a lock.
    pub token: Token,
    /// Its payload.
    pub payload: Bytes,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The key.
    pub key: String,
    /// The stored size in bytes, the record included.
    pub stored_size: u64,
}

impl Objects {
    /// The objects of a bucket, in the layout [`Layout::Header`].
    #[must_use]
    pub fn new(client: Client, bucket: impl Into<String>) -> Self {
        let bucket = Bucket {
            client,
            name: bucket.into(),
            quoted_etags: true,
        };
        Self {
            bucket,
            layout: Layout::default(),
            retry: Retry::default(),
            multipart_from: None,
        }
    }

    /// With another layout. One object must always be used with the same one.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// With other bounds for trying again after a lost race or a lost answer.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// With ETags in conditions as this endpoint wants them, and large bodies in parts if it can do that under a
    /// condition: what the [self-test](Self::self_test) found out.
    #[must_use]
    pub fn adapted_to(mut self, report: &Report) -> Self {
        self.bucket.quoted_etags = report.quoted_etags;
        self.multipart_from = report.conditional_multipart.then_some(MULTIPART_FROM);
        self
    }

    /// With bodies of at least so many bytes sent in parts, and the condition in the request that completes them. Only
    /// for an endpoint whose [self-test](Self::self_test) found that it checks that one too.
    #[must_use]
    pub fn with_multipart_from(mut self, bytes: usize) -> Self {
        self.multipart_from = Some(bytes);
        self
    }

    /// Tries whether this endpoint's conditional writes are what they should be: checked, and atomic under 16 concurrent
    /// writers. Writes (and removes again) some small objects whose keys start with this prefix. Takes a few seconds.
    ///
    /// # Errors
    ///
    /// [`SelfTestError`] names what failed. Such an endpoint cannot fence anything.
    pub async fn self_test(&self, prefix: &str) -> Result<Report, SelfTestError> {
        self_test::run(&self.bucket, prefix).await
    }

    /// Creates an object or replaces what is there.
    ///
    /// # Errors
    ///
    /// [`FenceError::LockLost`]; [`FenceError::Stale`]; [`FenceError::Conflict`] and [`FenceError::Unknown`] after the last attempt;
    /// [`FenceError::Backend`].
    pub async fn put(
        &self,
        grant: &dyn Grant,
        key: &str,
        payload: impl Into<Bytes>,
    ) -> Result<(), FenceError> {
        self.write(grant, key, Wanted::Anything, Content::Payload(payload.into()))
            .await
    }

    /// Creates an object that does not exist, or was deleted.
    ///
    /// # Errors
    ///
    /// [`FenceError::Exists`], and those of [`put`](Self::put).
    pub async fn create(
        &self,
        grant: &dyn Grant,
        key: &str,
        payload: impl Into<Bytes>,
    ) -> Result<(), FenceError> {
        self.write(grant, key, Wanted::Nothing, Content::Payload(payload.into()))
            .await
    }

    /// Replaces an object that exists.
    ///
    /// # Errors
    ///
    /// [`FenceError::Missing`], and those of [`put`](Self::put).
    pub async fn update(
        &self,
        grant: &dyn Grant,
        key: &str,
        payload: impl Into<Bytes>,
    ) -> Result<(), FenceError> {
        self.write(grant, key, Wanted::Object, Content::Payload(payload.into()))
            .await
    }

    /// Deletes an object that exists: a tombstone with the token takes its place.
    ///
    /// # Errors
    ///
    /// [`FenceError::Missing`], and those of [`put`](Self::put).
    pub async fn delete(&self, grant: &dyn Grant, key: &str) -> Result<(), FenceError> {
        self.write(grant, key, Wanted::Object, Content::Tombstone).await
    }

    /// Fences an object before the first write: from now on smaller tokens are refused. What a reader sees does not
    /// change, but the object is read and written as a whole; where it is not there, a tombstone is. (A [`Draft`]'s
    /// pointer is small, whatever it points to.)
    ///
    /// # Errors
    ///
    /// Those of [`put`](Self::put).
    pub async fn claim(&self, grant: &dyn Grant, key: &str) -> Result<(), FenceError> {
        self.write(grant, key, Wanted::Anything, Content::AsItIs).await
    }

    /// Reads an object; none if there is none, or if it was deleted.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`].
    pub async fn get(&self, key: &str) -> Result<Option<Object>, FenceError> {
        let found = self.bucket.read(key, self.layout, Extent::Whole).await?;
        let token = found.token();
        Ok(found.is_present().then_some(Object {
            token,
            payload: found.payload,
        }))
    }

    /// The highest token that an object was written with, deleted or not; none if it never was.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`].
    pub async fn highest(&self, key: &str) -> Result<Option<Token>, FenceError> {
        let found = self.bucket.read(key, self.layout, Extent::Record).await?;
        Ok(match found.state {
            State::Absent | State::Foreign => None,
            State::Fenced(record) => Some(record.token),
        })
    }

    /// All objects whose keys start with a prefix, in the order of their keys; no tombstones.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, FenceError> {
        let mut listed = Vec::new();
        let mut continuation = None;
        loop {
            let request = self
                .bucket
                .client
                .list_objects_v2()
                .bucket(&self.bucket.name)
                .prefix(prefix);
            let request = request
                .set_continuation_token(continuation)
                .customize()
                .config_override(reading());
            let page = request
                .send()
                .await
                .map_err(|error| FenceError::Backend(boxed(error)))?;
            for object in page.contents.unwrap_or_default() {
                let (Some(key), Some(size)) = (object.key, object.size) else {
                    continue;
                };
                if !is_tombstone_size(size) {
                    listed.push(Listed {
                        key,
                        stored_size: size.try_into().unwrap_or(0),
                    });
                }
            }
            continuation = page.next_continuation_token;
            if continuation.is_none() {
                return Ok(listed);
            }
        }
    }

    async fn write(
        &self,
        grant: &dyn Grant,
        key: &str,
        wanted: Wanted,
        content: Content,
    ) -> Result<(), FenceError> {
        Write {
            objects: self,
            grant,
            stamp: grant.stamp()?,
            key,
            wanted,
            content,
        }
        .run()
        .await
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects")
            .field("bucket", &self.bucket.name)
            .field("layout", &self.layout)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// Bodies of this size and more are sent in parts where that is safe: 64 MiB.
const MULTIPART_FROM: usize = 64 << 20;
