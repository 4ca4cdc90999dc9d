//! The types of an open RocksDB.

use std::sync::Arc;

use rocksdb::{
    BoundColumnFamily, DBIteratorWithThreadMode, DBRawIteratorWithThreadMode, DBWithThreadMode,
    MultiThreaded,
};

/// A RocksDB whose tables can be created and dropped while others are read.
pub type Db = DBWithThreadMode<MultiThreaded>;
/// A table of an open RocksDB.
pub type Table<'d> = Arc<BoundColumnFamily<'d>>;
pub type RawIterator<'d> = DBRawIteratorWithThreadMode<'d, Db>;
pub type EntryIterator<'d> = DBIteratorWithThreadMode<'d, Db>;
