//! Matrix products over strided views, by the `gemm` crate.

#![allow(unsafe_code)]

/// A read-only strided matrix over a slice.
#[derive(Debug, Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// A writable row-major matrix over a slice; rows may have a stride larger than their width.
#[derive(Debug)]
pub struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

pub use crate::device::Write;

/// On how many threads a product runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The calling one.
    One,
    /// All of the current rayon pool.
    All,
}

/// Number of elements that a strided matrix reaches over.
fn reach(rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row_stride + (cols - 1) * col_stride + 1 }
}

impl<'a> Mat<'a> {
    /// A dense row-major `[rows, cols]` matrix at the start of `data`.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Row-major with `row_stride` elements from one row to the next.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(reach(rows, cols, row_stride, 1) <= data.len(), "matrix reaches beyond its buffer");
        Self { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// The transpose, without a copy.
    pub fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

impl<'a> MatMut<'a> {
    /// A dense row-major `[rows, cols]` matrix at the start of `data`.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Row-major with `row_stride >= cols` elements from one row to the next.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(reach(rows, cols, row_stride, 1) <= data.len(), "matrix reaches beyond its buffer");
        assert!(row_stride >= cols, "rows of a destination may not overlap");
        Self { data, rows, cols, row_stride }
    }
}

/// `dst = scale · lhs rhs`, or `dst += scale · lhs rhs`.
///
/// # Panics
/// When the shapes do not fit together: callers derive them from one configuration.
pub fn matmul(dst: MatMut<'_>, write: Write, scale: f32, lhs: Mat<'_>, rhs: Mat<'_>, threads: Threads) {
    assert!(
        dst.rows == lhs.rows && dst.cols == rhs.cols && lhs.cols == rhs.rows,
        "product of {}x{} and {}x{} into {}x{}",
        lhs.rows,
        lhs.cols,
        rhs.rows,
        rhs.cols,
        dst.rows,
        dst.cols
    );
    let product = RawProduct {
        m: dst.rows,
        n: dst.cols,
        k: lhs.cols,
        dst: dst.data.as_mut_ptr(),
        dst_row_stride: dst.row_stride,
        lhs: lhs.data.as_ptr(),
        lhs_strides: (lhs.row_stride, lhs.col_stride),
        rhs: rhs.data.as_ptr(),
        rhs_strides: (rhs.row_stride, rhs.col_stride),
    };
    // SAFETY: the constructors checked that each view lies inside its slice, the shapes were compared
    // above, and the destination is borrowed mutably, so it overlaps neither operand.
    unsafe { product.run(write, scale, threads) }
}

/// A product over raw pointers, for kernels whose tasks write disjoint column blocks of one buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawProduct {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub dst: *mut f32,
    pub dst_row_stride: usize,
    pub lhs: *const f32,
    pub lhs_strides: (usize, usize),
    pub rhs: *const f32,
    pub rhs_strides: (usize, usize),
}

impl RawProduct {
    /// Runs the product.
    ///
    /// # Safety
    /// Every element that the shapes and strides reach must be inside its allocation and initialised, and
    /// nothing else may read or write the destination's elements meanwhile.
    pub(crate) unsafe fn run(self, write: Write, scale: f32, threads: Threads) {
        let parallelism = match threads {
            Threads::One => gemm::Parallelism::None,
            Threads::All => gemm::Parallelism::Rayon(0),
        };
        // SAFETY: the caller's contract; strides fit isize because the buffers do.
        unsafe {
            gemm::gemm(
                self.m,
                self.n,
                self.k,
                self.dst,
                1,
                self.dst_row_stride as isize,
                write == Write::Add,
                self.lhs,
                self.lhs_strides.1 as isize,
                self.lhs_strides.0 as isize,
                self.rhs,
                self.rhs_strides.1 as isize,
                self.rhs_strides.0 as isize,
                1.0,
                scale,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_equals_the_triple_loop_for_every_transposition() {
        let (m, n, k) = (5, 7, 3);
        let a: Vec<f32> = (0..m * k).map(|i| (i as f32 * 0.37).sin()).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i as f32 * 0.71).cos()).collect();
        let at: Vec<f32> = (0..k * m).map(|i| a[(i % m) * k + i / m]).collect();
        let bt: Vec<f32> = (0..n * k).map(|i| b[(i % k) * n + i / k]).collect();
        for lhs in [Mat::new(&a, m, k), Mat::new(&at, k, m).t()] {
            for rhs in [Mat::new(&b, k, n), Mat::new(&bt, n, k).t()] {
                let mut c = vec![1.0f32; m * (n + 2)];
                matmul(MatMut::strided(&mut c, m, n, n + 2), Write::Add, 2.0, lhs, rhs, Threads::All);
                for i in 0..m {
                    for j in 0..n {
                        let want: f32 = 1.0 + 2.0 * (0..k).map(|x| a[i * k + x] * b[x * n + j]).sum::<f32>();
                        assert!((c[i * (n + 2) + j] - want).abs() < 1e-5);
                    }
                }
                assert_eq!(c[n], 1.0, "the gap between rows is untouched");
            }
        }
    }
}
