//! Several processes share a file: none misses a commit of another, and a killed process loses no
//! commits.
//!
//! The bugs this guards against:
//!
//! - A reader sleeps on while another process appends.
//! - An acknowledged append is gone after a crash.
//! - Only a part of an append is stored.
//! - Two processes create the same file.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{entry, everything, stream};
use leftfold::log::Limit;
use leftfold::{Append, Event, Expected, Log, Mark, Partition};
use leftfold_sqlite::Sqlite;
use tempfile::tempdir;

const ROLE: &str = "LEFTFOLD_TEST_ROLE";
const FILE: &str = "LEFTFOLD_TEST_FILE";

/// Runs `child` below in a separate process.
fn spawn(role: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(FILE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets a waiting child continue.
fn go(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
}

fn finish(mut child: Child) {
    assert!(child.wait().unwrap().success(), "the child should end well");
}

/// Runs the role of a child process. As a test of its own it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = std::env::var(FILE).unwrap();
    let wait =
        || assert!(std::io::stdin().lock().read_line(&mut String::new()).unwrap() > 0, "the parent is gone");
    let me = std::process::id();
    match role.as_str() {
        "open" => {
            println!("ready");
            wait();
            let store = Sqlite::options().partitions(2).open(&path).await.unwrap();
            store.append(stream("s"), Expected::Any, vec![entry(&format!("{me}"))]).await.unwrap();
        }
        "one by one" => {
            let store = Sqlite::open(&path).await.unwrap();
            println!("ready");
            for number in 0..20 {
                wait();
                store.append(stream("s"), Expected::Any, vec![entry(&format!("{number}"))]).await.unwrap();
            }
        }
        "many" => {
            let store = Sqlite::open(&path).await.unwrap();
            append_many(&store, "child").await;
        }
        "until killed" => {
            let store = Sqlite::open(&path).await.unwrap();
            let mut tasks = tokio::task::JoinSet::new();
            for task in 0..6 {
                let store = store.clone();
                tasks.spawn(async move {
                    for number in 0.. {
                        let entries: Vec<_> = (0..=task % 3)
                            .map(|part| entry(&format!("{me}-{task}-{number}-{part}")))
                            .collect();
                        let last = entries.last().unwrap().id.clone();
                        let bookmark =
                            store.append(stream(&format!("s{task}")), Expected::Any, entries).await;
                        println!("ack {last} {}", bookmark.unwrap().into_bookmark().revision);
                    }
                });
            }
            tasks.join_all().await;
        }
        other => panic!("no role {other}"),
    }
}

/// Runs 8 tasks that append 20 events each.
async fn append_many(store: &Sqlite, who: &str) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let (store, who) = (store.clone(), who.to_owned());
        tasks.spawn(async move {
            for number in 0..20 {
                let entries = vec![entry(&format!("{who}-{task}-{number}"))];
                store.append(stream(&format!("s{}", number % 5)), Expected::Any, entries).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// Follows the log until it has seen this many events.
async fn tail(store: &Sqlite, count: usize) -> Vec<Event> {
    let mut mark = Mark::default();
    let mut seen = Vec::new();
    while seen.len() < count {
        tokio::time::timeout(Duration::from_secs(30), store.grown(&mark)).await.expect("a wake-up").unwrap();
        for partition in (0..store.partitions()).map(Partition) {
            let page = store.read(partition, mark.position(partition), Limit::default()).await.unwrap();
            mark.advance(&partition.into(), page.through.0);
            seen.extend(page.events);
        }
    }
    seen
}

/// Checks that the revisions of every stream are 1, 2, 3 … in order.
fn check_streams(events: &[Event]) {
    let mut last = BTreeMap::new();
    for event in events {
        let before = last.insert(&event.stream, event.revision.0).unwrap_or(0);
        assert_eq!(event.revision.0, before + 1, "{} has no gap", event.stream);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_an_append_of_another_process() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    let mut child = spawn("one by one", &path);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("ready") {}
    for number in 0..20 {
        let heads = store.heads().await.unwrap();
        let waiting = {
            let store = store.clone();
            tokio::spawn(async move { store.grown(&heads).await })
        };
        if number % 2 == 0 {
            tokio::task::yield_now().await;
        }
        go(&mut child);
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("a wake-up").unwrap().unwrap();
        let head = store.heads().await.unwrap().position(Partition(0)).0;
        assert_eq!(head, number + 1, "the wake-up was for the append");
    }
    finish(child);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_skips_nothing_of_several_processes() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::options().partitions(3).open(&path).await.unwrap();
    let child = spawn("many", &path);
    let (seen, ()) = tokio::join!(tail(&store, 320), append_many(&store, "parent"));
    finish(child);
    check_streams(&seen);
    assert_eq!(seen.iter().map(|event| &event.id).collect::<BTreeSet<_>>().len(), 320, "each event once");
    assert_eq!(everything(&store).await.len(), 320);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_had_acknowledged_is_there() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    // In every other round this process also has the file open, so that the killed process leaves
    // its part of the shared memory behind. In the other rounds the next process that opens the
    // file recovers it.
    for round in 0..8 {
        let beside = if round % 2 == 0 { None } else { Some(Sqlite::open(&path).await.unwrap()) };
        let mut child = spawn("until killed", &path);
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut acknowledged = Vec::new();
        let mut line = String::new();
        while lines.read_line(&mut line).unwrap() > 0 {
            // A line that the kill cut off does not count.
            if let Some(ack) = line.strip_prefix("ack ").and_then(|ack| ack.strip_suffix('\n')) {
                acknowledged.push(ack.to_owned());
                if acknowledged.len() == 20 + 13 * round {
                    child.kill().unwrap();
                }
            }
            line.clear();
        }
        child.wait().unwrap();
        let store = match beside {
            Some(store) => store,
            None => Sqlite::open(&path).await.unwrap(),
        };
        let events = everything(&store).await;
        check_streams(&events);
        let there: BTreeSet<_> =
            events.iter().map(|event| format!("{} {}", event.id, event.revision)).collect();
        assert!(acknowledged.len() >= 20);
        for ack in &acknowledged {
            assert!(there.contains(ack), "{ack} was acknowledged in round {round}");
        }
        // Appends of several events are stored as a whole: each has all its parts.
        for event in &events {
            let (append, part) = event.id.as_str().rsplit_once('-').unwrap();
            let task: usize = event.stream.as_str()[1..].parse().unwrap();
            let missing = (0..=task % 3).find(|part| {
                let id = format!("{append}-{part}");
                !events.iter().any(|event| event.id.as_str() == id)
            });
            assert_eq!(missing, None, "{append} has part {part} and should have all");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_open_a_new_file_at_once_all_succeed() {
    for round in 0..10 {
        let directory = tempdir().unwrap();
        let path = directory.path().join("store.db");
        // In every other round the file exists, and is new only to Leftfold.
        if round % 2 == 1 {
            let file = rusqlite::Connection::open(&path).unwrap();
            file.execute_batch("CREATE TABLE books (title); PRAGMA user_version = 9").unwrap();
        }
        let mut children: Vec<_> = (0..3).map(|_| spawn("open", &path)).collect();
        for child in &mut children {
            let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
            while !lines.next().unwrap().unwrap().contains("ready") {}
        }
        children.iter_mut().for_each(go);
        children.into_iter().for_each(finish);
        let store = Sqlite::open(&path).await.unwrap();
        assert_eq!(store.partitions(), 2);
        let events = everything(&store).await;
        check_streams(&events);
        assert_eq!(events.len(), 3, "each process has appended one");
    }
}
