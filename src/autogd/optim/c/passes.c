/* AGD's two passes over the weights, each over all tensors at once, on all threads: measure and apply, the latter also
 * with an average beside the weights. */
#include "autogd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef AUTOGD_SOURCE
#define AUTOGD_SOURCE "" /* what the files were when they were compiled: others' library must not be called */
#endif
const char *autogd_source(void) { return AUTOGD_SOURCE; }

#define LANES 64   /* sums that grow side by side: no addition waits for the last */

FOR_EVERY_PROCESSOR
static double sum_of_squares(const float *x, int64_t n) {
    float sums[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += x[i + j] * x[i + j];
    for (; i < n; i++) sums[0] += x[i] * x[i];
    double sum = 0;
    for (int j = 0; j < LANES; j++) sum += sums[j];
    return sum;
}

FOR_EVERY_PROCESSOR
static void add_squares(float *restrict sums, const float *restrict x, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sums[i] += x[i] * x[i];
}

FOR_EVERY_PROCESSOR
static void add_scaled(float *restrict weight, const float *restrict grad, float scale, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) weight[i] += scale * grad[i];
}

FOR_EVERY_PROCESSOR
static void add_products(float *restrict weight, const float *restrict grad, const float *restrict scale, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) weight[i] += scale[i] * grad[i];
}

void autogd_share(const tensor *tensors, int64_t count, int backwards, int without_turned, visitor *visit, void *context) {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    int64_t total = 0;
    for (int64_t k = 0; k < count; k++)
        if (!(without_turned && tensors[k].turned)) total += tensors[k].blocks * tensors[k].rows * tensors[k].run;
    const int64_t from = total / threads * thread, to = thread + 1 == threads ? total : total / threads * (thread + 1);
    int64_t before = backwards ? total : 0;
    for (int64_t i = 0; i < count; i++) {
        const tensor *t = tensors + (backwards ? count - 1 - i : i);
        if (without_turned && t->turned) continue;
        const int64_t size = t->rows * t->run;
        if (backwards) before -= t->blocks * size;
        if (before < to && before + t->blocks * size > from) {
            for (int64_t block = 0; block < t->blocks; block++) {
                /* rows that begin within [from, to) */
                const int64_t here = before + block * size;
                int64_t low = from > here ? (from - here + t->run - 1) / t->run : 0;
                int64_t high = to < here + size ? (to - here + t->run - 1) / t->run : t->rows;
                if (low < high) visit(t, block, low, high - low, context);
            }
        }
        if (!backwards) before += t->blocks * size;
    }
}

/* How a tensor's weights and their average go: each along what separates them, and shrunk; then the weights along the
 * gradient, and the average a share of that way. */
typedef struct { float weight, average, share, keep_weight, keep_average; } mixture;

/* `scales`, or `scale` where it is null, gives what the gradient is multiplied by. */
static inline __attribute__((always_inline)) void add_averaged_by(float *restrict weight, float *restrict average,
                                                                  const float *restrict grad, float scale,
                                                                  const float *restrict scales, mixture by, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float apart = weight[i] - average[i], step = (scales ? scales[i] : scale) * grad[i];
        weight[i] = by.keep_weight * (weight[i] + by.weight * apart) + step;
        average[i] = by.keep_average * (average[i] + by.average * apart) + by.share * step;
    }
}

FOR_EVERY_PROCESSOR
static void add_averaged(float *weight, float *average, const float *grad, float scale, const float *scales, mixture by,
                         int64_t n) {
    if (scales) add_averaged_by(weight, average, grad, scale, scales, by, n);
    else add_averaged_by(weight, average, grad, scale, NULL, by, n);
}

typedef struct {
    double *sums;
    float *buffer;
    const float *scales;
    const tensor *tensors;
    const mixture *mixtures; /* of every tensor, or null */
} scratch;

static void measure_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, void *context) {
    const scratch *s = context;
    const float *x = t->grad + (block * t->rows + row) * t->run;
    double *sums = s->sums + t->first;
    if (!t->part) {
        for (int64_t i = 0; i < rows; i += PIECE) sums[block] += sum_of_squares(x + i, rows - i < PIECE ? rows - i : PIECE);
        return;
    }
    memset(s->buffer, 0, t->run * sizeof(float));
    for (int64_t r = 0; r < rows; r++) add_squares(s->buffer, x + r * t->run, t->run);
    const int32_t *part = t->part + block * t->run;
    for (int64_t j = 0; j < t->run; j++) sums[part[j]] += s->buffer[j];
}

static void apply_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, void *context) {
    const scratch *s = context;
    const int64_t at = (block * t->rows + row) * t->run;
    const float *scales = s->scales + t->first;
    const mixture *by = s->mixtures ? s->mixtures + (t - s->tensors) : NULL;
    if (!t->part) {
        if (by)
            add_averaged(t->weight + at, t->average + at, t->grad + at, scales[block], NULL, *by, rows);
        else
            add_scaled(t->weight + at, t->grad + at, scales[block], rows);
        return;
    }
    const int32_t *part = t->part + block * t->run;
    for (int64_t j = 0; j < t->run; j++) s->buffer[j] = scales[part[j]];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t here = at + r * t->run;
        if (by)
            add_averaged(t->weight + here, t->average + here, t->grad + here, 0, s->buffer, *by, t->run);
        else
            add_products(t->weight + here, t->grad + here, s->buffer, t->run);
    }
}

/* Gives every part's norm, where `norms` is not null; else adds to every part its gradient times its scale, and goes on
 * with the averages where `mixtures` is not null. `longest` is the longest run that has parts. Returns 0, or 1 where
 * there is no memory left. */
int autogd_pass(const tensor *tensors, int64_t count, int64_t longest, int64_t parts, float *norms, const float *scales,
                const mixture *mixtures, int threads) {
    double *sums = norms ? calloc(threads * parts, sizeof(double)) : NULL;
    float *buffers = longest ? malloc(sizeof(float) * longest * threads) : NULL;
    const int short_of_memory = (norms && !sums) || (longest && !buffers);
    if (!short_of_memory) {
#pragma omp parallel num_threads(threads)
        {
            const int thread = omp_get_thread_num();
            scratch s = {sums ? sums + thread * parts : NULL, buffers ? buffers + thread * longest : NULL, scales, tensors,
                         mixtures};
            autogd_share(tensors, count, !sums, 0, sums ? measure_rows : apply_rows, &s);
        }
        for (int64_t part = 0; norms && part < parts; part++) {
            for (int thread = 1; thread < threads; thread++) sums[part] += sums[thread * parts + part];
            norms[part] = (float)sqrt(sums[part]);
        }
    }
    free(sums);
    free(buffers);
    return short_of_memory;
}
