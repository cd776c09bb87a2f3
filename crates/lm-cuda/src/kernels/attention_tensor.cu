// Causal attention within packed sequences on tensor cores, after Dao 2023 (FlashAttention-2): scores stay in
// registers. The backward pass has two kernels, one by blocks of queries and one by blocks of keys, so it needs
// no atomics and its sums have a fixed order.
//
// A tile is a block of rows of one sequence: first row of the sequence, its length, and first row of the tile
// within it. A tile of a sequence with length 0 is padding of the grid.

extern "C" __global__ void __launch_bounds__(THREADS, 8 / WARPS)
    attention(const bf16* qkv, const int4* tiles, int heads, int kv_heads, float scale, bf16* out, float* lse) {
    extern __shared__ __align__(16) bf16 shared[];
    bf16 *queries = shared, *keys = queries + ROWS * LD, *values = keys + 2 * STEP * LD;
    int head = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int4 tile = tiles[blockIdx.y];
    int length = tile.y, first = tile.z;
    if (length == 0) return;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM;
    const bf16* base = qkv + (u64)tile.x * stride;
    const bf16* key = base + (heads + head / (heads / kv_heads)) * HEAD_DIM;
    const bf16* value = key + kv_heads * HEAD_DIM;
    int steps = (min(length, first + ROWS) + STEP - 1) / STEP;

    copy_rows<ROWS>(queries, base + first * stride + head * HEAD_DIM, stride, length - first);
    copy_rows<STEP>(keys, key, stride, length);
    copy_rows<STEP>(values, value, stride, length);
    commit();

    float sum[HEAD_DIM / 8][4] = {};
    float peak0 = -INFINITE, peak1 = -INFINITE, mass0 = 0.f, mass1 = 0.f;
    float to_log2 = scale * LOG2E;
    int own = first + warp * 16;
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            int next = (step + 1) & 1, at = (step + 1) * STEP;
            copy_rows<STEP>(keys + next * STEP * LD, key + at * stride, stride, length - at);
            copy_rows<STEP>(values + next * STEP * LD, value + at * stride, stride, length - at);
        }
        commit();
        wait_for<1>();
        __syncthreads();
        int at = step * STEP;
        if (at <= own + 15) {
            const bf16* k = keys + (step & 1) * STEP * LD;
            const bf16* v = values + (step & 1) * STEP * LD;
            attend(queries, k, v, own, at, sum, peak0, peak1, mass0, mass1, to_log2);
        }
        __syncthreads();
    }
    mass0 = quad_sum(mass0);
    mass1 = quad_sum(mass1);
    int valid = length - own;
    u64 line = (u64)tile.x + own;
    write_rows(sum, 1.f / mass0, 1.f / mass1, queries + warp * 16 * LD, out + (line * heads + head) * HEAD_DIM,
               (u64)heads * HEAD_DIM, valid);
    if ((lane & 3) == 0) {
        int row = lane >> 2;
        if (row < valid) lse[(line + row) * heads + head] = peak0 * scale + logf(mass0);
        if (row + 8 < valid) lse[(line + row + 8) * heads + head] = peak1 * scale + logf(mass1);
    }
}

// Computes the gradient of the queries, and delta = sum of out dout over the head.
extern "C" __global__ void __launch_bounds__(THREADS, 8 / WARPS)
    attention_dq(const bf16* qkv, const int4* tiles, int heads, int kv_heads, float scale, const bf16* out,
                 const float* lse, const bf16* dout, bf16* dqkv, float* delta) {
    extern __shared__ __align__(16) bf16 shared[];
    bf16 *queries = shared, *douts = queries + ROWS * LD, *keys = douts + ROWS * LD;
    bf16* values = keys + 2 * STEP * LD;
    __shared__ float deltas[ROWS];
    int head = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int4 tile = tiles[blockIdx.y];
    int length = tile.y, first = tile.z;
    if (length == 0) return;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM, narrow = (u64)heads * HEAD_DIM;
    const bf16* base = qkv + (u64)tile.x * stride;
    const bf16* key = base + (heads + head / (heads / kv_heads)) * HEAD_DIM;
    const bf16* value = key + kv_heads * HEAD_DIM;
    u64 line = (u64)tile.x + first;
    int steps = (min(length, first + ROWS) + STEP - 1) / STEP;

    copy_rows<ROWS>(queries, base + first * stride + head * HEAD_DIM, stride, length - first);
    copy_rows<ROWS>(douts, dout + line * narrow + head * HEAD_DIM, narrow, length - first);
    copy_rows<STEP>(keys, key, stride, length);
    copy_rows<STEP>(values, value, stride, length);
    commit();

    // Two threads process each row.
    {
        int row = threadIdx.x >> 1, half = threadIdx.x & 1;
        float d = 0.f;
        if (first + row < length) {
            const bf16* a = out + (line + row) * narrow + head * HEAD_DIM;
            const bf16* b = dout + (line + row) * narrow + head * HEAD_DIM;
#pragma unroll
            for (int c = half; c < CHUNKS; c += 2) {
                float x[8], y[8];
                load8(a + c * 8, x);
                load8(b + c * 8, y);
#pragma unroll
                for (int j = 0; j < 8; j++) d += x[j] * y[j];
            }
        }
        d += __shfl_xor_sync(0xffffffffu, d, 1);
        if (half == 0) {
            deltas[row] = d;
            if (first + row < length) delta[(line + row) * heads + head] = d;
        }
    }
    __syncthreads();

    float dq[HEAD_DIM / 8][4] = {};
    float to_log2 = scale * LOG2E;
    int own = first + warp * 16, r0 = warp * 16 + (lane >> 2), r1 = r0 + 8;
    float log0 = first + r0 < length ? lse[(line + r0) * heads + head] * LOG2E : INFINITE;
    float log1 = first + r1 < length ? lse[(line + r1) * heads + head] * LOG2E : INFINITE;
    float delta0 = deltas[r0], delta1 = deltas[r1];
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            int next = (step + 1) & 1, at = (step + 1) * STEP;
            copy_rows<STEP>(keys + next * STEP * LD, key + at * stride, stride, length - at);
            copy_rows<STEP>(values + next * STEP * LD, value + at * stride, stride, length - at);
        }
        commit();
        wait_for<1>();
        __syncthreads();
        int at = step * STEP;
        if (at <= own + 15) {
            const bf16* k = keys + (step & 1) * STEP * LD;
            const bf16* v = values + (step & 1) * STEP * LD;
            float s[STEP / 8][4] = {}, dp[STEP / 8][4] = {};
#pragma unroll
            for (int i = 0; i < KSTEPS; i++) {
                u32 a[4];
                left(a, queries, warp * 16, i * 16);
                product_t(s, a, k, i * 16);
                left(a, douts, warp * 16, i * 16);
                product_t(dp, a, v, i * 16);
            }
            int row = own + (lane >> 2);
            bool edge = at + STEP > own;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int column = at + n * 8 + (lane & 3) * 2 + (j & 1);
                    float p = exp2_fast(s[n][j] * to_log2 - (j < 2 ? log0 : log1));
                    if (edge && column > row + (j < 2 ? 0 : 8)) p = 0.f;
                    s[n][j] = p * (dp[n][j] - (j < 2 ? delta0 : delta1));
                }
            }
#pragma unroll
            for (int i = 0; i < STEP / 16; i++) {
                u32 a[4];
                as_left(a, s[2 * i], s[2 * i + 1]);
                product(dq, a, k, i * 16);
            }
        }
        __syncthreads();
    }
    write_rows(dq, scale, scale, queries + warp * 16 * LD,
               dqkv + ((u64)tile.x + own) * stride + head * HEAD_DIM, stride, length - own);
}

// Computes the gradients of keys and values. A tile is a block of keys; the queries from its first row on are
// streamed, for every query head that shares the key head.
extern "C" __global__ void __launch_bounds__(THREADS, 8 / WARPS)
    attention_dkv(const bf16* qkv, const int4* tiles, int heads, int kv_heads, float scale, const float* lse,
                  const float* delta, const bf16* dout, bf16* dqkv) {
    extern __shared__ __align__(16) bf16 shared[];
    bf16 *keys = shared, *values = keys + ROWS * LD, *queries = values + ROWS * LD;
    bf16* douts = queries + 2 * STEP * LD;
    __shared__ float logs[2][STEP], deltas[2][STEP];
    int kv = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int4 tile = tiles[blockIdx.y];
    int length = tile.y, first = tile.z, group = heads / kv_heads;
    if (length == 0) return;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM, narrow = (u64)heads * HEAD_DIM;
    const bf16* base = qkv + (u64)tile.x * stride;
    const bf16* key = base + first * stride + (heads + kv) * HEAD_DIM;
    // Steps over the queries of one head, starting at the one with the tile's first row.
    int begin = first / STEP * STEP, steps = (length - begin + STEP - 1) / STEP, total = steps * group;

    auto fetch = [&](int i) {
        int head = kv * group + i / steps, at = begin + i % steps * STEP, stage = i & 1;
        u64 line = (u64)tile.x + at;
        copy_rows<STEP>(queries + stage * STEP * LD, base + at * stride + head * HEAD_DIM, stride, length - at);
        copy_rows<STEP>(douts + stage * STEP * LD, dout + line * narrow + head * HEAD_DIM, narrow, length - at);
        if (threadIdx.x < STEP) {
            bool keep = at + (int)threadIdx.x < length;
            u64 from = (line + threadIdx.x) * heads + head;
            // e^-inf = 0: rows after the end of the sequence add nothing.
            logs[stage][threadIdx.x] = keep ? lse[from] * LOG2E : INFINITE;
            deltas[stage][threadIdx.x] = keep ? delta[from] : 0.f;
        }
    };
    copy_rows<ROWS>(keys, key, stride, length - first);
    copy_rows<ROWS>(values, key + kv_heads * HEAD_DIM, stride, length - first);
    fetch(0);
    commit();

    float dk[HEAD_DIM / 8][4] = {}, dv[HEAD_DIM / 8][4] = {};
    float to_log2 = scale * LOG2E;
    int own = first + warp * 16;
    for (int i = 0; i < total; i++) {
        if (i + 1 < total) fetch(i + 1);
        commit();
        wait_for<1>();
        __syncthreads();
        int at = begin + i % steps * STEP, stage = i & 1;
        // Queries before the warp's first key do not attend to any of its keys.
        if (at + STEP > own) {
            const bf16* q = queries + stage * STEP * LD;
            const bf16* d = douts + stage * STEP * LD;
            float s[STEP / 8][4] = {};
#pragma unroll
            for (int k = 0; k < KSTEPS; k++) {
                u32 a[4];
                left(a, keys, warp * 16, k * 16);
                product_t(s, a, q, k * 16);
            }
            int row = own + (lane >> 2);
            bool edge = at < own + 16;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int column = n * 8 + (lane & 3) * 2 + (j & 1);
                    s[n][j] = exp2_fast(s[n][j] * to_log2 - logs[stage][column]);
                    if (edge && at + column < row + (j < 2 ? 0 : 8)) s[n][j] = 0.f;
                }
            }
#pragma unroll
            for (int k = 0; k < STEP / 16; k++) {
                u32 a[4];
                as_left(a, s[2 * k], s[2 * k + 1]);
                product(dv, a, d, k * 16);
            }
            float dp[STEP / 8][4] = {};
#pragma unroll
            for (int k = 0; k < KSTEPS; k++) {
                u32 a[4];
                left(a, values, warp * 16, k * 16);
                product_t(dp, a, d, k * 16);
            }
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int column = n * 8 + (lane & 3) * 2 + (j & 1);
                    s[n][j] *= dp[n][j] - deltas[stage][column];
                }
            }
#pragma unroll
            for (int k = 0; k < STEP / 16; k++) {
                u32 a[4];
                as_left(a, s[2 * k], s[2 * k + 1]);
                product(dk, a, q, k * 16);
            }
        }
        __syncthreads();
    }
    bf16* to = dqkv + ((u64)tile.x + own) * stride + (heads + kv) * HEAD_DIM;
    bf16* stage = keys + warp * 16 * LD;
    write_rows(dk, scale, scale, stage, to, stride, length - own);
    write_rows(dv, 1.f, 1.f, stage, to + kv_heads * HEAD_DIM, stride, length - own);
}
