//! The demo on a MongoDB database.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ffi::OsString;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{
    Answer, Place, a_demo_adds_to_an_earlier_one, command, run, the_log_of_another_application_is_refused,
};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use tokio::sync::OnceCell;

static SERVER: OnceCell<Server> = OnceCell::const_new();

/// A database that no other test uses.
struct Database(String);

impl Database {
    async fn new() -> Self {
        Self::of(SERVER.get_or_init(async || Server::replica_set(1).await.unwrap()).await)
    }

    fn of(server: &Server) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(server.url().replacen("/?", &format!("/demo{number}?"), 1))
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
}

#[tokio::test]
async fn a_demo_on_a_database_adds_to_an_earlier_one() {
    a_demo_adds_to_an_earlier_one(&Database::new().await);
}

#[tokio::test]
async fn the_database_of_another_application_is_refused() {
    the_log_of_another_application_is_refused(&Database::new().await).await;
}

#[tokio::test]
async fn a_log_that_is_not_there_is_not_checked() {
    let place = Database::new().await;
    place.run(&["verify"]).exits(3).says("there is none yet; check the database's name");
}

#[tokio::test]
async fn a_server_without_transactions_holds_no_log() {
    let server = Server::standalone().await.unwrap();
    let place = Database::of(&server);
    for command in [[].as_slice(), &["verify"]] {
        place.run(command).exits(3).says("this server is not a replica set; start it with --replSet");
    }
}

#[tokio::test]
async fn passwords_are_kept() {
    let server = Server::with_access_control().await.unwrap();
    let place = Database::of(&server);
    let (_, password) = place.0.split_once("root:").unwrap();
    let password = password.split_once('@').unwrap().0.to_owned();
    // Workers get the URL, too.
    let demo = ["--events", "300", "--kill-every", "1"];
    let mut answers = vec![place.run(&demo).exits(0).says("kept in mongodb://…@127.0.0.1:")];
    let wrong = Database(place.0.replacen(&password, "t0psecret", 1));
    for command in [demo.as_slice(), &["verify"]] {
        answers.push(wrong.run(command).exits(3).says("check the user, the password and `authSource`"));
    }
    let nobody = "mongodb://ann:t0psecret@127.0.0.1:1/shop?serverSelectionTimeoutMS=300";
    let unknown = "postgres://ann:t0psecret@127.0.0.1/shop";
    for (url, status, text) in
        [(nobody, 3, "check that the server runs"), (unknown, 2, "unknown kind of store; name a file")]
    {
        answers.push(run(command().args(["--store", url])).exits(status).says(text));
    }
    answers.push(run(command().arg(nobody)).exits(2).says("mongodb://…@127.0.0.1:1/shop"));
    for answer in answers {
        keeps_secrets(&answer);
        assert!(!format!("{answer:?}").contains(&password), "{answer:#?}");
    }
}

fn keeps_secrets(answer: &Answer) {
    assert!(!format!("{answer:?}").contains("t0p"), "{answer:#?}");
}
