//! Statistics of the RocksDB engine.

use adtrail_store::embedded::{Embedded, Engine, EngineStats, TableStats};
use attribution::facts::event::{Family, IdSpace};
use attribution::facts::match_keys::fact_key;
use attribution::ledger::index::Scan;
use tempfile::TempDir;

use super::{commit, end_of_time, record_facts, record_of, scan, times, touch, write};
use crate::support::facts::{effect, millis};
use crate::support::rules::{X, rules};
use crate::support::run::on_disk;

const MIB: u64 = 1 << 20;

fn stats(store: &Embedded) -> EngineStats {
    store.engine().stats().expect("the statistics are readable")
}

fn table(stats: &EngineStats, name: &str) -> TableStats {
    let index = Engine::TABLES.iter().position(|table| *table == name).expect("the table exists");
    stats.tables[index]
}

/// Returns a store with `count` clicks, each under its own key, counted from 0.
fn with_clicks(count: u64) -> (Embedded, TempDir) {
    let (mut store, dir) = on_disk(&rules());
    record_facts(&mut store, (0..count).map(|n| touch(&format!("c{n}"), 1_000, &[n])));
    commit(&mut store);
    (store, dir)
}

/// Returns a store with `count` effects, each under its own key, counted from 0.
fn with_effects(count: u64) -> (Embedded, TempDir) {
    let (mut store, dir) = on_disk(&rules());
    let effects = (0..count).map(|n| write(effect(&format!("e{n}"), millis(1_000)), &[n]));
    record_facts(&mut store, effects);
    commit(&mut store);
    (store, dir)
}

/// Returns how many of 500 ids of effects are found.
fn found(store: &mut Embedded, prefix: &str) -> usize {
    let key = |n: &u32| fact_key(IdSpace::Effect, X, &format!("{prefix}{n}"));
    (0..500).filter(|n| record_of(store, key(n)).is_some()).count()
}

#[test]
fn write_buffers_are_charged_to_the_cache() {
    let (store, _dir) = with_clicks(20_000);
    let stats = stats(&store);
    assert_eq!(stats.cache_capacity_bytes, 64 * MIB);
    let buffers: u64 = stats.tables.iter().map(|table| table.memtable_bytes).sum();
    assert!(buffers > 4 * MIB, "only {buffers} bytes in write buffers");
    assert!(
        stats.cache_bytes >= buffers,
        "the cache is not charged for {buffers} bytes: {stats:?}"
    );
}

#[test]
fn written_bytes_are_counted_from_the_log_to_the_files() {
    let (store, _dir) = with_clicks(1_000);
    let before = stats(&store);
    assert!(before.written_bytes > 100_000, "{before:?}");
    assert!(before.wal_written_bytes >= before.written_bytes, "{before:?}");
    assert!(before.wal_bytes >= before.written_bytes, "{before:?}");
    assert_eq!((before.flush_written_bytes, before.compaction_written_bytes), (0, 0));
    let touches = table(&before, "touches");
    assert_eq!((touches.files, touches.disk_bytes), (0, 0));
    assert!(touches.memtable_bytes > 100_000, "{touches:?}");

    store.compact().unwrap();
    let after = stats(&store);
    assert!(after.flush_written_bytes > 10_000, "{after:?}");
    let touches = table(&after, "touches");
    // Index and contents of one day.
    assert_eq!((touches.files, touches.compaction_pending_bytes), (2, 0));
    assert!(touches.disk_bytes > 10_000, "{touches:?}");
    assert_eq!((table(&after, "effects").files, table(&after, "effects").disk_bytes), (0, 0));
    assert_eq!((after.is_stopped, after.is_delayed, after.stalled_micros), (false, false, 0));
}

/// A checkpoint flushes the write buffers, so each late touch is in files of its own at first.
#[test]
fn late_touches_do_not_rewrite_the_index_of_their_day() {
    let (mut store, _dir) = with_clicks(20_000);
    let flush = |store: &Embedded| store.checkpoints().take().expect("the checkpoint is created");
    flush(&store);
    let before = stats(&store);
    for late in 0..20 {
        record_facts(&mut store, [touch(&format!("late{late}"), 2_000, &[late])]);
        commit(&mut store);
        flush(&store);
    }
    let after = testbed::eventually("the files are compacted", || {
        let stats = stats(&store);
        let is_compacted = stats.compaction_written_bytes > 0 && stats.compactions_running == 0;
        if is_compacted { Ok(stats) } else { Err("no compaction has finished") }
    });
    let (written, day) = (after.compaction_written_bytes, before.flush_written_bytes);
    assert!(written < day / 2, "{written} bytes of {day} were written again");
}

#[test]
fn hits_of_filters_and_cache_are_counted() {
    let (mut store, _dir) = with_effects(1_000);
    store.compact().unwrap();
    let before = stats(&store);
    assert_eq!(found(&mut store, "none"), 0);
    let missed = stats(&store);
    // The filter is not consulted for keys outside the key range of a file.
    let checks = missed.filter_checks - before.filter_checks;
    assert!((450..=500).contains(&checks), "{checks} of 500");
    let useful = missed.filter_useful - before.filter_useful;
    assert!((450..=500).contains(&useful), "{useful} of 500");

    assert_eq!(found(&mut store, "e"), 500);
    let hit = stats(&store);
    assert_eq!(hit.filter_useful, missed.filter_useful);
    assert!(hit.cache_misses > missed.cache_misses, "{hit:?}");
    assert_eq!(found(&mut store, "e"), 500);
    let again = stats(&store);
    assert_eq!(again.cache_misses, hit.cache_misses);
    assert!(again.cache_hits >= hit.cache_hits + 500, "{again:?}");
}

#[test]
fn filter_checks_of_scans_are_counted() {
    let (mut store, _dir) = with_effects(1_000);
    store.compact().unwrap();
    let before = stats(&store);
    let of_effects = |key| Scan { family: Family::Effect, ..scan(key, end_of_time(), 0) };
    for key in 0..500 {
        assert_eq!(times(&mut store, of_effects(1_000_000 + key)), [0; 0]);
        assert_eq!(times(&mut store, of_effects(key)), [1_000]);
    }
    let after = stats(&store);
    assert_eq!(after.filter_checks - before.filter_checks, 1_000);
    let useful = after.filter_useful - before.filter_useful;
    assert!((450..=500).contains(&useful), "{useful} of 500");
}
