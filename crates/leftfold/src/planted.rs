//! Bugs that can be switched on by name, to check that the tests detect them. Without the feature
//! `planted` none of them is compiled.
//!
//! The places of the bugs are statements that begin with `mutant!`. The engine can be read as if
//! they were not there.

/// Runs a statement if a bug is switched on: `mutant!(SkipGuard => return Ok(()))`.
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($bug:ident => $($fault:tt)+) => {
        if $crate::planted::planted($crate::planted::Bug::$bug) {
            $($fault)+;
        }
    };
}

macro_rules! bugs {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// A bug, named by its fault. Each stands for a mistake that is easily made.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $($(#[$meta])* $name,)*
        }

        impl Bug {
            /// All bugs.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

bugs! {
    /// Writes ignore what is stored.
    SkipGuard,
    /// Writes ignore what is stored if their worker holds the lease.
    GuardByLease,
    /// A guard compares marks only, not the parked state.
    GuardByMark,
    /// A commit counts as done as soon as it is sent.
    AcknowledgeEarly,
    /// The checkpoint is written before the documents.
    CheckpointFirst,
    /// Documents are written before the streams they were folded without.
    StreamsLast,
    /// A commit with an unknown outcome counts as done.
    UnknownIsSuccess,
    /// An append with an unknown outcome counts as rejected.
    UnknownIsFailure,
    /// A checkpoint at the expected mark counts as proof that the commit succeeded.
    CheckpointIsProof,
    /// A deleted document leaves no mark.
    DropTombstones,
    /// The next page of the log begins one event too late.
    WrongPage,
    /// A repeated append is appended again.
    ForgetIds,
    /// Reads that must be current use a store that may be stale.
    StaleStreams,
    /// A document that another writer changed is not loaded again.
    KeepAfterConflict,
    /// After a conflict, only the guard of a document is loaded again, not its content.
    OverwriteAfterConflict,
    /// An event that leaves no document where none was is not written.
    NothingUnwritten,
    /// A stream continues after an event that could not be decoded.
    ParkAndGoOn,
    /// Events that wait behind a failing one count as folded.
    WaitingIsFolded,
    /// A worker that finds a document ahead does not re-read the parked streams.
    StreamsNotLookedAt,
    /// A batch is written although some of its documents were folded again without a stream that
    /// the others have.
    MixedBatch,
    /// A retry folds waiting events in the wrong order.
    RetryOutOfOrder,
    /// A replay reports that it presented everything it read.
    ReplayTooFar,
    /// A document is refolded without a stream that is being retried.
    TakenUpIgnored,
    /// A refolded document keeps its old mark.
    RefoldUnmarked,
    /// A document that could not be refolded is retried from its failing event on.
    RefoldFromFailure,
    /// A switch happens while the live documents are still being folded.
    SwitchUnfrozen,
    /// A switch happens before the rebuild has caught up.
    SwitchBehind,
    /// A read does not wait for its event.
    ReadAtOnce,
    /// A delivery is acknowledged before it is ingested.
    IngestLater,
    /// A settlement with an unknown outcome counts as done.
    UnknownIsSettled,
    /// A settlement is written although its streams changed meanwhile.
    SettleUnseen,
    /// Held events are released without being appended.
    ReleaseLost,
    /// Released events stay held.
    ReleaseTwice,
    /// The waiting state of a stream is not written with its held events.
    WaitNotWritten,
    /// The number of held events has no bound.
    Boundless,
    /// Conflicting events are not kept.
    ConflictDropped,
    /// Early events are not held.
    HoldNothing,
    /// Events with the same revision count as the same event.
    ContentIgnored,
    /// A link that leads one revision too far counts as right.
    LinkTooFar,
    /// Resupplied events are appended even if they arrived meanwhile.
    HealTwice,
    /// The cached state of a stream is kept although the stream moved.
    KeepAfterMove,
    /// The position of a change feed is stored before its changes are planned.
    PlaceFirst,
    /// The position in the log is stored before its events are planned.
    EventPlaceFirst,
    /// A reaction follows the log from the first planner on, not from its own start.
    BeginLater,
    /// Lost changes count as no changes.
    LostIsNothing,
    /// A plan is abandoned if another writer was faster.
    PlanOnce,
    /// The planner does not check whether the registry it planned with is still current.
    OldPlans,
    /// Changes for reactions that this process does not know are dropped.
    OthersForgotten,
    /// A comparison leaves out tasks whose documents are deleted.
    CompareDocumentsOnly,
    /// After a failure, a planner follows again under the same lease number.
    SameLease,
    /// A document that leaves the filter is not noticed.
    LeaveUnseen,
    /// A document that was seen to leave is not checked again.
    LeaveUnconfirmed,
    /// A change during a run counts as handled.
    ChangedIsDone,
    /// A run that found another document is not followed by another check.
    StaleIsOver,
    /// A task is written although it changed meanwhile.
    SaveUnseen,
    /// The result of a run counts although its claim is lost.
    LostClaimCounts,
    /// The end of a run is written once, and not repeated if the outcome is unknown.
    FinishOnce,
    /// A run is mistaken for another run of the same task.
    RunsMixedUp,
    /// A claim that is lost while its task runs alone does not count as an attempt.
    CrashIsNoAttempt,
    /// Every lost claim counts as an attempt, whatever ran beside it.
    EveryLossCounts,
    /// A lost claim raises no suspicion.
    LossIsNoSuspicion,
    /// Suspects run beside others.
    SuspectsAmongOthers,
    /// A suspect that must run alone runs in a group.
    NeverAlone,
    /// Living workers count as dead.
    LivingAreDead,
    /// An unreadable document blocks all that are read with it.
    UnreadableStopsAll,
    /// An unreadable document leaves its task unchanged.
    UnreadableIgnored,
    /// Errors are stored in full, however long they are.
    ErrorsUncut,
    /// A transaction with an unknown outcome counts as committed.
    UnknownIsCompleted,
    /// A transaction completes a task although another worker has claimed it.
    CompleteUnseen,
    /// Each attempt has its own idempotency key.
    KeyPerAttempt,
    /// The numbers of a task start over after the task was deleted.
    NumbersAgain,
    /// Handled events are handled again when an operator or new code requests a full rerun.
    EventsAgain,
    /// A request to throttle a reaction is confirmed but ignored.
    ThrottleNobody,
    /// A paused reaction keeps running.
    PauseNothing,
    /// All holders of a lock get the same number.
    SameLock,
    /// A lock is not renewed while it is held.
    LockUnkept,
    /// Old code runs tasks that need newer code.
    OldCodeRuns,
    /// A store time that arrived late counts as the current time.
    LateTime,
    /// Content is written although the document changed meanwhile.
    ContentUnguarded,
    /// A document is deleted although it changed meanwhile.
    DeleteUnseen,
    /// A write of content drops the remembered operations of the document.
    OperationsForgotten,
    /// A document with too many remembered operations drops the highest.
    HighestForgotten,
    /// An operation that is too old to be known counts as new.
    OldIsNew,
    /// An operation is not remembered.
    OperationUnremembered,
    /// Content that is already stored counts as a conflict.
    SameIsConflict,
    /// Content of another writer counts as the content to write.
    OtherIsSame,
    /// A rejected write overwrites the current content instead.
    WriteOverOthers,
    /// A change with an unknown outcome is made again although it is stored.
    ChangeAgain,
    /// A write that may have happened is reported as not written if the store can't be reached
    /// afterwards.
    DoubtForgotten,
}

#[cfg(feature = "planted")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Bug;

    const NONE: u8 = u8::MAX;
    static PLANTED: AtomicU8 = AtomicU8::new(NONE);

    /// Switches one bug on for the whole process, and all others off.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(NONE, |bug| bug as u8), Ordering::Relaxed);
    }

    /// Returns whether a bug is switched on.
    pub fn planted(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(feature = "planted")]
pub use switch::{plant, planted};

/// Returns whether a bug is switched on.
#[cfg(not(feature = "planted"))]
pub const fn planted(_: Bug) -> bool {
    false
}

impl Bug {
    /// Returns the name, such as `skip-guard`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }
}
