//! Query plans for tasks: all lookups use indexes that hold only the remaining work.

use rusqlite::Connection;

use super::due::{CHECK, DUE, FIRST_CHECK, FIRST_DUE};
use super::list::{COUNT_ALL, COUNT_OTHERS, LIST, LIST_DONE, LIST_STATE, NEXT_REACTION, OLDEST_DUE};

/// Returns SQLite's query plan for a statement.
fn plan(file: &Connection, sql: &str) -> String {
    let mut statement = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get::<_, String>(3).unwrap());
    }
    steps.join("; ")
}

#[test]
fn no_search_for_tasks_reads_all_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let (file, ..) =
        crate::connection::open(&directory.path().join("store.db"), &crate::Sqlite::options()).unwrap();
    file.execute_batch(
        "INSERT INTO leftfold_tasks WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000) \
         SELECT 'mail', 'd' || x, x, iif(x % 100, 'done', 'pending'), iif(x % 100, NULL, x), iif(x % 100, NULL, x), 1, x, \
         NULL, '{}', 0 FROM n",
    )
    .unwrap();
    let expected = [
        (DUE, "SEARCH leftfold_tasks USING INDEX leftfold_tasks_due (reaction=? AND suspicion=? AND due<?)"),
        (
            FIRST_DUE,
            "SEARCH leftfold_tasks USING COVERING INDEX leftfold_tasks_due (reaction=? AND suspicion=? AND due>?)",
        ),
        (CHECK, "SEARCH leftfold_tasks USING INDEX leftfold_tasks_check (reaction=? AND check_at<?)"),
        (
            FIRST_CHECK,
            "SEARCH leftfold_tasks USING COVERING INDEX leftfold_tasks_check (reaction=? AND check_at>?)",
        ),
        (
            OLDEST_DUE,
            "SEARCH leftfold_tasks USING INDEX leftfold_tasks_due (reaction=? AND suspicion=? AND due<?)",
        ),
        (
            LIST,
            "SEARCH leftfold_tasks USING INDEX sqlite_autoindex_leftfold_tasks_1 (reaction=? AND document>?)",
        ),
        (
            LIST_STATE,
            "SEARCH leftfold_tasks USING INDEX leftfold_tasks_state (reaction=? AND state=? AND document>?)",
        ),
        (
            NEXT_REACTION,
            "SEARCH leftfold_tasks USING COVERING INDEX sqlite_autoindex_leftfold_tasks_1 (reaction>?)",
        ),
        (
            LIST_DONE,
            "SEARCH leftfold_tasks USING INDEX sqlite_autoindex_leftfold_tasks_1 (reaction=? AND document>?)",
        ),
        // Counting scans an index, but reads no task.
        (COUNT_ALL, "SCAN leftfold_tasks USING COVERING INDEX sqlite_autoindex_leftfold_tasks_1"),
        (COUNT_OTHERS, "SCAN leftfold_tasks USING COVERING INDEX leftfold_tasks_state"),
    ];
    // Test without statistics, as usual, and with statistics from `ANALYZE`.
    for gathered in [false, true] {
        if gathered {
            file.execute_batch("ANALYZE").unwrap();
        }
        for (sql, expected) in expected {
            assert_eq!(plan(&file, sql), expected, "{sql} (statistics: {gathered})");
        }
    }
}
