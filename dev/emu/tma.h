// tma.h: copies of boxes of a tensor from global to shared memory by the tensor memory accelerator, from sm_90 on:
// cp.async.bulk.tensor, and the maps that it is told the tensor by.
//
//     cuTensorMapEncodeTiled(&map, ...);                 // on the host; the kernel has it as a __grid_constant__
//     gx_tma_load(to, &map, &barrier, {c0, c1});         // one thread: the box from element (c0, c1) on, c0 innermost
//
// The box arrives packed, its innermost dimension first, swizzled as the map says. What is out of the tensor's bounds
// arrives as zeros. Its bytes, all of the box's, are counted by the barrier (mbarrier.h). The place is NaN, to threads
// and to wgmma, from the beginning until the wait that the copy lands in, and global memory is read then.
//
// The map is checked as the driver's manual says ("Tensor Map Object Management"; a stride that is no multiple of the
// one before is refused, too). Not modelled: interleaved tensors, strides of elements, fills with NaN, im2col, boxes
// narrower than their swizzle, 5 dimensions, stores, multicast, and that the map's own memory needs a fence where a
// kernel writes it.
#ifndef GX_EMU_TMA_H
#define GX_EMU_TMA_H
#include "async_proxy.h"
#include "device.h"
#include "mbarrier.h"

typedef unsigned cuuint32_t;
typedef unsigned long long cuuint64_t;
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_NOT_SUPPORTED = 801 } CUresult;
typedef enum {
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9
} CUtensorMapDataType;
typedef enum { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 } CUtensorMapInterleave;
typedef enum {
    CU_TENSOR_MAP_SWIZZLE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_32B,
    CU_TENSOR_MAP_SWIZZLE_64B,
    CU_TENSOR_MAP_SWIZZLE_128B
} CUtensorMapSwizzle;
typedef enum {
    CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
    CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B
} CUtensorMapL2promotion;
typedef enum { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 } CUtensorMapFloatOOBfill;
typedef struct alignas(64) {
    unsigned long long opaque[16];
} CUtensorMap;

namespace emu
{

constexpr int tma_rank_max = 4;
constexpr unsigned tma_mark = 0x616d7400;

struct TensorMap { // what is in a CUtensorMap here
    const unsigned char *data;
    unsigned long long dim[tma_rank_max];    // elements
    unsigned long long stride[tma_rank_max]; // bytes from element to element
    unsigned box[tma_rank_max];              // elements
    unsigned mark;
    unsigned char rank, bytes, swizzle; // bytes: of an element; swizzle: bytes of its width
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

struct BoxCopy {
    TensorMap map;
    unsigned char *to;
    long long at[tma_rank_max];
};

inline CUresult check_tensor_map(const TensorMap &m)
{
    if (properties().major < 9)
        return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuTensorMapEncodeTiled",
                      "a card of compute capability %d.%d has no TMA; GX_EMU_CAPABILITY=9.0 is an H100",
                      properties().major, properties().minor);
    if ((uintptr_t)m.data % 16)
        return refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled", "the address %p is no multiple of 16",
                      (const void *)m.data);
    for (int i = 0; i < m.rank; i++) {
        if (m.dim[i] < 1 || m.dim[i] > 1ull << 32)
            return refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled", "dimension %d has %llu elements", i,
                          m.dim[i]);
        if (m.box[i] < 1 || m.box[i] > 256)
            return refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled",
                          "the box has %u elements in dimension %d; from 1 to 256 are possible", m.box[i], i);
        if (!i) continue;
        if (m.stride[i] % 16 || m.stride[i] >= 1ull << 40)
            return refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled",
                          "the stride of dimension %d is %llu, no multiple of 16 below 2^40", i, m.stride[i]);
        if (m.stride[i] < m.dim[i - 1] * m.stride[i - 1])
            return refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled",
                          "the stride of dimension %d is %llu; %llu elements of %llu bytes are in front of it", i,
                          m.stride[i], m.dim[i - 1], m.stride[i - 1]);
        if (m.stride[i] % m.stride[i - 1])
            return refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled",
                          "the stride of dimension %d is %llu, no multiple of the one before, %llu", i, m.stride[i],
                          m.stride[i - 1]);
    }
    const unsigned inner = m.box[0] * m.bytes;
    if (inner % 16)
        return refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled",
                      "the box's rows have %u bytes, no multiple of 16", inner);
    if (m.swizzle && inner > m.swizzle)
        return refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled",
                      "the box's rows have %u bytes, their swizzle %u", inner, m.swizzle);
    if (m.swizzle && inner < m.swizzle)
        fatal("cuTensorMapEncodeTiled: rows of %u bytes, less than their swizzle of %u, are not emulated", inner,
              m.swizzle);
    return CUDA_SUCCESS;
}

// All of the box, or what it is filled with, to `to`: in both views of shared memory.
inline void land(const BoxCopy &c)
{
    const TensorMap &m = c.map;
    unsigned place = 0, i[tma_rank_max]; // place: of the element, in the packed box
    for (i[3] = 0; i[3] < m.box[3]; i[3]++)
        for (i[2] = 0; i[2] < m.box[2]; i[2]++)
            for (i[1] = 0; i[1] < m.box[1]; i[1]++)
                for (i[0] = 0; i[0] < m.box[0]; i[0]++, place += m.bytes) {
                    long long from = 0;
                    bool is_in = true;
                    for (int d = 0; d < tma_rank_max; d++) {
                        const long long at = c.at[d] + i[d];
                        is_in &= at >= 0 && at < (long long)m.dim[d];
                        from += at * (long long)m.stride[d];
                    }
                    const unsigned begin = shared_address(c.to);
                    unsigned char *to = c.to + (swizzled(begin + place, m.swizzle) - begin);
                    if (is_in) memcpy(to, m.data + from, m.bytes);
                    else memset(to, 0, m.bytes);
                    Hidden hidden;
                    memcpy(seen_by_async(to), to, m.bytes);
                }
}

inline TensorMap tensor_map_of(const CUtensorMap *map, int rank, const Place &place)
{
    TensorMap m;
    memcpy(&m, map, sizeof m);
    if (m.mark != tma_mark) kernel_fails("%s: %p is no tensor map", text(place).c_str(), (const void *)map);
    if (m.rank != rank)
        kernel_fails("%s: %d coordinates for a tensor of %d dimensions", text(place).c_str(), rank, m.rank);
    return m;
}

} // namespace emu

inline CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *data,
                                       const cuuint64_t *dim, const cuuint64_t *strides, const cuuint32_t *box,
                                       const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill)
{
    emu::TensorMap m = {};
    if ((uintptr_t)map % 64)
        return emu::refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled", "the map at %p is no multiple of 64",
                           (void *)map);
    if (rank < 1 || rank > 5)
        return emu::refuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled", "a tensor of %u dimensions", rank);
    if (rank < 2 || rank > emu::tma_rank_max || interleave || fill || swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
        emu::fatal(
            "cuTensorMapEncodeTiled: 1 and 5 dimensions, interleaved ones, other swizzles and fills are not emulated");
    m.data = (const unsigned char *)data;
    m.rank = (unsigned char)rank;
    m.bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    m.swizzle = (unsigned char)(swizzle ? 16 << swizzle : 0);
    m.mark = emu::tma_mark;
    for (unsigned i = 0; i < emu::tma_rank_max; i++) {
        m.dim[i] = i < rank ? dim[i] : 1;
        m.box[i] = i < rank ? box[i] : 1;
        m.stride[i] = !i ? m.bytes : i < rank ? strides[i - 1] : 0;
        if (i < rank && element_strides[i] != 1)
            emu::fatal("cuTensorMapEncodeTiled: strides of elements are not emulated");
    }
    const CUresult result = emu::check_tensor_map(m);
    if (result == CUDA_SUCCESS) memcpy((void *)map, &m, sizeof m);
    return result;
}

template <int RANK>
void gx_tma_load(void *to, const CUtensorMap *map, unsigned long long *barrier, const int (&at)[RANK], GX_EMU_HERE)
{
    static_assert(RANK >= 2 && RANK <= emu::tma_rank_max);
    const emu::Place place = {"cp.async.bulk.tensor", where};
    emu::Mbarrier &m = emu::mbarrier_at(barrier, place);
    emu::BoxCopy c = {emu::tensor_map_of(map, RANK, place), (unsigned char *)to, {}};
    size_t bytes = c.map.bytes;
    for (int i = 0; i < RANK; i++) c.at[i] = at[i], bytes *= c.map.box[i];
    const unsigned alignment = std::max(128u, emu::swizzle_period(c.map.swizzle));
    if (emu::shared_address(to) % alignment)
        emu::kernel_fails("%s: to %u in shared memory, no multiple of %u", emu::text(place).c_str(),
                          emu::shared_address(to), alignment);
    memset(to, emu::fresh_byte, bytes);
    emu::Hidden hidden;
    emu::check_that_async_sees(m, place);
    memset(emu::seen_by_async(to), emu::fresh_byte, bytes);
    emu::release_order(&m.order[m.phase & 1]);
    m.landings.push_back({[c] { emu::land(c); }, (unsigned)bytes});
    emu::made_progress();
}

#endif
