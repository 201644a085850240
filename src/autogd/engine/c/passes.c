/* AGD's two passes over the weights, each over all tensors at once, on all threads: measure and update, the latter also
 * with an average of the weights. */
#include "autogd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef AUTOGD_SOURCE
#define AUTOGD_SOURCE "" /* the hash of the compiled sources: a library of other sources must not be called */
#endif
const char *autogd_source(void) { return AUTOGD_SOURCE; }

/* A thread reads and writes alternately in several places of a tensor: the processor prefetches from each, and memory is
 * up to a third faster than in one place. Four places are best to read, two to write, and one for three tensors. Places
 * that are close together are slower than one. */
#define PLACES 4
#define LINE 16 /* numbers to read in one place before the next */
#define STRETCH 64 /* numbers to write in one place before the other */
#define SHORT 16384 /* numbers of one run whose places would be close together */
#define LONG 65536 /* numbers of one run that are summed in float32, in 64 sums, before they are added to a double */

FOR_EVERY_PROCESSOR
static double sum_of_squares(const float *x, int64_t n) {
    float sums[PLACES][LINE] = {{0}};
    const int64_t each = n / (PLACES * LINE) * LINE, gap = n < SHORT ? LINE : each, step = n < SHORT ? PLACES * LINE : LINE;
    for (int64_t i = 0; i < each / LINE * step; i += step)
        for (int k = 0; k < PLACES; k++)
            for (int j = 0; j < LINE; j++) sums[k][j] += x[k * gap + i + j] * x[k * gap + i + j];
    for (int64_t i = PLACES * each; i < n; i++) sums[0][0] += x[i] * x[i];
    double lines[LINE] = {0}, sum = 0;
    for (int k = 0; k < PLACES; k++)
        for (int j = 0; j < LINE; j++) lines[j] += sums[k][j];
    for (int j = 0; j < LINE; j++) sum += lines[j];
    return sum;
}

/* The sum of one row, and of `rows` more, `gap` numbers apart. */
FOR_EVERY_PROCESSOR
static void add_squares(float *restrict sums, const float *restrict x, int64_t gap, int64_t rows, int64_t n) {
    if (rows == PLACES) {
        const float *a = x, *b = x + gap, *c = x + 2 * gap, *d = x + 3 * gap;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sums[i] += (a[i] * a[i] + b[i] * b[i]) + (c[i] * c[i] + d[i] * d[i]);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *a = x + r * gap;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sums[i] += a[i] * a[i];
    }
}

share autogd_slices(int64_t slices, int thread, int threads) {
    return (share){slices * thread / threads, slices * (thread + 1) / threads, slices};
}

/* Where a slice begins; the last one has the rest. */
static int64_t begin_of(int64_t slice, int64_t slices, int64_t total) { return slice == slices ? total : total / slices * slice; }

static int64_t slice_of(int64_t number, int64_t slices, int64_t total) {
    const int64_t slice = total < slices ? slices : number / (total / slices);
    return slice < slices ? slice : slices - 1;
}

void autogd_share(const tensor *tensors, int64_t count, share mine, int backwards, int without_matrices, visitor *visit,
                  void *context) {
    int64_t total = 0;
    for (int64_t k = 0; k < count; k++)
        if (!(without_matrices && tensors[k].matrices)) total += tensors[k].blocks * tensors[k].rows * tensors[k].run;
    const int64_t from = begin_of(mine.first, mine.slices, total), to = begin_of(mine.last, mine.slices, total);
    int64_t before = backwards ? total : 0;
    for (int64_t i = 0; i < count; i++) {
        const tensor *t = tensors + (backwards ? count - 1 - i : i);
        if (without_matrices && t->matrices) continue;
        const int64_t size = t->rows * t->run, length = t->blocks * size;
        if (backwards) before -= length;
        if (size && before < to && before + length > from) {
            const int64_t first = from > before ? (from - before) / size : 0;
            const int64_t end = to < before + length ? (to - before + size - 1) / size : t->blocks;
            for (int64_t block = first; block < end; block++) {
                /* rows that begin within [from, to), slice by slice */
                const int64_t here = before + block * size, unit = t->part ? before : here;
                int64_t row = from > here ? (from - here + t->run - 1) / t->run : 0;
                const int64_t rows = to < here + size ? (to - here + t->run - 1) / t->run : t->rows;
                while (row < rows) {
                    const int64_t slice = slice_of(here + row * t->run, mine.slices, total);
                    const int64_t next = (begin_of(slice + 1, mine.slices, total) - here + t->run - 1) / t->run;
                    const int64_t high = next < rows ? next : rows;
                    visit(t, block, row, high - row, slice, unit < begin_of(slice, mine.slices, total), context);
                    row = high;
                }
            }
        }
        if (!backwards) before += length;
    }
}

static int64_t end_of_parts(const tensor *t, const tensor *tensors, int64_t count, int64_t parts) {
    return t + 1 < tensors + count ? t[1].first : parts;
}

/* Enough for many threads, and fewer if each would have many sums of its own. */
#define SLICES 32
#define FEWEST_SLICES 2
#define ROOM 65536

static summation empty_summation(const tensor *tensors, int64_t count, int64_t parts, int64_t width) {
    summation s = {.width = width, .largest = 1};
    for (int64_t k = 0; k < count; k++) {
        const int64_t own = end_of_parts(tensors + k, tensors, count, parts) - tensors[k].first;
        if (tensors[k].part && own > s.largest) s.largest = own;
    }
    const int64_t fitting = ROOM / s.largest;
    s.slices = fitting > SLICES ? SLICES : fitting < FEWEST_SLICES ? FEWEST_SLICES : fitting;
    return s;
}

int64_t autogd_summands(const tensor *tensors, int64_t count, int64_t parts, int64_t width) {
    const summation s = empty_summation(tensors, count, parts, width);
    return width * parts + s.slices * (width * s.largest + 2);
}

summation autogd_begin_sums(const tensor *tensors, int64_t count, int64_t parts, int64_t width, double *room) {
    summation s = empty_summation(tensors, count, parts, width);
    memset(room, 0, autogd_summands(tensors, count, parts, width) * sizeof(double));
    s.sums = room;
    s.later = room + width * parts;
    s.tensor = (const tensor **)(s.later + s.slices * width * s.largest); /* as large as a double, or smaller */
    s.block = (int64_t *)(s.later + s.slices * (width * s.largest + 1));
    return s;
}

double *autogd_sums_of(const summation *s, const tensor *t, int64_t block, int64_t slice, int continued) {
    if (!continued) return s->sums + s->width * (t->first + (t->part ? 0 : block));
    s->tensor[slice] = t; /* at most one, that in which the slice begins */
    s->block[slice] = block;
    return s->later + slice * s->width * s->largest;
}

void autogd_end_sums(const summation *s, const tensor *tensors, int64_t count, int64_t parts) {
    for (int64_t slice = 0; slice < s->slices; slice++) {
        const tensor *t = s->tensor[slice];
        if (!t) continue;
        const int64_t first = t->first + (t->part ? 0 : s->block[slice]);
        const int64_t end = t->part ? end_of_parts(t, tensors, count, parts) : first + 1;
        for (int64_t i = 0; i < s->width * (end - first); i++)
            s->sums[s->width * first + i] += s->later[slice * s->width * s->largest + i];
    }
}

/* How a tensor's weights and their average move: both along their difference; then the weights shrink and step along the
 * gradient, and the average takes a share of that step. */
typedef struct { float weight, average, share, keep; } mixture;

/* The gradient is multiplied by `scales`, or by `scale` if that is null; `average` may be null. */
static inline __attribute__((always_inline)) void add_here(float *restrict weight, float *restrict average,
                                                           const float *restrict grad, float scale, const float *restrict scales,
                                                           mixture by, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float step = (scales ? scales[i] : scale) * grad[i];
        if (average) {
            const float apart = weight[i] - average[i];
            const float ahead = weight[i] + by.weight * apart, change = (by.keep - 1) * ahead + step;
            weight[i] = ahead + change;
            average[i] += by.average * apart + by.share * change;
        } else
            weight[i] += step;
    }
}

/* n numbers and, alternately, n more that begin `gap` later; none if `gap` is 0. Each place has loads of its own: some
 * processors prefetch by the address of the load, and are twice as slow if one load alternates between places. */
static inline __attribute__((always_inline)) void add_by_turns(float *weight, float *average, const float *grad, float scale,
                                                               const float *scales, mixture by, int64_t n, int64_t gap) {
    for (int64_t i = 0; i < n; i += STRETCH) {
        const int64_t some = n - i < STRETCH ? n - i : STRETCH;
        float *to = average ? average + i : NULL;
        const float *with = scales ? scales + i : NULL;
        if (some == STRETCH) add_here(weight + i, to, grad + i, scale, with, by, STRETCH);
        else add_here(weight + i, to, grad + i, scale, with, by, some);
        if (!gap) continue;
        if (some == STRETCH) add_here(weight + gap + i, NULL, grad + gap + i, scale, with, by, STRETCH);
        else add_here(weight + gap + i, NULL, grad + gap + i, scale, with, by, some);
    }
}

FOR_EVERY_PROCESSOR
static void add(float *weight, float *average, const float *grad, float scale, const float *scales, mixture by, int64_t n,
                int64_t gap) {
    if (average && scales) add_by_turns(weight, average, grad, scale, scales, by, n, gap);
    else if (average) add_by_turns(weight, average, grad, scale, NULL, by, n, gap);
    else if (scales) add_by_turns(weight, NULL, grad, scale, scales, by, n, gap);
    else add_by_turns(weight, NULL, grad, scale, NULL, by, n, gap);
}

typedef struct {
    const summation *sums;
    float *buffer;
    const float *scales;
    const tensor *tensors;
    const mixture *mixtures; /* of every tensor, or null */
} scratch;

static void measure_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, int64_t slice, int continued, void *context) {
    const scratch *s = context;
    const float *x = t->grad + (block * t->rows + row) * t->run;
    double *sums = autogd_sums_of(s->sums, t, block, slice, continued);
    if (!t->part) {
        for (int64_t i = 0; i < rows; i += LONG) *sums += sum_of_squares(x + i, rows - i < LONG ? rows - i : LONG);
        return;
    }
    memset(s->buffer, 0, t->run * sizeof(float));
    const int64_t each = rows / PLACES;
    for (int64_t r = 0; r < each; r++) add_squares(s->buffer, x + r * t->run, each * t->run, PLACES, t->run);
    add_squares(s->buffer, x + PLACES * each * t->run, t->run, rows - PLACES * each, t->run);
    const int32_t *part = t->part + block * t->run;
    for (int64_t j = 0; j < t->run; j++) sums[part[j]] += s->buffer[j];
}

static void apply_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, int64_t slice, int continued, void *context) {
    (void)slice, (void)continued;
    const scratch *s = context;
    const int64_t at = (block * t->rows + row) * t->run;
    const float *scales = s->scales + t->first, *grad = t->grad + at;
    const mixture by = s->mixtures ? s->mixtures[t - s->tensors] : (mixture){0};
    float *weight = t->weight + at, *average = s->mixtures ? t->average + at : NULL;
    if (t->part) {
        const int32_t *part = t->part + block * t->run;
        for (int64_t j = 0; j < t->run; j++) s->buffer[j] = scales[part[j]];
    }
    const float scale = t->part ? 0 : scales[block], *each = t->part ? s->buffer : NULL;
    if (average) {
        const int64_t n = t->part ? t->run : rows;
        for (int64_t i = 0; i < rows * t->run; i += n) add(weight + i, average + i, grad + i, scale, each, by, n, 0);
        return;
    }
    /* two places: of a part that is one run, each half is a row */
    const int64_t all = rows * t->run, half = t->part ? rows / 2 * t->run : rows < SHORT ? 0 : rows / 2;
    const int64_t n = t->part ? t->run : half;
    for (int64_t i = 0; i < half; i += n) add(weight + i, NULL, grad + i, scale, each, by, n, half);
    if (2 * half < all) add(weight + 2 * half, NULL, grad + 2 * half, scale, each, by, all - 2 * half, 0);
}

/* Gives every part's norm if `norms` is not null. Otherwise adds to every part its gradient times its scale, and moves the
 * averages if `mixtures` is not null. `longest` is the longest run that has parts. Returns 0, or 1 if there is no memory
 * left. */
int autogd_pass(const tensor *tensors, int64_t count, int64_t longest, int64_t parts, float *norms, const float *scales,
                const mixture *mixtures, int threads) {
    double *room = norms ? malloc(sizeof(double) * autogd_summands(tensors, count, parts, 1)) : NULL;
    float *buffers = longest ? malloc(sizeof(float) * longest * threads) : NULL;
    const int short_of_memory = (norms && !room) || (longest && !buffers);
    if (!short_of_memory) {
        const summation sums = room ? autogd_begin_sums(tensors, count, parts, 1, room) : (summation){0};
#pragma omp parallel num_threads(threads)
        {
            const int thread = omp_get_thread_num(), all = omp_get_num_threads();
            scratch s = {&sums, buffers ? buffers + thread * longest : NULL, scales, tensors, mixtures};
            autogd_share(tensors, count, autogd_slices(room ? sums.slices : all, thread, all), !room, 0,
                         room ? measure_rows : apply_rows, &s);
        }
        if (room) autogd_end_sums(&sums, tensors, count, parts);
        for (int64_t part = 0; norms && part < parts; part++) norms[part] = (float)sqrt(room[part]);
    }
    free(room);
    free(buffers);
    return short_of_memory;
}
