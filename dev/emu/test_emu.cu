// test_emu.cu: the emulator does what CUDA's manuals say, in every order that they allow, and finds the faults of
// test_emu_bugs.cu.
#include "test_emu.h"
#include "cp_async.h"
#include "cuda_fp16.h"
#include "ldmatrix.h"
#include "mma_sync.h"
#include "tma.h"
#include "wgmma.h"
#include "test/test.h"
#include <random>
#include <set>

template <class F> static void in_every_order(F f)
{
    for (const char *order : {"forward", "reverse", "random:1", "random:2"}) {
        setenv("GX_EMU_ORDER", order, 1);
        f(order);
    }
    unsetenv("GX_EMU_ORDER");
}
template <class F> static void with_streams_of_every_kind(F f)
{
    for (const char *streams : {"late", "eager", "random:1", "random:2", "random:3"}) {
        setenv("GX_EMU_STREAMS", streams, 1);
        f(streams);
    }
    unsetenv("GX_EMU_STREAMS");
}
static bool is_nan_pattern(float x) { return __float_as_uint(x) == 0xffffffffu; }

// ---- threads and blocks --------------------------------------------------------------------------------------------
__global__ void mark(unsigned *seen)
{
    unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    seen[b * blockDim.x * blockDim.y * blockDim.z + t] += 1;
}
TEST(every_thread_of_every_block_runs_once)
{
    in_every_order([](const char *order) {
        const dim3 grid(3, 2, 4), threads(5, 3, 4);
        Buffer<unsigned> seen(std::vector<unsigned>(24 * 60, 0));
        GX_LAUNCH(mark, grid, threads, 0, 0, seen.data);
        for (unsigned n : seen.download()) CHECK(n == 1, "%s: %u times", order, n);
    });
}

__global__ void take_numbers(int *number, int *taken)
{
    number[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(taken, 1);
}
static std::vector<int> numbers_taken(const char *order)
{
    Buffer<int> number(std::vector<int>(3 * 64, 0)), taken(std::vector<int>(1, 0));
    setenv("GX_EMU_ORDER", order, 1);
    GX_LAUNCH(take_numbers, 3, 64, 0, 0, number.data, taken.data);
    std::vector<int> numbers = number.download();
    unsetenv("GX_EMU_ORDER");
    return numbers;
}
TEST(random_orders_differ_from_launch_to_launch_and_begin_anew_with_another_seed)
{
    const std::vector<int> first = numbers_taken("random:11"), second = numbers_taken("random:11"),
                           other = numbers_taken("random:12"), again = numbers_taken("random:11");
    CHECK(first != second, "a kernel that is launched again has the same order");
    CHECK(first != other, "two seeds give the same order");
    CHECK(first == again, "the same seed begins with another order");
    CHECK(numbers_taken("forward") == numbers_taken("forward"), "threads go forward in two ways");
}

__global__ void transpose(float *y, const float *x, int n)
{
    GX_SHARED(float, tile, [8][9]);
    int i = blockIdx.y * 8 + threadIdx.y, j = blockIdx.x * 8 + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = x[i * n + j];
    __syncthreads();
    y[(blockIdx.x * 8 + threadIdx.y) * n + blockIdx.y * 8 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
TEST(shared_tiles_transpose)
{
    in_every_order([](const char *order) {
        const int n = 24;
        Buffer<float> x(counting(n * n)), y(n * n);
        GX_LAUNCH(transpose, dim3(n / 8, n / 8), dim3(8, 8), 0, 0, y.data, x.data, n);
        std::vector<float> result = y.download();
        for (int i = 0; i < n * n; i++)
            CHECK(result[i] == i % n * n + i / n, "%s: element %d is %g", order, i, result[i]);
    });
}

__global__ void look_at_fresh_memory(float *y, const float *x)
{
    GX_SHARED(float, fixed, );
    GX_DYNAMIC_SHARED(float, row);
    y[0] = fixed, y[1] = row[0], y[2] = row[9], y[3] = x[0], y[4] = x[99];
    fixed = row[0] = row[9] = 0;
}
TEST(fresh_memory_is_nan_in_every_block)
{
    Buffer<float> x(100), y(5);
    GX_LAUNCH(look_at_fresh_memory, 3, 1, 10 * sizeof(float), 0, y.data, x.data);
    for (float v : y.download()) CHECK(is_nan_pattern(v), "%g", v);
}

__global__ void vote_in_block(int *y)
{
    int t = threadIdx.x, n = __syncthreads_count(t % 3 == 0), any = __syncthreads_or(t == 7),
        none = __syncthreads_or(0);
    int all = __syncthreads_and(t < 100), some = __syncthreads_and(t < 99);
    y[t] = n + 1000 * (any != 0) + 2000 * (none != 0) + 4000 * (all != 0) + 8000 * (some != 0);
}
TEST(barriers_count_votes)
{
    in_every_order([](const char *order) {
        Buffer<int> y(100);
        GX_LAUNCH(vote_in_block, 1, 100, 0, 0, y.data);
        for (int v : y.download()) CHECK(v == 34 + 1000 + 4000, "%s: %d", order, v);
    });
}

__global__ void exit_early(int *y)
{
    if (threadIdx.x % 2) return;
    for (int i = 0; i < 3; i++) __syncthreads();
    y[threadIdx.x] = __syncthreads_count(1);
}
TEST(threads_that_have_exited_are_not_waited_for)
{
    in_every_order([](const char *order) {
        Buffer<int> y(70);
        GX_LAUNCH(exit_early, 1, 70, 0, 0, y.data);
        std::vector<int> result = y.download();
        for (int i = 0; i < 70; i += 2) CHECK(result[i] == 35, "%s: %d", order, result[i]);
    });
}

__global__ void sum_by_the_last_block(float *total, float *parts, unsigned *arrived, const float *x)
{
    GX_SHARED(float, part, [64]);
    GX_SHARED(unsigned, last, );
    part[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    for (unsigned half = 32; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = part[0];
        __threadfence();
        last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned b = 0; b < gridDim.x; b++) sum += parts[b];
        *total = sum;
    }
}
TEST(the_last_block_sees_what_all_blocks_wrote)
{
    for (const char *fences : {"early", "late"})
        in_every_order([fences](const char *order) {
            Buffer<float> x(counting(640)), parts(10), total(1);
            Buffer<unsigned> arrived(std::vector<unsigned>{0});
            setenv("GX_EMU_FENCES", fences, 1);
            for (int i = 0; i < 2; i++)
                GX_LAUNCH(sum_by_the_last_block, 10, 64, 0, 0, total.data, parts.data, arrived.data, x.data);
            CHECK(total.download()[0] == 639 * 640 / 2, "%s, %s: %g", fences, order, total.download()[0]);
            CHECK(arrived.download()[0] == 0, "%s, %s: the counter is %u", fences, order, arrived.download()[0]);
        });
    unsetenv("GX_EMU_FENCES");
}

// ---- warps ---------------------------------------------------------------------------------------------------------
enum { SHUFFLE_INDEX, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, SHUFFLES };
template <class T> __global__ void shuffle_all(T *y, int kind, int b, int width)
{
    T v = (T)(threadIdx.x + 100);
    int lane = threadIdx.x;
    y[lane] = kind == SHUFFLE_INDEX  ? __shfl_sync(0xffffffffu, v, b, width)
              : kind == SHUFFLE_UP   ? __shfl_up_sync(0xffffffffu, v, b, width)
              : kind == SHUFFLE_DOWN ? __shfl_down_sync(0xffffffffu, v, b, width)
                                     : __shfl_xor_sync(0xffffffffu, v, b, width);
}
// The pseudocode of shfl.sync in the PTX ISA.
static int shuffle_source(int kind, int lane, int b, int width)
{
    int segment = (32 - width) & 31, clamp = kind == SHUFFLE_UP ? 0 : 31;
    int last = (lane & segment) | (clamp & ~segment), first = lane & segment, source = 0;
    bool valid = false;
    if (kind == SHUFFLE_UP) source = lane - b, valid = source >= last;
    if (kind == SHUFFLE_DOWN) source = lane + b, valid = source <= last;
    if (kind == SHUFFLE_XOR) source = lane ^ b, valid = source <= last;
    if (kind == SHUFFLE_INDEX) source = first | (b & ~segment), valid = source <= last;
    return valid ? source : lane;
}
template <class T> static void check_shuffles(const char *type)
{
    Buffer<T> y(32);
    for (int kind = 0; kind < SHUFFLES; kind++)
        for (int width = 1; width <= 32; width *= 2)
            for (int b = 0; b < 32; b += width < 8 ? 3 : 1) {
                GX_LAUNCH(shuffle_all<T>, 1, 32, 0, 0, y.data, kind, b, width);
                std::vector<T> result = y.download();
                for (int lane = 0; lane < 32; lane++) {
                    T right = (T)(shuffle_source(kind, lane, b, width) + 100);
                    CHECK(result[lane] == right, "%s, kind %d, width %d, %d: lane %d", type, kind, width, b, lane);
                }
            }
}
TEST(shuffles_read_the_lane_that_ptx_says)
{
    check_shuffles<int>("int");
    check_shuffles<unsigned>("unsigned");
    check_shuffles<float>("float");
    check_shuffles<double>("double");
    check_shuffles<long long>("long long");
}

__global__ void two_halves(int *y)
{
    int lane = threadIdx.x % 32, v = lane;
    unsigned mask = lane < 12 ? 0x00000fffu : 0xfffff000u;
    if (lane < 12) {
        for (int i = 0; i < 5; i++) v += __shfl_sync(mask, v, 0);
    } else {
        for (int i = 0; i < 9; i++) v = __shfl_sync(mask, v + 1, 31 - i);
        v += __popc(__ballot_sync(mask, lane % 2));
    }
    __syncwarp();
    y[threadIdx.x] = v + __shfl_sync(0xffffffffu, lane, 5);
}
TEST(parts_of_a_warp_go_their_own_ways)
{
    in_every_order([](const char *order) {
        Buffer<int> y(64);
        GX_LAUNCH(two_halves, 1, 64, 0, 0, y.data);
        std::vector<int> result = y.download();
        for (int i = 0; i < 64; i++) {
            int lane = i % 32, upper = 31 + 9;
            CHECK(result[i] == (lane < 12 ? lane + 5 : upper + 10 + 5), "%s: thread %d has %d", order, i, result[i]);
        }
    });
}

__global__ void votes(unsigned *y)
{
    unsigned all = 0xffffffffu, lane = threadIdx.x;
    y[lane] = __ballot_sync(all, lane % 5 == 0) ^ __match_any_sync(all, lane % 4) ^ __reduce_add_sync(all, lane) ^
              __reduce_max_sync(all, lane) << 8 ^ __reduce_or_sync(all, 1u << lane / 8) << 20 ^
              (unsigned)__any_sync(all, lane == 3) << 16 ^ (unsigned)__all_sync(all, lane == 3) << 17;
}
TEST(votes_see_every_lane)
{
    in_every_order([](const char *order) {
        Buffer<unsigned> y(32);
        GX_LAUNCH(votes, 1, 32, 0, 0, y.data);
        std::vector<unsigned> result = y.download();
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned right = 0x42108421u ^ 0x11111111u << lane % 4 ^ 496u ^ 31u << 8 ^ 15u << 20 ^ 1u << 16;
            CHECK(result[lane] == right, "%s: lane %u has %x, not %x", order, lane, result[lane], right);
        }
    });
}

__global__ void last_warp_is_short(int *y)
{
    int v = threadIdx.x;
    for (int d = 16; d; d /= 2) {
        int other = __shfl_down_sync(0xffffffffu, v, d);
        if (threadIdx.x % 32 + d < 32 && threadIdx.x + d < blockDim.x) v += other;
    }
    if (threadIdx.x % 32 == 0) y[threadIdx.x / 32] = v;
}
TEST(a_warp_may_be_short)
{
    Buffer<int> y(2);
    GX_LAUNCH(last_warp_is_short, 1, 40, 0, 0, y.data);
    CHECK(y.download()[0] == 496 && y.download()[1] == 32 * 8 + 28, "%d, %d", y.download()[0], y.download()[1]);
}

// ---- words ---------------------------------------------------------------------------------------------------------
struct Atomics {
    int add, max, min, locked;
    unsigned inc, dec, bits, taken;
    unsigned long long big;
    float f;
    double d;
};
__global__ void use_atomics(Atomics *a)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&a->add, i);
    atomicSub(&a->add, 1);
    atomicMax(&a->max, i % 100);
    atomicMin(&a->min, -i % 100);
    atomicInc(&a->inc, 6);
    atomicDec(&a->dec, 6);
    atomicOr(&a->bits, 1u << i % 32);
    atomicAdd(&a->big, 1ull << 40);
    atomicAdd(&a->f, 1.0f);
    atomicAdd(&a->d, 0.5);
    while (atomicCAS(&a->taken, 0u, 1u)) __nanosleep(1);
    a->locked++;
    atomicExch(&a->taken, 0u);
}
TEST(atomics_lose_nothing)
{
    in_every_order([](const char *order) {
        Buffer<Atomics> a(std::vector<Atomics>{Atomics{}});
        GX_LAUNCH(use_atomics, 4, 64, 0, 0, a.data);
        Atomics r = a.download()[0];
        CHECK(r.add == 255 * 128 - 256 && r.max == 99 && r.min == -99, "%s: %d, %d, %d", order, r.add, r.max, r.min);
        CHECK(r.inc == 256 % 7 && r.dec == (7 - 256 % 7) % 7 && r.bits == ~0u, "%s: %u, %u, %x", order, r.inc, r.dec,
              r.bits);
        CHECK(r.big == 256ull << 40 && r.f == 256 && r.d == 128 && r.locked == 256, "%s: %g, %g, %d", order, r.f, r.d,
              r.locked);
    });
}

TEST(bits_and_arithmetic)
{
    CHECK(__popc(0xf0f0u) == 8 && __clz(0) == 32 && __clz(1) == 31 && __ffs(0) == 0 && __ffs(8) == 4 &&
              __brev(1) == 0x80000000u,
          "bits");
    CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x7041u) == 0x77004411u, "%x",
          __byte_perm(0x33221100u, 0x77665544u, 0x7041u));
    CHECK(__umulhi(0xffffffffu, 0xffffffffu) == 0xfffffffeu && __mulhi(-1, 1) == -1, "upper halves of products");
    CHECK(__funnelshift_l(0x80000000u, 1, 1) == 3 && __funnelshift_r(0, 1, 1) == 0x80000000u, "funnel shifts");
    CHECK(max(NAN, 1.0f) == 1 && min(2.0f, NAN) == 2 && max(1, 2u) == 2 && min(-1L, 3L) == -1, "min and max");
    CHECK(rsqrtf(4) == 0.5f && __fdividef(1, 4) == 0.25f && __saturatef(2) == 1 && __expf(0) == 1 && __logf(1) == 0,
          "arithmetic");
    CHECK(__float_as_uint(-0.0f) == 0x80000000u && __int_as_float(0x3f800000) == 1, "the same bits as another type");
}

TEST(bf16_rounds_to_nearest_even)
{
    for (unsigned u = 0; u < 65536; u++) {
        float f = __bfloat162float(__ushort_as_bfloat16((unsigned short)u));
        if (std::isnan(f)) continue;
        CHECK(__bfloat16_as_ushort(__float2bfloat16_rn(f)) == u, "%x is not kept", u);
        if ((u & 0x7f80) == 0x7f80) continue;
        unsigned between = u << 16 | 0x8000; // half-way to the next number away from zero
        for (int d = -1; d <= 1; d++) {
            unsigned short right = (unsigned short)(u + (d > 0 || (d == 0 && (u & 1))));
            unsigned short got = __bfloat16_as_ushort(__float2bfloat16_rn(__uint_as_float(between + d)));
            CHECK(got == right, "%x%+d became %x", between, d, got);
        }
    }
    CHECK(__bfloat16_as_ushort(__float2bfloat16(NAN)) == 0x7fff, "NaN");
    CHECK((float)__double2bfloat16(1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7f &&
              (float)__double2half(-1 - 0x1p-11 - 0x1p-40) == -1 - 0x1p-10f,
          "doubles are rounded once");
    __nv_bfloat162 two = __floats2bfloat162_rn(1, 2);
    float2 back = __bfloat1622float2(__hmul2(two, two));
    CHECK(back.x == 1 && back.y == 4 && __low2float(two) == 1 && __high2float(two) == 2, "pairs: %g, %g", back.x,
          back.y);
    CHECK((float)(__nv_bfloat16(256.0f) + __nv_bfloat16(1.0f)) == 256, "a sum is rounded");
}

#ifdef __FLT16_MANT_DIG__ // the compiler's own fp16
static unsigned short compiled_fp16(float f) { return __builtin_bit_cast(unsigned short, (_Float16)f); }
TEST(fp16_is_the_compilers)
{
    for (unsigned u = 0; u < 65536; u++) {
        float f = __half2float(__ushort_as_half((unsigned short)u)),
              right = (float)__builtin_bit_cast(_Float16, (unsigned short)u);
        CHECK(std::isnan(f) ? std::isnan(right) : f == right && std::signbit(f) == std::signbit(right),
              "%x is %g, not %g", u, f, right);
        if (!std::isnan(f)) CHECK(__half_as_ushort(__float2half_rn(f)) == u, "%x is not kept", u);
    }
    std::mt19937 random(1);
    for (int i = 0; i < 200000; i++) {
        float f = __uint_as_float(((unsigned)random() & 0x8fffffffu) |
                                  0x30000000u); // 2^-31 to 2^31, and beyond on both sides
        if (i % 2) f = __uint_as_float((__float_as_uint(f) & ~0x1fffu) | 0x1000u); // half-way
        unsigned short got = __half_as_ushort(__float2half_rn(f));
        CHECK(std::isnan(f) ? got == 0x7fff : got == compiled_fp16(f), "%g became %x, not %x", f, got,
              compiled_fp16(f));
    }
}
#endif

// How an instruction is added beside the engine: a copy that lands when its thread waits for it, never before.
struct DeferredCopy {
    float *to = nullptr;
    float value = 0;
};
static int copies_never_waited_for;
static void count_copies_never_waited_for()
{
    copies_never_waited_for += emu::per_thread<DeferredCopy>().to != nullptr;
}
static const bool counting_copies = emu::at_exit(&emu::last_block_with<DeferredCopy>, count_copies_never_waited_for);
__global__ void copy_later(float *y, bool wait)
{
    emu::per_thread<DeferredCopy>() = {y + threadIdx.x, 5};
    __syncthreads();
    DeferredCopy &copy = emu::per_thread<DeferredCopy>();
    if (wait) *copy.to = copy.value, copy.to = nullptr;
}
TEST(instructions_are_added_beside_the_engine)
{
    Buffer<float> y(64);
    for (bool wait : {true, false}) {
        copies_never_waited_for = 0;
        GX_LAUNCH(copy_later, 2, 64, 0, 0, y.data, wait);
        CHECK(y.download()[63] == 5, "%g", y.download()[63]);
        CHECK(counting_copies && copies_never_waited_for == (wait ? 0 : 128), "%d were never waited for",
              copies_never_waited_for);
    }
}

// ---- tensor cores and asynchronous copies --------------------------------------------------------------------------
// Where element i of a lane's fragments lies, as the PTX ISA's formulas say for mma.m16n8k16.
static int a_row(int lane, int i) { return (i < 2 || (i >= 4 && i < 6)) ? lane >> 2 : (lane >> 2) + 8; }
static int a_column(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8); }
static int b_row(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8); }
static int c_row(int lane, int i) { return (lane >> 2) + (i < 2 ? 0 : 8); }
static int c_column(int lane, int i) { return lane % 4 * 2 + (i & 1); }

template <class T> struct MmaLane {
    T a[8], b[4];
    float c[4];
};
template <class T> __global__ void multiply(MmaLane<T> *x)
{
    MmaLane<T> &mine = x[threadIdx.x];
    unsigned a[4], b[2];
    memcpy(a, mine.a, sizeof a);
    memcpy(b, mine.b, sizeof b);
    gx_mma<T>(mine.c, a, b[0], b[1]);
}
template <class T> static void check_mma(const char *order)
{
    std::mt19937 random(1);
    auto draw = [&] { return (float)((int)(random() % 33) - 16) / 8; }; // sums of products are exact
    float a[16][16], b[16][8], c[16][8];
    for (auto &row : a)
        for (float &x : row) x = draw();
    for (auto &row : b)
        for (float &x : row) x = draw();
    for (auto &row : c)
        for (float &x : row) x = draw();
    std::vector<MmaLane<T>> lanes(64); // of two warps
    for (int t = 0; t < 64; t++) {
        const int lane = t % 32;
        for (int i = 0; i < 8; i++) lanes[t].a[i] = T(a[a_row(lane, i)][a_column(lane, i)]);
        for (int i = 0; i < 4; i++) lanes[t].b[i] = T(b[b_row(lane, i)][lane >> 2]);
        for (int i = 0; i < 4; i++) lanes[t].c[i] = c[c_row(lane, i)][c_column(lane, i)] + (float)(t / 32);
    }
    Buffer<MmaLane<T>> x(lanes);
    GX_LAUNCH(multiply<T>, 1, 64, 0, 0, x.data);
    lanes = x.download();
    for (int t = 0; t < 64; t++)
        for (int i = 0; i < 4; i++) {
            const int row = c_row(t % 32, i), column = c_column(t % 32, i);
            float expected = c[row][column] + (float)(t / 32);
            for (int k = 0; k < 16; k++) expected += a[row][k] * b[k][column];
            CHECK(lanes[t].c[i] == expected, "%s: [%d,%d] is %g, not %g", order, row, column, lanes[t].c[i], expected);
        }
}
TEST(mma_multiplies_what_the_fragments_hold)
{
    in_every_order([](const char *order) {
        check_mma<__nv_bfloat16>(order);
        check_mma<__half>(order);
    });
}

// Matrix i's element [r][c] is 100 i + 10 r + c; rows of it lie `stride` bytes apart.
template <int N, bool TRANS> __global__ void load_matrices(unsigned *y, int stride)
{
    GX_DYNAMIC_SHARED(unsigned char, tile);
    const int lane = (int)threadIdx.x;
    for (int c = 0; c < 8; c++)
        ((unsigned short *)(tile + lane * stride))[c] = (unsigned short)(lane / 8 * 100 + lane % 8 * 10 + c);
    __syncthreads();
    unsigned r[N];
    gx_ldmatrix<N, TRANS>(r, lane < 8 * N ? tile + lane * stride : nullptr);
    for (int i = 0; i < N; i++) y[lane * N + i] = r[i];
}
template <int N, bool TRANS> static void check_ldmatrix(const char *order)
{
    for (int stride : {16, 48, 64, 128, 144}) {
        Buffer<unsigned> y(32 * N);
        emu::bank_conflicts = 0;
        GX_LAUNCH((load_matrices<N, TRANS>), 1, 32, (size_t)(32 * stride), 0, y.data, stride);
        const std::vector<unsigned> r = y.download();
        // Rows 64 bytes apart meet in two banks of 16 bytes, four at a time; 128 bytes apart in one.
        const int further = stride == 64 ? 3 : stride == 128 ? 7 : 0;
        CHECK(emu::bank_conflicts == further * N, "%s: %d bytes apart: %lld conflicts of %d matrices", order, stride,
              emu::bank_conflicts, N);
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < N; i++)
                for (int half = 0; half < 2; half++) {
                    const int row = lane / 4, column = lane % 4 * 2 + half;
                    const unsigned expected = (unsigned)(100 * i + (TRANS ? 10 * column + row : 10 * row + column));
                    CHECK((r[(size_t)(lane * N + i)] >> 16 * half & 0xffff) == expected, "%s: x%d%s, lane %d", order, N,
                          TRANS ? ".trans" : "", lane);
                }
    }
}
TEST(ldmatrix_gives_each_lane_its_parts)
{
    in_every_order([](const char *order) {
        check_ldmatrix<1, false>(order), check_ldmatrix<1, true>(order);
        check_ldmatrix<2, false>(order), check_ldmatrix<2, true>(order);
        check_ldmatrix<4, false>(order), check_ldmatrix<4, true>(order);
    });
}

// What is in shared memory behind a thread's two groups of copies: begun, the first waited for, both.
__global__ void copy_in_two_groups(float *y, const float *x)
{
    GX_SHARED(float, tile, [64][8]);
    float *mine = tile[threadIdx.x];
    for (int i = 0; i < 8; i++) mine[i] = 7;
    gx_cp_async<16>(mine, x + threadIdx.x * 8, 16);
    gx_cp_async_commit();
    gx_cp_async<4>(mine + 4, x + threadIdx.x * 8 + 4, 4);
    gx_cp_async<4>(mine + 5, x + threadIdx.x * 8 + 5, 0);
    gx_cp_async_commit();
    for (int wait = 0; wait < 3; wait++) {
        if (wait == 1) gx_cp_async_wait<1>();
        if (wait == 2) gx_cp_async_wait<0>();
        for (int i = 0; i < 8; i++) y[(threadIdx.x * 3 + wait) * 8 + i] = mine[i];
    }
}
TEST(copies_land_when_their_group_is_waited_for)
{
    in_every_order([](const char *order) {
        Buffer<float> x(counting(64 * 8)), y(64 * 3 * 8);
        GX_LAUNCH(copy_in_two_groups, 1, 64, 0, 0, y.data, x.data);
        const std::vector<float> seen = y.download();
        for (int t = 0; t < 64; t++)
            for (int n = 0; n < 24; n++) {
                const int wait = n / 8, i = n % 8;
                const float is = seen[(size_t)(t * 24 + n)], copied = (float)(t * 8 + i);
                const bool landed = i < 4 ? wait > 0 : wait > 1;
                const bool right = i >= 6 ? is == 7 : !landed ? is_nan_pattern(is) : is == (i == 5 ? 0 : copied);
                CHECK(right, "%s: thread %d, number %d, after %d waits: %g", order, t, i, wait, is);
            }
    });
}

#include "test_emu_banks.h"
#include "test_emu_hopper.h"
#include "test_emu_tiles.h"

__constant__ float coefficients[3];
template <int N, class T> __global__ void polynomial(T *y, const T *x)
{
    T sum = 0;
    for (int i = N - 1; i >= 0; i--) sum = sum * x[threadIdx.x] + coefficients[i];
    y[threadIdx.x] = sum;
}
TEST(constant_memory_and_templates)
{
    const float host[3] = {1, 2, 3};
    Buffer<float> x(counting(8)), y(8);
    CHECK(cudaMemcpyToSymbol(coefficients, host, sizeof host) == cudaSuccess, "%s",
          cudaGetErrorString(cudaGetLastError()));
    GX_LAUNCH((polynomial<3, float>), 1, 8, 0, 0, y.data, x.data);
    CHECK(y.download()[2] == 1 + 2 * 2 + 3 * 4, "%g", y.download()[2]);
}

// ---- launches ------------------------------------------------------------------------------------------------------
__global__ void nothing() {}
__global__ void nothing_with_much_memory() {}
TEST(limits_of_a_launch_are_the_cards)
{
    static const struct {
        dim3 grid, block;
        size_t shared;
        cudaError_t error;
    } cases[] = {
        {dim3(1), dim3(1024), 0, cudaSuccess},
        {dim3(1), dim3(1025), 0, cudaErrorInvalidConfiguration},
        {dim3(1), dim3(32, 33), 0, cudaErrorInvalidConfiguration},
        {dim3(1), dim3(1, 1, 65), 0, cudaErrorInvalidConfiguration},
        {dim3(0), dim3(1), 0, cudaErrorInvalidConfiguration},
        {dim3(1), dim3(0), 0, cudaErrorInvalidConfiguration},
        {dim3(1, 65535), dim3(1), 0, cudaSuccess},
        {dim3(1, 65536), dim3(1), 0, cudaErrorInvalidConfiguration},
        {dim3(1), dim3(1), 48 << 10, cudaSuccess},
        {dim3(1), dim3(1), (48 << 10) + 1, cudaErrorInvalidValue},
    };
    for (const auto &c : cases) {
        GX_LAUNCH(nothing, c.grid, c.block, c.shared, 0);
        cudaError_t peeked = cudaPeekAtLastError(), got = cudaGetLastError(), after = cudaGetLastError();
        CHECK(got == c.error && peeked == c.error && after == cudaSuccess, "grid %u,%u, block %u,%u,%u, %zu bytes: %s",
              c.grid.x, c.grid.y, c.block.x, c.block.y, c.block.z, c.shared, cudaGetErrorName(got));
        cudaDeviceSynchronize();
    }
    int most = 0, blocks = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    CHECK(most == 227 << 10, "%d on an H100", most);
    setenv("GX_EMU_CAPABILITY", "8.0", 1);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    CHECK(most == 163 << 10, "%d on an A100", most);
    CHECK(cudaFuncSetAttribute(nothing_with_much_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, most) ==
              cudaSuccess,
          "opting in");
    GX_LAUNCH(nothing_with_much_memory, 1, 1, most, 0);
    CHECK(cudaDeviceSynchronize() == cudaSuccess && cudaGetLastError() == cudaSuccess, "a launch with all of it");
    CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1) == cudaErrorInvalidValue,
          "more than there is");
    cudaGetLastError();
    setenv("GX_EMU_SHARED", "99", 1);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    CHECK(most == 99 << 10, "%d on a small card", most);
    CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10) ==
              cudaErrorInvalidValue,
          "a small card");
    unsetenv("GX_EMU_SHARED");
    cudaGetLastError();
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 256, 40 << 10);
    CHECK(blocks == 4, "%d blocks", blocks);
    setenv("GX_EMU_CAPABILITY", "9.0", 1);
}

struct Parameters {
    float a[4];
};
__global__ void keep(float *y, Parameters p, double third) { y[0] = p.a[2], y[1] = (float)third; }
TEST(parameters_are_converted_and_copied_at_the_launch)
{
    Buffer<float> y(2);
    Parameters p = {{1, 2, 3, 4}};
    int third = 5;
    GX_LAUNCH(keep, 1, 1, 0, 0, y.data, p, third);
    p.a[2] = 0, third = 0;
    CHECK(y.download()[0] == 3 && y.download()[1] == 5, "%g, %g", y.download()[0], y.download()[1]);
}

// ---- memory --------------------------------------------------------------------------------------------------------
TEST(memory_is_counted_and_runs_out)
{
    size_t before, with, after, total;
    void *p = nullptr;
    cudaMemGetInfo(&before, &total);
    CHECK(cudaMalloc(&p, 1000) == cudaSuccess && (uintptr_t)p % 256 == 0, "at %p", p);
    cudaMemGetInfo(&with, &total);
    CHECK(cudaFree((char *)p + 1) == cudaErrorInvalidValue && cudaFree(p) == cudaSuccess &&
              cudaFree(p) == cudaErrorInvalidValue,
          "frees");
    cudaMemGetInfo(&after, &total);
    CHECK(before - with == 1024 && after == before, "%zu, %zu, %zu", before, with, after);
    CHECK(cudaMalloc(&p, total + 1) == cudaErrorMemoryAllocation && !p &&
              cudaGetLastError() == cudaErrorMemoryAllocation,
          "more than all");
}

TEST(copies_are_checked_against_what_pointers_are)
{
    Buffer<float> x(10), y(10);
    float host[10] = {};
    CHECK(cudaMemcpy(host, x.data, 40, cudaMemcpyHostToDevice) == cudaErrorInvalidValue,
          "device to host called host to device");
    CHECK(cudaMemcpy(y.data, x.data, 40, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue,
          "device to device called device to host");
    CHECK(cudaMemcpy(x.data, host, 44, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "too much");
    CHECK(cudaMemset(host, 0, 40) == cudaErrorInvalidValue, "a fill of host memory");
    CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess, "the last error");
    CHECK(cudaMemcpy(x.data, host, 40, cudaMemcpyDefault) == cudaSuccess, "a copy that finds out itself");
    cudaPointerAttributes a;
    cudaPointerGetAttributes(&a, x.data + 3);
    CHECK(a.type == cudaMemoryTypeDevice, "%d", a.type);
}

TEST(copies_of_rows)
{
    Buffer<float> x(std::vector<float>(5 * 8, 0));
    std::vector<float> host = counting(3 * 4);
    cudaMemcpy2DAsync(x.data, 8 * 4, host.data(), 4 * 4, 4 * 4, 3, cudaMemcpyHostToDevice);
    std::vector<float> result = x.download();
    for (int i = 0; i < 40; i++)
        CHECK(result[i] == (i / 8 < 3 && i % 8 < 4 ? i / 8 * 4 + i % 8 : 0), "element %d is %g", i, result[i]);
}

// ---- streams -------------------------------------------------------------------------------------------------------
__global__ void times_two_plus(float *x, float a) { x[threadIdx.x] = 2 * x[threadIdx.x] + a; }

// Three streams, each step after another stream's step before: the result tells the order.
TEST(events_order_streams)
{
    with_streams_of_every_kind([](const char *kind) {
        Buffer<float> x(std::vector<float>(4, 1));
        cudaStream_t s[3];
        cudaEvent_t e[3];
        for (int i = 0; i < 3; i++)
            cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking),
                cudaEventCreateWithFlags(&e[i], cudaEventDisableTiming);
        float right = 1;
        for (int step = 0; step < 20; step++) {
            int i = step % 3;
            if (step) cudaStreamWaitEvent(s[i], e[(step + 2) % 3], 0);
            GX_LAUNCH(times_two_plus, 1, 4, 0, s[i], x.data, (float)(step % 5));
            cudaEventRecord(e[i], s[i]);
            right = 2 * right + (float)(step % 5);
        }
        cudaEventSynchronize(e[19 % 3]);
        CHECK(x.download()[3] == right, "%s: %g, not %g", kind, x.download()[3], right);
        for (int i = 0; i < 3; i++) cudaStreamDestroy(s[i]), cudaEventDestroy(e[i]);
    });
}

TEST(work_runs_as_late_as_it_may)
{
    Buffer<float> x(std::vector<float>(1, 1)), y(std::vector<float>(1, 1));
    float *seen;
    cudaMallocHost(&seen, 2 * sizeof *seen);
    seen[0] = seen[1] = 0;
    cudaStream_t s, t;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking);
    GX_LAUNCH(times_two_plus, 1, 1, 0, s, x.data, 1.0f);
    cudaMemcpyAsync(seen, x.data, 4, cudaMemcpyDeviceToHost, s);
    GX_LAUNCH(times_two_plus, 1, 1, 0, t, y.data, 1.0f);
    cudaMemcpyAsync(seen + 1, y.data, 4, cudaMemcpyDeviceToHost, t);
    CHECK(seen[0] == 0 && seen[1] == 0, "before: %g, %g", seen[0], seen[1]);
    CHECK(cudaStreamQuery(s) == cudaErrorNotReady && cudaPeekAtLastError() == cudaSuccess,
          "a first question finds it busy");
    cudaStreamSynchronize(t);
    CHECK(seen[0] == 0 && seen[1] == 3, "one synchronised: %g, %g", seen[0], seen[1]);
    while (cudaStreamQuery(s) == cudaErrorNotReady) {}
    CHECK(seen[0] == 3, "asked until it was done: %g", seen[0]);
    cudaStreamDestroy(s), cudaStreamDestroy(t), cudaFreeHost(seen);
}

TEST(the_default_stream_orders_blocking_streams_only)
{
    Buffer<float> x(std::vector<float>(1, 1));
    cudaStream_t blocking, apart;
    cudaStreamCreate(&blocking);
    cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking);
    GX_LAUNCH(times_two_plus, 1, 1, 0, blocking, x.data, 1.0f);
    GX_LAUNCH(times_two_plus, 1, 1, 0, 0, x.data, 2.0f);
    GX_LAUNCH(times_two_plus, 1, 1, 0, blocking, x.data, 3.0f);
    cudaStreamSynchronize(blocking);
    float host = 0;
    cudaMemcpyAsync(&host, x.data, 4, cudaMemcpyDeviceToHost, apart); // to pageable memory: returns when it is done
    CHECK(host == 2 * (2 * 3 + 2) + 3, "%g", host);
    GX_LAUNCH(times_two_plus, 1, 1, 0, 0, x.data, 4.0f);
    cudaMemcpyAsync(&host, x.data, 4, cudaMemcpyDeviceToHost, apart);
    CHECK(host == 19, "the default stream's work was waited for: %g", host);
    GX_LAUNCH(times_two_plus, 1, 1, 0, blocking, x.data, 5.0f);
    CHECK(x.download()[0] == 2 * (2 * 19 + 4) + 5, "a copy in the default stream did not wait: %g", x.download()[0]);
    GX_LAUNCH(times_two_plus, 1, 1, 0, apart, x.data, 6.0f);
    CHECK(x.download()[0] == 89, "a copy in the default stream waited for a stream apart: %g", x.download()[0]);
    cudaStreamDestroy(blocking), cudaStreamDestroy(apart);
}

TEST(pageable_memory_is_read_at_the_call)
{
    Buffer<float> x(1);
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    float host = 1;
    cudaMemcpyAsync(x.data, &host, 4, cudaMemcpyHostToDevice, s);
    host = 2;
    cudaStreamSynchronize(s);
    CHECK(x.download()[0] == 1, "%g", x.download()[0]);
    cudaStreamDestroy(s);
}

TEST(events_measure_time)
{
    cudaEvent_t begin, end, silent;
    cudaEventCreate(&begin), cudaEventCreate(&end), cudaEventCreateWithFlags(&silent, cudaEventDisableTiming);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorInvalidResourceHandle, "never recorded");
    cudaEventRecord(begin);
    cudaLaunchHostFunc(
        nullptr, [](void *) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, nullptr);
    cudaEventRecord(end);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady, "not run yet");
    cudaEventSynchronize(end);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess && ms >= 5, "%g ms", ms);
    cudaEventRecord(silent);
    CHECK(cudaEventElapsedTime(&ms, begin, silent) == cudaErrorInvalidResourceHandle, "an event without time");
    cudaEventDestroy(begin), cudaEventDestroy(end), cudaEventDestroy(silent);
    cudaGetLastError();
}

TEST(host_threads_have_streams_of_their_own)
{
    with_streams_of_every_kind([](const char *kind) {
        std::vector<std::thread> threads;
        std::vector<float> results(4);
        for (int t = 0; t < 4; t++)
            threads.emplace_back([t, &results] {
                Buffer<float> x(std::vector<float>(40, (float)t));
                for (int i = 0; i < 10; i++) GX_LAUNCH(times_two_plus, 1, 40, 0, 0, x.data, 1.0f);
                results[t] = x.download()[39];
            });
        for (std::thread &t : threads) t.join();
        for (int t = 0; t < 4; t++) CHECK(results[t] == 1024 * t + 1023, "%s: thread %d has %g", kind, t, results[t]);
    });
}

// ---- cuBLASLt ------------------------------------------------------------------------------------------------------
struct Gemm {
    int m = 13, n = 18, k = 70, ta = 0, tb = 0, row_a = 0, row_b = 0, row_d = 0, bias = 0;
    bool bf16_in = false, bf16_out = false;
    float alpha = 1, beta = 0;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};
enum { PAD = 8 }; // columns between lines of storage

struct GemmMatrix {
    int rows, cols, ld, row_order, bf16;
    std::vector<float> values; // as stored; NaN between lines
    GemmMatrix(int rows_, int cols_, int row_order_, bool bf16_, int seed)
        : rows(rows_), cols(cols_), ld((row_order_ ? cols_ : rows_) + PAD), row_order(row_order_), bf16(bf16_),
          values((size_t)ld * (row_order_ ? rows_ : cols_), NAN)
    {
        std::mt19937 random(seed);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++) {
                float x = (float)(int)(random() % 2001 - 1000) / 1000;
                at(i, j) = bf16 ? (float)__float2bfloat16(x) : x;
            }
    }
    float &at(int i, int j) { return values[(size_t)(row_order ? i * ld + j : j * ld + i)]; }
    std::vector<char> bytes() const
    {
        std::vector<char> b(values.size() * (bf16 ? 2 : 4));
        for (size_t i = 0; i < values.size(); i++) {
            if (bf16) ((__nv_bfloat16 *)b.data())[i] = values[i];
            else ((float *)b.data())[i] = values[i];
        }
        return b;
    }
    void take(const std::vector<char> &b)
    {
        for (size_t i = 0; i < values.size(); i++)
            values[i] = bf16 ? (float)((const __nv_bfloat16 *)b.data())[i] : ((const float *)b.data())[i];
    }
    cublasLtMatrixLayout_t layout() const
    {
        cublasLtMatrixLayout_t l;
        cublasLtMatrixLayoutCreate(&l, bf16 ? CUDA_R_16BF : CUDA_R_32F, rows, cols, ld);
        int32_t order = row_order ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
        return l;
    }
};

static cublasLtMatmulDesc_t gemm_desc(const Gemm &g, const void *bias)
{
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulDescCreate(&desc, g.compute, CUDA_R_32F);
    int32_t ta = g.ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = g.tb ? CUBLAS_OP_T : CUBLAS_OP_N,
            epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    if (!g.bias) return desc;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    return desc;
}

static cublasStatus_t run_gemm(const Gemm &g, GemmMatrix &a, GemmMatrix &b, GemmMatrix &d, const GemmMatrix &bias,
                               size_t shift)
{
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int n_found = 0;
    size_t workspace_bytes = 1 << 20;
    Buffer<char> A(a.bytes()), B(b.bytes()), D(d.bytes()), Bias(bias.bytes()), workspace(workspace_bytes);
    cublasLtMatmulDesc_t desc = gemm_desc(g, Bias.data);
    cublasLtMatrixLayout_t la = a.layout(), lb = b.layout(), ld = d.layout();
    cublasLtCreate(&handle);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                         sizeof workspace_bytes);
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 1, &found, &n_found);
    if (!status)
        status = cublasLtMatmul(handle, desc, &g.alpha, A.data + shift, la, B.data, lb, &g.beta, D.data, ld, D.data, ld,
                                &found.algo, workspace.data, found.workspaceSize, 0);
    d.take(D.download());
    cublasLtMatmulPreferenceDestroy(preference), cublasLtMatmulDescDestroy(desc), cublasLtDestroy(handle);
    cublasLtMatrixLayoutDestroy(la), cublasLtMatrixLayoutDestroy(lb), cublasLtMatrixLayoutDestroy(ld);
    return status;
}

static void check_gemm(const Gemm &g)
{
    GemmMatrix a(g.ta ? g.k : g.m, g.ta ? g.m : g.k, g.row_a, g.bf16_in, 1),
        b(g.tb ? g.n : g.k, g.tb ? g.k : g.n, g.row_b, g.bf16_in, 2);
    GemmMatrix d(g.m, g.n, g.row_d, g.bf16_out, 3), bias(g.m, 1, 0, g.bf16_out, 4);
    std::vector<double> right;
    for (int i = 0; i < g.m; i++)
        for (int j = 0; j < g.n; j++) {
            double sum = 0;
            for (int k = 0; k < g.k; k++)
                sum += (double)(g.ta ? a.at(k, i) : a.at(i, k)) * (g.tb ? b.at(j, k) : b.at(k, j));
            right.push_back(g.alpha * sum + (g.beta != 0 ? g.beta * d.at(i, j) : 0) + (g.bias ? bias.at(i, 0) : 0));
        }
    if (g.beta == 0) std::fill(d.values.begin(), d.values.end(), NAN); // must not be read
    cublasStatus_t status = run_gemm(g, a, b, d, bias, 0);
    std::vector<float> got;
    for (int i = 0; i < g.m; i++)
        for (int j = 0; j < g.n; j++) got.push_back(d.at(i, j));
    char what[100];
    snprintf(what, sizeof what, "trans %d%d order %d%d%d bf16 %d%d bias %d", g.ta, g.tb, g.row_a, g.row_b, g.row_d,
             g.bf16_in, g.bf16_out, g.bias);
    CHECK(status == CUBLAS_STATUS_SUCCESS, "%s: %s", what, cublasLtGetStatusString(status));
    double rounding = g.bf16_out ? 0x1p-8 : 0; // of the result: half an ulp of 8 bits
    test_close(what, got.data(), right.data(), (long)got.size(), test_bound(g.k + 3) + rounding, 0);
    size_t written = 0;
    for (float v : d.values) written += !std::isnan(v);
    CHECK(written == got.size(), "%s: %zu elements between the lines were written", what, written - got.size());
}

TEST(products_are_right_in_every_layout)
{
    for (int bits = 0; bits < 32; bits++)
        for (int types = 0; types < 3; types++) {
            Gemm g;
            g.ta = bits & 1, g.tb = bits >> 1 & 1, g.row_a = bits >> 2 & 1, g.row_b = bits >> 3 & 1,
            g.row_d = bits >> 4 & 1;
            g.bf16_in = types > 0, g.bf16_out = types > 1;
            g.bias = bits % 3 == 0;
            if (bits % 2) g.alpha = 0.5f, g.beta = -2;
            check_gemm(g);
        }
}

TEST(what_cublaslt_does_not_do_is_refused)
{
    Gemm g;
    auto status_of = [](const Gemm &x, bool bf16_a, int k_of_b, size_t shift) {
        GemmMatrix a(x.m, x.k, 0, bf16_a, 1), b(k_of_b, x.n, 0, x.bf16_in, 2), d(x.m, x.n, 0, x.bf16_out, 3),
            bias(x.m, 1, 0, x.bf16_out, 4);
        return run_gemm(x, a, b, d, bias, shift);
    };
    CHECK(status_of(g, false, g.k, 0) == CUBLAS_STATUS_SUCCESS, "the right one");
    CHECK(status_of(g, false, g.k + 1, 0) == CUBLAS_STATUS_INVALID_VALUE, "shapes that do not fit");
    CHECK(status_of(g, true, g.k, 0) == CUBLAS_STATUS_NOT_SUPPORTED, "bf16 times fp32");
    CHECK(status_of(g, false, g.k, 4) == CUBLAS_STATUS_INVALID_VALUE, "A is not aligned, and beyond its end");
    g.bf16_out = true;
    CHECK(status_of(g, false, g.k, 0) == CUBLAS_STATUS_NOT_SUPPORTED, "fp32 to bf16");
    g.bf16_out = false;
    g.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    CHECK(status_of(g, false, g.k, 0) == CUBLAS_STATUS_NOT_SUPPORTED, "TF32");
    setenv("GX_EMU_TF32", "1", 1);
    CHECK(status_of(g, false, g.k, 0) == CUBLAS_STATUS_SUCCESS, "TF32 that was asked for");
    unsetenv("GX_EMU_TF32");
}

// ---- NCCL ----------------------------------------------------------------------------------------------------------
template <class T> static void check_all_reduce(const char *name, ncclDataType_t type)
{
    const int n = 37, ranks = 3;
    with_ranks(ranks, [&](Rank &r) {
        std::vector<T> mine;
        for (int i = 0; i < n; i++) mine.push_back((T)(i % 7 + r.rank));
        Buffer<T> x(mine), y(n);
        ncclAllReduce(x.data, y.data, n, type, ncclSum, r.comm, r.stream);
        ncclAllReduce(x.data, x.data, n, type, ncclMax, r.comm, r.stream);
        cudaStreamSynchronize(r.stream);
        std::vector<T> sum = y.download(), most = x.download();
        for (int i = 0; i < n; i++) {
            CHECK((float)sum[i] == (float)(3 * (i % 7) + 3), "%s, rank %d: sum %d is %g", name, r.rank, i,
                  (double)(float)sum[i]);
            CHECK((float)most[i] == (float)(i % 7 + 2), "%s, rank %d: maximum %d is %g", name, r.rank, i,
                  (double)(float)most[i]);
        }
    });
}
TEST(nccl_reduces_every_type)
{
    check_all_reduce<int8_t>("int8", ncclInt8);
    check_all_reduce<uint8_t>("uint8", ncclUint8);
    check_all_reduce<int32_t>("int32", ncclInt32);
    check_all_reduce<long long>("int64", ncclInt64);
    check_all_reduce<float>("fp32", ncclFloat32);
    check_all_reduce<double>("fp64", ncclFloat64);
    check_all_reduce<__nv_bfloat16>("bf16", ncclBfloat16);
    check_all_reduce<__half>("fp16", ncclFloat16);
}

TEST(nccl_moves_each_part_to_its_place)
{
    with_streams_of_every_kind([](const char *kind) {
        with_ranks(4, [kind](Rank &r) {
            const size_t part = 3, n = 12;
            std::vector<float> mine = counting(n);
            for (float &v : mine) v += 100.0f * (float)r.rank;
            Buffer<float> x(mine), gathered(n), part_of_sum(part), passed_on(n), sent(mine);
            cudaMemcpyAsync(gathered.data + (size_t)r.rank * part, x.data, part * 4, cudaMemcpyDeviceToDevice,
                            r.stream);
            ncclAllGather(gathered.data + (size_t)r.rank * part, gathered.data, part, ncclFloat32, r.comm,
                          r.stream); // in place
            ncclReduceScatter(x.data, part_of_sum.data, part, ncclFloat32, ncclSum, r.comm, r.stream);
            ncclGroupStart();
            ncclSend(x.data, n, ncclFloat32, (r.rank + 1) % 4, r.comm, r.stream);
            ncclRecv(passed_on.data, n, ncclFloat32, (r.rank + 3) % 4, r.comm, r.stream);
            ncclBroadcast(sent.data, sent.data, n, ncclFloat32, 2, r.comm, r.stream);
            ncclGroupEnd();
            cudaStreamSynchronize(r.stream);
            std::vector<float> g = gathered.download(), s = part_of_sum.download(), p = passed_on.download(),
                               b = sent.download();
            for (size_t i = 0; i < n; i++) {
                CHECK(g[i] == (float)(100 * (i / part) + i % part), "%s, rank %d: gathered %zu is %g", kind, r.rank, i,
                      g[i]);
                CHECK(p[i] == (float)(100 * ((r.rank + 3) % 4) + (int)i), "%s, rank %d: passed on %zu is %g", kind,
                      r.rank, i, p[i]);
                CHECK(b[i] == (float)(200 + i), "%s, rank %d: broadcast %zu is %g", kind, r.rank, i, b[i]);
            }
            for (size_t i = 0; i < part; i++)
                CHECK(s[i] == (float)(600 + 4 * ((size_t)r.rank * part + i)), "%s, rank %d: sum %zu is %g", kind,
                      r.rank, i, s[i]);
        });
    });
}

TEST(nccl_sums_in_rank_order)
{
    const float values[3] = {1e8f, 1, -1e8f}; // in fp32, (1e8 + 1) - 1e8 is 0
    with_ranks(3, [&](Rank &r) {
        Buffer<float> x(std::vector<float>{values[r.rank]});
        ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
        cudaStreamSynchronize(r.stream);
        CHECK(x.download()[0] == 0, "rank %d has %g", r.rank, x.download()[0]);
    });
}

TEST(nccl_launches_of_a_communicator_run_in_order_on_any_streams)
{
    with_ranks(2, [](Rank &r) {
        Buffer<float> x(std::vector<float>{1}), y(1);
        cudaStream_t other;
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
        ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, other);
        cudaStreamSynchronize(other);
        CHECK(x.download()[0] == 4, "rank %d has %g", r.rank, x.download()[0]);
        ncclGroupStart(); // both streams wait for the group, and it for both
        GX_LAUNCH(times_two_plus, 1, 1, 0, other, x.data, 1.0f);
        ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
        ncclAllReduce(x.data, y.data, 1, ncclFloat32, ncclMax, r.comm, other);
        ncclGroupEnd();
        cudaStreamSynchronize(r.stream);
        CHECK(x.download()[0] == 18, "rank %d has %g after the group", r.rank, x.download()[0]);
        cudaStreamSynchronize(other);
        CHECK(y.download()[0] == 9, "rank %d has %g of the group", r.rank, y.download()[0]);
        cudaStreamDestroy(other);
    });
}

TEST(a_rank_synchronises_without_its_peers)
{
    with_ranks(2, [](Rank &r) {
        Buffer<float> x(std::vector<float>{1});
        static std::atomic<int> enqueued;
        if (r.rank == 0) ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream), enqueued = 1;
        while (!enqueued) std::this_thread::yield();
        if (r.rank == 1) {
            cudaDeviceSynchronize(); // does not wait for what rank 0 has in its streams
            ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
        }
        cudaStreamSynchronize(r.stream);
        CHECK(x.download()[0] == 2, "rank %d has %g", r.rank, x.download()[0]);
    });
}

template <class F> static void check_spoilt(const char *what, ncclResult_t right, F f)
{
    with_ranks(2, [&](Rank &r) {
        Buffer<float> x(std::vector<float>(8, 1));
        f(r, x);
        if (!r.comm) return;
        cudaStreamSynchronize(r.stream);
        ncclResult_t error = ncclSuccess;
        for (int ms = 0; ms < 5000 && !error; ms++) { // the peer may not have come to its call yet
            ncclCommGetAsyncError(r.comm, &error);
            if (!error) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        CHECK(error == right, "%s, rank %d: %s", what, r.rank, ncclGetErrorString(error));
        CHECK(right == ncclRemoteError ||
                  (strstr(ncclGetLastError(r.comm), "0") && strstr(ncclGetLastError(r.comm), "1")),
              "%s: %s", what, ncclGetLastError(r.comm));
        CHECK(ncclAllReduce(x.data, x.data, 8, ncclFloat32, ncclSum, r.comm, r.stream) == right, "%s: a later call",
              what);
    });
}
TEST(nccl_calls_that_do_not_match_end_in_an_error)
{
    check_spoilt("counts", ncclInvalidUsage, [](Rank &r, Buffer<float> &x) {
        ncclAllReduce(x.data, x.data, 4 + (size_t)r.rank, ncclFloat32, ncclSum, r.comm, r.stream);
    });
    check_spoilt("types", ncclInvalidUsage, [](Rank &r, Buffer<float> &x) {
        ncclAllReduce(x.data, x.data, 4, r.rank ? ncclFloat32 : ncclInt32, ncclSum, r.comm, r.stream);
    });
    check_spoilt("operations", ncclInvalidUsage, [](Rank &r, Buffer<float> &x) {
        ncclAllReduce(x.data, x.data, 4, ncclFloat32, r.rank ? ncclSum : ncclMax, r.comm, r.stream);
    });
    check_spoilt("roots", ncclInvalidUsage, [](Rank &r, Buffer<float> &x) {
        ncclBroadcast(x.data, x.data, 4, ncclFloat32, r.rank, r.comm, r.stream);
    });
    check_spoilt("collectives", ncclInvalidUsage, [](Rank &r, Buffer<float> &x) {
        if (r.rank) ncclAllReduce(x.data, x.data, 4, ncclFloat32, ncclSum, r.comm, r.stream);
        else ncclBroadcast(x.data, x.data, 4, ncclFloat32, 0, r.comm, r.stream);
    });
    check_spoilt("sends", ncclInvalidUsage, [](Rank &r, Buffer<float> &x) {
        if (r.rank) ncclSend(x.data, 4, ncclFloat32, 0, r.comm, r.stream);
        else ncclRecv(x.data, 5, ncclFloat32, 1, r.comm, r.stream);
    });
    check_spoilt("abort", ncclRemoteError, [](Rank &r, Buffer<float> &x) {
        if (r.rank) ncclCommAbort(r.comm), r.comm = nullptr;
        else ncclAllReduce(x.data, x.data, 4, ncclFloat32, ncclSum, r.comm, r.stream);
    });
}

TEST(a_nonblocking_communicator_is_in_progress_until_all_have_come)
{
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comms[2];
    ncclResult_t state = ncclSuccess;
    int ranks = 0, rank = -1;
    CHECK(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config) == ncclInProgress, "one of two has come");
    ncclCommGetAsyncError(comms[0], &state);
    CHECK(state == ncclInProgress, "%s", ncclGetErrorString(state));
    CHECK(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config) == ncclInProgress, "both have come");
    for (int r = 0; r < 2; r++) {
        ncclCommGetAsyncError(comms[r], &state);
        CHECK(state == ncclInProgress, "the first answer: %s", ncclGetErrorString(state));
        ncclCommGetAsyncError(comms[r], &state);
    }
    ncclCommCount(comms[1], &ranks), ncclCommUserRank(comms[1], &rank);
    CHECK(state == ncclSuccess && ranks == 2 && rank == 1, "%s, rank %d of %d", ncclGetErrorString(state), rank, ranks);
    CHECK(ncclCommDestroy(comms[0]) == ncclSuccess && ncclCommDestroy(comms[1]) == ncclSuccess, "destroying");
    CHECK(ncclCommDestroy(comms[1]) == ncclInvalidArgument, "destroying twice");
}

TEST(calls_of_a_non_blocking_communicator_are_in_progress_until_they_are_asked_for)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    ncclResult_t state = ncclInProgress;
    Buffer<float> x(std::vector<float>{3}), y(std::vector<float>{0});
    config.blocking = 0;
    ncclGetUniqueId(&id);
    ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
    CHECK(ncclAllReduce(x.data, y.data, 1, ncclFloat32, ncclSum, comm, 0) == ncclInProgress, "a call");
    CHECK(ncclAllReduce(x.data, y.data, 1, ncclFloat32, ncclSum, comm, 0) == ncclInvalidArgument, "a call too early");
    CHECK(y.download()[0] == 0, "it has run: %g", y.download()[0]);
    ncclCommGetAsyncError(comm, &state);
    CHECK(state == ncclInProgress && y.download()[0] == 0, "after one question: %s", ncclGetErrorString(state));
    ncclCommGetAsyncError(comm, &state);
    CHECK(state == ncclSuccess && y.download()[0] == 3, "after two: %s, %g", ncclGetErrorString(state),
          y.download()[0]);
    CHECK(ncclCommFinalize(comm) == ncclInProgress, "the end");
    for (state = ncclInProgress; state == ncclInProgress;) ncclCommGetAsyncError(comm, &state);
    CHECK(state == ncclSuccess && ncclCommDestroy(comm) == ncclSuccess, "%s", ncclGetErrorString(state));
}

TEST(nccl_arguments_are_checked)
{
    with_ranks(1, [](Rank &r) {
        Buffer<float> x(8);
        float host[8];
        CHECK(ncclAllReduce(x.data, x.data, 9, ncclFloat32, ncclSum, r.comm, r.stream) == ncclInvalidArgument,
              "too many");
        CHECK(ncclAllReduce(host, x.data, 8, ncclFloat32, ncclSum, r.comm, r.stream) == ncclInvalidArgument,
              "host memory");
        CHECK(ncclAllReduce(x.data, x.data + 1, 4, ncclFloat32, ncclSum, r.comm, r.stream) == ncclInvalidArgument,
              "overlap");
        CHECK(ncclSend(x.data, 1, ncclFloat32, 1, r.comm, r.stream) == ncclInvalidArgument, "a peer that is none");
        CHECK(ncclGroupEnd() == ncclInvalidUsage, "a group that ends before it begins");
        ncclGroupStart();
        ncclAllReduce(x.data, x.data, 9, ncclFloat32, ncclSum, r.comm, r.stream);
        CHECK(ncclGroupEnd() == ncclInvalidArgument, "a group with a bad call");
        CHECK(ncclAllReduce(x.data, x.data, 8, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess, "the right one");
        cudaStreamSynchronize(r.stream);
    });
}

// ---- faults are found, each in a process of its own ----------------------------------------------------------------
#if defined(__SANITIZE_ADDRESS__)
enum { BUILD = 1 };
#elif defined(__SANITIZE_THREAD__)
enum { BUILD = 2 };
#else
enum { BUILD = 0 };
#endif

static std::string output_of_child(const char *environment, const char *option, const char *name)
{
    char self[512] = "", command[1024];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return "readlink failed";
    snprintf(command, sizeof command, "%s GX_EMU_PATIENCE=1 TSAN_OPTIONS=atexit_sleep_ms=0 '%s' %s %s 2>&1",
             environment, self, option, name);
    std::string output;
    FILE *f = popen(command, "r");
    char line[512];
    while (f && fgets(line, sizeof line, f)) output += line;
    if (f) pclose(f);
    return output;
}

// What must stand in the output: of the plain build, with AddressSanitizer, with ThreadSanitizer. Without the fault the
// child says "right".
static void find(const char *name, const char *environment, const char *plain, const char *address, const char *thread)
{
    const char *expected[] = {plain, address, thread};
    std::string with = output_of_child(environment, "--bug", name),
                without = output_of_child(environment, "--right", name);
    CHECK(with.find(expected[BUILD]) != std::string::npos, "looked for \"%s\", found: %.1000s", expected[BUILD],
          with.c_str());
    CHECK(without == "right\n", "without the fault: %.1000s", without.c_str());
}
#define FINDS(name, environment, ...)                                                                                  \
    TEST(finds_##name) { find(#name, environment, __VA_ARGS__); }
#define FINDS_ANYWHERE(name, environment, text) FINDS(name, environment, text, text, text)

static const char *const race = "data race", *const poisoned = "use-after-poison", *const wrong = "wrong";
FINDS(global_far_out_of_bounds, "", "wrote device memory", poisoned, "400 bytes past the end of an allocation of 400")
FINDS(global_just_past_the_end, "", "0 bytes past the end of an allocation of 400", poisoned,
      "0 bytes past the end of an allocation of 400")
FINDS(use_after_free, "", "that was freed", poisoned, "that was freed")
FINDS_ANYWHERE(a_host_pointer_for_a_kernel, "", "parameter 1 points at pageable host memory")
FINDS(shared_out_of_bounds, "", "written 128 bytes from the beginning of tile, which has 128", poisoned,
      "from the beginning of tile")
FINDS(dynamic_shared_out_of_bounds, "", "40 bytes from the beginning of dynamic shared memory", poisoned,
      "from the beginning of dynamic shared memory")
FINDS_ANYWHERE(too_much_declared_shared_memory, "", "49153 bytes of shared memory are declared")
FINDS_ANYWHERE(too_much_declared_and_dynamic_shared_memory, "",
               "1024 bytes of declared and 48129 of dynamic shared memory")
FINDS_ANYWHERE(stack_overflow, "", "its stack of")
FINDS_ANYWHERE(misaligned_load, "", "__ldg of 16 bytes")
FINDS_ANYWHERE(misaligned_store, "", "__stcs of 16 bytes")
FINDS_ANYWHERE(misaligned_atomic, "", ": misaligned")
FINDS(missing_syncthreads, "", wrong, wrong, race)
FINDS(missing_syncwarp, "GX_EMU_ORDER=reverse", wrong, wrong, race)
TEST(finds_missing_syncwarp_in_random_order) { find("missing_syncwarp", "GX_EMU_ORDER=random:5", wrong, wrong, race); }
FINDS_ANYWHERE(divergent_shuffle, "", "missing 16-31")
FINDS_ANYWHERE(different_intrinsics, "", "the warp's lanes diverged")
FINDS_ANYWHERE(lane_not_in_its_mask, "", "lane 16 is not in its own mask")
FINDS_ANYWHERE(exited_lane, "", "lane 24 exits while lanes 0-23 wait for it in __ballot_sync")
TEST(finds_exited_lane_in_reverse_order)
{
    const char *text = "the mask names lanes 24-31, which have exited";
    find("exited_lane", "GX_EMU_ORDER=reverse", text, text, text);
}
FINDS_ANYWHERE(a_shuffle_of_width_24, "", "the width is 24")
FINDS_ANYWHERE(a_shuffle_up_of_width_64, "", "the width is 64")
FINDS_ANYWHERE(a_shuffle_down_of_width_0, "", "the width is 0")
FINDS_ANYWHERE(a_shuffle_xor_of_width_12, "", "the width is 12")
FINDS_ANYWHERE(barrier_deadlock, "", "threads 0-31 (warp 0): in __syncthreads")
FINDS_ANYWHERE(barriers_of_two_branches, "", "the block's threads diverged")
FINDS_ANYWHERE(half_a_product, "", "missing 16-31")
FINDS_ANYWHERE(a_product_of_a_short_warp, "", "mma.sync needs all lanes of a warp; this one has 0-15")
FINDS_ANYWHERE(half_a_load_of_matrices, "", "missing 16-31")
FINDS_ANYWHERE(misaligned_matrix, "", "misaligned")
FINDS_ANYWHERE(a_load_of_matrices_by_a_short_warp, "", "ldmatrix needs all lanes of a warp; this one has 0-15")
FINDS(missing_syncwarp_before_ldmatrix, "", wrong, wrong, race)
#ifndef GX_EMU_COUNTS_BANKS // there, the stores in front of them would be refused
FINDS_ANYWHERE(rows_that_meet_in_a_bank, "GX_EMU_BANKS=refuse", "take 8 accesses")
#else
FINDS_ANYWHERE(lanes_that_meet_in_a_bank, "GX_EMU_BANKS=refuse",
               "a load of 4 bytes by lanes 0-31 of warp 1 takes 32 passes over the banks of shared memory, where 1")
#endif
FINDS_ANYWHERE(missing_wait_for_copies, "", wrong)
FINDS_ANYWHERE(copies_over_what_is_still_read, "", wrong)
FINDS(missing_syncthreads_behind_copies, "", wrong, wrong, race)
FINDS_ANYWHERE(copies_that_nobody_waits_for, "", "1 copies by cp.async that it has not waited for")
FINDS_ANYWHERE(a_misaligned_place_for_cp_async, "", ": misaligned")
FINDS_ANYWHERE(a_misaligned_source_of_cp_async, "", ": misaligned")
FINDS_ANYWHERE(more_bytes_than_cp_async_copies, "", "cp.async: 17 bytes of 16")
FINDS_ANYWHERE(fewer_bytes_than_none_by_cp_async, "", "cp.async: -1 bytes of 16")
FINDS_ANYWHERE(an_mbarrier_never_initialised, "", "was never initialized")
FINDS_ANYWHERE(missing_syncthreads_behind_an_init, "GX_EMU_ORDER=reverse", "was never initialized")
FINDS_ANYWHERE(an_mbarrier_overwritten, "", "was overwritten")
FINDS_ANYWHERE(an_mbarrier_initialised_twice, "", "it is a barrier already")
FINDS_ANYWHERE(an_mbarrier_for_nobody, "", "a count of 0; from 1 to 1048575 are possible")
FINDS_ANYWHERE(a_misaligned_mbarrier, "", ": misaligned")
FINDS_ANYWHERE(missing_fence_behind_an_init, "", "no fence.mbarrier_init by thread 0")
FINDS_ANYWHERE(a_fence_of_mbarriers_by_another_thread, "", "no fence.mbarrier_init by thread 0")
FINDS_ANYWHERE(an_arrival_too_many, "", "all 31 of this phase have come, 16 bytes are missing")
FINDS_ANYWHERE(an_arrival_too_few, "", "threads 0-0 (warp 0): in mbarrier.try_wait")
FINDS_ANYWHERE(more_bytes_than_an_mbarrier_counts, "", "a phase waits for 1048576 bytes; there may be 1048575")
FINDS(waiting_for_the_other_parity, "", wrong, wrong, race)
FINDS_ANYWHERE(waiting_for_a_third_parity, "", "the parity is 2")
FINDS_ANYWHERE(reading_before_tma_has_landed, "", wrong)
FINDS(tma_over_what_is_still_read, "", wrong, wrong, race)
FINDS_ANYWHERE(fewer_bytes_expected_than_a_copy_has, "", "copies brought 64 bytes more than the phase waits for")
FINDS_ANYWHERE(an_argument_that_is_no_tensor_map, "", "is no tensor map")
FINDS_ANYWHERE(missing_wait_for_tma, "", "an arrival too many")
FINDS_ANYWHERE(missing_wait_before_tma, "", "an arrival too many")
FINDS_ANYWHERE(fewer_bytes_expected_than_tma_brings, "", "ends with 2 copies on their way to the barrier")
FINDS_ANYWHERE(more_bytes_expected_than_tma_brings, "", "threads 96-127 (warp 3): in mbarrier.try_wait")
FINDS_ANYWHERE(misaligned_place_for_tma, "", "no multiple of 1024")
FINDS_ANYWHERE(coordinates_of_another_tensor, "", "3 coordinates for a tensor of 2 dimensions")
FINDS_ANYWHERE(a_copy_by_tma_that_nobody_waits_for, "", "ends with 1 copies on their way to the barrier")
FINDS_ANYWHERE(a_tile_released_before_wgmma_has_read_it, "", wrong)
FINDS_ANYWHERE(missing_wgmma_fence, "", "no wgmma.fence since the registers of its sums were used")
FINDS_ANYWHERE(missing_wait_for_wgmma, "", wrong)
FINDS_ANYWHERE(missing_commit_of_wgmma, "", "16 products by wgmma that it has not waited for")
FINDS_ANYWHERE(sums_written_under_wgmma, "", "the sums were written while products add to them")
FINDS_ANYWHERE(sums_written_before_the_wait_for_wgmma, "", "the sums were written before this wait")
FINDS_ANYWHERE(sums_of_products_of_two_sizes, "", "products of other sizes add to these sums")
FINDS_ANYWHERE(another_swizzle_than_tmas, "", wrong)
FINDS_ANYWHERE(a_matrix_that_begins_within_its_swizzle, "", "its swizzle of 128 bytes repeats every 1024")
FINDS_ANYWHERE(a_matrix_beyond_shared_memory, "", "lies at 197632 in shared memory, where there is nothing")
FINDS_ANYWHERE(a_misaligned_matrix_for_wgmma, "", "not all are multiples of 16 below 2^18")
FINDS_ANYWHERE(a_descriptor_with_a_base_offset, "", "has a base offset, or bits that are reserved")
FINDS_ANYWHERE(a_descriptor_with_reserved_bits, "", "has a base offset, or bits that are reserved")
FINDS_ANYWHERE(a_warpgroup_of_three_warps, "", "threads 64-95 (warp 2): in wgmma.wait_group")
FINDS_ANYWHERE(wgmma_by_half_a_warp, "", "the warp's lanes diverged: lanes 0-15 are in wgmma")
FINDS_ANYWHERE(wgmma_by_a_short_warp, "", "needs all lanes of a warp")
FINDS_ANYWHERE(warps_with_different_products, "", "the warps of a warpgroup come with different products")
FINDS_ANYWHERE(lanes_with_different_products, "", "lanes 0 and 9 come with different products")
FINDS_ANYWHERE(a_warpgroup_from_the_second_warp_on, "", "needs four warps from warp 4 on")
FINDS_ANYWHERE(missing_proxy_fence, "", wrong)
FINDS_ANYWHERE(missing_event, "", wrong)
FINDS_ANYWHERE(missing_synchronisation, "", wrong)
FINDS_ANYWHERE(pinned_memory_reused_too_early, "", wrong)
FINDS_ANYWHERE(host_reads_device_memory, "", "host code read device memory")
FINDS_ANYWHERE(host_writes_device_memory, "", "host code wrote device memory")
static void find_in_every_order(const char *name)
{
    for (const char *order : {"forward", "reverse", "random:3"})
        find(name, (std::string("GX_EMU_ORDER=") + order).c_str(), wrong, wrong, wrong);
}
#define FINDS_IN_EVERY_ORDER(name)                                                                                     \
    TEST(finds_##name) { find_in_every_order(#name); }
FINDS_IN_EVERY_ORDER(missing_threadfence)
FINDS_IN_EVERY_ORDER(missing_threadfence_of_the_reader)
FINDS_IN_EVERY_ORDER(a_threadfence_before_the_threads_meet)
FINDS_IN_EVERY_ORDER(a_threadfence_by_another_thread)
FINDS_IN_EVERY_ORDER(a_threadfence_of_the_reader_by_another_thread)
FINDS_IN_EVERY_ORDER(missing_syncthreads_before_an_atomic)
FINDS_IN_EVERY_ORDER(missing_syncwarp_before_a_threadfence)
FINDS_ANYWHERE(an_argument_that_a_graph_keeps, "", wrong)
FINDS_ANYWHERE(missing_event_in_a_graph, "", wrong)
FINDS_ANYWHERE(a_branch_that_a_graph_does_not_join, "", "that the stream of the capture does not wait for")
FINDS_ANYWHERE(waiting_in_a_capture, "", "cudaStreamSynchronize is not permitted while the stream is captured")
FINDS_ANYWHERE(waiting_for_the_device_in_a_capture, "", wrong)
FINDS_ANYWHERE(waiting_for_an_event_in_a_capture, "", wrong)
FINDS_ANYWHERE(a_query_of_a_stream_in_a_capture, "", "cudaStreamQuery is not permitted while the stream is captured")
FINDS_ANYWHERE(a_query_of_an_event_in_a_capture, "", wrong)
FINDS_ANYWHERE(memory_taken_in_a_capture, "", wrong)
FINDS_ANYWHERE(pageable_memory_in_a_capture, "", "a copy of pageable memory is not permitted")
FINDS_ANYWHERE(a_copy_that_waits_in_a_capture, "", wrong)
FINDS_ANYWHERE(memory_of_another_card, "", "0 bytes into an allocation of 4 on card 0")
FINDS_ANYWHERE(a_stream_of_another_card, "", "on a stream of card 0, while card 1 is the current one")
FINDS_ANYWHERE(two_ranks_on_one_card, "", "are both on card 0")
FINDS_ANYWHERE(a_rank_that_comes_twice, "", "rank 0 of 2 has come twice")
FINDS_ANYWHERE(ranks_that_count_themselves_differently, "", "rank 1 says there are 3 ranks, others said 2")
FINDS_ANYWHERE(a_queue_of_no_operations, "", "GX_EMU_QUEUE is 0; it must be a number from 1 to ")
FINDS_ANYWHERE(a_misspelt_word, "", "GX_EMU_ORDER is backwards")
FINDS_ANYWHERE(a_seed_that_is_no_number, "", "GX_EMU_ORDER is random:7x; behind the colon there must be a number")
FINDS_ANYWHERE(a_rank_that_never_comes, "", "waits for NCCL, rank 0 of 2: all_reduce of 1 fp32")
FINDS_ANYWHERE(an_event_before_nccl_has_launched, "", wrong)
FINDS_ANYWHERE(launches_into_a_full_queue, "", "room in a full stream, behind NCCL, rank 0 of 2")
FINDS_ANYWHERE(a_kernel_loaded_behind_a_collective, "", "loading the kernel write_at waits inside the driver")
FINDS_ANYWHERE(memory_taken_behind_a_collective, "", "cudaMalloc waits inside the driver")
FINDS_ANYWHERE(a_graph_made_behind_a_collective, "", "cudaGraphInstantiate waits inside the driver")
FINDS_ANYWHERE(a_group_made_behind_a_collective, "", "making a communicator of NCCL waits inside the driver")
FINDS_ANYWHERE(sends_in_a_circle, "", "nothing has changed for 1 s")
FINDS_ANYWHERE(half_a_product_of_tf32, "", "missing 16-31")
FINDS_ANYWHERE(a_product_of_tf32_by_a_short_warp, "", "mma.sync needs all lanes of a warp; this one has 0-15")
FINDS_ANYWHERE(a_factor_that_is_no_tf32, "", "1.00048828 is no TF32")
FINDS_ANYWHERE(half_a_store_of_matrices, "", "lanes 0-15 are in stmatrix")
FINDS_ANYWHERE(a_store_of_matrices_by_a_short_warp, "", "stmatrix needs all lanes of a warp; this one has 0-15")
FINDS_ANYWHERE(a_misaligned_row_for_stmatrix, "", "misaligned")
FINDS(missing_syncwarp_behind_stmatrix, "", wrong, wrong, race)
#ifdef __SANITIZE_THREAD__ // without it, threads that run one after another lose nothing
FINDS_ANYWHERE(race_of_threads, "", race)
FINDS_ANYWHERE(race_of_blocks, "", race)
#endif

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("GX_EMU_CAPABILITY", "9.0", 1);
    if (argc == 3 && !strcmp(argv[1], "--bug")) return run_bug(argv[2], true);
    if (argc == 3 && !strcmp(argv[1], "--right")) return run_bug(argv[2], false);
    return test_main(argc, argv);
}
