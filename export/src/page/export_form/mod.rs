//! The form of an export: what is chosen, as part of the address, and how the form shows it.
//!
//! Start with `state`, which reads the choice; `view` prepares it for the template.

pub(crate) mod columns;
pub(crate) mod curl_command;
pub(crate) mod name_list;
pub(crate) mod options;
pub(crate) mod state;
pub(crate) mod view;
