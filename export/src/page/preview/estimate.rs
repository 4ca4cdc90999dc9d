//! What there is to be seen of an export before it is downloaded: how many rows, about how many
//! bytes, the first rows, and rows by day.

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};
use store::reader::Reader;

use super::{Preview, preview};
use crate::ExportError;
use crate::api::summary::{DayCount, count_days, count_rows};
use crate::query::ExportQuery;

#[derive(Debug)]
pub(crate) struct Look {
    pub rows: u64,
    /// `None` where there would be too many.
    pub days: Option<Vec<DayCount>>,
    pub preview: Preview,
    /// Whether there are rows at another time, or of another kind.
    pub has_others: bool,
}

/// # Errors
/// The store's.
pub(crate) fn look(
    reader: &Reader,
    app: &AppPolicy,
    query: &ExportQuery,
    policy: &Policy,
) -> Result<Look, ExportError> {
    let days = match count_days(reader, app, query, policy) {
        Ok(days) => Some(days),
        // Too many groups are no reason to show nothing.
        Err(ExportError::BadParameter { .. }) => None,
        Err(error) => return Err(error),
    };
    let rows = match &days {
        Some(days) => days.iter().map(|count| count.rows).sum(),
        None => count_rows(reader, app, query, policy)?,
    };
    let preview = match rows {
        0 => Preview::default(),
        _ => preview(reader, app, query, policy)?,
    };
    let has_others = rows > 0 || {
        let view = reader.view();
        let all = (EventTime::default(), EventTime::END);
        view.rows(app, all, None)?.current()?.is_some()
    };
    Ok(Look { rows, days, preview, has_others })
}

impl Look {
    /// The rows that were read to be shown, and their bytes as they are in the file.
    pub fn read(&self) -> (u64, u64) {
        (self.preview.rows.len() as u64, self.preview.rows_bytes)
    }

    /// Bytes of the file to expect, from the rows that were looked at; and whether it is exact.
    pub fn bytes(&self) -> (u64, bool) {
        let Preview { head_bytes, rows_bytes, rows, .. } = &self.preview;
        let seen = rows.len() as u64;
        if seen == 0 {
            return (*head_bytes, self.rows == 0);
        }
        let of_rows = u128::from(*rows_bytes) * u128::from(self.rows) / u128::from(seen);
        (head_bytes + u64::try_from(of_rows).unwrap_or(u64::MAX / 2), seen == self.rows)
    }
}
