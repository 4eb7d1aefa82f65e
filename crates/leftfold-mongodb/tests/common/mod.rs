//! Servers that the tests of one file share, each test with a database of its own.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "part of tests, each of which uses its own"
)]

use std::sync::atomic::{AtomicU32, Ordering};

use leftfold_mongodb::{Mongo, Options};
use leftfold_testbed::mongodb::Server;
use tokio::sync::OnceCell;

pub static REPLICA_SET: Shared = Shared { server: OnceCell::const_new(), standalone: false };
pub static STANDALONE: Shared = Shared { server: OnceCell::const_new(), standalone: true };

pub struct Shared {
    server: OnceCell<Server>,
    standalone: bool,
}

impl Shared {
    pub async fn server(&self) -> &Server {
        let start = || async {
            if self.standalone { Server::standalone().await } else { Server::replica_set(1).await }.unwrap()
        };
        self.server.get_or_init(start).await
    }

    /// The URL of a database that nobody else uses.
    pub async fn url(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.server().await.url().replacen("/?", &format!("/test{number}?"), 1)
    }

    pub async fn store(&self, options: Options) -> Mongo {
        options.connect(self.url().await).await.unwrap()
    }
}
