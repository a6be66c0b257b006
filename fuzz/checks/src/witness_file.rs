//! The witness's record in a file: any content is refused and left alone, or read, swapped and read again.

use monolock_failover::core::Term;
use monolock_failover::witness::{FileWitness, SwapOutcome, Witness as _};

use crate::loopback::runtime;

pub(crate) fn check(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("witness");
    let witness = FileWitness::open(&path).expect("an empty folder");
    std::fs::write(&path, bytes).expect("written");
    runtime().block_on(async {
        match witness.read().await {
            Ok(None) => panic!("there is a file"),
            Err(_) => assert_eq!(std::fs::read(&path).expect("it is there"), bytes, "left alone"),
            Ok(Some(record)) => {
                let mut next = record.clone();
                next.term = Term(record.term.0 ^ 1);
                let swapped = witness.swap(Some(&record), &next).await;
                assert!(matches!(swapped, SwapOutcome::Won), "{swapped:?}");
                assert_eq!(witness.read().await.expect("just written"), Some(next));
                let again = witness.swap(Some(&record), &record).await;
                assert!(matches!(again, SwapOutcome::Lost { .. }), "{again:?}");
            }
        }
    });
}
