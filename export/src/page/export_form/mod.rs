//! The form of an export: its state, which is part of the URL, and how it is displayed.

pub(crate) mod columns;
pub(crate) mod curl_command;
pub(crate) mod name_list;
pub(crate) mod options;
pub(crate) mod state;
pub(crate) mod view;
