//! The macros that declare tables of keys and choices of names.

/// Declares a table of keys as a struct that implements `Serialize`, `Deserialize` (unknown keys are errors, missing keys
/// have their defaults), `Default` and [`crate::KeyTable`]. The calling crate needs `serde`.
///
/// The documentation of this crate has an example and explains how to add a key.
#[macro_export]
macro_rules! table {
    (@default) => { ::core::default::Default::default() };
    (@default $default:expr) => { $default };

    (@allowed $type:ty) => { <$type as $crate::FixedDomain>::ALLOWED };
    (@allowed $type:ty, $allowed:expr) => { $crate::Allowed::from($allowed) };

    (@keys $keys:ident, $prefix:ident, $name:ident, $doc:expr, $type:ty) => {
        $keys.extend(<$type as $crate::KeyTable>::keys(&$crate::dotted($prefix, stringify!($name))))
    };
    (@keys $keys:ident, $prefix:ident, $name:ident, $doc:expr, $type:ty = $default:expr $(, $allowed:expr)?) => {
        $keys.push($crate::KeySpec::new::<$type>(
            $prefix,
            stringify!($name),
            $doc,
            $crate::table!(@allowed $type $(, $allowed)?),
            &$default,
        ))
    };

    (
        $(#[$meta:meta])*
        $visible:vis struct $table:ident {
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
        $visible struct $table {
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

        impl $crate::KeyTable for $table {
            fn keys(prefix: &str) -> ::std::vec::Vec<$crate::KeySpec> {
                let mut keys = ::std::vec::Vec::new();
                $($crate::table!(
                    @keys keys, prefix, $name, concat!($($doc),+), $type $(= $default $(, $allowed)?)?
                );)*
                keys
            }
        }
    };
}

/// Declares the type of a key that is one of several names, as an enum that implements `Serialize`, `Deserialize` and the
/// usual traits of a plain enum. The calling crate needs `serde`.
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

        impl $crate::FixedDomain for $choice {
            const ALLOWED: $crate::Allowed = $crate::Allowed::Names(&[$($name),*]);
        }
    };
}
