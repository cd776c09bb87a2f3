//! TensorBoard event files.
//!
//! An event file is a sequence of TFRecords (length, masked CRC-32C of the length, payload, masked CRC-32C of the
//! payload; little-endian), each an `Event` message of `tensorflow/core/util/event.proto`. The messages are few and
//! small, so that they are written and read here field by field. One event holds all numbers of a round: a round is
//! in the file whole or not at all.

use super::sink::Lasts;
use super::tags::tag;
use super::{Histogram, MetricKind, MetricSink, MetricValues, names, unix_time};
use crate::error::{Error, Result};
use crate::files::ensure_directory;
use crate::lock::host_name;
use crate::write_point::reached;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What the names of event files contain.
const EVENT_FILE: &str = "events.out.tfevents.";
const VERSION: &str = "brain.Event:2";

/// Writes event files into a directory. Each opening begins a new file; TensorBoard joins them.
#[derive(Debug)]
pub struct TensorBoardSink {
    directory: PathBuf,
    /// Made with the first round, so that opening a finished run leaves no empty file.
    file: Option<(PathBuf, File)>,
    lasts: Lasts,
}

impl TensorBoardSink {
    /// Opens the directory, made if it is missing, and finds the last round that earlier event files hold.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn open(directory: &Path) -> Result<Self> {
        ensure_directory(directory)?;
        let mut lasts = Lasts::default();
        for path in event_files(directory)? {
            for event in read_events(&path)? {
                if let (Some(kind), Ok(step)) = (kind_of(&event), u32::try_from(event.step)) {
                    lasts.note(kind, step);
                }
            }
        }
        Ok(Self { directory: directory.to_path_buf(), file: None, lasts })
    }

    /// The open file; a new one gets a name that sorts after all earlier ones.
    fn file(&mut self) -> Result<&mut (PathBuf, File)> {
        if self.file.is_none() {
            let serial = event_files(&self.directory)?.len();
            let seconds = unix_time() as u64;
            let name = format!("{EVENT_FILE}{seconds:010}.{}.{}.{serial}", host_name(), std::process::id());
            let path = self.directory.join(name);
            let mut file = File::options()
                .append(true)
                .create_new(true)
                .open(&path)
                .map_err(Error::io("create", &path))?;
            let mut head = Message::default();
            head.double(1, unix_time()).text(3, VERSION);
            file.write_all(&tf_record(&head.0)).map_err(Error::io("write", &path))?;
            self.file = Some((path, file));
        }
        self.file.as_mut().ok_or_else(|| Error::Schema("no event file".into()))
    }
}

impl MetricSink for TensorBoardSink {
    fn name(&self) -> &str {
        "TensorBoard"
    }

    fn last(&self, kind: MetricKind) -> Option<u32> {
        self.lasts.of(kind)
    }

    fn record(&mut self, metrics: &MetricValues) -> Result<()> {
        let record = tf_record(&event_message(metrics));
        let (path, file) = self.file()?;
        reached("tensorboard.append", path)?;
        file.write_all(&record).map_err(Error::io("write", path))?;
        reached("tensorboard.flush", path)?;
        file.sync_data().map_err(Error::io("flush", path))?;
        self.lasts.note(metrics.kind, metrics.round);
        Ok(())
    }
}

/// What an event is of; `None` for a file's head.
fn kind_of(event: &TensorBoardEvent) -> Option<MetricKind> {
    let (first, _) = event.values.first()?;
    let evaluation = names::EVALUATION_GROUPS.iter().any(|group| first.starts_with(group));
    Some(if evaluation { MetricKind::Evaluation } else { MetricKind::Round })
}

fn event_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let path = entry.map_err(Error::io("list", directory))?.path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().contains(EVENT_FILE)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

// --- Writing messages ------------------------------------------------------------------------------------------

/// A protocol buffer that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire_type: u8) {
        self.varint(u64::from(field) << 3 | u64::from(wire_type));
    }

    fn integer(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, 0);
        self.varint(value);
        self
    }

    fn double(&mut self, field: u32, value: f64) -> &mut Self {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(&mut self, field: u32, value: f32) -> &mut Self {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    fn doubles(&mut self, field: u32, values: impl Iterator<Item = f64>) -> &mut Self {
        let packed: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
        self.bytes(field, &packed)
    }
}

/// `Event { wall_time = 1, step = 2, summary = 5 }` with `Summary { repeated Value value = 1 }`.
fn event_message(metrics: &MetricValues) -> Vec<u8> {
    let mut summary = Message::default();
    for (name, &value) in &metrics.scalars {
        let mut message = Message::default();
        message.text(1, &tag(name)).float(2, value as f32);
        summary.bytes(1, &message.0);
    }
    for (name, histogram) in metrics.histograms.iter().filter(|(_, h)| h.is_valid()) {
        let mut message = Message::default();
        message.text(1, &tag(name)).bytes(5, &histogram_message(histogram));
        summary.bytes(1, &message.0);
    }
    let mut event = Message::default();
    event.double(1, metrics.unix_time).integer(2, metrics.round.into()).bytes(5, &summary.0);
    event.0
}

/// `HistogramProto`: the sums, which only TensorBoard's own old plots use, are taken at the intervals' middles. The
/// first bucket's lower bound is the message's minimum.
fn histogram_message(histogram: &Histogram) -> Vec<u8> {
    let middles = histogram.edges.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
    let (mut number, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (middle, &count) in middles.zip(&histogram.counts) {
        number += count as f64;
        sum += middle * count as f64;
        squares += middle * middle * count as f64;
    }
    let mut message = Message::default();
    message
        .double(1, histogram.edges.first().copied().unwrap_or_default())
        .double(2, histogram.edges.last().copied().unwrap_or_default())
        .double(3, number)
        .double(4, sum)
        .double(5, squares)
        .doubles(6, histogram.edges.iter().skip(1).copied())
        .doubles(7, histogram.counts.iter().map(|&count| count as f64));
    message.0
}

fn tf_record(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(payload.len() + 16);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(payload);
    record.extend(masked_crc(payload).to_le_bytes());
    record
}

/// TFRecord's checksum: CRC-32C, rotated and offset so that checksums of checksummed data stay sound.
fn masked_crc(bytes: &[u8]) -> u32 {
    const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    CRC.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

// --- Reading ---------------------------------------------------------------------------------------------------

/// One event that was read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorBoardEvent {
    /// Seconds since 1970.
    pub wall_time: f64,
    /// The step: here the round.
    pub step: i64,
    /// Values by name; empty for the event at a file's head.
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

/// Reads the whole records of an event file; a torn end is left out.
///
/// # Errors
/// The file cannot be read, or a whole record is corrupt.
pub fn read_events(path: &Path) -> Result<Vec<TensorBoardEvent>> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    let corrupt = |at: usize| {
        let what = format!("the record at byte {at} is corrupt");
        Error::damaged(path, what, "move it away: the metrics themselves stand in the rounds")
    };
    let (mut events, mut at) = (Vec::new(), 0);
    while let Some(record) = next_record(&bytes[at..]).map_err(|()| corrupt(at))? {
        events.push(parse_event(record).ok_or_else(|| corrupt(at))?);
        at += record.len() + 16;
    }
    Ok(events)
}

/// The payload of the record at the head of `bytes`; `None` if it is torn or absent.
fn next_record(bytes: &[u8]) -> Result<Option<&[u8]>, ()> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
    let Some((crc, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    if u32::from_le_bytes(*crc) != masked_crc(length) {
        return Err(());
    }
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(drop)?;
    let Some((payload, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    let Some(crc) = rest.first_chunk::<4>() else { return Ok(None) };
    if u32::from_le_bytes(*crc) == masked_crc(payload) { Ok(Some(payload)) } else { Err(()) }
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

/// A value of a kind that is known here; `Some(None)` for others.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn metrics(round: u32) -> MetricValues {
        let mut metrics = MetricValues::new(round);
        metrics.set("targets/solve_rate", 0.25 * f64::from(round));
        metrics.set("loss", f64::NAN);
        metrics.set_histogram("targets/solve_rates", Histogram::of_rates([0.0, 0.5, 0.5, 1.0], 2));
        metrics
    }

    #[test]
    fn checksums_are_those_of_the_format() {
        // The check value of CRC-32C, and the head that TensorFlow writes for a record of 24 bytes.
        assert_eq!(crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(b"123456789"), 0xe306_9283);
        assert_eq!(masked_crc(&24u64.to_le_bytes()).to_le_bytes(), [0xa3, 0x7f, 0x4b, 0x22]);
    }

    #[test]
    fn rounds_come_back_across_reopening() {
        let dir = tempfile::tempdir().unwrap();
        for rounds in [1..=2u32, 3..=3] {
            let mut sink = TensorBoardSink::open(dir.path()).unwrap();
            assert_eq!(sink.last(MetricKind::Round), rounds.start().checked_sub(1).filter(|&r| r > 0));
            for round in rounds {
                sink.record(&metrics(round)).unwrap();
            }
        }
        let files = event_files(dir.path()).unwrap();
        assert_eq!(files.len(), 2);
        let events: Vec<_> = files.iter().flat_map(|f| read_events(f).unwrap()).collect();
        let steps: Vec<_> = events.iter().filter(|e| !e.values.is_empty()).map(|e| e.step).collect();
        assert_eq!(steps, [1, 2, 3]);
        let last = &events[events.len() - 1].values;
        let value = |name: &str| last.iter().find(|(n, _)| n == name).map(|(_, v)| v).unwrap();
        assert_eq!(value("targets/solve_rate"), &TensorBoardValue::Scalar(0.75));
        assert!(matches!(value("run/loss"), TensorBoardValue::Scalar(x) if x.is_nan()));
        let expected = metrics(3).histograms["targets/solve_rates"].clone();
        assert_eq!(value("targets/solve_rates"), &TensorBoardValue::Histogram(expected));
    }

    proptest! {
        #[test]
        fn a_torn_or_altered_file_never_panics(cut in 0usize..2000, flip in 0usize..2000, bit in 0u8..8) {
            let mut bytes: Vec<u8> = (1..=3).flat_map(|r| tf_record(&event_message(&metrics(r)))).collect();
            let whole = bytes.len();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("events");
            bytes.truncate(whole.saturating_sub(cut));
            fs::write(&path, &bytes).unwrap();
            let events = read_events(&path).unwrap();
            let length = whole / 3;
            prop_assert_eq!(events.len(), bytes.len() / length);
            if !bytes.is_empty() {
                let at = flip % bytes.len();
                bytes[at] ^= 1 << bit;
                fs::write(&path, &bytes).unwrap();
                let read = read_events(&path);
                let in_whole_record = at < bytes.len() / length * length;
                prop_assert!(!in_whole_record || read.is_err());
            }
        }
    }
}
