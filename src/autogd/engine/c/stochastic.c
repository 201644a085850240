/* StochasticAGD's two passes: measure, the sums over gradients, momenta and weights that a step needs; and update, every
 * tensor's new momentum, weights and average.
 *
 * The direction is that of the momentum one step ahead, a = k^2 m + (1 - k^2) g; momentum keeps the share k. Vectors are
 * divided by their norm, matrices orthogonalised by Zolotarev's function of their gram. A matrix is read in place, some
 * columns at a time, and never copied as a whole. Two threads share a matrix and one square of its smaller side, and meet
 * after every stage.
 */
#include <math.h>
#include <string.h>

#include "autogd.h"
#include "polar.h"

#define LANES 32 /* independent sums: no addition waits for the last */
#define SUMS 4   /* of a part: of squares of gradients and of momenta, of their products, and of squares of held weights */
#define WIDTH 32 /* columns of a matrix to read at a time: more is hardly faster */
#define GAP 16   /* so that columns do not share the same lines of a cache */

typedef struct {
    float keep;              /* of the momentum */
    float factor;            /* of the gradients */
    float share;             /* of the new weights in their average */
    float whole, a, p, b, q; /* Zolotarev's function x (whole + a / (x^2 + p) + b / (x^2 + q)) */
} settings;

typedef struct {
    int64_t tensor, part, offset;      /* of the first number, from the tensor's own */
    int64_t side, length;              /* the smaller side, and the other */
    int64_t side_stride, length_stride; /* numbers from one to the next along each */
} matrix;

static inline float widened(uint16_t bits) {
    union { uint32_t bits; float value; } x = {(uint32_t)bits << 16};
    return x.value;
}

static inline uint16_t rounded(float value) {
    union { float value; uint32_t bits; } x = {value};
    return (uint16_t)((x.bits + 0x7fff + ((x.bits >> 16) & 1)) >> 16);
}

/* The coefficients of m and g in a. */
typedef struct { float old, fresh; } mixture;
static inline mixture ahead(const settings *s) {
    const float old = s->keep * s->keep;
    return (mixture){old, (1 - old) * s->factor};
}

FOR_EVERY_PROCESSOR
static void measure(const float *g, const uint16_t *m, const float *w, int64_t n, double *sums) {
    float gg[LANES] = {0}, mm[LANES] = {0}, mg[LANES] = {0}, ww[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const float x = g[i + j], y = widened(m[i + j]);
            gg[j] += x * x;
            mm[j] += y * y;
            mg[j] += x * y;
        }
    for (; i < n; i++) {
        const float x = g[i], y = widened(m[i]);
        gg[0] += x * x;
        mm[0] += y * y;
        mg[0] += x * y;
    }
    if (w) {
        for (i = 0; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) ww[j] += w[i + j] * w[i + j];
        for (; i < n; i++) ww[0] += w[i] * w[i];
    }
    for (int j = 0; j < LANES; j++) {
        sums[0] += gg[j];
        sums[1] += mm[j];
        sums[2] += mg[j];
        sums[3] += ww[j];
    }
}

/* `sums` has SUMS rows of n numbers. */
FOR_EVERY_PROCESSOR
static void measure_along(const float *restrict g, const uint16_t *restrict m, const float *restrict w, int64_t n,
                          float *restrict sums) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i], y = widened(m[i]);
        sums[i] += x * x;
        sums[n + i] += y * y;
        sums[2 * n + i] += x * y;
    }
    if (w)
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sums[3 * n + i] += w[i] * w[i];
}

/* One number: its new momentum, weight and average, along the direction d. */
typedef struct { float old, fresh, step, keep, share; } movement;
static inline void move_one(float *w, float g, uint16_t *m, float *x, float d, movement by) {
    *m = rounded(by.old * widened(*m) + by.fresh * g);
    *w = *w * by.keep - by.step * d;
    *x += by.share * (*w - *x);
}

/* The parts of one row, or one part: a and w are multiplied by `scales` and `keeps` or, if these are null, by `scale` and
 * `by`. */
FOR_EVERY_PROCESSOR
static void move(float *restrict w, const float *restrict g, uint16_t *restrict m, float *restrict x, float scale,
                 const float *restrict scales, const float *restrict keeps, mixture in, movement by, int64_t n) {
    if (scales) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            move_one(w + i, g[i], m + i, x + i, scales[i] * (in.old * widened(m[i]) + in.fresh * g[i]),
                     (movement){by.old, by.fresh, by.step, keeps[i], by.share});
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        move_one(w + i, g[i], m + i, x + i, scale * (in.old * widened(m[i]) + in.fresh * g[i]), by);
}

typedef struct {
    const tensor *tensors;
    const settings *by;
    const summation *sums;
    float *buffer;              /* as long as the longest run that has parts, SUMS times */
    const float *scales, *keeps; /* of the parts */
    const float *steps;          /* of the tensors */
} context;

/* Of one part, numbered among all. */
static movement movement_of(const context *c, const tensor *t, int64_t part) {
    const float keep = c->by->keep, step = c->steps[t - c->tensors];
    return (movement){keep, (1 - keep) * c->by->factor, step, c->keeps[part], step == 0 ? 0 : c->by->share};
}

static void measure_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, int64_t slice, int continued, void *given) {
    const context *c = given;
    const int64_t at = (block * t->rows + row) * t->run, n = t->run;
    const float *weight = t->held ? t->weight : NULL;
    double *sums = autogd_sums_of(c->sums, t, block, slice, continued);
    if (!t->part) {
        for (int64_t i = 0; i < rows; i += PIECE) {
            const int64_t here = at + i;
            measure(t->grad + here, t->momentum + here, weight ? weight + here : NULL, rows - i < PIECE ? rows - i : PIECE,
                    sums);
        }
        return;
    }
    memset(c->buffer, 0, SUMS * n * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t here = at + r * n;
        measure_along(t->grad + here, t->momentum + here, weight ? weight + here : NULL, n, c->buffer);
    }
    const int32_t *part = t->part + block * n;
    for (int64_t j = 0; j < n; j++)
        for (int k = 0; k < SUMS; k++) sums[SUMS * part[j] + k] += c->buffer[k * n + j];
}

static void move_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, int64_t slice, int continued, void *given) {
    (void)slice, (void)continued;
    const context *c = given;
    const int64_t at = (block * t->rows + row) * t->run, n = t->part ? t->run : rows;
    const mixture in = ahead(c->by);
    const movement by = movement_of(c, t, t->part ? t->first : t->first + block);
    const float *scales = c->scales + t->first, *keeps = c->keeps + t->first;
    if (t->part)
        for (int64_t j = 0; j < n; j++) {
            c->buffer[j] = scales[t->part[block * n + j]];
            c->buffer[n + j] = keeps[t->part[block * n + j]];
        }
    for (int64_t r = 0; r < (t->part ? rows : 1); r++)
        for (int64_t i = 0; i < n; i += PIECE) {
            const int64_t here = at + r * n + i;
            move(t->weight + here, t->grad + here, t->momentum + here, t->average + here, t->part ? 0 : scales[block],
                 t->part ? c->buffer + i : NULL, t->part ? c->buffer + n + i : NULL, in, by,
                 n - i < PIECE ? n - i : PIECE);
        }
}

/* One matrix between the stages, for two threads: a triangle each, which become a square; room for the directions of some
 * columns; and the numbers that they exchange. */
typedef struct {
    float *one, *other, *directions;
    double squares[2];
    int64_t N, stride;
} desk;

enum { GRAM, HALVES, SQUARE, INVERT, FRACTIONS, SPREAD, MIRROR, MOVE, STAGES };

static int64_t padded(int64_t side) { return (side + SIDE - 1) / SIDE * SIDE; }

/* Columns of a, times scale, one after the other, `stride` numbers apart, with zeros where the matrix ends. */
FOR_EVERY_PROCESSOR
static void read_columns(float *restrict to, int64_t stride, int64_t N, const tensor *t, const matrix *x, int64_t column,
                         int64_t columns, mixture in, float scale) {
    const float *restrict g = t->grad + x->offset;
    const uint16_t *restrict m = t->momentum + x->offset;
    const int64_t along = x->side_stride, across = x->length_stride, n = x->side;
    const float old = scale * in.old, fresh = scale * in.fresh;
    if (along == 1)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t at = (column + c) * across;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) to[c * stride + i] = old * widened(m[at + i]) + fresh * g[at + i];
        }
    else if (along < across) /* as a kernel's taps: go through memory in order */
        for (int64_t c = 0; c < columns; c++) {
            const int64_t at = (column + c) * across;
            for (int64_t i = 0; i < n; i++) to[c * stride + i] = old * widened(m[at + i * along]) + fresh * g[at + i * along];
        }
    else
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = i * along + column * across;
            for (int64_t c = 0; c < columns; c++)
                to[c * stride + i] = old * widened(m[at + c * across]) + fresh * g[at + c * across];
        }
    for (int64_t c = 0; c < columns; c++) memset(to + c * stride + n, 0, (N - n) * sizeof(float));
    for (int64_t c = columns; c % SIDE; c++) memset(to + c * stride, 0, N * sizeof(float));
}

/* Move along columns of directions, as they were read. */
FOR_EVERY_PROCESSOR
static void move_columns(const float *restrict from, int64_t stride, const tensor *t, const matrix *x, int64_t column,
                         int64_t columns, movement by) {
    const float *restrict g = t->grad + x->offset;
    uint16_t *restrict m = t->momentum + x->offset;
    float *restrict w = t->weight + x->offset, *restrict average = t->average + x->offset;
    const int64_t along = x->side_stride, across = x->length_stride, n = x->side;
    if (along == 1)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t at = (column + c) * across;
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                move_one(w + at + i, g[at + i], m + at + i, average + at + i, from[c * stride + i], by);
        }
    else if (along < across)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t i = 0; i < n; i++) {
                const int64_t at = i * along + (column + c) * across;
                move_one(w + at, g[at], m + at, average + at, from[c * stride + i], by);
            }
    else
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < columns; c++) {
                const int64_t at = i * along + (column + c) * across;
                move_one(w + at, g[at], m + at, average + at, from[c * stride + i], by);
            }
}

/* The stages of one half of one matrix. */
typedef struct {
    const context *c;
    const matrix *x;
    const tensor *t;
    desk *at;
    int half;
    float norm, size; /* of a, and the direction's operator norm */
    float *columns;   /* room for WIDTH of them */
} job;

static int64_t begin_of(const job *j, int half) {
    const int64_t middle = (j->x->length / 2 + WIDTH - 1) / WIDTH * WIDTH;
    return half == 0 ? 0 : half == 1 && middle < j->x->length ? middle : j->x->length;
}

static void stage(const job *j, int which) {
    desk *at = j->at;
    const settings *by = j->c->by;
    const int64_t N = at->N, from = begin_of(j, j->half), to = begin_of(j, j->half + 1);
    const int turns = j->norm > 0 && j->size != 0;
    const mixture in = ahead(by);
    float *own = j->half ? at->other : at->one, *directions = at->directions + j->half * SIDE * at->stride;
    if (which < MOVE && !turns) return;
    /* the square root of the norm of the gram's square: the square of the 8-norm of singular values */
    const float scale = which > SQUARE ? (float)sqrt(sqrt(at->squares[0] + at->squares[1])) : 1;
    switch (which) {
    case GRAM:
        if (from == to) memset(own, 0, autogd_triangle(N) * sizeof(float));
        for (int64_t column = from; column < to; column += WIDTH) {
            const int64_t columns = to - column < WIDTH ? to - column : WIDTH;
            read_columns(j->columns, at->stride, N, j->t, j->x, column, columns, in, 1 / j->norm);
            autogd_add_gram(own, N, j->columns, at->stride, columns, column == from);
        }
        return;
    case HALVES: autogd_add_halves(at->one, at->other, N, j->half); return;
    case SQUARE: at->squares[j->half] = autogd_square_of_square(at->one, N, j->columns, j->half); return;
    case INVERT: autogd_invert(own, N, 1 / scale, j->half ? by->q : by->p); return;
    case FRACTIONS:
        autogd_add_fractions(at->one, at->other, N, by->a, by->b, by->whole, j->size / sqrtf(scale), j->half);
        return;
    case SPREAD:
        if (!j->half) autogd_spread(at->one, N);
        return;
    case MIRROR: autogd_mirror(at->one, N, j->half); return;
    }
    const movement moves = movement_of(j->c, j->t, j->x->part);
    if (!turns) memset(directions, 0, SIDE * at->stride * sizeof(float));
    for (int64_t column = from; column < to; column += WIDTH) {
        const int64_t columns = to - column < WIDTH ? to - column : WIDTH;
        if (turns) read_columns(j->columns, at->stride, N, j->t, j->x, column, columns, in, 1 / j->norm);
        for (int64_t c = 0; c < columns; c += SIDE) {
            if (turns) autogd_multiply(directions, at->one, N, j->columns + c * at->stride, at->stride);
            move_columns(directions, at->stride, j->t, j->x, column + c, columns - c < SIDE ? columns - c : SIDE, moves);
        }
    }
}

/* Two triangles take a square and sixteen columns, which begin where directions do. */
static int64_t room_for(int64_t N) { return N * N + 2 * SIDE * (N + GAP); }

/* Pairs of threads, at most one for each matrix. */
static int64_t desks_for(int64_t jobs, int threads) { return jobs < (threads + 1) / 2 ? jobs : (threads + 1) / 2; }

/* The scratch memory of the passes, in doubles and in floats; `jobs` is the number of
 * matrices to orthogonalise, 0 for a measurement. */
int64_t autogd_doubles(const tensor *tensors, int64_t count, int64_t parts) {
    return autogd_summands(tensors, count, parts, SUMS);
}
int64_t autogd_floats(int64_t longest, int64_t largest, int64_t jobs, int threads) {
    const int64_t N = padded(largest), run = SUMS * longest, columns = jobs ? WIDTH * (N + GAP) : 0;
    return threads * (run > columns ? run : columns) + desks_for(jobs, threads) * room_for(N);
}

/* Every part's SUMS sums, at the beginning of `room`. */
void autogd_measure(const tensor *tensors, int64_t count, int64_t longest, int64_t parts, double *room, float *floats,
                    int threads) {
    const summation sums = autogd_begin_sums(tensors, count, parts, SUMS, room);
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num(), all = omp_get_num_threads();
        context c = {tensors, NULL, &sums, floats + thread * SUMS * longest, NULL, NULL, NULL};
        autogd_share(tensors, count, autogd_slices(sums.slices, thread, all), 0, 0, measure_rows, &c);
    }
    autogd_end_sums(&sums, tensors, count, parts);
}

/* Move everything. `sums` are those of `autogd_measure`, `sizes` every part's operator norm; `norms` has room for two
 * numbers a part. */
void autogd_update(const tensor *tensors, int64_t count, const matrix *matrices, int64_t jobs, int64_t longest,
                   int64_t largest, int64_t parts, const settings *by, const float *steps, const float *keeps,
                   const float *sizes, const double *sums, float *norms, float *floats, int threads) {
    const int64_t N = padded(largest), run = SUMS * longest, columns = jobs ? WIDTH * (N + GAP) : 0, room = room_for(N);
    const int64_t each = run > columns ? run : columns, desks = desks_for(jobs, threads);
    float *scales = norms + parts;
    const mixture in = ahead(by);
    for (int64_t k = 0; k < count; k++) {
        const int64_t end = k + 1 < count ? tensors[k + 1].first : parts;
        for (int64_t i = tensors[k].first; i < end; i++) {
            /* |old m + fresh g|^2; do not divide by what rounding leaves if the two cancel */
            const double *s = sums + SUMS * i, alone = (double)in.old * in.old * s[1] + (double)in.fresh * in.fresh * s[0];
            const double square = alone + 2.0 * in.old * in.fresh * s[2];
            norms[i] = (float)sqrt(square > 1e-10 * alone ? square : 1e-10 * alone);
            scales[i] = norms[i] > 0 ? sizes[i] / norms[i] : 0;
        }
    }
    desk all[desks + 1];
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num();
        float *own = floats + thread * each;
        context c = {tensors, by, NULL, own, scales, keeps, steps};
        autogd_share(tensors, count, autogd_slices(omp_get_num_threads(), thread, omp_get_num_threads()), 1, 1, move_rows, &c);
        for (int64_t first = 0; first < jobs; first += desks) {
            const int64_t here = jobs - first < desks ? jobs - first : desks;
#pragma omp for schedule(static, 1)
            for (int64_t i = 0; i < here; i++) {
                desk *at = all + i;
                at->one = floats + threads * each + i * room;
                at->N = padded(matrices[first + i].side);
                at->other = at->one + autogd_triangle(at->N);
                at->directions = at->one + at->N * at->N;
                at->stride = at->N + GAP;
            }
            for (int which = GRAM; which < STAGES; which++)
#pragma omp for schedule(static, 1)
                for (int64_t i = 0; i < 2 * here; i++) {
                    const matrix *x = matrices + first + i / 2;
                    const job j = {&c, x, tensors + x->tensor, all + i / 2, (int)(i % 2), norms[x->part], sizes[x->part], own};
                    stage(&j, which);
                }
        }
    }
}
