//! TensorBoard event files.
//!
//! An event file is a sequence of TFRecords (length, masked CRC-32C of the length, payload, masked CRC-32C of the
//! payload; little-endian), each an `Event` message of `tensorflow/core/util/event.proto`. The messages are few and
//! small, so this module encodes them itself. One event holds all numbers of a round, so that a round is either in the
//! file completely or not at all.

use super::sink::LastRecorded;
use super::tags::tag;
use super::{Histogram, MetricValues, unix_time};
use crate::error::{Error, Result};
use crate::files::ensure_directory;
use crate::write_point::reached;
use sgs_base::host::host_name;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Part of every event file's name.
const EVENT_FILE: &str = "events.out.tfevents.";
const VERSION: &str = "brain.Event:2";

/// Writes event files into a directory. Each process starts a new file; TensorBoard joins them.
///
/// The sink does not read earlier files. The caller passes the last round and evaluation that were recorded.
#[derive(Debug)]
pub struct TensorBoardSink {
    directory: PathBuf,
    /// Created with the first event, so that opening a finished run leaves no empty file.
    file: Option<(PathBuf, File)>,
    recorded: LastRecorded,
}

impl TensorBoardSink {
    /// Opens the directory, or creates it. `recorded` has the last round and evaluation of earlier processes. It is ignored if
    /// the directory has no event files, so that a deleted directory is written again from the first round.
    pub fn open(directory: &Path, recorded: LastRecorded) -> Result<Self> {
        ensure_directory(directory)?;
        let is_empty = event_files(directory)? == 0;
        let recorded = if is_empty { LastRecorded::default() } else { recorded };
        Ok(Self { directory: directory.to_path_buf(), file: None, recorded })
    }

    /// Returns the last round and evaluation in the directory.
    pub fn recorded(&self) -> LastRecorded {
        self.recorded
    }

    /// Writes a round or evaluation that is not recorded yet.
    pub fn record(&mut self, metrics: &MetricValues) -> Result<()> {
        if !self.recorded.note(metrics) {
            return Ok(());
        }
        let record = tf_record(&event_message(metrics));
        let (path, file) = self.file()?;
        reached("tensorboard.append", path)?;
        file.write_all(&record).map_err(Error::io("write", path))?;
        reached("tensorboard.flush", path)?;
        file.sync_data().map_err(Error::io("flush", path))
    }

    /// Returns the open file. A new file gets a name that sorts after all earlier ones.
    fn file(&mut self) -> Result<&mut (PathBuf, File)> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.create_file()?,
        };
        Ok(self.file.insert(file))
    }

    fn create_file(&self) -> Result<(PathBuf, File)> {
        let serial = event_files(&self.directory)?;
        let seconds = unix_time() as u64;
        let name = format!("{EVENT_FILE}{seconds:010}.{}.{}.{serial}", host_name(), std::process::id());
        let path = self.directory.join(name);
        let mut file =
            File::options().append(true).create_new(true).open(&path).map_err(Error::io("create", &path))?;
        let mut head = ProtoMessage::default();
        head.double(1, unix_time()).text(3, VERSION);
        file.write_all(&tf_record(&head.0)).map_err(Error::io("write", &path))?;
        Ok((path, file))
    }
}

/// Counts the event files in a directory.
fn event_files(directory: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let name = entry.map_err(Error::io("list", directory))?.file_name();
        count += usize::from(name.to_string_lossy().contains(EVENT_FILE));
    }
    Ok(count)
}

/// Encodes a protocol buffer message.
#[derive(Default)]
struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
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

/// Encodes `Event { wall_time = 1, step = 2, summary = 5 }` with `Summary { repeated Value value = 1 }`.
fn event_message(metrics: &MetricValues) -> Vec<u8> {
    let mut summary = ProtoMessage::default();
    for (name, &value) in &metrics.scalars {
        let mut message = ProtoMessage::default();
        message.text(1, &tag(name)).float(2, value as f32);
        summary.bytes(1, &message.0);
    }
    for (name, histogram) in metrics.histograms.iter().filter(|(_, h)| h.is_valid()) {
        let mut message = ProtoMessage::default();
        message.text(1, &tag(name)).bytes(5, &histogram_message(histogram));
        summary.bytes(1, &message.0);
    }
    let mut event = ProtoMessage::default();
    event.double(1, metrics.unix_time).integer(2, metrics.round.into()).bytes(5, &summary.0);
    event.0
}

/// Encodes a `HistogramProto`. The sums are approximated from the midpoints of the bins; only TensorBoard's legacy
/// plots use them. The message's minimum is the lower bound of the first bin.
fn histogram_message(histogram: &Histogram) -> Vec<u8> {
    let middles = histogram.edges.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
    let (mut number, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (middle, &count) in middles.zip(&histogram.counts) {
        number += count as f64;
        sum += middle * count as f64;
        squares += middle * middle * count as f64;
    }
    let mut message = ProtoMessage::default();
    message
        .double(1, histogram.edges[0])
        .double(2, histogram.edges[histogram.counts.len()])
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

/// Computes TFRecord's masked checksum: CRC-32C, rotated and offset, so that data that contains checksums can be
/// checksummed.
fn masked_crc(bytes: &[u8]) -> u32 {
    const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    CRC.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_follow_the_format() {
        // The check value of CRC-32C, and the head that TensorFlow writes for a record of 24 bytes.
        assert_eq!(crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(b"123456789"), 0xe306_9283);
        assert_eq!(masked_crc(&24u64.to_le_bytes()).to_le_bytes(), [0xa3, 0x7f, 0x4b, 0x22]);
    }
}
