"""A library that compiles in no time: right, wrong, or broken."""

from __future__ import annotations

from pathlib import Path

RIGHT = """
struct Matrix {
    const float *numbers;
    const signed char *codes;
    const float *scales, *offsets, *bias;
    long N, K, group;
};
extern "C" void *tfm_sgemm;
void *tfm_sgemm;
extern "C" void tfm_blocks(const void *, long, const void *, float *, int) {}
#define NOTHING(name) extern "C" void tfm_##name##_fp32() {} extern "C" void tfm_##name##_bf16() {}
NOTHING(attend) NOTHING(attend_back) NOTHING(gate) NOTHING(gate_back) NOTHING(log_sum) NOTHING(cross_entropy_back)
NOTHING(told) NOTHING(told_back) NOTHING(told_noted) NOTHING(told_noted_back)
extern "C" void tfm_rms_norm() {}
extern "C" void tfm_rms_norm_back() {}
extern "C" void tfm_to_codes() {}
extern "C" void tfm_from_sums() {}
extern "C" void tfm_linear(const Matrix *w, const float *x, float *y, long M, int) {
    for (long m = 0; m < M; m++)
        for (long n = 0; n < w->N; n++) {
            float sum = 0;
            for (long k = 0; k < w->K; k++) sum += x[m * w->K + k] * w->numbers[n * w->K + k];
            y[m * w->N + n] = sum;
        }
}
"""
WRONG = RIGHT.replace("float sum = 0;", "float sum = 1;")
BROKEN = "this is no C++\n"


def write_source(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
