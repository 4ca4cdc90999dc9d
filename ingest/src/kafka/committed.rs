//! The committed offsets of the consumer group. The metadata of an offset has fingerprints of records, and names the
//! store that has read up to it. After a copy it names both stores.
//!
//! Over HBase, positions are the group's offsets. If another store has read in the same group meanwhile, a worker that
//! resumed from them would skip what that store has read.

use std::fmt;

use attribution::ledger::RecordFingerprint;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::assignment::{REQUEST_TIMEOUT, list_with_offset};
use super::clients::Consumer;
use super::error::IngestError;
use super::offsets::Offsets;
use super::partitions::Partitions;
use super::topics::{TopicKind, TopicNames};

const EMBEDDED: &str = "embedded";
const HBASE: &str = "hbase:";

/// Names a store in the metadata of offsets: `embedded`, or `hbase:` and the prefix of its tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreName(String);

impl StoreName {
    pub fn new(settings: &config::Store) -> Self {
        Self(match &settings.hbase {
            Some(hbase) => format!("{HBASE}{}", hbase.prefix),
            None => EMBEDDED.to_owned(),
        })
    }

    fn parse(word: &str) -> Option<Self> {
        (word == EMBEDDED || word.starts_with(HBASE)).then(|| Self(word.to_owned()))
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The group's committed offsets.
#[derive(Debug, Default)]
pub struct Committed {
    pub offsets: Offsets,
    /// The stores that each offset names, if it names any. Tools that reset offsets don't, nor did earlier versions.
    stores: Vec<(TopicKind, i32, Vec<StoreName>)>,
}

impl Committed {
    /// Returns the offsets for this store, which reads on from them.
    ///
    /// # Errors
    /// [`IngestError::OtherStore`] if another store has read records before an offset.
    pub fn into_offsets_of(
        self,
        store: &StoreName,
        names: &TopicNames,
        group: &str,
    ) -> Result<Offsets, IngestError> {
        const SHOWN_MAX: usize = 6;
        let is_other = |(topic, partition, stores): &&(TopicKind, i32, Vec<StoreName>)| {
            !stores.contains(store) && self.offsets.next(*topic, *partition) > Some(0)
        };
        let others: Vec<_> = self.stores.iter().filter(is_other).collect();
        if others.is_empty() {
            return Ok(self.offsets);
        }
        let shown = others.iter().take(SHOWN_MAX).map(|(topic, partition, stores)| {
            format!("{}/{partition} by {}", names.of(*topic), joined(stores, " and "))
        });
        let mut partitions = shown.collect::<Vec<_>>().join(", ");
        if others.len() > SHOWN_MAX {
            partitions.push_str(&format!(" and {} more", others.len() - SHOWN_MAX));
        }
        let (store, group) = (store.to_string(), group.to_owned());
        Err(IngestError::OtherStore { store, partitions, group })
    }
}

fn joined(stores: &[StoreName], separator: &str) -> String {
    stores.iter().map(|store| &*store.0).collect::<Vec<_>>().join(separator)
}

/// Fetches the group's committed offsets.
pub fn find_committed(
    consumer: &Consumer,
    names: &TopicNames,
    partitions: &Partitions,
) -> KafkaResult<Committed> {
    if partitions.is_empty() {
        return Ok(Committed::default());
    }
    let request = list_with_offset(names, partitions, Offset::Invalid)?;
    from_partition_list(names, &consumer.committed_offsets(request, REQUEST_TIMEOUT)?)
}

/// Parses offsets as [`to_partition_list`] writes them.
fn from_partition_list(names: &TopicNames, list: &TopicPartitionList) -> KafkaResult<Committed> {
    let mut committed = Committed::default();
    for element in list.elements() {
        element.error()?;
        let topic = names.kind(element.topic());
        if let (Some(topic), Offset::Offset(next)) = (topic, element.offset()) {
            let (partition, metadata) = (element.partition(), element.metadata());
            let mut records = metadata.split(' ').map(parse_fingerprint);
            let [known, last] = [records.next().flatten(), records.next().flatten()];
            committed.offsets.restore(topic, partition, next, known, last);
            let stores: Vec<_> = metadata.split(' ').filter_map(StoreName::parse).collect();
            if !stores.is_empty() {
                committed.stores.push((topic, partition, stores));
            }
        }
    }
    Ok(committed)
}

fn parse_fingerprint(text: &str) -> Option<RecordFingerprint> {
    let (offset, digest) = text.split_once(':')?;
    Some(RecordFingerprint {
        offset: offset.parse().ok()?,
        digest: u64::from_str_radix(digest, 16).ok()?,
    })
}

/// Lists offsets to commit. The metadata of each has the fingerprints of its verified and its last record, if they are
/// known, and the stores that have read up to it.
pub fn to_partition_list(
    names: &TopicNames,
    offsets: &Offsets,
    stores: &[StoreName],
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (topic, partition, next) in offsets.iter() {
        let mut element = list.add_partition(names.of(topic), partition);
        element.set_offset(Offset::Offset(next))?;
        let records = [offsets.known(topic, partition), offsets.last(topic, partition)];
        let records = records.into_iter().flatten();
        let words = records
            .map(|RecordFingerprint { offset, digest }| format!("{offset}:{digest:016x}"))
            .chain([joined(stores, " ")]);
        element.set_metadata(words.collect::<Vec<_>>().join(" "));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: TopicKind = TopicKind::Clicks;

    fn store(name: &str) -> StoreName {
        StoreName::parse(name).expect("it is the name of a store")
    }

    /// Offsets of partitions of one topic, as a group returns those that a store has committed.
    fn committed(next_offsets: &[i64], by: &[StoreName]) -> Committed {
        let (names, mut offsets) = (TopicNames::of_settings(), Offsets::default());
        (0..).zip(next_offsets).for_each(|(partition, next)| offsets.set(TOPIC, partition, *next));
        let list = to_partition_list(&names, &offsets, by).expect("the offsets are valid");
        from_partition_list(&names, &list).expect("the list has no errors")
    }

    /// Checks what a store over HBase says of offsets that another one has committed.
    #[track_caller]
    fn check(next_offsets: &[i64], by: &[&str], expected: &[&str]) {
        let by: Vec<_> = by.iter().map(|name| store(name)).collect();
        let committed = committed(next_offsets, &by);
        let outcome = committed.into_offsets_of(&store("hbase:a"), &TopicNames::of_settings(), "g");
        let error = outcome.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(error.is_empty(), expected.is_empty(), "{error}");
        for part in expected {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn offsets_of_another_store_are_refused() {
        check(&[5, 0], &["hbase:a"], &[]);
        let parts = ["hbase:a lacks", "kafka.clicks/0 by embedded, kafka.clicks/2 by embedded"];
        check(&[5, 0, 7], &["embedded"], &parts);
        check(&[5], &["hbase:b"], &["kafka.clicks/0 by hbase:b", "adtrail copy", "--group g "]);
        check(&[1; 9], &["embedded"], &["kafka.clicks/5 by embedded and 3 more"]);
        // That store has read nothing.
        check(&[0], &["embedded"], &[]);
        // After a copy, both may go on.
        check(&[5], &["embedded", "hbase:a"], &[]);
        check(&[5], &["embedded", "hbase:b"], &["kafka.clicks/0 by embedded and hbase:b"]);
    }

    #[test]
    fn metadata_has_fingerprints_and_a_store() {
        let record = |offset: i64| Some(RecordFingerprint { offset, digest: offset as u64 });
        let (names, mut offsets) = (TopicNames::of_settings(), Offsets::default());
        offsets.restore(TOPIC, 0, 9, record(4), record(8));
        offsets.restore(TOPIC, 1, 9, None, record(8));
        offsets.set(TOPIC, 2, 9);
        let written = [store("hbase:n:a"), store("embedded")];
        let list = to_partition_list(&names, &offsets, &written).expect("valid");
        let Committed { offsets, stores } = from_partition_list(&names, &list).expect("valid");
        let found = |partition| (offsets.known(TOPIC, partition), offsets.last(TOPIC, partition));
        assert_eq!(found(0), (record(4), record(8)));
        assert_eq!((found(1).0, found(2)), (record(8), (None, None)));
        let of = (0..3).map(|partition| (TOPIC, partition, written.to_vec()));
        assert_eq!(stores, of.collect::<Vec<_>>());
    }

    #[test]
    fn metadata_without_a_store_is_accepted() {
        for metadata in ["", "4:0000000000000004 8:0000000000000008", "of another tool"] {
            let mut list = TopicPartitionList::new();
            let mut element = list.add_partition("kafka.clicks", 0);
            element.set_offset(Offset::Offset(9)).expect("the offset is valid");
            element.set_metadata(metadata);
            let names = TopicNames::of_settings();
            let committed = from_partition_list(&names, &list).expect("the list has no errors");
            let offsets = committed.into_offsets_of(&store("hbase:a"), &names, "g");
            assert_eq!(offsets.map(|offsets| offsets.next(TOPIC, 0)).ok(), Some(Some(9)));
        }
    }
}
