//! One S3 object as a [`Store`], and what every endpoint must do.

use monolock_adapters::s3::Objects;
use monolock_adapters::{Resource, Stamp, Token};

use super::pauses::{self, Pause};
use super::proxy::{Fault, Proxy};
use super::suite::{self, Store, Writer};

/// An object whose payload is a number.
pub struct OneObject {
    pub objects: Objects,
    pub key: String,
}

impl Writer for OneObject {
    async fn put(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.objects.put(stamp, &self.key, value.to_string()).await
    }

    async fn claim(&self, stamp: &Stamp) -> suite::Result {
        self.objects.claim(stamp, &self.key).await
    }

    async fn step_back(&self) -> Option<(i64, i64)> {
        None
    }
}

impl Store for OneObject {
    async fn create(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.objects.create(stamp, &self.key, value.to_string()).await
    }

    async fn update(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.objects.update(stamp, &self.key, value.to_string()).await
    }

    async fn delete(&self, stamp: &Stamp) -> suite::Result {
        self.objects.delete(stamp, &self.key).await
    }

    async fn get(&self) -> Option<i64> {
        let found = self.objects.get(&self.key).await.expect("readable")?;
        Some(
            std::str::from_utf8(&found.payload)
                .expect("text")
                .parse()
                .expect("a number"),
        )
    }
}

/// Writers that are paused anywhere; the second way to the objects leads through the proxy.
pub async fn a_writer_paused_anywhere_is_never_accepted_late(fast: &Objects, slow: &Objects, proxy: &Proxy) {
    let object = |objects: &Objects, key: &str| OneObject {
        objects: objects.clone(),
        key: key.to_owned(),
    };
    let (writer, newer) = (object(fast, "polled"), object(fast, "polled"));
    pauses::of_writers(Pause::Polls, &writer, &newer, 1).await;
    let (writer, newer) = (object(slow, "requested"), object(fast, "requested"));
    pauses::of_writers(Pause::Requests(proxy), &writer, &newer, 1).await;
}

/// Requests that reached the server, and whose answers never came back. `write` is how the one that counts begins.
pub async fn a_lost_answer_is_found_out(fast: &Objects, slow: &Objects, proxy: &Proxy, write: &str) {
    for (token, value) in [(1, "created"), (2, "replaced")] {
        proxy.once(write, Fault::LoseAnswer);
        slow.put(&stamp(token), "k", value).await.expect("it landed");
        assert!(proxy.is_spent());
        let found = fast.get("k").await.expect("readable").expect("present");
        assert_eq!((found.token.get(), &found.payload[..]), (token, value.as_bytes()));
    }
    proxy.once(write, Fault::LoseAnswer);
    slow.delete(&stamp(2), "k").await.expect("it landed");
    assert_eq!(fast.get("k").await.expect("readable"), None);
    // With a create, the object that is there then is ours, not somebody else's.
    proxy.once(write, Fault::LoseAnswer);
    slow.create(&stamp(3), "new", "x").await.expect("it landed");
    assert!(proxy.is_spent());
}

pub fn stamp(token: u64) -> Stamp {
    let lock = Resource::guarded_by("lock").expect("a name");
    lock.stamp(Token::new(token))
}
