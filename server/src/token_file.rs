//! The file that reserves token epochs ahead, so that a restart need not wait and a wall clock that stepped back while
//! the server was down does no harm.
//!
//! It holds one number: every token that was ever granted is below the first one of this epoch. It is written before
//! tokens of that epoch are granted, replaced as a whole, and locked against a second server.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use monolock_core::token_source::RESERVE_AHEAD;
use monolock_core::{Now, TokenSource};
use monolock_protocol::Token;
use tokio::sync::watch;

use self::content::Fault;
use crate::config::SettingError;
use crate::server::Shared;

mod content;

/// An open token file; no other server can open it.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    /// Held for as long as the file is in use. Beside the file, because that is replaced.
    _lock: File,
}

impl TokenFile {
    /// Opens the file and reserves a first block of epochs: what it returns may grant at once, or after the
    /// second of a first start.
    pub(crate) fn open(path: &Path, now: Now) -> Result<(Self, TokenSource), SettingError> {
        let file = Self {
            path: path.to_owned(),
            _lock: lock(path)?,
        };
        let found = read(path)?;
        let wanted = now.wall.unix_seconds() + RESERVE_AHEAD;
        let ceiling = found.map_or(wanted, |reserved| wanted.max(reserved + 1));
        let tokens = match found {
            Some(reserved) => TokenSource::reserved(
                Token::first_of_epoch(reserved),
                Token::first_of_epoch(ceiling),
                now,
            ),
            None => TokenSource::after_restart(now).below(Token::first_of_epoch(ceiling)),
        };
        file.store(ceiling)
            .map_err(|error| refusal(path, format_args!("cannot be written: {error}")))?;
        Ok((file, tokens))
    }

    /// Makes a reservation durable.
    fn store(&self, epoch: u64) -> io::Result<()> {
        let temporary = with_suffix(&self.path, ".new");
        let mut file = File::create(&temporary)?;
        file.write_all(&content::encode(epoch))?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.path)?;
        File::open(folder_of(&self.path))?.sync_all()
    }
}

/// Writes each reservation that the lock table asks for, and tells it. Runs until the server is gone.
pub(crate) async fn keep_reserving(file: TokenFile, mut asked: watch::Receiver<u64>, shared: Arc<Shared>) {
    let file = Arc::new(file);
    while asked.changed().await.is_ok() {
        loop {
            let epoch = *asked.borrow_and_update();
            let writer = Arc::clone(&file);
            let stored = tokio::task::spawn_blocking(move || writer.store(epoch)).await;
            match stored.map_err(io::Error::other).flatten() {
                Ok(()) => {
                    let ceiling = Token::first_of_epoch(epoch);
                    shared
                        .owner
                        .step(|table, now| table.handle_reserved(ceiling, now));
                    break;
                }
                Err(error) => {
                    tracing::error!(path = %file.path.display(), %error, "cannot reserve tokens: trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Whether a start could use the file.
pub(crate) fn check(path: &Path) -> Result<(), SettingError> {
    let _lock = lock(path)?;
    read(path).map(drop)
}

fn lock(path: &Path) -> Result<File, SettingError> {
    let lock_path = with_suffix(path, ".lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path)
        .map_err(|error| refusal(&lock_path, format_args!("cannot be opened: {error}")))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(refusal(
            path,
            "another server uses it: give each server a file of its own",
        )),
        Err(TryLockError::Error(error)) => {
            Err(refusal(&lock_path, format_args!("cannot be locked: {error}")))
        }
    }
}

fn read(path: &Path) -> Result<Option<u64>, SettingError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refusal(path, format_args!("cannot be read: {error}"))),
    };
    content::decode(&bytes).map(Some).map_err(|fault| match fault {
        Fault::Format(found) => refusal(
            path,
            format_args!("has format {found}, this server knows format {}", content::FORMAT),
        ),
        Fault::Damaged(why) => damaged(path, &why),
    })
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> SettingError {
    let advice = "restore it, or remove it if no token of the last seconds was granted under a later clock";
    refusal(path, format_args!("is damaged ({why}): {advice}"))
}

fn refusal(path: &Path, problem: impl std::fmt::Display) -> SettingError {
    SettingError::new("MONOLOCK_TOKEN_FILE", format!("{}: {problem}", path.display()))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    }
}

const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use monolock_protocol::{BootInstant, WallTime};

    fn at(seconds: u64) -> Now {
        Now {
            wall: WallTime::from_unix_seconds(seconds),
            boot: BootInstant::from_millis(1),
        }
    }

    fn problem(path: &Path) -> String {
        TokenFile::open(path, at(1_000)).expect_err("refused").to_string()
    }

    #[test]
    fn a_restart_starts_at_once_above_everything_reserved_also_when_the_clock_stepped_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let (file, mut tokens) = TokenFile::open(&path, at(1_000)).expect("opens");
        assert!(
            tokens.grant(at(1_000)).is_err(),
            "a first start knows nothing yet"
        );
        drop(file);
        let (file, mut tokens) = TokenFile::open(&path, at(1_005)).expect("opens");
        assert_eq!(tokens.grant(at(1_005)), Ok(Token::first_of_epoch(1_060)));
        drop(file);
        let (_file, mut tokens) = TokenFile::open(&path, at(7)).expect("opens");
        assert_eq!(tokens.grant(at(7)), Ok(Token::first_of_epoch(1_065)));
    }

    #[test]
    fn a_second_server_and_damage_are_refused_in_one_line_that_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let held = TokenFile::open(&path, at(1_000)).expect("opens");
        assert!(problem(&path).contains("another server uses it"));
        drop(held);
        let whole = std::fs::read_to_string(&path).expect("readable");
        for damage in [
            &whole[..whole.len() / 2],
            "",
            &whole.replace("1060", "1061"),
            &whole.replace("\"format\":1", "\"format\":2"),
        ] {
            std::fs::write(&path, damage).expect("writable");
            let problem = problem(&path);
            assert!(
                problem.starts_with("MONOLOCK_TOKEN_FILE: ") && !problem.contains('\n'),
                "{problem}"
            );
            assert!(problem.contains(&path.display().to_string()), "{problem}");
        }
        assert!(problem(&folder.path().join("missing/tokens")).contains("cannot be opened"));
    }
}
