//! Rust types of table columns.

use super::{CellValue, ColumnType};
use sgs_selfplay::ProblemId;
use std::sync::Arc;

/// A type whose values are stored in one column.
pub trait Cell: Sized {
    /// Type of the column.
    const COLUMN: ColumnType;
    /// Whether values may be missing.
    const OPTIONAL: bool = false;

    /// Converts to the stored value.
    fn into_value(self) -> Result<CellValue, String>;

    /// Converts from the stored value.
    fn from_value(value: CellValue) -> Result<Self, String>;
}

macro_rules! direct {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl Cell for $type {
            const COLUMN: ColumnType = ColumnType::$variant;

            fn into_value(self) -> Result<CellValue, String> {
                Ok(CellValue::$variant(self))
            }

            fn from_value(value: CellValue) -> Result<Self, String> {
                match value {
                    CellValue::$variant(inner) => Ok(inner),
                    other => Err(mismatch(ColumnType::$variant, &other)),
                }
            }
        }
    )*};
}

direct! {
    Arc<str> => Str, i64 => I64, f64 => F64, bool => Bool,
    Vec<i32> => I32List, Vec<f32> => F32List, Vec<String> => StrList,
}

fn mismatch(column: ColumnType, found: &CellValue) -> String {
    format!("expected {}, found {}", column.as_str(), found.kind())
}

impl<T: Cell> Cell for Option<T> {
    const COLUMN: ColumnType = T::COLUMN;
    const OPTIONAL: bool = true;

    fn into_value(self) -> Result<CellValue, String> {
        self.map_or(Ok(CellValue::Null), T::into_value)
    }

    fn from_value(value: CellValue) -> Result<Self, String> {
        match value {
            CellValue::Null => Ok(None),
            other => T::from_value(other).map(Some),
        }
    }
}

/// Implements [`Cell`] for a type that is stored as another one.
macro_rules! through {
    ($type:ty, $inner:ty, $into:expr, $from:expr) => {
        impl Cell for $type {
            const COLUMN: ColumnType = <$inner as Cell>::COLUMN;

            fn into_value(self) -> Result<CellValue, String> {
                let convert: fn($type) -> Result<$inner, String> = $into;
                convert(self)?.into_value()
            }

            fn from_value(value: CellValue) -> Result<Self, String> {
                let convert: fn($inner) -> Result<$type, String> = $from;
                convert(<$inner as Cell>::from_value(value)?)
            }
        }
    };
}

through!(String, Arc<str>, |text| Ok(text.into()), |text| Ok((*text).to_owned()));
through!(ProblemId, Arc<str>, |id| Ok(id.0), |text| Ok(ProblemId(text)));
through!(u32, i64, |n| Ok(n.into()), |n| u32::try_from(n)
    .map_err(|_| format!("{n} does not fit into 32 bits")));
// Seeds use all 64 bits. Numbers from 2^63 on are stored as the negative number with the same bits.
through!(u64, i64, |n| Ok(n.cast_signed()), |n| Ok(n.cast_unsigned()));
through!(f32, f64, |x| Ok(x.into()), |x| Ok(x as f32));
through!(Vec<u32>, Vec<i32>, |list| unsigned_to_signed(&list), |list| signed_to_unsigned(&list));
through!(Arc<[u32]>, Vec<i32>, |list| unsigned_to_signed(&list), |list| {
    signed_to_unsigned(&list).map(Arc::from)
});

fn unsigned_to_signed(list: &[u32]) -> Result<Vec<i32>, String> {
    list.iter().map(|&n| i32::try_from(n).map_err(|_| format!("{n} does not fit into 31 bits"))).collect()
}

fn signed_to_unsigned(list: &[i32]) -> Result<Vec<u32>, String> {
    list.iter().map(|&n| u32::try_from(n).map_err(|_| format!("{n} is negative"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{ConjectureRowStatus, EvaluatedSet};
    use sgs_selfplay::{FinishReason, Verdict};

    #[test]
    fn names_are_written_and_read() {
        fn check<T: Cell + Copy + PartialEq + std::fmt::Debug>(values: &[(T, &str)]) {
            for (value, name) in values {
                let name = CellValue::Str((*name).into());
                assert_eq!(value.into_value().as_ref(), Ok(&name));
                assert_eq!(T::from_value(name), Ok(*value));
            }
        }
        use FinishReason as F;
        check(&[
            (F::Stop, "stop"),
            (F::Length, "length"),
            (F::Refused, "refused"),
            (F::Cancelled, "cancelled"),
        ]);
        check(&[(Verdict::Proved, "proved"), (Verdict::Resource, "resource"), (Verdict::Infra, "infra")]);
        check(&[(EvaluatedSet::HeldOut, "held-out"), (EvaluatedSet::Targets, "targets")]);
        let statuses = [ConjectureRowStatus::Accepted, ConjectureRowStatus::Lost];
        check(&statuses.map(|status| (status, status.name())));
        assert!(Verdict::from_value(CellValue::Str("perhaps".into())).unwrap_err().contains("perhaps"));
    }

    #[test]
    fn extreme_numbers_survive_or_are_rejected() {
        assert_eq!(u64::from_value(u64::MAX.into_value().unwrap()), Ok(u64::MAX));
        assert_eq!(u32::from_value(u32::MAX.into_value().unwrap()), Ok(u32::MAX));
        assert!(u32::from_value(CellValue::I64(-1)).is_err());
        assert!(vec![1u32, 1 << 31].into_value().is_err());
        assert!(<Vec<u32>>::from_value(CellValue::I32List(vec![-1])).is_err());
        assert!(i64::from_value(CellValue::Bool(true)).unwrap_err().contains("expected i64, found bool"));
    }
}
