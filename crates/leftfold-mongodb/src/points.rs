//! Places in the code where a test can stop or end the process, by the names in `mongodb::…`. Without the feature
//! `failpoints` there is nothing at any of them.

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
