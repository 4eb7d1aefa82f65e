//! Servers that the tests of one file share, each test with a database of its own.
//!
//! `LEFTFOLD_TEST_MONGODB_URL` names a replica set to use instead of one that is started for the tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "part of tests, each of which uses its own"
)]

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bson::{Document, doc};
use leftfold_mongodb::{Mongo, Options};
use leftfold_testbed::mongodb::Server;
use mongodb::Client;
use tokio::sync::OnceCell;

pub static REPLICA_SET: Shared = Shared { server: OnceCell::const_new(), standalone: false };
pub static STANDALONE: Shared = Shared { server: OnceCell::const_new(), standalone: true };

pub struct Shared {
    server: OnceCell<Server>,
    standalone: bool,
}

impl Shared {
    /// The URL of a database that nobody else uses.
    pub async fn url(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("leftfold_test_{}_{number}", std::process::id());
        let server = match given() {
            Some(given) if !self.standalone => given,
            _ => self.server().await.url(),
        };
        let (scheme, rest) = server.split_once("://").unwrap();
        let hosts = rest.split(['/', '?']).next().unwrap();
        let options = rest.split_once('?').map_or("", |(_, options)| options);
        format!("{scheme}://{hosts}/{name}?{options}")
    }

    pub async fn store(&self, options: Options) -> Mongo {
        options.connect(self.url().await).await.unwrap()
    }

    /// The same, with what removes the database at the end where it would stay otherwise.
    pub async fn guarded(&self, options: Options) -> (Mongo, Guard) {
        let url = self.url().await;
        (options.connect(&url).await.unwrap(), Guard(given().map(|_| url)))
    }

    async fn server(&self) -> &Server {
        let start = || async {
            if self.standalone { Server::standalone().await } else { Server::replica_set(1).await }.unwrap()
        };
        self.server.get_or_init(start).await
    }
}

fn given() -> Option<String> {
    std::env::var("LEFTFOLD_TEST_MONGODB_URL").ok()
}

/// A database on a server that was given.
pub struct Guard(Option<String>);

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(url) = self.0.take() else { return };
        let remove = async move {
            Client::with_uri_str(url).await.unwrap().default_database().unwrap().drop().await.unwrap();
        };
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || runtime().block_on(remove)).join().unwrap();
    }
}

/// Fails if it takes far longer than it ever should.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(40), future).await.expect("it should long have happened")
}

/// What makes a server answer these commands with errors.
pub fn failing(commands: &[&str], mode: Document, data: Document) -> Document {
    let mut all = doc! { "failCommands": commands };
    all.extend(data);
    doc! { "configureFailPoint": "failCommand", "mode": mode, "data": all }
}

/// Ends what [`failing`] has begun.
pub async fn heal(server: &Server) {
    server.fail_point(doc! { "configureFailPoint": "failCommand", "mode": "off" }).await.unwrap();
}
