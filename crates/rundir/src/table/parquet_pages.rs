//! Opens Parquet files within bounded memory, and turns panics of the Parquet library into errors.
//!
//! The library decompresses each page into a buffer whose size it takes from the page's header. The sizes in the file's
//! metadata are not binding, so the page headers are read before anything is decompressed. The library does not expose
//! them; this module therefore decodes their Thrift encoding itself.

use crate::error::{Error, Result};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::any::Any;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Largest allowed sum, over the columns of a row group, of each column's largest decompressed pages, in bytes.
const MAX_PAGE_BYTES: u64 = 512 << 20;
/// Memory budget for the rows that are read at once, in bytes, if each row is as large as a page.
const BATCH_BYTES: u64 = 256 << 20;
/// Maximum number of rows that are read at once.
const MAX_BATCH_ROWS: u64 = 1024;
/// Maximum nesting depth of structures in a page header. The format uses four levels.
const MAX_DEPTH: u8 = 16;

/// An open Parquet file whose decompressed pages are within the size limit.
pub struct ParquetFile {
    /// The library's reader. Call it through [`call_library`] only.
    pub reader: SerializedFileReader<File>,
    /// Number of rows that fit into memory at once.
    pub batch_rows: usize,
}

impl ParquetFile {
    /// Opens a file and checks the sizes in its page headers.
    ///
    /// # Errors
    /// Returns an error if the file is not a Parquet file, is damaged, or has pages that are too large.
    pub fn open(path: &Path) -> Result<Self> {
        let open = || File::open(path).map_err(Error::io("open", path));
        let file = open()?;
        let reader = call_library(path, || SerializedFileReader::new(file))?;
        let mut input = BufReader::with_capacity(512, open()?);
        let mut largest = 1;
        for (number, group) in reader.metadata().row_groups().iter().enumerate() {
            let mut page_bytes = 0;
            for column in group.columns() {
                page_bytes += largest_pages(&mut input, column).map_err(|error| {
                    Error::damaged(path, format!("its pages cannot be found: {error}"), RESTORE)
                })?;
            }
            if page_bytes > MAX_PAGE_BYTES {
                let what = format!(
                    "row group {number} has pages that unpack to {page_bytes} bytes, more than {MAX_PAGE_BYTES}: write \
                     the file with smaller pages"
                );
                return Err(Error::Table { path: path.to_path_buf(), row: None, what });
            }
            largest = largest.max(page_bytes);
        }
        let batch_rows = (BATCH_BYTES / largest).clamp(1, MAX_BATCH_ROWS) as usize;
        Ok(Self { reader, batch_rows })
    }
}

const RESTORE: &str = "restore it from a copy or write it again";

/// Runs a call into the Parquet library, which panics on some damaged files.
///
/// `call` must contain nothing but library calls, because a panic in it is reported as a damaged file.
///
/// # Errors
/// Returns the error of `call`, or [`Error::Damaged`] with the panic's message if `call` panics.
pub fn call_library<T>(path: &Path, call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| Error::Parquet { path: path.to_path_buf(), error }),
        Err(panic) => {
            let what = format!("its metadata or pages are inconsistent ({})", panic_message(&*panic));
            Err(Error::damaged(path, what, RESTORE))
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("the Parquet library panicked")
}

/// Returns the decompressed size of a column's largest dictionary page plus that of its largest other page.
fn largest_pages(input: &mut (impl Read + Seek), column: &ColumnChunkMetaData) -> io::Result<u64> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let (Ok(start), Ok(length)) = (u64::try_from(start), u64::try_from(column.compressed_size())) else {
        return Err(invalid("a column has a negative offset or size"));
    };
    let (mut dictionary, mut other, mut at) = (0, 0, 0);
    while at < length {
        input.seek(SeekFrom::Start(start.saturating_add(at)))?;
        let mut header = CompactReader { input: &mut *input, read: 0 };
        let page = header.page()?;
        at = at.saturating_add(header.read).saturating_add(page.compressed);
        let largest = if page.is_dictionary { &mut dictionary } else { &mut other };
        *largest = page.uncompressed.max(*largest);
    }
    Ok(dictionary + other)
}

/// The fields of a page header that matter here. Sizes are in bytes.
#[derive(Debug, Default, PartialEq)]
struct PageHeader {
    is_dictionary: bool,
    uncompressed: u64,
    compressed: u64,
}

/// The page type of dictionary pages.
const DICTIONARY: i64 = 2;

/// Decodes Thrift's compact protocol, as far as page headers need it.
struct CompactReader<R> {
    input: R,
    /// Bytes consumed so far.
    read: u64,
}

impl<R: Read> CompactReader<R> {
    fn page(&mut self) -> io::Result<PageHeader> {
        let mut page = PageHeader::default();
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (1..=3, 5) => {
                    let number = self.signed()?;
                    let size = u64::try_from(number).map_err(|_| invalid("a page has a negative size"));
                    match field {
                        1 => page.is_dictionary = number == DICTIONARY,
                        2 => page.uncompressed = size?,
                        _ => page.compressed = size?,
                    }
                }
                _ => self.skip(kind, 0)?,
            }
        }
        Ok(page)
    }

    /// Reads the head of a structure's next field: stores its number in `field` and returns its type. Returns `None` at
    /// the end of the structure.
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
        if depth > MAX_DEPTH {
            return Err(invalid("a page header is nested too deeply"));
        }
        match kind {
            // The type of a boolean field encodes its value.
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
            _ => Err(invalid("a page header has a field of unknown type")),
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
        Err(invalid("a number in a page header is too long"))
    }

    fn signed(&mut self) -> io::Result<i64> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(bytes: &[u8]) -> io::Result<PageHeader> {
        CompactReader { input: bytes, read: 0 }.page()
    }

    #[test]
    fn page_sizes_are_read_and_other_fields_are_skipped() {
        // A dictionary page, 300 bytes compressed to 20; a structure of a number, a string, a list and a boolean; a
        // checksum.
        let header =
            [0x15, 4, 0x15, 0xd8, 4, 0x15, 40, 0x3c, 0x15, 2, 0x18, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x11, 0];
        let whole = [&header[..], &[0x15, 9, 0]].concat();
        assert_eq!(
            page(&whole).unwrap(),
            PageHeader { is_dictionary: true, uncompressed: 300, compressed: 20 }
        );
        for end in 0..whole.len() {
            assert!(page(&whole[..end]).is_err(), "{end}");
        }
        assert!(page(&[0x15, 4, 0x15, 1, 0]).is_err(), "a negative size");
        assert!(page(&[0x1c; 100]).is_err(), "unbounded nesting");
        assert!(page(&[&[0x19, 0xf3][..], &[0xff; 9], &[1]].concat()).is_err(), "a list that does not end");
    }

    #[test]
    fn a_panic_of_the_library_is_an_error_with_its_message() {
        let panics = || -> Result<(), ParquetError> { panic!("index out of bounds") };
        let error = call_library(Path::new("t.parquet"), panics).unwrap_err().to_string();
        assert!(error.contains("t.parquet is damaged") && error.contains("(index out of bounds)"), "{error}");
    }

    proptest! {
        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = page(&bytes);
        }
    }
}
