// Attention of prompt tokens over the paged cache on tensor cores. A tile is up to ROWS consecutive columns of
// one sequence: first column, number of columns, position of the first column, and first entry of the
// sequence's page table. Every row's sum runs over the keys from the first on in steps of STEP, so it does not
// depend on how a prompt is divided.

// Copies STEP positions of a sequence, starting at `at`, to shared memory; positions from `end` on become zero.
DEVICE void copy_positions(bf16* to, const bf16* base, Cache cache, const u32* table, int at, int end) {
#pragma unroll
    for (int i = threadIdx.x; i < STEP * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, c = i % CHUNKS * 8;
        bool keep = at + row < end;
        copy16(to + row * LD + c, base + (keep ? cache_offset(cache, table, at + row) : 0) + c, keep);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 8 / WARPS)
    prompt(const bf16* qkv, const int4* tiles, const u32* tables, Cache cache, int heads, float scale, bf16* out) {
    extern __shared__ __align__(16) bf16 shared[];
    bf16 *queries = shared, *keys = queries + ROWS * LD, *values = keys + 2 * STEP * LD;
    int head = blockIdx.x, warp = threadIdx.x >> 5;
    int4 tile = tiles[blockIdx.y];
    int count = tile.y, end = tile.z + count;
    if (count == 0) return;
    const u32* table = tables + tile.w;
    u64 stride = (u64)(heads + 2 * cache.kv_heads) * HEAD_DIM;
    const bf16* key = cache_keys(cache, head / (heads / cache.kv_heads));
    const bf16* value = key + cache_values(cache);
    int steps = (end + STEP - 1) / STEP;

    copy_rows<ROWS>(queries, qkv + tile.x * stride + head * HEAD_DIM, stride, count);
    copy_positions(keys, key, cache, table, 0, end);
    copy_positions(values, value, cache, table, 0, end);
    commit();

    float sum[HEAD_DIM / 8][4] = {};
    float peak0 = -INFINITE, peak1 = -INFINITE, mass0 = 0.f, mass1 = 0.f;
    float to_log2 = scale * LOG2E;
    int valid = count - warp * 16, own = tile.z + warp * 16;
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            int next = (step + 1) & 1, at = (step + 1) * STEP;
            copy_positions(keys + next * STEP * LD, key, cache, table, at, end);
            copy_positions(values + next * STEP * LD, value, cache, table, at, end);
        }
        commit();
        wait_for<1>();
        __syncthreads();
        int at = step * STEP;
        if (at <= own + 15 && valid > 0) {
            const bf16* k = keys + (step & 1) * STEP * LD;
            const bf16* v = values + (step & 1) * STEP * LD;
            attend(queries, k, v, own, at, sum, peak0, peak1, mass0, mass1, to_log2);
        }
        __syncthreads();
    }
    u64 line = (u64)tile.x + warp * 16;
    write_rows(sum, 1.f / quad_sum(mass0), 1.f / quad_sum(mass1), queries + warp * 16 * LD,
               out + (line * heads + head) * HEAD_DIM, (u64)heads * HEAD_DIM, valid);
}
