//! Many objects under one lock: immutable data objects, and one fenced pointer that makes them visible.

use std::fmt;

use bytes::Bytes;
use monolock_protocol::Token;

use super::multipart::{self, When};
use super::request::Answer;
use super::{MULTIPART_FROM, Objects};
use crate::{FenceError, Grant};

/// New data objects that nobody sees yet. [`publish`](Self::publish) makes them all visible in one fenced step.
///
/// A data object is the bytes it was given and nothing else, so every tool can read it; its key contains the token and a
/// random number and is never used again. The pointer is an [`Objects`] object whose payload lists those keys, one to a
/// line, as `name`, a tab, `key`. A draft that is dropped or refused leaves data objects behind that no pointer names:
/// [`keys`](Self::keys) lists them for whoever cleans up.
pub struct Draft<'d> {
    objects: &'d Objects,
    grant: &'d dyn Grant,
    pointer: String,
    folder: String,
    entries: Vec<(String, String)>,
}

/// What a pointer points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The token it was published with.
    pub token: Token,
    /// The name of each data object within the set, and its key.
    pub entries: Vec<(String, String)>,
}

impl Objects {
    /// Begins a set of data objects that the pointer of this key will show.
    ///
    /// # Errors
    ///
    /// [`FenceError::LockLost`].
    pub fn draft<'d>(&'d self, grant: &'d dyn Grant, pointer: &str) -> Result<Draft<'d>, FenceError> {
        let folder = format!(
            "{pointer}.data/{:020}-{:032x}/",
            grant.stamp()?.token().get(),
            fastrand::u128(..)
        );
        Ok(Draft {
            objects: self,
            grant,
            pointer: pointer.to_owned(),
            folder,
            entries: Vec::new(),
        })
    }

    /// What a pointer points to; none if it was never published.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`], also when the object of this key is no pointer.
    pub async fn resolve(&self, pointer: &str) -> Result<Option<Manifest>, FenceError> {
        let Some(object) = self.get(pointer).await? else {
            return Ok(None);
        };
        let entries = std::str::from_utf8(&object.payload)
            .ok()
            .and_then(|text| text.lines().map(split).collect::<Option<Vec<_>>>())
            .ok_or_else(|| FenceError::Backend(format!("object {pointer} is no pointer").into()))?;
        Ok(Some(Manifest {
            token: object.token,
            entries,
        }))
    }
}

impl Draft<'_> {
    /// Writes a data object. The name is what readers look it up by.
    ///
    /// # Errors
    ///
    /// [`FenceError::LockLost`]; [`FenceError::Misuse`] for a name with a tab or a line end, or one that was used before; [`FenceError::Conflict`] after
    /// the last attempt; [`FenceError::Backend`].
    pub async fn add(&mut self, name: &str, body: impl Into<Bytes>) -> Result<(), FenceError> {
        if name.is_empty()
            || name.contains(['\t', '\n', '\r'])
            || self.entries.iter().any(|(known, _)| known == name)
        {
            let problem =
                format!("{name:?} cannot name a data object: it is empty, used, or has a tab or line end");
            return Err(FenceError::Misuse { problem });
        }
        let key = format!("{}{name}", self.folder);
        let body = body.into();
        let attempt = || async {
            self.grant.stamp()?;
            let sent = if body.len() >= MULTIPART_FROM {
                multipart::put(&self.objects.bucket, &key, body.clone(), When::Always).await
            } else {
                self.objects.bucket.put(&key, body.clone(), None).await
            };
            match sent {
                Answer::Done => Ok(()),
                // Nobody else knows the key: the object that is in the way is an earlier attempt that landed.
                Answer::Race(_) if self.is_there(&key, body.len()).await? => Ok(()),
                Answer::Race(source) | Answer::Lost(source) => {
                    Err(FenceError::Conflict { attempts: 1, source })
                }
                Answer::Refused(source) => Err(FenceError::Backend(source)),
            }
        };
        self.objects.retry.run(attempt).await?;
        self.entries.push((name.to_owned(), key));
        Ok(())
    }

    /// The keys of the data objects written so far.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(_, key)| key.as_str())
    }

    /// Makes the set visible: the pointer is replaced in one fenced write.
    ///
    /// # Errors
    ///
    /// Those of [`Objects::put`].
    pub async fn publish(self) -> Result<(), FenceError> {
        let lines: String = self
            .entries
            .iter()
            .map(|(name, key)| format!("{name}\t{key}\n"))
            .collect();
        self.objects.put(self.grant, &self.pointer, lines).await
    }

    async fn is_there(&self, key: &str, len: usize) -> Result<bool, FenceError> {
        let bucket = &self.objects.bucket;
        let head = bucket
            .client
            .head_object()
            .bucket(&bucket.name)
            .key(key)
            .send()
            .await;
        Ok(head.is_ok_and(|found| found.content_length.and_then(|len| len.try_into().ok()) == Some(len)))
    }
}

impl fmt::Debug for Draft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("pointer", &self.pointer)
            .field("folder", &self.folder)
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

fn split(line: &str) -> Option<(String, String)> {
    let (name, key) = line.split_once('\t')?;
    Some((name.to_owned(), key.to_owned()))
}
