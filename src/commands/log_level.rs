//! `adtrail log-level`.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{load, print};
use crate::cli::LogLevel;
use crate::http_client;

const PATH: &str = "/-/log-level";

pub fn run(options: &LogLevel) -> anyhow::Result<()> {
    let admin = http_client::local(load(&options.settings)?.admin_listen);
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let logged = match &options.level {
        None => http_client::get(admin, PATH)?,
        Some(level) => {
            let duration = options.duration.as_deref().map(encoded);
            let duration = duration.map_or(String::new(), |duration| format!("&for={duration}"));
            http_client::put(admin, &format!("{PATH}?level={}{duration}", encoded(level)))?
        }
    };
    print(logged.as_bytes())
}
