use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::Webhook;
use super::call::escaped;
use crate::{AddressGuard, Signer, WebhookOutcome};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn signer() -> Signer {
    Signer::new(SECRET).unwrap()
}

fn local() -> AddressGuard {
    AddressGuard::allowing(["127.0.0.0/8", "::1"]).unwrap()
}

/// Posts to a server that reads the request and then runs `answer`.
async fn posted<F: Future<Output = ()> + Send>(
    answer: impl FnOnce(TcpStream) -> F + Send + 'static,
    patience: Duration,
) -> (Result<WebhookOutcome, String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks/hidden?token=hidden", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"{}") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        answer(stream).await;
        String::from_utf8(request).unwrap()
    });
    let webhook = Webhook::new(&url, signer(), local()).unwrap().patience(patience);
    let verdict = webhook.post("a/b/1", Bytes::from_static(b"{}")).await;
    let verdict = verdict.map_err(|error| error.to_string());
    assert!(!format!("{verdict:?}{webhook:?}").contains("hidden"), "{verdict:?}");
    (verdict, server.await.unwrap())
}

#[tokio::test]
async fn a_call_is_signed() {
    let answer = async |mut stream: TcpStream| {
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    };
    let (verdict, request) = posted(answer, Duration::from_mins(1)).await;
    assert_eq!(verdict, Ok(WebhookOutcome::Done));
    let header = |name: &str| {
        let value = request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("no {name} in {request}"))
    };
    assert!(request.starts_with("POST /hooks/hidden?token=hidden HTTP/1.1\r\n"), "{request}");
    assert_eq!((header("webhook-id"), header("content-type")), ("a/b/1", "application/json"));
    let sent = Timestamp::from_second(header("webhook-timestamp").parse().unwrap()).unwrap();
    assert_eq!(header("webhook-signature"), signer().sign("a/b/1", sent, b"{}"));
}

#[tokio::test]
async fn the_beginning_of_an_endless_response_is_read() {
    let answer = async |mut stream: TcpStream| {
        let begin = b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(begin).await.unwrap();
        // The loop ends when the caller stops reading.
        while stream.write_all(b"5\r\nagain\r\n").await.is_ok() {}
    };
    let (verdict, _) = posted(answer, Duration::from_mins(1)).await;
    let Ok(WebhookOutcome::Failed(text)) = verdict else { panic!("{verdict:?}") };
    assert!(text.starts_with("the response is 500: againagain") && text.len() < 300, "{text}");
}

#[tokio::test]
async fn a_receiver_that_does_not_respond_is_not_waited_for() {
    let answer = async |mut stream: TcpStream| {
        let mut rest = Vec::new();
        // Wait until the caller gives up.
        let _ = stream.read_to_end(&mut rest).await;
    };
    let (verdict, _) = posted(answer, Duration::from_millis(50)).await;
    assert!(verdict.as_ref().is_err_and(|text| text.contains("no response within 50ms")), "{verdict:?}");
}

#[tokio::test]
async fn a_response_without_end_counts_by_its_status() {
    let answer = async |mut stream: TcpStream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsome").await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    };
    let (verdict, _) = posted(answer, Duration::from_secs(2)).await;
    assert_eq!(verdict, Ok(WebhookOutcome::Done));
}

#[tokio::test]
async fn only_permitted_addresses_are_called() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for scheme in ["http", "https"] {
        // A name is checked on each call, even if it resolved to another address before.
        let webhook =
            Webhook::new(&format!("{scheme}://localhost:{port}/"), signer(), AddressGuard::default())
                .unwrap();
        let text = webhook.post("a/b/1", Bytes::new()).await.map(drop).unwrap_err().to_string();
        assert!(text.contains("localhost is ") && text.contains("allow = ["), "{text}");
        for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"] {
            let url = format!("{scheme}://{host}:{port}/");
            let text =
                Webhook::new(&url, signer(), AddressGuard::default()).map(drop).unwrap_err().to_string();
            assert!(text.contains(host) && text.contains("allow = ["), "{text}");
        }
    }
    let is_uncalled =
        tokio::select! { biased; _ = listener.accept() => false, () = std::future::ready(()) => true };
    assert!(is_uncalled);
}

#[test]
fn invalid_urls_are_refused() {
    for (wrong, expected) in [
        ("", "https://shop.example/hooks"),
        ("/hooks", "with a host"),
        ("https://ann:hidden@shop.example/", "without user and password"),
        ("ftp://shop.example/", "https://"),
        ("http://1.1.1.1/hidden", "must be called by https"),
        ("https://shop example/", "https://shop.example/hooks"),
    ] {
        let text = Webhook::new(wrong, signer(), AddressGuard::default()).map(drop).unwrap_err().to_string();
        assert!(text.contains(expected) && !text.contains("hidden"), "{wrong:?}: {text}");
    }
}

#[test]
fn ids_fit_into_headers_and_differ() {
    assert_eq!(escaped("order-paid/o_1/42"), "order-paid/o_1/42");
    assert_eq!(escaped("a.b/ü \n%/1"), "a%2Eb/%C3%BC%20%0A%25/1");
}
