//! Servers shared by the tests of one file. Each test has its own database.
//!
//! `LEFTFOLD_TEST_MONGODB_URL` names an existing replica set, which the tests then use instead of
//! starting one.
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
    /// Returns the URL of a database that no other test uses.
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

    /// Returns a store and a guard. On an existing server, dropping the guard deletes the database.
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

/// A database on an existing server, deleted on drop.
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

/// Awaits a future, and fails the test if it takes far too long.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(40), future).await.expect("it should long have happened")
}

/// Returns the failpoint that makes a server answer these commands with errors.
pub fn failing(commands: &[&str], mode: Document, data: Document) -> Document {
    let mut all = doc! { "failCommands": commands };
    all.extend(data);
    doc! { "configureFailPoint": "failCommand", "mode": mode, "data": all }
}

/// Turns off the failpoint that [`failing`] describes.
pub async fn heal(server: &Server) {
    server.fail_point(doc! { "configureFailPoint": "failCommand", "mode": "off" }).await.unwrap();
}
