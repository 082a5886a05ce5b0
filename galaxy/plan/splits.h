// plan/splits.h: stub
#ifndef GX_SPLITS_H
#define GX_SPLITS_H
#include "../base/status.h"
GX_BEGIN
GxStatus gx_split_bound(int64_t *part, const double *rate, const int64_t *least, const int64_t *cap, int n,
                        int64_t total, GxError *err);
GxStatus gx_split_heads(int64_t *part, const double *query, const double *kv, int n, int64_t H, int64_t K,
                        GxError *err);
GX_END
#endif
#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SPLITS_IMPLEMENTED)
#define GX_SPLITS_IMPLEMENTED
GxStatus gx_split_bound(int64_t *part, const double *rate, const int64_t *least, const int64_t *cap, int n,
                        int64_t total, GxError *err)
{
    double sum = 0;
    int64_t rest = total;
    (void)cap;
    (void)err;
    for (int i = 0; i < n; i++) sum += rate[i];
    for (int i = 0; i < n; i++) {
        part[i] = (int64_t)((double)total * rate[i] / sum);
        if (least && part[i] < least[i]) part[i] = least[i];
        rest -= part[i];
    }
    part[0] += rest;
    return GX_OK;
}
GxStatus gx_split_heads(int64_t *part, const double *query, const double *kv, int n, int64_t H, int64_t K, GxError *err)
{
    double rate[256];
    int64_t least[256];
    (void)kv;
    (void)K;
    for (int i = 0; i < n; i++) rate[i] = 1 / query[i], least[i] = 1;
    return gx_split_bound(part, rate, least, 0, n, H, err);
}
#endif
