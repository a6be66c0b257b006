//! One fenced write: read, compare, write under a condition, and find out what a lost answer was.

use bytes::Bytes;

use super::record::Record;
use super::request::{Answer, Current, Extent};
use super::{Objects, multipart};
use crate::{BoxError, FenceError, Grant, Stamp};

/// A write that is under way.
pub(crate) struct Write<'w> {
    pub(crate) objects: &'w Objects,
    pub(crate) grant: &'w dyn Grant,
    /// The grant's, as it was when the write began: a grant has one token.
    pub(crate) stamp: Stamp,
    pub(crate) key: &'w str,
    pub(crate) wanted: Wanted,
    pub(crate) content: Content,
}

/// What must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Anything,
    Nothing,
    Object,
}

/// What shall be there.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Payload(Bytes),
    Tombstone,
    /// What is there already, with a new record.
    AsItIs,
}

/// A write whose answer was lost: it may land as long as the object is as it was.
struct Doubt {
    seen: Option<String>,
    source: BoxError,
}

/// How an attempt ended that did not end the write.
enum Again {
    Race(BoxError),
    Lost(Doubt),
}

impl Write<'_> {
    pub(crate) async fn run(&self) -> Result<(), FenceError> {
        // The same in every attempt, so that whichever lands is recognised.
        let record = match self.content {
            Content::Tombstone => Record::tombstone(self.stamp.token()),
            Content::Payload(_) | Content::AsItIs => Record::new(self.stamp.token()),
        };
        let mut doubt = None;
        let mut attempt = 1;
        loop {
            let again = match self.attempt(record, &mut doubt).await {
                Ok(None) => return Ok(()),
                Ok(Some(again)) => again,
                Err(error) => return Err(self.in_view_of(doubt, error)),
            };
            let last = match again {
                Again::Race(source) => source,
                Again::Lost(lost) => {
                    let source = lost.source.to_string().into();
                    doubt = Some(lost);
                    source
                }
            };
            if !self.objects.retry.pause_after(attempt).await {
                return Err(self.in_view_of(
                    doubt,
                    FenceError::Conflict {
                        attempts: attempt,
                        source: last,
                    },
                ));
            }
            attempt += 1;
        }
    }

    /// One attempt: none when the write has landed.
    async fn attempt(&self, record: Record, doubt: &mut Option<Doubt>) -> Result<Option<Again>, FenceError> {
        let current = self
            .objects
            .bucket
            .read(self.key, self.objects.layout, self.extent())
            .await?;
        if current.write_id() == Some(record.write_id) {
            return Ok(None);
        }
        self.settle(doubt, &current)?;
        if current.token() > self.stamp.token() {
            return Err(FenceError::Stale {
                stamp: self.stamp.clone(),
                highest: current.token(),
            });
        }
        self.check_wanted(&current)?;
        let (record, payload) = match &self.content {
            Content::AsItIs if current.token() == self.stamp.token() && current.etag.is_some() => {
                return Ok(None);
            }
            Content::AsItIs if current.is_present() => (record, current.payload.clone()),
            Content::AsItIs => (
                Record {
                    deleted: true,
                    ..record
                },
                Bytes::new(),
            ),
            Content::Tombstone => (record, Bytes::new()),
            Content::Payload(payload) => (record, payload.clone()),
        };
        self.grant.stamp()?;
        match self.send(record, &payload, current.etag.as_deref()).await {
            Answer::Done => Ok(None),
            Answer::Race(source) => Ok(Some(Again::Race(source))),
            Answer::Lost(source) => Ok(Some(Again::Lost(Doubt {
                seen: current.etag,
                source,
            }))),
            Answer::Refused(source) => Err(FenceError::Backend(source)),
        }
    }

    async fn send(&self, record: Record, payload: &Bytes, seen: Option<&str>) -> Answer {
        let body = record.wrap(self.objects.layout, payload);
        match self.objects.multipart_from {
            Some(from) if body.len() >= from => {
                multipart::put(
                    &self.objects.bucket,
                    self.key,
                    body,
                    multipart::When::Unchanged(seen),
                )
                .await
            }
            Some(_) | None => self.objects.bucket.put(self.key, body, seen).await,
        }
    }

    /// Clears a doubt that the object itself has answered, or turns it into an error.
    fn settle(&self, doubt: &mut Option<Doubt>, current: &Current) -> Result<(), FenceError> {
        match doubt.take() {
            // It may still be under way; sending it again is safe, since only one of the two can land.
            Some(open) if open.seen == current.etag => {
                *doubt = Some(open);
                Ok(())
            }
            // Somebody wrote over it, or instead of it.
            Some(open) if current.token() >= self.stamp.token() => Err(FenceError::Unknown {
                stamp: self.stamp.clone(),
                source: open.source,
            }),
            // It never landed, since tokens never go down, and never will: the ETag of its condition is gone for good.
            Some(_) | None => Ok(()),
        }
    }

    fn check_wanted(&self, current: &Current) -> Result<(), FenceError> {
        let resource = self.stamp.resource().clone();
        let what = format!("object {}", self.key);
        match (self.wanted, current.is_present()) {
            (Wanted::Nothing, true) => Err(FenceError::Exists { resource, what }),
            (Wanted::Object, false) => Err(FenceError::Missing { resource, what }),
            (Wanted::Anything, _) | (Wanted::Nothing, false) | (Wanted::Object, true) => Ok(()),
        }
    }

    /// An error that ends the write while an earlier attempt may still land is no "nothing was written".
    fn in_view_of(&self, doubt: Option<Doubt>, error: FenceError) -> FenceError {
        match doubt {
            Some(open) if !matches!(error, FenceError::Unknown { .. }) => FenceError::Unknown {
                stamp: self.stamp.clone(),
                source: open.source,
            },
            Some(_) | None => error,
        }
    }

    fn extent(&self) -> Extent {
        match self.content {
            Content::AsItIs => Extent::Whole,
            Content::Payload(_) | Content::Tombstone => Extent::Record,
        }
    }
}
