/* Symmetric matrices in panels of sixteen rows, and what Zolotarev's function asks of them.
 *
 * A square of side N, a multiple of 16, lies in memory as N/16 panels; a panel has, for every column, its sixteen rows
 * one after the other. So a panel is what a multiplication wants on either side, and nothing is ever packed. Of a
 * symmetric one the lower tiles of 16 x 16 count, where nothing else is said.
 *
 * Functions that take `half` do the one or the other half of the work: two threads call them for one matrix.
 */
#ifndef AUTOGD_POLAR_H
#define AUTOGD_POLAR_H

#include <stdint.h>

#define SIDE 16
#define TILE (SIDE * SIDE)

/* square += x x^T, or = where `first`: the columns of x lie `stride` numbers apart. */
void autogd_add_gram(float *square, int64_t N, const float *x, int64_t stride, int64_t columns, int first);
/* Both squares become their sum; `one` with its upper tiles too. */
void autogd_add_halves(float *one, float *other, int64_t N, int half);
/* The sum of squares of the numbers of A^2, of which both triangles are there. */
double autogd_square_of_square(const float *square, int64_t N, int half);
/* square becomes (square * scale + pole * I)^-1, or zero where rounding has left no Cholesky factor. */
void autogd_invert(float *square, int64_t N, float scale, float pole);
/* one becomes scale * (whole * I + a * one + b * other), with its upper tiles. */
void autogd_add_fractions(float *one, const float *other, int64_t N, float a, float b, float whole, float scale, int half);
/* out = square x, with all tiles of the square; a multiple of 16 columns, `stride` numbers apart. */
void autogd_multiply(float *out, const float *square, int64_t N, const float *x, int64_t stride, int64_t columns);

#endif
