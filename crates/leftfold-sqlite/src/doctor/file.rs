//! Checks of the file in its file system: its write-ahead log, and the disk.

use std::path::{Path, PathBuf};

use leftfold::inspect::doctor::{Area, Finding};

/// The size from which the write-ahead log counts as long; about 4 MB is usual. A reader that still
/// needs old pages keeps SQLite from moving the rest into the file.
const LONG_LOG: u64 = 64 << 20;
/// The free space below which writes fail soon.
const WRONG_ROOM: u64 = 64 << 20;
const LITTLE_ROOM: u64 = 512 << 20;

/// Checks the file, which has this many bytes, and its surroundings.
pub(super) fn look(path: &Path, bytes: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if let Ok(found) = PathBuf::from(log).metadata() {
        findings.push(write_ahead_log(found.len()));
    }
    findings.extend(around(path, bytes));
    findings
}

fn write_ahead_log(bytes: u64) -> Finding {
    let (subject, found) = ("write-ahead log", size(bytes));
    if bytes < LONG_LOG {
        return Finding::fine(Area::Store, subject, found);
    }
    let found = format!("{found}, and a reader keeps SQLite from moving it into the file");
    let advice =
        "find the process with the long read, such as a sqlite3 shell or a backup, and end its transaction";
    Finding::warning(Area::Store, subject, found, advice)
}

fn room(free: u64, file: u64) -> Finding {
    let (subject, found) = ("free disk space", size(free));
    let advice = "delete other files, or move the file to a larger disk; on a full disk all writes fail, but nothing is lost";
    if free < WRONG_ROOM {
        Finding::wrong(Area::Store, subject, found, advice)
    } else if free < LITTLE_ROOM || free < file / 4 {
        Finding::warning(Area::Store, subject, found, advice)
    } else {
        Finding::fine(Area::Store, subject, found)
    }
}

/// Checks the disk of the file.
#[cfg(target_os = "linux")]
fn around(path: &Path, bytes: u64) -> Vec<Finding> {
    use rustix::fs::{FsWord, statfs, statvfs};

    /// The magic numbers of remote file systems in Linux: NFS, SMB, CIFS, SMB 2, AFS, Ceph, 9P.
    const REMOTE: [FsWord; 7] =
        [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x5346_414F, 0x00C3_6400, 0x0102_1997];

    let mut findings = Vec::new();
    if let Ok(system) = statvfs(path) {
        findings.push(room(system.f_bavail.saturating_mul(system.f_frsize), bytes));
    }
    if statfs(path).is_ok_and(|system| REMOTE.contains(&system.f_type)) {
        let advice =
            "move the file to a local disk: locks and shared memory are unreliable on network file systems";
        findings.push(Finding::wrong(Area::Store, "file system", "it is a network file system", advice));
    }
    findings
}

/// Skips checks that would need unsafe code or another library on this system.
#[cfg(not(target_os = "linux"))]
fn around(_: &Path, _: u64) -> Vec<Finding> {
    let _ = room;
    Vec::new()
}

/// Formats a number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use leftfold::inspect::doctor::Severity;

    use super::*;

    #[test]
    fn a_log_that_can_not_be_moved_into_the_file_is_reported() {
        assert_eq!(write_ahead_log(4 << 20).severity, Severity::Fine);
        let long = write_ahead_log(100 << 20);
        assert_eq!((long.severity, long.found.contains("100 MiB")), (Severity::Warning, true));
    }

    #[test]
    fn little_free_space_is_reported_also_if_it_is_little_for_this_file() {
        assert_eq!(room(10 << 20, 0).severity, Severity::Wrong);
        assert_eq!(room(100 << 20, 0).severity, Severity::Warning);
        assert_eq!(room(1 << 30, 1 << 20).severity, Severity::Fine);
        assert_eq!(room(1 << 30, 5 << 30).severity, Severity::Warning);
    }

    #[test]
    fn sizes_have_one_unit() {
        let sizes = [9, 20_480, 4 << 20, 100 << 20, 1 << 40].map(size);
        assert_eq!(sizes, ["9 bytes", "20 KiB", "4096 KiB", "100 MiB", "1024 GiB"]);
    }
}
