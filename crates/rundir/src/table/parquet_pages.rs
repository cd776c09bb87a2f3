//! What the pages of a Parquet file unpack to, as their own headers say.
//!
//! Pages are unpacked whole, into a buffer of the size that their header names. What the file's metadata says of whole
//! columns binds nobody, so the headers are read before anything is unpacked.

use super::parquet_failed as failed;
use crate::error::{Error, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// Largest pages of a group of rows, unpacked, the largest of each column together: so much is in memory at a time.
const LARGEST_PAGES: u64 = 512 << 20;
/// Rows that are read at a time may take so many bytes, if each is as large as a page.
const BATCH_BYTES: u64 = 256 << 20;
/// Most rows that are read at a time.
const BATCH_ROWS: u64 = 1024;
/// Structures in structures of a page's header; the format has four.
const DEEPEST: u8 = 16;

/// A Parquet file whose pages are not too large.
pub struct ParquetFile {
    pub reader: SerializedFileReader<File>,
    /// How many rows may be read at a time.
    pub rows_at_once: usize,
}

impl ParquetFile {
    /// Opens a file and reads the headers of its pages.
    ///
    /// # Errors
    /// It is no Parquet file, or has pages that are too large.
    pub fn open(path: &Path) -> Result<Self> {
        guarded(path, || Self::open_unguarded(path))
    }

    fn open_unguarded(path: &Path) -> Result<Self> {
        let open = || File::open(path).map_err(Error::io("open", path));
        let reader = SerializedFileReader::new(open()?).map_err(failed(path))?;
        let mut input = BufReader::with_capacity(512, open()?);
        let mut largest = 1;
        for (number, group) in reader.metadata().row_groups().iter().enumerate() {
            let mut together = 0;
            for column in group.columns() {
                together += largest_pages(&mut input, column).map_err(|error| {
                    let what = format!("its pages cannot be found: {error}");
                    Error::damaged(path, what, "restore it from a copy or write it again")
                })?;
            }
            if together > LARGEST_PAGES {
                let what = format!(
                    "row group {number} has pages that unpack to {together} bytes, more than {LARGEST_PAGES}: write \
                     smaller ones"
                );
                return Err(Error::Table { path: path.to_path_buf(), row: None, what });
            }
            largest = largest.max(together);
        }
        let rows_at_once = (BATCH_BYTES / largest).clamp(1, BATCH_ROWS) as usize;
        Ok(Self { reader, rows_at_once })
    }
}

/// The library panics on some damaged files; here they are errors like any other. What was being read is dropped.
///
/// # Errors
/// It panicked, or those of `read`.
pub fn guarded<T, E: From<Error>>(path: &Path, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let what = "its metadata or pages contradict each other";
        Err(Error::damaged(path, what, "restore it from a copy or write it again").into())
    })
}

/// The largest dictionary of a column and its largest other page, together, unpacked.
fn largest_pages(input: &mut (impl Read + Seek), column: &ColumnChunkMetaData) -> io::Result<u64> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let (Ok(start), Ok(length)) = (u64::try_from(start), u64::try_from(column.compressed_size())) else {
        return Err(io::Error::new(ErrorKind::InvalidData, "a column has a negative place"));
    };
    let (mut dictionary, mut other, mut at) = (0, 0, 0);
    while at < length {
        input.seek(SeekFrom::Start(start.saturating_add(at)))?;
        let mut header = Compact { input: &mut *input, read: 0 };
        let page = header.page()?;
        at = at.saturating_add(header.read).saturating_add(page.packed);
        let largest = if page.is_dictionary { &mut dictionary } else { &mut other };
        *largest = page.unpacked.max(*largest);
    }
    Ok(dictionary + other)
}

/// What a page's header says.
#[derive(Debug, Default, PartialEq)]
struct PageSize {
    is_dictionary: bool,
    unpacked: u64,
    packed: u64,
}

/// The number of the type of pages that hold a dictionary.
const DICTIONARY: i64 = 2;

/// Thrift's compact protocol, as far as a page's header needs it.
struct Compact<R> {
    input: R,
    read: u64,
}

impl<R: Read> Compact<R> {
    fn page(&mut self) -> io::Result<PageSize> {
        let mut page = PageSize::default();
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (1..=3, 5) => {
                    let number = self.signed()?;
                    let size = u64::try_from(number);
                    match field {
                        1 => page.is_dictionary = number == DICTIONARY,
                        2 => page.unpacked = size.map_err(|_| odd("a page of negative size"))?,
                        _ => page.packed = size.map_err(|_| odd("a page of negative size"))?,
                    }
                }
                _ => self.skip(kind, 0)?,
            }
        }
        Ok(page)
    }

    /// The kind of a structure's next field, whose number `field` becomes; `None` at its end.
    fn field(&mut self, field: &mut i64) -> io::Result<Option<u8>> {
        let head = self.byte()?;
        let (delta, kind) = (head >> 4, head & 15);
        if kind == 0 {
            return Ok(None);
        }
        *field = if delta == 0 { self.signed()? } else { field.saturating_add(i64::from(delta)) };
        Ok(Some(kind))
    }

    fn skip(&mut self, kind: u8, depth: u8) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(odd("a header that is nested too deeply"));
        }
        match kind {
            // Truth values of fields stand in the kind.
            1 | 2 => Ok(()),
            3 => self.skip_bytes(1),
            4..=6 => self.varint().map(drop),
            7 => self.skip_bytes(8),
            8 => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            9 | 10 => self.skip_list(depth),
            12 => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(odd("a header with a field of an unknown kind")),
        }
    }

    fn skip_list(&mut self, depth: u8) -> io::Result<()> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        for _ in 0..count {
            match head & 15 {
                1 | 2 => self.skip_bytes(1)?,
                kind => self.skip(kind, depth + 1)?,
            }
        }
        Ok(())
    }

    fn skip_bytes(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.input).take(count), &mut io::sink())?;
        self.read += skipped;
        if skipped == count { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.input.read_exact(&mut byte)?;
        self.read += 1;
        Ok(byte[0])
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(odd("a number that does not end"))
    }

    fn signed(&mut self) -> io::Result<i64> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

fn odd(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(bytes: &[u8]) -> io::Result<PageSize> {
        Compact { input: bytes, read: 0 }.page()
    }

    #[test]
    fn a_header_is_read_whatever_stands_beside_the_sizes() {
        // Kind dictionary, 300 bytes in 20; a structure with a number, a text, a list and a truth value; a checksum.
        let header =
            [0x15, 4, 0x15, 0xd8, 4, 0x15, 40, 0x3c, 0x15, 2, 0x18, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x11, 0];
        let whole = [&header[..], &[0x15, 9, 0]].concat();
        assert_eq!(page(&whole).unwrap(), PageSize { is_dictionary: true, unpacked: 300, packed: 20 });
        for end in 0..whole.len() {
            assert!(page(&whole[..end]).is_err(), "{end}");
        }
        assert!(page(&[0x15, 4, 0x15, 1, 0]).is_err(), "a negative size");
        assert!(page(&[0x1c; 100]).is_err(), "structures without end");
        assert!(page(&[&[0x19, 0xf3][..], &[0xff; 9], &[1]].concat()).is_err(), "a list without end");
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = page(&bytes);
        }
    }
}
