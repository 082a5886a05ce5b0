// test_emu_bugs_hopper.h: the part of test_emu_bugs.cu that plants faults in what an H100 has: mbarrier, TMA, wgmma.
#ifndef GX_TEST_EMU_BUGS_HOPPER_H
#define GX_TEST_EMU_BUGS_HOPPER_H

// ---- mbarrier ------------------------------------------------------------------------------------------------------
enum class Fault {
    none,
    never_initialised,
    no_barrier_behind_init,
    overwritten,
    initialised_twice,
    misaligned,
    count,
    one_too_many,
    one_too_few,
    too_many_bytes,
    parity,
    third_parity,
};
// All threads but the first put a number, which the first one adds up.
__global__ void sum_behind_an_mbarrier(float *y, Fault fault)
{
    GX_SHARED(unsigned long long, barrier, );
    GX_SHARED(unsigned long long, others, [2]);
    GX_SHARED(float, numbers, [32]);
    const int t = (int)threadIdx.x;
    if (t == 0 && fault != Fault::never_initialised) gx_mbarrier_init(&barrier, fault == Fault::count ? 0 : 31);
    if (t == 0 && fault == Fault::initialised_twice) gx_mbarrier_init(&barrier, 31);
    if (t == 0 && fault == Fault::misaligned) gx_mbarrier_init((unsigned long long *)((char *)others + 4), 31);
    if (t == 0 && fault == Fault::overwritten) barrier = 31;
    if (fault != Fault::no_barrier_behind_init) __syncthreads();
    if (t) {
        if (t == 1 && fault == Fault::too_many_bytes) gx_mbarrier_arrive_expect(&barrier, 1 << 20);
        if (t == 1 && fault == Fault::one_too_many) gx_mbarrier_arrive_expect(&barrier, 16);
        numbers[t] = 1;
        if (t > 1 || fault != Fault::one_too_few) gx_mbarrier_arrive(&barrier);
        return;
    }
    gx_mbarrier_wait(&barrier, fault == Fault::parity ? 1 : fault == Fault::third_parity ? 2 : 0);
    for (int i = 1; i < 32; i++) y[0] += numbers[i];
}
static int sum_of_31(Fault fault)
{
    Buffer<float> y(std::vector<float>{0});
    GX_LAUNCH(sum_behind_an_mbarrier, 1, 32, 0, 0, y.data, fault);
    return y.download()[0] == 31;
}
static int an_mbarrier_never_initialised(bool bug) { return sum_of_31(bug ? Fault::never_initialised : Fault::none); }
static int missing_syncthreads_behind_an_init(bool bug)
{
    return sum_of_31(bug ? Fault::no_barrier_behind_init : Fault::none);
}
static int an_mbarrier_overwritten(bool bug) { return sum_of_31(bug ? Fault::overwritten : Fault::none); }
static int an_mbarrier_initialised_twice(bool bug) { return sum_of_31(bug ? Fault::initialised_twice : Fault::none); }
static int a_misaligned_mbarrier(bool bug) { return sum_of_31(bug ? Fault::misaligned : Fault::none); }
static int an_mbarrier_for_nobody(bool bug) { return sum_of_31(bug ? Fault::count : Fault::none); }
static int an_arrival_too_many(bool bug) { return sum_of_31(bug ? Fault::one_too_many : Fault::none); }
static int an_arrival_too_few(bool bug) { return sum_of_31(bug ? Fault::one_too_few : Fault::none); }
static int more_bytes_than_an_mbarrier_counts(bool bug) { return sum_of_31(bug ? Fault::too_many_bytes : Fault::none); }
static int waiting_for_the_other_parity(bool bug) { return sum_of_31(bug ? Fault::parity : Fault::none); }
static int waiting_for_a_third_parity(bool bug) { return sum_of_31(bug ? Fault::third_parity : Fault::none); }

// ---- TMA -----------------------------------------------------------------------------------------------------------
enum class InitFence { own, of_another_thread, proxy, none }; // behind the initialisation of the barriers
struct Boxes {
    bool wait, barrier; // does thread 0 wait for the copy; do the threads wait for each other before the next one
    InitFence fence;
    unsigned expected; // bytes of a copy
    bool is_map;
};
constexpr Boxes right_boxes = {true, true, InitFence::own, 128, true};
// Two boxes, one after another, to the same place, for all threads.
__global__ void two_boxes(float *y, const __grid_constant__ CUtensorMap map, Boxes how)
{
    GX_DYNAMIC_SHARED(float, tile);
    GX_SHARED(unsigned long long, barrier, [2]);
    const int t = (int)threadIdx.x;
    float sum = 0;
    if (t < 2) gx_mbarrier_init(&barrier[t], 1);
    if (how.fence == InitFence::own) gx_mbarrier_fence_init();
    __syncthreads();
    if (how.fence == InitFence::of_another_thread && t == 2) gx_mbarrier_fence_init();
    if (how.fence == InitFence::proxy && t == 2) gx_fence_proxy_async();
    __syncthreads();
    for (int turn = 0; turn < 2; turn++) {
        if (t == 0) {
            gx_mbarrier_arrive_expect(&barrier[turn], how.expected);
            gx_tma_load(tile, &map, &barrier[turn], {0, turn});
        }
        if (t || how.wait) gx_mbarrier_wait(&barrier[turn], 0);
        sum += tile[t];
        if (how.barrier) __syncthreads();
    }
    y[t] = sum;
}
static int sums_of_two_boxes(Boxes how)
{
    Buffer<float> x(counting(64)), y(32);
    CUtensorMap map;
    const unsigned long long dim[2] = {32, 2}, stride = 128;
    const unsigned box[2] = {32, 1}, ones[2] = {1, 1};
    if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x.data, dim, &stride, box, ones,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
        return 0;
    if (!how.is_map) memset((void *)&map, 0, sizeof map);
    GX_LAUNCH(two_boxes, 1, 32, 128, 0, y.data, map, how);
    const std::vector<float> sums = y.download();
    int right = 1;
    for (int i = 0; i < 32; i++) right &= sums[(size_t)i] == (float)(2 * i + 32);
    return right;
}
static int reading_before_tma_has_landed(bool bug)
{
    Boxes how = right_boxes;
    how.wait = !bug;
    return sums_of_two_boxes(how);
}
static int tma_over_what_is_still_read(bool bug)
{
    Boxes how = right_boxes;
    how.barrier = !bug;
    return sums_of_two_boxes(how);
}
static int missing_fence_behind_an_init(bool bug)
{
    Boxes how = right_boxes;
    how.fence = bug ? InitFence::none : InitFence::own;
    return sums_of_two_boxes(how);
}
static int a_fence_of_mbarriers_by_another_thread(bool bug) // a fence of the proxy may be another thread's
{
    Boxes how = right_boxes;
    how.fence = bug ? InitFence::of_another_thread : InitFence::proxy;
    return sums_of_two_boxes(how);
}
static int fewer_bytes_expected_than_a_copy_has(bool bug)
{
    Boxes how = right_boxes;
    how.expected = bug ? 64 : 128;
    return sums_of_two_boxes(how);
}
static int an_argument_that_is_no_tensor_map(bool bug)
{
    Boxes how = right_boxes;
    how.is_map = !bug;
    return sums_of_two_boxes(how);
}

// ---- TMA and wgmma: a product with a producer and consumers --------------------------------------------------------
enum class Slip {
    none,
    no_wait_for_full,
    no_wait_for_empty,
    released_before_it_is_read,
    fewer_bytes_expected,
    more_bytes_expected,
    misaligned_copy,
    coordinates,
    a_copy_too_many,
    no_fence,
    no_wait,
    no_commit,
    sums_written,
    sums_written_last,
    other_swizzle,
    step_of_another_row,
    beyond_memory,
    misaligned_matrix,
    base_offset,
    reserved_bits,
    three_warps,
    half_a_warp,
    warps_that_differ,
    lanes_that_differ,
    a_late_warpgroup,
    sizes_that_differ,
};

enum { SLIP_K = 256, SLIP_STEP = 64, SLIP_TILE = 64 * SLIP_STEP, SLIP_STAGES = 2 };
typedef __nv_bfloat16 SlipTile[SLIP_TILE];
struct SlipMaps {
    CUtensorMap a, b;
};

__device__ inline void produce_tiles(SlipTile *a, SlipTile *b, unsigned long long *full, unsigned long long *empty,
                                     const SlipMaps &maps, Slip slip)
{
    const unsigned bytes = 2 * sizeof(SlipTile);
    for (int k = 0; k < SLIP_K / SLIP_STEP; k++) {
        const int stage = k % SLIP_STAGES;
        const unsigned phase = (unsigned)(k / SLIP_STAGES % 2);
        if (slip != Slip::no_wait_for_empty) gx_mbarrier_wait(&empty[stage], phase ^ 1);
        gx_mbarrier_arrive_expect(&full[stage], slip == Slip::fewer_bytes_expected  ? bytes / 2
                                                : slip == Slip::more_bytes_expected ? bytes + 16
                                                                                    : bytes);
        gx_tma_load(a[stage] + (slip == Slip::misaligned_copy ? 64 : 0), &maps.a, &full[stage], {k * SLIP_STEP, 0});
        if (slip == Slip::coordinates) gx_tma_load(b[stage], &maps.b, &full[stage], {k * SLIP_STEP, 0, 0});
        else gx_tma_load(b[stage], &maps.b, &full[stage], {k * SLIP_STEP, 0});
    }
    if (slip == Slip::a_copy_too_many) {
        gx_mbarrier_wait(&empty[0], 1);
        gx_tma_load(a[0], &maps.a, &full[0], {0, 0});
    }
}

__device__ inline void multiply_tile(float (&d)[32], const __nv_bfloat16 *a, const __nv_bfloat16 *b, bool is_first,
                                     Slip slip)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int k = 0; k < SLIP_STEP / 16; k++) {
        const bool differs =
            (slip == Slip::warps_that_differ && warp == 1) || (slip == Slip::lanes_that_differ && lane == 9);
        const int step = slip == Slip::step_of_another_row ? 64 + k * 16
                         : slip == Slip::misaligned_matrix ? 4
                         : differs                         ? 0
                                                           : k * 16;
        const int swizzle = slip == Slip::other_swizzle ? 64 : 128;
        const unsigned stride = slip == Slip::beyond_memory ? 1 << 15 : swizzle * 8u;
        const unsigned long long bits = slip == Slip::base_offset     ? 1ull << 49
                                        : slip == Slip::reserved_bits ? 1ull << 14
                                                                      : 0; // of the descriptor, beyond what is right
        if (slip == Slip::three_warps && warp == 3) continue;
        if (slip == Slip::half_a_warp && warp == 3 && lane >= 16) continue;
        gx_wgmma<64, false>(d, gx_wgmma_descriptor(a + step, 0, stride, swizzle) | bits,
                            gx_wgmma_descriptor(b + step, 0, swizzle * 8u, swizzle), !is_first || k > 0);
        if (slip == Slip::sums_written && k == 1) d[5] = 0;
        if (slip == Slip::sums_written_last && k == SLIP_STEP / 16 - 1) d[5] = 0;
    }
    if (slip == Slip::sizes_that_differ)
        gx_wgmma<8, false>(*(float(*)[4])d, gx_wgmma_descriptor(a, 0, 1024, 128), gx_wgmma_descriptor(b, 0, 1024, 128),
                           true);
}

// y [64,64] = a [64,K] b [64,K]^T: four warps multiply what the fifth one brings; with a late warpgroup the producer is
// the first warp.
__global__ void product_with_a_producer(float *y, const __grid_constant__ SlipMaps maps, Slip slip)
{
    GX_DYNAMIC_SHARED(SlipTile, tiles);
    GX_SHARED(unsigned long long, full, [SLIP_STAGES]);
    GX_SHARED(unsigned long long, empty, [SLIP_STAGES]);
    const int producer = slip == Slip::a_late_warpgroup ? 0 : 4, warp = (int)threadIdx.x / 32;
    SlipTile *a = tiles, *b = tiles + SLIP_STAGES;
    if (threadIdx.x < SLIP_STAGES) gx_mbarrier_init(&full[threadIdx.x], 1), gx_mbarrier_init(&empty[threadIdx.x], 128);
    gx_mbarrier_fence_init();
    __syncthreads();
    if (warp == producer) {
        if (threadIdx.x % 32 == 0) produce_tiles(a, b, full, empty, maps, slip);
        return;
    }
    float d[32];
    for (int k = 0; k < SLIP_K / SLIP_STEP; k++) {
        const int stage = k % SLIP_STAGES;
        if (slip != Slip::no_wait_for_full) gx_mbarrier_wait(&full[stage], (unsigned)(k / SLIP_STAGES % 2));
        if (slip != Slip::no_fence) gx_wgmma_fence();
        multiply_tile(d, a[stage], b[stage], k == 0, slip);
        if (slip != Slip::no_commit) gx_wgmma_commit();
        if (slip == Slip::released_before_it_is_read) gx_mbarrier_arrive(&empty[stage]);
        if (slip != Slip::no_wait) gx_wgmma_wait<0>();
        if (slip != Slip::released_before_it_is_read) gx_mbarrier_arrive(&empty[stage]);
    }
    const int t = (int)threadIdx.x % 128, lane = t % 32;
    for (int i = 0; i < 32; i++)
        y[(t / 32 * 16 + lane / 4 + i % 4 / 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
    if (slip == Slip::no_wait) gx_wgmma_wait<0>();
}

static CUresult map_of_slip(CUtensorMap *map, __nv_bfloat16 *data)
{
    const unsigned long long dim[2] = {SLIP_K, 64}, stride = SLIP_K * sizeof *data;
    const unsigned box[2] = {SLIP_STEP, 64}, ones[2] = {1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, dim, &stride, box, ones,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
static int product_is_right(Slip slip)
{
    std::vector<__nv_bfloat16> a(64 * SLIP_K), b(64 * SLIP_K);
    for (int i = 0; i < 64 * SLIP_K; i++) {
        a[(size_t)i] = __nv_bfloat16((float)(i * 7 % 13 - 6) / 8);
        b[(size_t)i] = __nv_bfloat16((float)(i * 5 % 11 - 5) / 8);
    }
    Buffer<__nv_bfloat16> of_a(a), of_b(b);
    Buffer<float> y(64 * 64);
    SlipMaps maps;
    if (map_of_slip(&maps.a, of_a.data) || map_of_slip(&maps.b, of_b.data)) return 0;
    const int bytes = 2 * SLIP_STAGES * (int)sizeof(SlipTile);
    cudaFuncSetAttribute((const void *)product_with_a_producer, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    GX_LAUNCH(product_with_a_producer, 1, 160, (size_t)bytes, 0, y.data, maps, slip);
    const std::vector<float> got = y.download();
    for (int i = 0; i < 64 * 64; i++) {
        float sum = 0;
        for (int k = 0; k < SLIP_K; k++)
            sum += (float)a[(size_t)(i / 64 * SLIP_K + k)] * (float)b[(size_t)(i % 64 * SLIP_K + k)];
        if (got[(size_t)i] != sum) return 0;
    }
    return 1;
}
#define SLIP(name, slip)                                                                                               \
    static int name(bool bug) { return product_is_right(bug ? Slip::slip : Slip::none); }
SLIP(missing_wait_for_tma, no_wait_for_full)
SLIP(missing_wait_before_tma, no_wait_for_empty)
SLIP(a_tile_released_before_wgmma_has_read_it, released_before_it_is_read)
SLIP(fewer_bytes_expected_than_tma_brings, fewer_bytes_expected)
SLIP(more_bytes_expected_than_tma_brings, more_bytes_expected)
SLIP(misaligned_place_for_tma, misaligned_copy)
SLIP(coordinates_of_another_tensor, coordinates)
SLIP(a_copy_by_tma_that_nobody_waits_for, a_copy_too_many)
SLIP(missing_wgmma_fence, no_fence)
SLIP(missing_wait_for_wgmma, no_wait)
SLIP(missing_commit_of_wgmma, no_commit)
SLIP(sums_written_under_wgmma, sums_written)
SLIP(sums_written_before_the_wait_for_wgmma, sums_written_last)
SLIP(another_swizzle_than_tmas, other_swizzle)
SLIP(a_matrix_that_begins_within_its_swizzle, step_of_another_row)
SLIP(a_matrix_beyond_shared_memory, beyond_memory)
SLIP(a_misaligned_matrix_for_wgmma, misaligned_matrix)
SLIP(a_descriptor_with_a_base_offset, base_offset)
SLIP(a_descriptor_with_reserved_bits, reserved_bits)
SLIP(a_warpgroup_of_three_warps, three_warps)
SLIP(wgmma_by_half_a_warp, half_a_warp)
SLIP(warps_with_different_products, warps_that_differ)
SLIP(lanes_with_different_products, lanes_that_differ)
SLIP(a_warpgroup_from_the_second_warp_on, a_late_warpgroup)
SLIP(sums_of_products_of_two_sizes, sizes_that_differ)

// Ones, written by the threads themselves, times ones.
__global__ void ones_by_wgmma(float *y, bool fences)
{
    GX_SHARED(__nv_bfloat16, ones, [64 * 16]);
    float d[4];
    for (int i = 0; i < 8; i++) ones[threadIdx.x * 8 + i] = __nv_bfloat16(1.0f);
    if (fences) gx_fence_proxy_async();
    __syncthreads();
    const unsigned long long x = gx_wgmma_descriptor(ones, 1024, 128, 0);
    gx_wgmma_fence();
    gx_wgmma<8, false>(d, x, x, false);
    gx_wgmma_commit();
    gx_wgmma_wait<0>();
    y[threadIdx.x] = d[3];
}
static int multiply_ones(bool fences, int threads)
{
    Buffer<float> y(128);
    GX_LAUNCH(ones_by_wgmma, 1, threads, 0, 0, y.data, fences);
    return y.download() == std::vector<float>(128, 16);
}
static int missing_proxy_fence(bool bug) { return multiply_ones(!bug, 128); }
static int wgmma_by_a_short_warp(bool bug) { return multiply_ones(true, bug ? 16 : 128); }

#endif
