//! The state that all handles of one simulated store share.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use leftfold::documents::Record;
use leftfold::sequence::StreamState;
use leftfold::{Collection, DocumentId, Memory, StreamId};

use crate::checker::Checker;
use crate::contents::ledger::Ledger as ContentLedger;
use crate::faults::Faults;
use crate::feed::SimulatedFeed;
use crate::reactions::ledger::Ledger;
use crate::trace::Trace;

/// The start of the simulated time.
pub(crate) const MIDNIGHT: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The state that all handles of one simulated store share.
pub struct Shared {
    pub(super) inner: Memory,
    /// `true` if a commit is one transaction.
    pub(super) atomic: bool,
    /// The faults.
    pub faults: Faults,
    /// The trace.
    pub trace: Trace,
    /// The checker, which sees every write.
    pub checker: Checker,
    /// The last loaded state of each document.
    pub(super) past: Mutex<HashMap<(Collection, DocumentId), Option<Record>>>,
    /// The last surveyed state of each stream.
    pub(super) past_streams: Mutex<HashMap<StreamId, StreamState>>,
    /// The feed of deliveries.
    pub(crate) feed: SimulatedFeed,
    /// The owner of each projection's lease.
    pub(super) holders: Mutex<HashMap<Collection, Arc<str>>>,
    /// The ledger of reactions, which sees every task and its effects.
    pub(crate) ledger: Ledger,
    /// The owners of the other leases, by name.
    pub(super) lease_holders: Mutex<BTreeMap<String, String>>,
    /// The ledger of documents without events.
    pub(crate) contents: ContentLedger,
    /// `true` during an outage.
    pub(super) is_down: AtomicBool,
}

impl Shared {
    pub(super) fn new(partitions: u16, atomic: bool, faults: Faults, trace: bool) -> Self {
        Self {
            inner: Memory::new(partitions).with_time(MIDNIGHT),
            atomic,
            faults,
            trace: Trace::new(trace),
            checker: Checker::default(),
            past: Mutex::default(),
            past_streams: Mutex::default(),
            feed: SimulatedFeed::default(),
            holders: Mutex::default(),
            ledger: Ledger::default(),
            lease_holders: Mutex::default(),
            contents: ContentLedger::default(),
            is_down: AtomicBool::new(false),
        }
    }
}
