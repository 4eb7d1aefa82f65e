//! The macros that create one test of each case.

/// The atomicity of a store's commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// A commit is written as a whole or not at all.
    Yes,
    /// Each document is written on its own.
    No,
}

/// Creates one test of each case of the [suite](crate::testing::conformance).
///
/// The function is called for each test with a number of partitions. It creates an empty store and
/// a guard, such as a temporary directory, that is kept until the test ends. For stores without
/// atomic commits, add `atomic: No`.
#[macro_export]
macro_rules! conformance {
    ($make:path, partitions: $partitions:expr) => {
        $crate::conformance!($make, partitions: $partitions, atomic: Yes);
    };
    ($make:path, partitions: $partitions:expr, atomic: $atomic:ident) => {
        $crate::conformance! { @cases $make, $partitions;
            appended_events_are_numbered_and_read_back
            a_wrong_expectation_names_both_revisions
            a_repeated_append_is_a_duplicate
            a_taken_id_is_refused
            an_append_that_is_partly_there_is_refused
            an_empty_append_is_refused
            json_that_breaks_a_rule_is_not_appended
            concurrent_appends_get_each_revision_once
            one_of_many_equal_expectations_wins
            concurrent_appends_to_many_streams_stay_in_order
            pages_end_at_a_number_of_events
            pages_end_at_a_number_of_bytes
            a_stream_is_read_in_pages
            heads_follow_appends
            a_reader_skips_nothing
            waiting_for_growth_ends_with_an_append
            no_wake_up_is_lost
            a_cancelled_wait_hurts_nobody
            odd_names_and_content_come_back_as_they_were
            clones_share_one_store
            what_is_missing_is_left_out
            an_insert_is_guarded
            an_update_is_guarded
            documents_come_back_exactly
            a_deleted_document_keeps_its_mark
            a_repeated_commit_conflicts_and_changes_nothing
            collections_are_apart
            preparing_again_keeps_what_is_there
            documents_are_scanned_in_order
            parked_documents_are_listed_and_counted
            checkpoints_come_back_exactly
            waiting_for_a_checkpoint_ends_with_its_step
            no_step_of_a_checkpoint_is_missed
            a_lease_is_claimed_renewed_released_and_ends
            concurrent_guarded_writes_lose_nothing
            a_conflict_names_the_documents_that_fail($atomic)
            a_checkpoint_moves_only_from_where_it_is($atomic)
        }
    };
    (@cases $make:path, $partitions:expr; $($case:ident $(($atomic:ident))?)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let (store, _guard) = $make($partitions).await;
                $crate::testing::conformance::$case(
                    store $(, $crate::testing::conformance::Atomic::$atomic)?
                ).await;
            }
        )*
    };
}

/// Does the same for the data of the [sequencer](crate::sequence).
#[macro_export]
macro_rules! conformance_of_sequences {
    ($make:path, partitions: $partitions:expr) => {
        $crate::conformance! { @cases $make, $partitions;
            a_shuffled_feed_ends_up_in_order
            many_may_ingest_the_same_streams
            what_is_held_is_shown
            held_events_are_read_in_pages
            a_long_run_is_released
            what_is_appended_beside_is_not_waited_for
            a_step_is_guarded
            a_settlement_is_one
            a_taken_id_is_a_conflict
            an_id_that_comes_with_several_events_is_taken_once
            conflicts_are_kept_until_they_are_resolved
            bounds_are_kept
            what_is_skipped_is_remembered
            what_is_done_is_counted_once
            an_event_is_waited_for
            what_waits_longest_is_overdue_first
            other_policies_order_as_they_say
            rejected_messages_are_kept_until_they_are_forgotten
            json_that_breaks_a_rule_is_not_ingested
        }
    };
}

/// Does the same for the data of [reactions](crate::react).
#[macro_export]
macro_rules! conformance_of_reactive {
    ($make:path) => {
        $crate::conformance! { @cases $make, 1;
            changes_are_told
            changes_behind_those_of_others_are_seen
            a_waiting_feed_wakes_up
            many_changes_come_in_pieces
            documents_are_read_and_paged
            tasks_are_guarded
            many_tasks_are_saved_at_once
            due_tasks_are_found
            suspects_are_found_apart
            workers_say_that_they_are_alive
            tasks_to_check_are_found
            tasks_are_listed_and_counted
            reactions_are_registered_under_guard
            leases_are_numbered_and_guard_places
            who_waits_is_stirred
            documents_are_reacted_to
        }
    };
}

/// Does the same for [documents without events](crate::content). `reactive: No` is for stores
/// without a change feed.
#[macro_export]
macro_rules! conformance_of_contents {
    ($make:path) => {
        $crate::conformance_of_contents! { $make, reactive: No }
        $crate::conformance! { @cases $make, 1; contents_are_reacted_to }
    };
    ($make:path, reactive: No) => {
        $crate::conformance! { @cases $make, 1;
            contents_are_guarded
            many_contents_are_written_at_once
            contents_keep_their_versions
            updates_name_what_they_were_made_from
            changes_are_retried
            operations_are_applied_once
            many_are_judged_one_by_one
            impossible_operations_change_nothing
            concurrent_operations_all_count
            operations_and_updates_meet
            operations_do_the_same_everywhere
        }
    };
}

/// Does the same for [generations](crate::documents::Generations) of collections. `reactive: No` is
/// for stores without a change feed.
#[macro_export]
macro_rules! conformance_of_generations {
    ($make:path, partitions: $partitions:expr) => {
        $crate::conformance_of_generations! { $make, partitions: $partitions, reactive: No }
        $crate::conformance! { @cases $make, $partitions;
            a_switch_loses_changes
            what_a_rebuild_did_not_change_is_not_reacted_to
        }
    };
    ($make:path, partitions: $partitions:expr, reactive: No) => {
        $crate::conformance! { @cases $make, $partitions;
            generations_are_kept_under_guard
            a_name_alone_is_what_is_live
            waiting_for_a_checkpoint_ends_with_a_switch
            a_read_model_is_rebuilt_beside_the_live_one
        }
    };
}

/// Does the same for [counters](crate::revision::Counters).
#[macro_export]
macro_rules! conformance_of_counters {
    ($make:path) => {
        $crate::conformance! { @cases $make, 1; counters_count }
    };
}
