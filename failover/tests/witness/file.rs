//! A file as the witness.

use std::time::Duration;

use monolock_failover::witness::{FileWitness, SwapOutcome, Witness, WitnessError};

use crate::suite::{Store, conforms, record, won};

struct FileStore(tempfile::TempDir);

impl FileStore {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("witness")
    }
}

impl Store for FileStore {
    async fn open(&self) -> Box<dyn Witness> {
        Box::new(
            FileWitness::open(self.path())
                .unwrap()
                .with_lock_wait(Duration::from_secs(30)),
        )
    }

    async fn delete(&self) {
        std::fs::remove_file(self.path()).unwrap();
    }

    async fn back_up(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    async fn restore(&self, backup: &[u8]) {
        std::fs::write(self.path(), backup).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_conforms() {
    conforms(&FileStore::new()).await;
}

#[tokio::test]
async fn a_file_that_is_no_record_is_named_and_left_alone() {
    let store = FileStore::new();
    let witness = store.open().await;
    won(&*witness, None, &record(1, 1)).await;
    let good = store.back_up().await;
    let other_version = String::from_utf8(good.clone())
        .unwrap()
        .replace("\"version\":1", "\"version\":2");
    for damage in [b"".as_slice(), &good[..20], other_version.as_bytes(), b"[]"] {
        store.restore(damage).await;
        let error = witness.read().await.unwrap_err();
        assert!(matches!(error, WitnessError::NotARecord { .. }), "{error}");
        assert!(
            error.to_string().contains(store.path().to_str().unwrap()),
            "{error}"
        );
        for expected in [None, Some(&record(1, 1))] {
            let outcome = witness.swap(expected, &record(2, 1)).await;
            assert!(
                matches!(outcome, SwapOutcome::Failed(WitnessError::NotARecord { .. })),
                "{outcome:?}"
            );
        }
        assert!(matches!(
            FileWitness::open(store.path()),
            Err(WitnessError::NotARecord { .. })
        ));
        assert_eq!(store.back_up().await, damage);
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_or_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing/witness");
    let error = FileWitness::open(&missing).unwrap_err();
    assert!(matches!(error, WitnessError::Refused { .. }));
    assert!(error.to_string().contains("missing/witness"), "{error}");

    let in_its_place = folder.path().join("folder");
    std::fs::create_dir(&in_its_place).unwrap();
    let error = FileWitness::open(&in_its_place).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");

    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let witness = FileWitness::open(inner.join("witness")).unwrap();
    won(&witness, None, &record(1, 1)).await;
    std::fs::remove_dir_all(&inner).unwrap();
    let outcome = witness.swap(Some(&record(1, 1)), &record(2, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Failed(WitnessError::Refused { .. })),
        "{outcome:?}"
    );
    assert_eq!(witness.read().await.unwrap(), None);
}

#[tokio::test]
async fn a_lock_that_somebody_keeps_is_waited_for_within_bounds() {
    let store = FileStore::new();
    let witness = FileWitness::open(store.path())
        .unwrap()
        .with_lock_wait(Duration::from_millis(50));
    let holder = std::fs::File::open(store.0.path().join("witness.lock")).unwrap();
    holder.lock().unwrap();
    let outcome = witness.swap(None, &record(1, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Failed(WitnessError::Unreachable { .. })),
        "{outcome:?}"
    );
    assert_eq!(witness.read().await.unwrap(), None, "a reader needs no lock");
    drop(holder);
    won(&witness, None, &record(1, 1)).await;
}

#[tokio::test]
async fn what_a_killed_process_left_of_a_swap_is_removed_and_nothing_else() {
    let store = FileStore::new();
    let left = store.0.path().join("witness.new.4711.0");
    let other = store.0.path().join("witness-of-somebody-else.new.1.0");
    std::fs::write(&left, "half a rec").unwrap();
    std::fs::write(&other, "not ours").unwrap();
    let witness = store.open().await;
    assert!(!left.exists());
    assert!(other.exists());
    won(&*witness, None, &record(1, 1)).await;
    let names = std::fs::read_dir(store.0.path()).unwrap().count();
    assert_eq!(names, 3, "the record, its lock file and the other file");
}
