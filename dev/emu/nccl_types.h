// nccl_types.h: NCCL's names and numbers (nccl.h 2.28), and the arithmetic of its types.
#ifndef GX_EMU_NCCL_TYPES_H
#define GX_EMU_NCCL_TYPES_H
#include "cuda_runtime.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include <climits>

#define NCCL_MAJOR            2
#define NCCL_MINOR            28
#define NCCL_PATCH            9
#define NCCL_VERSION_CODE     22809
#define NCCL_VERSION(X, Y, Z) ((X)*10000 + (Y)*100 + (Z))
#define NCCL_UNIQUE_ID_BYTES  128
#define NCCL_CONFIG_UNDEF_INT INT_MIN

typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct {
    int blocking;                                     // 0: ncclCommInitRankConfig does not wait for the other ranks
    int cgaClusterSize, minCTAs, maxCTAs, splitShare; // without effect, like the names
    const char *netName, *commName;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                                        \
    {                                                                                                                  \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                    \
            NCCL_CONFIG_UNDEF_INT, NULL, NULL                                                                          \
    }

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
} ncclResult_t;
typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;
typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9
} ncclDataType_t;

namespace emu
{

struct NcclType {
    const char *name;
    size_t bytes;
    // x[i] = x_0[i] op x_1[i] op ..., in the order of `parts`
    void (*reduce)(char *x, const std::vector<const char *> &parts, size_t n, ncclRedOp_t op);
};

template <class T> T nccl_combine(T a, T b, ncclRedOp_t op)
{
    if (op == ncclMax) return a < b ? b : a;
    if (op == ncclMin) return b < a ? b : a;
    if constexpr (std::is_integral_v<T>)
        return (T)((std::make_unsigned_t<T>)a + (std::make_unsigned_t<T>)b); // wraps round
    else return a + b;
}

template <class T, class Wide>
void nccl_reduce(char *x, const std::vector<const char *> &parts, size_t n, ncclRedOp_t op)
{
    for (size_t i = 0; i < n; i++) {
        Wide all = (Wide)((const T *)parts[0])[i];
        for (size_t p = 1; p < parts.size(); p++) all = nccl_combine<Wide>(all, (Wide)((const T *)parts[p])[i], op);
        ((T *)x)[i] = (T)all;
    }
}

inline const NcclType *nccl_type(ncclDataType_t type)
{
    static const std::map<int, NcclType> types = {
        {ncclInt8, {"int8", 1, nccl_reduce<int8_t, int8_t>}},
        {ncclUint8, {"uint8", 1, nccl_reduce<uint8_t, uint8_t>}},
        {ncclInt32, {"int32", 4, nccl_reduce<int32_t, int32_t>}},
        {ncclInt64, {"int64", 8, nccl_reduce<int64_t, int64_t>}},
        {ncclFloat16, {"fp16", 2, nccl_reduce<__half, float>}},
        {ncclFloat32, {"fp32", 4, nccl_reduce<float, float>}},
        {ncclFloat64, {"fp64", 8, nccl_reduce<double, double>}},
        {ncclBfloat16, {"bf16", 2, nccl_reduce<__nv_bfloat16, float>}},
    };
    auto found = types.find(type);
    return found == types.end() ? nullptr : &found->second;
}

} // namespace emu
#endif
