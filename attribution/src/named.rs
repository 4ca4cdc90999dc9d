//! Enums whose variants have names, for rows, metrics and parameters.

/// Defines an enum with a name for each variant: adds `ALL` (in declaration order), `name` and `from_name`.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $visibility:vis enum $Enum:ident {
        $($(#[$doc:meta])* $Variant:ident = $name:literal,)+
    }) => {
        $(#[$meta])*
        $visibility enum $Enum {
            $($(#[$doc])* $Variant,)+
        }

        impl $Enum {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            #[inline]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }

            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$Variant),)+
                    _ => None,
                }
            }
        }
    };
}
