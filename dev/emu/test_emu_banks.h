// test_emu_banks.h: the part of test_emu.cu that tests how conflicts of banks are counted (banks.h): planted accesses
// whose passes are known.
#ifndef GX_TEST_EMU_BANKS_H
#define GX_TEST_EMU_BANKS_H
#ifdef GX_EMU_COUNTS_BANKS

// The requests, the passes that they need, and those beyond of a launch; the same in every order of threads.
#define CHECK_BANKS(expected_requests, expected_least, expected_conflicts, kernel, threads, ...)                       \
    in_every_order([&](const char *order) {                                                                            \
        Buffer<float> y(1024);                                                                                         \
        emu::take_bank_counts(#kernel);                                                                                \
        GX_LAUNCH(kernel, 1, threads, 0, 0, y.data __VA_OPT__(, ) __VA_ARGS__);                                        \
        cudaDeviceSynchronize();                                                                                       \
        const emu::BankCounts c = emu::take_bank_counts(#kernel);                                                      \
        CHECK(c.requests == expected_requests && c.least == expected_least && c.conflicts == expected_conflicts,       \
              "%s, " #kernel ": %lld requests, %lld passes at least, %lld beyond", order, c.requests, c.least,         \
              c.conflicts);                                                                                            \
    })

__global__ void store_floats(float *, int stride)
{
    GX_SHARED(float, tile, [33 * 64]);
    tile[threadIdx.x * stride] = 1;
}
__global__ void load_floats(float *y, int stride)
{
    GX_SHARED(float, tile, [33 * 64]);
    y[threadIdx.x] = tile[threadIdx.x % 32 * stride];
}
TEST(banks_of_floats_at_a_stride)
{
    // Two lanes that are 32 words apart, or a multiple of that, meet.
    const struct {
        int stride, conflicts;
    } known[] = {{0, 0}, {1, 0}, {2, 1}, {3, 0}, {4, 3}, {8, 7}, {16, 15}, {31, 0}, {32, 31}, {33, 0}};
    for (const auto &k : known) {
        CHECK_BANKS(1, 1, k.conflicts, store_floats, 32, k.stride);
        CHECK_BANKS(1, 1, k.conflicts, load_floats, 32, k.stride);
        CHECK_BANKS(3, 3, 3 * k.conflicts, load_floats, 96, k.stride); // a request for each warp
    }
    CHECK_BANKS(1, 1, 4, load_floats, 5, 32); // the warp has no other lanes
}

// T's of 2, 8 and 16 bytes, which lane i has at i*stride of them.
template <class T> __global__ void store_and_load(float *y, int stride)
{
    GX_SHARED(T, tile, [32 * 9]);
    const int at = (int)threadIdx.x * stride;
    const T x = *(const T *)(y + threadIdx.x * 4);
    tile[at] = x;
    __syncthreads();
    *(T *)(y + threadIdx.x * 4) = tile[at];
}
TEST(banks_of_accesses_of_other_widths)
{
    // bf16: two lanes have one word; at a stride of 2 each its own; 32 words apart are the lanes at a stride of 64/32.
    CHECK_BANKS(2, 2, 0, store_and_load<__nv_bfloat16>, 32, 1);
    CHECK_BANKS(2, 2, 0, store_and_load<__nv_bfloat16>, 32, 2);
    CHECK_BANKS(2, 2, 2, store_and_load<__nv_bfloat16>, 32, 4);
    CHECK_BANKS(2, 2, 0, store_and_load<__nv_bfloat162>, 32, 1);
    CHECK_BANKS(2, 2, 6, store_and_load<__nv_bfloat162>, 32, 4);
    // 8 bytes: 16 lanes at a time have 32 words; at a stride of 2 they have 64, two to a bank, in each half.
    CHECK_BANKS(2, 4, 0, store_and_load<float2>, 32, 0);
    CHECK_BANKS(2, 4, 0, store_and_load<float2>, 32, 1);
    CHECK_BANKS(2, 4, 4, store_and_load<float2>, 32, 2);
    CHECK_BANKS(2, 4, 0, store_and_load<double>, 32, 1);
    CHECK_BANKS(2, 2, 2, store_and_load<float2>, 16, 2); // there is no second half
    // 16 bytes: 8 lanes at a time. Rows of 32 words meet, all 8; rows of 36 do not.
    CHECK_BANKS(2, 8, 0, store_and_load<float4>, 32, 0);
    CHECK_BANKS(2, 8, 0, store_and_load<float4>, 32, 1);
    CHECK_BANKS(2, 8, 8, store_and_load<float4>, 32, 2);
    CHECK_BANKS(2, 8, 56, store_and_load<float4>, 32, 8);
    CHECK_BANKS(2, 8, 0, store_and_load<float4>, 32, 9);
    // 12 bytes are three accesses of 4.
    CHECK_BANKS(6, 6, 0, store_and_load<float3>, 32, 1);
    CHECK_BANKS(6, 6, 6, store_and_load<float3>, 32, 2);
}

struct alignas(16) Pack {
    __nv_bfloat16 x[8];
};
__global__ void changes_a_pack(float *)
{
    GX_SHARED(Pack, tile, [64]);
    Pack x = {};
    tile[threadIdx.x * 2] = x;
    x = tile[threadIdx.x * 2];
    for (int i = 0; i < 8; i++) x.x[i] = __float2bfloat16(__bfloat162float(x.x[i]) * 2);
    tile[threadIdx.x * 2] = x;
}
TEST(a_pack_of_16_bytes_is_one_access) { CHECK_BANKS(3, 12, 12, changes_a_pack, 32); }

__global__ void load_in_branches(float *y)
{
    GX_SHARED(float, tile, [64 * 32]);
    if (threadIdx.x % 2) y[threadIdx.x] = tile[threadIdx.x * 32];
    else y[threadIdx.x] = -tile[threadIdx.x];
}
__global__ void load_in_some_turns(float *y, bool meet)
{
    GX_SHARED(float, tile, [64 * 32]);
    for (unsigned i = 0; i < 4; i++) {
        if (threadIdx.x % 4 == i) y[threadIdx.x] = tile[threadIdx.x * 32];
        if (meet) __syncwarp();
    }
}
__global__ void load_until_the_lanes_end(float *y)
{
    GX_SHARED(float, tile, [1024]);
    float sum = 0;
    for (unsigned i = threadIdx.x; i < 80; i += 32) sum += tile[i * 2];
    y[threadIdx.x] = sum;
}
TEST(banks_of_lanes_that_diverge)
{
    CHECK_BANKS(2, 2, 15, load_in_branches, 32);            // 16 lanes meet, 16 do not
    CHECK_BANKS(4, 4, 4 * 7, load_in_some_turns, 32, true); // 8 lanes in each turn
    CHECK_BANKS(1, 1, 31, load_in_some_turns, 32, false);   // what banks.h says it cannot know
    CHECK_BANKS(3, 3, 2, load_until_the_lanes_end, 32);     // 32, 32 and 16 lanes
}

__global__ void add_in_shared_memory(float *, int stride)
{
    GX_SHARED(float, tile, [32 * 32]);
    atomicAdd(&tile[threadIdx.x * stride], 1.0f);
}
__global__ void copy_to_shared_memory(float *y, int stride)
{
    GX_SHARED(float4, tile, [32 * 8]);
    gx_cp_async<16>(&tile[threadIdx.x * stride], y + threadIdx.x * 4, 16);
    gx_cp_async_commit();
    gx_cp_async_wait<0>();
}
__global__ void load_matrices_of_floats(float *y, int stride)
{
    GX_SHARED(float4, tile, [32 * 8]);
    unsigned r[4];
    gx_ldmatrix<4, false>(r, &tile[threadIdx.x * stride]);
    y[threadIdx.x] = (float)r[0];
}
__global__ void add_in_global_memory(float *y) { atomicAdd(&y[threadIdx.x * 32], y[threadIdx.x * 32 + 1]); }
__global__ void wait_for_a_barrier(float *)
{
    GX_SHARED(unsigned long long, barrier, [1]);
    if (threadIdx.x == 0) gx_mbarrier_init(barrier, 32), gx_mbarrier_fence_init();
    __syncthreads();
    gx_mbarrier_arrive(barrier);
    gx_mbarrier_wait(barrier, 0);
}
TEST(banks_of_atomics_copies_and_matrices)
{
    CHECK_BANKS(1, 1, 0, add_in_shared_memory, 32, 1);
    CHECK_BANKS(1, 1, 1, add_in_shared_memory, 32, 2);
    CHECK_BANKS(1, 1, 31, add_in_shared_memory, 32, 0); // on one address: one after another
    CHECK_BANKS(1, 4, 0, copy_to_shared_memory, 32, 1);
    CHECK_BANKS(1, 4, 28, copy_to_shared_memory, 32, 8);
    CHECK_BANKS(1, 4, 0, load_matrices_of_floats, 32, 1);
    CHECK_BANKS(1, 4, 4, load_matrices_of_floats, 32, 2);
    CHECK_BANKS(1, 4, 28, load_matrices_of_floats, 32, 8);
    CHECK_BANKS(0, 0, 0, add_in_global_memory, 32);
    CHECK_BANKS(0, 0, 0, wait_for_a_barrier, 32);
}
#endif
#endif
