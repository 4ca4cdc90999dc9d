//! The report of a verification.

use std::collections::BTreeMap;

attribution::named! {
    /// A kind of check, in the order of execution.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Check {
        Files = "files",
        Meta = "meta",
        Facts = "facts",
        Index = "index",
        Decisions = "decisions",
        Rows = "rows",
        Counts = "counts",
    }
}

attribution::named! {
    /// A kind of problem.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Problem {
        FileMissing = "file_missing",
        FileCut = "file_cut",
        FileDamaged = "file_damaged",
        LogDamaged = "log_damaged",
        AppUnreadable = "app_unreadable",
        AppAhead = "app_ahead",
        ConsumedUntilWrong = "consumed_until_wrong",
        PositionUnreadable = "position_unreadable",
        FactUnreadable = "fact_unreadable",
        FactMisplaced = "fact_misplaced",
        FactAltered = "fact_altered",
        TouchMissing = "touch_missing",
        EntryUnreadable = "entry_unreadable",
        EntryToNowhere = "entry_to_nowhere",
        EntryOfAnother = "entry_of_another",
        EntryMissing = "entry_missing",
        MarkerMissing = "mark_missing",
        Undecided = "undecided",
        DecisionAltered = "decision_altered",
        DecisionDiffers = "decision_differs",
        DecisionLost = "decision_lost",
        RowMissing = "row_missing",
        RowDiffers = "row_differs",
        RowKeyUnreadable = "row_key_unreadable",
        RowUnreadable = "row_unreadable",
        RowMisplaced = "row_misplaced",
        RowWithoutFact = "row_without_fact",
        SecondRow = "second_row",
        CellUnreadable = "cell_unreadable",
        CellDiffers = "cell_differs",
        RegionsBroken = "regions_broken",
        RegionDiffers = "region_differs",
        TotalsDiffer = "totals_differ",
        CountUnreadable = "count_unreadable",
        CountDiffers = "count_differs",
        BroughtUnreadable = "brought_unreadable",
        BroughtDiffers = "brought_differ",
    }
}

/// The remedy for a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// The data can be derived from intact data.
    Repair,
    /// The data cannot be derived.
    Restore,
}

impl Problem {
    pub fn check(self) -> Check {
        match self {
            Self::FileMissing | Self::FileCut | Self::FileDamaged | Self::LogDamaged => {
                Check::Files
            }
            Self::AppUnreadable
            | Self::AppAhead
            | Self::ConsumedUntilWrong
            | Self::PositionUnreadable => Check::Meta,
            Self::FactUnreadable | Self::FactMisplaced | Self::FactAltered | Self::TouchMissing => {
                Check::Facts
            }
            Self::EntryUnreadable
            | Self::EntryToNowhere
            | Self::EntryOfAnother
            | Self::EntryMissing
            | Self::MarkerMissing => Check::Index,
            Self::Undecided
            | Self::DecisionAltered
            | Self::DecisionDiffers
            | Self::DecisionLost => Check::Decisions,
            Self::RowMissing
            | Self::RowDiffers
            | Self::RowKeyUnreadable
            | Self::RowUnreadable
            | Self::RowMisplaced
            | Self::RowWithoutFact
            | Self::SecondRow => Check::Rows,
            Self::CellUnreadable
            | Self::CellDiffers
            | Self::RegionsBroken
            | Self::RegionDiffers
            | Self::TotalsDiffer
            | Self::CountUnreadable
            | Self::CountDiffers
            | Self::BroughtUnreadable
            | Self::BroughtDiffers => Check::Counts,
        }
    }

    /// The description for users.
    pub fn text(self) -> &'static str {
        match self {
            Self::FileMissing => "a file is missing",
            Self::FileCut => "a file has the wrong length",
            Self::FileDamaged => "a file is corrupt",
            Self::LogDamaged => "the write-ahead log is corrupt",
            Self::AppUnreadable => "the record of an app is invalid or missing",
            Self::AppAhead => "an app has counted rows before its retention cutoff",
            Self::ConsumedUntilWrong => "the low watermark is invalid or in the future",
            Self::PositionUnreadable => "a Kafka position is unreadable",
            Self::FactUnreadable => "a fact is unreadable",
            Self::FactMisplaced => "a fact is stored under the wrong key",
            Self::FactAltered => "a fact differs from the one that its row shows",
            Self::TouchMissing => "the credited touch of an activation is missing",
            Self::EntryUnreadable => "an index entry is unreadable",
            Self::EntryToNowhere => "an index entry leads to a missing fact",
            Self::EntryOfAnother => "an index entry does not belong to the fact that it leads to",
            Self::EntryMissing => "a fact lacks an index entry",
            Self::MarkerMissing => "a fact lacks a bucket marker",
            Self::Undecided => "an event has no decision",
            Self::DecisionAltered => "a decision was altered",
            Self::DecisionDiffers => "a decision differs from the recomputed one",
            Self::DecisionLost => "a decision differs from the recomputed one, and its row is lost",
            Self::RowMissing => "the row of an event is missing",
            Self::RowDiffers => "a row differs from its decision",
            Self::RowKeyUnreadable => "the key of a row is unreadable",
            Self::RowUnreadable => "a row is unreadable",
            Self::RowMisplaced => "a row is in a partition that its app does not use",
            Self::RowWithoutFact => "the fact of a row is missing",
            Self::SecondRow => "an event has a second row",
            Self::CellUnreadable => "an hourly count is unreadable",
            Self::CellDiffers => "an hourly count differs from the rows",
            Self::RegionsBroken => "the regions are unreadable or do not cover all keys",
            Self::RegionDiffers => "the statistics of a region differ from the rows",
            Self::TotalsDiffer => "the totals differ from the rows",
            Self::CountUnreadable => "a summary count is unreadable",
            Self::CountDiffers => "the summary counts of an app differ from its rows",
            Self::BroughtUnreadable => "an entry of the campaign index is unreadable",
            Self::BroughtDiffers => "the campaign index of an app differs from its rows",
        }
    }

    pub fn remedy(self) -> Remedy {
        match self {
            Self::FileMissing
            | Self::FileCut
            | Self::FileDamaged
            | Self::FactUnreadable
            | Self::FactMisplaced
            | Self::FactAltered
            | Self::TouchMissing
            | Self::DecisionDiffers
            | Self::RowWithoutFact => Remedy::Restore,
            _ => Remedy::Repair,
        }
    }
}

/// One occurrence of a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub problem: Problem,
    /// The affected file, table and key in hexadecimal, or event of an app. Never a device id.
    pub at: String,
    /// True if it was repaired.
    pub is_repaired: bool,
}

/// How often a problem was found and repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    pub found: u64,
    pub repaired: u64,
}

/// The result of a verification.
#[derive(Debug, Clone, Default)]
pub struct Report {
    checked: BTreeMap<Check, u64>,
    pub found: BTreeMap<Problem, Times>,
    /// The first occurrences of each problem, up to the limit.
    pub examples: Vec<Finding>,
    /// Limit for the examples of each problem.
    examples_max: usize,
    /// Index entries of replaced facts, which are ignored and are not damage.
    pub stale: u64,
    /// Facts without probabilistic index entries, of apps with probabilistic matching. Either they were recorded while
    /// it was off, or the entries are lost; the two cannot be distinguished.
    pub without_probabilistic: u64,
    /// Final decisions, which were compared with their rows only, because their facts may have expired.
    pub final_decisions: u64,
    /// Events whose recomputed decision differs, if settings have changed.
    pub differing: u64,
    /// Items that could not be checked because of other damage.
    pub unchecked: u64,
}

impl Report {
    /// An empty report with at most `examples_max` examples of each problem.
    pub fn new(examples_max: usize) -> Self {
        Self { examples_max, ..Self::default() }
    }

    pub fn add_checked(&mut self, check: Check, count: usize) {
        *self.checked.entry(check).or_default() += count as u64;
    }

    pub fn checked(&self, check: Check) -> u64 {
        self.checked.get(&check).copied().unwrap_or(0)
    }

    pub fn find(&mut self, problem: Problem, is_repaired: bool, at: impl FnOnce() -> String) {
        let times = self.found.entry(problem).or_default();
        times.found += 1;
        times.repaired += u64::from(is_repaired);
        if times.found <= self.examples_max as u64 {
            self.examples.push(Finding { problem, at: at(), is_repaired });
        }
    }

    /// Marks damage of the log as repaired. Opening the store for writing truncates the log at the damage; the rest is
    /// re-read from Kafka.
    pub fn repaired_log(&mut self) {
        if let Some(times) = self.found.get_mut(&Problem::LogDamaged) {
            times.repaired = times.found;
        }
        for finding in &mut self.examples {
            finding.is_repaired |= finding.problem == Problem::LogDamaged;
        }
    }

    pub fn wrong(&self, check: Check) -> u64 {
        self.of(check).map(|times| times.found).sum()
    }

    pub fn repaired(&self, check: Check) -> u64 {
        self.of(check).map(|times| times.repaired).sum()
    }

    fn of(&self, check: Check) -> impl Iterator<Item = &Times> {
        self.found.iter().filter(move |(problem, _)| problem.check() == check).map(|(_, t)| t)
    }

    /// True if a file is damaged. A repair then writes nothing.
    pub fn is_file_damaged(&self) -> bool {
        let problems = [Problem::FileMissing, Problem::FileCut, Problem::FileDamaged];
        problems.iter().any(|problem| self.found.contains_key(problem))
    }

    pub fn is_whole(&self) -> bool {
        self.found.is_empty() && self.unchecked == 0
    }

    /// True if all problems were repaired.
    pub fn is_repaired(&self) -> bool {
        self.unchecked == 0 && self.found.values().all(|times| times.found == times.repaired)
    }
}
