//! Size and cost of the key layouts of rows and index entries, compared with alternatives, in a RocksDB with the
//! options of the store.
//!
//! `ADTRAIL_BENCH_KEYS` sets the number of rows (3,000,000).

#![allow(clippy::expect_used, reason = "a bench may fail loudly")]

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, SliceTransform,
    WriteBatch,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

const APPS: u64 = 50;
const PARTITIONS: u64 = 64;
const START_MS: u64 = 1_772_323_200_000;
const BATCH: u64 = 5_000;

fn main() {
    println!("{}", testbed::machine());
    let rows = std::env::var("ADTRAIL_BENCH_KEYS").ok().and_then(|text| text.parse().ok());
    let rows = rows.unwrap_or(3_000_000);
    rows_by_key(rows);
    println!();
    entries_by_key(rows);
}

/// An event generated from its number: ten per second, of one large app and many small ones.
struct Event {
    number: u64,
    pid: u32,
    ms: u64,
    seq: u64,
}

impl Event {
    fn new(number: u64) -> Self {
        let seq = xxh3_64(&number.to_be_bytes());
        // The first app has a tenth of all events, the others share the rest.
        let pid = if number.is_multiple_of(10) { 0 } else { 1 + seq % (APPS - 1) };
        Self { number, pid: pid as u32, ms: START_MS + number * 100, seq }
    }

    fn partition(&self) -> u16 {
        (xxh3_64(&self.pid.to_be_bytes()) % PARTITIONS) as u16
    }

    /// Writes a value of about the size and compressibility of a row.
    fn value(&self, out: &mut Vec<u8>) {
        use std::io::Write;
        out.clear();
        let number = self.number;
        // Ids of devices and clicks are not derived from the key, so that compression cannot use it.
        let id = xxh3_64(&(number + (1 << 40)).to_be_bytes());
        let _ = write!(
            out,
            "\x01e-{number}purchasec-{:032x}a-{}{id:032x}203.0.113.{}Mozilla/5.0 (Linux; Android \
             14; V{}) AppleWebKit/537.36 Mobileandroid141.29.99CNY",
            u128::from(id) << 32,
            number / 3,
            number % 250,
            number % 97
        );
    }
}

/// First key and exclusive end.
type Range = (Vec<u8>, Vec<u8>);

/// A layout of row keys, with the scans that find an app's rows in a time range.
struct Layout {
    name: &'static str,
    key: fn(&Event, &mut Vec<u8>),
    /// The key ranges that contain an app's rows between two times.
    ranges: fn(u32, u64, u64) -> Vec<Range>,
    /// Offset of the pid in the key, if the ranges contain rows of other apps.
    filter: Option<usize>,
}

fn concat_into(parts: [&[u8]; 4], out: &mut Vec<u8>) {
    out.clear();
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn u48(number: u64) -> [u8; 6] {
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    [a, b, c, d, e, f]
}

/// Returns the end of a row key: campaign and seq.
fn tail(event: &Event) -> [u8; 12] {
    let mut tail = [0; 12];
    tail[3] = (event.number % 20) as u8;
    tail[4..].copy_from_slice(&event.seq.to_be_bytes());
    tail
}

fn partition_of(pid: u32) -> u16 {
    Event { number: 0, pid, ms: 0, seq: 0 }.partition()
}

const LAYOUTS: [Layout; 6] = [
    Layout {
        name: "partition, pid, time, campaign, hash: ours",
        key: |e, out| {
            let head = [&e.partition().to_be_bytes()[..], &e.pid.to_be_bytes()].concat();
            concat_into([&head, &u48(e.ms), &tail(e), &[]], out);
        },
        ranges: |pid, from, to| {
            let at =
                |ms| [&partition_of(pid).to_be_bytes()[..], &pid.to_be_bytes(), &u48(ms)].concat();
            vec![(at(from), at(to))]
        },
        filter: None,
    },
    Layout {
        name: "the same as text, with dashes",
        key: |e, out| {
            let (partition, campaign) = (e.partition(), e.number % 20);
            let text =
                format!("{partition:05}-{:010}-{:013}-{campaign:010}-{:016x}", e.pid, e.ms, e.seq);
            concat_into([text.as_bytes(), &[], &[], &[]], out);
        },
        ranges: |pid, from, to| {
            let at = |ms| format!("{:05}-{pid:010}-{ms:013}", partition_of(pid)).into_bytes();
            vec![(at(from), at(to))]
        },
        filter: None,
    },
    Layout {
        name: "salted: hash mod 64 in place of the partition",
        key: |e, out| {
            let salt = (e.seq % PARTITIONS) as u16;
            let head = [&salt.to_be_bytes()[..], &e.pid.to_be_bytes()].concat();
            concat_into([&head, &u48(e.ms), &tail(e), &[]], out);
        },
        ranges: |pid, from, to| {
            let at = |salt: u64, ms| {
                [&(salt as u16).to_be_bytes()[..], &pid.to_be_bytes(), &u48(ms)].concat()
            };
            (0..PARTITIONS).map(|salt| (at(salt, from), at(salt, to))).collect()
        },
        filter: None,
    },
    Layout {
        name: "newest first: time reversed",
        key: |e, out| {
            let head = [&e.partition().to_be_bytes()[..], &e.pid.to_be_bytes()].concat();
            concat_into([&head, &u48((1 << 48) - 1 - e.ms), &tail(e), &[]], out);
        },
        ranges: |pid, from, to| {
            let at = |ms: u64| {
                let time = u48((1 << 48) - ms);
                [&partition_of(pid).to_be_bytes()[..], &pid.to_be_bytes(), &time].concat()
            };
            vec![(at(to), at(from))]
        },
        filter: None,
    },
    Layout {
        name: "time first: all apps by time",
        key: |e, out| concat_into([&u48(e.ms), &e.pid.to_be_bytes(), &tail(e), &[]], out),
        ranges: |_, from, to| vec![(u48(from).to_vec(), u48(to).to_vec())],
        filter: Some(6),
    },
    Layout {
        name: "hash of the event, 16 bytes",
        key: |e, out| {
            let hash = xxh3_128(&e.number.to_be_bytes()).to_be_bytes();
            concat_into([&hash, &e.pid.to_be_bytes(), &u48(e.ms), &[]], out);
        },
        ranges: |_, _, _| vec![(vec![], vec![0xff; 32])],
        filter: Some(16),
    },
];

fn rows_by_key(rows: u64) {
    println!(
        "{rows} rows of {APPS} apps; exports of the app with a tenth of them, warm: all its rows, and \
         an hour's"
    );
    println!(
        "{:<48} {:>6} {:>11} {:>12} {:>14} {:>12}",
        "key", "bytes", "disk B/row", "rows/CPU-s", "export µs/row", "an hour, ms"
    );
    for layout in LAYOUTS {
        let folder = tempfile::tempdir().expect("the temporary folder is created");
        let db = DB::open(&options(32 * 1024, None), folder.path()).expect("RocksDB opens");
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let start = process_cpu();
        for first in (0..rows).step_by(BATCH as usize) {
            let mut batch = WriteBatch::default();
            for number in first..rows.min(first + BATCH) {
                let event = Event::new(number);
                (layout.key)(&event, &mut key);
                event.value(&mut value);
                batch.put(&key, &value);
            }
            db.write(batch).expect("the write succeeds");
        }
        db.compact_range::<&[u8], &[u8]>(None, None);
        let writing = process_cpu() - start;
        let end_ms = START_MS + rows * 100;
        let (found, all) = scans(&db, &layout, end_ms, 1);
        assert_eq!(found, rows.div_ceil(10), "{}", layout.name);
        let repeats = if layout.filter.is_some() { 1 } else { 100 };
        let (_, hour) = scans(&db, &layout, START_MS + 3_600_000, repeats);
        println!(
            "{:<48} {:>6} {:>11.1} {:>12.0} {:>14.2} {:>12.1}",
            layout.name,
            key.len(),
            disk_bytes(&db) as f64 / rows as f64,
            rows as f64 / writing,
            all * 1e6 / found as f64,
            hour * 1e3
        );
    }
}

/// Returns the number of rows that a scan finds, and its CPU seconds: the average of `repeats` scans, in the best of
/// three rounds.
fn scans(db: &DB, layout: &Layout, to_ms: u64, repeats: u32) -> (u64, f64) {
    let mut best = f64::INFINITY;
    let mut found = 0;
    for _ in 0..3 {
        let start = thread_cpu();
        // A single short scan is too fast to measure.
        (0..repeats).for_each(|_| found = scan(db, layout, to_ms));
        best = best.min((thread_cpu() - start) / f64::from(repeats));
    }
    (found, best)
}

/// Counts the rows of the first app before `to_ms`.
fn scan(db: &DB, layout: &Layout, to_ms: u64) -> u64 {
    let mut found = 0;
    for (first, end) in (layout.ranges)(0, START_MS, to_ms) {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        options.set_readahead_size(2 << 20);
        let mut rows = db.raw_iterator_opt(options);
        rows.seek(first);
        while let (Some(key), Some(value)) = (rows.key(), rows.value()) {
            let matches = layout.filter.is_none_or(|at| key[at..at + 4] == [0; 4]);
            found += u64::from(matches && !value.is_empty());
            rows.next();
        }
    }
    found
}

/// A layout of index keys. The id of a device has 36 characters.
struct Index {
    name: &'static str,
    key: fn(&str, u64, u64, &mut Vec<u8>),
    /// Length of the part before the time.
    prefix: usize,
    is_reversed: bool,
}

const INDEXES: [Index; 3] = [
    Index {
        name: "hash u64, pid, time reversed, tag: ours",
        key: |id, ms, tag, out| {
            let hash = xxh3_64(id.as_bytes()).to_be_bytes();
            concat_into([&hash, &[0, 0, 0, 1], &u48((1 << 48) - 1 - ms), &u48(tag)], out);
        },
        prefix: 12,
        is_reversed: true,
    },
    Index {
        name: "the same with time ascending",
        key: |id, ms, tag, out| {
            let hash = xxh3_64(id.as_bytes()).to_be_bytes();
            concat_into([&hash, &[0, 0, 0, 1], &u48(ms), &u48(tag)], out);
        },
        prefix: 12,
        is_reversed: false,
    },
    Index {
        name: "the id itself, pid, time reversed, tag",
        key: |id, ms, tag, out| {
            concat_into([id.as_bytes(), &[0, 0, 0, 1], &u48((1 << 48) - 1 - ms), &u48(tag)], out);
        },
        prefix: 40,
        is_reversed: true,
    },
];

fn device(number: u64) -> String {
    let mixed = xxh3_128(&number.to_be_bytes());
    let hex = format!("{mixed:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn entries_by_key(entries: u64) {
    println!("{entries} index entries, three of each device; the newest before a time, warm");
    println!(
        "{:<48} {:>6} {:>11} {:>12} {:>14} {:>12}",
        "key", "bytes", "disk B/row", "rows/CPU-s", "found, µs", "none, µs"
    );
    for index in INDEXES {
        let folder = tempfile::tempdir().expect("the temporary folder is created");
        let db =
            DB::open(&options(8 * 1024, Some(index.prefix)), folder.path()).expect("RocksDB opens");
        let mut key = Vec::new();
        let start = process_cpu();
        for first in (0..entries).step_by(BATCH as usize) {
            let mut batch = WriteBatch::default();
            for number in first..entries.min(first + BATCH) {
                let tag = xxh3_64(&number.to_be_bytes());
                (index.key)(&device(number % (entries / 3)), START_MS + number, tag, &mut key);
                batch.put(&key, tag.to_be_bytes());
            }
            db.write(batch).expect("the write succeeds");
        }
        db.compact_range::<&[u8], &[u8]>(None, None);
        let writing = process_cpu() - start;
        let best = |from| {
            (0..3).map(|_| look_up(&db, &index, from, entries)).fold(f64::INFINITY, f64::min)
        };
        let (found, none) = (best(0), best(entries));
        println!(
            "{:<48} {:>6} {:>11.1} {:>12.0} {:>14.2} {:>12.2}",
            index.name,
            key.len(),
            disk_bytes(&db) as f64 / entries as f64,
            entries as f64 / writing,
            found,
            none
        );
    }
}

/// Returns the CPU microseconds per lookup of random devices with numbers from `from` on.
fn look_up(db: &DB, index: &Index, from: u64, entries: u64) -> f64 {
    const LOOKUPS: u64 = 100_000;
    let mut key = Vec::new();
    let mut hits = 0;
    let mut options = ReadOptions::default();
    options.set_prefix_same_as_start(true);
    // One iterator for all lookups; the store uses one for a batch.
    let mut iterator = db.raw_iterator_opt(options);
    let start = thread_cpu();
    for lookup in 0..LOOKUPS {
        let number = from + xxh3_64(&lookup.to_be_bytes()) % (entries / 3);
        if index.is_reversed {
            (index.key)(&device(number), START_MS + 2 * entries, 0, &mut key);
            iterator.seek(&key);
        } else {
            (index.key)(&device(number), START_MS + 2 * entries, 0, &mut key);
            iterator.seek_for_prev(&key);
        }
        hits += u64::from(iterator.key().is_some_and(|at| at.starts_with(&key[..index.prefix])));
    }
    assert_eq!(hits, if from == 0 { LOOKUPS } else { 0 }, "{}", index.name);
    (thread_cpu() - start) * 1e6 / LOOKUPS as f64
}

/// Returns the options of the store, see `store/src/embedded/open/options.rs`.
fn options(block_bytes: usize, prefix: Option<usize>) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(512 << 20));
    blocks.set_block_size(block_bytes);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_whole_key_filtering(false);
    blocks.set_format_version(6);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(96 << 20);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.increase_parallelism(2);
    if let Some(prefix) = prefix {
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(prefix));
    }
    options
}

fn disk_bytes(db: &DB) -> u64 {
    let files = db.live_files().expect("RocksDB lists its files");
    files.iter().map(|file| file.size as u64).sum()
}

/// Returns the CPU seconds used by all threads of this process.
fn process_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |field: usize| -> f64 {
        after_name.split_whitespace().nth(field).and_then(|text| text.parse().ok()).unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// Returns the CPU seconds used by this thread.
fn thread_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    nanos.unwrap_or(0.0) / 1e9
}
