//! One S3 object as a [`Store`].

use monolock_adapters::Stamp;
use monolock_adapters::s3::Objects;

use super::suite::{self, Store};

/// An object whose payload is a number.
pub struct OneObject {
    pub objects: Objects,
    pub key: String,
}

impl Store for OneObject {
    async fn put(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.objects.put(stamp, &self.key, value.to_string()).await
    }

    async fn create(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.objects.create(stamp, &self.key, value.to_string()).await
    }

    async fn update(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.objects.update(stamp, &self.key, value.to_string()).await
    }

    async fn delete(&self, stamp: &Stamp) -> suite::Result {
        self.objects.delete(stamp, &self.key).await
    }

    async fn claim(&self, stamp: &Stamp) -> suite::Result {
        self.objects.claim(stamp, &self.key).await
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

    async fn applied(&self) -> Option<Vec<u64>> {
        None
    }
}
