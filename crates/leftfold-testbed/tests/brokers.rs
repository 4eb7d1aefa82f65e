//! Brokers start, keep acknowledged data when killed, and stop when their values are dropped.

use std::net::{Ipv4Addr, TcpStream};

use leftfold_testbed::{Error, nats, rabbitmq, redis};

type Outcome = Result<(), Error>;

macro_rules! lives_and_dies {
    ($test:ident, $server:ty) => {
        #[tokio::test]
        async fn $test() -> Outcome {
            let server = <$server>::start().await?;
            let port = server.port();
            assert!(answers(port) && server.url().ends_with(&port.to_string()));
            let first = server.process_id();
            server.kill().await?;
            assert!(first.is_some() && server.process_id().is_none() && !answers(port));
            server.restart().await?;
            assert!(answers(port) && server.process_id() != first);
            let other = <$server>::start().await?;
            assert_ne!(other.port(), port);
            let directory = server.directory().to_owned();
            drop(server);
            assert!(!answers(port) && !directory.exists() && answers(other.port()));
            Ok(())
        }
    };
}

lives_and_dies!(redis_lives_and_dies, redis::Server);
lives_and_dies!(nats_lives_and_dies, nats::Server);
lives_and_dies!(rabbitmq_lives_and_dies, rabbitmq::Server);

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}
