// Samples from truncated distributions (top-k, then top-p), one row per block, without sorting. Each
// truncation, and the sample itself, is a bitwise search for the largest logit rank such that the tokens with
// at least this rank reach a count or a mass. Weights are integers, so sums do not depend on the order.

// Number of bits of a rank: those of a stored logit.
#if BF16
#define RANK_BITS 16
#else
#define RANK_BITS 32
#endif

struct Row {
    const T* logits;
    int vocabulary;
    bool wide;
    float peak, inverse_temperature;
};

// Returns an integer that orders logits: a greater logit has a greater rank.
DEVICE u32 rank_of(float logit) {
    u32 bits = __float_as_uint(logit);
    return (bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u)) >> (32 - RANK_BITS);
}

DEVICE float logit_of(u32 rank) {
    u32 bits = rank << (32 - RANK_BITS);
    return __uint_as_float(bits >> 31 ? bits ^ 0x80000000u : ~bits & (0xffffffffu << (32 - RANK_BITS)));
}

// Returns the probability after the temperature, scaled so that the most probable token has 2^40.
DEVICE u64 weight_of(const Row& r, float logit) {
    return (u64)(expf((logit - r.peak) * r.inverse_temperature) * 1099511627776.f);
}

DEVICE u64 block_total(u64 v) {
    __shared__ u64 parts[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    __syncthreads();
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    v = 0;
    for (int w = 0; w < warps; w++) v += parts[w];
    return v;
}

// Returns to every thread the weight (with COUNT: the number) of the tokens whose rank is at least `from`.
template <bool COUNT> DEVICE u64 at_least(const Row& r, u32 from) {
    u64 sum = 0;
    for (int c = threadIdx.x * 8; c < r.vocabulary; c += blockDim.x * 8) {
        float v[8];
        int n = min(8, r.vocabulary - c);
        get8(r.logits + c, n, r.wide, v);
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (j < n && rank_of(v[j]) >= from) sum += COUNT ? 1ull : weight_of(r, v[j]);
    }
    return block_total(sum);
}

// Returns the largest rank such that the tokens with at least this rank reach `wanted`, which is at least 1 and
// at most the row's total. It is the rank of a token.
template <bool COUNT> DEVICE u32 reach(const Row& r, u64 wanted) {
    u32 rank = 0;
    for (int bit = RANK_BITS - 1; bit >= 0; bit--) {
        u32 probe = rank | 1u << bit;
        if (at_least<COUNT>(r, probe) >= wanted) rank = probe;
    }
    return rank;
}

// Returns the token of a rank that follows `place` others of that rank, in the order of ids.
DEVICE int token_at(const Row& r, u32 rank, u64 place) {
    __shared__ u32 counts[1024];
    __shared__ int found;
    int share = (r.vocabulary + blockDim.x - 1) / blockDim.x;
    int first = threadIdx.x * share, last = min(r.vocabulary, first + share);
    u32 own = 0;
    for (int c = first; c < last; c++) own += rank_of(to_f(r.logits[c])) == rank;
    counts[threadIdx.x] = own;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    u64 before = 0;
    for (int t = 0; t < threadIdx.x; t++) before += counts[t];
    if (before <= place && place < before + own) {
        int c = first;
        for (u64 skip = place - before;; c++) {
            if (rank_of(to_f(r.logits[c])) != rank) continue;
            if (skip == 0) break;
            skip--;
        }
        found = c;
    }
    __syncthreads();
    return found;
}

// Samples from the `top_k` most probable tokens (all, if 0), and of these from the fewest that reach `top_p` of
// their mass, in the order of decreasing probability and of ids for equal ones: the first token whose
// cumulative weight exceeds `uniform` times the total of the remaining tokens. The whole block cooperates, and
// every thread gets the token.
DEVICE int draw_truncated(const Row& r, float top_p, u32 top_k, double uniform) {
    u64 total;
    if (top_k > 0 && top_k < r.vocabulary) {
        u32 cut = reach<true>(r, top_k);
        u64 equal = top_k - at_least<true>(r, cut + 1);
        total = at_least<false>(r, cut + 1) + equal * weight_of(r, logit_of(cut));
    } else {
        total = at_least<false>(r, 0);
    }
    if (top_p < 1.f) {
        u64 wanted = min(total, (u64)ceil((double)top_p * (double)total));
        wanted = max(wanted, 1ull);
        u32 cut = reach<false>(r, wanted);
        u64 above = at_least<false>(r, cut + 1), weight = weight_of(r, logit_of(cut));
        total = above + (wanted - above + weight - 1) / weight * weight;
    }
    u64 aim = min((u64)(uniform * (double)total), total - 1);
    u32 rank = reach<false>(r, aim + 1);
    return token_at(r, rank, (aim - at_least<false>(r, rank + 1)) / weight_of(r, logit_of(rank)));
}
