//! Compiles CUDA C to machine code with NVRTC at start, and caches the results on disk.
//!
//! The key of a cache entry contains source, options, driver and architecture, so an entry never becomes stale.
//! An entry consists of its SHA-256 and the machine code; if they do not match, the source is compiled again.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};

use cudarc::nvrtc::{result as nvrtc, sys};
use sha2::{Digest, Sha256};

use super::attention_variant::{AttentionVariant, WARPS};
use super::gpu::{Gpu, failed};
use sgs_base::digest::hex;
use sgs_lm::error::{LmError, Result};

const COMMON: &str = include_str!("kernels/common.cu");
const LAYERS: &str = include_str!("kernels/layers.cu");
const TRAINING: &str = include_str!("kernels/training.cu");
const ATTENTION_SIMPLE: &str = include_str!("kernels/attention_simple.cu");
const ATTENTION_TENSOR: &str = include_str!("kernels/attention_tensor.cu");
const ATTENTION_HOPPER: &str = include_str!("kernels/attention_hopper.cu");
const HOPPER: &str = include_str!("kernels/hopper.cu");
const TENSOR: &str = include_str!("kernels/tensor.cu");
const CACHE: &str = include_str!("kernels/cache.cu");
const DECODE: &str = include_str!("kernels/decode.cu");
const PROMPT: &str = include_str!("kernels/prompt.cu");
const TRUNCATE: &str = include_str!("kernels/truncate.cu");
const DRAW: &str = include_str!("kernels/draw.cu");

/// A set of kernels that are compiled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// All kernels that do not depend on the head width.
    Base,
    /// Attention of the training passes for a head width.
    Attention {
        /// Head width.
        head_dim: usize,
        variant: AttentionVariant,
    },
    /// Attention over the paged cache with one query per sequence.
    Decode {
        /// Head width.
        head_dim: usize,
        /// Positions per page.
        page_len: usize,
    },
    /// Attention of prompts over the paged cache on tensor cores.
    Prompt {
        /// Head width.
        head_dim: usize,
        /// Positions per page.
        page_len: usize,
    },
}

impl Program {
    /// Returns the complete source; it has no includes.
    pub fn source(self) -> String {
        let parts: &[&str] = match self {
            Self::Base => &[COMMON, LAYERS, TRAINING, TRUNCATE, DRAW],
            Self::Attention { variant, .. } => match variant {
                AttentionVariant::Simple => &[COMMON, ATTENTION_SIMPLE],
                AttentionVariant::Tensor => &[COMMON, TENSOR, ATTENTION_TENSOR],
                AttentionVariant::Hopper => &[COMMON, HOPPER, ATTENTION_HOPPER],
            },
            Self::Decode { .. } => &[COMMON, CACHE, DECODE],
            Self::Prompt { .. } => &[COMMON, TENSOR, CACHE, PROMPT],
        };
        parts.concat()
    }

    /// Returns the compiler options.
    pub fn options(self, arch: (i32, i32), bf16: bool) -> Vec<String> {
        // The suffix `a` enables instructions that exist only on this architecture.
        let own =
            if matches!(self, Self::Attention { variant: AttentionVariant::Hopper, .. }) { "a" } else { "" };
        let mut options = vec![
            format!("--gpu-architecture=sm_{}{}{own}", arch.0, arch.1),
            "--std=c++17".to_owned(),
            format!("-DBF16={}", i32::from(bf16)),
        ];
        if let Self::Attention { head_dim, .. }
        | Self::Decode { head_dim, .. }
        | Self::Prompt { head_dim, .. } = self
        {
            options.push(format!("-DHEAD_DIM={head_dim}"));
        }
        if let Self::Decode { page_len, .. } | Self::Prompt { page_len, .. } = self {
            options.push(format!("-DPAGE={page_len}"));
        }
        if let Self::Attention { variant: AttentionVariant::Tensor, .. } | Self::Prompt { .. } = self {
            options.push(format!("-DWARPS={WARPS}"));
        }
        options
    }

    /// Returns the machine code for a GPU, from the cache or newly compiled.
    ///
    /// # Errors
    /// Returns an error if NVRTC is missing or rejects the source. Failures of the cache only cost time.
    pub fn cubin(self, gpu: &Gpu, bf16: bool) -> Result<Vec<u8>> {
        let (source, options) = (self.source(), self.options(gpu.arch, bf16));
        let key = key(&source, &options, gpu.driver);
        let path = folder().map(|dir| dir.join(format!("{key}.cubin")));
        if let Some(code) = path.as_deref().and_then(read) {
            return Ok(code);
        }
        let code = compile(&source, &options)
            .map_err(|message| failed(&gpu.label(), "compiling kernels", message))?;
        if let Some(path) = path {
            // If the disk is full or read-only, the next start takes a second longer.
            let _ = write(&path, &code);
        }
        Ok(code)
    }
}

/// Returns the name of a cache entry.
fn key(source: &str, options: &[String], driver: i32) -> String {
    let mut hash = Sha256::new();
    for part in [source, &options.join("\n"), &driver.to_string(), env!("CARGO_PKG_VERSION")] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..16])
}

/// Returns the cache's folder: `sgs/kernels` in `$XDG_CACHE_HOME` or `~/.cache`.
fn folder() -> Option<PathBuf> {
    Some(sgs_base::host::cache_folder()?.join("sgs").join("kernels"))
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let (sum, code) = bytes.split_at_checked(32)?;
    (Sha256::digest(code).as_slice() == sum).then(|| code.to_vec())
}

fn write(path: &Path, code: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut bytes = Sha256::digest(code).to_vec();
    bytes.extend_from_slice(code);
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, path)
}

/// Compiles a source with NVRTC; the error is a message for the user.
fn compile(source: &str, options: &[String]) -> std::result::Result<Vec<u8>, String> {
    // SAFETY: the call only searches for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err("libnvrtc.so.13 was not found; it comes with the CUDA toolkit 13, or set \
                    LD_LIBRARY_PATH to where it is"
            .to_owned());
    }
    let source = CString::new(source).map_err(|e| e.to_string())?;
    let program = nvrtc::create_program(&source, Some(c"sgs.cu")).map_err(|e| format!("NVRTC: {e}"))?;
    let outcome = built(program, options);
    // SAFETY: the program was made above and is not used again.
    let _ = unsafe { nvrtc::destroy_program(program) };
    outcome
}

fn built(program: sys::nvrtcProgram, options: &[String]) -> std::result::Result<Vec<u8>, String> {
    // SAFETY: `program` is alive; options are copied by the call.
    if let Err(error) = unsafe { nvrtc::compile_program(program, options) } {
        // SAFETY: `program` is alive; the log is zero-terminated.
        let log = unsafe { nvrtc::get_program_log(program) }.unwrap_or_default();
        let text = if log.contains(&0) {
            // SAFETY: the log has a terminating zero, as checked.
            unsafe { CStr::from_ptr(log.as_ptr()) }.to_string_lossy().into_owned()
        } else {
            String::new()
        };
        return Err(format!("NVRTC: {error}\n{text}"));
    }
    let mut size = 0usize;
    // SAFETY: the call writes one number.
    let status = unsafe { sys::nvrtcGetCUBINSize(program, &raw mut size) };
    status.result().map_err(|e| format!("NVRTC: {e}"))?;
    let mut code = vec![0u8; size];
    // SAFETY: `code` has the size that NVRTC returned.
    let status = unsafe { sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast::<c_char>()) };
    status.result().map_err(|e| format!("NVRTC: {e}"))?;
    Ok(code)
}

impl Program {
    /// Returns every program that a model of this head width needs.
    #[cfg(test)]
    fn all(head_dim: usize) -> [Self; 6] {
        [
            Self::Base,
            Self::Attention { head_dim, variant: AttentionVariant::Simple },
            Self::Attention { head_dim, variant: AttentionVariant::Tensor },
            Self::Attention { head_dim, variant: AttentionVariant::Hopper },
            Self::Decode { head_dim, page_len: 16 },
            Self::Prompt { head_dim, page_len: 16 },
        ]
    }
}

/// Creates the error for a failed compilation.
pub(super) fn missing(gpu: &Gpu, what: &str) -> LmError {
    LmError::Device { device: gpu.label(), message: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_everything() {
        let options = Program::Base.options((9, 0), true);
        let keys = [
            key("a", &options, 13000),
            key("b", &options, 13000),
            key("a", &options, 12080),
            key("a", &Program::Base.options((8, 0), true), 13000),
            key("a", &Program::Base.options((9, 0), false), 13000),
            key("a", &Program::Decode { head_dim: 64, page_len: 16 }.options((9, 0), true), 13000),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|b| a != b));
        }
        assert_eq!(keys[0], key("a", &options, 13000));
    }

    #[test]
    fn only_the_hopper_kernels_are_compiled_for_hopper_alone() {
        let arch =
            |variant| Program::Attention { head_dim: 128, variant }.options((9, 0), true).swap_remove(0);
        assert_eq!(arch(AttentionVariant::Hopper), "--gpu-architecture=sm_90a");
        assert_eq!(arch(AttentionVariant::Tensor), "--gpu-architecture=sm_90");
    }

    #[test]
    fn a_damaged_entry_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deeper").join("x.cubin");
        write(&path, b"machine code").unwrap();
        assert_eq!(read(&path).unwrap(), b"machine code");
        let mut bytes = fs::read(&path).unwrap();
        bytes[40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path), None);
        fs::write(&path, b"short").unwrap();
        assert_eq!(read(&path), None);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
    }

    /// Compiles the sources for two architectures if NVRTC, which needs no GPU, is installed. Panics if it is missing
    /// and `SGS_REQUIRE` contains `nvrtc`.
    #[test]
    fn sources_compile_where_nvrtc_is_installed() {
        // SAFETY: the call only searches for the library.
        if !unsafe { sys::is_culib_present() } {
            let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
            assert!(!required.contains("nvrtc"), "SGS_REQUIRE names nvrtc, whose library was not found");
            let error = compile("", &[]).unwrap_err();
            assert!(error.contains("libnvrtc.so"), "{error}");
            return;
        }
        for (head_dim, arch, bf16) in
            [(128, (9, 0), true), (64, (9, 0), true), (48, (8, 0), true), (16, (9, 0), false)]
        {
            for program in Program::all(head_dim) {
                if !bf16 && matches!(program, Program::Prompt { .. }) {
                    continue;
                }
                if matches!(program, Program::Attention { variant: AttentionVariant::Hopper, .. })
                    && head_dim < 64
                {
                    continue;
                }
                let code = compile(&program.source(), &program.options(arch, bf16));
                assert!(code.is_ok_and(|c| c.starts_with(b"\x7fELF")), "{program:?}");
            }
        }
        let error = compile("nonsense", &[]).unwrap_err();
        assert!(error.contains("sgs.cu"), "{error}");
    }
}
