//! Readiness of a process that reads Kafka.

use std::sync::Arc;

use ingest::Health;

/// Says what is missing, if anything is.
pub type Readiness = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Returns an error with the reason if records are not being read.
pub fn check(health: &Health) -> Result<(), String> {
    if health.is_ready() {
        Ok(())
    } else if !health.is_connected() {
        // Checked first, because without a connection all other conditions apply, too.
        Err(match health.refusal() {
            Some(reason) => format!("kafka refuses the connection: {reason}"),
            None => "kafka cannot be reached".to_owned(),
        })
    } else if health.is_silent() {
        Err("the thread that reads kafka has not reported for a minute".to_owned())
    } else if let Some(topics) = health.denied() {
        Err(format!("kafka does not let adtrail read: {topics}"))
    } else if health.are_dead_letters_waiting() {
        Err("dead letters are not acknowledged, reading waits for them".to_owned())
    } else if health.is_assigned() {
        Err("events wait for a schema, and the schema registry does not respond".to_owned())
    } else {
        Err("no partitions are assigned yet".to_owned())
    }
}
