//! Parts that wait for each other, fail, or have more chunks than may wait.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread::ThreadId;

use super::*;

fn chunk(text: &str) -> Chunk {
    Chunk { bytes: text.into(), rows: 1 }
}

/// Writes parts that are numbers and returns the texts of all chunks.
fn written(
    parts: impl IntoIterator<Item = usize>,
    threads: usize,
    write: impl Fn(usize, &PartChunks) -> Result<(), ExportError> + Sync,
) -> (Vec<String>, Result<ControlFlow<()>, ExportError>) {
    let mut texts = Vec::new();
    let result = in_order(
        &mut parts.into_iter(),
        || threads,
        || (),
        |(), part, chunks| write(part, chunks),
        |chunk| {
            texts.push(String::from_utf8(chunk.bytes).unwrap());
            ControlFlow::Continue(())
        },
    );
    (texts, result)
}

fn expected(parts: usize, chunks: usize) -> Vec<String> {
    let of_part = |part| (0..chunks).map(move |number| format!("{part}.{number}"));
    (0..parts).flat_map(of_part).collect()
}

fn put(part: usize, number: usize, chunks: &PartChunks) {
    assert!(chunks.put(chunk(&format!("{part}.{number}"))).is_continue());
}

/// Each even part begins only after the odd part behind it has ended.
#[test]
fn parts_that_end_early_are_written_in_order() {
    for threads in [2, 3, 4, 8] {
        let ended: Vec<Barrier> = (0..10).map(|_| Barrier::new(2)).collect();
        let (texts, result) = written(0..20, threads, |part, chunks| {
            if part % 2 == 0 {
                ended[part / 2].wait();
            }
            (0..3).for_each(|number| put(part, number, chunks));
            if part % 2 == 1 {
                ended[part / 2].wait();
            }
            Ok(())
        });
        assert!(result.unwrap().is_continue());
        assert_eq!(texts, expected(20, 3), "{threads} threads");
    }
}

#[test]
fn a_part_may_have_any_number_of_chunks() {
    for chunks_of_part in [0, 1, CHUNKS_WAITING_MAX, 3 * CHUNKS_WAITING_MAX] {
        let (texts, result) = written(0..7, 3, |part, chunks| {
            (0..chunks_of_part).for_each(|number| put(part, number, chunks));
            Ok(())
        });
        assert!(result.unwrap().is_continue());
        assert_eq!(texts, expected(7, chunks_of_part));
    }
    assert!(written([], 4, |_, _| Ok(())).0.is_empty());
}

#[test]
fn an_error_comes_after_the_parts_before_it() {
    let (texts, result) = written(0..100, 4, |part, chunks| {
        // After the error, chunks of later parts are not needed.
        let _ = chunks.put(chunk(&format!("{part}.0")));
        if part == 3 { Err(ExportError::UnknownApp("3".into())) } else { Ok(()) }
    });
    assert_eq!(result.unwrap_err().to_string(), "no app has this key: \"3\"");
    assert_eq!(texts, expected(4, 1));
}

/// The sink takes nothing until all threads wait.
#[test]
fn chunks_in_memory_are_bounded_if_the_sink_is_slow() {
    const THREADS: usize = 3;
    /// Each thread waits with one more chunk.
    const WAITING: usize = THREADS * (CHUNKS_WAITING_MAX + 1);
    let (made, taken, most) = (AtomicUsize::new(0), Cell::new(0), Cell::new(0));
    let result = in_order(
        &mut (0..9_usize),
        || THREADS,
        || (),
        |(), part, chunks| {
            for number in 0..2 * CHUNKS_WAITING_MAX {
                made.fetch_add(1, SeqCst);
                put(part, number, chunks);
            }
            Ok(())
        },
        |_| {
            taken.set(taken.get() + 1);
            // The first chunk of the sink leaves a place in the first part.
            while taken.get() == 1 && made.load(SeqCst) < WAITING + 1 {
                std::thread::yield_now();
            }
            most.set(most.get().max(made.load(SeqCst) - taken.get()));
            ControlFlow::Continue(())
        },
    );
    assert!(result.unwrap().is_continue());
    assert_eq!(taken.get(), 9 * 2 * CHUNKS_WAITING_MAX);
    // A part more than threads may wait, whose thread has begun the next.
    let max = (THREADS + 1) * CHUNKS_WAITING_MAX + THREADS;
    assert!((WAITING..=max).contains(&most.get()), "{} chunks of at most {max}", most.get());
}

/// Threads wait for a place at that moment, and their parts never end by themselves.
#[test]
fn a_break_ends_all_threads() {
    let parts = Arc::new(());
    let result = in_order(
        &mut (0..9).map(|_| Arc::clone(&parts)),
        || 3,
        || Arc::clone(&parts),
        |_, _part, chunks| {
            while chunks.put(chunk("x")).is_continue() {}
            Ok(())
        },
        |_| ControlFlow::Break(()),
    );
    assert!(result.unwrap().is_break());
    assert_eq!(Arc::strong_count(&parts), 1);
}

/// Further downloads have started: the parts in memory are written, and the caller goes on alone.
#[test]
fn no_part_begins_once_the_threads_are_needed_elsewhere() {
    let calls = Cell::new(0);
    let threads = || {
        calls.set(calls.get() + 1);
        if calls.get() == 1 { 4 } else { 1 }
    };
    let (mut parts, mut texts) = (0..100_usize, Vec::new());
    let result = in_order(
        &mut parts,
        threads,
        || (),
        |(), part, chunks| {
            put(part, 0, chunks);
            Ok(())
        },
        |chunk| {
            texts.push(String::from_utf8(chunk.bytes).unwrap());
            ControlFlow::Continue(())
        },
    );
    assert!(result.unwrap().is_continue());
    assert_eq!((texts, parts), (expected(5, 1), 5..100));
}

/// Other downloads have started. Two of the four threads go on.
#[test]
fn fewer_parts_are_in_memory_once_fewer_threads_are_allowed() {
    let (calls, begun) = (Cell::new(0), Cell::new(0_u64));
    let threads = || {
        calls.set(calls.get() + 1);
        if calls.get() == 1 { 4 } else { 2 }
    };
    let mut parts = (0..50_u64).inspect(|_| begun.set(begun.get() + 1));
    let mut in_memory = Vec::new();
    let result = in_order(
        &mut parts,
        threads,
        || (),
        |(), part, chunks| {
            // The chunk has the number of its part instead of a number of rows.
            assert!(chunks.put(Chunk { bytes: Vec::new(), rows: part }).is_continue());
            Ok(())
        },
        |chunk| {
            in_memory.push(begun.get() - chunk.rows);
            ControlFlow::Continue(())
        },
    );
    assert!(result.unwrap().is_continue());
    assert_eq!(in_memory[..4], [5, 4, 3, 2]);
    assert!(in_memory[4..49].iter().all(|parts| *parts == 2), "{in_memory:?}");
}

#[test]
fn threads_are_limited_and_keep_their_state() {
    let (states, names) = (AtomicUsize::new(0), Mutex::new(HashSet::<ThreadId>::new()));
    let first = Barrier::new(4);
    let result = in_order(
        &mut (0..50_usize),
        || 4,
        || states.fetch_add(1, SeqCst),
        |_, part, _| {
            names.lock().insert(thread::current().id());
            // All threads are used at the same time.
            if part < 4 {
                first.wait();
            }
            Ok(())
        },
        |_| ControlFlow::Continue(()),
    );
    assert!(result.unwrap().is_continue());
    assert_eq!((states.load(SeqCst), names.lock().len()), (4, 4));
}
