/* The arithmetic of autogd.engine.distributed.polar, as multiplications of tiles of 16 x 16. */
#include "polar.h"

#include <math.h>
#include <string.h>

#include "autogd.h"

int64_t autogd_triangle(int64_t N) { return N / SIDE * (N / SIDE + 1) / 2 * TILE; }

/* Where a tile begins, on or below the diagonal. */
static int64_t at(int64_t row, int64_t column) { return (row * (row + 1) / 2 + column) * TILE; }

static block upright(const float *tile) { return (block){tile, 1, SIDE}; }
static block transposed(const float *tile) { return (block){tile, SIDE, 1}; }

static void transpose(float *out, const float *in) {
    for (int c = 0; c < SIDE; c++)
        for (int r = 0; r < SIDE; r++) out[r * SIDE + c] = in[c * SIDE + r];
}

void autogd_add_gram(float *triangle, int64_t N, const float *x, int64_t stride, int64_t columns, int first) {
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t q = 0; q <= p; q++) {
            const block right = {x + q * SIDE, stride, 1};
            autogd_product(triangle + at(p, q), SIDE, x + p * SIDE, stride, right, columns, first ? 0 : 1, 1);
        }
}

/* One thread's numbers of a triangle. */
static int64_t begin_of(int64_t N, int half) { return half == 2 ? autogd_triangle(N) : half * (autogd_triangle(N) / TILE / 2 * TILE); }

FOR_EVERY_PROCESSOR
void autogd_add_halves(float *restrict one, float *restrict other, int64_t N, int half) {
    const int64_t to = begin_of(N, half + 1);
    for (int64_t i = begin_of(N, half); i < to; i++) one[i] = other[i] = one[i] + other[i];
}

FOR_EVERY_PROCESSOR
static double sum_of_squares(const float *tile) {
    double sums[SIDE] = {0}, total = 0; /* independent sums: no addition waits for the last */
    for (int c = 0; c < SIDE; c++)
        for (int i = 0; i < SIDE; i++) sums[i] += (double)tile[c * SIDE + i] * tile[c * SIDE + i];
    for (int i = 0; i < SIDE; i++) total += sums[i];
    return total;
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
            autogd_product(result, SIDE, room, SIDE, transposed(triangle + at(q, 0)), q * SIDE, 0, 1);
            for (int64_t l = q; l < count; l++) left[l - q] = room + l * TILE, right[l - q] = triangle + at(l, q);
            autogd_product_of_tiles(result, left, right, 1, SIDE, count - q, 1, 1);
            total += (p == q ? 1 : 2) * sum_of_squares(result);
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

/* In place: A = L L^T; then R^T, where R = L^-1, tile by tile where L's were; then A^-1 = R^T R. Every tile takes its
 * whole sum at once, and loses no more digits than in LAPACK: only triangles of 16 x 16 are inverted directly. */
static int invert(float *a, int64_t N) {
    const int64_t count = N / SIDE;
    float x[TILE], q[TILE];
    const float *left[count], *right[count];
    for (int64_t k = 0; k < count; k++) { /* the diagonal has R^T's own tiles at once */
        const float *row = a + at(k, 0);
        memcpy(x, a + at(k, k), sizeof x);
        autogd_product(x, SIDE, row, SIDE, transposed(row), k * SIDE, 1, -1);
        if (invert_factor(x, q)) return 1;
        for (int64_t p = k + 1; p < count; p++) {
            memcpy(x, a + at(p, k), sizeof x);
            autogd_product(x, SIDE, a + at(p, 0), SIDE, transposed(row), k * SIDE, 1, -1);
            autogd_product(a + at(p, k), SIDE, x, SIDE, transposed(q), SIDE, 0, 1);
        }
        transpose(a + at(k, k), q);
    }
    for (int64_t i = 1; i < count; i++) /* (R_ij)^T = -(sum of (R_lj)^T (L_il)^T) (R_ii)^T; L_ij is not needed afterwards */
        for (int64_t j = 0; j < i; j++) {
            for (int64_t l = j; l < i; l++) left[l - j] = a + at(l, j), right[l - j] = a + at(i, l);
            autogd_product_of_tiles(x, left, right, SIDE, 1, i - j, 0, -1);
            autogd_product(a + at(i, j), SIDE, x, SIDE, upright(a + at(i, i)), SIDE, 0, 1);
        }
    for (int64_t i = 0; i < count; i++) /* the sum of (R_ki)^T R_kj, k from i on; row i is not needed afterwards */
        for (int64_t j = 0; j <= i; j++) {
            for (int64_t k = i; k < count; k++) left[k - i] = a + at(k, i), right[k - i] = a + at(k, j);
            autogd_product_of_tiles(x, left, right, SIDE, 1, count - i, 0, 1);
            memcpy(a + at(i, j), x, sizeof x);
        }
    return 0;
}

FOR_EVERY_PROCESSOR
void autogd_invert(float *triangle, int64_t N, float scale, float pole) {
    const int64_t count = autogd_triangle(N);
    for (int64_t i = 0; i < count; i++) triangle[i] *= scale;
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int j = 0; j < SIDE; j++) triangle[at(p, p) + j * SIDE + j] += pole;
    if (invert(triangle, N)) memset(triangle, 0, count * sizeof(float));
}

FOR_EVERY_PROCESSOR
void autogd_add_fractions(float *restrict one, const float *restrict other, int64_t N, float a, float b, float whole, float scale, int half) {
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

void autogd_multiply(float *out, const float *square, int64_t N, const float *x, int64_t stride) {
    const block right = {x, 1, stride};
    for (int64_t p = 0; p < N / SIDE; p++) autogd_product(out + p * SIDE, stride, square + p * N * SIDE, SIDE, right, N, 0, 1);
}
