//! The commands on a MongoDB database.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod common;
mod served;

use std::ffi::OsString;
use std::sync::atomic::{AtomicU32, Ordering};

use bson::doc;
use common::scenarios::shop;
use common::{Answer, File, Place, command, run};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use tokio::sync::OnceCell;

static SERVER: OnceCell<Server> = OnceCell::const_new();

/// A database that no other test uses.
struct Database(String);

impl Database {
    async fn new() -> Self {
        let server = SERVER.get_or_init(async || Server::replica_set(1).await.unwrap()).await;
        Self::of(server)
    }

    fn of(server: &Server) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(server.url().replacen("/?", &format!("/shop{number}?"), 1))
    }
}

impl Place for Database {
    type Store = Mongo;

    fn argument(&self) -> OsString {
        OsString::from(&self.0)
    }

    async fn open(&self) -> Mongo {
        Mongo::connect(&self.0).await.unwrap()
    }

    async fn spoil(&self, collection: &str, id: &str, field: &str) {
        let records = format!("leftfold.docs.{collection}");
        let records = self.open().await.database().collection::<bson::Document>(&records);
        let spoilt = records.update_one(doc! { "_id": id }, doc! { "$set": { field: 7 } }).await.unwrap();
        assert_eq!(spoilt.modified_count, 1);
    }
}

scenarios!(Database::new().await);

#[tokio::test(flavor = "multi_thread")]
async fn every_document_of_a_daemon_is_right_however_often_it_is_killed() {
    let Database(url) = Database::new().await;
    let run = move || served::killed::every_document_is_right_however_often_it_is_killed(&url);
    tokio::task::spawn_blocking(run).await.unwrap();
}

const LOOKING: [&[&str]; 3] = [&["status"], &["get", "cart_details", "cart-1"], &["parked", "list"]];

const WITH_CODE: [&[&str]; 4] = [
    &["status"],
    &["parked", "retry", "--all"],
    &["explain", "cart_details", "cart-1"],
    &["refold", "cart_details", "cart-1"],
];

/// Runs each command.
fn looking(place: &Database) -> impl Iterator<Item = Answer> {
    let with_code = WITH_CODE.into_iter().map(|command| place.run_with_code(command));
    LOOKING.into_iter().map(|command| place.run(command)).chain(with_code)
}

#[tokio::test]
async fn a_log_that_is_not_there_is_not_made() {
    let place = Database::new().await;
    for answer in looking(&place) {
        answer.exits(3).says("there is none yet; check the database's name");
    }
    let client = Mongo::connect(&Database::new().await.0).await.unwrap().database().client().clone();
    let name = place.0.rsplit_once('/').unwrap().1.split_once('?').unwrap().0;
    assert!(!client.list_database_names().await.unwrap().iter().any(|found| found == name), "{name}");
}

#[tokio::test]
async fn a_server_without_transactions_holds_no_log() {
    let server = Server::standalone().await.unwrap();
    let place = Database::of(&server);
    for answer in looking(&place) {
        answer.exits(3).says("this server is not a replica set; start it with --replSet");
    }
    place.run(&["doctor"]).exits(1).says("wrong    store        the log: ").says("→ start it with --replSet");
}

#[tokio::test]
async fn a_url_that_leads_nowhere_is_told_and_keeps_its_secrets() {
    let told = |url: &str, status, what: &str| {
        for command in [["status"].as_slice(), &["doctor"], &["get", "cart_details", "cart-1", "--json"]] {
            let answer = run(self::command().args(command).args(["--store", url])).exits(status).says(what);
            keeps_secrets(&answer);
        }
    };
    let nobody = "mongodb://ann:t0psecret@127.0.0.1:1/shop?serverSelectionTimeoutMS=300";
    told(nobody, 3, "check that the server runs");
    told("mongodb://ann:t0p/secret@127.0.0.1/shop", 2, "password must be URL encoded");
    told("mongodb:/ann:t0psecret@127.0.0.1/shop", 2, "could not parse the MongoDB URL");
    told("mongodb://ann:t0psecret@127.0.0.1/shop?speed=t0psecret", 2, "speed is an invalid option");
    told("postgres://ann:t0psecret@127.0.0.1/shop", 2, "unknown kind of store; name a file");
    // URLs at unexpected places.
    let file = File::new();
    file.open().await;
    let url = "mongodb://ann:t0psecret@127.0.0.1/shop";
    for misplaced in [["status", url, ""], ["get", url, "cart-1"], ["parked", "list", url]] {
        let command = misplaced.iter().filter(|part| !part.is_empty());
        let mut misplaced = self::command();
        misplaced.env("LEFTFOLD_STORE", file.argument()).args(command);
        keeps_secrets(&run(&mut misplaced).exits(2).says("mongodb://…@127.0.0.1/shop"));
    }
}

#[tokio::test]
async fn who_may_not_is_told_so_and_passwords_are_kept() {
    let server = Server::with_access_control().await.unwrap();
    let place = Database::of(&server);
    let (_, password) = place.0.split_once("root:").unwrap();
    let password = password.split_once('@').unwrap().0.to_owned();
    shop(&place).await;
    let mut answers = vec![
        place.run(&["status"]).exits(0).says("cart_details"),
        place.run_with_code(&["parked", "retry", "--all"]).exits(0),
        place.run(&["doctor"]).says("mongodb://…@127.0.0.1:"),
    ];
    let wrong = Database(place.0.replacen(&password, "t0psecret", 1));
    for answer in looking(&wrong).chain([wrong.run(&["doctor"])]) {
        answers.push(answer.exits(3).says("check the user, the password and `authSource`"));
    }
    let nobody = Database(place.0.replacen(&format!("root:{password}@"), "", 1));
    answers.push(nobody.run(&["status"]).exits(3).says("give the user the role `readWrite`"));
    for answer in answers {
        keeps_secrets(&answer);
        assert!(!format!("{answer:?}").contains(&password), "{answer:#?}");
    }
}

#[tokio::test]
async fn the_doctor_finds_what_is_missing_and_makes_nothing() {
    let place = Database::new().await;
    let said = place.run(&["doctor"]).exits(3).says("there is none yet");
    said.says("→ check the database's name");
    shop(&place).await;
    place.run_with_code(&["parked", "retry", "--all"]).exits(0);
    place.run(&["doctor"]).exits(0).says("oplog        window: ").says("0 wrong, 1 notice");
    let events = place.open().await.database().collection::<bson::Document>("leftfold.events");
    events.drop_index("leftfold_id").await.unwrap();
    for _ in 0..2 {
        let said =
            place.run(&["doctor"]).exits(1).says("leftfold_id of leftfold.events: the index is missing");
        said.says("createIndex({ \"id\": 1 }, { unique: true, name: \"leftfold_id\" })");
    }
}

/// The content of the database that the README promises.
#[tokio::test]
async fn documents_are_there_for_everyone() {
    let place = Database::new().await;
    shop(&place).await;
    let database = place.open().await.database().clone();
    let carts = database.collection::<serde_json::Value>("cart_details");
    let cart = carts.find_one(doc! { "_id": "cart-2" }).await.unwrap().unwrap();
    assert_eq!((&cart["clientId"], &cart["_fold"]["mark"]), (&"bob".into(), &r#"{"0":5}"#.into()), "{cart}");
    let records = database.collection::<serde_json::Value>("leftfold.docs.cart_details");
    assert!(records.find_one(doc! { "_id": "cart-2" }).await.unwrap().is_some());
}

fn keeps_secrets(answer: &Answer) {
    assert!(!format!("{answer:?}").contains("t0p"), "{answer:#?}");
}
