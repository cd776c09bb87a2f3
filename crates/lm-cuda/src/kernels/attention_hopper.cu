// Causal attention within packed sequences on Hopper, after Shah et al. 2024 (FlashAttention-3). One warp
// starts copies of tiles to shared memory ahead of two warpgroups with 64 rows each; the matrix products of one
// warpgroup run while the other computes weights. The backward pass has two kernels, one by blocks of queries
// and one by blocks of keys, so it needs no atomics and its sums have a fixed order.
//
// A tile is TILE rows of one sequence: first row of the sequence, its length, first row of the tile within it,
// and index of the sequence's first entry in `stats`. Copies include rows after the end of the sequence. No row
// of the sequence attends to them, and their own results are not written.

#define TILE 128
#define STEP 64
#define TILE_BYTES (TILE * HEAD_DIM * 2)
#define STEP_BYTES (STEP * HEAD_DIM * 2)
#define THREADS 384
#define STAGES 2
#define BACK_STAGES 4

// The block's shared memory, starting at a multiple of 1,024 bytes, as swizzled tiles require.
DEVICE char* aligned_shared() {
    extern __shared__ char shared[];
    return shared + (-shared_address(shared) & 1023);
}

// Warpgroup 0 copies; warpgroups 1 and 2 are groups 0 and 1 of the tile's rows.
DEVICE int warpgroup() { return __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0); }

// The tiles of all heads, those with the most work first, are assigned to the blocks in alternating order. The
// next tile is copied while a block finishes the current one. Returns the tile of a block in a round.
DEVICE int dealt(int round) {
    return round * gridDim.x + (round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

// Signals that the warp has read the data that a barrier guards. Products must be complete and loaded values used
// before the call, because the copy engine may overwrite the data immediately and does not wait for pending loads.
DEVICE void release(u32 barrier) {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) arrive(barrier);
}

// As `release`, for a step of the backward pass that the warp does not need. The warp still waits for the step;
// otherwise its arrival could count for the previous step in the same stage, which the other group may still be
// reading.
DEVICE void release_unread(u32 full, u32 empty, int step) {
    await(full + step % BACK_STAGES * 8, step / BACK_STAGES & 1);
    release(empty + step % BACK_STAGES * 8);
}

// Converts scores to weights e^(scale (s - peak)), updates the peaks and masses of both rows, and returns the
// factors that rescale the previous sums to the new peaks. Every row attends to itself in the first step, so
// all peaks are finite afterwards.
DEVICE void soften(float (&s)[TILE / 2], float (&peak)[2], float (&mass)[2], float (&fade)[2], float to_log2) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = peak[r];
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) top = fmaxf(top, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
        top = quad_max(top);
        fade[r] = exp2_fast((peak[r] - top) * to_log2);
        peak[r] = top;
        float shift = top * to_log2, sum = 0.f;
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
            for (int j = 2 * r; j < 2 * r + 2; j++) {
                s[4 * n + j] = exp2_fast(s[4 * n + j] * to_log2 - shift);
                sum += s[4 * n + j];
            }
        }
        mass[r] = mass[r] * fade[r] + sum;
    }
}

// The steps go from the tile's own keys, which need the mask, to the first keys.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ Map qkv, const int4* tiles, int count, int heads, int kv_heads, float scale,
              bf16* out, float* lse) {
    u32 queries = shared_address(aligned_shared()), keys = queries + TILE_BYTES, values = keys + STAGES * TILE_BYTES;
    u32 query_full = values + STAGES * TILE_BYTES, query_empty = query_full + 8;
    u32 key_full = query_empty + 8, value_full = key_full + STAGES * 8;
    u32 key_empty = value_full + STAGES * 8, value_empty = key_empty + STAGES * 8;
    if (threadIdx.x == 0) {
        barrier_new(query_full, 1);
        barrier_new(query_empty, 8);
#pragma unroll
        for (int i = 0; i < STAGES; i++) {
            barrier_new(key_full + i * 8, 1);
            barrier_new(value_full + i * 8, 1);
            barrier_new(key_empty + i * 8, 8);
            barrier_new(value_empty + i * 8, 8);
        }
        barriers_made();
    }
    __syncthreads();
    int group = warpgroup() - 1, items = count * heads;
    if (group < 0) {
        fewer_registers<24>();
        if (threadIdx.x != 0) return;
        for (int round = 0, n = 0, item; (item = dealt(round)) < items; round++) {
            int4 tile = tiles[item / heads];
            int head = item % heads, key = heads + head / (heads / kv_heads), value = key + kv_heads;
            await(query_empty, round & 1 ^ 1);
            expect(query_full, TILE_BYTES);
            copy_tile(queries, qkv, tile.x + tile.z, head, query_full);
            for (int at = tile.z; at >= 0; at -= TILE, n++) {
                int stage = n % STAGES, row = tile.x + at;
                u32 parity = n / STAGES & 1;
                await(key_empty + stage * 8, parity ^ 1);
                expect(key_full + stage * 8, TILE_BYTES);
                copy_tile(keys + stage * TILE_BYTES, qkv, row, key, key_full + stage * 8);
                await(value_empty + stage * 8, parity ^ 1);
                expect(value_full + stage * 8, TILE_BYTES);
                copy_tile(values + stage * TILE_BYTES, qkv, row, value, value_full + stage * 8);
            }
        }
    } else {
        more_registers<240>();
        int lane = threadIdx.x & 31, own = group * 64 + (threadIdx.x >> 5 & 3) * 16;
        float s[TILE / 2], sum[HEAD_DIM / 2];
        u32 p[TILE / 4];
        float to_log2 = scale * LOG2E;
        // One group computes weights while the products of the other group run.
        if (group == 1) give_turn(0);
        for (int round = 0, n = 0, item; (item = dealt(round)) < items; round++) {
            int head = item % heads;
            int4 tile = tiles[item / heads];
            int first = tile.z, steps = first / TILE + 1;
            float peak[2] = {-INFINITE, -INFINITE}, mass[2] = {}, fade[2];
            await(query_full, round & 1);
            await(key_full + n % STAGES * 8, n / STAGES & 1);
            products_begin();
            product_t<TILE>(s, queries, group * 64, keys + n % STAGES * TILE_BYTES);
            products_end();
            products_wait<0>();
            settled(s);
            release(key_empty + n % STAGES * 8);
            int row = own + (lane >> 2);
#pragma unroll
            for (int i = 0; i < TILE / 2; i++) {
                int column = i / 4 * 8 + (lane & 3) * 2 + (i & 1);
                if (column > row + (i & 2) * 4) s[i] = -INFINITE;
            }
            soften(s, peak, mass, fade, to_log2);
            as_left(p, s);
            for (int i = 1; i < steps; i++, n++) {
                int last = n % STAGES, stage = (n + 1) % STAGES;
                await(key_full + stage * 8, (n + 1) / STAGES & 1);
                take_turn(group);
                products_begin();
                product_t<TILE>(s, queries, group * 64, keys + stage * TILE_BYTES);
                products_end();
                await(value_full + last * 8, n / STAGES & 1);
                product(sum, p, values + last * TILE_BYTES, i > 1);
                products_end();
                give_turn(1 - group);
                products_wait<1>();
                settled(s);
                release(key_empty + stage * 8);
                soften(s, peak, mass, fade, to_log2);
                settled(s);
                products_wait<0>();
                settled(sum);
                release(value_empty + last * 8);
#pragma unroll
                for (int k = 0; k < HEAD_DIM / 2; k++) sum[k] *= fade[k >> 1 & 1];
                as_left(p, s);
            }
            release(query_empty);
            int last = n % STAGES;
            await(value_full + last * 8, n / STAGES & 1);
            products_begin();
            product(sum, p, values + last * TILE_BYTES, steps > 1);
            products_end();
            products_wait<0>();
            settled(sum);
            release(value_empty + last * 8);
            n++;
            mass[0] = quad_sum(mass[0]), mass[1] = quad_sum(mass[1]);
            int valid = tile.y - first - own;
            u64 line = (u64)tile.x + first + own;
            write_rows_directly(sum, 1.f / mass[0], 1.f / mass[1], out + (line * heads + head) * HEAD_DIM,
                       (u64)heads * HEAD_DIM, valid);
            if ((lane & 3) == 0) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    int mine = (lane >> 2) + 8 * r;
                    if (mine < valid) lse[(line + mine) * heads + head] = peak[r] * scale + logf(mass[r]);
                }
            }
        }
    }
}

// Computes the statistics of every row for the backward kernels. `stats` is [heads, 2, padded]: for every head
// the log-sum-exp times log2(e), then the sum of out dout over the head. Every sequence starts at a multiple of
// TILE; rows after its end have weight e^-inf = 0 and add nothing.
extern "C" __global__ void __launch_bounds__(256)
    attention_stats(const int4* tiles, int heads, int padded, const bf16* out, const float* lse, const bf16* dout,
                    float* stats) {
    int head = blockIdx.x, part = threadIdx.x % CHUNKS;
    int4 tile = tiles[blockIdx.y];
    float* to = stats + (u64)head * 2 * padded + tile.w + tile.z;
#pragma unroll 4
    for (int row = threadIdx.x / CHUNKS; row < TILE; row += 256 / CHUNKS) {
        bool keep = tile.z + row < tile.y;
        u64 line = ((u64)tile.x + tile.z + row) * heads + head;
        float d = 0.f;
        if (keep) {
            float x[8], y[8];
            load8(out + line * HEAD_DIM + part * 8, x);
            load8(dout + line * HEAD_DIM + part * 8, y);
#pragma unroll
            for (int j = 0; j < 8; j++) d += x[j] * y[j];
        }
#pragma unroll
        for (int o = CHUNKS / 2; o; o >>= 1) d += __shfl_xor_sync(0xffffffffu, d, o);
        if (part == 0) {
            to[row] = keep ? lse[line] * LOG2E : INFINITE;
            to[padded + row] = d;
        }
    }
}

// Computes the gradient of the queries. Queries and gradients of the results stay in registers.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dq(const __grid_constant__ Map qkv, const __grid_constant__ Map short_qkv,
                 const __grid_constant__ Map dout, const int4* tiles, int heads, int kv_heads, float scale,
                 const float* stats, int padded, bf16* dqkv) {
    char* shared = aligned_shared();
    u32 queries = shared_address(shared), douts = queries + TILE_BYTES, keys = douts + TILE_BYTES;
    u32 values = keys + BACK_STAGES * STEP_BYTES;
    u32 query_full = values + BACK_STAGES * STEP_BYTES, full = query_full + 8, empty = full + BACK_STAGES * 8;
    if (threadIdx.x == 0) {
        barrier_new(query_full, 1);
#pragma unroll
        for (int i = 0; i < BACK_STAGES; i++) {
            barrier_new(full + i * 8, 1);
            barrier_new(empty + i * 8, 8);
        }
        barriers_made();
    }
    __syncthreads();
    int head = blockIdx.x;
    int4 tile = tiles[blockIdx.y];
    int length = tile.y, first = tile.z, steps = (min(length, first + TILE) + STEP - 1) / STEP;
    int group = warpgroup() - 1;
    if (group < 0) {
        fewer_registers<24>();
        if (threadIdx.x == 0) {
            int key = heads + head / (heads / kv_heads), value = key + kv_heads;
            expect(query_full, 2 * TILE_BYTES);
            copy_tile(queries, qkv, tile.x + first, head, query_full);
            copy_tile(douts, dout, tile.x + first, head, query_full);
            for (int i = 0; i < steps; i++) {
                int stage = i % BACK_STAGES, row = tile.x + (steps - 1 - i) * STEP;
                await(empty + stage * 8, i / BACK_STAGES & 1 ^ 1);
                expect(full + stage * 8, 2 * STEP_BYTES);
                copy_tile(keys + stage * STEP_BYTES, short_qkv, row, key, full + stage * 8);
                copy_tile(values + stage * STEP_BYTES, short_qkv, row, value, full + stage * 8);
            }
        }
    } else {
        more_registers<240>();
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, own = group * 64 + warp * 16;
        u32 q[KSTEPS][4], d[KSTEPS][4], ds[STEP / 4];
        float s[STEP / 2], dp[STEP / 2], dq[HEAD_DIM / 2];
        float to_log2 = scale * LOG2E;
        const float* stat = stats + (u64)head * 2 * padded + tile.w + first + own + (lane >> 2);
        float log[2] = {stat[0], stat[8]}, delta[2] = {stat[padded], stat[padded + 8]};
        // In steps before the one with the group's own keys, none of its queries attends to a key.
        int i = steps - 1 - (first / STEP + group), begin = i;
        for (int skipped = 0; skipped < i; skipped++) release_unread(full, empty, skipped);
        await(query_full, 0);
        left<TILE>(q, queries, own);
        left<TILE>(d, douts, own);
        if (first + group * 64 < length) {
            auto open = [&](int i) {
                int stage = i % BACK_STAGES;
                await(full + stage * 8, i / BACK_STAGES & 1);
                products_begin();
                product_t(s, q, keys + stage * STEP_BYTES);
                product_t(dp, d, values + stage * STEP_BYTES);
                products_end();
            };
            // Convert scores to their gradients.
            auto gradients = [&] {
#pragma unroll
                for (int n = 0; n < STEP / 2; n++) {
                    int r = n >> 1 & 1;
                    s[n] = exp2_fast(s[n] * to_log2 - log[r]) * (dp[n] - delta[r]);
                }
            };
            open(i);
            products_wait<0>();
            settled(s);
            settled(dp);
            int row = warp * 16 + (lane >> 2);
#pragma unroll
            for (int n = 0; n < STEP / 2; n++) {
                int column = n / 4 * 8 + (lane & 3) * 2 + (n & 1);
                if (column > row + (n & 2) * 4) s[n] = -INFINITE;
            }
            gradients();
            as_left(ds, s);
            for (; i < steps - 1; i++) {
                open(i + 1);
                product(dq, ds, keys + i % BACK_STAGES * STEP_BYTES, i > begin);
                products_end();
                products_wait<1>();
                settled(s);
                settled(dp);
                gradients();
                settled(s);
                products_wait<0>();
                settled(dq);
                release(empty + i % BACK_STAGES * 8);
                as_left(ds, s);
            }
            products_begin();
            product(dq, ds, keys + i % BACK_STAGES * STEP_BYTES, i > begin);
            products_end();
            products_wait<0>();
            settled(dq);
            meet(group);
            u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM;
            write_rows<TILE>(dq, scale, scale, shared, own,
                             dqkv + ((u64)tile.x + first + own) * stride + head * HEAD_DIM, stride,
                             length - first - own);
        } else {
            for (i = 0; i < steps; i++) release_unread(full, empty, i);
        }
    }
}

// Computes the gradients of keys and values. A tile is a block of keys; the queries from its first row on are
// streamed, for every query head that shares the key head.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dkv(const __grid_constant__ Map qkv, const __grid_constant__ Map short_qkv,
                  const __grid_constant__ Map short_dout, const int4* tiles, int heads, int kv_heads,
                  float scale, const float* stats, int padded, bf16* dqkv) {
    char* shared = aligned_shared();
    u32 keys = shared_address(shared), values = keys + TILE_BYTES, queries = values + TILE_BYTES;
    u32 douts = queries + BACK_STAGES * STEP_BYTES, columns = douts + BACK_STAGES * STEP_BYTES;
    u32 key_full = columns + BACK_STAGES * STEP * 8, full = key_full + 8, empty = full + BACK_STAGES * 8;
    const float* numbers = (const float*)(shared + (columns - keys));
    if (threadIdx.x == 0) {
        barrier_new(key_full, 1);
#pragma unroll
        for (int i = 0; i < BACK_STAGES; i++) {
            barrier_new(full + i * 8, 1);
            barrier_new(empty + i * 8, 8);
        }
        barriers_made();
    }
    __syncthreads();
    int kv = blockIdx.x;
    int4 tile = tiles[blockIdx.y];
    int length = tile.y, first = tile.z, shared_by = heads / kv_heads;
    // Steps over the queries of one head, starting at the one with the tile's first row.
    int steps = (length - first + STEP - 1) / STEP, total = steps * shared_by;
    int group = warpgroup() - 1;
    if (group < 0) {
        fewer_registers<24>();
        if (threadIdx.x == 0) {
            expect(key_full, 2 * TILE_BYTES);
            copy_tile(keys, qkv, tile.x + first, heads + kv, key_full);
            copy_tile(values, qkv, tile.x + first, heads + kv_heads + kv, key_full);
            for (int i = 0; i < total; i++) {
                int stage = i % BACK_STAGES, head = kv * shared_by + i / steps, row = first + i % steps * STEP;
                const float* stat = stats + (u64)head * 2 * padded + tile.w + row;
                u32 ready = full + stage * 8;
                await(empty + stage * 8, i / BACK_STAGES & 1 ^ 1);
                expect(ready, 2 * STEP_BYTES + 2 * STEP * 4);
                copy_tile(queries + stage * STEP_BYTES, short_qkv, tile.x + row, head, ready);
                copy_tile(douts + stage * STEP_BYTES, short_dout, tile.x + row, head, ready);
                copy_bytes(columns + stage * STEP * 8, stat, STEP * 4, ready);
                copy_bytes(columns + stage * STEP * 8 + STEP * 4, stat + padded, STEP * 4, ready);
            }
        }
    } else {
        more_registers<240>();
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, own = group * 64 + warp * 16;
        float s[STEP / 2], dp[STEP / 2], dk[HEAD_DIM / 2], dv[HEAD_DIM / 2];
        u32 p[STEP / 4], ds[STEP / 4];
        float to_log2 = scale * LOG2E;
        await(key_full, 0);
        // In a head's first step, no query attends to the keys of group 1, which skips to the next step.
        auto from = [&](int i) {
            if (group == 1 && i < total && i % steps == 0) {
                release_unread(full, empty, i);
                i++;
            }
            return i;
        };
        auto open = [&](int i) {
            int stage = i % BACK_STAGES;
            await(full + stage * 8, i / BACK_STAGES & 1);
            products_begin();
            product_t<TILE>(s, keys, group * 64, queries + stage * STEP_BYTES);
            products_end();
            product_t<TILE>(dp, values, group * 64, douts + stage * STEP_BYTES);
            products_end();
        };
        if (first + group * 64 < length) {
            int i = from(0), before = -1;
            open(i);
            while (true) {
                int stage = i % BACK_STAGES;
                const float* number = numbers + stage * STEP * 2 + (lane & 3) * 2;
                products_wait<1>();
                settled(s);
                settled(dk);
                if (before >= 0) release(empty + before * 8);
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
                    float2 log = *(const float2*)(number + n * 8);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        s[4 * n + j] = exp2_fast(s[4 * n + j] * to_log2 - (j & 1 ? log.y : log.x));
                }
                if (i % steps == group) {
                    int row = warp * 16 + (lane >> 2);
#pragma unroll
                    for (int n = 0; n < STEP / 2; n++) {
                        int column = n / 4 * 8 + (lane & 3) * 2 + (n & 1);
                        if (column < row + (n & 2) * 4) s[n] = 0.f;
                    }
                }
                as_left(p, s);
                products_begin();
                product(dv, p, douts + stage * STEP_BYTES, before >= 0);
                products_end();
                products_wait<1>();
                settled(dp);
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
                    float2 delta = *(const float2*)(number + STEP + n * 8);
#pragma unroll
                    for (int j = 0; j < 4; j++) s[4 * n + j] *= dp[4 * n + j] - (j & 1 ? delta.y : delta.x);
                }
                as_left(ds, s);
                products_begin();
                product(dk, ds, queries + stage * STEP_BYTES, before >= 0);
                products_end();
                // The registers of the weights are free again.
                products_wait<1>();
                settled(dv);
                before = stage;
                i = from(i + 1);
                if (i >= total) break;
                open(i);
            }
            products_wait<0>();
            settled(dk);
            settled(dv);
            meet(group);
            u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM;
            bf16* to = dqkv + ((u64)tile.x + first + own) * stride + (heads + kv) * HEAD_DIM;
            write_rows<TILE>(dk, scale, scale, shared, own, to, stride, length - first - own);
            write_rows<TILE>(dv, 1.f, 1.f, shared + TILE_BYTES, own, to + kv_heads * HEAD_DIM, stride,
                             length - first - own);
        } else {
            for (int i = 0; i < total; i++) release_unread(full, empty, i);
        }
    }
}
