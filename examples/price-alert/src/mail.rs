//! Mail: as much of SMTP as it takes to send one, and a server in this process that keeps it.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// How long sending may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Its Message-ID, without the brackets: two mails that have the same are the same mail.
    pub id: String,
    /// Who gets it.
    pub to: String,
    /// What it is about.
    pub subject: String,
    /// What it says.
    pub text: String,
}

/// Sends a mail. If it fails, the server may have taken it all the same: send it again, with the same id.
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
    // It is the server's now, whatever becomes of the farewell.
    let _ = line.say("QUIT").await;
    Ok(())
}

impl Mail {
    /// The mail as it is sent, with the dot that ends it.
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
            // A line that begins with a dot is not the end.
            content += if line.starts_with('.') { "." } else { "" };
            content += line;
            content += "\r\n";
        }
        Ok(content + ".")
    }

    /// The mail that was sent to somebody as these lines.
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

/// A connection on which either side says lines.
struct Line(BufStream<TcpStream>);

impl Line {
    async fn say(&mut self, line: &str) -> io::Result<()> {
        self.0.write_all(line.as_bytes()).await?;
        self.0.write_all(b"\r\n").await?;
        self.0.flush().await
    }

    /// What the other side says next; `None` if it is gone.
    async fn hear(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).await?;
        line.truncate(line.trim_end_matches(['\r', '\n']).len());
        Ok((length > 0).then_some(line))
    }

    /// Hears an answer, which must have this code.
    async fn expect(&mut self, code: &str) -> io::Result<()> {
        loop {
            match self.hear().await? {
                None => {
                    let message = format!("the mail server was gone before it said {code}");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                }
                // An answer may have several lines, all but the last with a dash.
                Some(line) if line.starts_with(&format!("{code}-")) => {}
                Some(line) if line.starts_with(code) => return Ok(()),
                Some(line) => {
                    return Err(io::Error::other(format!("the mail server said {line:?}, not {code}")));
                }
            }
        }
    }

    /// The lines of a mail, to the dot that ends it.
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

/// What stands between `<` and `>`.
fn bracketed(text: &str) -> &str {
    text.split_once('<').and_then(|(_, text)| text.split_once('>')).map_or("", |(text, _)| text)
}

/// What can go wrong at a server, with one mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It says that it can't take the mail now.
    Refuses,
    /// It takes the mail, and is gone before it says so.
    HangsUp,
}

/// A mail server on this machine. It keeps what it is sent; of mails with the same Message-ID the first, as mailboxes do.
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
    /// Starts a server, on a port that is free. It ends when this is dropped.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, kept) = (listener.local_addr()?, Arc::<Mutex<Kept>>::default());
        let serving = tokio::spawn(serve(listener, Arc::clone(&kept)));
        Ok(Self { address, kept, serving })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The mails that it keeps, in the order in which they came.
    pub fn mails(&self) -> Vec<Mail> {
        lock(&self.kept).mails.clone()
    }

    /// The Message-IDs of all that was sent to it: also what it refused, and what it had seen before.
    pub fn heard(&self) -> Vec<String> {
        lock(&self.kept).heard.clone()
    }

    /// How many mails came that it had seen before.
    pub fn duplicates(&self) -> usize {
        lock(&self.kept).duplicates
    }

    /// Has it get into trouble with each of the next mails.
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
    /// Takes a mail, or does not. Answers what went wrong.
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
    // They end with this.
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
            "HELO" | "EHLO" | "MAIL" => "250 go on",
            "RCPT" => {
                bracketed(&said).clone_into(&mut to);
                "250 go on"
            }
            "DATA" if to.is_empty() => "503 say first who gets it",
            "DATA" => {
                line.say("354 end it with a dot").await?;
                let mail = Mail::decode(&to, &line.hear_mail().await?);
                let trouble = lock(&kept).take(mail);
                match trouble {
                    None => "250 taken",
                    Some(Trouble::Refuses) => "451 not now",
                    Some(Trouble::HangsUp) => return Ok(()),
                }
            }
            "QUIT" => return line.say("221 farewell").await,
            _ => "502 not here",
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
