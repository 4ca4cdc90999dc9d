//! An estimate of an export before its download: the number of rows, the approximate size, the first rows, and rows
//! by day.

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};
use store::reader::Reader;

use super::{Preview, preview};
use crate::ExportError;
use crate::api::summary::{DayCount, count_days, count_rows};
use crate::query::ExportQuery;

#[derive(Debug)]
pub(crate) struct Estimate {
    pub rows: u64,
    /// `None` if there would be too many groups.
    pub days: Option<Vec<DayCount>>,
    pub preview: Preview,
    /// Set if the app has any rows, also outside the query.
    pub has_others: bool,
}

/// Estimates an export.
pub(crate) fn estimate(
    reader: &Reader,
    app: &AppPolicy,
    query: &ExportQuery,
    policy: &Policy,
) -> Result<Estimate, ExportError> {
    let days = match count_days(reader, app, query, policy) {
        Ok(days) => Some(days),
        // With too many groups, only the chart is left out.
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
        let all = EventTime::default()..EventTime::END;
        view.rows(app, all, None)?.current()?.is_some()
    };
    Ok(Estimate { rows, days, preview, has_others })
}

impl Estimate {
    /// Returns the number of rows in the preview, and their bytes in the file.
    pub fn read(&self) -> (u64, u64) {
        (self.preview.rows.len() as u64, self.preview.rows_bytes)
    }

    /// Returns the expected size of the file, extrapolated from the rows of the preview, and whether it is exact.
    pub fn bytes(&self) -> (u64, bool) {
        let Preview { head_bytes, rows_bytes, rows, .. } = &self.preview;
        let previewed = rows.len() as u64;
        if previewed == 0 {
            return (*head_bytes, self.rows == 0);
        }
        let of_rows = u128::from(*rows_bytes) * u128::from(self.rows) / u128::from(previewed);
        (head_bytes + u64::try_from(of_rows).unwrap_or(u64::MAX / 2), previewed == self.rows)
    }
}
