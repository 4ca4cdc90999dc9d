//! Settings that change while adtrail runs.

mod additions;
mod load;
mod refusals;

use testbed::adtrail::Adtrail;
use testbed::site::Site;

/// 1 after a reload that has replaced the settings, 0 after one that was refused.
const SUCCESSFUL: &str = "adtrail_config_last_reload_successful";

/// Reloads with these settings, which must take effect.
#[track_caller]
fn reload(site: &mut Site, adtrail: &Adtrail, more_settings: &str) {
    site.change_beside(adtrail, more_settings);
    let reply = adtrail.reload();
    assert_eq!(reply.status, 200, "{}\n{}", reply.text(), adtrail.log());
}

/// Reloads with these settings, which must be refused with these parts of a message.
#[track_caller]
fn check_refused(site: &mut Site, adtrail: &Adtrail, more_settings: &str, parts: &[&str]) {
    site.change_beside(adtrail, more_settings);
    let reply = adtrail.reload();
    assert_eq!(reply.status, 422, "{}", reply.text());
    for part in parts {
        assert!(reply.text().contains(part), "{part:?} is not in: {}", reply.text());
    }
    assert_eq!(adtrail.metric(SUCCESSFUL), Some(0.0));
}
