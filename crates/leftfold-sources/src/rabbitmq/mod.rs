//! RabbitMQ, or another broker that speaks AMQP 0-9-1: a consumer of a queue with manual
//! acknowledgement.
//!
//! Refused messages stay unacknowledged in the consumer until they are due. If they were requeued,
//! the broker would redeliver them at once. That counts against the delivery limit after which some
//! queues drop a message. When the connection ends, the broker requeues all unacknowledged
//! messages.

mod consumer;
mod message;

pub use self::consumer::RabbitMq;
