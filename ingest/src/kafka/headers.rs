//! Reads a record's headers.
//!
//! Kafka allows header names that are not UTF-8, but the rdkafka crate panics on them. The panic is caught here, so
//! that such a record cannot end adtrail.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::message::{BorrowedMessage, Header, Headers, Message};

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// A header name is not UTF-8, so no header can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// Returns all headers in their order.
pub fn all<'m>(message: &'m BorrowedMessage<'_>) -> Result<Vec<Header<'m, &'m [u8]>>, Unreadable> {
    let Some(headers) = message.headers() else { return Ok(Vec::new()) };
    catch(|| headers.iter().collect())
}

/// Returns the value of the last header with this name, if the headers can be read.
pub fn last<'m>(message: &'m BorrowedMessage<'_>, name: &str) -> Option<&'m [u8]> {
    let headers = message.headers()?;
    let find = || headers.iter().filter(|header| header.key == name).last();
    catch(find).ok().flatten()?.value
}

/// Returns true while a panic of this thread would be caught here. A panic hook can ignore it, because it leaves
/// adtrail's state intact.
pub fn are_being_read() -> bool {
    READING.get()
}

fn catch<T>(read: impl FnOnce() -> T) -> Result<T, Unreadable> {
    READING.set(true);
    // Unwind-safe because reading changes nothing.
    let outcome = catch_unwind(AssertUnwindSafe(read));
    READING.set(false);
    outcome.map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_and_recognised() {
        let was_reading = Cell::new(false);
        let outcome: Result<(), _> = catch(|| {
            was_reading.set(are_being_read());
            panic!("a name is not UTF-8");
        });
        assert_eq!(outcome, Err(Unreadable));
        assert!(was_reading.get());
        assert!(!are_being_read());
        assert_eq!(catch(|| 1), Ok(1));
    }
}
