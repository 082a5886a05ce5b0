// test/oracle.h: every operation in plain double precision, as literally as its formula in galaxy/ops reads: no tiles,
// tricks or threads.
//
// It knows the library's descriptors (GxAttention, GxRuns, GxDropout, GxResidual, GxAdamW, GxSgd) and its random
// numbers, and nothing else of the library. Buffers lie as the library's do: rows t*B + b, weights [Out,In]. All
// outputs are written whole; strided ones only where their heads lie. Results are trusted because each backward is held
// against central differences of its forward, and both against PyTorch (test_ops.cu).
#ifndef GX_TEST_ORACLE_H
#define GX_TEST_ORACLE_H
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../galaxy/ops/activation.h"
#include "../galaxy/ops/attention.h"
#include "../galaxy/ops/loss.h"
#include "../galaxy/ops/optimizer.h"
#include "../galaxy/ops/residual.h"

// ---- norm ----------------------------------------------------------------------------------------------------------

static inline void oracle_rms_norm_forward(double *y, double *rstd, const double *x, const double *w, double offset,
                                           int64_t R, int64_t C, double eps)
{
    for (int64_t r = 0; r < R; r++) {
        double squares = 0;
        for (int64_t c = 0; c < C; c++) squares += x[r * C + c] * x[r * C + c];
        rstd[r] = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) y[r * C + c] = x[r * C + c] * rstd[r] * (w[c] + offset);
    }
}

static inline void oracle_rms_norm_backward(double *dx, double *dw, const double *dy, const double *dresidual,
                                            const double *x, const double *rstd, const double *w, double offset,
                                            int64_t R, int64_t C)
{
    memset(dw, 0, (size_t)C * sizeof *dw);
    for (int64_t r = 0; r < R; r++) {
        double dot = 0;
        for (int64_t c = 0; c < C; c++) dot += dy[r * C + c] * (w[c] + offset) * x[r * C + c];
        for (int64_t c = 0; c < C; c++) {
            int64_t i = r * C + c;
            dx[i] = (dresidual ? dresidual[i] : 0) + rstd[r] * (w[c] + offset) * dy[i] -
                    x[i] * pow(rstd[r], 3) / (double)C * dot;
            dw[c] += dy[i] * x[i] * rstd[r];
        }
    }
}

static inline void oracle_layer_norm_forward(double *y, double *mean, double *rstd, const double *x, const double *w,
                                             const double *b, int64_t R, int64_t C, double eps)
{
    for (int64_t r = 0; r < R; r++) {
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < C; c++) sum += x[r * C + c];
        mean[r] = sum / (double)C;
        for (int64_t c = 0; c < C; c++) squares += pow(x[r * C + c] - mean[r], 2);
        rstd[r] = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) y[r * C + c] = (x[r * C + c] - mean[r]) * rstd[r] * w[c] + b[c];
    }
}

static inline void oracle_layer_norm_backward(double *dx, double *dw, double *db, const double *dy, const double *x,
                                              const double *mean, const double *rstd, const double *w, int64_t R,
                                              int64_t C)
{
    memset(dw, 0, (size_t)C * sizeof *dw);
    memset(db, 0, (size_t)C * sizeof *db);
    for (int64_t r = 0; r < R; r++) {
        double sum = 0, dot = 0;
        for (int64_t c = 0; c < C; c++) {
            const int64_t i = r * C + c;
            sum += dy[i] * w[c];
            dot += dy[i] * w[c] * (x[i] - mean[r]) * rstd[r];
            dw[c] += dy[i] * (x[i] - mean[r]) * rstd[r];
            db[c] += dy[i];
        }
        for (int64_t c = 0; c < C; c++) {
            const int64_t i = r * C + c;
            dx[i] = rstd[r] * (dy[i] * w[c] - sum / (double)C - (x[i] - mean[r]) * rstd[r] * dot / (double)C);
        }
    }
}

// ---- dropout and what is joined to the stream ----------------------------------------------------------------------

// Is column c of row r at hand kept?
static inline int oracle_keeps(const GxDropout *d, const GxStep *s, int64_t r, int64_t c, int64_t C)
{
    if (d->p == 0) return 1;
    const int64_t row = d->rows ? d->rows[r] : d->first_row + r, t = row / d->B, b = row % d->B;
    const int64_t number = ((s->first_sample + d->first_sample + b) * d->T + t) * ((C + 3) / 4 * 4) + c;
    return gx_random_bits(s->seed, (uint64_t)number, (uint32_t)s->step, d->site) >= (double)d->p * 4294967296.0;
}

static inline void oracle_dropout(double *y, const double *x, const GxDropout *d, const GxStep *s, int64_t R, int64_t C)
{
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = oracle_keeps(d, s, r, c, C) ? x[r * C + c] / (1 - (double)d->p) : 0;
}

static inline void oracle_residual_sum(double *sum, const double *x, const double *out, const double *bias,
                                       const GxDropout *d, const GxStep *s, int64_t R, int64_t C)
{
    for (int64_t i = 0; i < R * C; i++) sum[i] = out[i] + (bias ? bias[i % C] : 0);
    oracle_dropout(sum, sum, d, s, R, C);
    for (int64_t i = 0; i < R * C; i++) sum[i] += x[i];
}

// ---- rows by number ------------------------------------------------------------------------------------------------

static inline void oracle_pick_rows(double *y, const double *x, const int32_t *rows, int64_t first, int64_t n,
                                    int64_t C)
{
    for (int64_t i = 0; i < n * C; i++) y[i] = x[(rows[i / C] - first) * C + i % C];
}

static inline void oracle_add_rows(double *y, const double *x, const int32_t *rows, int64_t first, int64_t n, int64_t C)
{
    for (int64_t i = 0; i < n * C; i++) y[(rows[i / C] - first) * C + i % C] += x[i];
}

// What row t*B + b, of position t in the whole sequence, counts in the mean of a part; 0: it is not in it.
static inline double oracle_share(const int32_t *part, int64_t t, int64_t b)
{
    return b == part[0] && t >= part[1] && t < part[2] ? 1.0 / (part[2] - part[1]) : 0;
}

static inline void oracle_mean_rows_forward(double *y, const double *x, const int32_t *parts, int64_t n, int64_t T,
                                            int64_t B, int64_t t_first, int64_t C)
{
    memset(y, 0, (size_t)(n * C) * sizeof *y);
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < T * B; r++)
            for (int64_t c = 0; c < C; c++)
                y[i * C + c] += oracle_share(parts + 3 * i, t_first + r / B, r % B) * x[r * C + c];
}

static inline void oracle_mean_rows_backward(double *dx, const double *dy, const int32_t *parts, int64_t n, int64_t T,
                                             int64_t B, int64_t t_first, int64_t C)
{
    memset(dx, 0, (size_t)(T * B * C) * sizeof *dx);
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < T * B; r++)
            for (int64_t c = 0; c < C; c++)
                dx[r * C + c] += oracle_share(parts + 3 * i, t_first + r / B, r % B) * dy[i * C + c];
}

static inline void oracle_normalize_rows_forward(double *y, double *norm, const double *x, int64_t R, int64_t C,
                                                 double eps)
{
    for (int64_t r = 0; r < R; r++) {
        double squares = 0;
        for (int64_t c = 0; c < C; c++) squares += x[r * C + c] * x[r * C + c];
        norm[r] = fmax(sqrt(squares), eps);
        for (int64_t c = 0; c < C; c++) y[r * C + c] = x[r * C + c] / norm[r];
    }
}

static inline void oracle_normalize_rows_backward(double *dx, const double *dy, const double *y, const double *norm,
                                                  int64_t R, int64_t C)
{
    for (int64_t r = 0; r < R; r++) {
        double dot = 0;
        for (int64_t c = 0; c < C; c++) dot += y[r * C + c] * dy[r * C + c];
        for (int64_t c = 0; c < C; c++) dx[r * C + c] = (dy[r * C + c] - y[r * C + c] * dot) / norm[r];
    }
}

// ---- linear --------------------------------------------------------------------------------------------------------

static inline void oracle_linear_forward(double *y, const double *x, const double *w, const double *bias, int64_t R,
                                         int64_t In, int64_t Out)
{
    for (int64_t r = 0; r < R; r++)
        for (int64_t o = 0; o < Out; o++) {
            y[r * Out + o] = bias ? bias[o] : 0;
            for (int64_t i = 0; i < In; i++) y[r * Out + o] += x[r * In + i] * w[o * In + i];
        }
}

static inline void oracle_linear_backward(double *dx, double *dw, double *dbias, const double *dy, const double *x,
                                          const double *w, int64_t R, int64_t In, int64_t Out)
{
    memset(dx, 0, (size_t)(R * In) * sizeof *dx);
    memset(dw, 0, (size_t)(Out * In) * sizeof *dw);
    if (dbias) memset(dbias, 0, (size_t)Out * sizeof *dbias);
    for (int64_t r = 0; r < R; r++)
        for (int64_t o = 0; o < Out; o++) {
            for (int64_t i = 0; i < In; i++) dx[r * In + i] += dy[r * Out + o] * w[o * In + i];
            for (int64_t i = 0; i < In; i++) dw[o * In + i] += dy[r * Out + o] * x[r * In + i];
            if (dbias) dbias[o] += dy[r * Out + o];
        }
}

// ---- rope ----------------------------------------------------------------------------------------------------------

static inline int64_t oracle_rows(const GxRuns *runs)
{
    int64_t rows = 0;
    for (int i = 0; i < runs->n; i++) rows += runs->run[i].length;
    return rows;
}

static inline int64_t oracle_position(const GxRuns *runs, int64_t row)
{
    for (int i = 0; i < runs->n; i++)
        if (row >= runs->run[i].row && row < runs->run[i].row + runs->run[i].length)
            return runs->run[i].position + row - runs->run[i].row;
    return -1;
}

// y = x turned by direction * position * theta^(-2i/h); direction -1 is the backward.
static inline void oracle_rope(double *y, const double *x, const GxRuns *runs, int64_t B, int64_t heads, int64_t h,
                               int64_t stride, double theta, int direction)
{
    for (int64_t r = 0; r < oracle_rows(runs) * B; r++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t i = 0; i < h / 2; i++) {
                int64_t at = r * stride + head * h + i;
                double angle =
                    direction * (double)oracle_position(runs, r / B) * pow(theta, -2 * (double)i / (double)h);
                double a = x[at], b = x[at + h / 2];
                y[at] = a * cos(angle) - b * sin(angle);
                y[at + h / 2] = b * cos(angle) + a * sin(angle);
            }
}

// ---- attention -----------------------------------------------------------------------------------------------------

// Positions up to the last one that the runs name, and one more where those are a multiple of 4: dropout then has rows
// that end within a draw.
static inline int64_t oracle_positions(const GxRuns *q, const GxRuns *k)
{
    int64_t n = 0;
    for (int i = 0; i < q->n; i++) n = gx_max(n, q->run[i].position + q->run[i].length);
    for (int i = 0; i < k->n; i++) n = gx_max(n, k->run[i].position + k->run[i].length);
    return n % 4 ? n : n + 1;
}

// An array of documents from their lengths, in turn, from number b on in column b; of padding negative. What is left at
// the end is padding. The array is the caller's to free.
enum { ORACLE_DOCUMENTS = 4 };
static inline int32_t *oracle_documents(const int lengths[ORACLE_DOCUMENTS], int64_t positions, int64_t B)
{
    int32_t *documents = (int32_t *)calloc((size_t)(positions * B * 2), sizeof *documents);
    int n = 0;
    while (n < ORACLE_DOCUMENTS && lengths[n]) n++;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0, begin = 0, end; i < n; i++, begin = end) {
            const int length = lengths[(b + i) % n];
            end = gx_min(begin + abs(length), positions);
            for (int64_t t = begin; t < end; t++) {
                documents[(t * B + b) * 2] = (int32_t)begin;
                documents[(t * B + b) * 2 + 1] = (int32_t)(length > 0 ? end : begin);
            }
        }
    return documents;
}

// The same where the others of a row are not in its own text: for each row of document n (of `lengths`) the positions
// that document n has in the other text, where documents have `others`; none if either of the two is padding.
static inline int32_t *oracle_crossing(const int lengths[ORACLE_DOCUMENTS], const int others[ORACLE_DOCUMENTS],
                                       int64_t positions, int64_t B)
{
    int32_t *documents = (int32_t *)calloc((size_t)(positions * B * 2), sizeof *documents);
    int n = 0;
    while (n < ORACLE_DOCUMENTS && lengths[n]) n++;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0, begin = 0, at = 0; i < n; i++) {
            const int length = lengths[(b + i) % n], other = others[(b + i) % n];
            for (int64_t t = begin; t < gx_min(begin + abs(length), positions); t++) {
                documents[(t * B + b) * 2] = (int32_t)at;
                documents[(t * B + b) * 2 + 1] = (int32_t)(length > 0 && other > 0 ? at + other : at);
            }
            begin += abs(length), at += abs(other);
        }
    return documents;
}

static inline int oracle_sees(const GxAttention *a, int64_t i, int64_t j, int64_t b)
{
    const int64_t query = oracle_position(&a->q_runs, i), key = oracle_position(&a->k_runs, j);
    if (a->documents) { // {begin, end} of row position*B + b
        const int32_t *document = a->documents + (query * a->B + b) * 2;
        if (key < document[0] || key >= document[1]) return 0;
    }
    if (a->sliding_window && query - key >= a->sliding_window) return 0;
    return !a->causal || key <= query;
}

// What query i's probability of key j is multiplied by: 0 or 1/(1 - dropout), by the 32 bits of the element
// (((the window's first_sample + first_sample + b)*heads + head_first + head)*T + tq)*(T rounded up to 4) + tk
static inline double oracle_keep(const GxAttention *a, const GxStep *step, int64_t i, int64_t j, int64_t b,
                                 int64_t head)
{
    if (a->dropout == 0) return 1;
    const int64_t sample = step->first_sample + a->first_sample + b, of_model = a->head_first + head,
                  width = a->T + 3 - (a->T + 3) % 4;
    const int64_t query = (sample * a->heads + of_model) * a->T + oracle_position(&a->q_runs, i);
    const uint32_t bits = gx_random_bits(step->seed, (uint64_t)(query * width + oracle_position(&a->k_runs, j)),
                                         (uint32_t)step->step, a->site);
    return (double)bits < (double)a->dropout * 4294967296.0 ? 0 : 1 / (1 - (double)a->dropout);
}

static inline int64_t oracle_kv(const GxAttention *a, int64_t head) // the key and value head of a query head
{
    int64_t group = a->group ? a->group : a->H / a->K;
    return (a->q_first + head) / group;
}

static inline double oracle_scale(const GxAttention *a)
{
    return a->scale != 0 ? (double)a->scale : 1 / sqrt((double)a->head_dim);
}

static inline double oracle_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

// The row of the bias by distance that query i and key j have: its ends are for all that are farther away.
static inline int64_t oracle_bias_row(const GxAttention *a, int64_t i, int64_t j)
{
    const int64_t distance = oracle_position(&a->k_runs, j) - oracle_position(&a->q_runs, i);
    return distance < -a->reach ? 0 : distance > a->reach ? 2 * a->reach : distance + a->reach;
}

// A whole row of probabilities p [Tk] of query row q; returns its log-sum-exp: -inf, and p = 0, where no key is seen.
// bias [2*reach + 1, H] or NULL.
static inline double oracle_probabilities(double *p, const double *q, const double *k, const double *bias,
                                          const GxAttention *a, int64_t i, int64_t b, int64_t head)
{
    const int64_t kv = oracle_kv(a, head);
    const int64_t Tk = oracle_rows(&a->k_runs);
    double maximum = -INFINITY, sum = 0;
    for (int64_t j = 0; j < Tk; j++) {
        p[j] = oracle_sees(a, i, j, b)
                   ? oracle_scale(a) * oracle_dot(q, k + (j * a->B + b) * a->kv_stride + kv * a->head_dim, a->head_dim)
                   : -INFINITY;
        if (bias) p[j] += bias[oracle_bias_row(a, i, j) * a->H + head];
        maximum = fmax(maximum, p[j]);
    }
    for (int64_t j = 0; j < Tk; j++) sum += p[j] = p[j] > -INFINITY ? exp(p[j] - maximum) : 0;
    for (int64_t j = 0; j < Tk; j++) p[j] = sum > 0 ? p[j] / sum : 0;
    return maximum + log(sum);
}

static inline void oracle_attention_forward(double *o, double *lse, const double *q, const double *k, const double *v,
                                            const double *bias, const GxAttention *a, const GxStep *step)
{
    const int64_t Tq = oracle_rows(&a->q_runs), Tk = oracle_rows(&a->k_runs), B = a->B, H = a->H, h = a->head_dim;
    double *p = (double *)malloc((size_t)Tk * sizeof *p);
    for (int64_t i = 0; i < Tq; i++)
        for (int64_t b = 0; b < B; b++)
            for (int64_t head = 0; head < H; head++) {
                int64_t row = i * B + b, kv = oracle_kv(a, head);
                lse[row * H + head] = oracle_probabilities(p, q + row * a->q_stride + head * h, k, bias, a, i, b, head);
                for (int64_t j = 0; j < Tk; j++) p[j] *= oracle_keep(a, step, i, j, b, head);
                for (int64_t c = 0; c < h; c++) {
                    double sum = 0;
                    for (int64_t j = 0; j < Tk; j++) sum += p[j] * v[(j * B + b) * a->kv_stride + kv * h + c];
                    o[row * a->o_stride + head * h + c] = sum;
                }
            }
    free(p);
}

static inline void oracle_zero_rows(double *x, int64_t rows, int64_t stride, int64_t width)
{
    for (int64_t r = 0; r < rows; r++) memset(x + r * stride, 0, (size_t)width * sizeof *x);
}

// terms: the 2-norms of the terms p*(|dp| + |D|)*scale*k and *q, and of p*(|dp| + |D|), before they are added up: they
// are the size of rounding errors in dq, dk and dbias, which may themselves be zero (one visible key: dp = D). bias and
// dbias: both, or NULL.
static inline void oracle_attention_backward(double *dq, double *dk, double *dv, double *dbias, double terms[3],
                                             const double *d_o, const double *q, const double *k, const double *v,
                                             const double *bias, const GxAttention *a, const GxStep *step)
{
    const int64_t Tq = oracle_rows(&a->q_runs), Tk = oracle_rows(&a->k_runs), B = a->B, H = a->H, h = a->head_dim;
    double *p = (double *)malloc((size_t)Tk * sizeof *p), *dp = (double *)malloc((size_t)Tk * sizeof *dp);
    oracle_zero_rows(dq, Tq * B, a->q_stride, H * h);
    oracle_zero_rows(dk, Tk * B, a->kv_stride, a->K * h);
    oracle_zero_rows(dv, Tk * B, a->kv_stride, a->K * h);
    for (int64_t i = 0; dbias && i < (2 * a->reach + 1) * H; i++) dbias[i] = 0;
    terms[0] = terms[1] = terms[2] = 0;
    for (int64_t i = 0; i < Tq; i++)
        for (int64_t b = 0; b < B; b++)
            for (int64_t head = 0; head < H; head++) {
                const int64_t kv = oracle_kv(a, head), qi = (i * B + b) * a->q_stride + head * h,
                              oi = (i * B + b) * a->o_stride + head * h;
                double D = 0; // sum over keys of p*dp: what the softmax's normalisation takes off every dp
                oracle_probabilities(p, q + qi, k, bias, a, i, b, head);
                for (int64_t j = 0; j < Tk; j++) {
                    dp[j] = oracle_dot(d_o + oi, v + (j * B + b) * a->kv_stride + kv * h, h);
                    D += p[j] * (dp[j] *= oracle_keep(a, step, i, j, b, head));
                }
                for (int64_t j = 0; j < Tk; j++) {
                    const int64_t kj = (j * B + b) * a->kv_stride + kv * h;
                    const double kept = p[j] * oracle_keep(a, step, i, j, b, head);
                    const double ds = p[j] * (dp[j] - D) * oracle_scale(a),
                                 size = p[j] * (fabs(dp[j]) + fabs(D)) * oracle_scale(a);
                    if (dbias) dbias[oracle_bias_row(a, i, j) * H + head] += p[j] * (dp[j] - D);
                    for (int64_t c = 0; c < h; c++) {
                        dq[qi + c] += ds * k[kj + c];
                        dk[kj + c] += ds * q[qi + c];
                        dv[kj + c] += kept * d_o[oi + c];
                    }
                    terms[0] += size * size * oracle_dot(k + kj, k + kj, h);
                    terms[1] += size * size * oracle_dot(q + qi, q + qi, h);
                    terms[2] += pow(p[j] * (fabs(dp[j]) + fabs(D)), 2);
                }
            }
    for (int i = 0; i < 3; i++) terms[i] = sqrt(terms[i]);
    free(p), free(dp);
}

// ---- activation, loss, embedding -----------------------------------------------------------------------------------

static inline double oracle_sigmoid(double z) { return 1 / (1 + exp(-z)); }

static inline void oracle_swiglu_forward(double *y, const double *gate_up, int64_t R, int64_t F)
{
    for (int64_t r = 0; r < R; r++)
        for (int64_t f = 0; f < F; f++) {
            double gate = gate_up[r * 2 * F + f], up = gate_up[r * 2 * F + F + f];
            y[r * F + f] = gate * oracle_sigmoid(gate) * up;
        }
}

static inline void oracle_swiglu_backward(double *dgate_up, const double *dy, const double *gate_up, int64_t R,
                                          int64_t F)
{
    for (int64_t r = 0; r < R; r++)
        for (int64_t f = 0; f < F; f++) {
            double gate = gate_up[r * 2 * F + f], up = gate_up[r * 2 * F + F + f], s = oracle_sigmoid(gate);
            dgate_up[r * 2 * F + f] = dy[r * F + f] * up * s * (1 + gate * (1 - s));
            dgate_up[r * 2 * F + F + f] = dy[r * F + f] * gate * s;
        }
}

static inline double oracle_gelu(double z, int kind)
{
    const double pi = acos(-1.0);
    if (kind == GX_GELU_ERF) return z * 0.5 * erfc(-z / sqrt(2));
    return z / 2 * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 * pow(z, 3))));
}

static inline double oracle_gelu_slope(double z, int kind)
{
    const double pi = acos(-1.0);
    if (kind == GX_GELU_ERF) return 0.5 * erfc(-z / sqrt(2)) + z * exp(-z * z / 2) / sqrt(2 * pi);
    const double t = tanh(sqrt(2 / pi) * (z + 0.044715 * pow(z, 3)));
    return (1 + t) / 2 + z / 2 * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * z * z);
}

static inline void oracle_geglu_forward(double *y, const double *gate_up, int64_t R, int64_t F, int kind)
{
    for (int64_t i = 0; i < R * F; i++) {
        const double *gate = gate_up + i / F * 2 * F + i % F;
        y[i] = oracle_gelu(gate[0], kind) * gate[F];
    }
}

static inline void oracle_geglu_backward(double *dgate_up, const double *dy, const double *gate_up, int64_t R,
                                         int64_t F, int kind)
{
    for (int64_t i = 0; i < R * F; i++) {
        const int64_t gate = i / F * 2 * F + i % F, up = gate + F;
        dgate_up[gate] = dy[i] * gate_up[up] * oracle_gelu_slope(gate_up[gate], kind);
        dgate_up[up] = dy[i] * oracle_gelu(gate_up[gate], kind);
    }
}

static inline void oracle_gelu_forward(double *y, const double *x, const double *bias, int64_t R, int64_t F, int kind)
{
    for (int64_t i = 0; i < R * F; i++) y[i] = oracle_gelu(x[i] + (bias ? bias[i % F] : 0), kind);
}

static inline void oracle_gelu_backward(double *dx, const double *dy, const double *x, const double *bias, int64_t R,
                                        int64_t F, int kind)
{
    for (int64_t i = 0; i < R * F; i++) dx[i] = dy[i] * oracle_gelu_slope(x[i] + (bias ? bias[i % F] : 0), kind);
}
static inline void oracle_cross_entropy(double *losses, double *dlogits, const double *logits, const int32_t *labels,
                                        int64_t R, int64_t V, double scale, double smoothing)
{
    for (int64_t r = 0; r < R; r++) {
        const double *x = logits + r * V;
        double maximum = -INFINITY, sum = 0, mean = 0;
        for (int64_t v = 0; v < V; v++) maximum = fmax(maximum, x[v]);
        for (int64_t v = 0; v < V; v++) sum += exp(x[v] - maximum);
        for (int64_t v = 0; v < V; v++) mean += x[v] / (double)V;
        int counts = labels[r] != GX_IGNORE_INDEX;
        losses[r] = counts ? maximum + log(sum) - (1 - smoothing) * x[labels[r]] - smoothing * mean : 0;
        for (int64_t v = 0; v < V; v++)
            dlogits[r * V + v] =
                counts
                    ? scale * (exp(x[v] - maximum) / sum - (1 - smoothing) * (v == labels[r]) - smoothing / (double)V)
                    : 0;
    }
}

// The same in steps, for columns [v_begin, v_begin + V).
static inline void oracle_cross_entropy_maximum(double *maximum, const double *logits, int64_t R, int64_t V)
{
    for (int64_t r = 0; r < R; r++) {
        maximum[r] = -INFINITY;
        for (int64_t v = 0; v < V; v++) maximum[r] = fmax(maximum[r], logits[r * V + v]);
    }
}

static inline void oracle_cross_entropy_sums(double *sums, double *exps, const double *logits, const double *maximum,
                                             const int32_t *labels, int64_t R, int64_t V, int64_t v_begin) // [3*R]
{
    for (int64_t r = 0; r < R; r++) {
        sums[r] = sums[R + r] = sums[2 * R + r] = 0;
        for (int64_t v = 0; v < V; v++) {
            sums[2 * R + r] += logits[r * V + v] - maximum[r];
            sums[r] += exps[r * V + v] = exp(logits[r * V + v] - maximum[r]);
            if (labels[r] == v_begin + v) sums[R + r] = logits[r * V + v] - maximum[r];
        }
    }
}

static inline void oracle_cross_entropy_finish(double *losses, double *dlogits, const double *exps, const double *sums,
                                               const int32_t *labels, const GxVocabPart *part, double scale)
{
    const int64_t R = part->R, V = part->V;
    const double smoothing = (double)part->smoothing, even = smoothing / (double)part->vocab_size;
    for (int64_t r = 0; r < R; r++) {
        int counts = labels[r] != GX_IGNORE_INDEX;
        losses[r] = counts ? log(sums[r]) - (1 - smoothing) * sums[R + r] - even * sums[2 * R + r] : 0;
        for (int64_t v = 0; v < V; v++)
            dlogits[r * V + v] =
                counts ? scale * (exps[r * V + v] / sums[r] - (1 - smoothing) * (part->v_begin + v == labels[r]) - even)
                       : 0;
    }
}

static inline void oracle_squared_error(double *losses, double *dlogits, const double *logits, const float *targets,
                                        int64_t R, int64_t V, double scale)
{
    memset(losses, 0, (size_t)R * sizeof *losses);
    for (int64_t i = 0; i < R * V; i++) {
        losses[i / V] += pow(logits[i] - targets[i], 2);
        dlogits[i] = scale * 2 * (logits[i] - targets[i]);
    }
}

static inline void oracle_binary_cross_entropy(double *losses, double *dlogits, const double *logits,
                                               const float *targets, int64_t R, int64_t V, double scale)
{
    memset(losses, 0, (size_t)R * sizeof *losses);
    for (int64_t i = 0; i < R * V; i++) {
        losses[i / V] += fmax(logits[i], 0) - logits[i] * targets[i] + log1p(exp(-fabs(logits[i])));
        dlogits[i] = scale * (oracle_sigmoid(logits[i]) - targets[i]);
    }
}

static inline void oracle_embedding_forward(double *y, const double *w, const int32_t *ids, int64_t R, int64_t C,
                                            int64_t v_begin, int64_t v_end)
{
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = ids[r] >= v_begin && ids[r] < v_end ? w[(ids[r] - v_begin) * C + c] : 0;
}

static inline void oracle_embedding_backward(double *dw, const double *dy, const int32_t *ids, int64_t R, int64_t C,
                                             int64_t v_begin, int64_t v_end, int64_t ignored)
{
    memset(dw, 0, (size_t)((v_end - v_begin) * C) * sizeof *dw);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++)
            if (ids[r] >= v_begin && ids[r] < v_end && ids[r] != ignored)
                dw[(ids[r] - v_begin) * C + c] += dy[r * C + c];
}

// ---- optimizer -----------------------------------------------------------------------------------------------------

static inline void oracle_adamw(double *w, double *m, double *v, const double *grad, int64_t n, const GxAdamW *o,
                                double lr, double clip, double t)
{
    const double b1 = o->beta1, b2 = o->beta2;
    for (int64_t i = 0; i < n; i++) {
        double g = clip * grad[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w[i] -= lr * (m[i] / (1 - pow(b1, t)) / (sqrt(v[i] / (1 - pow(b2, t))) + o->eps) + o->weight_decay * w[i]);
    }
}

static inline void oracle_sgd(double *w, double *momentum, const double *grad, int64_t n, const GxSgd *o, double lr,
                              double clip)
{
    for (int64_t i = 0; i < n; i++) {
        double g = clip * grad[i] + o->weight_decay * w[i];
        if (momentum) g = momentum[i] = o->momentum * momentum[i] + g;
        w[i] -= lr * g;
    }
}
#endif
