//! The macros that declare tables and choices.

/// Declares a table of keys. It gives the struct with `Serialize`, `Deserialize` (unknown keys are errors, keys that are
/// left out take their defaults), `Default` and [`crate::Table`]. The crate that uses it needs `serde`.
///
/// The crate's documentation has an example and says how to add a key.
#[macro_export]
macro_rules! table {
    (@default) => { ::core::default::Default::default() };
    (@default $default:expr) => { $default };

    (@allowed $type:ty) => { <$type as $crate::Closed>::ALLOWED };
    (@allowed $type:ty, $allowed:expr) => { $crate::Allowed::from($allowed) };

    (@keys $keys:ident, $prefix:ident, $name:ident, $doc:expr, $type:ty) => {
        $keys.extend(<$type as $crate::Table>::keys(&$crate::dotted($prefix, stringify!($name))))
    };
    (@keys $keys:ident, $prefix:ident, $name:ident, $doc:expr, $type:ty = $default:expr $(, $allowed:expr)?) => {
        $keys.push($crate::Key::new(
            $prefix,
            stringify!($name),
            $doc,
            $crate::table!(@allowed $type $(, $allowed)?),
        ))
    };

    (@check $value:expr, $prefix:ident, $name:ident, $type:ty) => {
        $crate::Table::check($value, &$crate::dotted($prefix, stringify!($name)))?
    };
    (@check $value:expr, $prefix:ident, $name:ident, $type:ty = $default:expr $(, $allowed:expr)?) => {
        $crate::check($value, $prefix, stringify!($name), &$crate::table!(@allowed $type $(, $allowed)?))?
    };

    (
        $(#[$meta:meta])*
        pub struct $table:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)*)])?
                pub $name:ident : $type:ty $(= $default:expr $(, in $allowed:expr)?)?
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $table {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)*)])?
                pub $name: $type,
            )*
        }

        impl ::core::default::Default for $table {
            fn default() -> Self {
                Self { $($name: $crate::table!(@default $($default)?),)* }
            }
        }

        impl $crate::Table for $table {
            fn keys(prefix: &str) -> ::std::vec::Vec<$crate::Key> {
                let mut keys = ::std::vec::Vec::new();
                $($crate::table!(
                    @keys keys, prefix, $name, concat!($($doc),+), $type $(= $default $(, $allowed)?)?
                );)*
                keys
            }

            fn check(&self, prefix: &str) -> ::core::result::Result<(), $crate::Refused> {
                $($crate::table!(@check &self.$name, prefix, $name, $type $(= $default $(, $allowed)?)?);)*
                Ok(())
            }
        }
    };
}

/// Declares a key's type that is one of a few names, with the names as they are written. It gives the enum with
/// `Serialize`, `Deserialize` and what a small plain enum derives. The crate that uses it needs `serde`.
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $choice:ident {
            $($(#[$about:meta])* $variant:ident = $name:literal),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $choice {
            $($(#[$about])* #[serde(rename = $name)] $variant,)*
        }

        impl $crate::Leaf for $choice {
            fn refused_by(&self, _: &$crate::Allowed) -> ::core::option::Option<::std::string::String> {
                // Only the names can be read.
                None
            }
        }

        impl $crate::Closed for $choice {
            const ALLOWED: $crate::Allowed = $crate::Allowed::Names(&[$($name),*]);
        }
    };
}
