//! Row formats: columns, cells, CSV, Excel CSV and NDJSON. Start with `write_rows`.

pub(crate) mod chunks;
pub(crate) mod columns;
pub(crate) mod csv;
pub(crate) mod excel;
pub(crate) mod ndjson;
pub(crate) mod parts;
pub(crate) mod prefetch;
pub(crate) mod row_writer;
pub(crate) mod time;
pub(crate) mod write_rows;
