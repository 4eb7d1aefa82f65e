//! The meaning of a webhook's response.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// The minimum and the maximum delay of a reaction because of a response.
const DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));
/// The number of characters of a response that an error quotes.
const MAX_QUOTED: usize = 200;

/// The relevant parts of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookResponse<'a> {
    /// The status.
    pub status: u16,
    /// The header `retry-after`.
    pub retry_after: Option<&'a str>,
    /// The beginning of the body.
    pub beginning: &'a [u8],
}

/// The outcome of a task whose webhook responded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// The receiver accepted it.
    Done,
    /// Send it again after this time, and nothing else of this reaction before.
    Later(Duration),
    /// The receiver wants no more calls. The text is the reason, for people.
    Gone(String),
    /// The receiver did not accept it. The text is the reason, for people.
    Failed(String),
}

/// Decides the meaning of a response that arrived at this time.
///
/// - 2xx means that the receiver accepted the call.
/// - 429 and 503 with a `retry-after` delay the next call, by a second to an hour.
/// - 410 means that the receiver wants no more calls.
/// - Everything else is a failure, including redirects.
pub fn judge(answer: WebhookResponse<'_>, now: Timestamp) -> WebhookOutcome {
    let WebhookResponse { status, retry_after, beginning } = answer;
    let wait = retry_after.and_then(|text| wait(text, now));
    match (status, wait) {
        (200..=299, _) => WebhookOutcome::Done,
        (429 | 503, Some(wait)) => WebhookOutcome::Later(wait.clamp(DELAYS.0, DELAYS.1)),
        (410, _) => WebhookOutcome::Gone(format!("the response is 410, gone{}", quoted(beginning))),
        (300..=399, _) => WebhookOutcome::Failed(format!(
            "the response is {status}, and redirects are not followed; use the address that it redirects to"
        )),
        _ => WebhookOutcome::Failed(format!("the response is {status}{}", quoted(beginning))),
    }
}

/// Parses a `retry-after`: a number of seconds, or a date.
fn wait(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is a long time.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::from(now)).unwrap_or_default())
}

/// Returns the beginning of a body, in one line.
fn quoted(beginning: &[u8]) -> String {
    let text = String::from_utf8_lossy(beginning);
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = text.trim().chars().map(printable).take(MAX_QUOTED).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, retry_after: Option<&str>) -> WebhookOutcome {
        let now = "2026-11-16T08:00:00Z".parse().unwrap();
        judge(WebhookResponse { status, retry_after, beginning: b" no\n\x1b[31msuch\xff " }, now)
    }

    #[test]
    fn each_response_has_its_meaning() {
        let later = |seconds| WebhookOutcome::Later(Duration::from_secs(seconds));
        let failed = |text: &str| WebhookOutcome::Failed(format!("the response is {text}"));
        for (status, retry_after, expected) in [
            (200, None, WebhookOutcome::Done),
            (202, Some("60"), WebhookOutcome::Done),
            (204, None, WebhookOutcome::Done),
            (299, None, WebhookOutcome::Done),
            (429, Some("60"), later(60)),
            (503, Some(" 60 "), later(60)),
            (429, Some("0"), later(1)),
            (429, Some("86400"), later(3_600)),
            (429, Some("99999999999999999999999999"), later(3_600)),
            (503, Some("Mon, 16 Nov 2026 08:02:00 GMT"), later(120)),
            (503, Some("Monday, 16-Nov-26 08:02:00 GMT"), later(120)),
            (503, Some("Mon Nov 16 08:02:00 2026"), later(120)),
            (503, Some("Mon, 16 Nov 2026 07:00:00 GMT"), later(1)),
            (503, Some("Tue, 17 Nov 2026 08:00:00 GMT"), later(3_600)),
            (429, None, failed("429: no  [31msuch\u{fffd}")),
            (429, Some(""), failed("429: no  [31msuch\u{fffd}")),
            (503, Some("-1"), failed("503: no  [31msuch\u{fffd}")),
            (503, Some("soon"), failed("503: no  [31msuch\u{fffd}")),
            (500, Some("60"), failed("500: no  [31msuch\u{fffd}")),
            (400, None, failed("400: no  [31msuch\u{fffd}")),
            (101, None, failed("101: no  [31msuch\u{fffd}")),
        ] {
            assert_eq!(judged(status, retry_after), expected, "{status} {retry_after:?}");
        }
        assert!(matches!(judged(410, Some("60")), WebhookOutcome::Gone(message) if message.contains("410")));
        for status in [300, 301, 302, 303, 304, 307, 308] {
            let message = judged(status, Some("60"));
            assert!(
                matches!(&message, WebhookOutcome::Failed(message) if message.contains("redirects are not followed")),
                "{message:?}"
            );
        }
    }

    #[test]
    fn only_the_beginning_of_a_response_is_quoted() {
        let long = "x".repeat(10_000);
        let answer = WebhookResponse { status: 500, retry_after: None, beginning: long.as_bytes() };
        let WebhookOutcome::Failed(message) = judge(answer, Timestamp::UNIX_EPOCH) else {
            panic!("it failed")
        };
        assert!(message.len() < 250 && message.contains("xxx"), "{message}");
    }
}
