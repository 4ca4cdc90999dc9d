//! The thread that owns the files of the spool. It writes all events that wait with one fsync.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::folder::{Folder, Listing, Name};
use super::metrics::SpoolMetrics;
use super::record::{self, Event, Scan};
use super::state::{SpoolError, State};
use crate::metrics::OwnedLabels;

/// A segment that is at least this long is sealed. A crash repeats at most one segment's events.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Events that are written together.
const GROUP_BYTES: u64 = 1 << 20;

/// What the writer does.
pub(super) enum Request {
    Append(Append),
    /// Returns the first segment after this number. Seals the segment that is written if no other one comes after it.
    Next {
        after: u64,
        reply: oneshot::Sender<Option<Segment>>,
    },
    /// Keeps events that Kafka will never accept; false if they cannot be written.
    Reject {
        events: Vec<Event>,
        reply: oneshot::Sender<bool>,
    },
    /// Removes a segment; false if it remains.
    Finish {
        number: u64,
        outcome: Outcome,
        reply: oneshot::Sender<bool>,
    },
}

pub(super) struct Append {
    pub event: Event,
    pub labels: OwnedLabels,
    /// The receiver is gone if the client has disconnected; the event counts nevertheless.
    pub reply: oneshot::Sender<Result<(), SpoolError>>,
}

/// A file of events that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub name: Name,
    pub bytes: u64,
    pub events: u64,
    pub is_damaged: bool,
}

/// What became of a segment's events.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How many Kafka has acknowledged.
    pub acknowledged: u64,
    /// How many Kafka will never accept. They are kept already.
    pub rejected: u64,
    /// The other events.
    pub remaining: Vec<Event>,
    /// More is damaged than was known.
    pub is_damaged: bool,
}

pub(super) struct Writer {
    folder: Arc<Folder>,
    state: Arc<State>,
    metrics: SpoolMetrics,
    bytes_max: u64,
    /// The segment that is written.
    active: Option<(Segment, File)>,
    sealed: BTreeMap<u64, Segment>,
    next_number: u64,
    /// The size of all files in the directory.
    bytes: u64,
    /// The last write failed.
    is_failing: bool,
}

impl Writer {
    /// Finds the events of an earlier process. At the end of the last segment there may be a group of events that was
    /// never acknowledged, because the process ended while it was written; this is cut off.
    pub fn open(folder: Arc<Folder>, state: Arc<State>, bytes_max: u64) -> io::Result<Self> {
        let Listing { segments, bytes, next_number } = folder.list()?;
        let metrics = SpoolMetrics::new(bytes_max);
        let mut writer = Self {
            folder,
            state,
            metrics,
            bytes_max,
            active: None,
            sealed: BTreeMap::new(),
            next_number: next_number.max(1),
            bytes,
            is_failing: false,
        };
        let last = segments.last().copied();
        for name in segments {
            writer.recover(name, Some(name) == last)?;
        }
        let events = writer.events();
        if events > 0 {
            let path = writer.folder.path().display();
            tracing::info!(events, path = %path, "events of an earlier process wait for kafka");
        }
        writer.metrics.recovered(events);
        writer.publish();
        Ok(writer)
    }

    fn recover(&mut self, name: Name, is_last: bool) -> io::Result<()> {
        let bytes = self.folder.read(name, u64::MAX)?;
        let Scan { events, damaged_bytes, tail_bytes } = record::scan(&bytes, name.marker);
        let (mut length, mut damaged_bytes) = (bytes.len() as u64, damaged_bytes);
        if is_last && tail_bytes > 0 {
            length -= tail_bytes;
            self.folder.cut(name, length)?;
            self.bytes -= tail_bytes;
            tracing::info!(
                bytes = tail_bytes,
                "cut off an unfinished write at the end of the spool"
            );
        } else {
            damaged_bytes += tail_bytes;
        }
        let events = events.len() as u64;
        let segment = Segment { name, bytes: length, events, is_damaged: damaged_bytes > 0 };
        if segment.is_damaged {
            let segment = name.number;
            // The blocks of a write need not reach the disk in their order.
            let loss = match is_last {
                true => "if the machine stopped during a write, the events may not be acknowledged",
                false => "acknowledged events are lost",
            };
            tracing::error!(
                segment,
                bytes = damaged_bytes,
                "a segment of the spool is damaged: {loss}"
            );
            self.metrics.damaged();
        }
        if events == 0 {
            self.discard(segment);
        } else {
            self.sealed.insert(name.number, segment);
        }
        Ok(())
    }

    /// Serves requests until all senders are gone.
    pub fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(request) = requests.blocking_recv() {
            let (mut next, mut group, mut bytes) = (Some(request), Vec::new(), 0);
            while let Some(request) = next {
                match request {
                    Request::Append(append) => {
                        bytes += append.event.record_bytes();
                        group.push(append);
                    }
                    Request::Next { after, reply } => {
                        self.commit(mem::take(&mut group));
                        // The receiver is gone if the process ends.
                        let _ = reply.send(self.next(after));
                    }
                    Request::Reject { events, reply } => {
                        self.commit(mem::take(&mut group));
                        let _ = reply.send(self.reject(&events));
                    }
                    Request::Finish { number, outcome, reply } => {
                        self.commit(mem::take(&mut group));
                        let _ = reply.send(self.finish(number, outcome));
                    }
                }
                next = (bytes < GROUP_BYTES).then(|| requests.try_recv().ok()).flatten();
            }
            self.commit(group);
        }
    }

    /// Writes events, and answers once they are on disk. Those beyond the bound are refused.
    fn commit(&mut self, group: Vec<Append>) {
        if group.is_empty() {
            return;
        }
        let mut bytes = self.bytes;
        let (taken, beyond): (Vec<_>, Vec<_>) = group.into_iter().partition(|append| {
            let needed = bytes.saturating_add(append.event.record_bytes());
            let has_room = needed <= self.bytes_max;
            bytes = if has_room { needed } else { bytes };
            has_room
        });
        self.state.set_full(!beyond.is_empty());
        for Append { labels, reply, .. } in beyond {
            self.metrics.refused(&labels, "full");
            let _ = reply.send(Err(SpoolError::Full));
        }
        let written = self.write(taken.iter().map(|append| &append.event));
        self.publish();
        for Append { labels, reply, .. } in taken {
            let answer = match &written {
                Ok(()) => {
                    self.metrics.spooled(&labels);
                    Ok(())
                }
                Err(_) => {
                    self.metrics.refused(&labels, "disk");
                    Err(SpoolError::Disk)
                }
            };
            let _ = reply.send(answer);
        }
    }

    /// Writes events into the active segment, all or none.
    fn write<'e>(&mut self, events: impl Iterator<Item = &'e Event>) -> io::Result<()> {
        let mut events = events.peekable();
        if events.peek().is_none() {
            return Ok(());
        }
        let written = self.try_write(events);
        self.log_change(written.as_ref().err());
        written
    }

    /// After an error it is not known what of the segment's end is on disk, so that nothing more is written there.
    fn try_write<'e>(&mut self, events: impl Iterator<Item = &'e Event>) -> io::Result<()> {
        let (mut segment, mut file) = match self.active.take() {
            Some(active) => active,
            None => self.create()?,
        };
        let (mut bytes, mut count) = (Vec::new(), 0);
        for event in events {
            record::encode(event, segment.name.marker, &mut bytes);
            count += 1;
        }
        if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_data()) {
            // If this fails, too, readers stop at the segment's length.
            let _ = file.set_len(segment.bytes);
            self.seal(segment);
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        segment.events += count;
        self.bytes += bytes.len() as u64;
        if segment.bytes < SEGMENT_BYTES {
            self.active = Some((segment, file));
        } else {
            self.seal(segment);
        }
        Ok(())
    }

    fn create(&mut self) -> io::Result<(Segment, File)> {
        let number = self.next_number;
        self.next_number += 1;
        let (name, file) = self.folder.create(number)?;
        Ok((Segment { name, bytes: 0, events: 0, is_damaged: false }, file))
    }

    fn seal(&mut self, segment: Segment) {
        if segment.events == 0 {
            self.discard(segment);
        } else {
            self.sealed.insert(segment.name.number, segment);
        }
    }

    fn next(&mut self, after: u64) -> Option<Segment> {
        let from = after.saturating_add(1);
        if self.sealed.range(from..).next().is_none()
            && let Some((segment, _)) = self.active.take()
        {
            self.seal(segment);
        }
        self.sealed.range(from..).next().map(|(_, segment)| *segment)
    }

    /// Removes a segment. Events that remain are written again, behind all others, beyond the bound if need be. If that
    /// fails, the segment stays as it is.
    fn finish(&mut self, number: u64, outcome: Outcome) -> bool {
        let Outcome { acknowledged, rejected, remaining, is_damaged } = outcome;
        let Some(segment) = self.sealed.get(&number).copied() else { return false };
        let is_kept = self.write(remaining.iter()).is_ok();
        if is_kept {
            self.sealed.remove(&number);
            if is_damaged && !segment.is_damaged {
                self.metrics.damaged();
            }
            self.discard(Segment { is_damaged: is_damaged || segment.is_damaged, ..segment });
            self.metrics.drained(acknowledged, rejected);
            self.state.set_full(false);
        }
        self.publish();
        is_kept
    }

    fn reject(&mut self, events: &[Event]) -> bool {
        let kept = self.folder.reject(events);
        match &kept {
            Ok(bytes) => self.bytes += bytes,
            Err(error) => self.log_change(Some(error)),
        }
        self.publish();
        kept.is_ok()
    }

    /// Removes the file of a segment, or sets it aside if it is damaged.
    fn discard(&mut self, segment: Segment) {
        let Segment { name, bytes, is_damaged, .. } = segment;
        let done = match is_damaged {
            true => self.folder.set_aside(name),
            false => self.folder.remove(name),
        };
        match done {
            Ok(()) if !is_damaged => self.bytes = self.bytes.saturating_sub(bytes),
            Ok(()) => {}
            Err(error) => {
                let segment = name.number;
                tracing::error!(
                    segment,
                    %error,
                    "a segment of the spool cannot be removed: the next process produces its events again"
                );
            }
        }
    }

    fn log_change(&mut self, error: Option<&io::Error>) {
        let path = self.folder.path().display();
        match error {
            Some(error) if !self.is_failing => {
                tracing::error!(%error, path = %path, "the spool cannot be written");
            }
            None if self.is_failing => {
                tracing::info!(path = %path, "the spool can be written again")
            }
            _ => {}
        }
        self.is_failing = error.is_some();
        self.state.set_failed(error.map(|_| Instant::now()));
    }

    fn events(&self) -> u64 {
        let sealed: u64 = self.sealed.values().map(|segment| segment.events).sum();
        sealed + self.active.as_ref().map_or(0, |(segment, _)| segment.events)
    }

    fn publish(&self) {
        self.state.set_events(self.events());
        self.metrics.holds(self.events(), self.bytes);
    }
}
