//! Macros shared by several crates.

/// Marks a point at which a test can abort the process, as SIGKILL would. Expands to nothing without the feature
/// `crash-points`.
#[cfg(feature = "crash-points")]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::fail::fail_point!($name, |_| std::process::abort());
    };
}

#[cfg(not(feature = "crash-points"))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {};
}

/// Defines metric names as constants, and a function `describe` that registers their doc comments as help texts.
#[macro_export]
macro_rules! describe_metrics {
    ($($(#[doc = $help:literal])+ $kind:ident $visibility:vis $constant:ident = $name:literal;)+) => {
        $($(#[doc = $help])+ $visibility const $constant: &str = $name;)+

        fn describe() {
            $(::metrics::$kind!($name, concat!($($help),+).trim_start());)+
        }
    };
}

/// Defines a struct of durations with defaults. Tests divide all of them by one number.
#[macro_export]
macro_rules! timing {
    ($(#[$meta:meta])* pub struct $Timing:ident {
        $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $Timing {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Default for $Timing {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl std::ops::Div<u32> for $Timing {
            type Output = Self;

            /// Divides every duration. Panics if the divisor is 0.
            fn div(self, divisor: u32) -> Self {
                Self { $($field: self.$field / divisor,)+ }
            }
        }
    };
}
