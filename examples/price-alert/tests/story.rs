//! The example prints the expected story.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../examples/alerts.rs"]
#[expect(dead_code, reason = "what prints is not needed here")]
mod alerts;

#[tokio::test(flavor = "multi_thread")]
async fn one_mail_for_each_drop() {
    let directory = tempfile::tempdir().unwrap();
    let lines = alerts::story(&directory.path().join("shop.db")).await.unwrap();
    let expected = [
        "ann asks for shoes below 5000 cents",
        "bob asks for shoes below 4000 cents",
        "the second price, 4900 cents, is the latest",
        "  to ann@example.org: shoes is below your limit (drop 1). It costs 49.00, your limit is 50.00.",
        "the first price, 5500 cents, is older than what is known",
        "the second price, 4900 cents, came before",
        "the fourth price, 5200 cents, is the latest",
        "the third price, 3900 cents, is older than what is known",
        "the fifth price, 4500 cents, is the latest",
        "  to ann@example.org: shoes is below your limit (drop 2). It costs 45.00, your limit is 50.00.",
        "carl asks for shoes below 4600 cents",
        "  to carl@example.org: shoes is below your limit (drop 1). It costs 45.00, your limit is 46.00.",
        "3 mails, sent 5 times; 1 of them had come before",
    ];
    assert_eq!(lines, expected);
}
