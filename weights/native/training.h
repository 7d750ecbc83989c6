// What a block does between its matrix products when it is trained, there and back. Part of kernels.cpp.
//
// Each function is given whole tensors and divides them among threads in the same way whatever their number, so that a
// run can be repeated to the last bit.
#pragma once

constexpr int64_t QUERIES = 64;  // whose scores are held at once
constexpr int64_t PIECES = 64;   // into which rows are divided where something is added up over all of them

// C (M, N) = factor · A (M, K) · B (K, N), added to what C holds if `add`. Neighbours in a column are `…_row` apart;
// a transposed A or B is stored as (K, M) or (N, K).
static void multiply(bool a_transposed, bool b_transposed, int64_t M, int64_t N, int64_t K, float factor, const float *A,
                     int64_t A_row, const float *B, int64_t B_row, bool add, float *C, int64_t C_row) {
    int m = M, n = N, k = K, a_row = A_row, b_row = B_row, c_row = C_row;
    float keep = add;
    // sgemm counts by columns, so to it everything is transposed.
    tfm_sgemm(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &n, &m, &k, &factor, B, &b_row, A, &a_row, &keep, C,
              &c_row);
}

// slope · d rms_norm(x) / dx, and what it means for the gain added to `gain_slope`.
static void rms_norm_back(const float *x, const float *gain, float eps, int64_t C, const float *slope, float *x_slope,
                          float *gain_slope) {
    float squares = 0, along = 0;
#pragma omp simd reduction(+ : squares, along)
    for (int64_t c = 0; c < C; c++) squares += x[c] * x[c], along += slope[c] * gain[c] * x[c];
    float factor = 1 / sqrtf(squares / C + eps), less = along * factor * factor / C;
    for (int64_t c = 0; c < C; c++) {
        float s = slope[c];
        gain_slope[c] += s * x[c] * factor;
        x_slope[c] = factor * (s * gain[c] - x[c] * less);
    }
}

static float dot(const float *a, const float *b, int64_t n) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; i++) total += a[i] * b[i];
    return total;
}

// ---- Attention --------------------------------------------------------------------------------------------------

// How to read qkv (B, T, H + 2K heads of D): queries, keys and values as one projection leaves them. Queries and keys
// are normed where there are gains, turned where `half` is not 0; then each token reads itself and all before it.
struct Heads {
    const float *q_gain, *k_gain, *cos, *sin;  // (D), (D), (T, half), (T, half)
    int64_t B, T, H, K, D, half;
    float eps, scale;

    int64_t row() const { return (H + 2 * K) * D; }
    int64_t held() const { return T + WIDTH; }  // scores of one query
    float *room() const {                       // for four heads and two blocks of scores
        static thread_local Room kept;
        return kept.of(4 * T * D + 2 * QUERIES * held());
    }
};

// One head of all tokens (T, D), normed and turned.
static void prepare(const Heads &a, const float *x, const float *gain, float *y) {
    for (int64_t t = 0; t < a.T; t++, x += a.row(), y += a.D) {
        if (gain) rms_norm(x, gain, a.eps, a.D, y);
        else std::copy_n(x, a.D, y);
        rotate(y, a.cos + t * a.half, a.sin + t * a.half, a.half);
    }
}

// The way back. `slope` (T, D) is used up.
static void prepare_back(const Heads &a, const float *x, const float *gain, float *slope, float *x_slope,
                         float *gain_slope) {
    for (int64_t t = 0; t < a.T; t++, x += a.row(), slope += a.D, x_slope += a.row()) {
        const float *cos = a.cos + t * a.half, *sin = a.sin + t * a.half;
        for (int64_t i = 0; i < a.half; i++) {
            float c = slope[i], d = slope[i + a.half];
            slope[i] = c * cos[i] + d * sin[i];
            slope[i + a.half] = d * cos[i] - c * sin[i];
        }
        if (gain) rms_norm_back(x, gain, a.eps, a.D, slope, x_slope, gain_slope);
        else std::copy_n(slope, a.D, x_slope);
    }
}

// The query heads that share keys and values `kv` of sequence b. y (B, T, H, D); logs (B, T, H) are the logarithms of
// what the softmax divides by.
static void attend_sequence(const Heads &a, int64_t b, int64_t kv, const float *qkv, float *y, float *logs) {
    const float *x = qkv + b * a.T * a.row(), *v = x + (a.H + a.K + kv) * a.D;
    float *k = a.room(), *q = k + a.T * a.D, *scores = q + a.T * a.D;
    prepare(a, x + (a.H + kv) * a.D, a.k_gain, k);
    for (int64_t h = kv * (a.H / a.K); h < (kv + 1) * (a.H / a.K); h++) {
        prepare(a, x + h * a.D, a.q_gain, q);
        for (int64_t first = 0; first < a.T; first += QUERIES) {
            int64_t rows = std::min(QUERIES, a.T - first), keys = first + rows;
            float *out = y + ((b * a.T + first) * a.H + h) * a.D, totals[QUERIES];
            multiply(false, true, rows, keys, a.D, a.scale, q + first * a.D, a.D, k, a.D, false, scores, a.held());
            for (int64_t i = 0; i < rows; i++) {
                float *row = scores + i * a.held();
                Softmax softmax;
                softmax.add(row, first + i + 1);
                std::fill(row + first + i + 1, row + keys, 0.0f);
                totals[i] = softmax.total;
                logs[(b * a.T + first + i) * a.H + h] = softmax.largest + logf(softmax.total);
            }
            multiply(false, false, rows, a.D, keys, 1, scores, a.held(), v, a.row(), false, out, a.H * a.D);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t d = 0; d < a.D; d++) out[i * a.H * a.D + d] /= totals[i];
        }
    }
}

// The way back: y_slope (B, T, H, D) -> qkv_slope, and of the gains q_slope (D) and k_slope (D).
static void attend_sequence_back(const Heads &a, int64_t b, int64_t kv, const float *qkv, const float *y,
                                 const float *logs, const float *y_slope, float *qkv_slope, float *q_slope,
                                 float *k_slope) {
    int64_t begin = b * a.T * a.row(), value = begin + (a.H + a.K + kv) * a.D, size = a.T * a.D;
    const float *x = qkv + begin, *v = qkv + value;
    float *k = a.room(), *q = k + size, *dk = q + size, *dq = dk + size;
    float *weights = dq + size, *slopes = weights + QUERIES * a.held(), *dv = qkv_slope + value;
    prepare(a, x + (a.H + kv) * a.D, a.k_gain, k);
    std::fill_n(dk, size, 0.0f);
    for (int64_t t = 0; t < a.T; t++) std::fill_n(dv + t * a.row(), a.D, 0.0f);
    for (int64_t h = kv * (a.H / a.K); h < (kv + 1) * (a.H / a.K); h++) {
        prepare(a, x + h * a.D, a.q_gain, q);
        for (int64_t first = 0; first < a.T; first += QUERIES) {
            int64_t rows = std::min(QUERIES, a.T - first), keys = first + rows, at = (b * a.T + first) * a.H + h;
            const float *dy = y_slope + at * a.D;
            multiply(false, true, rows, keys, a.D, a.scale, q + first * a.D, a.D, k, a.D, false, weights, a.held());
            multiply(false, true, rows, keys, a.D, 1, dy, a.H * a.D, v, a.row(), false, slopes, a.held());
            for (int64_t i = 0; i < rows; i++) {
                float *weight = weights + i * a.held(), *slope = slopes + i * a.held(), log = logs[at + i * a.H];
                float mean = dot(dy + i * a.H * a.D, y + (at + i * a.H) * a.D, a.D);
                int64_t count = first + i + 1;
                for (int64_t j = 0; j < count; j += WIDTH) {
                    Floats w = exponential(load(weight + j) - log);
                    store(weight + j, w);
                    store(slope + j, w * (load(slope + j) - mean));
                }
                std::fill(weight + count, weight + keys, 0.0f);
                std::fill(slope + count, slope + keys, 0.0f);
            }
            multiply(true, false, keys, a.D, rows, 1, weights, a.held(), dy, a.H * a.D, true, dv, a.row());
            multiply(false, false, rows, a.D, keys, a.scale, slopes, a.held(), k, a.D, false, dq + first * a.D, a.D);
            multiply(true, false, keys, a.D, rows, a.scale, slopes, a.held(), q + first * a.D, a.D, true, dk, a.D);
        }
        prepare_back(a, x + h * a.D, a.q_gain, dq, qkv_slope + begin + h * a.D, q_slope);
    }
    prepare_back(a, x + (a.H + kv) * a.D, a.k_gain, dk, qkv_slope + begin + (a.H + kv) * a.D, k_slope);
}

// ---- The gated MLP ----------------------------------------------------------------------------------------------

// Back through silu(gate) · up: gates and ups come in and their slopes go out as halves of rows (2F).
static void gate_back(const float *both, const float *slope, int64_t F, float *both_slope) {
    int64_t f = 0;
    for (; f + WIDTH <= F; f += WIDTH) {
        Floats x = load(both + f), up = load(both + F + f), s = load(slope + f);
        Floats e = exponential(x < 0 ? x : -x), share = (x < 0 ? e : (Floats){} + 1) / (1 + e);  // the sigmoid of x
        store(both_slope + f, s * up * share * (1 + x * (1 - share)));
        store(both_slope + F + f, s * x * share);
    }
    for (; f < F; f++) {
        float x = both[f], share = 1 / (1 + expf(-x));
        both_slope[f] = slope[f] * both[F + f] * share * (1 + x * (1 - share));
        both_slope[F + f] = slope[f] * x * share;
    }
}

extern "C" {

void tfm_attend(const Heads *heads, const float *qkv, float *y, float *logs, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < heads->B * heads->K; i++)
        attend_sequence(*heads, i / heads->K, i % heads->K, qkv, y, logs);
}

// The gains' slopes come as (B, K, 2, D), to be added up: of queries and of keys.
void tfm_attend_back(const Heads *heads, const float *qkv, const float *y, const float *logs, const float *y_slope,
                     float *qkv_slope, float *gain_slopes, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < heads->B * heads->K; i++) {
        float *slopes = gain_slopes + 2 * i * heads->D;
        attend_sequence_back(*heads, i / heads->K, i % heads->K, qkv, y, logs, y_slope, qkv_slope, slopes,
                             slopes + heads->D);
    }
}

// both (M, 2F) -> y (M, F)
void tfm_gate(const float *both, int64_t M, int64_t F, float *y, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) gate(both + 2 * m * F, both + (2 * m + 1) * F, F, SILU, y + m * F);
}

void tfm_gate_back(const float *both, const float *slope, int64_t M, int64_t F, float *both_slope, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) gate_back(both + 2 * m * F, slope + m * F, F, both_slope + 2 * m * F);
}

// x (M, C) -> y (M, C)
void tfm_rms_norm(const float *x, const float *gain, float eps, int64_t M, int64_t C, float *y, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) rms_norm(x + m * C, gain, eps, C, y + m * C);
}

// The gain's slopes come as (PIECES, C), to be added up.
void tfm_rms_norm_back(const float *x, const float *gain, float eps, int64_t M, int64_t C, const float *slope,
                       float *x_slope, float *gain_slopes, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t p = 0; p < PIECES; p++)
        for (int64_t m = M * p / PIECES; m < M * (p + 1) / PIECES; m++)
            rms_norm_back(x + m * C, gain, eps, C, slope + m * C, x_slope + m * C, gain_slopes + p * C);
}

}  // extern "C"
