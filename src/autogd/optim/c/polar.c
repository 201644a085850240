/* The arithmetic of autogd.geometry.zolotarev, where everything is a multiplication of tiles of 16 x 16. */
#include "polar.h"

#include <math.h>
#include <string.h>

#include "autogd.h"

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));

static float *tile_at(float *square, int64_t N, int64_t panel, int64_t column) { return square + (panel * N + column * SIDE) * SIDE; }
static const float *const_tile_at(const float *square, int64_t N, int64_t panel, int64_t column) {
    return square + (panel * N + column * SIDE) * SIDE;
}

/* out[c] = keep * out[c] + factor * sum over k of left[k] * right[k, c], for sixteen columns c, each of sixteen numbers.
 * left[k] are sixteen numbers, `left_step` apart; right[k, c] is at k * right_step + c * right_column. */
FOR_EVERY_PROCESSOR
static void tile(float *out, int64_t out_column, const float *left, int64_t left_step, const float *right, int64_t right_step,
                 int64_t right_column, int64_t depth, float keep, float factor) {
    for (int first = 0; first < SIDE; first += 4) {
        /* eight sums that grow side by side: as many as a processor has on the way */
        eight sums[4][2] = {{{0}}};
        const float *x = right + first * right_column;
        for (int64_t k = 0; k < depth; k++) {
            const eight low = *(const eight *)(left + k * left_step), high = *(const eight *)(left + k * left_step + 8);
            for (int c = 0; c < 4; c++) {
                const float y = x[k * right_step + c * right_column];
                sums[c][0] += y * low;
                sums[c][1] += y * high;
            }
        }
        for (int c = 0; c < 4; c++) {
            eight *to = (eight *)(out + (first + c) * out_column);
            for (int j = 0; j < 2; j++) to[j] = keep == 0 ? factor * sums[c][j] : factor * sums[c][j] + keep * to[j];
        }
    }
}

static void transpose(float *out, const float *in) {
    for (int c = 0; c < SIDE; c++)
        for (int r = 0; r < SIDE; r++) out[r * SIDE + c] = in[c * SIDE + r];
}

void autogd_add_gram(float *square, int64_t N, const float *x, int64_t stride, int64_t columns, int first) {
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t q = 0; q <= p; q++)
            tile(tile_at(square, N, p, q), SIDE, x + p * SIDE, stride, x + q * SIDE, stride, 1, columns, first ? 0 : 1, 1);
}

void autogd_add_halves(float *one, float *other, int64_t N, int half) {
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t q = 0; q <= p; q++) {
            if (((p + q) & 1) != half) continue;
            float *a = tile_at(one, N, p, q), *b = tile_at(other, N, p, q);
            for (int i = 0; i < TILE; i++) a[i] = b[i] = a[i] + b[i];
            if (p != q) transpose(tile_at(one, N, q, p), a);
        }
}

double autogd_square_of_square(const float *square, int64_t N, int half) {
    double total = 0;
    float product[TILE];
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t q = 0; q <= p; q++) {
            if (((p + q) & 1) != half) continue;
            tile(product, SIDE, const_tile_at(square, N, p, 0), SIDE, const_tile_at(square, N, q, 0), SIDE, 1, N, 0, 1);
            double sum = 0;
            for (int i = 0; i < TILE; i++) sum += (double)product[i] * product[i];
            total += p == q ? sum : 2 * sum;
        }
    return total;
}

/* From the lower triangle of d, which it overwrites: the inverse Q of its Cholesky factor, as inverse[k][c] = Q[c, k]. */
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

/* Cholesky, A = L L^T, tile by tile, and at once L^-T in the upper tiles; then A^-1 = L^-T L^-1. A tile of L is no longer
 * needed below the diagonal when the last product writes there. Each tile takes all of its sum in one go, and its
 * digits suffer no more than in LAPACK: only triangles of 16 x 16 are inverted by themselves. */
static int invert(float *square, int64_t N) {
    const int64_t count = N / SIDE;
    float x[TILE], q[TILE];
    for (int64_t k = 0; k < count; k++) {
        const float *row = tile_at(square, N, k, 0);
        memcpy(x, tile_at(square, N, k, k), sizeof x);
        tile(x, SIDE, row, SIDE, row, SIDE, 1, k * SIDE, 1, -1);
        if (invert_factor(x, q)) return 1;
        for (int64_t p = 0; p < count; p++) {
            float *to = tile_at(square, N, p, k);
            if (p > k) { /* of L: A - L L^T, times Q^T */
                memcpy(x, to, sizeof x);
                tile(x, SIDE, tile_at(square, N, p, 0), SIDE, row, SIDE, 1, k * SIDE, 1, -1);
            } else if (p < k) /* of L^-T: what is there of it times L^T, times Q^T */
                tile(x, SIDE, tile_at(square, N, p, p), SIDE, row + p * TILE, SIDE, 1, (k - p) * SIDE, 0, -1);
            if (p != k) tile(to, SIDE, x, SIDE, q, SIDE, 1, SIDE, 0, 1);
        }
        transpose(tile_at(square, N, k, k), q);
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j <= i; j++) {
            tile(x, SIDE, tile_at(square, N, i, i), SIDE, tile_at(square, N, j, i), SIDE, 1, N - i * SIDE, 0, 1);
            memcpy(tile_at(square, N, i, j), x, sizeof x);
        }
    return 0;
}

void autogd_invert(float *square, int64_t N, float scale, float pole) {
    for (int64_t p = 0; p < N / SIDE; p++) {
        float *row = tile_at(square, N, p, 0);
        for (int64_t i = 0; i < (p + 1) * TILE; i++) row[i] *= scale;
        for (int j = 0; j < SIDE; j++) row[p * TILE + j * SIDE + j] += pole;
    }
    if (invert(square, N)) memset(square, 0, N * N * sizeof(float));
}

void autogd_add_fractions(float *one, const float *other, int64_t N, float a, float b, float whole, float scale, int half) {
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t q = 0; q <= p; q++) {
            if (((p + q) & 1) != half) continue;
            float *to = tile_at(one, N, p, q);
            const float *from = const_tile_at(other, N, p, q);
            for (int i = 0; i < TILE; i++) to[i] = scale * (a * to[i] + b * from[i]);
            if (p != q) transpose(tile_at(one, N, q, p), to);
            else
                for (int j = 0; j < SIDE; j++) to[j * SIDE + j] += scale * whole;
        }
}

void autogd_multiply(float *out, const float *square, int64_t N, const float *x, int64_t stride, int64_t columns) {
    for (int64_t p = 0; p < N / SIDE; p++)
        for (int64_t c = 0; c < columns; c += SIDE)
            tile(out + c * stride + p * SIDE, stride, const_tile_at(square, N, p, 0), SIDE, x + c * stride, 1, stride, N, 0, 1);
}
