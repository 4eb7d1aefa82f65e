//! The doctor's findings on real servers. Each test makes a fault the way an operator could by
//! hand.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use bson::{Document, doc};
use common::{REPLICA_SET, STANDALONE};
use leftfold::inspect::doctor::{Area, Examine as _, Finding, Severity, worst};
use leftfold::react::ReactionStore as _;
use leftfold::{Event, Leftfold, Projection, fold};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use mongodb::Client;

struct Counted;

impl Projection for Counted {
    type Event = serde_json::Value;
    type Document = u64;

    fn name(&self) -> &'static str {
        "counted"
    }

    fn fold(&self, count: Option<u64>, _: &Event<Self::Event>) -> Result<Option<u64>, fold::Error> {
        Ok(Some(count.unwrap_or(0) + 1))
    }
}

/// Opens a database that has used every feature.
async fn used(url: &str) -> Mongo {
    let store = Mongo::connect(url).await.unwrap();
    Leftfold::on(store.clone()).projection(Counted).open().await.unwrap();
    store.prepare_reactions(&[]).await.unwrap();
    store
}

/// Returns all findings about a database in its current state.
async fn examined(url: &str) -> Vec<Finding> {
    let store = Mongo::options().untouched().connect(url).await.unwrap();
    Leftfold::on(store).projection(Counted).doctor().await.unwrap()
}

#[track_caller]
fn of<'f>(findings: &'f [Finding], subject: &str) -> &'f Finding {
    let found = findings.iter().find(|finding| finding.subject == subject);
    found.unwrap_or_else(|| panic!("nothing is said of {subject}: {findings:#?}"))
}

#[tokio::test]
async fn nothing_is_wrong_with_a_healthy_replica_set() {
    let url = REPLICA_SET.url().await;
    used(&url).await;
    let findings = examined(&url).await;
    assert!(worst(&findings) < Severity::Warning, "{findings:#?}");
    for (subject, area) in [
        ("MongoDB", Area::Versions),
        ("feature compatibility", Area::Versions),
        ("durability", Area::Store),
        ("members", Area::Store),
        ("transactions", Area::Store),
        ("storage engine", Area::Store),
        ("this machine and the store", Area::Clock),
        ("window", Area::Oplog),
        ("user", Area::Rights),
        ("indexes", Area::Schema),
        ("counted", Area::Projections),
    ] {
        assert_eq!(of(&findings, subject).area, area);
    }
    assert_eq!(of(&findings, "indexes").found, "all 15 exist, and all views");
}

#[tokio::test]
async fn an_index_that_is_missing_or_changed_is_found() {
    for (collection, index, is_of_the_log) in [
        ("leftfold.events", "leftfold_id", true),
        ("leftfold.events", "leftfold_stream_revision", true),
        ("leftfold.sequences", "leftfold_overdue", false),
        ("leftfold.tasks", "leftfold_due", false),
        ("leftfold.docs.counted", "leftfold_parked", false),
    ] {
        let url = REPLICA_SET.url().await;
        let store = used(&url).await;
        let indexed = store.database().collection::<Document>(collection);
        indexed.drop_index(index).await.unwrap();
        let subject = format!("{index} of {collection}");
        // A running process finds it too, and the doctor creates nothing.
        for findings in [examined(&url).await, examined(&url).await, store.examine().await.unwrap()] {
            let missing = of(&findings, &subject);
            assert_eq!(missing.severity, Severity::Wrong);
            assert!(missing.found.starts_with("the index is missing"), "{missing}");
        }
        let other = doc! { "createIndexes": collection, "indexes": [{ "key": { "x": 1 }, "name": index }] };
        store.database().run_command(other).await.unwrap();
        let findings = examined(&url).await;
        assert!(of(&findings, &subject).found.contains("differs from the one that Leftfold creates"));
        indexed.drop_index(index).await.unwrap();
        if !is_of_the_log {
            used(&url).await;
            let findings = examined(&url).await;
            assert!(worst(&findings) < Severity::Warning, "{findings:#?}");
        }
    }
}

#[tokio::test]
async fn a_view_that_does_not_show_what_is_live_is_found() {
    let url = REPLICA_SET.url().await;
    let store = used(&url).await;
    let view = async |command: Document| {
        store.database().run_command(command).await.unwrap();
        let findings = examined(&url).await;
        let finding = of(&findings, "view counted");
        assert_eq!(finding.severity, Severity::Wrong);
        finding.found.clone()
    };
    let other = doc! { "collMod": "counted", "viewOn": "leftfold.docs.other", "pipeline": [] };
    assert!(view(other).await.contains("leftfold.docs.counted is live"));
    let all = doc! { "collMod": "counted", "viewOn": "leftfold.docs.counted", "pipeline": [] };
    assert!(view(all).await.contains("changed its filter"));
    assert!(view(doc! { "drop": "counted" }).await.contains("it is missing"));
    used(&url).await;
    assert!(worst(&examined(&url).await) < Severity::Warning);
}

#[tokio::test]
async fn a_standalone_server_is_told_what_it_can_not_do() {
    let url = STANDALONE.url().await;
    let findings = Mongo::connect(&url).await.unwrap().examine().await.unwrap();
    assert_eq!(worst(&findings), Severity::Warning, "{findings:#?}");
    assert!(of(&findings, "replica set").advice.as_ref().unwrap().contains("rs.initiate()"));
    // For an application, the doctor reports the missing log.
    let findings = examined(&url).await;
    let log = of(&findings, "the log");
    assert!(log.severity == Severity::Wrong && log.advice.as_ref().unwrap().contains("--replSet"), "{log}");
}

#[tokio::test]
async fn a_member_that_is_down_is_named() {
    let server = Server::replica_set(3).await.unwrap();
    let url = server.url().replacen("/?", "/shop?", 1);
    let store = used(&url).await;
    let members = async || of(&store.examine().await.unwrap(), "members").clone();
    assert_eq!(members().await.found, "all 3 are up");
    let primary = server.primary().await.unwrap();
    let lost = (primary + 1) % 3;
    server.kill(lost).await.unwrap();
    let name = format!("127.0.0.1:{}", server.port(lost).unwrap());
    common::soon(async {
        loop {
            let finding = members().await;
            if finding.severity == Severity::Warning && finding.found.contains(&name) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_user_may_not_do_is_told_with_the_role_and_without_the_password() {
    let server = Server::with_access_control().await.unwrap();
    let root = Client::with_uri_str(server.url()).await.unwrap();
    let on = |role: &str, db: &str| doc! { "role": role, "db": db };
    for (name, roles) in [
        ("reader", vec![on("read", "shop")]),
        ("writer", vec![on("readWrite", "shop")]),
        (
            "keeper",
            vec![
                on("readWrite", "shop"),
                on("dbAdmin", "shop"),
                on("clusterMonitor", "admin"),
                on("read", "local"),
            ],
        ),
    ] {
        let user = doc! { "createUser": name, "pwd": "s3cret", "roles": roles };
        root.database("admin").run_command(user).await.unwrap();
    }
    let url = |user: &str| server.url_as(user, "s3cret").replacen("/?", "/shop?", 1);
    used(&url("keeper")).await;

    let findings = examined(&url("keeper")).await;
    assert!(worst(&findings) < Severity::Warning, "{findings:#?}");
    assert_eq!(of(&findings, "user").found, "it has all rights that Leftfold needs");

    let findings = examined(&url("writer")).await;
    assert_eq!(worst(&findings), Severity::Warning, "{findings:#?}");
    assert!(
        of(&findings, "switching views").advice.as_ref().unwrap().contains("`dbAdmin` on the database shop")
    );
    for (subject, role) in [
        ("members", "`clusterMonitor` on `admin`"),
        ("parameters", "`clusterMonitor` on `admin`"),
        ("storage engine", "`clusterMonitor` on `admin`"),
        ("window", "`read` on `local`"),
    ] {
        let finding = of(&findings, subject);
        assert_eq!(finding.severity, Severity::Notice);
        assert!(finding.advice.as_ref().unwrap().contains(role), "{finding}");
    }

    let findings = examined(&url("reader")).await;
    let writing = of(&findings, "reading and writing");
    assert_eq!(writing.severity, Severity::Wrong);
    assert!(writing.found.contains("insert, update, remove: nothing can be appended"), "{writing}");
    assert!(!serde_json::to_string(&findings).unwrap().contains("s3cret"));
}

#[tokio::test]
async fn a_database_without_a_log_is_not_touched() {
    let url = REPLICA_SET.url().await;
    let error = Mongo::options().untouched().connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("there is none yet"), "{error}");
    let names = Client::with_uri_str(&url).await.unwrap().default_database().unwrap();
    assert_eq!(names.list_collection_names().await.unwrap(), Vec::<String>::new());
}
