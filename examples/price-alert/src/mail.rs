//! Mail: a minimal SMTP client, and a server in this process that stores mails.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// The timeout for sending a mail.
const PATIENCE: Duration = Duration::from_secs(10);

/// A mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The Message-ID without its brackets. Two mails with the same id are the same mail.
    pub id: String,
    /// The recipient's address.
    pub to: String,
    /// The subject line.
    pub subject: String,
    /// The body.
    pub text: String,
}

/// Sends a mail. After an error the server may still have taken it: retry with the same id.
pub async fn send(server: SocketAddr, mail: &Mail) -> io::Result<()> {
    timeout(PATIENCE, hand_over(server, mail)).await?
}

async fn hand_over(server: SocketAddr, mail: &Mail) -> io::Result<()> {
    let (recipient, content) = (format!("RCPT TO:<{}>", mail.to), mail.encode()?);
    let mut line = Line(BufStream::new(TcpStream::connect(server).await?));
    line.expect("220").await?;
    for (say, answer) in [
        ("EHLO price-alert", "250"),
        ("MAIL FROM:<alerts@example.org>", "250"),
        (recipient.as_str(), "250"),
        ("DATA", "354"),
        (content.as_str(), "250"),
    ] {
        line.say(say).await?;
        line.expect(answer).await?;
    }
    // The server has accepted the mail, so a failed QUIT does not matter.
    let _ = line.say("QUIT").await;
    Ok(())
}

impl Mail {
    /// Encodes the mail for SMTP, including the dot that ends it.
    fn encode(&self) -> io::Result<String> {
        let Self { id, to, subject, text } = self;
        if let Some(bad) = [id, to, subject].into_iter().find(|field| field.contains(char::is_control)) {
            let message = format!("sending a mail: {bad:?} holds a control character");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut content = format!(
            "Message-ID: <{id}>\r\nFrom: <alerts@example.org>\r\nTo: <{to}>\r\nSubject: {subject}\r\n\r\n"
        );
        for line in text.lines() {
            // SMTP doubles a leading dot: a line with a single dot ends the mail.
            content += if line.starts_with('.') { "." } else { "" };
            content += line;
            content += "\r\n";
        }
        Ok(content + ".")
    }

    /// Decodes the mail that a client sent to `to` as these lines.
    fn decode(to: &str, lines: &[String]) -> Self {
        let mut parts = lines.splitn(2, String::is_empty);
        let (headers, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let header = |name: &str| headers.iter().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        Self {
            id: bracketed(header("Message-ID: ")).to_owned(),
            to: to.to_owned(),
            subject: header("Subject: ").to_owned(),
            text: text.join("\n"),
        }
    }
}

/// A connection on which both sides exchange lines.
struct Line(BufStream<TcpStream>);

impl Line {
    async fn say(&mut self, line: &str) -> io::Result<()> {
        self.0.write_all(line.as_bytes()).await?;
        self.0.write_all(b"\r\n").await?;
        self.0.flush().await
    }

    /// Returns the next line from the peer, or `None` if the connection is closed.
    async fn hear(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).await?;
        line.truncate(line.trim_end_matches(['\r', '\n']).len());
        Ok((length > 0).then_some(line))
    }

    /// Reads a response, which must have this code.
    async fn expect(&mut self, code: &str) -> io::Result<()> {
        loop {
            match self.hear().await? {
                None => {
                    let message =
                        format!("the mail server closed the connection instead of answering {code}");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                }
                // A response may have several lines. All but the last have a dash after the code.
                Some(line) if line.starts_with(&format!("{code}-")) => {}
                Some(line) if line.starts_with(code) => return Ok(()),
                Some(line) => {
                    return Err(io::Error::other(format!("the mail server answered {line:?}, not {code}")));
                }
            }
        }
    }

    /// Reads the lines of a mail, up to the dot that ends it.
    async fn hear_mail(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            match self.hear().await? {
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(line) if line == "." => return Ok(lines),
                Some(line) => lines.push(line.strip_prefix('.').unwrap_or(&line).to_owned()),
            }
        }
    }
}

/// Returns the text between `<` and `>`.
fn bracketed(text: &str) -> &str {
    text.split_once('<').and_then(|(_, text)| text.split_once('>')).map_or("", |(text, _)| text)
}

/// A failure of the server with one mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server rejects the mail with a temporary error.
    Refuses,
    /// The server takes the mail and closes the connection before it confirms.
    HangsUp,
}

/// A mail server on this machine that stores the mails it receives. As mailboxes do, it keeps only
/// the first mail with a given Message-ID.
#[derive(Debug)]
pub struct Sink {
    address: SocketAddr,
    kept: Arc<Mutex<Kept>>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Kept {
    mails: Vec<Mail>,
    heard: Vec<String>,
    duplicates: usize,
    troubles: VecDeque<Trouble>,
}

impl Sink {
    /// Starts a server on a free port. The server stops when this value is dropped.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, kept) = (listener.local_addr()?, Arc::<Mutex<Kept>>::default());
        let serving = tokio::spawn(serve(listener, Arc::clone(&kept)));
        Ok(Self { address, kept, serving })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the stored mails in order of arrival.
    pub fn mails(&self) -> Vec<Mail> {
        lock(&self.kept).mails.clone()
    }

    /// Returns the Message-IDs of all received mails, including rejected mails and duplicates.
    pub fn heard(&self) -> Vec<String> {
        lock(&self.kept).heard.clone()
    }

    /// Returns the number of duplicates received.
    pub fn duplicates(&self) -> usize {
        lock(&self.kept).duplicates
    }

    /// Makes the server fail on the next mails, one failure per mail.
    pub fn trouble(&self, troubles: impl IntoIterator<Item = Trouble>) {
        lock(&self.kept).troubles.extend(troubles);
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Takes or rejects a mail, and returns the failure to simulate.
    fn take(&mut self, mail: Mail) -> Option<Trouble> {
        self.heard.push(mail.id.clone());
        let trouble = self.troubles.pop_front();
        if trouble != Some(Trouble::Refuses) {
            if self.mails.iter().any(|known| known.id == mail.id) {
                self.duplicates += 1;
            } else {
                self.mails.push(mail);
            }
        }
        trouble
    }
}

async fn serve(listener: TcpListener, kept: Arc<Mutex<Kept>>) {
    // The connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if let Ok((stream, _)) = listener.accept().await {
            connections.spawn(converse(Line(BufStream::new(stream)), Arc::clone(&kept)));
        }
    }
}

async fn converse(mut line: Line, kept: Arc<Mutex<Kept>>) -> io::Result<()> {
    line.say("220 price-alert").await?;
    let mut to = String::new();
    while let Some(said) = line.hear().await? {
        let verb = said.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        let answer = match verb.as_str() {
            "HELO" | "EHLO" | "MAIL" => "250 continue",
            "RCPT" => {
                bracketed(&said).clone_into(&mut to);
                "250 continue"
            }
            "DATA" if to.is_empty() => "503 name the recipient first",
            "DATA" => {
                line.say("354 end the mail with a dot").await?;
                let mail = Mail::decode(&to, &line.hear_mail().await?);
                let trouble = lock(&kept).take(mail);
                match trouble {
                    None => "250 taken",
                    Some(Trouble::Refuses) => "451 not now",
                    Some(Trouble::HangsUp) => return Ok(()),
                }
            }
            "QUIT" => return line.say("221 closing").await,
            _ => "502 command not implemented",
        };
        line.say(answer).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(id: &str) -> Mail {
        let text = "first\n\n.third, with a dot\n.".to_owned();
        Mail { id: id.to_owned(), to: "ann@example.org".to_owned(), subject: "shoes".to_owned(), text }
    }

    #[tokio::test]
    async fn a_mail_comes_as_it_was_sent() {
        let sink = Sink::start().await.unwrap();
        send(sink.address(), &mail("one")).await.unwrap();
        assert_eq!(sink.mails(), [mail("one")]);
    }

    #[tokio::test]
    async fn a_mail_that_was_seen_is_not_kept_again() {
        let sink = Sink::start().await.unwrap();
        for id in ["one", "two", "one"] {
            send(sink.address(), &mail(id)).await.unwrap();
        }
        assert_eq!(sink.mails(), [mail("one"), mail("two")]);
        assert_eq!((sink.heard().len(), sink.duplicates()), (3, 1));
    }

    #[tokio::test]
    async fn trouble_is_told() {
        let sink = Sink::start().await.unwrap();
        sink.trouble([Trouble::Refuses, Trouble::HangsUp]);
        let refused = send(sink.address(), &mail("one")).await.unwrap_err();
        assert!(refused.to_string().contains("451"), "{refused}");
        assert_eq!(sink.mails(), []);
        assert!(send(sink.address(), &mail("one")).await.is_err());
        assert_eq!(sink.mails(), [mail("one")], "it was taken, though nobody said so");
    }

    #[tokio::test]
    async fn a_field_can_not_bring_lines_of_its_own() {
        let sink = Sink::start().await.unwrap();
        let forged = Mail { to: "ann@example.org>\r\nRCPT TO:<bob@example.org".to_owned(), ..mail("one") };
        assert!(send(sink.address(), &forged).await.is_err());
        assert_eq!(sink.heard(), [""; 0]);
    }
}
