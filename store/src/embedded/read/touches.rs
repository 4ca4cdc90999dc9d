//! Reads all stored touches.

use crate::StoreError;
use crate::embedded::read::snapshot::EmbeddedReader;
use crate::layout::codec::touch::split_contents;
use crate::reader::TouchScan;

impl EmbeddedReader {
    /// See [`crate::reader::Reader::scan_touches`].
    pub(crate) fn scan_touches(&self, scan: &mut TouchScan<'_>) -> Result<(), StoreError> {
        for table in self.tables.touches.all().iter() {
            // A table is dropped once all of its touches have expired.
            let Some(contents) = self.tables.db.cf_handle(&table.contents) else { continue };
            for entry in self.tables.entries(&contents) {
                let (_, value) = entry?;
                let (pid, record) = split_contents(&value)?;
                scan.visit(pid, record)?;
            }
        }
        Ok(())
    }
}
