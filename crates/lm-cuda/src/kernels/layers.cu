// All operations of a layer except matrix products and attention: embedding, norms, rotary positions, SwiGLU,
// biases, sums. Rows are tokens. A block processes whole rows, so no sum depends on the grid.

// out[i] = table[ids[i]]
extern "C" __global__ void gather(const T* table, const u32* ids, int width, T* out) {
    const T* from = table + (u64)ids[blockIdx.x] * width;
    T* to = out + (u64)blockIdx.x * width;
    bool wide = wide_rows(table, width) && wide_rows(out, width);
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8) {
        float v[8];
        get8(from + c, width - c, wide, v);
        put8(to + c, width - c, wide, v);
    }
}

// out[ids[i]] = rows[i]
extern "C" __global__ void scatter(const T* rows, const u32* ids, int width, T* out) {
    const T* from = rows + (u64)blockIdx.x * width;
    T* to = out + (u64)ids[blockIdx.x] * width;
    bool wide = wide_rows(rows, width) && wide_rows(out, width);
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8) {
        float v[8];
        get8(from + c, width - c, wide, v);
        put8(to + c, width - c, wide, v);
    }
}

// grad[ids[i]] += dout[i]. The block of an id's first occurrence adds all rows of that id in order, so the sum
// has a fixed order and needs no atomics. blockIdx.y selects a strip of 8 columns per thread.
extern "C" __global__ void embed_backward(const T* dout, const u32* ids, int n, int width, float* grad) {
    __shared__ u32 found[256];
    __shared__ int counts[8];
    int row = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 id = ids[row];
    bool seen = false;
    for (int i = threadIdx.x; i < row; i += 256) seen |= ids[i] == id;
    if (__syncthreads_or(seen)) return;
    int c = (blockIdx.y * 256 + threadIdx.x) * 8;
    bool wide = wide_rows(dout, width) && wide_rows(grad, width);
    float sum[8] = {0};
    for (int base = row; base < n; base += 256) {
        int i = base + threadIdx.x;
        bool hit = i < n && ids[i] == id;
        u32 mask = __ballot_sync(0xffffffffu, hit);
        if (lane == 0) counts[warp] = __popc(mask);
        __syncthreads();
        int at = __popc(mask & ((1u << lane) - 1)), total = 0;
        for (int w = 0; w < 8; w++) {
            if (w < warp) at += counts[w];
            total += counts[w];
        }
        if (hit) found[at] = i;
        __syncthreads();
        if (c < width) {
#pragma unroll 4
            for (int k = 0; k < total; k++) {
                float v[8];
                get8(dout + (u64)found[k] * width + c, width - c, wide, v);
#pragma unroll
                for (int j = 0; j < 8; j++) sum[j] += v[j];
            }
        }
        __syncthreads();
    }
    if (c < width) {
        float* to = grad + (u64)id * width + c;
        float old[8];
        get8(to, width - c, wide, old);
#pragma unroll
        for (int j = 0; j < 8; j++) old[j] += sum[j];
        put8(to, width - c, wide, old);
    }
}

// y[row] += bias
extern "C" __global__ void add_bias(T* y, const T* bias, int width) {
    T* row = y + (u64)blockIdx.x * width;
    for (int c = threadIdx.x; c < width; c += blockDim.x) put(row + c, to_f(row[c]) + to_f(bias[c]));
}

// sum = a + b over n elements
extern "C" __global__ void add(const T* a, const T* b, T* sum, u64 n) {
    u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= n) return;
    int left = n - i < 8 ? (int)(n - i) : 8;
    bool wide = left == 8 && (((u64)a | (u64)b | (u64)sum) & 15) == 0;
    float x[8], y[8];
    get8(a + i, left, wide, x);
    get8(b + i, left, wide, y);
#pragma unroll
    for (int j = 0; j < 8; j++) x[j] += y[j];
    put8(sum + i, left, wide, x);
}

// y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps). With r, first sum = x + r, and x is that sum. One block per
// row. r and sum are null if there is no residual.
extern "C" __global__ void rmsnorm(const T* x, const T* r, const T* w, float eps, int width, T* sum, T* y,
                                   float* rstd) {
    u64 at = (u64)blockIdx.x * width;
    bool wide = wide_rows(x, width) && wide_rows(r, width) && wide_rows(sum, width) && wide_rows(y, width) &&
                wide_rows(w, width);
    float squares = 0.f;
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8) {
        float v[8];
        get8(x + at + c, width - c, wide, v);
        if (r) {
            float u[8];
            get8(r + at + c, width - c, wide, u);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = stored(v[j] + u[j]);
            put8(sum + at + c, width - c, wide, v);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) squares += v[j] * v[j];
    }
    float scale = 1.f / sqrtf(block_sum(squares) / width + eps);
    if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
    const T* from = r ? sum : x;
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8) {
        float v[8], g[8];
        get8(from + at + c, width - c, wide, v);
        get8(w + c, width - c, wide, g);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] *= scale * g[j];
        put8(y + at + c, width - c, wide, v);
    }
}

// dx += rstd (dy w - x rstd^2 mean(dy w x)). A block processes `rows_each` rows and writes its part of dw = sum
// dy x rstd to partial[block]. A thread holds STRIPS times 8 columns, so width is at most 8 * blockDim.x *
// STRIPS.
template <int STRIPS>
DEVICE void norm_backward(const T* dy, const T* x, const float* rstd, const T* w, int rows, int rows_each, int width,
                          T* dx, float* partial) {
    bool wide = wide_rows(dy, width) && wide_rows(x, width) && wide_rows(dx, width) && wide_rows(w, width);
    float dw[STRIPS][8] = {};
    int first = blockIdx.x * rows_each, last = min(rows, first + rows_each);
    // The next row is loaded while this one is summed.
    Eight next_dy[STRIPS], next_x[STRIPS], next_dx[STRIPS], gain[STRIPS];
    float next_scale = first < last ? rstd[first] : 0.f;
    auto column = [&](int s) { return (int)(s * blockDim.x + threadIdx.x) * 8; };
    auto fetch = [&](int row) {
        u64 at = (u64)row * width;
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            int c = column(s);
            if (c < width) {
                next_dy[s] = fetch8(dy + at + c, width - c, wide);
                next_x[s] = fetch8(x + at + c, width - c, wide);
                next_dx[s] = fetch8(dx + at + c, width - c, wide);
            }
        }
    };
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
        if (column(s) < width) gain[s] = fetch8(w + column(s), width - column(s), wide);
    if (first < last) fetch(first);
    for (int row = first; row < last; row++) {
        u64 at = (u64)row * width;
        float scale = next_scale, dot = 0.f;
        float g[STRIPS][8], v[STRIPS][8];
        Eight old[STRIPS];
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            if (column(s) < width) {
                float u[8];
                unpack(next_dy[s], g[s]);
                unpack(next_x[s], v[s]);
                unpack(gain[s], u);
                old[s] = next_dx[s];
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    dw[s][j] += g[s][j] * v[s][j] * scale;
                    g[s][j] *= u[j];
                    dot += g[s][j] * v[s][j];
                }
            }
        }
        if (row + 1 < last) {
            next_scale = rstd[row + 1];
            fetch(row + 1);
        }
        float shift = block_sum(dot) * scale * scale / width;
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            int c = column(s);
            if (c < width) {
                float d[8];
                unpack(old[s], d);
#pragma unroll
                for (int j = 0; j < 8; j++) d[j] += scale * (g[s][j] - v[s][j] * shift);
                put8(dx + at + c, width - c, wide, d);
            }
        }
    }
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        int c = column(s);
        for (int j = 0; j < 8 && c + j < width; j++) partial[(u64)blockIdx.x * width + c + j] = dw[s][j];
    }
}

#define NORM_BACKWARD(NAME, STRIPS)                                                                              \
    extern "C" __global__ void __launch_bounds__(512)                                                            \
        NAME(const T* dy, const T* x, const float* rstd, const T* w, int rows, int rows_each, int width, T* dx,  \
             float* partial) {                                                                                   \
        norm_backward<STRIPS>(dy, x, rstd, w, rows, rows_each, width, dx, partial);                              \
    }
NORM_BACKWARD(rmsnorm_backward, 1)
NORM_BACKWARD(rmsnorm_backward_wide, 2)
NORM_BACKWARD(rmsnorm_backward_widest, 4)

// partial[block][c] = sum of dy over the block's rows; blockIdx.y selects columns.
extern "C" __global__ void bias_partial(const T* dy, int rows, int rows_each, int width, float* partial) {
    int c = blockIdx.y * blockDim.x + threadIdx.x;
    if (c >= width) return;
    int first = blockIdx.x * rows_each, last = min(rows, first + rows_each);
    float sum = 0.f;
    for (int row = first; row < last; row++) sum += to_f(dy[(u64)row * width + c]);
    partial[(u64)blockIdx.x * width + c] = sum;
}

// out[c] += sum of the partial rows: every eighth row in order, then these eight sums in order. A block of
// eight warps processes 32 columns.
extern "C" __global__ void sum_partials(const float* partial, int parts, int width, float* out) {
    __shared__ float sums[8][32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, c = blockIdx.x * 32 + lane;
    float sum = 0.f;
    if (c < width) {
#pragma unroll 8
        for (int p = warp; p < parts; p += 8) sum += partial[(u64)p * width + c];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || c >= width) return;
    for (int w = 1; w < 8; w++) sum += sums[w][lane];
    out[c] += sum;
}

// The eight columns of a head that a lane processes, and the squares of the whole head: 1 / sqrt(mean(x^2) + eps).
DEVICE float head_scale(const T* x, int dim, float eps, bool wide, float (&v)[8]) {
    int c = (threadIdx.x & 31) * 8;
    float squares = 0.f;
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = 0.f;
    if (c < dim) get8(x + c, dim - c, wide, v);
#pragma unroll
    for (int j = 0; j < 8; j++) squares += v[j] * v[j];
    return 1.f / sqrtf(warp_sum(squares) / dim + eps);
}

// RMSNorm of the first `normed` heads of a row: of the first `queries` with the weights w, of the others with
// w + dim. A warp processes a head of up to 256 columns. The rest of the row is copied. out may be qkv.
extern "C" __global__ void head_norm(const T* qkv, int row_width, int queries, int normed, int dim, const T* w,
                                     float eps, T* out) {
    const T* from = qkv + (u64)blockIdx.x * row_width;
    T* to = out + (u64)blockIdx.x * row_width;
    bool wide = wide_rows(qkv, row_width) && wide_rows(out, row_width) && wide_rows(w, dim);
    int c = (threadIdx.x & 31) * 8;
    for (int head = threadIdx.x >> 5; head < normed; head += blockDim.x >> 5) {
        float v[8], gain[8];
        float scale = head_scale(from + head * dim, dim, eps, wide, v);
        if (c >= dim) continue;
        get8(w + (head < queries ? 0 : dim) + c, dim - c, wide, gain);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] *= scale * gain[j];
        put8(to + head * dim + c, dim - c, wide, v);
    }
    if (from == to) return;
    for (int i = normed * dim + threadIdx.x * 8; i < row_width; i += blockDim.x * 8) {
        float v[8];
        get8(from + i, row_width - i, wide, v);
        put8(to + i, row_width - i, wide, v);
    }
}

// In place: dqkv, the gradient of head_norm's output, is replaced by that of its input. A block of eight warps
// processes `rows_each` rows and writes its part of the gradient of w to partial[block], 2 dim numbers.
extern "C" __global__ void __launch_bounds__(256)
    head_norm_backward(const T* qkv, int rows, int rows_each, int row_width, int queries, int normed, int dim,
                       const T* w, float eps, T* dqkv, float* partial) {
    __shared__ float sums[8][512];
    bool wide = wide_rows(qkv, row_width) && wide_rows(dqkv, row_width) && wide_rows(w, dim);
    int warp = threadIdx.x >> 5, c = (threadIdx.x & 31) * 8;
    int first = blockIdx.x * rows_each, last = min(rows, first + rows_each);
    float dw[2][8] = {}, gain[2][8] = {};
    if (c < dim) {
        get8(w + c, dim - c, wide, gain[0]);
        get8(w + dim + c, dim - c, wide, gain[1]);
    }
    // Queries and keys have separate loops, so that dw and gain stay in registers.
    auto backward = [&](int row, int head, const float (&u)[8], float (&sum)[8]) {
        u64 at = (u64)row * row_width + head * dim;
        float x[8], g[8] = {}, dot = 0.f;
        float scale = head_scale(qkv + at, dim, eps, wide, x);
        if (c < dim) get8(dqkv + at + c, dim - c, wide, g);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            sum[j] += g[j] * x[j] * scale;
            g[j] *= u[j];
            dot += g[j] * x[j];
        }
        float shift = warp_sum(dot) * scale * scale / dim;
#pragma unroll
        for (int j = 0; j < 8; j++) g[j] = scale * (g[j] - x[j] * shift);
        if (c < dim) put8(dqkv + at + c, dim - c, wide, g);
    };
    for (int row = first; row < last; row++) {
        for (int head = warp; head < queries; head += 8) backward(row, head, gain[0], dw[0]);
        for (int head = queries + warp; head < normed; head += 8) backward(row, head, gain[1], dw[1]);
    }
    for (int j = 0; j < 8 && c + j < dim; j++) {
        sums[warp][c + j] = dw[0][j];
        sums[warp][dim + c + j] = dw[1][j];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * dim; i += 256) {
        float sum = sums[0][i];
        for (int k = 1; k < 8; k++) sum += sums[k][i];
        partial[(u64)blockIdx.x * 2 * dim + i] = sum;
    }
}

// Rotates the first `rotated` heads of a row by its position: (a, b) -> (a cos - b sin, b cos + a sin), where a
// and b are the halves of a head. `sign` is -1 in the backward pass.
extern "C" __global__ void rope(T* qkv, int row_width, int rotated, int half, const u32* positions,
                                const float* cosines, const float* sines, float sign) {
    T* row = qkv + (u64)blockIdx.x * row_width;
    u64 at = (u64)positions[blockIdx.x] * half;
    bool wide = (half & 7) == 0 && wide_rows(qkv, row_width);
    int pieces = (half + 7) / 8;
    for (int i = threadIdx.x; i < rotated * pieces; i += blockDim.x) {
        int c = i % pieces * 8, n = half - c;
        T* low = row + i / pieces * 2 * half + c;
        float a[8], b[8], cs[8], sn[8];
        get8(low, n, wide, a);
        get8(low + half, n, wide, b);
        get8(cosines + at + c, n, wide, cs);
        get8(sines + at + c, n, wide, sn);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float s = sign * sn[j], t = a[j];
            a[j] = t * cs[j] - b[j] * s;
            b[j] = b[j] * cs[j] + t * s;
        }
        put8(low, n, wide, a);
        put8(low + half, n, wide, b);
    }
}

DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// act = gate sigmoid(gate) up
extern "C" __global__ void swiglu(const T* gate_up, int width, T* act) {
    const T* gate = gate_up + (u64)blockIdx.x * 2 * width;
    const T* up = gate + width;
    T* out = act + (u64)blockIdx.x * width;
    bool wide = wide_rows(gate_up, width) && wide_rows(act, width);
    int c = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (c >= width) return;
    float g[8], u[8];
    get8(gate + c, width - c, wide, g);
    get8(up + c, width - c, wide, u);
#pragma unroll
    for (int j = 0; j < 8; j++) g[j] *= sigmoid(g[j]) * u[j];
    put8(out + c, width - c, wide, g);
}

// In place: gate_up is replaced by its gradient, and act, which holds the gradient of the activation, by the
// activation.
extern "C" __global__ void swiglu_backward(T* gate_up, int width, T* act) {
    T* gate = gate_up + (u64)blockIdx.x * 2 * width;
    T* up = gate + width;
    T* out = act + (u64)blockIdx.x * width;
    bool wide = wide_rows(gate_up, width) && wide_rows(act, width);
    int c = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (c >= width) return;
    float g[8], u[8], d[8];
    get8(gate + c, width - c, wide, g);
    get8(up + c, width - c, wide, u);
    get8(out + c, width - c, wide, d);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float s = sigmoid(g[j]), silu = g[j] * s, dout = d[j], v = u[j];
        d[j] = silu * v;
        u[j] = dout * silu;
        g[j] = dout * v * (s + silu * (1.f - s));
    }
    put8(gate + c, width - c, wide, g);
    put8(up + c, width - c, wide, u);
    put8(out + c, width - c, wide, d);
}

// Uniform noise around 0 with standard deviation `deviation`, as weights for benchmarks.
extern "C" __global__ void noise(T* to, u64 n, u64 seed, float deviation) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    // SplitMix64 of the index.
    u64 z = (i + seed + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    float unit = (float)(z >> 40) * (1.f / 8388608.f) - 1.f;
    put(to + i, unit * deviation * 1.7320508f);
}

// Converts f32 numbers to T, and back.
extern "C" __global__ void narrow(const float* from, T* to, u64 n) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) put(to + i, from[i]);
}

extern "C" __global__ void widen(const T* from, float* to, u64 n) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = to_f(from[i]);
}
