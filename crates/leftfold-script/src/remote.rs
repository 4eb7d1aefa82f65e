//! A script in worker processes. Workers fold many items at a time, and no item can harm others.
//!
//! If a worker is lost, the item it was working on is the suspect. That item runs alone in a new
//! process, and fails only if that process is lost, too. Items before it run once more, and items
//! behind it continue from its result.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::ScriptFault;
use crate::engine::Exports;
use crate::identity::hash;
use crate::pool::Workers;
use crate::process::{Answer, IDLE, LOADING, Lost};
use crate::wire::{Before, FoldItem, Record, Source, Work};

/// The time after which a job of a quick script ends, with the current item. The next script waits
/// no longer than that.
const JOB_TIME: Duration = Duration::from_millis(10);
/// The same for a slow script. Only other slow scripts wait for it.
const SLOW_JOB_TIME: Duration = Duration::from_millis(50);
/// The average processor time per item in a job above which a script is slow. Elapsed time would
/// depend more on the machine.
const SLOW_ITEM: Duration = Duration::from_millis(2);
/// The processor time for an item of a script that is not known to be slow. If it needs more, its
/// worker is killed. It then runs alone, with its whole limit, among the slow ones, so it delays no
/// quick script for long.
const QUANTUM: Duration = Duration::from_millis(10);
/// The number of quick jobs after which a slow script counts as quick again.
const QUICK_JOBS: u32 = 100;
/// The approximate size of a job's results, unless one document is larger.
const JOB_BYTES: u32 = 4 << 20;
/// The approximate size of a call's results, unless the required ones are larger.
const CALL_BYTES: usize = 16 << 20;
const JOB_ITEMS: usize = 1_024;
/// The number of times that loading the script may lose its process.
const LOADS: u32 = 2;

/// The time for which the loss of a worker is remembered. Repairs fold the item again at once, and
/// would lose another worker.
const REMEMBER: Duration = Duration::from_secs(30);
const MOST_REMEMBERED: usize = 256;

/// A script in worker processes.
pub(crate) struct Remote {
    workers: Workers,
    /// The identity of the script with its limits.
    script: u64,
    source: Source,
    /// 0 for a quick script; otherwise the number of quick jobs until it is one.
    slowness: Arc<AtomicU32>,
    /// Items that have lost their workers recently.
    lost: Mutex<Vec<Remembered>>,
}

/// An item that lost its worker, and lost it again when it ran alone.
struct Remembered {
    /// The hash of its event.
    event: u64,
    /// The hash of its event and the document before it.
    whole: u64,
    since: Instant,
    fault: ScriptFault,
}

/// One fold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    /// The document's number among those of the call.
    pub(crate) key: u32,
    /// The document before the first of its items.
    pub(crate) document: Option<&'a str>,
    pub(crate) kind: &'a str,
    pub(crate) event: &'a str,
}

/// The items of a call.
enum Call<'a> {
    Fold(&'a [Item<'a>]),
    Route(&'a [&'a str]),
}

impl Call<'_> {
    /// Returns the hash of an item's event.
    fn event(&self, at: usize) -> u64 {
        hash([match self {
            Self::Fold(items) => items[at].event,
            Self::Route(events) => events[at],
        }])
    }

    /// Returns the hash of an item's event and the document before it, given all results before it.
    fn whole(&self, done: &[Record], at: usize) -> u64 {
        let Self::Fold(items) = self else { return self.event(at) };
        let item = &items[at];
        let last = items[..at].iter().zip(done).rev().find(|(before, _)| before.key == item.key);
        let document = match last {
            None => item.document,
            Some((_, Record::Document(text))) => Some(text.as_str()),
            Some(_) => None,
        };
        hash([item.event, document.unwrap_or_default()])
    }

    /// Returns a job with a range of the items, given all results before it.
    fn job<'r>(&'r self, done: &'r [Record], range: Range<usize>) -> Work<'r> {
        let items = match self {
            Self::Fold(items) => items,
            Self::Route(events) => return Work::Route(events[range].to_vec()),
        };
        let documents = items.iter().map(|item| item.key as usize + 1).max().unwrap_or(0);
        let mut last: Vec<Option<Before<'r>>> = vec![None; documents];
        for (item, record) in items.iter().zip(done) {
            last[item.key as usize] = Some(match record {
                Record::Document(text) => Before::Text(text),
                Record::Nothing => Before::Nothing,
                // The worker has no last result of the document, either, and skips the item.
                _ => Before::Last,
            });
        }
        let items = items[range].iter().map(|item| {
            let first = item.document.map_or(Before::Nothing, Before::Text);
            let before = last[item.key as usize].replace(Before::Last).unwrap_or(first);
            FoldItem { key: item.key, before, kind: item.kind, event: item.event }
        });
        Work::Fold(items.collect())
    }
}

/// The extent of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The number of items to process in any case …
    pub(crate) least: usize,
    /// … and the time for which to continue beyond them.
    pub(crate) time: Duration,
}

impl Remote {
    /// Loads a script, and returns its exports.
    pub(crate) fn load(
        workers: Workers,
        script: u64,
        source: Source,
    ) -> Result<(Self, Exports), ScriptFault> {
        let slowness = workers.slowness(script);
        let remote = Self { workers, script, source, slowness, lost: Mutex::default() };
        let mut lost = 0;
        loop {
            let Answer { mut records, lost: gone, .. } = remote.job(lost > 0, Work::Load)?;
            match (records.pop(), gone) {
                (_, Some(gone)) if lost + 1 < LOADS => {
                    tracing::debug!(reason = gone.reason, "loading a script lost its worker; retrying");
                    lost += 1;
                }
                (_, Some(gone)) => return Err(ScriptFault::limit(gone.reason)),
                (Some(Record::Loaded(exports)), None) => return Ok((remote, exports)),
                (Some(Record::Fault(fault)), None) => return Err(fault),
                (record, None) => {
                    return Err(ScriptFault::new(format!("loading the script returned {record:?}")));
                }
            }
        }
    }

    /// Returns the identity of the script with its limits.
    pub(crate) fn script(&self) -> u64 {
        self.script
    }

    /// Folds in order. Returns results for as many items as the extent allows.
    pub(crate) fn fold(&self, items: &[Item<'_>], extent: Extent) -> Result<Vec<Record>, ScriptFault> {
        self.run(&Call::Fold(items), items.len(), extent)
    }

    /// Routes all events.
    pub(crate) fn route(&self, events: &[&str]) -> Result<Vec<Record>, ScriptFault> {
        let extent = Extent { least: events.len(), time: Duration::ZERO };
        self.run(&Call::Route(events), events.len(), extent)
    }

    /// Runs the items of a call in jobs, in order.
    fn run(&self, call: &Call<'_>, items: usize, extent: Extent) -> Result<Vec<Record>, ScriptFault> {
        let begun = Instant::now();
        let (mut done, mut bytes) = (Vec::with_capacity(items), 0);
        // The item at which a worker was lost.
        let (mut suspect, mut failed_loads) = (None, 0);
        while done.len() < items {
            if done.len() >= extent.least && (begun.elapsed() >= extent.time || bytes > CALL_BYTES) {
                break;
            }
            let from = done.len();
            suspect = suspect.or_else(|| self.first_remembered(call, from..items.min(from + JOB_ITEMS)));
            let (to, is_alone) = match suspect {
                Some(at) if at == from => {
                    if let Some(fault) = self.remembered(call.whole(&done, from)) {
                        done.push(Record::Fault(fault));
                        suspect = None;
                        continue;
                    }
                    (from + 1, true)
                }
                Some(at) => (at, false),
                None => (items.min(from + JOB_ITEMS), false),
            };
            let Answer { records, lost, .. } = self.job(is_alone, call.job(&done, from..to))?;
            if records.is_empty() && lost.is_none() {
                return Err(ScriptFault::new("the worker returned no result".to_owned()));
            }
            bytes += records.iter().map(size).sum::<usize>();
            done.extend(records);
            done.truncate(to);
            match lost {
                None if suspect.is_some_and(|at| at < done.len()) => suspect = None,
                None => {}
                Some(Lost { at: LOADING | IDLE, reason }) => {
                    failed_loads += 1;
                    if failed_loads >= LOADS {
                        return Err(ScriptFault::limit(reason));
                    }
                }
                Some(Lost { reason, .. }) if is_alone => {
                    done.truncate(from);
                    let fault = ScriptFault::limit(reason);
                    self.remember(call.event(from), call.whole(&done, from), fault.clone());
                    done.push(Record::Fault(fault));
                    suspect = None;
                }
                Some(Lost { at, reason }) => {
                    let at = usize::try_from(at).map_or(from, |at| from.saturating_add(at));
                    tracing::debug!(item = at, reason, "a worker was lost; its item runs alone");
                    // If all results arrived before the worker was lost, no item is suspect.
                    suspect = (done.len() < to).then(|| at.clamp(done.len(), to - 1));
                }
            }
        }
        Ok(done)
    }

    fn remember(&self, event: u64, whole: u64, fault: ScriptFault) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|one| one.since.elapsed() < REMEMBER);
        if lost.len() < MOST_REMEMBERED {
            lost.push(Remembered { event, whole, since: Instant::now(), fault });
        }
    }

    /// Returns the fault of an item that has lost its worker recently.
    fn remembered(&self, whole: u64) -> Option<ScriptFault> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|one| one.since.elapsed() < REMEMBER);
        lost.iter().find(|one| one.whole == whole).map(|one| one.fault.clone())
    }

    /// Returns the first item of a range whose event has lost its worker recently, so that it can
    /// run alone.
    fn first_remembered(&self, call: &Call<'_>, mut range: Range<usize>) -> Option<usize> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.is_empty() {
            return None;
        }
        range.find(|at| lost.iter().any(|one| one.event == call.event(*at)))
    }

    fn job(&self, is_fresh: bool, work: Work<'_>) -> Result<Answer, ScriptFault> {
        let is_slow = self.slowness.load(Ordering::Relaxed) > 0;
        let mut worker = self.workers.worker(self.script, is_slow, is_fresh)?;
        let most = self.source.limits.time;
        let (limit, job_time) =
            if is_slow || is_fresh { (most, SLOW_JOB_TIME) } else { (QUANTUM.min(most), JOB_TIME) };
        let answer = worker.run((self.script, &self.source), limit, (job_time, JOB_BYTES), work);
        match &answer.lost {
            Some(_) => worker.discard(),
            None => worker.weigh(self.source.limits.memory),
        }
        let items = u32::try_from(answer.records.len()).unwrap_or(u32::MAX);
        if answer.lost.is_some() || answer.cpu > SLOW_ITEM * items {
            self.slowness.store(QUICK_JOBS, Ordering::Relaxed);
        } else if is_slow {
            self.slowness.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(answer)
    }
}

fn size(record: &Record) -> usize {
    match record {
        Record::Document(text) => text.len(),
        Record::Fault(fault) => fault.message.len(),
        Record::Ids(ids) => ids.iter().map(|id| id.len() + 24).sum(),
        _ => 0,
    }
}
