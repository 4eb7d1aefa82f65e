//! Documents that can't be parsed: scripts can't store them, and a damaged one does not affect the
//! others.
//!
//! In an earlier version, half an emoji in one document made every list of its collection fail with
//! 500, and `verify` stopped at it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use serde_json::{Value, json};

use self::served::{Daemon, JSON, initialized, leftfold, said};

/// A script that returns any value an event describes, including values that JSON can't express.
const SCRIPT: &str = r#"
const made = (value) => {
  if (Array.isArray(value)) return value.map(made);
  if (value === null || typeof value !== "object") return value;
  if ("cut" in value) return value.cut.slice(0, value.at);
  if ("raw" in value) return JSON.rawJSON(value.raw);
  if ("deep" in value) { let a = {}; for (let i = 0; i < value.deep; i++) a = { a }; return a; }
  if ("date" in value) return new Date(value.date);
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [made({ cut: name, at: 99 }), made(inner)]));
};
export default { told: (_, { data }) => made(data) };
"#;

#[track_caller]
fn append(daemon: &Daemon, stream: &str, data: &Value) -> String {
    let event = json!([{ "type": "told", "data": data }]).to_string();
    let (status, body) = daemon.send("POST", &format!("/streams/{stream}"), &[JSON], &event).unwrap();
    assert_eq!(status, 201, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned()
}

/// Picks an element by a number.
fn one<T: Copy>(of: &[T], drawn: u64) -> T {
    of[usize::try_from(drawn).unwrap() % of.len()]
}

/// Generates a value from a seed: nested objects and arrays, including values that are hard to
/// parse.
fn any(seed: &mut u64, depth: u32) -> Value {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let (kind, drawn) = ((*seed >> 33) % 14, (*seed >> 33) / 14);
    match kind {
        0 => json!({ "cut": "a😀b", "at": drawn % 4 }),
        1 => json!({ "raw": one(&["1e999", "-1e400", "1e308", "0.1", "12345678901234567890"], drawn) }),
        2 => json!({ "deep": one(&[3, 90, 95, 100, 126, 127, 128, 1_000], drawn) }),
        3 => json!({ "date": one(&["2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z"], drawn) }),
        4 => json!("\u{2028}\u{0}\u{ffff}\"\\"),
        5 => json!(drawn),
        6 => json!(-1.5e-7),
        7 => Value::Null,
        8 => json!("$date"),
        9..=11 if depth > 0 => (0..drawn % 4).map(|_| any(seed, depth - 1)).collect::<Vec<_>>().into(),
        _ if depth > 0 => {
            let names = ["a", "$date", "__proto__", "ü", "_fold", "toJSON", ""];
            let fields = (0..drawn % 4).map(|at| (one(&names, drawn + at).to_owned(), any(seed, depth - 1)));
            Value::Object(fields.collect())
        }
        _ => json!({}),
    }
}

#[test]
fn whatever_a_script_returns_is_parked_or_read_by_every_reader() {
    const DOCUMENTS: usize = 150;
    let directory = initialized();
    let directory = directory.path();
    std::fs::write(directory.join("projections/made.js"), SCRIPT).unwrap();
    let file = directory.join("leftfold.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "\n[[projection]]\nname = \"made\"\nscript = \"projections/made.js\"\n")
        .unwrap();
    let daemon = Daemon::start(directory);
    let (mut seed, mut token) = (17, String::new());
    for number in 0..DOCUMENTS {
        let data = json!({ "what": any(&mut seed, 4) });
        token = append(&daemon, &format!("d{number:03}"), &data);
    }
    append(&daemon, "last", &json!({ "fine": true }));
    let token = append(&daemon, "last", &json!({ "fine": token }));
    let last = daemon.get(&format!("/collections/made/documents/last?at_least={token}&wait=60s"));
    assert!(last["fine"].is_string(), "{last}");

    let parked = daemon.get("/collections/made/parked?limit=1000");
    let parked: Vec<_> = parked["parked"].as_array().unwrap().iter().collect();
    for one in &parked {
        let error = one["parked"]["error"].as_str().unwrap();
        assert!(
            ["can't be stored", "is NaN", "is an invalid date", "toJSON"]
                .iter()
                .any(|why| error.contains(why)),
            "{error}"
        );
    }
    let mut listed = 0;
    let mut after = String::new();
    loop {
        let page = daemon.get(&format!("/collections/made/documents?limit=40{after}"));
        for document in page["documents"].as_array().unwrap() {
            assert!(document["damaged"].is_null(), "{document}");
            listed += 1;
        }
        if page["more"] != true {
            break;
        }
        after = format!("&after={}", page["after"].as_str().unwrap());
    }
    assert_eq!(listed + parked.len(), DOCUMENTS + 1, "each is parked or listed");
    assert!(parked.len() > 10 && listed > 10, "{} parked, {listed} listed", parked.len());
    for number in 0..DOCUMENTS {
        let path = format!("/collections/made/documents/d{number:03}");
        let (status, body) = daemon.send("GET", &path, &[], "").unwrap();
        assert!(status == 200 || status == 404 || status == 409, "{status}: {body}");
        let (status, body) = daemon.send("GET", &format!("{path}/explanation"), &[], "").unwrap();
        assert!(status == 200, "{status}: {body}");
    }
    let filter = "/collections/made/documents?filter=%7B%22what%22%3A%7B%22%24exists%22%3Atrue%7D%7D";
    assert!(!daemon.get(filter)["documents"].as_array().unwrap().is_empty());
    let verified = leftfold(directory, &["verify", "made"]);
    assert!(verified.status.success(), "{}", said(&verified));
}

#[test]
fn a_document_that_the_disk_has_damaged_is_told_and_the_others_are_served() {
    let directory = initialized();
    let directory = directory.path();
    let daemon = Daemon::start(directory);
    let opened = json!([{ "type": "cart-opened", "data": { "client": "ann" } }]).to_string();
    let mut token = String::new();
    for cart in ["cart-1", "cart-2", "cart-3", "cart-4"] {
        let (_, body) = daemon.send("POST", &format!("/streams/{cart}"), &[JSON], &opened).unwrap();
        token = serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned();
    }
    daemon.get(&format!("/collections/carts/documents/cart-4?at_least={token}"));
    let database = rusqlite::Connection::open(directory.join("leftfold.db")).unwrap();
    for (id, body) in
        [("cart-2", "CAST(x'7b2261223a22ff227d' AS TEXT)"), ("cart-3", "replace(body, '\"', '')")]
    {
        let sql = format!("UPDATE leftfold_carts_1 SET body = {body} WHERE id = '{id}'");
        assert_eq!(database.execute(&sql, []).unwrap(), 1);
    }
    drop(database);
    let listed = daemon.get("/collections/carts/documents");
    let listed = listed["documents"].as_array().unwrap();
    assert_eq!(listed.len(), 4);
    for (document, is_damaged) in listed.iter().zip([false, true, true, false]) {
        assert_eq!(document["damaged"].is_string(), is_damaged, "{document}");
        assert_eq!(document["document"].is_null(), is_damaged, "{document}");
    }
    let (status, body) = daemon.send("GET", "/collections/carts/documents/cart-2", &[], "").unwrap();
    assert!(status == 500 && body.contains("damaged"), "{status}: {body}");
    assert_eq!(daemon.get("/collections/carts/documents/cart-1")["client"], "ann");
    let verified = leftfold(directory, &["verify", "carts"]);
    assert!(
        said(&verified).contains("2 differ") && said(&verified).contains("damaged"),
        "{}",
        said(&verified)
    );
    let doctor = leftfold(directory, &["doctor"]);
    assert!(said(&doctor).contains("cart-2 is damaged"), "{}", said(&doctor));
    // One command repairs it.
    for cart in ["cart-2", "cart-3"] {
        let refolded = leftfold(directory, &["refold", "carts", cart]);
        assert!(refolded.status.success(), "{}", said(&refolded));
        assert_eq!(daemon.get(&format!("/collections/carts/documents/{cart}"))["client"], "ann");
    }
}
