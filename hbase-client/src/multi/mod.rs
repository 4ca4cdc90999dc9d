//! The call that does many things to many rows: actions into a message, the answer into what came
//! of each. No IO.

use std::sync::Arc;

use bytes::Bytes;

use crate::action::{Action, Outcome};
use crate::location::Region;
use crate::proto::data::{MultiResponse, RegionActionResult};
use crate::proto::write::Written;
use crate::remote_exception::RemoteException;
use crate::rows::{self, Row};
use crate::wire::WireError;

mod request;

/// Actions, by their places in the batch, that go to one region.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub region: Arc<Region>,
    pub ids: Vec<u32>,
}

/// A call: what goes out, and which action each part of the answer will be about.
#[derive(Debug)]
pub(crate) struct Multi {
    pub request: Written,
    pub cells: Bytes,
    /// Of each region action.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    ids: Vec<u32>,
    is_check: bool,
}

/// What is said of each action; one of which nothing is said is not there.
pub(crate) type Said = Vec<(u32, Result<Outcome, RemoteException>)>;

impl Multi {
    pub fn build(actions: &[Action], groups: &[Group]) -> Self {
        let all = groups.iter().flat_map(|group| &group.ids);
        let bytes = all.map(|&id| actions[id as usize].bytes()).sum();
        let (mut request, mut cells) = (Vec::with_capacity(bytes), Vec::with_capacity(bytes));
        let mut parts = Vec::new();
        for group in groups {
            parts.extend(request::add(actions, group, &mut request, &mut cells));
        }
        Self { request: Written(request.into()), cells: cells.into(), parts }
    }

    /// # Errors
    /// Where it is not an answer to this call: then nothing of it can be believed.
    pub fn read(&self, answer: &MultiResponse, mut cells: Bytes) -> Result<Said, WireError> {
        let results = &answer.region_action_result;
        if results.len() != self.parts.len() {
            return Err(WireError::Malformed("an answer about another number of regions"));
        }
        let mut said = Vec::new();
        for (part, result) in self.parts.iter().zip(results) {
            part.read(result, &mut cells, &mut said)?;
        }
        if !cells.is_empty() {
            return Err(WireError::Malformed("more cells than are announced"));
        }
        Ok(said)
    }
}

impl Part {
    fn read(
        &self,
        result: &RegionActionResult,
        cells: &mut Bytes,
        said: &mut Said,
    ) -> Result<(), WireError> {
        if let Some(exception) = &result.exception {
            let fault = RemoteException::from_pair(exception);
            said.extend(self.ids.iter().map(|&id| (id, Err(fault.clone()))));
            return Ok(());
        }
        if self.is_check
            && let Some(processed) = result.processed
        {
            said.extend(self.ids.iter().map(|&id| (id, Ok(Outcome::Checked(processed)))));
            return Ok(());
        }
        let mut is_told = vec![false; self.ids.len()];
        for result in &result.result_or_exception {
            let index = result.index.unwrap_or(0) as usize;
            let told = is_told.get_mut(index).map(|is_told| std::mem::replace(is_told, true));
            let (Some(false), Some(&id)) = (told, self.ids.get(index)) else {
                return Err(WireError::Malformed("an answer about another row"));
            };
            let outcome = match (&result.exception, &result.result) {
                (Some(exception), _) => Err(RemoteException::from_pair(exception)),
                (None, Some(result)) => Ok(Outcome::Row(Row::new(rows::of_result(result, cells)?))),
                (None, None) => Ok(Outcome::Row(None)),
            };
            if !(self.is_check && outcome.is_ok()) {
                said.push((id, outcome));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
