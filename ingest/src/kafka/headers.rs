//! A record's headers, one by one.
//!
//! A header's name need not be UTF-8, and the client library panics over one that is not. Whoever
//! produces such a record must not end adtrail with it: the panic is caught here.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::message::{BorrowedMessage, Header, Headers, Message};

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// A header has a name that is not UTF-8, so none can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// All of them, in their order.
pub fn all<'m>(message: &'m BorrowedMessage<'_>) -> Result<Vec<Header<'m, &'m [u8]>>, Unreadable> {
    let Some(headers) = message.headers() else { return Ok(Vec::new()) };
    caught(|| headers.iter().collect())
}

/// The value of the last of a name, if headers can be read and there is one.
pub fn last<'m>(message: &'m BorrowedMessage<'_>, name: &str) -> Option<&'m [u8]> {
    let headers = message.headers()?;
    let find = || headers.iter().filter(|header| header.key == name).last();
    caught(find).ok().flatten()?.value
}

/// Whether a panic of this thread is one that is caught here, so that it says nothing of adtrail's
/// own state: a panic hook need not heed it.
pub fn are_being_read() -> bool {
    READING.get()
}

fn caught<T>(read: impl FnOnce() -> T) -> Result<T, Unreadable> {
    READING.set(true);
    // Nothing that is read is changed by reading it.
    let outcome = catch_unwind(AssertUnwindSafe(read));
    READING.set(false);
    outcome.map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_and_known_as_such() {
        let was_reading = Cell::new(false);
        let outcome: Result<(), _> = caught(|| {
            was_reading.set(are_being_read());
            panic!("a name is not UTF-8");
        });
        assert_eq!(outcome, Err(Unreadable));
        assert!(was_reading.get());
        assert!(!are_being_read());
        assert_eq!(caught(|| 1), Ok(1));
    }
}
