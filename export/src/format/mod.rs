//! Row formats: columns, cells, CSV, Excel CSV and NDJSON. Start with `write_rows`.

pub(crate) mod catalog_cells;
pub(crate) mod cell;
pub(crate) mod channel;
pub(crate) mod column;
pub(crate) mod column_plan;
pub(crate) mod csv;
pub(crate) mod excel;
pub(crate) mod field;
pub(crate) mod field_value;
pub(crate) mod ndjson;
pub(crate) mod prefetch;
pub(crate) mod prop;
pub(crate) mod row_writer;
pub(crate) mod time_zone;
pub(crate) mod value;
pub(crate) mod write_rows;
pub(crate) mod zone;
