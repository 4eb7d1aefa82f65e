//! A proxy between a client and a server that loses replies.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "part of a test")]

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// The command whose replies are lost, and the remaining number.
type Lost = Arc<Mutex<(String, usize)>>;

pub struct Proxy {
    port: u16,
    lost: Lost,
}

impl Proxy {
    /// Starts a proxy for a server on this machine.
    pub async fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let lost = Lost::default();
        let shared = Arc::clone(&lost);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                tokio::spawn(forward(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, lost }
    }

    pub fn url(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true&serverSelectionTimeoutMS=2000", self.port)
    }

    /// Loses the replies to the next commands of this kind. The server still receives them, and the
    /// connection closes.
    pub fn lose_replies_to(&self, command: &str, times: usize) {
        *self.lost.lock().unwrap() = (command.to_owned(), times);
    }
}

/// Reads one message of the wire protocol, which begins with its length.
async fn message(from: &mut OwnedReadHalf) -> std::io::Result<Vec<u8>> {
    let mut message = vec![0; 4];
    from.read_exact(&mut message).await?;
    let length = usize::try_from(u32::from_le_bytes(message[..4].try_into().unwrap())).unwrap();
    message.resize(length, 0);
    from.read_exact(&mut message[4..]).await?;
    Ok(message)
}

/// Forwards messages. Clients wait for each reply before the next request, except for streams of
/// `hello` replies.
async fn forward(client: TcpStream, server: TcpStream, lost: Lost) {
    let (mut asks, mut hears) = client.into_split();
    let (mut answers, mut is_asked) = server.into_split();
    let losing = Arc::new(Mutex::new(false));
    let loses = Arc::clone(&losing);
    let asking = async move { ask(&mut asks, &mut is_asked, &lost, &loses).await };
    let answering = async move {
        loop {
            let reply = message(&mut answers).await?;
            if *losing.lock().unwrap() {
                return Ok::<_, std::io::Error>(());
            }
            hears.write_all(&reply).await?;
        }
    };
    // The end of either direction closes the connection.
    tokio::select! {
        _ = asking => {}
        _ = answering => {}
    }
}

async fn ask(
    asks: &mut OwnedReadHalf,
    is_asked: &mut OwnedWriteHalf,
    lost: &Lost,
    losing: &Mutex<bool>,
) -> std::io::Result<()> {
    loop {
        let request = message(asks).await?;
        {
            let mut lost = lost.lock().unwrap();
            let (command, times) = &mut *lost;
            if *times > 0 && request.windows(command.len()).any(|part| part == command.as_bytes()) {
                *times -= 1;
                *losing.lock().unwrap() = true;
            }
        }
        is_asked.write_all(&request).await?;
    }
}
