//! Is this endpoint one whose conditional writes can be relied on?

use bytes::Bytes;

use super::multipart::{self, When};
use super::record::{Layout, Record};
use super::request::{Answer, Bucket, Extent};
use crate::{BoxError, FenceError, Token};

/// How many writers race for one precondition.
const WRITERS: usize = 16;
/// How many races are run, half of them for creating and half for replacing.
const RACES: usize = 40;

/// What the self-test found out about an endpoint that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// False when the endpoint understands the ETag of `If-Match` only without its quotes.
    pub quoted_etags: bool,
    /// True when completing a multipart upload checks its condition too.
    pub conditional_multipart: bool,
    /// How many races were run, each with exactly one winner. (A fault that shows in one of hundreds can escape.)
    pub races: usize,
}

/// Why an endpoint cannot fence anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestError {
    /// It created an object that existed.
    #[error("the endpoint ignores If-None-Match: it created an object that existed; it cannot fence")]
    IgnoresIfNoneMatch,
    /// It replaced an object although the ETag was another one.
    #[error(
        "the endpoint ignores If-Match: it replaced an object whose ETag was another one; it cannot fence"
    )]
    IgnoresIfMatch,
    /// It created an object although one with an ETag was asked for.
    #[error("the endpoint ignores If-Match where there is no object; it cannot fence")]
    IgnoresIfMatchOnMissing,
    /// It does not replace an object whose ETag is the right one, quoted or not.
    #[error("the endpoint refuses If-Match with the right ETag: {0}")]
    RefusesIfMatch(#[source] BoxError),
    /// Different bytes got the same ETag.
    #[error("the endpoint gives different bytes the same ETag; it cannot fence")]
    EtagIgnoresContent,
    /// A read did not show what was written before.
    #[error("the endpoint does not show a write to the next read; it cannot fence")]
    StaleRead,
    /// More than one of several concurrent writes on one precondition was accepted.
    #[error(
        "the endpoint is not atomic: {winners} of {WRITERS} concurrent writes with {condition} on one object were accepted; it cannot fence"
    )]
    TwoWinners {
        /// How many were accepted.
        winners: usize,
        /// The condition they carried.
        condition: &'static str,
    },
    /// Nobody won a race that one should win.
    #[error("none of {WRITERS} concurrent writes was accepted, nor found to have landed")]
    NoWinner,
    /// Something else failed.
    #[error("the self-test could not be finished: {0}")]
    Failed(#[source] BoxError),
}

impl From<FenceError> for SelfTestError {
    fn from(error: FenceError) -> Self {
        Self::Failed(error.into())
    }
}

pub(crate) async fn run(bucket: &Bucket, prefix: &str) -> Result<Report, SelfTestError> {
    let mut probe = Probe {
        bucket: bucket.clone(),
        prefix: format!("{prefix}{:032x}-", fastrand::u128(..)),
        keys: 0,
    };
    let result = probe.all().await;
    probe.clean_up().await;
    result
}

struct Probe {
    bucket: Bucket,
    prefix: String,
    keys: usize,
}

impl Probe {
    async fn all(&mut self) -> Result<Report, SelfTestError> {
        self.creates_once().await?;
        self.replaces_by_etag().await?;
        for _ in 0..RACES / 2 {
            self.race_to_create().await?;
            self.race_to_replace().await?;
        }
        let conditional_multipart = self.completes_by_condition().await?;
        Ok(Report {
            quoted_etags: self.bucket.quoted_etags,
            conditional_multipart,
            races: RACES,
        })
    }

    async fn creates_once(&mut self) -> Result<(), SelfTestError> {
        let key = self.new_key();
        must_land(self.bucket.put(&key, body(1), None).await)?;
        match self.bucket.put(&key, body(2), None).await {
            Answer::Done => Err(SelfTestError::IgnoresIfNoneMatch),
            Answer::Race(_) => Ok(()),
            Answer::Refused(source) | Answer::Lost(source) => Err(SelfTestError::Failed(source)),
        }
    }

    async fn replaces_by_etag(&mut self) -> Result<(), SelfTestError> {
        let key = self.new_key();
        must_land(self.bucket.put(&key, body(1), None).await)?;
        let (first, _) = self.seen(&key).await?;

        let second = body(2);
        if let Answer::Race(refused) = self.bucket.put(&key, second.clone(), Some(&first)).await {
            self.bucket.quoted_etags = !self.bucket.quoted_etags;
            match self.bucket.put(&key, second.clone(), Some(&first)).await {
                Answer::Done => {}
                Answer::Race(_) | Answer::Refused(_) | Answer::Lost(_) => {
                    return Err(SelfTestError::RefusesIfMatch(refused));
                }
            }
        }
        let (etag, stored) = self.seen(&key).await?;
        if stored != second {
            return Err(SelfTestError::StaleRead);
        }
        if etag == first {
            return Err(SelfTestError::EtagIgnoresContent);
        }
        if let Answer::Done = self.bucket.put(&key, body(3), Some(&first)).await {
            return Err(SelfTestError::IgnoresIfMatch);
        }
        let missing = self.new_key();
        if let Answer::Done = self.bucket.put(&missing, body(4), Some(&first)).await {
            return Err(SelfTestError::IgnoresIfMatchOnMissing);
        }
        Ok(())
    }

    async fn race_to_create(&mut self) -> Result<(), SelfTestError> {
        let key = self.new_key();
        self.race(&key, None, "If-None-Match").await
    }

    async fn race_to_replace(&mut self) -> Result<(), SelfTestError> {
        let key = self.new_key();
        must_land(self.bucket.put(&key, body(0), None).await)?;
        let (etag, _) = self.seen(&key).await?;
        self.race(&key, Some(etag), "If-Match").await
    }

    async fn race(
        &self,
        key: &str,
        seen: Option<String>,
        condition: &'static str,
    ) -> Result<(), SelfTestError> {
        let mut writers = tokio::task::JoinSet::new();
        for _ in 0..WRITERS {
            let (bucket, key, seen) = (self.bucket.clone(), key.to_owned(), seen.clone());
            writers.spawn(async move { bucket.put(&key, body(1), seen.as_deref()).await });
        }
        let answers = writers.join_all().await;
        let winners = answers
            .iter()
            .filter(|answer| matches!(answer, Answer::Done))
            .count();
        match winners {
            1 => Ok(()),
            0 if self.seen(key).await.is_ok_and(|(etag, _)| Some(etag) != seen) => Ok(()),
            0 => Err(SelfTestError::NoWinner),
            winners => Err(SelfTestError::TwoWinners { winners, condition }),
        }
    }

    /// Both conditions, with one part: the size does not matter for this.
    async fn completes_by_condition(&mut self) -> Result<bool, SelfTestError> {
        let key = self.new_key();
        must_land(self.bucket.put(&key, body(1), None).await)?;
        let (first, _) = self.seen(&key).await?;
        must_land(self.bucket.put(&key, body(2), Some(&first)).await)?;
        let (second, _) = self.seen(&key).await?;
        let conditions = [
            (None, false),
            (Some(first.as_str()), false),
            (Some(second.as_str()), true),
        ];
        for (seen, may_land) in conditions {
            let answer = multipart::put(&self.bucket, &key, body(3), When::Unchanged(seen)).await;
            if matches!(answer, Answer::Done) != may_land {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn seen(&self, key: &str) -> Result<(String, Bytes), SelfTestError> {
        // As a trailer, a header is no record: the bytes come back whole.
        let found = self.bucket.read(key, Layout::Trailer, Extent::Whole).await?;
        let etag = found.etag.ok_or(SelfTestError::StaleRead)?;
        Ok((etag, found.payload))
    }

    fn new_key(&mut self) -> String {
        self.keys += 1;
        format!("{}{}", self.prefix, self.keys)
    }

    /// Best effort: what stays behind is a handful of small objects.
    async fn clean_up(&self) {
        for n in 1..=self.keys {
            let key = format!("{}{n}", self.prefix);
            drop(
                self.bucket
                    .client
                    .delete_object()
                    .bucket(&self.bucket.name)
                    .key(key)
                    .send()
                    .await,
            );
        }
    }
}

/// Different for each call.
fn body(token: u64) -> Bytes {
    Record::new(Token::new(token)).wrap(Layout::Header, b"self-test\n")
}

fn must_land(answer: Answer) -> Result<(), SelfTestError> {
    match answer {
        Answer::Done => Ok(()),
        Answer::Race(source) | Answer::Refused(source) | Answer::Lost(source) => {
            Err(SelfTestError::Failed(source))
        }
    }
}
