//! Bugs that can be switched on by name, to see that the tests would notice them. Without the feature `planted` none of
//! them is compiled.

macro_rules! bugs {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// A bug, by what is done wrong. Each stands for a mistake that is easily made.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $($(#[$meta])* $name,)*
        }

        impl Bug {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

bugs! {
    /// Writes happen whatever is stored.
    SkipGuard,
    /// Writes happen whatever is stored, if their worker holds the lease.
    GuardByLease,
    /// A guard compares marks alone, and not what is set aside.
    GuardByMark,
    /// A commit is taken for done as soon as it is sent.
    AcknowledgeEarly,
    /// The checkpoint is written before the documents.
    CheckpointFirst,
    /// Documents are written before the streams they were folded without.
    StreamsLast,
    /// A commit of which nothing is known is taken for done.
    UnknownIsSuccess,
    /// An append of which nothing is known is taken for refused.
    UnknownIsFailure,
    /// A checkpoint that stands where it should is taken for a sign that the commit was ours.
    CheckpointIsProof,
    /// A document that is gone leaves no mark behind.
    DropTombstones,
    /// The next page of the log is read from one event too far.
    WrongPage,
    /// An append that is repeated is appended again.
    ForgetIds,
    /// What must be read as it is now is read from a store that may be behind.
    StaleStreams,
    /// A document that somebody else changed is not loaded again.
    KeepAfterConflict,
    /// Of a document that somebody else changed, only what the guard needs is loaded again.
    OverwriteAfterConflict,
    /// An event that leaves nothing where nothing was is not written.
    NothingUnwritten,
    /// Behind an event that could not be decoded, its stream goes on.
    ParkAndGoOn,
    /// Events that wait behind a failing one count as folded.
    WaitingIsFolded,
    /// Who finds a document ahead does not look again which streams are set aside.
    StreamsNotLookedAt,
    /// A batch of which some documents were folded anew, without a stream that the others have, is written.
    MixedBatch,
    /// What waits is folded in the wrong order when it is tried again.
    RetryOutOfOrder,
    /// A replay tells that it presented all that it read.
    ReplayTooFar,
    /// A document is folded anew without a stream that is being taken up again.
    TakenUpIgnored,
    /// A document that was folded anew looks as it did before.
    RefoldUnmarked,
    /// A document that could not be folded anew is tried again from its failing event on.
    RefoldFromFailure,
    /// A rebuild is switched to while the live documents go on.
    SwitchUnfrozen,
    /// A rebuild is switched to before it has caught up.
    SwitchBehind,
    /// A read that is to wait for an event does not.
    ReadAtOnce,
    /// A delivery is acknowledged before it is ingested.
    IngestLater,
    /// A settlement of which nothing is known is taken for done.
    UnknownIsSettled,
    /// A settlement is written whatever became of its streams meanwhile.
    SettleUnseen,
    /// Held events are let go without being appended.
    ReleaseLost,
    /// Released events stay held.
    ReleaseTwice,
    /// What a stream waits for is not written with what is held of it.
    WaitNotWritten,
    /// What is held may grow without bound.
    Boundless,
    /// What contradicts is not kept.
    ConflictDropped,
    /// What comes early is not held.
    HoldNothing,
    /// What has the same revision is taken for the same.
    ContentIgnored,
    /// A link that leads one revision too far is taken for the right one.
    LinkTooFar,
    /// What was asked for is appended as if it had never come.
    HealTwice,
    /// Where a stream was is not looked at again, though it moved.
    KeepAfterMove,
    /// Where a feed of changes is, is noted before they are planned.
    PlaceFirst,
    /// Where the log is followed is noted before its events are planned.
    EventPlaceFirst,
    /// The log is followed from when somebody comes to it, not from the start.
    BeginLater,
    /// Changes that were lost are taken for none.
    LostIsNothing,
    /// A plan that others were faster than is given up.
    PlanOnce,
    /// Who planned does not look whether what it planned by is still what is registered.
    OldPlans,
    /// Nobody is told of changes that concern reactions which are not known here.
    OthersForgotten,
    /// A comparison leaves out tasks whose documents are gone.
    CompareDocumentsOnly,
    /// Who follows again after a failure does so under the same number.
    SameLease,
    /// A document that leaves is not noticed.
    LeaveUnseen,
    /// A document that was seen to leave is not looked at again.
    LeaveUnconfirmed,
    /// What changed during a run is taken for handled.
    ChangedIsDone,
    /// A run that found another document is not followed by another look.
    StaleIsOver,
    /// A task is written whatever became of it meanwhile.
    SaveUnseen,
    /// What a run says counts though its claim is lost.
    LostClaimCounts,
    /// The end of a run is written once, and forgotten if nobody knows what became of that.
    FinishOnce,
    /// A run is taken for another one of the same task.
    RunsMixedUp,
    /// A claim that is lost while its task runs alone is no attempt.
    CrashIsNoAttempt,
    /// Each claim that is lost is an attempt, whatever ran beside it.
    EveryLossCounts,
    /// A claim that is lost raises no suspicion.
    LossIsNoSuspicion,
    /// Suspects run beside others.
    SuspectsAmongOthers,
    /// A suspect that is to run alone runs in a group.
    NeverAlone,
    /// Workers that are alive are taken for dead.
    LivingAreDead,
    /// A document that can't be read keeps all that are read with it from being read.
    UnreadableStopsAll,
    /// A document that can't be read is left as it was.
    UnreadableIgnored,
    /// Errors are kept whole, however long they are.
    ErrorsUncut,
    /// A transaction of which nothing is known is taken for committed.
    UnknownIsCompleted,
    /// A task is completed in a transaction whoever has it by then.
    CompleteUnseen,
    /// Each attempt has a key of its own.
    KeyPerAttempt,
    /// The numbers of a task begin anew when it was forgotten.
    NumbersAgain,
    /// Events that were handled are handled again when somebody, or new code, wants everything again.
    EventsAgain,
    /// Who asks that a reaction be held up is told that it is.
    ThrottleNobody,
    /// A reaction that is paused goes on.
    PauseNothing,
    /// All who have a lock are told the same number.
    SameLock,
    /// A lock is not kept while somebody has it.
    LockUnkept,
    /// Old code runs what needs newer code.
    OldCodeRuns,
    /// A time that was told late is taken for that of now.
    LateTime,
    /// Content is written whatever the document is by then.
    ContentUnguarded,
    /// A document is deleted whatever it is by then.
    DeleteUnseen,
    /// A write of content forgets the operations that the document remembers.
    OperationsForgotten,
    /// A document that remembers too many operations forgets the highest.
    HighestForgotten,
    /// An operation that is too old to tell is taken for a new one.
    OldIsNew,
    /// An operation is not remembered.
    OperationUnremembered,
    /// Content that is there already is taken for another.
    SameIsConflict,
    /// Content that somebody else wrote is taken for what was to be written.
    OtherIsSame,
    /// A write that was refused is made over what is there instead.
    WriteOverOthers,
    /// A change of which nothing is known is made again, though it is there.
    ChangeAgain,
    /// A write that may have happened is said not to have, if the store can't be reached afterwards.
    DoubtForgotten,
}

#[cfg(feature = "planted")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Bug;

    const NONE: u8 = u8::MAX;
    static PLANTED: AtomicU8 = AtomicU8::new(NONE);

    /// Switches a bug on for the whole process, and any other off.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(NONE, |bug| bug as u8), Ordering::Relaxed);
    }

    /// Whether a bug is switched on.
    pub fn planted(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(feature = "planted")]
pub use switch::{plant, planted};

/// Whether a bug is switched on.
#[cfg(not(feature = "planted"))]
pub const fn planted(_: Bug) -> bool {
    false
}

impl Bug {
    /// Its name, such as `skip-guard`.
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
