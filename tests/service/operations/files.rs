//! Rights of files: only the owner may access what adtrail writes, and files that another user could have put in their
//! place are not used. No test needs Kafka.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::adtrail::Adtrail;
use testbed::site::{ONE_CAMPAIGN, Site, Topics};
use testbed::{check_exit, check_refused, run};

const OTHER_USER: u32 = 65_534;
const NARROWED: &str = "other users could access this directory";

/// Returns a site without Kafka, whose service runs and never becomes ready.
fn site(name: &str) -> Site {
    Site::on(Topics::of(name), "127.0.0.1:1".into(), ONE_CAMPAIGN)
}

/// Returns a site with a store without rows.
fn site_with_store(name: &str) -> Site {
    let site = site(name);
    start(&site).stop();
    site
}

/// Makes a command run with a umask that takes no rights.
fn with_all_rights(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    shell
}

/// Starts the service with such a umask, and waits until it has all of its files.
fn start(site: &Site) -> Adtrail {
    site.addresses();
    let adtrail = Adtrail::spawn(with_all_rights(&site.command(&["run"])), 0, 0);
    adtrail.await_log("adtrail runs");
    adtrail
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Checks that only the owner has rights to a directory and everything in it.
#[track_caller]
fn check_private(folder: &Path) {
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    let entries = entries(folder);
    assert!(!entries.is_empty(), "{}", folder.display());
    for path in entries {
        // The engine may remove a file meanwhile.
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => check_private(&path),
            Ok(found) => assert_eq!(found.mode() & 0o7777, 0o600, "{}", path.display()),
            Err(_) => {}
        }
    }
}

#[test]
fn stores_and_backups_are_private_whatever_the_umask() {
    let site = site("files.umask");
    let adtrail = start(&site);
    check_private(&site.path().join("store"));
    let run_with_all_rights =
        |args: &[&str]| check_exit(&run(&mut with_all_rights(&site.command(args)), b""), 0, &[]);
    run_with_all_rights(&["backup", "backups"]);
    check_private(&site.path().join("backups"));
    adtrail.stop();
    check_private(&site.path().join("store"));
    run_with_all_rights(&["restore", "backups", "--set", "store.path=restored"]);
    check_private(&site.path().join("restored"));
}

#[test]
fn a_store_with_wider_rights_is_narrowed_with_one_line_in_the_log() {
    let site = site_with_store("files.wide");
    let store = site.path().join("store");
    for path in entries(&store) {
        set_mode(&path, 0o664);
    }
    set_mode(&store, 0o755);
    let adtrail = start(&site);
    check_private(&store);
    let log = adtrail.stop();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(NARROWED)).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in ["WARN", store.to_str().unwrap(), "was 0755", "files="] {
        assert!(lines[0].contains(part), "{part:?} is not in: {log}");
    }
    let log = start(&site).stop();
    assert!(!log.contains(NARROWED), "{log}");
}

/// Needs root, as only root may give a file away.
#[test]
fn a_store_and_backups_of_another_user_are_refused() {
    let site = site_with_store("files.other-user");
    check_exit(&site.run(&["backup", "backups"]), 0, &[]);
    let [store, backups] = ["store", "backups"].map(|name| site.path().join(name));
    let expected = "it belongs to user 65534, but this process runs as user 0";
    chown(&backups, Some(OTHER_USER), None).unwrap();
    check_refused(&site.run(&["backup", "backups"]), 1, &["written: backups: ", expected]);
    chown(&store, Some(OTHER_USER), None).unwrap();
    check_refused(&site.run(&["run"]), 1, &[store.to_str().unwrap(), expected]);
    // A reader changes nothing.
    let day = ["--from", "2026-03-10", "--to", "2026-03-10"];
    check_exit(&site.run(&[&["download", "--app", "app-x"][..], &day].concat()), 0, &[]);
}

/// A download to `rows.csv`, and the files beside it.
struct Download {
    site: Site,
    part: PathBuf,
    query: PathBuf,
    /// A file that no download may change.
    target: PathBuf,
}

impl Download {
    fn new(name: &str) -> Self {
        let site = site_with_store(name);
        let [part, query, target] =
            ["rows.csv.part", "rows.csv.part.query", "target"].map(|name| site.path().join(name));
        fs::write(&target, "mine").unwrap();
        Self { site, part, query, target }
    }

    fn command(&self, more: &[&str]) -> Command {
        let download = ["download", "--app", "app-x", "--from", "2026-03-10", "--to", "2026-03-10"];
        self.site
            .command(&[&download[..], &["--out", "rows.csv", "--fields", "pid"], more].concat())
    }

    /// Checks that the download is refused, with and without `--resume`. Then removes the files beside it.
    #[track_caller]
    fn check_refused(&self, expected: &str) {
        for more in [vec![], vec!["--resume"]] {
            check_refused(&run(&mut self.command(&more), b""), 1, &[expected]);
        }
        self.check_target();
        for path in [&self.part, &self.query] {
            let _ = fs::remove_file(path);
        }
    }

    #[track_caller]
    fn check_target(&self) {
        assert_eq!(fs::read(&self.target).unwrap(), b"mine");
        assert!(!self.site.path().join("rows.csv").exists());
    }
}

/// Needs root, as only root may give a file away.
#[test]
fn a_partial_file_that_another_user_could_have_written_is_refused() {
    let download = Download::new("files.part");
    symlink(&download.target, &download.part).unwrap();
    download.check_refused("rows.csv.part: it is a symbolic link");
    fs::hard_link(&download.target, &download.part).unwrap();
    download.check_refused("rows.csv.part: it has another name, a hard link");
    fs::write(&download.part, "pid\n").unwrap();
    set_mode(&download.part, 0o666);
    download.check_refused("rows.csv.part: other users may write it (mode 0666)");
    fs::write(&download.part, "pid\n").unwrap();
    chown(&download.part, Some(OTHER_USER), None).unwrap();
    download.check_refused("rows.csv.part: it belongs to user 65534, but this process runs as");
    fs::write(&download.part, "p").unwrap();
    fs::write(&download.query, "{}").unwrap();
    chown(&download.query, Some(OTHER_USER), None).unwrap();
    download.check_refused("rows.csv.part.query: it belongs to user 65534");
}

#[test]
fn a_link_in_the_place_of_the_saved_query_is_not_followed() {
    let download = Download::new("files.query");
    symlink(&download.target, &download.query).unwrap();
    fs::write(&download.part, "p").unwrap();
    let parts = ["rows.csv.part.query: it is a symbolic link"];
    check_refused(&run(&mut download.command(&["--resume"]), b""), 1, &parts);
    download.check_target();
    // A new download replaces the link. The file that the user named has the rights that the umask leaves, except that
    // only its owner may write it.
    check_exit(&run(&mut with_all_rights(&download.command(&[])), b""), 0, &[]);
    assert_eq!(fs::read(&download.target).unwrap(), b"mine");
    let whole = download.site.path().join("rows.csv");
    assert_eq!((&*fs::read(&whole).unwrap(), mode(&whole)), (&b"pid\n"[..], 0o644));
    assert!(!download.query.exists());
}
