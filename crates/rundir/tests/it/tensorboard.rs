//! Reads TensorBoard event files, independently of the writer.

use sgs_rundir::Histogram;
use std::fs;
use std::path::{Path, PathBuf};

/// One event that was read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorBoardEvent {
    /// Seconds since 1970.
    pub wall_time: f64,
    /// The step, which is the round.
    pub step: i64,
    /// Values by name; empty for the event at the beginning of a file.
    pub values: Vec<(String, TensorBoardValue)>,
}

/// A value of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorBoardValue {
    /// A number.
    Scalar(f32),
    /// A histogram.
    Histogram(Histogram),
}

/// Reads the complete records of an event file and ignores a torn one at its end. Panics on a corrupt record.
pub fn read_events(path: &Path) -> Vec<TensorBoardEvent> {
    let bytes = fs::read(path).unwrap();
    let (mut events, mut at) = (Vec::new(), 0);
    while let Some(record) = next_record(&bytes[at..]) {
        events.push(parse_event(record).unwrap());
        at += record.len() + 16;
    }
    events
}

/// Returns the payload of the first record in `bytes`, or `None` if it is incomplete.
fn next_record(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    assert_eq!(u32::from_le_bytes(*crc), masked_crc(length));
    let (payload, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    assert_eq!(u32::from_le_bytes(*rest.first_chunk::<4>()?), masked_crc(payload));
    Some(payload)
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A field of a protocol buffer.
enum Wire<'a> {
    Integer(u64),
    Double(f64),
    Bytes(&'a [u8]),
    Float(f32),
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take_field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let tag = take_varint(bytes)?;
    let wire = match tag & 7 {
        0 => Wire::Integer(take_varint(bytes)?),
        1 => Wire::Double(f64::from_le_bytes(take_chunk(bytes)?)),
        2 => {
            let length = usize::try_from(take_varint(bytes)?).ok()?;
            let (head, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Wire::Bytes(head)
        }
        5 => Wire::Float(f32::from_le_bytes(take_chunk(bytes)?)),
        _ => return None,
    };
    Some((tag >> 3, wire))
}

fn take_chunk<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

fn parse_event(mut bytes: &[u8]) -> Option<TensorBoardEvent> {
    let mut event = TensorBoardEvent::default();
    while !bytes.is_empty() {
        match take_field(&mut bytes)? {
            (1, Wire::Double(wall_time)) => event.wall_time = wall_time,
            (2, Wire::Integer(step)) => event.step = step.cast_signed(),
            (5, Wire::Bytes(mut summary)) => {
                while !summary.is_empty() {
                    if let (1, Wire::Bytes(value)) = take_field(&mut summary)? {
                        event.values.extend(parse_value(value)?);
                    }
                }
            }
            _ => {}
        }
    }
    Some(event)
}

/// Parses a value. Returns `Some(None)` for a value of an unknown kind.
fn parse_value(mut bytes: &[u8]) -> Option<Option<(String, TensorBoardValue)>> {
    let (mut name, mut value) = (String::new(), None);
    while !bytes.is_empty() {
        match take_field(&mut bytes)? {
            (1, Wire::Bytes(text)) => name = String::from_utf8(text.to_vec()).ok()?,
            (2, Wire::Float(number)) => value = Some(TensorBoardValue::Scalar(number)),
            (5, Wire::Bytes(message)) => {
                value = Some(TensorBoardValue::Histogram(parse_histogram(message)?));
            }
            _ => {}
        }
    }
    Some(value.map(|value| (name, value)))
}

fn parse_histogram(mut bytes: &[u8]) -> Option<Histogram> {
    let mut histogram = Histogram { edges: vec![0.0], counts: Vec::new() };
    while !bytes.is_empty() {
        match take_field(&mut bytes)? {
            (1, Wire::Double(minimum)) => histogram.edges[0] = minimum,
            (6, Wire::Bytes(packed)) => histogram.edges.extend(parse_doubles(packed)?),
            (7, Wire::Bytes(packed)) => {
                histogram.counts.extend(parse_doubles(packed)?.into_iter().map(|count| count as u64));
            }
            _ => {}
        }
    }
    Some(histogram)
}

fn parse_doubles(bytes: &[u8]) -> Option<Vec<f64>> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| chunks.iter().map(|c| f64::from_le_bytes(*c)).collect())
}

/// Returns the event files of a directory, in the order of their names.
pub fn event_files(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

mod tests {
    use super::*;
    use sgs_rundir::metrics::{LastRecorded, MetricValues, TensorBoardSink};

    fn metrics(round: u32) -> MetricValues {
        let mut metrics = MetricValues::new(round);
        metrics.set("targets/solve_rate", 0.25 * f64::from(round));
        metrics.set("loss", f64::NAN);
        metrics.set_histogram("targets/solve_rates", Histogram::equal_width(-0.25, 0.5, vec![1, 2, 1]));
        metrics
    }

    #[test]
    fn each_process_adds_a_file_with_its_rounds() {
        let dir = tempfile::tempdir().unwrap();
        for rounds in [1..=2u32, 3..=3] {
            let recorded = LastRecorded { round: Some(rounds.start() - 1), evaluation: None };
            let mut sink = TensorBoardSink::open(dir.path(), recorded).unwrap();
            for round in rounds {
                sink.record(&metrics(round)).unwrap();
            }
        }
        let files = event_files(dir.path());
        assert_eq!(files.len(), 2);
        let events: Vec<_> = files.iter().flat_map(|f| read_events(f)).collect();
        let steps: Vec<_> = events.iter().filter(|e| !e.values.is_empty()).map(|e| e.step).collect();
        assert_eq!(steps, [1, 2, 3]);
        let last = &events[events.len() - 1].values;
        let value = |name: &str| last.iter().find(|(n, _)| n == name).map(|(_, v)| v).unwrap();
        assert_eq!(value("targets/solve_rate"), &TensorBoardValue::Scalar(0.75));
        assert!(matches!(value("run/loss"), TensorBoardValue::Scalar(x) if x.is_nan()));
        let expected = metrics(3).histograms["targets/solve_rates"].clone();
        assert_eq!(value("targets/solve_rates"), &TensorBoardValue::Histogram(expected));
    }
}
