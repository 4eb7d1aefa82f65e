//! The process as the operating system sees it: memory, processor time, files, threads.

use std::sync::OnceLock;
use std::time::SystemTime;

/// Statistics of this process. A value that the system does not provide is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// The processor time of all threads, in seconds.
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<usize>,
    pub(crate) open_files: Option<usize>,
    pub(crate) threads: Option<u64>,
}

impl Process {
    /// Reads the statistics from the system.
    pub(crate) fn read() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let open_files = std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        Self { resident_bytes: resident_bytes(), open_files, ..Self::of(&stat) }
    }

    /// Parses `/proc/self/stat`. The name of the program is in parentheses, and may contain any
    /// character.
    fn of(stat: &str) -> Self {
        // Linux reports times to programs in hundredths of a second.
        const TICKS_PER_SECOND: f64 = 100.0;
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        // The state is the third field of the file, and the first one in `rest`.
        let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3);
        let ticks = |number| field(number).and_then(|field| field.parse::<f64>().ok());
        let cpu_seconds = ticks(14).zip(ticks(15)).map(|(user, system)| (user + system) / TICKS_PER_SECOND);
        let threads = field(20).and_then(|field| field.parse().ok());
        Self { cpu_seconds, threads, ..Self::default() }
    }
}

/// Returns the resident memory of this process, if the system provides it.
pub fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: usize = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns when this process started, in seconds since 1970. Precisely, it is the time of the first
/// call.
pub(crate) fn started() -> f64 {
    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_understood() {
        let stat = "7 (a ) b) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 100 0 0";
        let process = Process::of(stat);
        assert_eq!((process.cpu_seconds, process.threads), (Some(2.0), Some(9)));
        if cfg!(target_os = "linux") {
            let Process { cpu_seconds, resident_bytes, open_files, threads } = Process::read();
            assert!(cpu_seconds.is_some() && resident_bytes > Some(100_000), "{resident_bytes:?}");
            assert!(open_files > Some(2) && threads > Some(0), "{open_files:?} {threads:?}");
        }
        assert!((started() - started()).abs() < f64::EPSILON);
    }
}
