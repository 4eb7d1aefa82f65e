//! Failpoints: places where a test can pause or end the process, named `sqlite::…`. Without the
//! feature `failpoints` they compile to nothing.

#[cfg(feature = "failpoints")]
macro_rules! point {
    ($name:literal) => {
        fail::fail_point!(concat!("sqlite::", $name))
    };
}

#[cfg(not(feature = "failpoints"))]
macro_rules! point {
    ($name:literal) => {};
}
