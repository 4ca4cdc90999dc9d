//! The files of the Debian and RPM packages, without building the packages: `scripts/try-package` installs one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use adtrail::cli::Cli;
use clap::{CommandFactory, Parser};
use testbed::adtrail::{adtrail, binary};
use testbed::{check_exit, run, run_ok};

#[path = "../../packaging/pages/generate.rs"]
mod generate;

const UNITS: [&str; 2] = ["adtrail.service", "adtrail@.service"];
/// The instances of `adtrail@.service`.
const ROLES: [&str; 3] = ["attribute", "export", "collect"];

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file of a package: its source and its target, without the first slash.
type Asset = (String, String);

/// Returns the files of a package from its table below `[package.metadata]`.
fn assets(table: &str) -> Vec<Asset> {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let assets = manifest["package"]["metadata"][table]["assets"].as_array().unwrap();
    let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let files = assets.iter().map(|asset| match asset.as_array() {
        Some(asset) => (text(&asset[0]), text(&asset[1])),
        None => (text(&asset["source"]), text(&asset["dest"])),
    });
    let whole = |(source, target): Asset| {
        let name = source.rsplit('/').next().unwrap();
        let target = target.trim_start_matches('/');
        let target = if target.ends_with('/') { format!("{target}{name}") } else { target.into() };
        (source, target)
    };
    files.map(whole).collect()
}

#[test]
fn packaged_files_exist_or_are_generated() {
    let dir = tempfile::tempdir().unwrap();
    generate::write(dir.path()).unwrap();
    for table in ["deb", "generate-rpm"] {
        for (source, _) in assets(table) {
            let exists = match source.strip_prefix("target/package/") {
                Some("adtrail" | "man/*.1.gz") => true,
                Some(generated) => dir.path().join(generated).is_file(),
                None => Path::new(&source).is_file(),
            };
            assert!(exists, "{table}: {source}");
        }
    }
}

#[test]
fn both_packages_have_the_same_files() {
    let only_of_one = ["README", "changelog", "lintian", "zsh"];
    let targets = |table: &str| -> BTreeSet<String> {
        let targets = assets(table).into_iter().map(|(_, target)| target);
        targets.filter(|target| !only_of_one.iter().any(|part| target.contains(part))).collect()
    };
    assert_eq!(targets("deb"), targets("generate-rpm"));
}

#[test]
fn every_command_has_a_man_page_and_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    generate::write(dir.path()).unwrap();
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    let names = ["adtrail.bash", "adtrail.fish", "_adtrail"];
    let completions = names.map(|name| {
        fs::read_to_string(dir.path().join("completions").join(name)).expect("the file exists")
    });
    let mut pages = vec!["adtrail".to_owned()];
    for command in cli.get_subcommands() {
        let name = command.get_name();
        assert!(completions.iter().all(|text| text.contains(name)), "{name} is not completed");
        pages.push(format!("adtrail-{name}"));
        let children = command.get_subcommands().map(clap::Command::get_name);
        pages.extend(children.map(|child| format!("adtrail-{name}-{child}")));
    }
    assert!(pages.contains(&"adtrail-hbase-init".to_owned()), "{pages:?}");
    for page in pages {
        let path = dir.path().join("man").join(format!("{page}.1"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH SYNOPSIS"), "{text}");
    }
}

/// Writes the units into a directory, with the binary under test.
fn write_units(dir: &Path) -> Vec<String> {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    for name in UNITS {
        let text = read(&format!("packaging/{name}"));
        let text = text.replace("/usr/bin/adtrail", binary().to_str().unwrap());
        fs::write(path(name), text).unwrap();
    }
    UNITS.map(path).to_vec()
}

#[test]
fn systemd_accepts_the_units_and_their_exposure_is_below_2() {
    let dir = tempfile::tempdir().unwrap();
    let units = write_units(dir.path());
    let verify =
        |unit: &str| run(Command::new("systemd-analyze").args(["verify", "--man=no", unit]), b"");
    for unit in &units {
        let warnings = check_exit(&verify(unit), 0, &[]);
        assert_eq!(warnings, "", "{unit}");
        // In tenths.
        let exposure =
            ["security", "--offline=true", "--no-pager", "--threshold=20", unit.as_str()];
        run_ok(Command::new("systemd-analyze").args(exposure), b"");
    }
    // An error of a unit is found.
    let broken = fs::read_to_string(&units[0]).unwrap().replace("Type=notify", "Type=notifies");
    fs::write(&units[0], broken).unwrap();
    assert_ne!(String::from_utf8_lossy(&verify(&units[0]).stderr), "");
}

#[test]
fn the_units_differ_only_in_the_role() {
    let [single, template] = UNITS.map(|name| read(&format!("packaging/{name}")));
    let (head, template) = template.split_once("[Unit]\n").unwrap();
    assert!(head.lines().all(|line| line.starts_with('#')), "{head}");
    let expected = single
        .replace("Description=adtrail,", "Description=adtrail %i,")
        .replace("/adtrail.env", "/%i.env")
        .replace("adtrail run ", "adtrail %i ");
    assert_eq!(format!("[Unit]\n{template}"), expected);
}

#[test]
fn the_units_start_commands_that_exist() {
    let words = |unit: &str, key: &str| -> Vec<String> {
        let (text, start) = (read(&format!("packaging/{unit}")), format!("{key}=/usr/bin/"));
        let line = text.lines().find_map(|line| line.strip_prefix(&*start)).unwrap();
        line.split(' ').map(str::to_owned).collect()
    };
    let check = |words: Vec<String>| {
        if let Err(error) = Cli::try_parse_from(&words) {
            panic!("{words:?}: {error}");
        }
    };
    for unit in UNITS {
        check(words(unit, "ExecReload"));
    }
    check(words(UNITS[0], "ExecStart"));
    for role in ROLES {
        let words = words(UNITS[1], "ExecStart").into_iter();
        check(words.map(|word| word.replace("%i", role)).collect());
    }
}

#[test]
fn the_packaged_settings_are_valid_but_for_an_app() {
    let with =
        |command: &str| run(adtrail().args([command, "--config", "packaging/adtrail.toml"]), b"");
    assert!(with("check-config").status.success());
    check_exit(&with("run"), 2, &["no app is configured: add [[apps]] with pid and key"]);

    // With its comments removed, it is the settings of a service that starts.
    let text = read("packaging/adtrail.toml");
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting,
        _ => line,
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("adtrail.toml");
    fs::write(&path, &text).unwrap();
    run_ok(adtrail().args(["check-config", "--config"]).arg(&path), b"");
    assert!(text.contains("\n[[apps]]\n") && text.contains("\n[[campaigns]]\n"), "{text}");
}

/// Runs the script that decides whether a package may replace the installed one, over these files of
/// `/var/lib/adtrail`. Returns its error; `None` if it may.
fn refusal(
    script: &str,
    arguments: &[&str],
    installed_layout: Option<&str>,
    files: &[&str],
) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("data")).unwrap();
    for file in files.iter().map(|name| path("data").join(name)) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    if let Some(layout) = installed_layout {
        fs::write(path("store-layout"), format!("{layout}\n")).unwrap();
    }
    let text = read(script)
        .replace("/usr/share/adtrail", dir.path().to_str().unwrap())
        .replace("/var/lib/adtrail", path("data").to_str().unwrap());
    fs::write(path("script"), text).unwrap();
    let output = run(Command::new("sh").arg("-e").arg(path("script")).args(arguments), b"");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), error.is_empty(), "{script}: {error}");
    (!output.status.success()).then_some(error)
}

#[test]
fn a_package_that_cannot_read_the_store_is_refused() {
    let own = read("packaging/store-layout");
    let layout: u32 = own.trim().parse().unwrap();
    let [newer, older] = [layout + 1, layout - 1].map(|layout| layout.to_string());
    for (script, upgrade, install) in [
        ("packaging/debian/preinst", &["upgrade", "0.2.0-1", "0.1.0-1"][..], &["install"][..]),
        ("packaging/rpm/pre", &["2"][..], &["1"][..]),
    ] {
        for (other, store) in [(&newer, "store/CURRENT"), (&older, "CURRENT")] {
            let error = refusal(script, upgrade, Some(other), &["spool/1", store]).unwrap();
            let layouts =
                [other.as_str(), own.trim()].map(|layout| format!("layout version {layout}"));
            assert!(layouts.iter().all(|layout| error.contains(layout)), "{error}");
            assert!(error.contains("the installed version"), "{error}");
        }
        assert_eq!(refusal(script, upgrade, Some(own.trim()), &["CURRENT"]), None);
        for others in [&[][..], &["spool/1", "store/schemas/1"]] {
            assert_eq!(refusal(script, upgrade, Some(&newer), others), None, "there is no store");
        }
        assert_eq!(refusal(script, upgrade, None, &["CURRENT"]), None);
        assert_eq!(refusal(script, install, Some(&newer), &["CURRENT"]), None);
    }
}

#[test]
fn maintainer_scripts_are_posix_shell() {
    let debian = ["preinst", "postinst", "prerm", "postrm"].map(|name| format!("debian/{name}"));
    let rpm = ["pre", "post", "preun"].map(|name| format!("rpm/{name}"));
    for script in debian.iter().chain(&rpm) {
        run_ok(Command::new("sh").arg("-n").arg(format!("packaging/{script}")), b"");
    }
    for script in debian {
        let text = read(&format!("packaging/{script}"));
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{script}");
    }
}
