//! Divides the items of a batch among threads. The result is the same with any number of threads.
//!
//! The caller waits, so nothing runs beside it. `docs/decisions/workers.md` explains what is divided and why.

use std::panic::resume_unwind;
use std::thread::{Builder, ScopedJoinHandle, scope};

/// Number of items from which on another thread takes less time than it costs to start one.
const CHUNK_MIN: usize = 512;

/// The number of threads among which items are divided, that of the caller included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    threads: usize,
    chunk_min: usize,
}

impl Default for Parallelism {
    /// One thread.
    fn default() -> Self {
        Self::new(1)
    }
}

impl Parallelism {
    pub fn new(threads: usize) -> Self {
        Self::with_chunk_min(threads, CHUNK_MIN)
    }

    /// Like [`Parallelism::new`], with another number of items from which on a thread is started. Tests use a small
    /// one.
    pub fn with_chunk_min(threads: usize, chunk_min: usize) -> Self {
        Self { threads: threads.max(1), chunk_min: chunk_min.max(1) }
    }

    /// Calls `of_chunk` with consecutive chunks of the items, in parallel. Returns the results in the order of the
    /// chunks, of which there is at least one.
    pub fn map<T: Sync, R: Send>(self, items: &[T], of_chunk: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
        let mut first = None;
        let later = self.fold(items, &mut first, |result, chunk| *result = Some(of_chunk(chunk)));
        first.into_iter().chain(later.into_iter().flatten()).collect()
    }

    /// Calls `add` with consecutive chunks of the items, in parallel, to add their results to `first` for the first
    /// chunk, and to an empty accumulator for each later one. Returns the later accumulators in the order of the
    /// chunks.
    pub fn fold<T: Sync, A: Default + Send>(
        self,
        items: &[T],
        first: &mut A,
        add: impl Fn(&mut A, &[T]) + Sync,
    ) -> Vec<A> {
        let thread = || Builder::new().name("adtrail-worker".into());
        self.fold_on(thread, items, first, add)
    }

    /// [`Parallelism::fold`] on threads that `thread` describes.
    fn fold_on<T: Sync, A: Default + Send>(
        self,
        thread: impl Fn() -> Builder,
        items: &[T],
        first: &mut A,
        add: impl Fn(&mut A, &[T]) + Sync,
    ) -> Vec<A> {
        let mut chunks = items.chunks(self.chunk_len(items.len()));
        let own = chunks.next().unwrap_or_default();
        let of_chunk = |chunk: &[T]| {
            let mut results = A::default();
            add(&mut results, chunk);
            results
        };
        let of_chunk = &of_chunk;
        scope(|scope| {
            let started = chunks.map(|chunk| {
                // If the system has no further thread, this one does the work.
                thread().spawn_scoped(scope, move || of_chunk(chunk)).map_err(|_| chunk)
            });
            let started: Vec<Result<ScopedJoinHandle<'_, A>, &[T]>> = started.collect();
            add(first, own);
            let results = started.into_iter().map(|started| match started {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(chunk) => of_chunk(chunk),
            });
            results.collect()
        })
    }

    fn chunk_len(self, items: usize) -> usize {
        let chunks = (items / self.chunk_min).clamp(1, self.threads);
        items.div_ceil(chunks).max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::thread::ThreadId;

    use super::*;

    #[track_caller]
    fn check_chunks(threads: usize, chunk_min: usize, items: usize, expected: &[usize]) {
        let parallelism = Parallelism::with_chunk_min(threads, chunk_min);
        assert_eq!(parallelism.map(&vec![0_u8; items], <[u8]>::len), expected);
    }

    #[test]
    fn items_are_divided_once_each_thread_has_enough_of_them() {
        check_chunks(8, 100, 0, &[0]);
        check_chunks(8, 100, 199, &[199]);
        check_chunks(8, 100, 200, &[100, 100]);
        check_chunks(3, 100, 1_000, &[334, 334, 332]);
        check_chunks(1, 100, 1_000, &[1_000]);
        check_chunks(8, 1, 3, &[1, 1, 1]);
        check_chunks(0, 0, 2, &[2]);
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        for threads in [1, 2, 3, 8, 200] {
            let parallelism = Parallelism::with_chunk_min(threads, 1);
            assert_eq!(parallelism.map(&items, <[u32]>::to_vec).concat(), items, "{threads}");
            let mut first = vec![u32::MAX];
            let later = parallelism.fold(&items, &mut first, |all, chunk| all.extend(chunk));
            let expected = [[u32::MAX].as_slice(), &items].concat();
            assert_eq!([first, later.concat()].concat(), expected, "{threads}");
        }
    }

    #[test]
    fn chunks_are_processed_by_different_threads() {
        let parallelism = Parallelism::with_chunk_min(3, 1);
        let mut ids = parallelism.map(&[0_u8; 3], |_| std::thread::current().id());
        assert_eq!(ids.first(), Some(&std::thread::current().id()), "the caller's");
        ids.dedup();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn the_caller_does_what_refused_threads_would() {
        // No system has such a stack.
        let refused = || Builder::new().stack_size(1 << 60);
        assert!(refused().spawn(|| ()).is_err());
        let (items, mut first) = ([1, 2, 3], Vec::<(u32, ThreadId)>::new());
        let later =
            Parallelism::with_chunk_min(3, 1).fold_on(refused, &items, &mut first, |all, chunk| {
                all.extend(chunk.iter().map(|item| (*item, std::thread::current().id())));
            });
        let own = std::thread::current().id();
        assert_eq!((first, later), (vec![(1, own)], vec![vec![(2, own)], vec![(3, own)]]));
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let last_panics = || {
            Parallelism::with_chunk_min(2, 1).map(&[1, 2], |chunk| assert!(chunk != [2], "two"));
        };
        let panic = catch_unwind(last_panics).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"two"));
    }
}
