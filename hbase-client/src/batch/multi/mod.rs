//! The `Multi` call: encodes actions into a request, and decodes the response into a result per action. No I/O.

use std::sync::Arc;

use bytes::Bytes;

use crate::cluster::Region;
use crate::error::RemoteException;
use crate::proto::data::{MultiResponse, RegionActionResult};
use crate::proto::write::EncodedMessage;
use crate::rows::{self, Action, Outcome, Row};
use crate::wire::WireError;

mod request;

/// The actions on one region, by their indexes in the batch.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub region: Arc<Region>,
    pub ids: Vec<u32>,
}

/// A request, and the actions to which each part of its response belongs.
#[derive(Debug)]
pub(crate) struct Multi {
    pub request: EncodedMessage,
    pub cells: Bytes,
    /// One for each region action.
    parts: Vec<Part>,
}

/// The actions of one region action.
#[derive(Debug)]
struct Part {
    ids: Vec<u32>,
    is_check: bool,
}

/// The results in a response, with the index of each action. Actions without a result are missing.
pub(crate) type MultiResults = Vec<(u32, Result<Outcome, RemoteException>)>;

impl Multi {
    pub fn build(actions: &[Action], groups: &[Group]) -> Self {
        let all = groups.iter().flat_map(|group| &group.ids);
        let bytes = all.map(|&id| actions[id as usize].bytes()).sum();
        let (mut request, mut cells) = (Vec::with_capacity(bytes), Vec::with_capacity(bytes));
        let mut parts = Vec::new();
        for group in groups {
            parts.extend(request::add(actions, group, &mut request, &mut cells));
        }
        Self { request: EncodedMessage(request.into()), cells: cells.into(), parts }
    }

    /// Decodes the response.
    ///
    /// # Errors
    /// Fails if it is not a response to this request; then none of its results is returned.
    pub fn read(
        &self,
        response: &MultiResponse,
        mut cells: Bytes,
    ) -> Result<MultiResults, WireError> {
        let by_region = &response.region_action_result;
        if by_region.len() != self.parts.len() {
            return Err(WireError::Malformed(
                "the response has results for a wrong number of regions",
            ));
        }
        let mut results = Vec::new();
        for (part, result) in self.parts.iter().zip(by_region) {
            part.read(result, &mut cells, &mut results)?;
        }
        if !cells.is_empty() {
            return Err(WireError::Malformed("the response has more cells than declared"));
        }
        Ok(results)
    }
}

impl Part {
    fn read(
        &self,
        result: &RegionActionResult,
        cells: &mut Bytes,
        results: &mut MultiResults,
    ) -> Result<(), WireError> {
        if let Some(exception) = &result.exception {
            let exception = RemoteException::from_pair(exception);
            results.extend(self.ids.iter().map(|&id| (id, Err(exception.clone()))));
            return Ok(());
        }
        if self.is_check
            && let Some(processed) = result.processed
        {
            results.extend(self.ids.iter().map(|&id| (id, Ok(Outcome::Checked(processed)))));
            return Ok(());
        }
        let mut has_result = vec![false; self.ids.len()];
        for result in &result.result_or_exception {
            let index = result.index.unwrap_or(0) as usize;
            let is_repeated = has_result.get_mut(index).map(|seen| std::mem::replace(seen, true));
            let (Some(false), Some(&id)) = (is_repeated, self.ids.get(index)) else {
                return Err(WireError::Malformed("the response has an unknown or repeated row"));
            };
            let outcome = match (&result.exception, &result.result) {
                (Some(exception), _) => Err(RemoteException::from_pair(exception)),
                (None, Some(result)) => {
                    Ok(Outcome::Row(Row::new(rows::from_result(result, cells)?)))
                }
                (None, None) => Ok(Outcome::Row(None)),
            };
            if !(self.is_check && outcome.is_ok()) {
                results.push((id, outcome));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
