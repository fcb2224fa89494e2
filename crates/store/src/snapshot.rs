//! Saving to and restoring from a file.
use crate::{Store, StoreConfig, StoreError};
use curtail_types::Now;
use std::path::Path;
impl Store {
    /// Writes everything to `path`, through a temporary file beside it. No writer may be at work
    /// meanwhile; the store stays usable whatever the result.
    ///
    /// # Errors
    /// [`StoreError::File`] when the disk is full or the file cannot be written.
    pub fn save(&self, _path: &Path, _now: Now) -> Result<(), StoreError> {
        todo!()
    }

    /// A store with what [`Store::save`] wrote; hash seed and version floor come from the file,
    /// the rest from `config`.
    ///
    /// # Errors
    /// [`StoreError::File`], [`StoreError::Corrupt`] or [`StoreError::Mismatch`]; the caller then
    /// starts cold with [`Store::new`].
    pub fn restore(_path: &Path, _config: StoreConfig, _now: Now) -> Result<Self, StoreError> {
        todo!()
    }
}
