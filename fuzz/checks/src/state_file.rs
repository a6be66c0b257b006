//! The state file: any content is refused and left alone, or read the same again.

use monolock_failover::state_file::StateFile;

pub(crate) fn check(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("state");
    std::fs::write(&path, bytes).expect("written");
    match StateFile::open(&path) {
        Err(_) => assert_eq!(std::fs::read(&path).expect("it is there"), bytes, "left alone"),
        Ok((file, state)) => {
            drop(file);
            let (_file, again) = StateFile::open(&path).expect("what a node has written");
            assert_eq!(again, state);
        }
    }
}
