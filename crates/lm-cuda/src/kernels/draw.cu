// Samples the next token of each column from its logits. Compiled after training.cu, whose summaries it uses,
// and truncate.cu.

struct Drawn {
    u32 token;
    float log_prob, entropy;
    u32 finite;
};

// Tokens that a block processes per iteration, and maximum number of iterations for a vocabulary.
#define TURN 2048
#define TURNS 512

// Parameters of one sample.
struct Choice {
    float temperature, top_p;
    u32 top_k, padding;
    double uniform;
};

// One block of 256 threads per column. With temperature 0 it takes the first most probable token; otherwise the
// first token whose cumulative mass exceeds `uniform` times the total, in the order of ids, or of decreasing
// probability if the distribution is truncated.
extern "C" __global__ void __launch_bounds__(256)
    draw(const T* logits, int vocabulary, const Choice* choices, Drawn* drawn) {
    __shared__ float masses[TURNS], warp_masses[8];
    __shared__ int chosen_turn, best;
    __shared__ double rest;
    int column = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const T* z = logits + (u64)column * vocabulary;
    bool wide = wide_rows(logits, vocabulary);
    Summary s = summarise(z, vocabulary, wide);
    Choice choice = choices[column];
    float log_mass = logf(s.mass), temperature = choice.temperature;
    bool finite = fabsf(s.peak) < INFINITE && fabsf(s.mass) < INFINITE && fabsf(s.moment) < INFINITE;
    if (!finite) {
        if (threadIdx.x == 0) drawn[column] = {0, 0.f, 0.f, 0};
        return;
    }
    if (threadIdx.x == 0) best = vocabulary - 1;
    __syncthreads();
    int turns = (vocabulary + TURN - 1) / TURN;
    if (temperature == 0.f) {
        for (int c = threadIdx.x; c < vocabulary; c += 256)
            if (to_f(z[c]) == s.peak) {
                atomicMin(&best, c);
                break;
            }
        __syncthreads();
    } else if (choice.top_p < 1.f || choice.top_k > 0) {
        Row row = {z, vocabulary, wide, s.peak, 1.f / temperature};
        int token = draw_truncated(row, choice.top_p, choice.top_k, choice.uniform);
        if (threadIdx.x == 0) best = token;
    } else {
        float inverse = 1.f / temperature;
        for (int t = 0; t < turns; t++) {
            int c = t * TURN + threadIdx.x * 8, n = min(8, vocabulary - c);
            float v[8], mass = 0.f;
            if (n > 0) {
                get8(z + c, n, wide, v);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (j < n) mass += expf((v[j] - s.peak) * inverse);
            }
            mass = block_sum(mass);
            if (threadIdx.x == 0) masses[t] = mass;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            double total = 0.0;
            for (int t = 0; t < turns; t++) total += masses[t];
            double left = choice.uniform * total;
            int turn = -1, last = 0;
            for (int t = 0; t < turns && turn < 0; t++) {
                if (masses[t] > 0.f) {
                    last = t;
                    if (left < masses[t]) turn = t;
                }
                if (turn < 0) left -= masses[t];
            }
            // Rounding may leave a rest after the last iteration; it belongs to the end of that iteration.
            chosen_turn = turn < 0 ? last : turn;
            rest = turn < 0 ? 1e300 : left;
        }
        __syncthreads();
        int c = chosen_turn * TURN + threadIdx.x * 8, n = min(8, vocabulary - c);
        float v[8], own = 0.f;
        if (n > 0) {
            get8(z + c, n, wide, v);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = j < n ? expf((v[j] - s.peak) * inverse) : 0.f;
                own += v[j];
            }
        }
        float upto = own;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            float other = __shfl_up_sync(0xffffffffu, upto, o);
            if (lane >= o) upto += other;
        }
        if (lane == 31) warp_masses[warp] = upto;
        __syncthreads();
        for (int w = 0; w < warp; w++) upto += warp_masses[w];
        double before = (double)upto - own, left = rest;
        // Find the first token whose cumulative mass exceeds the rest; there is none if only rounding is left.
        if (n > 0) {
            double cumulative = before;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                cumulative += v[j];
                if (j < n && v[j] > 0.f && cumulative > left) {
                    atomicMin(&best, c + j);
                    break;
                }
            }
        }
        __syncthreads();
        if (best == vocabulary - 1) {
            // None exceeded it: take the last token of the iteration that has any mass.
            __shared__ int furthest;
            if (threadIdx.x == 0) furthest = -1;
            __syncthreads();
            bool any = false;
            if (n > 0) {
                double cumulative = before;
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    cumulative += v[j];
                    any |= c + j == vocabulary - 1 && j < n && v[j] > 0.f && cumulative > left;
                    if (j < n && v[j] > 0.f) atomicMax(&furthest, c + j);
                }
            }
            any = __syncthreads_or(any);
            if (!any && threadIdx.x == 0) best = furthest;
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) {
        float lp = to_f(z[best]) - s.peak - log_mass;
        drawn[column] = {(u32)best, lp, fmaxf(log_mass - s.moment / s.mass, 0.f), 1};
    }
}
