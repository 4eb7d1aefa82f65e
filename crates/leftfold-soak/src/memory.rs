//! The memory of the daemon and its worker processes, as reported by the system.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The default of `[server] memory`.
pub(crate) const BUDGET: u64 = 512 << 20;
/// The allowance for the program, the engine, the store's driver and the allocator beyond the
/// budget.
pub(crate) const BASE: u64 = 160 << 20;

const EVERY: Duration = Duration::from_millis(200);

/// A measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    /// The daemon's peak resident memory since its start.
    pub(crate) daemon_peak: u64,
    pub(crate) daemon: u64,
    /// The workers' memory that they do not share with the daemon.
    pub(crate) workers: u64,
}

/// Measures a process, which may be replaced.
#[derive(Debug)]
pub(crate) struct Meter {
    begun: Instant,
    process: AtomicU32,
    samples: Mutex<Vec<Sample>>,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), process: AtomicU32::new(0), samples: Mutex::default() }
    }

    /// Sets the process to measure; 0 for none.
    pub(crate) fn watch(&self, process: u32) {
        self.process.store(process, Ordering::Relaxed);
    }

    /// Measures until `stop` is set.
    pub(crate) fn run(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if let Some(sample) = self.sample() {
                self.samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
            }
            thread::sleep(EVERY);
        }
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    fn sample(&self) -> Option<Sample> {
        let process = self.process.load(Ordering::Relaxed);
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let workers = children(process).into_iter().filter_map(|child| {
            let status = fs::read_to_string(format!("/proc/{child}/status")).ok()?;
            kibibytes(&status, "RssAnon").map(|size| size << 10)
        });
        Some(Sample {
            at: self.begun.elapsed(),
            daemon_peak: kibibytes(&status, "VmHWM")? << 10,
            daemon: kibibytes(&status, "VmRSS")? << 10,
            workers: workers.sum(),
        })
    }
}

/// Returns a number from `/proc/<id>/status`.
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the child processes of a process.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        parent(&stat) == Some(process)
    })
    .collect()
}

/// Returns the parent from `/proc/<id>/stat`. The process name before it can contain anything.
fn parent(stat: &str) -> Option<u32> {
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The peaks of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peaks {
    pub(crate) daemon: u64,
    /// The peak of the daemon and its workers together.
    pub(crate) total: u64,
    pub(crate) workers: u64,
    /// The peaks of the daemon and its workers in the second and the last third of the given time.
    pub(crate) thirds: (u64, u64),
}

/// Finds the peaks. The thirds divide the time from `from` to `to`.
pub(crate) fn peaks(samples: &[Sample], from: Duration, to: Duration) -> Peaks {
    let third = to.saturating_sub(from) / 3;
    let most = |of: fn(&Sample) -> u64, from: Duration, to: Duration| {
        let during = samples.iter().filter(|sample| (from..=to).contains(&sample.at));
        during.map(of).max().unwrap_or(0)
    };
    let total = |sample: &Sample| sample.daemon + sample.workers;
    Peaks {
        daemon: most(|sample| sample.daemon_peak, Duration::ZERO, Duration::MAX),
        total: most(total, Duration::ZERO, Duration::MAX),
        workers: most(|sample| sample.workers, Duration::ZERO, Duration::MAX),
        thirds: (most(total, from + third, from + 2 * third), most(total, from + 2 * third, to)),
    }
}

impl Peaks {
    /// Returns whether the last third's peak is at most a fifth above the second third's.
    pub(crate) fn stop_growing(&self) -> bool {
        let (second, last) = self.thirds;
        last * 5 <= second * 6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        let status = "Name:\tleftfold\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nRssAnon:\t 512 kB\n";
        assert_eq!(kibibytes(status, "VmRSS"), Some(1_024));
        assert_eq!(kibibytes(status, "RssAnon"), Some(512));
        assert_eq!(kibibytes(status, "Vm"), None);
        assert_eq!(parent("12 (a) b) (c) S 7 12 12"), Some(7));
        assert_eq!(parent(""), None);
    }

    #[test]
    fn this_process_is_measured() {
        let meter = Meter::new();
        assert!(meter.sample().is_none());
        meter.watch(std::process::id());
        let sample = meter.sample().unwrap();
        assert!(sample.daemon > 0 && sample.daemon_peak >= sample.daemon);
    }

    #[test]
    fn peaks_are_found_by_thirds() {
        let sample = |at, daemon, workers| Sample {
            at: Duration::from_secs(at),
            daemon_peak: daemon + 1,
            daemon,
            workers,
        };
        let samples =
            [sample(0, 50, 1), sample(12, 9, 9), sample(15, 10, 4), sample(25, 10, 8), sample(31, 1, 90)];
        let peaks = peaks(&samples, Duration::ZERO, Duration::from_secs(30));
        assert_eq!(peaks, Peaks { daemon: 51, total: 91, workers: 90, thirds: (18, 18) });
        assert!(peaks.stop_growing());
        assert!(!Peaks { thirds: (10, 13), ..peaks }.stop_growing());
        assert!(Peaks { thirds: (10, 12), ..peaks }.stop_growing());
    }
}
