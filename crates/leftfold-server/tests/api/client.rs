//! A server for a shop, and requests to it.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use leftfold::{Leftfold, Memory};
use leftfold_server::{ServerLimits, Service, Stop, Token};
use serde_json::{Value, json};
use shopping_cart::{CartDetails, ClientSummary};
use tower::ServiceExt as _;

/// Returns a server for a shop.
pub(crate) async fn shop(tokens: Vec<Token>) -> (Router, Stop) {
    let app = Leftfold::on(Memory::default()).projection(CartDetails).projection(ClientSummary);
    let service = Service::new(app.start().await.unwrap()).await.unwrap();
    service.tokens(tokens).limits(ServerLimits { body: 10_000 }).router()
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if status >= 400 {
            assert_eq!(self.headers["content-type"], "application/problem+json");
            let problem = self.json();
            assert_eq!(problem["status"], status);
            assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        }
        if self.text.is_empty() { Value::Null } else { self.json() }
    }
}

pub(crate) async fn send(
    router: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response: Response<Body> =
        router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Answer { status: parts.status.as_u16(), headers: parts.headers, text }
}

pub(crate) async fn get(router: &Router, path: &str) -> Answer {
    send(router, "GET", path, &[], "").await
}

pub(crate) async fn post(router: &Router, path: &str, body: &Value) -> Answer {
    send(router, "POST", path, &[("content-type", "application/json")], &body.to_string()).await
}

pub(crate) fn opened() -> Value {
    json!({ "type": "shopping-cart-opened", "data": { "clientId": "ann" } })
}

pub(crate) fn added(quantity: u32) -> Value {
    let data = json!({ "productId": "shoes", "name": "Shoes", "quantity": quantity, "unitPrice": 4900 });
    json!({ "type": "product-item-added", "data": data })
}
