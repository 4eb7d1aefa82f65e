use leftfold::Revision;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-11-16T08:00:00.123456789Z".parse().unwrap()
}

fn map(message: &Message) -> Result<Delivery, Invalid> {
    Mapping::default().map(message, now())
}

fn why(message: &Message) -> String {
    map(message).unwrap_err().to_string()
}

fn event() -> serde_json::Value {
    json!({
        "specversion": "1.0", "id": "e-1", "source": "/shop", "type": "item-added", "subject": "cart-42",
        "sequence": "7", "previous": 5, "time": "2026-11-16T09:00:00+01:00", "traceparent": "00-a-b", "priority": 3,
        "data": { "product": "shoes" },
    })
}

fn structured(event: &serde_json::Value) -> Message {
    Message::new(event.to_string()).with("Content-Type", "application/cloudevents+json; charset=utf-8")
}

fn binary(prefix: &str) -> Message {
    let mut message = Message::new(r#"{"product":"shoes"}"#).with("content-type", "application/json");
    for (name, value) in event().as_object().unwrap() {
        if name != "data" {
            let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            message = message.with(&format!("{prefix}{name}"), value);
        }
    }
    message
}

#[test]
fn an_event_is_the_same_in_every_mode() {
    let delivery = map(&structured(&event())).unwrap();
    assert_eq!(delivery.stream.as_str(), "cart-42");
    assert_eq!((delivery.revision, delivery.previous), (Some(Revision(7)), Some(Revision(5))));
    assert_eq!(delivery.entry.id.as_str(), "e-1");
    assert_eq!(delivery.entry.kind.as_str(), "item-added");
    assert_eq!(delivery.entry.time.to_string(), "2026-11-16T08:00:00Z");
    assert_eq!(delivery.entry.data.as_str(), r#"{"product":"shoes"}"#);
    let metadata = delivery.entry.metadata.as_ref().unwrap().as_str();
    assert_eq!(metadata, r#"{"priority":"3","source":"/shop","traceparent":"00-a-b"}"#);

    for prefix in ["ce-", "ce_", "cloudEvents:", "cloudEvents_"] {
        assert_eq!(map(&binary(prefix)).unwrap(), delivery, "{prefix}");
    }
    assert_eq!(map(&Message::new(event().to_string())).unwrap(), delivery, "without a content type");
}

#[test]
fn omitted_values_have_defaults() {
    let event =
        json!({ "specversion": "1.0", "id": "e", "source": "/", "type": "t", "subject": "s", "time": null });
    let delivery = map(&structured(&event)).unwrap();
    assert_eq!((delivery.revision, delivery.previous), (None, None));
    assert_eq!(delivery.entry.data.as_str(), "{}");
    assert_eq!(delivery.entry.time.to_string(), "2026-11-16T08:00:00.123456Z");
}

#[test]
fn missing_and_invalid_values_are_named() {
    for name in ["specversion", "id", "source", "type", "subject"] {
        let mut event = event();
        event.as_object_mut().unwrap().remove(name);
        assert!(why(&structured(&event)).contains(&format!("{name:?}: expected a value: the ")), "{name}");
    }
    let wrong = [
        ("specversion", json!("0.3"), "invalid CloudEvents specversion \"0.3\": expected 1.0"),
        ("sequence", json!("seven"), "invalid revision \"seven\": expected a whole number"),
        ("sequence", json!(-1), "invalid revision \"-1\""),
        ("sequence", json!(1.5), "invalid revision \"1.5\""),
        ("previous", json!(true), "invalid previous revision \"true\""),
        ("time", json!("yesterday"), "invalid time \"yesterday\": expected a time such as"),
        ("subject", json!("a\u{0}b"), "invalid stream id \"a\\0b\""),
        ("subject", json!("x".repeat(256)), "it has 256 bytes"),
        ("id", json!(""), "invalid event id \"\""),
        ("type", json!({ "a": 1 }), "expected a string, a number or a boolean for \"type\""),
        ("extension", json!([1]), "for \"extension\""),
        ("data_base64", json!("AA=="), "either data or data_base64, not both"),
    ];
    for (name, value, expected) in wrong {
        let mut event = event();
        event[name] = value;
        let why = why(&structured(&event));
        assert!(why.contains(expected), "{name}: {why}");
    }
}

#[test]
fn hostile_content_is_refused_with_a_reason() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "JSON: EOF"),
        (b"{\"specversion\":\"1.0\",\"id\":", "JSON: EOF"),
        (b"[1,2]", "an object"),
        (b"null", "an object"),
        (b"{\"id\":\"a\",\"id\":\"b\"}", "the name \"id\" occurs twice"),
        (b"\xff\xfe{}", "UTF-8 text"),
        (b"{\"id\":\"\\ud800\"}", "for \"id\""),
        (b"{\"id\":\"a\"} trailing", "JSON: trailing characters"),
        (b"{\"specversion\":1e999}", "invalid CloudEvents specversion \"1e999\""),
    ];
    for (content, expected) in cases {
        let why = why(&Message::new(content).with("content-type", "application/cloudevents+json"));
        assert!(why.contains(expected), "{content:?}: {why}");
    }
    let mut huge = event().to_string();
    huge = huge.replace(r#""sequence":"7""#, r#""sequence":99999999999999999999999"#);
    assert!(why(&Message::new(huge)).contains("invalid revision \"99999999999999999999999\""));
    let deep = event()
        .to_string()
        .replace(r#"{"product":"shoes"}"#, &format!("{}{}", "[".repeat(9_999), "]".repeat(9_999)));
    map(&Message::new(deep)).unwrap();
    assert!(
        why(&Message::new("hello").with("content-type", "text/plain"))
            .contains("the message is not a CloudEvent")
    );
    assert!(
        why(&Message::new("[]").with("content-type", "application/cloudevents-batch+json"))
            .contains("one event in each message")
    );
    let two = binary("ce-").with("ce_id", "another");
    assert!(why(&two).contains("the value of another attribute"), "{}", why(&two));
}

#[test]
fn headers_are_percent_decoded_where_their_binding_says_so() {
    let escaped = |prefix: &str, value: &str| binary(prefix).with(&format!("{prefix}subject"), value);
    assert_eq!(map(&escaped("ce-", "caf%C3%A9%20%25 100%")).unwrap().stream.as_str(), "café % 100%");
    assert_eq!(map(&escaped("ce_", "caf%C3%A9")).unwrap().stream.as_str(), "caf%C3%A9");
    assert!(why(&escaped("ce-", "%ff")).contains("percent-encoded"));
    assert!(why(&escaped("ce-", "a%0Ab")).contains("control character"));
}

#[test]
fn content_that_is_not_json_becomes_a_string() {
    let with = |kind: &str, content: &[u8]| {
        let message = Message { content: content.into(), ..binary("ce-") }.with("content-type", kind);
        let delivery = map(&message).unwrap();
        (
            delivery.entry.data.as_str().to_owned(),
            delivery.entry.metadata.as_ref().unwrap().as_str().to_owned(),
        )
    };
    let (data, metadata) = with("text/plain", b"hello");
    assert_eq!(data, r#""hello""#);
    assert!(
        metadata.contains(r#""datacontenttype":"text/plain""#) && !metadata.contains("base64"),
        "{metadata}"
    );
    let (data, metadata) = with("application/octet-stream", &[0, 255]);
    assert_eq!(data, r#""AP8=""#);
    assert!(metadata.contains(r#""dataencoding":"base64""#), "{metadata}");

    let mut event = event();
    event.as_object_mut().unwrap().remove("data");
    event["data_base64"] = json!("AP8=");
    event["datacontenttype"] = json!("application/octet-stream");
    let delivery = map(&structured(&event)).unwrap();
    assert_eq!(delivery.entry.data.as_str(), data);
    assert_eq!(delivery.entry.metadata.as_ref().unwrap().as_str(), metadata);
    event["data_base64"] = json!("not base64");
    assert!(why(&structured(&event)).contains("bytes in base64"));
    let broken = Message { content: b"{".into(), ..binary("ce-") };
    assert!(why(&broken).contains("JSON: EOF"));
}

#[test]
fn data_keeps_every_letter() {
    let data = r#"{"b": 1.10, "a": 123456789012345678901234567890, "a ": "\u00e9"}"#;
    let text = event().to_string().replace(r#"{"product":"shoes"}"#, data);
    assert_eq!(map(&Message::new(text)).unwrap().entry.data.as_str(), data);
}

#[test]
fn an_id_may_include_its_source() {
    let mapping =
        Mapping::CloudEvents(CloudEvents { source_in_id: true, offset: 1, ..CloudEvents::default() });
    let delivery = mapping.map(&structured(&event()), now()).unwrap();
    assert_eq!(delivery.entry.id.as_str(), "/shop e-1");
    assert_eq!((delivery.revision, delivery.previous), (Some(Revision(8)), Some(Revision(6))));
}

fn configured(configuration: serde_json::Value) -> Result<Mapping, serde_json::Error> {
    serde_json::from_value(configuration)
}

#[test]
fn a_mapping_comes_from_configuration() {
    assert_eq!(configured(json!({ "format": "cloudevents" })).unwrap(), Mapping::default());
    let by_key =
        configured(json!({ "format": "cloudevents", "stream": "partitionkey", "source-in-id": true }));
    let expected =
        CloudEvents { stream: "partitionkey".into(), source_in_id: true, ..CloudEvents::default() };
    assert_eq!(by_key.unwrap(), Mapping::from(expected));

    let fields = configured(json!({
        "format": "fields", "stream": { "attribute": "key" }, "stream-prefix": "order-", "revision": { "field": "/v" },
        "previous": { "field": "/p" }, "id": { "attribute": "message-id" }, "type": { "value": "changed" },
        "time": { "field": "/at" }, "data": "/payload/0", "metadata": ["trace"], "offset": 1,
    }));
    let by_hand = Mapping::fields(Place::attribute("Key"))
        .stream_prefix("order-")
        .revision(Place::field("/v").unwrap())
        .previous(Place::field("/p").unwrap())
        .id(Place::attribute("message-id"))
        .kind(Place::value("changed"))
        .time(Place::field("/at").unwrap())
        .data(Pointer::new("/payload/0").unwrap())
        .metadata(["trace"])
        .offset(1);
    let mapping = fields.unwrap();
    assert_eq!(mapping, by_hand.into());

    let message = Message::new(r#"{"v":0,"p":-1,"at":1500,"payload":[{"b":1.0,"a":2}]}"#)
        .with("key", "17")
        .with("message-id", "m")
        .with("trace", "t");
    let delivery = mapping.map(&message, now()).unwrap();
    assert_eq!((delivery.stream.as_str(), delivery.entry.id.as_str()), ("order-17", "m"));
    assert_eq!((delivery.revision, delivery.previous), (Some(Revision(1)), Some(Revision(0))));
    assert_eq!(delivery.entry.time.to_string(), "1970-01-01T00:00:01.5Z");
    assert_eq!(delivery.entry.data.as_str(), r#"{"b":1.0,"a":2}"#);
    assert_eq!(delivery.entry.metadata.as_ref().unwrap().as_str(), r#"{"trace":"t"}"#);

    for (wrong, expected) in [
        (json!({ "format": "xml" }), "unknown variant `xml`"),
        (json!({ "format": "fields" }), "missing field `stream`"),
        (json!({ "format": "cloudevents", "steam": "x" }), "unknown field `steam`"),
        (json!({ "format": "fields", "stream": { "field": "id" } }), "begins with /"),
        (json!({ "format": "fields", "stream": { "field": "/a~2" } }), "no other use of ~"),
    ] {
        let error = configured(wrong).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn fields_that_are_missing_are_named() {
    let mapping: Mapping = Mapping::fields(Place::field("/id").unwrap()).into();
    let why = |content: &str| mapping.map(&Message::new(content), now()).unwrap_err().to_string();
    assert!(
        why("{}").contains("invalid stream \"\": expected a value at /id in the content, which is missing")
    );
    assert!(why(r#"{"id":null}"#).contains("/id"));
    assert!(why(r#"{"id":{}}"#).contains("invalid stream \"{}\": expected a string"));
    assert!(why(r#"{"id":"a"}"#).contains("invalid event id"));
    assert!(why("nonsense").contains("invalid content"));
    assert!(why(r#"{"id":"a","id":"b"}"#).contains("occurs twice"));
    let by_key: Mapping = Mapping::fields(Place::attribute("key")).into();
    assert!(
        by_key.map(&Message::new("{}"), now()).unwrap_err().to_string().contains("the attribute \"key\"")
    );
}

#[test]
fn pointers_are_those_of_rfc_6901() {
    let root = raw::json(br#"{"foo":["bar","baz"],"":0,"a/b":1,"m~n":8,"01":9,"x":{"y":"z"}}"#).unwrap();
    let found =
        |pointer: &str| Pointer::new(pointer).unwrap().find(root).unwrap().map(|raw| raw.get().to_owned());
    assert_eq!(found("/foo/1").as_deref(), Some("\"baz\""));
    assert_eq!(found("/").as_deref(), Some("0"));
    assert_eq!(found("/a~1b").as_deref(), Some("1"));
    assert_eq!(found("/m~0n").as_deref(), Some("8"));
    assert_eq!(found("/x/y").as_deref(), Some("\"z\""));
    for none in ["/foo/01", "/foo/2", "/foo/-", "/foo/+1", "/x/y/z", "/no"] {
        assert_eq!(found(none), None, "{none}");
    }
    assert_eq!(Pointer::new("/a~1b/m~0n").unwrap().to_string(), "/a~1b/m~0n");
}

/// JSON-like text: an event with pieces of it replaced, cut or repeated.
fn mangled() -> impl Strategy<Value = Vec<u8>> {
    let text = event().to_string().into_bytes();
    let edit = (any::<prop::sample::Index>(), 0..4_usize, prop::collection::vec(any::<u8>(), 0..6));
    prop::collection::vec(edit, 0..4).prop_map(move |edits| {
        let mut bytes = text.clone();
        for (at, length, with) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, with);
        }
        bytes
    })
}

proptest! {
    /// Every input gets a result without a panic, and accepted events follow the rules for names.
    #[test]
    fn nothing_panics(
        content in prop_oneof![mangled(), prop::collection::vec(any::<u8>(), 0..200)],
        attributes in prop::collection::btree_map("(ce-|ce_|cloudevents:|)(id|type|source|subject|specversion|sequence|time|\\PC*)", "(1.0|[0-9]{1,25}|%[0-9a-f]{0,2}|\\PC{0,9}|[\\x00-\\x1f])", 0..8),
        kind in prop::option::of("(application/(cloudevents\\+json|json|xml)|text/plain|\\PC*)"),
    ) {
        let mut message = Message { content, attributes };
        if let Some(kind) = kind {
            message = message.with("content-type", kind);
        }
        let fields: Mapping = Mapping::fields(Place::field("/subject").unwrap()).revision(Place::field("/sequence").unwrap()).into();
        for mapping in [Mapping::default(), fields] {
            if let Ok(delivery) = mapping.map(&message, now()) {
                prop_assert!(!delivery.stream.as_str().is_empty());
                prop_assert!(!delivery.stream.as_str().chars().any(char::is_control));
                prop_assert!(leftfold::Json::parse(delivery.entry.data.as_str()).is_ok());
            }
        }
    }

    /// An event in binary mode equals the same event in structured mode.
    #[test]
    fn modes_agree(id in "[!-~]{1,20}", subject in "\\PC{1,20}", number in 1..u64::from(u32::MAX), extension in "\\PC{0,20}") {
        let event = json!({
            "specversion": "1.0", "id": id, "source": "/", "type": "t", "subject": subject, "sequence": number,
            "extension": extension, "data": [number],
        });
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let binary = Message::new(format!("[{number}]"))
            .with("content-type", "application/json")
            .with("ce-specversion", "1.0")
            .with("ce-id", encoded(&id))
            .with("ce-source", "/")
            .with("ce-type", "t")
            .with("ce-subject", encoded(&subject))
            .with("ce-sequence", number.to_string())
            .with("ce-extension", encoded(&extension));
        prop_assert_eq!(map(&structured(&event)).unwrap(), map(&binary).unwrap());
    }
}
