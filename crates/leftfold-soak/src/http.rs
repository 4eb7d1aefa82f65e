//! A small HTTP client over a plain keep-alive connection.

use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// The media type of most bodies.
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");
/// The maximum size of a body that a client keeps.
const MAX_BODY: u64 = 64 << 20;

/// A client with its own source address, because the daemon has limits per address.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    source: Ipv4Addr,
    timeout: Duration,
    connection: Option<BufReader<TcpStream>>,
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the body as JSON, or null if it is something else.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the start of the body, for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(300).collect()
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr, source: Ipv4Addr, timeout: Duration) -> Self {
        Self { address, source, timeout, connection: None }
    }

    /// Sends a request and reads the response. Reconnects if the server has closed the connection
    /// meanwhile.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        if let Some(mut connection) = self.connection.take() {
            match self.exchange(&mut connection, &request) {
                Err(error) if is_closed(&error) => {}
                done => return self.keep(connection, done),
            }
        }
        let mut connection = BufReader::new(connect(self.address, self.source, self.timeout, None)?);
        let done = self.exchange(&mut connection, &request);
        self.keep(connection, done)
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.send("GET", path, &[], "")
    }

    fn exchange(&self, connection: &mut BufReader<TcpStream>, request: &str) -> io::Result<(Answer, bool)> {
        connection.get_ref().set_read_timeout(Some(self.timeout))?;
        connection.get_mut().write_all(request.as_bytes())?;
        read(connection)
    }

    fn keep(
        &mut self,
        connection: BufReader<TcpStream>,
        done: io::Result<(Answer, bool)>,
    ) -> io::Result<Answer> {
        let (answer, stays) = done?;
        self.connection = stays.then_some(connection);
        Ok(answer)
    }
}

/// Returns whether the server closed the connection before it saw the request.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Connects from an address. With a small buffer the server soon notices that the client does not
/// read.
pub(crate) fn connect(
    address: SocketAddr,
    source: Ipv4Addr,
    timeout: Duration,
    buffer: Option<usize>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(buffer) = buffer {
        socket.set_recv_buffer_size(buffer)?;
    }
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect_timeout(&address.into(), timeout)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

/// Reads a response and returns whether the connection can be reused.
fn read(from: &mut impl BufRead) -> io::Result<(Answer, bool)> {
    let status = line(from)?;
    let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the response has no status"))?;
    let (mut length, mut is_chunked, mut stays) = (None, false, true);
    loop {
        let line = line(from)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok(),
            "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => stays = !value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    match length {
        _ if is_chunked => chunks(from, &mut body)?,
        _ if status == 204 || status == 304 => {}
        Some(length) => exactly(from, length, &mut body)?,
        None => {
            stays = false;
            from.take(MAX_BODY).read_to_end(&mut body)?;
        }
    }
    Ok((Answer { status, body }, stays))
}

fn chunks(from: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let size = line(from)?;
        let size = size.split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
        exactly(from, size, body)?;
        line(from)?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn exactly(from: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> io::Result<()> {
    if length + body.len() as u64 > MAX_BODY {
        return Err(io::Error::other(format!("the response has more than {MAX_BODY} bytes")));
    }
    let read = from.take(length).read_to_end(body)?;
    if read as u64 == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(64 << 10).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.pop_if(|last| *last == b'\r');
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(text: &str) -> io::Result<(u16, String, bool)> {
        let (answer, stays) = read(&mut text.as_bytes())?;
        Ok((answer.status, String::from_utf8(answer.body).unwrap(), stays))
    }

    #[test]
    fn bodies_have_a_length_or_chunks_or_an_end() {
        let counted = reads("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nab???").unwrap();
        assert_eq!(counted, (201, "ab".to_owned(), true));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(reads(chunked).unwrap(), (200, "abc".to_owned(), true));
        let ended = reads("HTTP/1.1 503 No\r\nconnection: close\r\n\r\nabc").unwrap();
        assert_eq!(ended, (503, "abc".to_owned(), false));
    }

    #[test]
    fn a_response_that_ends_too_early_is_an_error() {
        for text in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"] {
            assert!(is_closed(&reads(text).unwrap_err()), "{text}");
        }
        assert!(reads("nonsense\r\n\r\n").is_err());
    }
}
