//! The service as operators use it: settings, tokens, metrics, logs, backups and checks of the store.

mod backup;
mod dashboards;
mod files;
mod health;
mod hostile_clients;
mod hostile_producers;
mod logs;
mod monitoring;
mod notify;
mod refusals;
mod regions;
mod tokens;
mod verify;
