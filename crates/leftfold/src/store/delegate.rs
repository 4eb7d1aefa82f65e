//! Methods of a store that another store answers: for stores that wrap or combine others.

/// Implements methods of a store's traits by calling the same methods of a field. It stands inside
/// an `impl` block:
///
/// ```
/// use leftfold::{Append, Log, Memory, delegate};
///
/// /// A store that a test observes.
/// struct Observed {
///     inner: Memory,
/// }
///
/// impl Log for Observed {
///     delegate!(inner: partitions, heads, read, read_stream, grown);
/// }
///
/// impl Append for Observed {
///     delegate!(inner: Append);
/// }
/// ```
///
/// The name of a trait stands for all its methods. A store that changes a method lists the others
/// and writes that one out.
#[macro_export]
macro_rules! delegate {
    ($to:ident: $($method:ident),+ $(,)?) => {
        $($crate::delegate!(@$method $to);)+
    };

    // Whole traits.
    (@Log $to:ident) => {
        $crate::delegate!(
            $to: partitions, heads, read, read_stream, grown
        );
    };
    (@Append $to:ident) => {
        $crate::delegate!(
            $to: append
        );
    };
    (@Documents $to:ident) => {
        $crate::delegate!(
            $to: prepare, load, load_current, commit, scan, scan_page, parked, count, checkpoint,
            advanced, claim, release, generations, put_generations, drop_generation
        );
    };
    (@Sequences $to:ident) => {
        $crate::delegate!(
            $to: max_event_bytes, survey, find, held, settle, waiting, overdue, conflicts, skipped,
            reject, rejected, count_rejected, forget, resolve
        );
    };
    (@Counters $to:ident) => {
        $crate::delegate!(
            $to: draw
        );
    };

    // Log and Append.
    (@partitions $to:ident) => {
        fn partitions(&self) -> u16 {
            self.$to.partitions()
        }
    };
    (@heads $to:ident) => {
        $crate::delegate!(@async $to.heads() -> $crate::Result<$crate::Mark>);
    };
    (@read $to:ident) => {
        $crate::delegate!(@async $to.read(
            partition: $crate::Partition,
            after: $crate::Position,
            limit: $crate::log::Limit,
        ) -> $crate::Result<$crate::log::LogPage>);
    };
    (@read_stream $to:ident) => {
        $crate::delegate!(@async $to.read_stream(
            stream: &$crate::StreamId,
            after: $crate::Revision,
            limit: $crate::log::Limit,
        ) -> $crate::Result<Vec<$crate::Event>>);
    };
    (@grown $to:ident) => {
        $crate::delegate!(@async $to.grown(beyond: &$crate::Mark) -> $crate::Result<()>);
    };
    (@append $to:ident) => {
        $crate::delegate!(@async $to.append(
            stream: $crate::StreamId,
            expected: $crate::Expected,
            entries: Vec<$crate::log::Entry>,
        ) -> $crate::Result<$crate::Appended, $crate::AppendError>);
    };

    // Documents.
    (@prepare $to:ident) => {
        $crate::delegate!(@async $to.prepare(collection: &$crate::Collection) -> $crate::Result<()>);
    };
    (@load $to:ident) => {
        $crate::delegate!(@async $to.load(
            collection: &$crate::Collection,
            ids: Vec<$crate::DocumentId>,
        ) -> $crate::Result<Vec<$crate::documents::Record>>);
    };
    (@load_current $to:ident) => {
        $crate::delegate!(@async $to.load_current(
            collection: &$crate::Collection,
            ids: Vec<$crate::DocumentId>,
        ) -> $crate::Result<Vec<$crate::documents::Record>>);
    };
    (@commit $to:ident) => {
        $crate::delegate!(@async $to.commit(
            commit: ::std::sync::Arc<$crate::documents::Commit>,
        ) -> $crate::Result<$crate::documents::CommitOutcome>);
    };
    (@scan $to:ident) => {
        $crate::delegate!(@async $to.scan(
            collection: &$crate::Collection,
            after: Option<$crate::DocumentId>,
            limit: usize,
        ) -> $crate::Result<Vec<$crate::documents::Record>>);
    };
    (@scan_page $to:ident) => {
        $crate::delegate!(@async $to.scan_page(
            collection: &$crate::Collection,
            after: Option<$crate::DocumentId>,
            limit: usize,
            bytes: usize,
        ) -> $crate::Result<(Vec<$crate::documents::Record>, bool)>);
    };
    (@parked $to:ident) => {
        $crate::delegate!(@async $to.parked(
            collection: &$crate::Collection,
            after: Option<$crate::DocumentId>,
            limit: usize,
        ) -> $crate::Result<Vec<$crate::documents::Record>>);
    };
    (@count $to:ident) => {
        $crate::delegate!(@async $to.count(
            collection: &$crate::Collection,
        ) -> $crate::Result<$crate::documents::DocumentCounts>);
    };
    (@checkpoint $to:ident) => {
        $crate::delegate!(@async $to.checkpoint(
            projection: &$crate::Collection,
        ) -> $crate::Result<$crate::documents::Checkpoint>);
    };
    (@advanced $to:ident) => {
        $crate::delegate!(@async $to.advanced(
            projection: &$crate::Collection,
            from: &$crate::Mark,
        ) -> $crate::Result<$crate::Mark>);
    };
    (@claim $to:ident) => {
        $crate::delegate!(@async $to.claim(
            projection: &$crate::Collection,
            owner: &str,
            lease: ::std::time::Duration,
        ) -> $crate::Result<$crate::documents::Claim>);
    };
    (@release $to:ident) => {
        $crate::delegate!(@async $to.release(
            projection: &$crate::Collection,
            owner: &str,
        ) -> $crate::Result<()>);
    };
    (@generations $to:ident) => {
        $crate::delegate!(@async $to.generations(
            collection: &$crate::Collection,
        ) -> $crate::Result<$crate::documents::Generations>);
    };
    (@put_generations $to:ident) => {
        $crate::delegate!(@async $to.put_generations(
            collection: &$crate::Collection,
            seen: u64,
            next: $crate::documents::Generations,
        ) -> $crate::Result<bool>);
    };
    (@drop_generation $to:ident) => {
        $crate::delegate!(@async $to.drop_generation(
            generation: &$crate::Collection,
        ) -> $crate::Result<()>);
    };

    // Sequences.
    (@max_event_bytes $to:ident) => {
        fn max_event_bytes(&self) -> usize {
            self.$to.max_event_bytes()
        }
    };
    (@survey $to:ident) => {
        $crate::delegate!(@async $to.survey(
            streams: Vec<$crate::StreamId>,
        ) -> $crate::Result<$crate::sequence::Survey>);
    };
    (@find $to:ident) => {
        $crate::delegate!(@async $to.find(
            wanted: $crate::sequence::WantedEvents,
        ) -> $crate::Result<$crate::sequence::Found>);
    };
    (@held $to:ident) => {
        $crate::delegate!(@async $to.held(
            streams: Vec<$crate::StreamId>,
            limit: $crate::log::Limit,
        ) -> $crate::Result<
            ::std::collections::BTreeMap<$crate::StreamId, $crate::sequence::HeldPage>
        >);
    };
    (@settle $to:ident) => {
        $crate::delegate!(@async $to.settle(
            settlement: ::std::sync::Arc<$crate::sequence::Settlement>,
        ) -> $crate::Result<$crate::sequence::Settled>);
    };
    (@waiting $to:ident) => {
        $crate::delegate!(@async $to.waiting(
            after: Option<$crate::StreamId>,
            limit: usize,
        ) -> $crate::Result<Vec<($crate::StreamId, $crate::sequence::StreamState)>>);
    };
    (@overdue $to:ident) => {
        $crate::delegate!(@async $to.overdue(
            due: $crate::sequence::DueGaps,
            limit: usize,
        ) -> $crate::Result<Vec<($crate::StreamId, $crate::sequence::StreamState)>>);
    };
    (@conflicts $to:ident) => {
        $crate::delegate!(@async $to.conflicts(
            after: Option<$crate::sequence::Conflict>,
            limit: usize,
        ) -> $crate::Result<Vec<$crate::sequence::Conflict>>);
    };
    (@skipped $to:ident) => {
        $crate::delegate!(@async $to.skipped(
            stream: &$crate::StreamId,
        ) -> $crate::Result<Vec<$crate::sequence::Skipped>>);
    };
    (@reject $to:ident) => {
        $crate::delegate!(@async $to.reject(
            rejected: Vec<$crate::sequence::Rejected>,
        ) -> $crate::Result<()>);
    };
    (@rejected $to:ident) => {
        $crate::delegate!(@async $to.rejected(
            after: Option<String>,
            limit: usize,
        ) -> $crate::Result<Vec<$crate::sequence::Rejected>>);
    };
    (@count_rejected $to:ident) => {
        $crate::delegate!(@async $to.count_rejected() -> $crate::Result<u64>);
    };
    (@forget $to:ident) => {
        $crate::delegate!(@async $to.forget(rejected: &str) -> $crate::Result<bool>);
    };
    (@resolve $to:ident) => {
        $crate::delegate!(@async $to.resolve(
            conflict: &$crate::sequence::Conflict,
            decided: Option<$crate::sequence::Resolution>,
        ) -> $crate::Result<bool>);
    };

    // Counters.
    (@draw $to:ident) => {
        $crate::delegate!(@async $to.draw(draw: $crate::revision::Draw) -> $crate::Result<u64>);
    };

    // ReactionStore.
    (@prepare_reactions $to:ident) => {
        $crate::delegate!(@async $to.prepare_reactions(
            on: &[$crate::react::DocumentSource],
        ) -> $crate::Result<()>);
    };
    (@time $to:ident) => {
        $crate::delegate!(@async $to.time() -> $crate::Result<::jiff::Timestamp>);
    };
    (@current_documents $to:ident) => {
        $crate::delegate!(@async $to.current_documents(
            on: &$crate::react::DocumentSource,
            ids: Vec<$crate::DocumentId>,
            bytes: usize,
        ) -> $crate::Result<$crate::react::FoundDocuments>);
    };
    (@page_of_ids $to:ident) => {
        $crate::delegate!(@async $to.page_of_ids(
            on: &$crate::react::DocumentSource,
            after: Option<$crate::DocumentId>,
            most: usize,
        ) -> $crate::Result<Vec<$crate::DocumentId>>);
    };
    (@follow $to:ident) => {
        $crate::delegate!(@async $to.follow(
            on: Vec<$crate::react::DocumentSource>,
            from: Option<String>,
        ) -> $crate::Result<Self::Feed>);
    };
    (@has_changes $to:ident) => {
        $crate::delegate!(@async $to.has_changes(
            on: Vec<$crate::react::DocumentSource>,
            after: String,
        ) -> $crate::Result<bool>);
    };
    (@load_tasks $to:ident) => {
        $crate::delegate!(@async $to.load_tasks(
            keys: Vec<$crate::react::TaskKey>,
        ) -> $crate::Result<Vec<$crate::react::Task>>);
    };
    (@save_tasks $to:ident) => {
        $crate::delegate!(@async $to.save_tasks(
            changes: Vec<$crate::react::TaskChange>,
        ) -> $crate::Result<Vec<$crate::react::TaskKey>>);
    };
    (@due_tasks $to:ident) => {
        $crate::delegate!(@async $to.due_tasks(
            wanted: Vec<$crate::react::WantedTasks>,
        ) -> $crate::Result<$crate::react::DueTasks>);
    };
    (@tasks_to_check $to:ident) => {
        $crate::delegate!(@async $to.tasks_to_check(
            reactions: Vec<String>,
            most: usize,
        ) -> $crate::Result<$crate::react::DueTasks>);
    };
    (@list_tasks $to:ident) => {
        $crate::delegate!(@async $to.list_tasks(
            query: $crate::react::Query,
            after: Option<$crate::react::TaskKey>,
            most: usize,
        ) -> $crate::Result<Vec<$crate::react::Task>>);
    };
    (@task_depths $to:ident) => {
        $crate::delegate!(@async $to.task_depths() -> $crate::Result<
            ::std::collections::BTreeMap<String, $crate::react::Depth>
        >);
    };
    (@registered $to:ident) => {
        $crate::delegate!(@async $to.registered() -> $crate::Result<Vec<$crate::react::Registered>>);
    };
    (@register $to:ident) => {
        $crate::delegate!(@async $to.register(
            seen: Option<u64>,
            reaction: $crate::react::Registered,
        ) -> $crate::Result<bool>);
    };
    (@take_lease $to:ident) => {
        $crate::delegate!(@async $to.take_lease(
            name: &str,
            owner: &str,
            length: ::std::time::Duration,
        ) -> $crate::Result<Option<u64>>);
    };
    (@give_lease $to:ident) => {
        $crate::delegate!(@async $to.give_lease(name: &str, owner: &str) -> $crate::Result<()>);
    };
    (@beat $to:ident) => {
        $crate::delegate!(@async $to.beat(
            worker: &str,
            length: ::std::time::Duration,
        ) -> $crate::Result<()>);
    };
    (@living $to:ident) => {
        $crate::delegate!(@async $to.living() -> $crate::Result<::std::collections::BTreeSet<String>>);
    };
    (@feed_place $to:ident) => {
        $crate::delegate!(@async $to.feed_place(name: &str) -> $crate::Result<Option<String>>);
    };
    (@put_feed_place $to:ident) => {
        $crate::delegate!(@async $to.put_feed_place(
            name: &str,
            lease: u64,
            place: Option<String>,
        ) -> $crate::Result<bool>);
    };
    (@wake $to:ident) => {
        $crate::delegate!(@async $to.wake() -> $crate::Result<()>);
    };
    (@woken $to:ident) => {
        $crate::delegate!(@async $to.woken(
            since: u64,
            patience: ::std::time::Duration,
        ) -> $crate::Result<u64>);
    };

    // Contents.
    (@prepare_contents $to:ident) => {
        $crate::delegate!(@async $to.prepare_contents(
            collection: &$crate::react::ExternalCollection,
        ) -> $crate::Result<()>);
    };
    (@contents $to:ident) => {
        $crate::delegate!(@async $to.contents(
            collection: &$crate::react::ExternalCollection,
            ids: Vec<$crate::DocumentId>,
        ) -> $crate::Result<Vec<$crate::content::Stored>>);
    };

    (@async $to:ident.$method:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty) => {
        async fn $method(&self, $($argument: $type),*) -> $answer {
            self.$to.$method($($argument),*).await
        }
    };
}
