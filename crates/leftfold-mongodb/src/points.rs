//! Failpoints: places where a test can pause or end the process, named `mongodb::…`. Without the
//! feature `failpoints` they compile to nothing.

#[cfg(feature = "failpoints")]
macro_rules! point {
    ($name:literal) => {
        fail::fail_point!(concat!("mongodb::", $name))
    };
}

#[cfg(not(feature = "failpoints"))]
macro_rules! point {
    ($name:literal) => {};
}
