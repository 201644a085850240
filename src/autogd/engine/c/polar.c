/* The arithmetic of autogd.engine.rational, where everything is a multiplication of tiles of 16 x 16. */
#include "polar.h"

#include <math.h>
#include <string.h>

#include "autogd.h"

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));

int64_t autogd_triangle(int64_t N) { return N / SIDE * (N / SIDE + 1) / 2 * TILE; }

/* Where a tile begins, on or below the diagonal. */
static int64_t at(int64_t row, int64_t column) { return (row * (row + 1) / 2 + column) * TILE; }

/* Sixteen rows of the right side of a product: number c of row k is at k * step + c * column. */
typedef struct { const float *first; int64_t step, column; } block;
static block upright(const float *tile) { return (block){tile, 1, SIDE}; }
static block transposed(const float *tile) { return (block){tile, SIDE, 1}; }

typedef eight sums_of_four[4][2]; /* eight sums that grow side by side: as many as a processor has on the way */

/* sums[c] += left[k] * right[k, c] over k, for four columns c: left[k] are sixteen numbers, `left_step` apart. */
static inline __attribute__((always_inline)) void add_products(sums_of_four sums, const float *left, int64_t left_step,
                                                               const float *right, int64_t step, int64_t column, int64_t depth) {
    for (int64_t k = 0; k < depth; k++) {
        const eight low = *(const eight *)(left + k * left_step), high = *(const eight *)(left + k * left_step + 8);
        for (int c = 0; c < 4; c++) {
            const float y = right[k * step + c * column];
            sums[c][0] += y * low;
            sums[c][1] += y * high;
        }
    }
}

static inline __attribute__((always_inline)) void put(float *out, int64_t apart, sums_of_four sums, float keep, float factor) {
    for (int c = 0; c < 4; c++) {
        eight *to = (eight *)(out + c * apart);
        for (int j = 0; j < 2; j++) to[j] = keep == 0 ? factor * sums[c][j] : factor * sums[c][j] + keep * to[j];
    }
}

/* Sixteen columns, `apart` from each other, become keep * out + factor * left * right, over any depth. */
FOR_EVERY_PROCESSOR
static void product(float *out, int64_t apart, const float *left, int64_t left_step, block right, int64_t depth, float keep,
                    float factor) {
    for (int first = 0; first < SIDE; first += 4) {
        sums_of_four sums = {{{0}}};
        add_products(sums, left, left_step, right.first + first * right.column, right.step, right.column, depth);
        put(out + first * apart, apart, sums, keep, factor);
    }
}

/* A tile becomes keep times itself and factor times the product of several on the left and of as many on the right. */
static inline __attribute__((always_inline)) void add_tiles(float *out, const float *const *left, const float *const *right,
                                                            int64_t step, int64_t column, int64_t count, float keep, float factor) {
    for (int first = 0; first < SIDE; first += 4) {
        sums_of_four sums = {{{0}}};
        for (int64_t b = 0; b < count; b++) add_products(sums, left[b], SIDE, right[b] + first * column, step, column, SIDE);
        put(out + first * SIDE, SIDE, sums, keep, factor);
    }
}

FOR_EVERY_PROCESSOR
static void product_of_tiles(float *out, const float *const *left, const float *const *right, int64_t count, float keep) {
    add_tiles(out, left, right, 1, SIDE, count, keep, 1);
}

/* Those on the right are transposed. */
FOR_EVERY_PROCESSOR
static void product_with_transposed(float *out, const float *const *left, const float *const *right, int64_t count, float factor) {
    add_tiles(out, left, right, SIDE, 1, count, 0, factor);
}

static void transpose(float *out, const float *in) {
    for (int c = 0; c < SIDE; c++)
        for (int r = 0; r < SIDE; r++) out[r * SIDE + c] = in[c * SIDE + r];
}

void autogd_add_gram(float *triangle, int64_t N, const float *x, int64_t stride, int64_t columns, int first) {
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t q = 0; q <= p; q++) {
            const block right = {x + q * SIDE, stride, 1};
            product(triangle + at(p, q), SIDE, x + p * SIDE, stride, right, columns, first ? 0 : 1, 1);
        }
}

/* The numbers of a triangle that are one thread's. */
static int64_t begin_of(int64_t N, int half) { return half == 2 ? autogd_triangle(N) : half * (autogd_triangle(N) / TILE / 2 * TILE); }

FOR_EVERY_PROCESSOR
void autogd_add_halves(float *restrict one, float *restrict other, int64_t N, int half) {
    const int64_t to = begin_of(N, half + 1);
    for (int64_t i = begin_of(N, half); i < to; i++) one[i] = other[i] = one[i] + other[i];
}

double autogd_square_of_square(const float *triangle, int64_t N, float *room, int half) {
    const int64_t count = N / SIDE;
    double total = 0;
    float result[TILE];
    const float *left[count], *right[count];
    for (int64_t p = 0; p < count; p++) {
        if ((p % 4 == 1 || p % 4 == 2) != half) continue; /* longer rows and shorter ones for both */
        memcpy(room, triangle + at(p, 0), (p + 1) * TILE * sizeof(float));
        for (int64_t l = p + 1; l < count; l++) transpose(room + l * TILE, triangle + at(l, p));
        for (int64_t q = 0; q <= p; q++) {
            /* of row q what lies before the diagonal, and then what lies below it */
            product(result, SIDE, room, SIDE, transposed(triangle + at(q, 0)), q * SIDE, 0, 1);
            for (int64_t l = q; l < count; l++) left[l - q] = room + l * TILE, right[l - q] = triangle + at(l, q);
            product_of_tiles(result, left, right, count - q, 1);
            double sum = 0;
            for (int i = 0; i < TILE; i++) sum += (double)result[i] * result[i];
            total += p == q ? sum : 2 * sum;
        }
    }
    return total;
}

/* From the lower triangle of d, which it overwrites: the inverse of its Cholesky factor. */
FOR_EVERY_PROCESSOR
static int invert_factor(float *d, float *inverse) {
    float over[SIDE];
    for (int j = 0; j < SIDE; j++) {
        if (!(d[j * SIDE + j] > 0)) return 1;
        over[j] = 1 / sqrtf(d[j * SIDE + j]);
        for (int i = 0; i < SIDE; i++) d[j * SIDE + i] = i < j ? 0 : d[j * SIDE + i] * over[j];
        for (int c = j + 1; c < SIDE; c++) {
            const float y = d[j * SIDE + c];
            for (int i = 0; i < SIDE; i++) d[c * SIDE + i] -= y * d[j * SIDE + i];
        }
    }
    memset(inverse, 0, TILE * sizeof(float));
    for (int k = 0; k < SIDE; k++) inverse[k * SIDE + k] = 1;
    for (int j = 0; j < SIDE; j++)
        for (int k = 0; k <= j; k++) {
            const float y = inverse[k * SIDE + j] * over[j];
            for (int i = 0; i < SIDE; i++) inverse[k * SIDE + i] -= y * d[j * SIDE + i];
            inverse[k * SIDE + j] = y;
        }
    return 0;
}

/* In place: A = L L^T; then R^T, where R = L^-1, tile by tile where L's were; then A^-1 = R^T R. Every tile takes all of its
 * sum in one go, and its digits suffer no more than in LAPACK: only triangles of 16 x 16 are inverted by themselves. */
static int invert(float *a, int64_t N) {
    const int64_t count = N / SIDE;
    float x[TILE], q[TILE];
    const float *left[count], *right[count];
    for (int64_t k = 0; k < count; k++) { /* the diagonal has R^T's own tiles at once */
        const float *row = a + at(k, 0);
        memcpy(x, a + at(k, k), sizeof x);
        product(x, SIDE, row, SIDE, transposed(row), k * SIDE, 1, -1);
        if (invert_factor(x, q)) return 1;
        for (int64_t p = k + 1; p < count; p++) {
            memcpy(x, a + at(p, k), sizeof x);
            product(x, SIDE, a + at(p, 0), SIDE, transposed(row), k * SIDE, 1, -1);
            product(a + at(p, k), SIDE, x, SIDE, transposed(q), SIDE, 0, 1);
        }
        transpose(a + at(k, k), q);
    }
    for (int64_t i = 1; i < count; i++) /* (R_ij)^T = -(sum of (R_lj)^T (L_il)^T) (R_ii)^T; L_ij is not wanted afterwards */
        for (int64_t j = 0; j < i; j++) {
            for (int64_t l = j; l < i; l++) left[l - j] = a + at(l, j), right[l - j] = a + at(i, l);
            product_with_transposed(x, left, right, i - j, -1);
            product(a + at(i, j), SIDE, x, SIDE, upright(a + at(i, i)), SIDE, 0, 1);
        }
    for (int64_t i = 0; i < count; i++) /* the sum of (R_ki)^T R_kj, k from i on; row i is not wanted afterwards */
        for (int64_t j = 0; j <= i; j++) {
            for (int64_t k = i; k < count; k++) left[k - i] = a + at(k, i), right[k - i] = a + at(k, j);
            product_with_transposed(x, left, right, count - i, 1);
            memcpy(a + at(i, j), x, sizeof x);
        }
    return 0;
}

void autogd_invert(float *triangle, int64_t N, float scale, float pole) {
    for (int64_t i = 0; i < autogd_triangle(N); i++) triangle[i] *= scale;
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int j = 0; j < SIDE; j++) triangle[at(p, p) + j * SIDE + j] += pole;
    if (invert(triangle, N)) memset(triangle, 0, autogd_triangle(N) * sizeof(float));
}

void autogd_add_fractions(float *one, const float *other, int64_t N, float a, float b, float whole, float scale, int half) {
    const int64_t from = begin_of(N, half), to = begin_of(N, half + 1);
    for (int64_t i = from; i < to; i++) one[i] = scale * (a * one[i] + b * other[i]);
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int j = 0; from <= at(p, p) && at(p, p) < to && j < SIDE; j++) one[at(p, p) + j * SIDE + j] += scale * whole;
}

void autogd_spread(float *square, int64_t N) {
    for (int64_t p = N / SIDE - 1; p > 0; p--) memmove(square + p * N * SIDE, square + at(p, 0), (p + 1) * TILE * sizeof(float));
}

void autogd_mirror(float *square, int64_t N, int half) {
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t q = 0; q < p; q++)
            if (((p + q) & 1) == half) transpose(square + (q * N + p * SIDE) * SIDE, square + (p * N + q * SIDE) * SIDE);
}

void autogd_multiply(float *out, const float *square, int64_t N, const float *x, int64_t stride, int64_t columns) {
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t c = 0; c < columns; c += SIDE) {
            const block right = {x + c * stride, 1, stride};
            product(out + c * stride + p * SIDE, stride, square + p * N * SIDE, SIDE, right, N, 0, 1);
        }
}
