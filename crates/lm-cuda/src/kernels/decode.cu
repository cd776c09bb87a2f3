// Attention of running requests over the paged cache, with one query each.

// Marks the index of a result of the preceding step in the place of a token.
#define SAMPLED 0x80000000u

// Replaces such indices by the tokens. A result has the token and three other numbers.
extern "C" __global__ void feed(u32* tokens, int n, const uint4* sampled) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && (tokens[i] & SAMPLED)) tokens[i] = sampled[tokens[i] & ~SAMPLED].x;
}

// Rotates queries and keys of one column by its position and writes keys and values to the cache; queries stay
// in place. `tables` has the page tables of all sequences, `starts` the first entry of each column.
extern "C" __global__ void append(T* qkv, int heads, const u32* positions, const u32* starts, const u32* tables,
                                  Cache cache, const float* cosines, const float* sines) {
    const int half = HEAD_DIM / 2, pieces = (half + 7) / 8;
    int column = blockIdx.x, kv_heads = cache.kv_heads;
    u32 position = positions[column];
    if (position == PADDING) return;
    u64 place = cache_offset(cache, tables + starts[column], position);
    T* row = qkv + (u64)column * (heads + 2 * kv_heads) * HEAD_DIM;
    u64 at = (u64)position * half;
    bool wide = half % 8 == 0;
    for (int i = threadIdx.x; i < (heads + 2 * kv_heads) * pieces; i += blockDim.x) {
        int head = i / pieces, c = i % pieces * 8, n = half - c;
        float a[8], b[8], cs[8], sn[8];
        T* low = row + head * HEAD_DIM + c;
        get8(low, n, wide, a);
        get8(low + half, n, wide, b);
        T* to = low;
        if (head < heads + kv_heads) {
            get8(cosines + at + c, n, wide, cs);
            get8(sines + at + c, n, wide, sn);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float t = a[j];
                a[j] = t * cs[j] - b[j] * sn[j];
                b[j] = b[j] * cs[j] + t * sn[j];
            }
        }
        if (head >= heads) {
            int value = head >= heads + kv_heads;
            to = cache_keys(cache, head - heads - value * kv_heads) + value * cache_values(cache) + place + c;
        }
        put8(to, n, wide, a);
        put8(to + half, n, wide, b);
    }
}

// Copies pages in every layer; a pair is source and destination. One block per layer and pair.
extern "C" __global__ void copy_pages(Cache cache, u64 layer_len, const uint2* pairs) {
    uint2 pair = pairs[blockIdx.y];
    u64 len = 2 * cache_values(cache);
    T* layer = cache.pages + blockIdx.x * layer_len;
    const uint4* from = (const uint4*)(layer + pair.x * len);
    uint4* to = (uint4*)(layer + pair.y * len);
    for (u64 i = threadIdx.x; i < len * sizeof(T) / 16; i += blockDim.x) to[i] = from[i];
}

// Number of lanes per head: a power of two, with eight dimensions per lane.
#if HEAD_DIM <= 8
#define TEAM 1
#elif HEAD_DIM <= 16
#define TEAM 2
#elif HEAD_DIM <= 32
#define TEAM 4
#elif HEAD_DIM <= 64
#define TEAM 8
#elif HEAD_DIM <= 128
#define TEAM 16
#else
#define TEAM 32
#endif
#define KEYS_AT_ONCE 4
#define WARPS 4
// Keys that a block reads at a time.
#define STRIDE (WARPS * (32 / TEAM))

DEVICE float team_sum(float v) {
#pragma unroll
    for (int o = TEAM / 2; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

// Returns the number of positions of one part of a column's attention. A column has at most `most_parts` parts of at
// least `shortest` positions.
DEVICE int part_length(int length, int most_parts, int shortest) { return max((length + most_parts - 1) / most_parts, shortest); }

// Computes attention with one block per column, head and part of the positions. The surplus blocks of short columns
// return. The result of a single part goes to `out`. If there are several parts, each writes maximum, mass and sum to
// `partials`, [column][head][part][2 + HEAD_DIM]. Scores are exponents of two.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attend(const T* qkv, int heads, const u32* positions, const u32* starts, const u32* tables, Cache cache,
           float scale, int most_parts, int shortest, T* out, float* partials) {
    __shared__ float peaks[STRIDE], masses[STRIDE], sums[STRIDE][HEAD_DIM];
    int column = blockIdx.x, head = blockIdx.y % heads, part = blockIdx.y / heads;
    int kv = head / (heads / cache.kv_heads), lane = threadIdx.x & 31;
    int team = threadIdx.x / TEAM, d = lane % TEAM * 8, left = HEAD_DIM - d;
    if (positions[column] == PADDING) return;
    bool wide = (HEAD_DIM & 7) == 0 && d < HEAD_DIM;
    const u32* table = tables + starts[column];
    int length = positions[column] + 1, part_len = part_length(length, most_parts, shortest);
    int first = part * part_len, last = min(length, first + part_len);
    // All threads of a block return together, so that none waits at a barrier.
    if (first >= length) return;
    bool single = part_len >= length;
    float q[8], sum[8] = {}, peak = -INFINITE, mass = 0.f;
    get8(qkv + ((u64)column * (heads + 2 * cache.kv_heads) + head) * HEAD_DIM + d, left, wide, q);
#pragma unroll
    for (int j = 0; j < 8; j++) q[j] *= scale * LOG2E;
    u64 to_values = cache_values(cache);
    // All teams of a warp do the same number of iterations, because they sum together.
    for (int base = first; base < last; base += STRIDE * KEYS_AT_ONCE) {
        float s[KEYS_AT_ONCE];
        Eight keys[KEYS_AT_ONCE], values[KEYS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < KEYS_AT_ONCE; i++) {
            // After the end, read the last position again and ignore it.
            int position = min(base + i * STRIDE + team, last - 1);
            const T* key = cache_keys(cache, kv) + cache_offset(cache, table, position) + d;
            keys[i] = fetch8(key, left, wide);
            values[i] = fetch8(key + to_values, left, wide);
        }
#pragma unroll
        for (int i = 0; i < KEYS_AT_ONCE; i++) {
            float k[8], dot = 0.f;
            unpack(keys[i], k);
#pragma unroll
            for (int j = 0; j < 8; j++) dot += q[j] * k[j];
            s[i] = base + i * STRIDE + team < last ? dot : -INFINITE;
        }
        float top = peak;
#pragma unroll
        for (int i = 0; i < KEYS_AT_ONCE; i++) {
            s[i] = team_sum(s[i]);
            top = fmaxf(top, s[i]);
        }
        // If there was no position so far, keep zeros instead of 2^(inf - inf).
        float zero = top == -INFINITE ? 0.f : top;
        float fade = exp2_fast(peak - zero);
        mass *= fade;
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] *= fade;
#pragma unroll
        for (int i = 0; i < KEYS_AT_ONCE; i++) {
            float p = exp2_fast(s[i] - zero), v[8];
            unpack(values[i], v);
            mass += p;
#pragma unroll
            for (int j = 0; j < 8; j++) sum[j] += p * v[j];
        }
        peak = top;
    }
    if (lane % TEAM == 0) peaks[team] = peak, masses[team] = mass;
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (d + j < HEAD_DIM) sums[team][d + j] = sum[j];
    __syncthreads();
    float top = -INFINITE, total = 0.f;
    for (int t = 0; t < STRIDE; t++) top = fmaxf(top, peaks[t]);
    float zero = top == -INFINITE ? 0.f : top;
    for (int t = 0; t < STRIDE; t++) total += masses[t] * exp2_fast(peaks[t] - zero);
    u64 row = (u64)column * heads + head;
    float* partial = partials + (row * most_parts + part) * (2 + HEAD_DIM);
    for (int c = threadIdx.x; c < HEAD_DIM; c += 32 * WARPS) {
        float v = 0.f;
        for (int t = 0; t < STRIDE; t++) v += sums[t][c] * exp2_fast(peaks[t] - zero);
        if (single)
            put(out + row * HEAD_DIM + c, v / total);
        else
            partial[2 + c] = v;
    }
    if (!single && threadIdx.x == 0) partial[0] = top, partial[1] = total;
}

// Computes the same as `attend`, for short sequences, many of which run at once: one warp per column and head, all in
// registers.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attend_short(const T* qkv, int columns, int heads, const u32* positions, const u32* starts, const u32* tables,
                 Cache cache, float scale, T* out) {
    const int TEAMS = 32 / TEAM;
    int row = blockIdx.x * WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    int column = row / heads, head = row % heads;
    // Whole warps return.
    if (column >= columns || positions[column] == PADDING) return;
    int kv = head / (heads / cache.kv_heads), team = lane / TEAM, d = lane % TEAM * 8, left = HEAD_DIM - d;
    bool wide = (HEAD_DIM & 7) == 0 && d < HEAD_DIM;
    const u32* table = tables + starts[column];
    int length = positions[column] + 1;
    float q[8], sum[8] = {}, peak = -INFINITE, mass = 0.f;
    get8(qkv + ((u64)column * (heads + 2 * cache.kv_heads) + head) * HEAD_DIM + d, left, wide, q);
#pragma unroll
    for (int j = 0; j < 8; j++) q[j] *= scale * LOG2E;
    u64 to_values = cache_values(cache);
    for (int base = 0; base < length; base += TEAMS * KEYS_AT_ONCE) {
        float s[KEYS_AT_ONCE];
        Eight keys[KEYS_AT_ONCE], values[KEYS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < KEYS_AT_ONCE; i++) {
            // After the end, read the last position again and ignore it.
            int position = min(base + i * TEAMS + team, length - 1);
            const T* key = cache_keys(cache, kv) + cache_offset(cache, table, position) + d;
            keys[i] = fetch8(key, left, wide);
            values[i] = fetch8(key + to_values, left, wide);
        }
        float top = peak;
#pragma unroll
        for (int i = 0; i < KEYS_AT_ONCE; i++) {
            float k[8], dot = 0.f;
            unpack(keys[i], k);
#pragma unroll
            for (int j = 0; j < 8; j++) dot += q[j] * k[j];
            dot = team_sum(dot);
            s[i] = base + i * TEAMS + team < length ? dot : -INFINITE;
            top = fmaxf(top, s[i]);
        }
        // If there was no position so far, keep zeros instead of 2^(inf - inf).
        float zero = top == -INFINITE ? 0.f : top;
        float fade = exp2_fast(peak - zero);
        mass *= fade;
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] *= fade;
#pragma unroll
        for (int i = 0; i < KEYS_AT_ONCE; i++) {
            float p = exp2_fast(s[i] - zero), v[8];
            unpack(values[i], v);
            mass += p;
#pragma unroll
            for (int j = 0; j < 8; j++) sum[j] += p * v[j];
        }
        peak = top;
    }
    // The teams are merged in pairs; the first team has read at least one key.
#pragma unroll
    for (int o = TEAM; o < 32; o <<= 1) {
        float other = __shfl_xor_sync(0xffffffffu, peak, o), top = fmaxf(peak, other);
        float zero = top == -INFINITE ? 0.f : top;
        float own = exp2_fast(peak - zero), its = exp2_fast(other - zero);
        mass = mass * own + __shfl_xor_sync(0xffffffffu, mass, o) * its;
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] = sum[j] * own + __shfl_xor_sync(0xffffffffu, sum[j], o) * its;
        peak = top;
    }
    if (team > 0 || d >= HEAD_DIM) return;
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] /= mass;
    put8(out + (u64)row * HEAD_DIM + d, left, wide, sum);
}

// Merges the parts of a column and head, if there are several.
extern "C" __global__ void join(const float* partials, int heads, const u32* positions, int most_parts, int shortest, T* out) {
    u64 row = blockIdx.x;
    if (positions[row / heads] == PADDING) return;
    int length = positions[row / heads] + 1, part_len = part_length(length, most_parts, shortest);
    if (part_len >= length) return;
    int count = (length + part_len - 1) / part_len;
    const float* partial = partials + row * most_parts * (2 + HEAD_DIM);
    float top = -INFINITE, total = 0.f;
    for (int s = 0; s < count; s++) top = fmaxf(top, partial[s * (2 + HEAD_DIM)]);
    for (int s = 0; s < count; s++) total += partial[s * (2 + HEAD_DIM) + 1] * exp2_fast(partial[s * (2 + HEAD_DIM)] - top);
    for (int c = threadIdx.x; c < HEAD_DIM; c += blockDim.x) {
        float v = 0.f;
        for (int s = 0; s < count; s++) {
            const float* p = partial + s * (2 + HEAD_DIM);
            v += p[2 + c] * exp2_fast(p[0] - top);
        }
        put(out + row * HEAD_DIM + c, v / total);
    }
}
