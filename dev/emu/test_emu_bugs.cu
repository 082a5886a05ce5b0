// test_emu_bugs.cu: faults that the emulator must find, each beside the same program without the fault.
//
//     ./test_emu --bug NAME         the emulator or a sanitizer stops it, or it says "wrong"
//     ./test_emu --right NAME       says "right"
#include "test_emu.h"
#include "cp_async.h"
#include "ldmatrix.h"
#include "mma_tf32.h"
#include "stmatrix.h"
#include "tma.h"
#include "wgmma.h"

// ---- inside a kernel -----------------------------------------------------------------------------------------------
__global__ void write_at(float *x, int i) { x[i] = 1; }

static int global_far_out_of_bounds(bool bug)
{
    Buffer<float> x(100);
    GX_LAUNCH(write_at, 1, 1, 0, 0, x.data, bug ? 200 : 99);
    return x.download()[99] == 1;
}
static int global_just_past_the_end(bool bug)
{
    Buffer<float> x(100);
    GX_LAUNCH(write_at, 1, 1, 0, 0, x.data, bug ? 100 : 99);
    return x.download()[99] == 1;
}
static int use_after_free(bool bug)
{
    float *x;
    cudaMalloc(&x, 400);
    if (bug) cudaFree(x);
    GX_LAUNCH(write_at, 1, 1, 0, 0, x, 0);
    cudaDeviceSynchronize();
    if (!bug) cudaFree(x);
    return 1;
}
static int a_host_pointer_for_a_kernel(bool bug)
{
    float on_the_host[4];
    Buffer<float> x(4);
    GX_LAUNCH(write_at, 1, 1, 0, 0, bug ? on_the_host : x.data, 0);
    return x.download()[0] == 1;
}

__global__ void write_shared(float *y, int i)
{
    GX_SHARED(float, tile, [8][4]);
    float *flat = &tile[0][0];
    flat[i] = 1;
    y[0] = tile[0][3];
}
static int shared_out_of_bounds(bool bug)
{
    Buffer<float> y(1);
    GX_LAUNCH(write_shared, 1, 1, 0, 0, y.data, bug ? 32 : 3);
    return y.download()[0] == (bug ? 0 : 1);
}

__global__ void write_dynamic(float *y, int i)
{
    GX_DYNAMIC_SHARED(float, row);
    row[i] = 1;
    y[0] = row[9];
}
static int dynamic_shared_out_of_bounds(bool bug)
{
    Buffer<float> y(1);
    GX_LAUNCH(write_dynamic, 1, 1, 10 * sizeof(float), 0, y.data, bug ? 10 : 9);
    return y.download()[0] == 1;
}

template <int BYTES> __global__ void declare_shared(float *y)
{
    GX_SHARED(char, room, [BYTES]);
    room[BYTES - 1] = 1;
    y[0] = room[BYTES - 1];
}
static int too_much_declared_shared_memory(bool bug)
{
    Buffer<float> y(1);
    if (bug) GX_LAUNCH(declare_shared<49153>, 1, 1, 0, 0, y.data);
    else GX_LAUNCH(declare_shared<49152>, 1, 1, 0, 0, y.data);
    return y.download()[0] == 1;
}

static int too_much_declared_and_dynamic_shared_memory(bool bug)
{
    Buffer<float> y(1);
    GX_LAUNCH(declare_shared<1024>, 1, 1, bug ? (47 << 10) + 1 : 47 << 10, 0, y.data);
    return y.download()[0] == 1;
}

__global__ void deep(float *y, int depth)
{
    volatile float local[1000];
    local[depth % 1000] = y[0];
    y[0] = local[depth % 1000];
}
__global__ void very_deep(float *y, int depth)
{
    volatile float local[100000];
    local[depth % 100000] = y[0];
    y[0] = local[depth % 100000];
}
static int stack_overflow(bool bug)
{
    Buffer<float> y(std::vector<float>{1});
    if (bug) GX_LAUNCH(very_deep, 1, 1, 0, 0, y.data, 1);
    else GX_LAUNCH(deep, 1, 1, 0, 0, y.data, 1);
    return y.download()[0] == 1;
}

__global__ void copy_four(float *y, const float *x) { __stcs((float4 *)y, __ldg((const float4 *)x)); }
static int copy_between(int y_shift, int x_shift) // elements
{
    Buffer<float> x(std::vector<float>(8, 2)), y(8);
    GX_LAUNCH(copy_four, 1, 1, 0, 0, y.data + y_shift, x.data + x_shift);
    return y.download()[3] == 2;
}
static int misaligned_load(bool bug) { return copy_between(0, bug ? 1 : 0); }
static int misaligned_store(bool bug) { return copy_between(bug ? 1 : 0, 0); }

__global__ void add_one_at(char *y, int shift) { atomicAdd((int *)(y + shift), 1); }
static int misaligned_atomic(bool bug)
{
    Buffer<int> n(std::vector<int>{0, 0});
    GX_LAUNCH(add_one_at, 1, 1, 0, 0, (char *)n.data, bug ? 2 : 4);
    return n.download()[1] == 1;
}

__global__ void reverse_block(float *y, const float *x, bool bug)
{
    GX_SHARED(float, tile, [64]);
    tile[threadIdx.x] = x[threadIdx.x];
    if (!bug) __syncthreads();
    y[threadIdx.x] = tile[63 - threadIdx.x];
}
static int missing_syncthreads(bool bug)
{
    Buffer<float> x(counting(64)), y(64);
    GX_LAUNCH(reverse_block, 2, 64, 0, 0, y.data, x.data, bug);
    std::vector<float> right = counting(64);
    std::reverse(right.begin(), right.end());
    return y.download() == right;
}

// Each lane reads what the lane below wrote: in forward order that has always happened.
__global__ void from_below(float *y, const float *x, bool bug)
{
    GX_SHARED(float, tile, [32]);
    tile[threadIdx.x] = x[threadIdx.x];
    if (!bug) __syncwarp();
    y[threadIdx.x] = tile[threadIdx.x ? threadIdx.x - 1 : 0];
}
static int missing_syncwarp(bool bug)
{
    Buffer<float> x(counting(32)), y(32);
    GX_LAUNCH(from_below, 1, 32, 0, 0, y.data, x.data, bug);
    std::vector<float> right = counting(32);
    for (int i = 31; i > 0; i--) right[i] = right[i - 1];
    return y.download() == right;
}

__global__ void count_threads(int *n, bool bug)
{
    if (bug) *n = *n + 1;
    else atomicAdd(n, 1);
}
static int race_of_threads(bool bug)
{
    Buffer<int> n(std::vector<int>{0});
    GX_LAUNCH(count_threads, 1, 32, 0, 0, n.data, bug);
    return n.download()[0] == 32;
}

// Thread 0 of a block writes for all of it, thread 1 of the next block reads.
__global__ void hand_over(float *y, bool bug)
{
    if (threadIdx.x == 0) y[blockIdx.x + 1] = 1;
    if (threadIdx.x == 1) y[0] = y[bug ? (blockIdx.x + 3) % 4 + 1 : 0];
}
static int race_of_blocks(bool bug)
{
    Buffer<float> y(std::vector<float>(5, 0));
    GX_LAUNCH(hand_over, bug ? 4 : 1, 2, 0, 0, y.data, bug);
    return y.download()[1] == 1;
}

__global__ void half_a_shuffle(float *y, bool bug)
{
    float v = (float)threadIdx.x;
    if (!bug || threadIdx.x < 16) v = __shfl_xor_sync(0xffffffffu, v, 1);
    __syncthreads();
    y[threadIdx.x] = v;
}
static int divergent_shuffle(bool bug)
{
    Buffer<float> y(32);
    GX_LAUNCH(half_a_shuffle, 1, 32, 0, 0, y.data, bug);
    return y.download()[4] == 5;
}

__global__ void shuffle_or_vote(float *y, bool bug)
{
    if (bug && threadIdx.x >= 16) y[threadIdx.x] = (float)__ballot_sync(0xffffffffu, 1);
    else y[threadIdx.x] = __shfl_sync(0xffffffffu, (float)threadIdx.x, 3);
}
static int different_intrinsics(bool bug)
{
    Buffer<float> y(32);
    GX_LAUNCH(shuffle_or_vote, 1, 32, 0, 0, y.data, bug);
    return y.download()[4] == 3;
}

__global__ void upper_half(float *y, bool bug)
{
    if (threadIdx.x >= 16) y[threadIdx.x] = __shfl_sync(bug ? 0x0000ffffu : 0xffff0000u, (float)threadIdx.x, 20);
}
static int lane_not_in_its_mask(bool bug)
{
    Buffer<float> y(32);
    GX_LAUNCH(upper_half, 1, 32, 0, 0, y.data, bug);
    return y.download()[17] == 20;
}

__global__ void some_exit(float *y, bool bug)
{
    if (threadIdx.x >= 24) return;
    y[threadIdx.x] = (float)__popc(__ballot_sync(bug ? 0xffffffffu : 0x00ffffffu, 1));
}
static int exited_lane(bool bug)
{
    Buffer<float> y(32);
    GX_LAUNCH(some_exit, 1, 32, 0, 0, y.data, bug);
    return y.download()[0] == 24;
}

// Each lane takes the number of the lane in front of it or behind it, or its own.
enum class Shuffle { index, up, down, exclusive_or };
__global__ void shuffle_numbers(float *y, Shuffle how, int width)
{
    const float x = (float)threadIdx.x;
    if (how == Shuffle::index) y[threadIdx.x] = __shfl_sync(~0u, x, (int)threadIdx.x, width);
    if (how == Shuffle::up) y[threadIdx.x] = __shfl_up_sync(~0u, x, 1, width);
    if (how == Shuffle::down) y[threadIdx.x] = __shfl_down_sync(~0u, x, 1, width);
    if (how == Shuffle::exclusive_or) y[threadIdx.x] = __shfl_xor_sync(~0u, x, 1, width);
}
static int shuffle_is_right(Shuffle how, int width, float of_lane_5)
{
    Buffer<float> y(32);
    GX_LAUNCH(shuffle_numbers, 1, 32, 0, 0, y.data, how, width);
    return y.download()[5] == of_lane_5;
}
static int a_shuffle_of_width_24(bool bug) { return shuffle_is_right(Shuffle::index, bug ? 24 : 32, 5); }
static int a_shuffle_up_of_width_64(bool bug) { return shuffle_is_right(Shuffle::up, bug ? 64 : 16, 4); }
static int a_shuffle_down_of_width_0(bool bug) { return shuffle_is_right(Shuffle::down, bug ? 0 : 8, 6); }
static int a_shuffle_xor_of_width_12(bool bug) { return shuffle_is_right(Shuffle::exclusive_or, bug ? 12 : 4, 4); }

__global__ void wait_for_flag(int *flag, bool bug)
{
    if (threadIdx.x < 32) {
        if (bug) __syncthreads(); // the others come only when the flag is set
        if (threadIdx.x == 0) atomicExch(flag, 1);
        if (!bug) __syncthreads();
    } else {
        while (!atomicAdd(flag, 0)) __nanosleep(100);
        __syncthreads();
    }
}
__global__ void wait_for_flag_right(int *flag)
{
    if (threadIdx.x == 0) atomicExch(flag, 1);
    if (threadIdx.x >= 32)
        while (!atomicAdd(flag, 0)) __nanosleep(100);
    __syncthreads();
}
static int barrier_deadlock(bool bug)
{
    Buffer<int> flag(std::vector<int>{0});
    if (bug) GX_LAUNCH(wait_for_flag, 1, 64, 0, 0, flag.data, bug);
    else GX_LAUNCH(wait_for_flag_right, 1, 64, 0, 0, flag.data);
    return flag.download()[0] == 1;
}

__global__ void two_barriers(float *y, bool bug)
{
    if (bug && threadIdx.x < 32) {
        __syncthreads();
        y[threadIdx.x] = 1;
    } else {
        __syncthreads();
        y[threadIdx.x] = 1;
    }
}
static int barriers_of_two_branches(bool bug)
{
    Buffer<float> y(64);
    GX_LAUNCH(two_barriers, 1, 64, 0, 0, y.data, bug);
    return y.download()[63] == 1;
}

// The last block adds what the others have written. Thread 0 tells and hears; the fences are of the threads in a mask.
enum { NOBODY = 0, FIRST = 1, SECOND = 2, ALL = 15 };
struct LastBlock {
    int written, met; // who fences its parts: before, and behind where the threads meet
    enum { NOWHERE, WARP, BLOCK } meet;
    int heard, told; // who fences what the others have told: before, and behind a barrier
};
static void fence_by(int threads)
{
    if (threads >> threadIdx.x & 1) __threadfence();
}
__global__ void sum_in_the_last_block(float *y, float *part, unsigned *count, LastBlock how)
{
    GX_SHARED(bool, is_last, );
    part[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    fence_by(how.written);
    if (how.meet == LastBlock::BLOCK) __syncthreads();
    if (how.meet == LastBlock::WARP) __syncwarp(15);
    fence_by(how.met);
    if (threadIdx.x == 0) is_last = atomicAdd(count, 1u) == gridDim.x - 1;
    fence_by(how.heard);
    __syncthreads();
    fence_by(how.told);
    __syncthreads();
    if (!is_last || threadIdx.x) return;
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x * blockDim.x; i++) sum += part[i];
    y[0] = sum;
}
static int sum_in(LastBlock how)
{
    Buffer<float> y(std::vector<float>{0}), part(std::vector<float>(12, 0));
    Buffer<unsigned> count(std::vector<unsigned>{0});
    setenv("GX_EMU_FENCES", "late", 1);
    GX_LAUNCH(sum_in_the_last_block, 3, 4, 0, 0, y.data, part.data, count.data, how);
    return y.download()[0] == 12 && part.download() == std::vector<float>(12, 1);
}
static int missing_threadfence(bool bug)
{
    return sum_in({bug ? NOBODY : ALL, NOBODY, LastBlock::BLOCK, FIRST, NOBODY});
}
static int missing_threadfence_of_the_reader(bool bug)
{
    return sum_in({ALL, NOBODY, LastBlock::BLOCK, bug ? NOBODY : FIRST, NOBODY});
}
static int a_threadfence_before_the_threads_meet(bool bug) // of one, for all
{
    return sum_in({bug ? FIRST : NOBODY, bug ? NOBODY : FIRST, LastBlock::BLOCK, FIRST, NOBODY});
}
static int a_threadfence_by_another_thread(bool bug)
{
    return sum_in({NOBODY, bug ? SECOND : FIRST, LastBlock::BLOCK, FIRST, NOBODY});
}
static int a_threadfence_of_the_reader_by_another_thread(bool bug)
{
    return sum_in({ALL, NOBODY, LastBlock::BLOCK, bug ? SECOND : NOBODY, bug ? NOBODY : SECOND});
}
static int missing_syncthreads_before_an_atomic(bool bug)
{
    return sum_in({ALL, NOBODY, bug ? LastBlock::NOWHERE : LastBlock::BLOCK, FIRST, NOBODY});
}
static int missing_syncwarp_before_a_threadfence(bool bug)
{
    return sum_in({NOBODY, FIRST, bug ? LastBlock::NOWHERE : LastBlock::WARP, FIRST, NOBODY});
}

// ---- tensor cores and asynchronous copies --------------------------------------------------------------------------
__global__ void ones_times_ones(float *y, int lanes)
{
    const unsigned one = 0x3f803f80u, a[4] = {one, one, one, one};
    float d[4] = {};
    if ((int)threadIdx.x < lanes) gx_mma<__nv_bfloat16>(d, a, one, one);
    __syncthreads();
    y[threadIdx.x] = d[3];
}
static int half_a_product(bool bug)
{
    Buffer<float> y(32);
    GX_LAUNCH(ones_times_ones, 1, 32, 0, 0, y.data, bug ? 16 : 32);
    return y.download()[31] == 16;
}
static int a_product_of_a_short_warp(bool bug)
{
    Buffer<float> y(32);
    GX_LAUNCH(ones_times_ones, 1, bug ? 16 : 32, 0, 0, y.data, 32);
    return y.download()[15] == 16;
}

// Each lane puts a row of numbers there, and gets the first two of row lane/4.
struct Rows {
    int lanes, stride, shift; // who loads; elements from row to row, and in front of the first
    bool sync;
};
__global__ void rows_by_ldmatrix(float *y, Rows how)
{
    GX_SHARED(unsigned short, tile, [32 * 72]);
    unsigned short *row = tile + how.shift + (int)threadIdx.x * how.stride;
    unsigned r[4] = {};
    for (int i = 0; i < 8; i++) row[i] = (unsigned short)threadIdx.x;
    if (how.sync) __syncwarp();
    if ((int)threadIdx.x < how.lanes) gx_ldmatrix<4, false>(r, row);
    __syncthreads();
    y[threadIdx.x] = (float)(r[3] & 0xffff);
}
static int load_rows(Rows how, int threads = 32)
{
    Buffer<float> y(32);
    GX_LAUNCH(rows_by_ldmatrix, 1, threads, 0, 0, y.data, how);
    return y.download()[31] == 31 && y.download()[0] == 24;
}
static int half_a_load_of_matrices(bool bug) { return load_rows({bug ? 16 : 32, 8, 0, true}); }
static int misaligned_matrix(bool bug) { return load_rows({32, 8, bug ? 4 : 0, true}); }
static int a_load_of_matrices_by_a_short_warp(bool bug) { return load_rows({32, 8, 0, true}, bug ? 16 : 32); }
// A column of a tile, read by a warp: without padding, all of it lies in one bank.
template <int COLUMNS> __global__ void read_columns(float *y)
{
    GX_SHARED(float, tile, [32][COLUMNS]);
    if (threadIdx.x < 32)
        for (int r = 0; r < 32; r++) tile[r][threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    if (threadIdx.x >= 32) y[threadIdx.x - 32] = tile[threadIdx.x - 32][7];
}
static int lanes_that_meet_in_a_bank(bool bug)
{
    Buffer<float> y(32);
    if (bug) GX_LAUNCH(read_columns<32>, 1, 64, 0, 0, y.data);
    else GX_LAUNCH(read_columns<33>, 1, 64, 0, 0, y.data);
    return y.download()[31] == 7;
}

static int rows_that_meet_in_a_bank(bool bug) { return load_rows({32, bug ? 64 : 72, 0, true}); }

// Each lane loads the row that its neighbour wrote.
__global__ void row_of_the_next_lane(float *y, bool bug)
{
    GX_SHARED(unsigned short, tile, [32][8]);
    unsigned r[4];
    for (int i = 0; i < 8; i++) tile[threadIdx.x][i] = (unsigned short)threadIdx.x;
    if (!bug) __syncwarp();
    gx_ldmatrix<4, false>(r, tile[(threadIdx.x + 1) % 32]);
    y[threadIdx.x] = (float)(r[0] & 0xffff);
}
static int missing_syncwarp_before_ldmatrix(bool bug)
{
    Buffer<float> y(32);
    GX_LAUNCH(row_of_the_next_lane, 1, 32, 0, 0, y.data, bug);
    return y.download()[0] == 1;
}

enum { RIGHT, NO_WAIT, NO_BARRIER, TOO_EARLY, NEVER };
__global__ void reverse_by_copies(float *y, const float *x, int bug)
{
    GX_SHARED(float, tile, [64]);
    float sum = 0;
    for (int turn = 0; turn < 2; turn++) { // of the other half of x each time
        gx_cp_async<4>(&tile[threadIdx.x], x + turn * 64 + threadIdx.x, 4);
        gx_cp_async_commit();
        if (bug != NO_WAIT) gx_cp_async_wait<0>();
        if (bug != NO_BARRIER) __syncthreads();
        sum += tile[63 - threadIdx.x];
        if (bug != TOO_EARLY) __syncthreads();
    }
    gx_cp_async<4>(&tile[threadIdx.x], x, bug == NEVER ? 4 : 0);
    gx_cp_async_commit();
    if (bug != NEVER) gx_cp_async_wait<0>();
    y[threadIdx.x] = sum;
}
static int reverse_x(int bug)
{
    Buffer<float> x(counting(128)), y(64);
    GX_LAUNCH(reverse_by_copies, 1, 64, 0, 0, y.data, x.data, bug);
    const std::vector<float> sums = y.download();
    int right = 1;
    for (int i = 0; i < 64; i++) right &= sums[(size_t)i] == (float)(63 - i + 127 - i);
    return right;
}
static int missing_wait_for_copies(bool bug) { return reverse_x(bug ? NO_WAIT : RIGHT); }
static int copies_over_what_is_still_read(bool bug) { return reverse_x(bug ? TOO_EARLY : RIGHT); }
static int missing_syncthreads_behind_copies(bool bug) { return reverse_x(bug ? NO_BARRIER : RIGHT); }
static int copies_that_nobody_waits_for(bool bug) { return reverse_x(bug ? NEVER : RIGHT); }

struct OneCopy {
    int to, from, bytes; // to, from: bytes beyond an alignment of 16
};
__global__ void copy_sixteen_bytes(float *y, const char *x, OneCopy how)
{
    GX_SHARED(float4, tile, [2]);
    gx_cp_async<16>((char *)tile + how.to, x + how.from, how.bytes);
    gx_cp_async_commit();
    gx_cp_async_wait<0>();
    y[0] = tile[0].x;
}
static int copy_is_right(OneCopy how)
{
    Buffer<float> x(std::vector<float>(8, 2)), y(1);
    GX_LAUNCH(copy_sixteen_bytes, 1, 1, 0, 0, y.data, (const char *)x.data, how);
    return y.download()[0] == 2;
}
static int a_misaligned_place_for_cp_async(bool bug) { return copy_is_right({bug ? 8 : 0, 0, 16}); }
static int a_misaligned_source_of_cp_async(bool bug) { return copy_is_right({0, bug ? 8 : 16, 16}); }
static int more_bytes_than_cp_async_copies(bool bug) { return copy_is_right({0, 0, bug ? 17 : 16}); }
static int fewer_bytes_than_none_by_cp_async(bool bug) { return copy_is_right({0, 0, bug ? -1 : 4}); }

__global__ void ones_times_x_in_tf32(float *y, int lanes, float x)
{
    const unsigned one = gx_tf32(1), a[4] = {one, one, one, one}, b = __float_as_uint(x);
    float d[4] = {};
    if ((int)threadIdx.x < lanes) gx_mma_tf32(d, a, b, b);
    __syncthreads();
    y[threadIdx.x] = d[3];
}
static int multiply_in_tf32(int lanes, float x, int threads = 32)
{
    Buffer<float> y(32);
    GX_LAUNCH(ones_times_x_in_tf32, 1, threads, 0, 0, y.data, lanes, x);
    return y.download()[31] == 8 * x;
}
static int half_a_product_of_tf32(bool bug) { return multiply_in_tf32(bug ? 16 : 32, 2); }
static int a_product_of_tf32_by_a_short_warp(bool bug) { return multiply_in_tf32(32, 2, bug ? 16 : 32); }
static int a_factor_that_is_no_tf32(bool bug) { return multiply_in_tf32(32, 1 + (bug ? 1 : 2) / 2048.0f); }

// Each lane stores its number; lane i then reads the row of the next lane.
__global__ void rows_by_stmatrix(float *y, Rows how)
{
    GX_SHARED(unsigned short, tile, [33 * 8]);
    const unsigned r[4] = {threadIdx.x, threadIdx.x, threadIdx.x, threadIdx.x};
    if ((int)threadIdx.x < how.lanes) gx_stmatrix<4, false>(tile + how.shift + (int)threadIdx.x * how.stride, r);
    if (how.sync) __syncwarp();
    y[threadIdx.x] = (float)tile[how.shift + (int)(threadIdx.x + 1) % 32 * how.stride];
}
static int store_rows(Rows how, int threads = 32)
{
    Buffer<float> y(32);
    GX_LAUNCH(rows_by_stmatrix, 1, threads, 0, 0, y.data, how);
    return y.download()[0] == 4 && y.download()[30] == 28; // row 1 of matrix 0, row 7 of matrix 3
}
static int half_a_store_of_matrices(bool bug) { return store_rows({bug ? 16 : 32, 8, 0, true}); }
static int a_store_of_matrices_by_a_short_warp(bool bug) { return store_rows({32, 8, 0, true}, bug ? 16 : 32); }
static int a_misaligned_row_for_stmatrix(bool bug) { return store_rows({32, 8, bug ? 4 : 0, true}); }
static int missing_syncwarp_behind_stmatrix(bool bug) { return store_rows({32, 8, 0, !bug}); }

#include "test_emu_bugs_hopper.h"

// ---- between host and streams --------------------------------------------------------------------------------------
struct TwoStreams {
    cudaStream_t a, b;
    cudaEvent_t event;
    TwoStreams()
    {
        cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }
    ~TwoStreams()
    {
        cudaStreamDestroy(a);
        cudaStreamDestroy(b);
        cudaEventDestroy(event);
    }
};
struct Pinned {
    float *data;
    explicit Pinned(float value)
    {
        cudaMallocHost(&data, sizeof *data);
        *data = value;
    }
    ~Pinned() { cudaFreeHost(data); }
};

static int missing_event(bool bug)
{
    TwoStreams s;
    Buffer<float> x(1), y(1);
    GX_LAUNCH(write_at, 1, 1, 0, s.a, x.data, 0);
    cudaEventRecord(s.event, s.a);
    if (!bug) cudaStreamWaitEvent(s.b, s.event, 0);
    cudaMemcpyAsync(y.data, x.data, sizeof(float), cudaMemcpyDeviceToDevice, s.b);
    cudaStreamSynchronize(s.b);
    return y.download()[0] == 1;
}
static int missing_synchronisation(bool bug)
{
    TwoStreams s;
    Buffer<float> x(1);
    Pinned result(0);
    GX_LAUNCH(write_at, 1, 1, 0, s.a, x.data, 0);
    cudaMemcpyAsync(result.data, x.data, sizeof(float), cudaMemcpyDeviceToHost, s.a);
    if (!bug) cudaStreamSynchronize(s.a);
    return *result.data == 1;
}
static int pinned_memory_reused_too_early(bool bug)
{
    TwoStreams s;
    Buffer<float> x(1);
    Pinned source(1);
    cudaMemcpyAsync(x.data, source.data, sizeof(float), cudaMemcpyHostToDevice, s.a);
    if (!bug) cudaStreamSynchronize(s.a);
    *source.data = 2;
    cudaStreamSynchronize(s.a);
    return x.download()[0] == 1;
}
static int host_reads_device_memory(bool bug)
{
    Buffer<float> x(std::vector<float>{1, 2, 3, 4});
    cudaDeviceSynchronize();
    return (bug ? x.data[3] : x.download()[3]) == 4;
}
static int host_writes_device_memory(bool bug)
{
    Buffer<float> x(4);
    if (bug) x.data[1] = 5;
    else GX_LAUNCH(write_at, 1, 1, 0, 0, x.data, 1);
    return x.download()[1] == 1;
}

// ---- in graphs -----------------------------------------------------------------------------------------------------
__global__ void add_number(float *y, float x) { y[0] += x; }
__global__ void add_what_is_there(float *y, const float *x) { y[0] += x[0]; }

// Adds 1, then 2.
static int an_argument_that_a_graph_keeps(bool bug)
{
    TwoStreams s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    Buffer<float> x(1), y(std::vector<float>{0});
    Pinned number(1);
    cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
    cudaMemcpyAsync(x.data, number.data, sizeof(float), cudaMemcpyHostToDevice, s.a);
    if (bug) GX_LAUNCH(add_number, 1, 1, 0, s.a, y.data, *number.data);
    else GX_LAUNCH(add_what_is_there, 1, 1, 0, s.a, y.data, x.data);
    if (cudaStreamEndCapture(s.a, &graph) || cudaGraphInstantiate(&exec, graph, 0)) return 0;
    for (*number.data = 1; *number.data <= 2; *number.data += 1) {
        cudaGraphLaunch(exec, s.a);
        cudaStreamSynchronize(s.a);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return y.download()[0] == 3;
}

// A branch that must come behind the first node, or only behind the graph's beginning; one that is not waited for.
static int a_branch(bool waits, bool joins)
{
    TwoStreams s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    Buffer<float> x(std::vector<float>{0}), y(std::vector<float>{0});
    cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
    if (!waits) cudaEventRecord(s.event, s.a);
    GX_LAUNCH(write_at, 1, 1, 0, s.a, x.data, 0);
    if (waits) cudaEventRecord(s.event, s.a);
    cudaStreamWaitEvent(s.b, s.event, 0);
    cudaMemcpyAsync(y.data, x.data, sizeof(float), cudaMemcpyDeviceToDevice, s.b);
    cudaEventRecord(s.event, s.b);
    if (joins) cudaStreamWaitEvent(s.a, s.event, 0);
    if (cudaStreamEndCapture(s.a, &graph) || cudaGraphInstantiate(&exec, graph, 0)) return 0;
    cudaGraphLaunch(exec, s.a);
    cudaStreamSynchronize(s.a);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return y.download()[0] == 1;
}
static int missing_event_in_a_graph(bool bug) { return a_branch(!bug, true); }
static int a_branch_that_a_graph_does_not_join(bool bug) { return a_branch(true, !bug); }

// A launch, the record of an event, and what f asks for: is all of it allowed in a capture?
template <class F> static int may_be_captured(F f)
{
    TwoStreams s;
    cudaGraph_t graph;
    Buffer<float> x(1);
    cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
    GX_LAUNCH(write_at, 1, 1, 0, s.a, x.data, 0);
    cudaEventRecord(s.event, s.a);
    const cudaError_t asked = f(s, x.data), ended = cudaStreamEndCapture(s.a, &graph);
    cudaGraphDestroy(graph);
    return asked == cudaSuccess && ended == cudaSuccess;
}
static int waiting_in_a_capture(bool bug)
{
    return may_be_captured([bug](TwoStreams &s, float *) { return bug ? cudaStreamSynchronize(s.a) : cudaSuccess; });
}
static int waiting_for_the_device_in_a_capture(bool bug)
{
    return may_be_captured([bug](TwoStreams &, float *) { return bug ? cudaDeviceSynchronize() : cudaSuccess; });
}
static int waiting_for_an_event_in_a_capture(bool bug)
{
    return may_be_captured([bug](TwoStreams &s, float *) { return bug ? cudaEventSynchronize(s.event) : cudaSuccess; });
}
static int a_query_of_a_stream_in_a_capture(bool bug)
{
    return may_be_captured([bug](TwoStreams &s, float *) { return cudaStreamQuery(bug ? s.a : s.b); });
}
static int a_query_of_an_event_in_a_capture(bool bug)
{
    return may_be_captured([bug](TwoStreams &s, float *) { return bug ? cudaEventQuery(s.event) : cudaSuccess; });
}
static int memory_taken_in_a_capture(bool bug)
{
    void *taken = nullptr;
    const int right = may_be_captured([&](TwoStreams &, float *) { return bug ? cudaMalloc(&taken, 4) : cudaSuccess; });
    cudaFree(taken);
    return right;
}
static int pageable_memory_in_a_capture(bool bug)
{
    float pageable = 1;
    Pinned pinned(1);
    return may_be_captured([&](TwoStreams &s, float *x) {
        return cudaMemcpyAsync(x, bug ? &pageable : pinned.data, sizeof *x, cudaMemcpyHostToDevice, s.a);
    });
}
static int a_copy_that_waits_in_a_capture(bool bug)
{
    Buffer<float> y(1);
    return may_be_captured([&](TwoStreams &s, float *x) {
        return bug ? cudaMemcpy(y.data, x, sizeof *x, cudaMemcpyDeviceToDevice)
                   : cudaMemcpyAsync(y.data, x, sizeof *x, cudaMemcpyDeviceToDevice, s.a);
    });
}

// ---- on two cards --------------------------------------------------------------------------------------------------
static int memory_of_another_card(bool bug)
{
    setenv("GX_EMU_CARDS", "2", 1);
    cudaSetDevice(bug ? 0 : 1);
    Buffer<float> x(1);
    cudaSetDevice(1);
    GX_LAUNCH(write_at, 1, 1, 0, 0, x.data, 0);
    return x.download()[0] == 1;
}
static int a_stream_of_another_card(bool bug)
{
    cudaStream_t s;
    setenv("GX_EMU_CARDS", "2", 1);
    cudaSetDevice(bug ? 0 : 1);
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaSetDevice(1);
    Buffer<float> x(std::vector<float>{0});
    GX_LAUNCH(write_at, 1, 1, 0, s, x.data, 0);
    cudaStreamSynchronize(s);
    return x.download()[0] == 1;
}
static int two_ranks_on_one_card(bool bug)
{
    int right = 1;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[2] = {nullptr, nullptr};
    config.blocking = 0;
    setenv("GX_EMU_CARDS", "2", 1);
    ncclGetUniqueId(&id);
    for (int rank = 0; rank < 2; rank++) {
        cudaSetDevice(bug ? 0 : rank);
        if (ncclCommInitRankConfig(&comm[rank], 2, id, rank, &config) != ncclInProgress) right = 0;
    }
    for (ncclComm_t c : comm)
        if (c) ncclCommDestroy(c);
    return right;
}

// Rank 0 of two, and another one that says which it is and of how many.
static int two_ranks_come(int second_rank, int of_ranks)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[2] = {nullptr, nullptr};
    config.blocking = 0;
    ncclGetUniqueId(&id);
    const ncclResult_t first = ncclCommInitRankConfig(&comm[0], 2, id, 0, &config),
                       second = ncclCommInitRankConfig(&comm[1], of_ranks, id, second_rank, &config);
    for (ncclComm_t c : comm)
        if (c) ncclCommDestroy(c);
    return first == ncclInProgress && second == ncclInProgress;
}
static int a_rank_that_comes_twice(bool bug) { return two_ranks_come(bug ? 0 : 1, 2); }
static int ranks_that_count_themselves_differently(bool bug) { return two_ranks_come(1, bug ? 3 : 2); }

// ---- the emulator's own variables ----------------------------------------------------------------------------------
static int one_store_with(const char *name, const char *value)
{
    setenv(name, value, 1);
    Buffer<float> x(1);
    GX_LAUNCH(write_at, 1, 1, 0, 0, x.data, 0);
    return x.download()[0] == 1;
}
static int a_queue_of_no_operations(bool bug) { return one_store_with("GX_EMU_QUEUE", bug ? "0" : "1"); }
static int a_misspelt_word(bool bug) { return one_store_with("GX_EMU_ORDER", bug ? "backwards" : "reverse"); }
static int a_seed_that_is_no_number(bool bug) { return one_store_with("GX_EMU_ORDER", bug ? "random:7x" : "random:7"); }

// ---- among ranks ---------------------------------------------------------------------------------------------------
static int a_rank_that_never_comes(bool bug)
{
    int right = 1;
    with_ranks(2, [&](Rank &r) {
        Buffer<float> x(std::vector<float>{1});
        if (bug && r.rank) return;
        ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
        cudaStreamSynchronize(r.stream);
        if (!r.rank) right = x.download()[0] == 2;
    });
    return right;
}
static int sends_in_a_circle(bool bug)
{
    int right = 1;
    with_ranks(2, [&](Rank &r) {
        Buffer<float> x(std::vector<float>{(float)r.rank}), y(1);
        if (!bug) ncclGroupStart(); // else each sends before it receives
        ncclSend(x.data, 1, ncclFloat32, 1 - r.rank, r.comm, r.stream);
        ncclRecv(y.data, 1, ncclFloat32, 1 - r.rank, r.comm, r.stream);
        if (!bug) ncclGroupEnd();
        cudaStreamSynchronize(r.stream);
        if (!r.rank) right = y.download()[0] == 1;
    });
    return right;
}

static int an_event_before_nccl_has_launched(bool bug)
{
    TwoStreams s;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    ncclResult_t state = ncclInProgress;
    Buffer<float> x(std::vector<float>{1}), y(std::vector<float>{0}), z(std::vector<float>{0});
    config.blocking = 0;
    ncclGetUniqueId(&id);
    ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
    ncclAllReduce(x.data, y.data, 1, ncclFloat32, ncclSum, comm, s.a);
    for (state = ncclInProgress; !bug && state == ncclInProgress;) ncclCommGetAsyncError(comm, &state);
    cudaEventRecord(s.event, s.a);
    cudaStreamWaitEvent(s.b, s.event, 0);
    cudaMemcpyAsync(z.data, y.data, sizeof(float), cudaMemcpyDeviceToDevice, s.b);
    cudaStreamSynchronize(s.b);
    ncclCommDestroy(comm);
    return z.download()[0] == 1;
}

// Rank 1 comes when rank 0 has gone on.
template <class F> static int behind_a_collective(F f)
{
    std::atomic<bool> gone_on = false;
    int right = 1;
    setenv("GX_EMU_DRIVER", "blocking", 1);
    with_ranks(2, [&](Rank &r) {
        Buffer<float> x(std::vector<float>{1, 2});
        if (r.rank == 0) {
            ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
            f(r, x.data);
        }
        while (r.rank && !gone_on) std::this_thread::yield();
        if (r.rank) ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
        gone_on = true;
        cudaStreamSynchronize(r.stream);
        if (x.download()[0] != 2) right = 0;
    });
    return right;
}
static int a_kernel_loaded_behind_a_collective(bool bug)
{
    setenv("CUDA_MODULE_LOADING", bug ? "LAZY" : "EAGER", 1);
    return behind_a_collective([](Rank &r, float *x) { GX_LAUNCH(write_at, 1, 1, 0, r.stream, x, 1); });
}
static int memory_taken_behind_a_collective(bool bug)
{
    void *before = nullptr, *behind = nullptr;
    cudaMalloc(&before, 4);
    const int right = behind_a_collective([&](Rank &, float *) {
        if (bug) cudaMalloc(&behind, 4);
    });
    cudaFree(before);
    return right;
}
static int a_graph_made_behind_a_collective(bool bug)
{
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t before = nullptr, behind = nullptr;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    cudaStreamEndCapture(s, &graph);
    cudaGraphInstantiate(&before, graph, 0);
    const int right = behind_a_collective([&](Rank &, float *) {
        if (bug) cudaGraphInstantiate(&behind, graph, 0);
    });
    for (cudaGraphExec_t exec : {before, behind})
        if (exec) cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(s);
    return right;
}
static ncclComm_t group_of_one()
{
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 1, id, 0);
    return comm;
}
static int a_group_made_behind_a_collective(bool bug)
{
    ncclComm_t before = group_of_one(), behind = nullptr;
    const int right = behind_a_collective([&](Rank &, float *) {
        if (bug) behind = group_of_one();
    });
    for (ncclComm_t comm : {before, behind})
        if (comm) ncclCommDestroy(comm);
    return right;
}

// A launch into a full queue waits for its first operation, which waits for rank 1, which waits for rank 0.
static int launches_into_a_full_queue(bool bug)
{
    std::atomic<bool> gone_on = false;
    int right = 1;
    with_ranks(2, [&](Rank &r) {
        Buffer<float> x(std::vector<float>{1, 2});
        while (r.rank && !gone_on) std::this_thread::yield();
        ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
        for (int i = 0; !r.rank && i < (bug ? 1024 : 1023); i++) GX_LAUNCH(write_at, 1, 1, 0, r.stream, x.data, 1);
        gone_on = true;
        cudaStreamSynchronize(r.stream);
        if (x.download()[0] != 2) right = 0;
    });
    return right;
}

// ---------------------------------------------------------------------------------------------------------------------
#define BUG(name)                                                                                                      \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
static const struct {
    const char *name;
    int (*is_right)(bool bug);
} bugs[] = {
    BUG(global_far_out_of_bounds),
    BUG(global_just_past_the_end),
    BUG(use_after_free),
    BUG(a_host_pointer_for_a_kernel),
    BUG(shared_out_of_bounds),
    BUG(dynamic_shared_out_of_bounds),
    BUG(too_much_declared_shared_memory),
    BUG(too_much_declared_and_dynamic_shared_memory),
    BUG(stack_overflow),
    BUG(misaligned_load),
    BUG(misaligned_store),
    BUG(misaligned_atomic),
    BUG(missing_syncthreads),
    BUG(missing_syncwarp),
    BUG(race_of_threads),
    BUG(race_of_blocks),
    BUG(divergent_shuffle),
    BUG(different_intrinsics),
    BUG(lane_not_in_its_mask),
    BUG(exited_lane),
    BUG(a_shuffle_of_width_24),
    BUG(a_shuffle_up_of_width_64),
    BUG(a_shuffle_down_of_width_0),
    BUG(a_shuffle_xor_of_width_12),
    BUG(barrier_deadlock),
    BUG(barriers_of_two_branches),
    BUG(half_a_product),
    BUG(a_product_of_a_short_warp),
    BUG(half_a_load_of_matrices),
    BUG(misaligned_matrix),
    BUG(a_load_of_matrices_by_a_short_warp),
    BUG(missing_syncwarp_before_ldmatrix),
    BUG(rows_that_meet_in_a_bank),
    BUG(lanes_that_meet_in_a_bank),
    BUG(missing_wait_for_copies),
    BUG(copies_over_what_is_still_read),
    BUG(missing_syncthreads_behind_copies),
    BUG(copies_that_nobody_waits_for),
    BUG(a_misaligned_place_for_cp_async),
    BUG(a_misaligned_source_of_cp_async),
    BUG(more_bytes_than_cp_async_copies),
    BUG(fewer_bytes_than_none_by_cp_async),
    BUG(an_mbarrier_never_initialised),
    BUG(missing_syncthreads_behind_an_init),
    BUG(an_mbarrier_overwritten),
    BUG(an_mbarrier_initialised_twice),
    BUG(an_mbarrier_for_nobody),
    BUG(a_misaligned_mbarrier),
    BUG(missing_fence_behind_an_init),
    BUG(a_fence_of_mbarriers_by_another_thread),
    BUG(an_arrival_too_many),
    BUG(an_arrival_too_few),
    BUG(more_bytes_than_an_mbarrier_counts),
    BUG(waiting_for_the_other_parity),
    BUG(waiting_for_a_third_parity),
    BUG(reading_before_tma_has_landed),
    BUG(tma_over_what_is_still_read),
    BUG(fewer_bytes_expected_than_a_copy_has),
    BUG(an_argument_that_is_no_tensor_map),
    BUG(missing_wait_for_tma),
    BUG(missing_wait_before_tma),
    BUG(a_tile_released_before_wgmma_has_read_it),
    BUG(fewer_bytes_expected_than_tma_brings),
    BUG(more_bytes_expected_than_tma_brings),
    BUG(misaligned_place_for_tma),
    BUG(coordinates_of_another_tensor),
    BUG(a_copy_by_tma_that_nobody_waits_for),
    BUG(missing_wgmma_fence),
    BUG(missing_wait_for_wgmma),
    BUG(missing_commit_of_wgmma),
    BUG(sums_written_under_wgmma),
    BUG(sums_written_before_the_wait_for_wgmma),
    BUG(another_swizzle_than_tmas),
    BUG(a_matrix_that_begins_within_its_swizzle),
    BUG(a_matrix_beyond_shared_memory),
    BUG(a_misaligned_matrix_for_wgmma),
    BUG(a_descriptor_with_a_base_offset),
    BUG(a_descriptor_with_reserved_bits),
    BUG(a_warpgroup_of_three_warps),
    BUG(wgmma_by_half_a_warp),
    BUG(wgmma_by_a_short_warp),
    BUG(warps_with_different_products),
    BUG(lanes_with_different_products),
    BUG(a_warpgroup_from_the_second_warp_on),
    BUG(sums_of_products_of_two_sizes),
    BUG(missing_proxy_fence),
    BUG(missing_event),
    BUG(missing_synchronisation),
    BUG(pinned_memory_reused_too_early),
    BUG(host_reads_device_memory),
    BUG(host_writes_device_memory),
    BUG(missing_threadfence),
    BUG(missing_threadfence_of_the_reader),
    BUG(a_threadfence_before_the_threads_meet),
    BUG(a_threadfence_by_another_thread),
    BUG(a_threadfence_of_the_reader_by_another_thread),
    BUG(missing_syncthreads_before_an_atomic),
    BUG(missing_syncwarp_before_a_threadfence),
    BUG(an_argument_that_a_graph_keeps),
    BUG(missing_event_in_a_graph),
    BUG(a_branch_that_a_graph_does_not_join),
    BUG(waiting_in_a_capture),
    BUG(waiting_for_the_device_in_a_capture),
    BUG(waiting_for_an_event_in_a_capture),
    BUG(a_query_of_a_stream_in_a_capture),
    BUG(a_query_of_an_event_in_a_capture),
    BUG(memory_taken_in_a_capture),
    BUG(pageable_memory_in_a_capture),
    BUG(a_copy_that_waits_in_a_capture),
    BUG(memory_of_another_card),
    BUG(a_stream_of_another_card),
    BUG(two_ranks_on_one_card),
    BUG(a_rank_that_comes_twice),
    BUG(ranks_that_count_themselves_differently),
    BUG(a_queue_of_no_operations),
    BUG(a_misspelt_word),
    BUG(a_seed_that_is_no_number),
    BUG(a_rank_that_never_comes),
    BUG(sends_in_a_circle),
    BUG(an_event_before_nccl_has_launched),
    BUG(launches_into_a_full_queue),
    BUG(a_kernel_loaded_behind_a_collective),
    BUG(memory_taken_behind_a_collective),
    BUG(a_graph_made_behind_a_collective),
    BUG(a_group_made_behind_a_collective),
    BUG(half_a_product_of_tf32),
    BUG(a_product_of_tf32_by_a_short_warp),
    BUG(a_factor_that_is_no_tf32),
    BUG(half_a_store_of_matrices),
    BUG(a_store_of_matrices_by_a_short_warp),
    BUG(a_misaligned_row_for_stmatrix),
    BUG(missing_syncwarp_behind_stmatrix),
};

int run_bug(const char *name, bool bug)
{
    for (const auto &b : bugs)
        if (!strcmp(b.name, name)) {
            int right = b.is_right(bug);
            printf("%s\n", right ? "right" : "wrong");
            return 0;
        }
    printf("there is no bug %s\n", name);
    return 2;
}
