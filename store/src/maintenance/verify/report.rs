//! What was looked at, and what is wrong with it.

use std::collections::BTreeMap;

attribution::named! {
    /// A kind of check, in the order in which they are made.
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
    /// What can be wrong.
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

/// What can be done about a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// It is derived from what is there.
    Repair,
    /// Nothing here tells what it was.
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

    pub fn text(self) -> &'static str {
        match self {
            Self::FileMissing => "a file is missing",
            Self::FileCut => "a file has another length than it was written with",
            Self::FileDamaged => "a file is damaged: its bytes are not those that were written",
            Self::LogDamaged => "the log of what was written last is damaged",
            Self::AppUnreadable => "what is kept of an app can not be true, or is missing",
            Self::AppAhead => "rows of an app are said to have gone that are there and are counted",
            Self::ConsumedUntilWrong => "the time up to which all is consumed can not be true",
            Self::PositionUnreadable => "a Kafka position can not be read",
            Self::FactUnreadable => "a fact can not be read",
            Self::FactMisplaced => "a fact does not stand under its identity",
            Self::FactAltered => "a fact is not what its row was made from",
            Self::TouchMissing => "the touch that an activation is credited to is missing",
            Self::EntryUnreadable => "an index entry can not be read",
            Self::EntryToNowhere => "an index entry leads to no fact",
            Self::EntryOfAnother => "an index entry is not of the fact that it leads to",
            Self::EntryMissing => "a fact lacks an index entry",
            Self::MarkerMissing => "a fact lacks a bucket marker",
            Self::Undecided => "an event was never decided on",
            Self::DecisionAltered => "a decision is not the one that was made",
            Self::DecisionDiffers => "a decision differs from a fresh one",
            Self::DecisionLost => "a decision differs from a fresh one, and its row is lost",
            Self::RowMissing => "the row of an event is missing",
            Self::RowDiffers => "a row is not what was decided",
            Self::RowKeyUnreadable => "a key of a row can not be read",
            Self::RowUnreadable => "a row can not be read",
            Self::RowMisplaced => "a row is in a partition in which its app has none",
            Self::RowWithoutFact => "the fact of a row is missing",
            Self::SecondRow => "an event has a second row",
            Self::CellUnreadable => "the figures of an hour can not be read",
            Self::CellDiffers => "the figures of an hour differ from the rows",
            Self::RegionsBroken => "the regions do not cover the keys, or can not be read",
            Self::RegionDiffers => "the figures of a region differ from the rows",
            Self::TotalsDiffer => "the totals differ from the rows",
            Self::CountUnreadable => "a count of a quarter of an hour can not be read",
            Self::CountDiffers => "the counts of an app differ from its rows",
            Self::BroughtUnreadable => "an activation that a campaign brought can not be read",
            Self::BroughtDiffers => "what the campaigns of an app brought differs from its rows",
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

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub problem: Problem,
    /// Which: a file, a key in hex with its table, or an event of an app. Never an id of a device.
    pub at: String,
    /// Whether it was made right.
    pub is_repaired: bool,
}

/// How often a problem was found, and made right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    pub found: u64,
    pub repaired: u64,
}

/// What came out.
#[derive(Debug, Clone, Default)]
pub struct Report {
    looked_at: BTreeMap<Check, u64>,
    pub found: BTreeMap<Problem, Times>,
    /// Of each problem the first ones.
    pub examples: Vec<Finding>,
    /// So many of each problem.
    examples_max: usize,
    /// Index entries of facts that were replaced; they mean nothing, and are no damage.
    pub stale: u64,
    /// Facts of apps with probabilistic matching that are not found by their places: they came
    /// while it was off, which nothing tells from damage.
    pub without_place: u64,
    /// Decisions that are final: what they were made from may have gone, so they were only held
    /// against their rows.
    pub finals: u64,
    /// Events that would be decided otherwise now, where settings have changed.
    pub otherwise: u64,
    /// What could not be checked because of other damage.
    pub unchecked: u64,
}

impl Report {
    /// Names so many of each problem.
    pub fn new(examples_max: usize) -> Self {
        Self { examples_max, ..Self::default() }
    }

    pub fn looked(&mut self, check: Check, count: usize) {
        *self.looked_at.entry(check).or_default() += count as u64;
    }

    pub fn looked_at(&self, check: Check) -> u64 {
        self.looked_at.get(&check).copied().unwrap_or(0)
    }

    pub fn find(&mut self, problem: Problem, is_repaired: bool, at: impl FnOnce() -> String) {
        let times = self.found.entry(problem).or_default();
        times.found += 1;
        times.repaired += u64::from(is_repaired);
        if times.found <= self.examples_max as u64 {
            self.examples.push(Finding { problem, at: at(), is_repaired });
        }
    }

    /// The log was opened for writing: what stood after its damage is read again from Kafka.
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

    /// Whether a file is damaged: then a repair writes nothing.
    pub fn is_file_damaged(&self) -> bool {
        let problems = [Problem::FileMissing, Problem::FileCut, Problem::FileDamaged];
        problems.iter().any(|problem| self.found.contains_key(problem))
    }

    pub fn is_whole(&self) -> bool {
        self.found.is_empty() && self.unchecked == 0
    }

    /// Whether all that was wrong was made right.
    pub fn is_repaired(&self) -> bool {
        self.unchecked == 0 && self.found.values().all(|times| times.found == times.repaired)
    }
}
