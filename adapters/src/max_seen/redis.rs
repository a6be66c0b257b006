//! In Redis, by one script.

use std::sync::LazyLock;

use monolock_protocol::Token;
use redis::aio::ConnectionLike;
use redis::{RedisError, Script, Value};

use super::MaxSeen;
use crate::{FenceError, Resource, Retry, Stamp};

/// The largest tokens seen, in Redis or Valkey: one key for each resource, without expiry.
///
/// What survives is the server's matter. With `appendonly yes` and `appendfsync always` an accepted token survives a
/// power cut; with `everysec` up to the last second can be forgotten, without a log everything since the last snapshot;
/// a replica that takes over may miss the last ones in any case. [`check_settings`](Self::check_settings) tells.
#[derive(Clone, Debug)]
pub struct Redis<C> {
    connection: C,
    prefix: String,
    retry: Retry,
}

/// A setting of the server that lets it forget tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisSettingsError {
    /// Keys are thrown away when memory runs short.
    #[error("maxmemory-policy is {policy}: the server may throw tokens away; set it to noeviction")]
    Evicts {
        /// The policy found.
        policy: String,
    },
    /// There is no log of writes, or it reaches the disk later.
    #[error(
        "appendonly is {appendonly} and appendfsync {appendfsync}: tokens can be lost; set them to yes and always"
    )]
    Forgets {
        /// The setting found.
        appendonly: String,
        /// The setting found.
        appendfsync: String,
    },
    /// The settings cannot be read.
    #[error("the server's settings cannot be read: {0}")]
    Unreadable(#[source] RedisError),
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Redis<C> {
    /// A store on this connection; one that connects again by itself (`redis::aio::ConnectionManager`) is best. Its time-outs
    /// apply. Keys are `fencing-token:` and the name of the lock.
    #[must_use]
    pub fn new(connection: C) -> Self {
        Self {
            connection,
            prefix: "fencing-token:".to_owned(),
            retry: Retry::default(),
        }
    }

    /// With another prefix of the keys.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// With other bounds for asking again after a failure.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Asks whether the server is set to keep what it is given.
    ///
    /// # Errors
    ///
    /// [`RedisSettingsError`] names the setting.
    pub async fn check_settings(&self) -> Result<(), RedisSettingsError> {
        let policy = self.setting("maxmemory-policy").await?;
        if policy != "noeviction" {
            return Err(RedisSettingsError::Evicts { policy });
        }
        let (appendonly, appendfsync) = (
            self.setting("appendonly").await?,
            self.setting("appendfsync").await?,
        );
        if appendonly != "yes" || appendfsync != "always" {
            return Err(RedisSettingsError::Forgets {
                appendonly,
                appendfsync,
            });
        }
        Ok(())
    }

    async fn setting(&self, name: &str) -> Result<String, RedisSettingsError> {
        let mut connection = self.connection.clone();
        let found = redis::cmd("CONFIG")
            .arg("GET")
            .arg(name)
            .query_async::<Vec<String>>(&mut connection)
            .await;
        let found = found.map_err(RedisSettingsError::Unreadable)?;
        Ok(found.into_iter().nth(1).unwrap_or_default())
    }

    fn key(&self, resource: &Resource) -> String {
        format!("{}{resource}", self.prefix)
    }

    async fn ask(&self, stamp: &Stamp) -> Result<(), FenceError> {
        let mut connection = self.connection.clone();
        let mut question = ADMIT.key(self.key(stamp.resource()));
        let answer = question
            .arg(digits(stamp.token()))
            .invoke_async::<Value>(&mut connection)
            .await;
        match answer {
            Ok(Value::Nil) => Ok(()),
            Ok(Value::BulkString(highest)) => {
                let highest = parse(&highest).ok_or_else(|| self.spoiled(stamp.resource()))?;
                Err(FenceError::Stale {
                    stamp: stamp.clone(),
                    highest,
                })
            }
            Ok(other) => Err(FenceError::Backend(format!("Redis answered {other:?}").into())),
            // Asking again is safe: an equal token passes.
            Err(error) if is_passing(&error) => Err(FenceError::Conflict {
                attempts: 1,
                source: error.into(),
            }),
            Err(error) => Err(FenceError::Backend(error.into())),
        }
    }

    fn spoiled(&self, resource: &Resource) -> FenceError {
        FenceError::Backend(format!("key {} holds something other than a token", self.key(resource)).into())
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> MaxSeen for Redis<C> {
    async fn admit(&self, stamp: &Stamp) -> Result<(), FenceError> {
        match self.retry.run(|| self.ask(stamp)).await {
            // Not a lost race, which the script cannot lose, but a server that does not answer.
            Err(FenceError::Conflict { source, .. }) => Err(FenceError::Unknown {
                stamp: stamp.clone(),
                source,
            }),
            outcome => outcome,
        }
    }

    async fn highest(&self, resource: &Resource) -> Result<Option<Token>, FenceError> {
        let mut connection = self.connection.clone();
        let get = redis::cmd("GET")
            .arg(self.key(resource))
            .query_async::<Option<Vec<u8>>>(&mut connection)
            .await;
        match get.map_err(|error| FenceError::Backend(error.into()))? {
            Some(found) => Ok(Some(parse(&found).ok_or_else(|| self.spoiled(resource))?)),
            None => Ok(None),
        }
    }
}

/// Tokens are compared as texts of 20 digits: a script's numbers are exact only up to 2^53.
static ADMIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local seen = redis.call('GET', KEYS[1])
         if seen and not string.match(seen, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') then
           return redis.error_reply('SPOILED the key holds something other than a token')
         end
         if seen and seen > ARGV[1] then return seen end
         if seen ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
         return false",
    )
});

fn digits(token: Token) -> String {
    format!("{:020}", token.get())
}

fn parse(digits: &[u8]) -> Option<Token> {
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.len() == 20)?;
    Some(Token::new(digits.parse().ok()?))
}

fn is_passing(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
}
