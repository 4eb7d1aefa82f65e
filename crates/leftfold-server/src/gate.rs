//! Checks before a request is processed: it must be addressed to this server and within the rate
//! limit.

use std::net::IpAddr;

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Request, Uri, Version};
use tokio::time::Instant;

use crate::listen::Listen;
use crate::problem::Problem;
use crate::rate::Rate;

/// The names of this machine.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Admits or rejects requests.
pub(crate) struct Gate {
    rate: Rate,
    /// Accepted host names, besides those of this machine. `None` accepts all.
    hosts: Option<Vec<String>>,
}

impl Gate {
    pub(crate) fn new(listen: &Listen) -> Self {
        Self { rate: Rate::new(listen.requests_per_second), hosts: listen.hosts.clone() }
    }

    pub(crate) fn admits<B>(
        &self,
        client: IpAddr,
        request: &Request<B>,
        now: Instant,
    ) -> Result<(), Problem> {
        self.rate.take(client, now).map_err(|wait| {
            let seconds = wait.as_secs() + 1;
            Problem::too_many("the address exceeded its requests per second; retry later")
                .retry_after(seconds)
        })?;
        if !is_encoded(request.uri()) {
            return Err(Problem::invalid("the path or the query: expected two hexadecimal digits after %"));
        }
        let named = addressed(request)?;
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let is_known = |authority: &Authority| {
            let host = authority.host();
            LOCAL
                .iter()
                .copied()
                .chain(hosts.iter().map(String::as_str))
                .any(|one| one.eq_ignore_ascii_case(host))
        };
        if named.is_empty() || !named.iter().all(is_known) {
            let detail = "header Host: expected the name of this machine, or one in server.hosts";
            return Err(Problem::misdirected(detail));
        }
        // Reads pass: a browser keeps the response from pages of other origins.
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if is_write
            && !request.headers().get_all(ORIGIN).iter().all(|origin| {
                let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
                origin
                    .and_then(|(_, authority)| authority.parse().ok())
                    .is_some_and(|origin| is_known(&origin))
            })
        {
            let detail = "header Origin: pages of other sites may not write; list the site in server.hosts to allow it";
            return Err(Problem::foreign(detail));
        }
        Ok(())
    }
}

/// Returns whether two hexadecimal digits follow each `%`. Later decoders would leave an invalid
/// `%` as it is, and then confuse two names or read one name as two.
fn is_encoded(uri: &Uri) -> bool {
    let text = uri.path_and_query().map_or("", |text| text.as_str());
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    text.split('%').skip(1).all(|rest| is_digit(rest.as_bytes().first()) && is_digit(rest.as_bytes().get(1)))
}

/// Returns the hosts that a request is addressed to: from the header, and from the first line if it
/// names one.
fn addressed<B>(request: &Request<B>) -> Result<Vec<Authority>, Problem> {
    let host = host(request.headers())?;
    if host.is_none() && request.version() >= Version::HTTP_11 {
        return Err(Problem::invalid("header Host: missing"));
    }
    Ok(host.into_iter().chain(request.uri().authority().cloned()).collect())
}

fn host(headers: &HeaderMap) -> Result<Option<Authority>, Problem> {
    let mut all = headers.get_all(HOST).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(host), None) => match Authority::try_from(host.as_bytes()) {
            // HTTP allows no user name before the host.
            Ok(host) if !host.as_str().contains('@') => Ok(Some(host)),
            _ => Err(Problem::invalid("header Host: expected a name or an address, with or without a port")),
        },
        (Some(_), Some(_)) => Err(Problem::invalid("header Host: sent twice")),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    fn status(hosts: Option<&[&str]>, method: &str, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let hosts = hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect());
        let gate = Gate::new(&Listen { hosts, ..Listen::default() });
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let admitted = gate.admits([127, 0, 0, 1].into(), &request.body(()).unwrap(), Instant::now());
        admitted.map_or_else(|problem| problem.into_response().status().as_u16(), |()| 200)
    }

    #[test]
    fn only_requests_for_this_server_are_admitted() {
        for (host, expected) in [
            ("localhost", 200),
            ("LOCALHOST:7777", 200),
            ("127.0.0.1:7777", 200),
            ("[::1]:7777", 200),
            ("shop.example:80", 200),
            ("evil.example", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example:7777", 421),
            ("localhost@evil.example", 400),
            ("", 400),
        ] {
            assert_eq!(status(Some(&["shop.example"]), "GET", "/", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status(Some(&[]), "GET", "/", &[("host", "shop.example")]), 421);
        assert_eq!(status(None, "GET", "/", &[("host", "shop.example")]), 200);
        assert_eq!(status(None, "GET", "/", &[("host", "a"), ("host", "a")]), 400);
        assert_eq!(status(None, "GET", "/", &[]), 400);
        assert_eq!(status(Some(&[]), "GET", "http://evil.example/", &[("host", "localhost")]), 421);
    }

    #[test]
    fn percent_encoding_is_complete() {
        for (uri, expected) in [("/a%20b?c=%7B%7d", 200), ("/%zz", 400), ("/a%", 400), ("/a?b=%1", 400)] {
            assert_eq!(status(None, "GET", uri, &[("host", "a")]), expected, "{uri}");
        }
    }

    #[test]
    fn pages_of_other_sites_do_not_write() {
        let host = ("host", "localhost:7777");
        for (method, origin, expected) in [
            ("POST", "http://localhost:3000", 200),
            ("POST", "https://shop.example", 200),
            ("POST", "https://evil.example", 403),
            ("POST", "https://localhost.evil.example", 403),
            ("DELETE", "https://evil.example", 403),
            ("POST", "null", 403),
            ("GET", "https://evil.example", 200),
        ] {
            let headers = [host, ("origin", origin)];
            assert_eq!(status(Some(&["shop.example"]), method, "/", &headers), expected, "{method} {origin}");
        }
        assert_eq!(status(Some(&[]), "POST", "/", &[host]), 200, "it comes from no page");
        assert_eq!(status(None, "POST", "/", &[host, ("origin", "https://evil.example")]), 200);
    }
}
