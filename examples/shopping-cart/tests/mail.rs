//! The mail example sends each mail exactly once.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../examples/mail.rs"]
#[expect(dead_code, reason = "what prints is not needed here")]
mod mail;

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_cart_sends_exactly_one_mail() {
    let directory = tempfile::tempdir().unwrap();
    let mails = mail::shop(&directory.path().join("shop.db"), 30).await.unwrap();
    let mut expected: Vec<_> = (0..30_u64)
        .filter(|number| number % 5 != 4)
        .map(|number| {
            let text = format!("your order cart-{number} of {} cents is confirmed", 4_900 + number);
            (format!("client-{}", number % 4), text)
        })
        .collect();
    expected.sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(mails, expected);
}
