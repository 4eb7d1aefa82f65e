//! MongoDB servers can be killed, frozen and restarted, and stop with the test.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use leftfold_testbed::mongodb::Server;
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, WriteConcern};
use mongodb::{Client, Collection};

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::test]
async fn a_replica_set_of_one_takes_a_transaction() -> Outcome {
    let server = Server::replica_set(1).await?;
    transact(&server.url()).await?;
    Ok(server.shutdown().await?)
}

#[tokio::test]
async fn a_standalone_refuses_a_transaction() -> Outcome {
    let server = Server::standalone().await?;
    things(&server.url()).await?.insert_one(doc! {}).await?;
    let refused = transact(&server.url()).await.expect_err("a standalone has no transactions");
    assert!(refused.to_string().contains("IllegalOperation"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn three_members_elect_another_primary_and_the_killed_one_comes_back() -> Outcome {
    let server = Server::replica_set(3).await?;
    let things = things(&server.url()).await?;
    things.insert_one(doc! { "_id": 1 }).await?;

    let first = server.primary().await?;
    server.kill(first).await?;
    assert!(!answers(server.port(first)?));
    let second = server.primary().await?;
    assert_ne!(first, second);
    things.insert_one(doc! { "_id": 2 }).await?;

    server.start(first).await?;
    server.kill(3 - first - second).await?;
    // Two members are a majority only if the restarted one is among them.
    things.insert_one(doc! { "_id": 3 }).await?;
    assert_eq!(things.count_documents(doc! {}).await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_frozen_primary_is_replaced_and_goes_on_as_a_secondary() -> Outcome {
    let server = Server::replica_set(3).await?;
    let first = server.primary().await?;
    server.freeze(first).await?;
    let second = server.primary().await?;
    assert_ne!(first, second);
    server.thaw(first)?;
    assert_ne!(server.primary().await?, first);
    server.start(first).await?;
    Ok(())
}

#[tokio::test]
async fn a_fail_point_fails_as_often_as_it_is_told_to() -> Outcome {
    let server = Server::replica_set(1).await?;
    let things = things(&format!("{}&retryWrites=false", server.url())).await?;
    things.insert_one(doc! {}).await?;
    server
        .fail_point(doc! {
            "configureFailPoint": "failCommand",
            "mode": { "times": 1 },
            "data": { "failCommands": ["insert"], "closeConnection": true },
        })
        .await?;
    let failed = things.insert_one(doc! {}).await.expect_err("the fail point closes the connection");
    assert!(matches!(*failed.kind, ErrorKind::Io(_)), "{failed}");
    things.insert_one(doc! {}).await?;
    Ok(())
}

#[tokio::test]
async fn access_control_wants_a_known_user_with_rights() -> Outcome {
    let server = Server::with_access_control().await?;
    things(&server.url()).await?.insert_one(doc! {}).await?;
    let reader = doc! { "createUser": "reader", "pwd": "reads", "roles": ["readAnyDatabase"] };
    server.command(0, reader).await?;

    things(&server.url_as("reader", "reads")).await?.find_one(doc! {}).await?;
    for (url, expected) in [
        (server.url_as("reader", "reads"), "Unauthorized"),
        (server.url_as("reader", "guesses"), "Authentication failed"),
        (server.url_without_user(), "Unauthorized"),
    ] {
        let refused = things(&url).await?.insert_one(doc! {}).await.expect_err(&url);
        assert!(refused.to_string().contains(expected), "{url}: {refused}");
    }
    Ok(())
}

/// The kernel kills a child with the *thread* that started it, and each test has its own threads
/// and runtime.
#[test]
fn a_server_outlives_the_thread_and_the_runtime_it_was_started_in() -> Outcome {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let start = move || runtime().unwrap().block_on(async { tokio::spawn(Server::replica_set(1)).await });
    let server = thread::spawn(start).join().unwrap()??;
    runtime()?.block_on(transact(&server.url()))?;
    runtime()?.block_on(async {
        server.kill(0).await?;
        server.start(0).await
    })?;
    runtime()?.block_on(transact(&server.url()))?;
    Ok(())
}

#[tokio::test]
async fn a_replica_set_of_two_is_refused() {
    let refused = Server::replica_set(2).await.expect_err("two members don't survive the loss of one");
    assert!(refused.to_string().contains("use 1 member, or 3"), "{refused}");
}

#[tokio::test]
async fn a_server_ends_when_its_starter_is_killed() -> Outcome {
    let (mut starter, told) = start_by_hand()?;
    let port = told["members"][0]["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap();
    let directory = PathBuf::from(told["directory"].as_str().unwrap());
    assert!(answers(port) && directory.exists());

    starter.kill()?;
    starter.wait()?;
    eventually(|| !answers(port));

    // The next server removes the directory that was left behind.
    Server::standalone().await?.shutdown().await?;
    assert!(!directory.exists());
    Ok(())
}

/// Starts the program and returns its description of the server. The program ends with the test,
/// even if the test fails.
fn start_by_hand() -> Result<(Child, serde_json::Value), Box<dyn Error>> {
    let mut starter = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_leftfold-testbed")])
        .args(["mongodb", "--standalone", "--json"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = starter.stdout.take().ok_or("it has no output")?;
    BufReader::new(output).read_line(&mut line)?;
    Ok((starter, serde_json::from_str(&line)?))
}

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn eventually(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

async fn transact(url: &str) -> mongodb::error::Result<()> {
    let things = things(url).await?;
    let mut session = things.client().start_session().await?;
    session.start_transaction().await?;
    things.insert_one(doc! {}).session(&mut session).await?;
    session.commit_transaction().await
}

async fn things(url: &str) -> mongodb::error::Result<Collection<Document>> {
    let mut options = ClientOptions::parse(url).await?;
    options.write_concern = Some(WriteConcern::majority());
    Ok(Client::with_options(options)?.database("test").collection("things"))
}
