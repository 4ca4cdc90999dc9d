//! Files with personal data: only their owner may access them, and a file of an earlier run is used only if no other
//! user could have put it there.
//!
//! Every path that an attacker can predict is opened here: files beside a target, stores, backups, caches. The other
//! users of the machine are untrusted; root is trusted, because it can read the process's memory as well.
//!
//! The module is in this crate because `store`, `ingest` and the commands all need it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{geteuid, umask};

/// The rights of a directory's or file's owner.
const OWNER: u32 = 0o700;
/// The rights of everybody else.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// Takes the rights of other users from all files that this process creates from now on, those of RocksDB included. The
/// umask belongs to the whole process: call this before other threads start.
pub fn restrict_new_files() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Opens a regular file. A symbolic link at the path is an error; links to directories above it are followed. The file
/// must not be truncated by `options`, because it is checked only once it is open.
pub fn open_unfollowed(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // NONBLOCK: a pipe would otherwise be opened only once its other end is.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path).map_err(|error| {
        match error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            true => io::Error::other("it is a symbolic link"),
            false => error,
        }
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Opens a file of an earlier run, or creates it. It must belong to this user or root, and no other user may be able to
/// write it. A second name (a hard link) is refused, because a write would change the file under that name too.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = open_unfollowed(path, options)?;
    let found = file.metadata()?;
    require_trusted_owner(&found)?;
    if found.mode() & OTHERS_WRITE != 0 {
        let mode = found.mode() & 0o7777;
        let problem = format!("other users may write it (mode {mode:04o}): run chmod go-w");
        return Err(io::Error::other(problem));
    }
    if found.nlink() > 1 {
        return Err(io::Error::other("it has another name, a hard link: remove one of them"));
    }
    Ok(file)
}

/// Creates a file with mode 0600 in place of an existing one. A symbolic link is replaced, not followed.
pub fn replace(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(found) => {
            require_trusted_owner(&found)?;
            fs::remove_file(path)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Creates a directory with mode 0700, with its parents, unless it exists.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(OWNER).create(path)
}

/// Creates a directory with mode 0700, or takes the rights of other users from an existing one, with a line in the log.
/// The path may be a symbolic link, as operators set it.
///
/// # Errors
/// If the directory belongs to another user.
pub fn private_folder(path: &Path) -> io::Result<()> {
    create_folder(path)?;
    log_narrowed(path, narrow_folder(path)?, 0);
    Ok(())
}

/// Like [`private_folder`], and also takes the rights of other users from the files and directories in it.
///
/// # Errors
/// If the directory or one of its files belongs to another user, or if a file is a symbolic link.
pub fn private_store(path: &Path) -> io::Result<()> {
    create_folder(path)?;
    let mode = narrow_folder(path)?;
    log_narrowed(path, mode, narrow_files(path)?);
    Ok(())
}

/// Returns the mode that a directory had before, if it was narrowed.
fn narrow_folder(path: &Path) -> io::Result<Option<u32>> {
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = folder.metadata()?;
    require_trusted_owner(&found)?;
    let mode = found.mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(None);
    }
    // Fails for a directory of root, and in file systems without rights.
    let narrowed = folder.set_permissions(Permissions::from_mode(mode & OWNER));
    if narrowed.is_ok() && folder.metadata()?.mode() & OTHERS == 0 {
        return Ok(Some(mode));
    }
    let mode = format!("{mode:04o}");
    tracing::warn!(
        path = %path.display(),
        %mode,
        owner = found.uid(),
        "other users may access this directory, which holds personal data, and its rights cannot be changed: \
         use a directory that belongs to the user of adtrail"
    );
    Ok(None)
}

/// Returns how many files and directories were narrowed.
fn narrow_files(folder: &Path) -> io::Result<u64> {
    let mut narrowed = 0;
    for entry in folder.read_dir()? {
        let entry = entry?;
        let found = match entry.metadata() {
            Ok(found) => found,
            // Another process that uses the directory may have removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let named = |problem: &str| {
            io::Error::other(format!("its file {}: {problem}", entry.file_name().display()))
        };
        if found.is_symlink() {
            return Err(named("it is a symbolic link"));
        }
        require_trusted_owner(&found).map_err(|error| named(&error.to_string()))?;
        let is_wide = (found.is_file() || found.is_dir()) && found.mode() & OTHERS != 0;
        let mode = Permissions::from_mode(found.mode() & OWNER);
        // If it fails, the directory's rights still protect the file.
        if is_wide && fs::set_permissions(entry.path(), mode).is_ok() {
            narrowed += 1;
        }
    }
    Ok(narrowed)
}

fn log_narrowed(path: &Path, mode: Option<u32>, files: u64) {
    if mode.is_none() && files == 0 {
        return;
    }
    let mode = mode.map_or("unchanged".to_owned(), |mode| format!("was {mode:04o}"));
    tracing::warn!(
        path = %path.display(),
        %mode,
        files,
        "other users could access this directory or files in it, which hold personal data; now only its owner can"
    );
}

fn require_trusted_owner(found: &Metadata) -> io::Result<()> {
    let (owner, own) = (found.uid(), geteuid().as_raw());
    if owner == own || owner == 0 {
        return Ok(());
    }
    let problem = format!("it belongs to user {owner}, but this process runs as user {own}");
    Err(io::Error::other(problem))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    fn write(folder: &TempDir, name: &str, mode: u32) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().mode() & 0o7777
    }

    #[track_caller]
    fn check_refused<T>(result: io::Result<T>, expected: &str) {
        let error = result.err().expect("the file must be refused").to_string();
        assert!(error.contains(expected), "{error}");
    }

    fn open_to_write(path: &Path) -> io::Result<File> {
        open(path, OpenOptions::new().read(true).write(true).create(true).mode(0o600))
    }

    #[test]
    fn a_file_of_an_earlier_run_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        for allowed in [0o600, 0o644, 0o755] {
            let mut text = String::new();
            let path = write(&folder, "file", allowed);
            open_to_write(&path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!((&*text, mode(&path)), ("before", allowed));
        }
        open_to_write(&folder.path().join("new")).unwrap();
        let missing = open(&folder.path().join("none"), OpenOptions::new().read(true));
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (refused, text) in [(0o620, "0620"), (0o602, "0602"), (0o666, "0666")] {
            check_refused(open_to_write(&write(&folder, "file", refused)), text);
        }
        let path = write(&folder, "file", 0o600);
        fs::hard_link(&path, folder.path().join("other")).unwrap();
        check_refused(open_to_write(&path), "hard link");
    }

    #[test]
    fn a_link_a_pipe_and_a_directory_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink(write(&folder, "file", 0o600), &link).unwrap();
        check_refused(open_to_write(&link), "it is a symbolic link");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        check_refused(open(&pipe, OpenOptions::new().read(true)), "it is not a regular file");
        check_refused(
            open(folder.path(), OpenOptions::new().read(true)),
            "it is not a regular file",
        );
    }

    /// Only root may give a file away; without that right there is nothing to refuse.
    #[test]
    fn what_belongs_to_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(&folder, "file", 0o600);
        if chown(&path, Some(65_534), None).is_err() {
            return;
        }
        let expected = "it belongs to user 65534, but this process runs as user ";
        check_refused(open_to_write(&path), expected);
        check_refused(replace(&path), expected);
        check_refused(private_store(folder.path()), "its file file: it belongs to user 65534");
        let theirs = folder.path().join("theirs");
        create_folder(&theirs).unwrap();
        chown(&theirs, Some(65_534), None).unwrap();
        check_refused(private_folder(&theirs), expected);
    }

    #[test]
    fn a_file_is_replaced_with_its_rights_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let target = write(&folder, "target", 0o600);
        let link = folder.path().join("link");
        symlink(&target, &link).unwrap();
        for path in [write(&folder, "wide", 0o666), link, folder.path().join("new")] {
            replace(&path).unwrap().write_all(b"after").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"after");
            assert!(path.symlink_metadata().unwrap().is_file());
            assert_eq!(mode(&path), 0o600);
        }
        assert_eq!(fs::read(&target).unwrap(), b"before");
    }

    #[test]
    fn directories_and_their_files_lose_the_rights_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        private_folder(&path).unwrap();
        assert_eq!([mode(&path), mode(&folder.path().join("a"))], [0o700; 2]);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o2775)).unwrap();
        let file = write(&folder, "file", 0o664);
        fs::set_permissions(folder.path().join("a"), Permissions::from_mode(0o755)).unwrap();
        private_folder(folder.path()).unwrap();
        assert_eq!([mode(folder.path()), mode(&file)], [0o700, 0o664]);
        private_store(folder.path()).unwrap();
        assert_eq!([mode(&file), mode(&folder.path().join("a"))], [0o600, 0o700]);
        symlink("/etc/passwd", folder.path().join("LOG")).unwrap();
        check_refused(private_store(folder.path()), "its file LOG: it is a symbolic link");
    }
}
