//! The decisions that stand, as they are stored.

use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::Facts;
use attribution::ledger::record::FactRecord;
use attribution::outbox::record::CreditMark;
use attribution::rules::policy::Policy;
use store::StoreError;
use store::layout::codec::row::{RowView, TextCell};
use store::reader::Reader;

/// What the store has of an event.
pub enum Present {
    /// The event or its app is gone.
    Gone,
    /// Another worker has committed the decision and is about to write the row, or has an app or a campaign that this
    /// process lacks until it is reloaded.
    Unwritten,
    /// The event or its row is damaged.
    Unreadable,
    Decided(Box<Decided>),
}

/// An event with its decision.
pub struct Decided {
    pub record: FactRecord,
    pub mark: CreditMark,
    /// The value of the row that shows the decision.
    row: Vec<u8>,
}

impl Decided {
    fn new(record: FactRecord, row: Vec<u8>) -> Result<Option<Self>, StoreError> {
        let Some(current) = record.current_row() else { return Ok(None) };
        let view = RowView::decode(&row)?;
        let touch = view.touch_kind.map(|kind| (kind, view.text(TextCell::ClickId)));
        let mark = CreditMark::new(view.status, current.spreadid, touch, view.reject_reason);
        Ok(Some(Self { record, mark, row }))
    }

    /// # Errors
    /// If the row is damaged.
    pub fn row(&self) -> Result<RowView<'_>, StoreError> {
        RowView::decode(&self.row)
    }
}

/// Reads the present decision on each event.
pub fn read(
    reader: &mut Reader,
    policy: &Policy,
    events: &[FactKey],
) -> Result<Vec<Present>, StoreError> {
    read_readable(events, |events| read_all(reader, policy, events), || Present::Unreadable)
}

/// Reads all at once or, if something is damaged, one after another, with `damaged` in place of what is.
pub fn read_readable<T>(
    keys: &[FactKey],
    mut read: impl FnMut(&[FactKey]) -> Result<Vec<T>, StoreError>,
    damaged: impl Fn() -> T,
) -> Result<Vec<T>, StoreError> {
    let together = read(keys);
    if !matches!(together, Err(StoreError::Corrupt { .. })) {
        return together;
    }
    let mut all = Vec::with_capacity(keys.len());
    for key in keys {
        match read(&[*key]) {
            Err(StoreError::Corrupt { .. }) => all.push(damaged()),
            one => all.extend(one?),
        }
    }
    Ok(all)
}

fn read_all(
    reader: &mut Reader,
    policy: &Policy,
    events: &[FactKey],
) -> Result<Vec<Present>, StoreError> {
    let records = reader.records(events)?;
    let is_known = |pid: Pid| policy.app(pid).is_some();
    let found = events.iter().zip(records).map(|(event, record)| {
        let record = record.filter(|record| record.current_row().is_some());
        record.filter(|_| is_known(event.pid)).map(|record| (*event, record))
    });
    let found: Vec<Option<(FactKey, FactRecord)>> = found.collect();
    let decided: Vec<(FactKey, FactRecord)> = found.iter().flatten().cloned().collect();
    let mut rows = reader.current_rows(&decided)?.into_iter();
    // An embedded store writes both at once, so the row has expired there.
    let without_row = || match reader {
        Reader::Embedded(_) => Present::Gone,
        Reader::Shared(_) => Present::Unwritten,
    };
    let present = events.iter().zip(found).map(|(event, found)| {
        let Some((_, record)) = found else {
            let is_known = is_known(event.pid);
            return Ok(if is_known { Present::Gone } else { without_row() });
        };
        let Some(row) = rows.next().flatten() else { return Ok(without_row()) };
        let decided = Decided::new(record, row)?;
        Ok(decided.map_or(Present::Gone, |decided| Present::Decided(Box::new(decided))))
    });
    present.collect()
}

/// Returns a time as the crate `callback` has it.
pub fn millis(time: EventTime) -> i64 {
    i64::try_from(time.millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use attribution::facts::match_keys::fact_key;
    use attribution::rules::row::EventType;

    use super::*;

    #[test]
    fn what_is_damaged_hides_nothing_else() {
        let keys = ["a", "b", "c"].map(|id| fact_key(EventType::Activation, Pid(1), id));
        let read = |asked: &[FactKey]| match asked.contains(&keys[1]) {
            true => Err(StoreError::Corrupt { what: "a row".to_owned() }),
            false => Ok(asked.iter().copied().map(Some).collect()),
        };
        let found = read_readable(&keys, read, || None).unwrap();
        assert_eq!(found, [Some(keys[0]), None, Some(keys[2])]);
        let failing = |_: &[FactKey]| Err(StoreError::Writer { reason: "has ended".to_owned() });
        assert!(read_readable::<()>(&keys, failing, || ()).is_err());
    }
}
