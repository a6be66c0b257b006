//! The file of access rules.

mod rules;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use monolock_core::Acl;
use monolock_protocol::LockName;

use crate::config::SettingError;

/// The rules for new claims.
#[derive(Debug)]
pub(crate) struct AclFile {
    path: PathBuf,
    current: ArcSwap<Acl>,
}

impl AclFile {
    pub(crate) fn load(path: &Path) -> Result<Self, SettingError> {
        Ok(Self {
            path: path.to_owned(),
            current: ArcSwap::from_pointee(load(path)?),
        })
    }

    /// Reads the file again; when that fails the old rules stay.
    pub(crate) fn reload(&self) -> Result<(), SettingError> {
        self.current.store(Arc::new(load(&self.path)?));
        Ok(())
    }

    pub(crate) fn allows(&self, identity: &str, lock: &LockName) -> bool {
        self.current.load().allows(identity, lock)
    }
}

fn load(path: &Path) -> Result<Acl, SettingError> {
    let unusable = |why: &dyn std::fmt::Display| {
        SettingError::new(
            "MONOLOCK_ACL_FILE",
            format!("{}: cannot be used: {why}", path.display()),
        )
    };
    let text = std::fs::read(path).map_err(|error| unusable(&error))?;
    rules::parse(&text).map_err(|why| unusable(&why))
}
