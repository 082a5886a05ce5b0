// test/oracle.h: every operation in plain double precision, as literally as its formula in galaxy/ops reads: no tiles,
// tricks or threads.
//
// It knows the library's descriptors (GxAttention, GxRuns, GxAdamW, GxSgd) and nothing else of the library. Buffers lie
// as the library's do: rows t*B + b, weights [Out,In]. All outputs are written whole; strided ones only where their
// heads lie. Results are trusted because each backward is held against central differences of its forward, and both
// against PyTorch (test_ops.cu).
#ifndef GX_TEST_ORACLE_H
#define GX_TEST_ORACLE_H
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../galaxy/ops/attention.h"
#include "../galaxy/ops/loss.h"
#include "../galaxy/ops/optimizer.h"

// ---- norm ----------------------------------------------------------------------------------------------------------

static inline void oracle_rms_norm_forward(double *y, double *rstd, const double *x, const double *w, int64_t R,
                                           int64_t C, double eps)
{
    for (int64_t r = 0; r < R; r++) {
        double squares = 0;
        for (int64_t c = 0; c < C; c++) squares += x[r * C + c] * x[r * C + c];
        rstd[r] = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) y[r * C + c] = x[r * C + c] * rstd[r] * w[c];
    }
}

static inline void oracle_rms_norm_backward(double *dx, double *dw, const double *dy, const double *dresidual,
                                            const double *x, const double *rstd, const double *w, int64_t R, int64_t C)
{
    memset(dw, 0, (size_t)C * sizeof *dw);
    for (int64_t r = 0; r < R; r++) {
        double dot = 0;
        for (int64_t c = 0; c < C; c++) dot += dy[r * C + c] * w[c] * x[r * C + c];
        for (int64_t c = 0; c < C; c++) {
            int64_t i = r * C + c;
            dx[i] = (dresidual ? dresidual[i] : 0) + rstd[r] * w[c] * dy[i] - x[i] * pow(rstd[r], 3) / (double)C * dot;
            dw[c] += dy[i] * x[i] * rstd[r];
        }
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

static inline int oracle_sees(const GxAttention *a, int64_t i, int64_t j)
{
    return !a->causal || oracle_position(&a->k_runs, j) <= oracle_position(&a->q_runs, i);
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

// A whole row of probabilities p [Tk] of query row q; returns its log-sum-exp: -inf, and p = 0, where no key is seen.
static inline double oracle_probabilities(double *p, const double *q, const double *k, const GxAttention *a, int64_t i,
                                          int64_t b, int64_t kv)
{
    const int64_t Tk = oracle_rows(&a->k_runs);
    double maximum = -INFINITY, sum = 0;
    for (int64_t j = 0; j < Tk; j++) {
        p[j] = oracle_sees(a, i, j)
                   ? oracle_scale(a) * oracle_dot(q, k + (j * a->B + b) * a->kv_stride + kv * a->head_dim, a->head_dim)
                   : -INFINITY;
        maximum = fmax(maximum, p[j]);
    }
    for (int64_t j = 0; j < Tk; j++) sum += p[j] = p[j] > -INFINITY ? exp(p[j] - maximum) : 0;
    for (int64_t j = 0; j < Tk; j++) p[j] = sum > 0 ? p[j] / sum : 0;
    return maximum + log(sum);
}

static inline void oracle_attention_forward(double *o, double *lse, const double *q, const double *k, const double *v,
                                            const GxAttention *a)
{
    const int64_t Tq = oracle_rows(&a->q_runs), Tk = oracle_rows(&a->k_runs), B = a->B, H = a->H, h = a->head_dim;
    double *p = (double *)malloc((size_t)Tk * sizeof *p);
    for (int64_t i = 0; i < Tq; i++)
        for (int64_t b = 0; b < B; b++)
            for (int64_t head = 0; head < H; head++) {
                int64_t row = i * B + b, kv = oracle_kv(a, head);
                lse[row * H + head] = oracle_probabilities(p, q + row * a->q_stride + head * h, k, a, i, b, kv);
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

// terms[0], terms[1]: the 2-norms of the terms p*(|dp| + |D|)*scale*k and *q before they are added up: they are the
// size of rounding errors in dq and dk, which may themselves be zero (one visible key: dp = D).
static inline void oracle_attention_backward(double *dq, double *dk, double *dv, double terms[2], const double *d_o,
                                             const double *q, const double *k, const double *v, const GxAttention *a)
{
    const int64_t Tq = oracle_rows(&a->q_runs), Tk = oracle_rows(&a->k_runs), B = a->B, H = a->H, h = a->head_dim;
    double *p = (double *)malloc((size_t)Tk * sizeof *p), *dp = (double *)malloc((size_t)Tk * sizeof *dp);
    oracle_zero_rows(dq, Tq * B, a->q_stride, H * h);
    oracle_zero_rows(dk, Tk * B, a->kv_stride, a->K * h);
    oracle_zero_rows(dv, Tk * B, a->kv_stride, a->K * h);
    terms[0] = terms[1] = 0;
    for (int64_t i = 0; i < Tq; i++)
        for (int64_t b = 0; b < B; b++)
            for (int64_t head = 0; head < H; head++) {
                const int64_t kv = oracle_kv(a, head), qi = (i * B + b) * a->q_stride + head * h,
                              oi = (i * B + b) * a->o_stride + head * h;
                double D = 0; // sum over keys of p*dp: what the softmax's normalisation takes off every dp
                oracle_probabilities(p, q + qi, k, a, i, b, kv);
                for (int64_t j = 0; j < Tk; j++)
                    D += p[j] * (dp[j] = oracle_dot(d_o + oi, v + (j * B + b) * a->kv_stride + kv * h, h));
                for (int64_t j = 0; j < Tk; j++) {
                    const int64_t kj = (j * B + b) * a->kv_stride + kv * h;
                    const double ds = p[j] * (dp[j] - D) * oracle_scale(a),
                                 size = p[j] * (fabs(dp[j]) + fabs(D)) * oracle_scale(a);
                    for (int64_t c = 0; c < h; c++) {
                        dq[qi + c] += ds * k[kj + c];
                        dk[kj + c] += ds * q[qi + c];
                        dv[kj + c] += p[j] * d_o[oi + c];
                    }
                    terms[0] += size * size * oracle_dot(k + kj, k + kj, h);
                    terms[1] += size * size * oracle_dot(q + qi, q + qi, h);
                }
            }
    terms[0] = sqrt(terms[0]), terms[1] = sqrt(terms[1]);
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

static inline void oracle_cross_entropy(double *losses, double *dlogits, const double *logits, const int32_t *labels,
                                        int64_t R, int64_t V, double scale)
{
    for (int64_t r = 0; r < R; r++) {
        const double *x = logits + r * V;
        double maximum = -INFINITY, sum = 0;
        for (int64_t v = 0; v < V; v++) maximum = fmax(maximum, x[v]);
        for (int64_t v = 0; v < V; v++) sum += exp(x[v] - maximum);
        int counts = labels[r] != GX_IGNORE_INDEX;
        losses[r] = counts ? maximum + log(sum) - x[labels[r]] : 0;
        for (int64_t v = 0; v < V; v++)
            dlogits[r * V + v] = counts ? scale * (exp(x[v] - maximum) / sum - (v == labels[r])) : 0;
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
                                             const int32_t *labels, int64_t R, int64_t V, int64_t v_begin)
{
    for (int64_t r = 0; r < R; r++) {
        sums[r] = sums[R + r] = 0;
        for (int64_t v = 0; v < V; v++) {
            sums[r] += exps[r * V + v] = exp(logits[r * V + v] - maximum[r]);
            if (labels[r] == v_begin + v) sums[R + r] = logits[r * V + v] - maximum[r];
        }
    }
}

static inline void oracle_cross_entropy_finish(double *losses, double *dlogits, const double *exps, const double *sums,
                                               const int32_t *labels, int64_t R, int64_t V, int64_t v_begin,
                                               double scale)
{
    for (int64_t r = 0; r < R; r++) {
        int counts = labels[r] != GX_IGNORE_INDEX;
        losses[r] = counts ? log(sums[r]) - sums[R + r] : 0;
        for (int64_t v = 0; v < V; v++)
            dlogits[r * V + v] = counts ? scale * (exps[r * V + v] / sums[r] - (v_begin + v == labels[r])) : 0;
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
                                             int64_t v_begin, int64_t v_end)
{
    memset(dw, 0, (size_t)((v_end - v_begin) * C) * sizeof *dw);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++)
            if (ids[r] >= v_begin && ids[r] < v_end) dw[(ids[r] - v_begin) * C + c] += dy[r * C + c];
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
