// test_emu_hopper.h: the part of test_emu.cu that tests what an H100 has: mbarrier, TMA, wgmma.
#ifndef GX_TEST_EMU_HOPPER_H
#define GX_TEST_EMU_HOPPER_H

// ---- mbarrier ------------------------------------------------------------------------------------------------------
// Warp 0 puts a number for warp 1 to take, turn after turn, in a place of two.
__global__ void hand_over_by_mbarriers(float *y, int turns)
{
    GX_SHARED(unsigned long long, full, [2]);
    GX_SHARED(unsigned long long, empty, [2]);
    GX_SHARED(float, place, [2][32]);
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 2) {
        gx_mbarrier_init(&full[threadIdx.x], 32);
        gx_mbarrier_init(&empty[threadIdx.x], 32);
        gx_mbarrier_fence_init();
    }
    __syncthreads();
    for (int turn = 0; turn < turns; turn++) {
        const int stage = turn % 2;
        const unsigned phase = (unsigned)(turn / 2 % 2);
        if (threadIdx.x < 32) {
            gx_mbarrier_wait(&empty[stage], phase ^ 1); // of a barrier that is new, the phase before 0 is complete
            place[stage][31 - lane] = (float)(turn * 100 + lane);
            gx_mbarrier_arrive(&full[stage]);
        } else {
            gx_mbarrier_wait(&full[stage], phase);
            y[turn * 32 + lane] = place[stage][lane];
            gx_mbarrier_arrive(&empty[stage]);
        }
    }
}
TEST(phases_of_mbarriers_follow_each_other)
{
    in_every_order([](const char *order) {
        enum { TURNS = 7 };
        Buffer<float> y(TURNS * 32);
        GX_LAUNCH(hand_over_by_mbarriers, 1, 64, 0, 0, y.data, TURNS);
        const std::vector<float> got = y.download();
        for (int i = 0; i < TURNS * 32; i++)
            CHECK(got[(size_t)i] == (float)(i / 32 * 100 + 31 - i % 32), "%s: %d is %g", order, i, got[(size_t)i]);
    });
}

__global__ void look_at_phases(unsigned *y)
{
    GX_SHARED(unsigned long long, barrier, );
    gx_mbarrier_init(&barrier, 2);
    unsigned seen = 0;
    for (int arrivals = 0; arrivals < 5; arrivals++) {
        for (unsigned parity = 0; parity < 2; parity++) seen = seen << 1 | gx_mbarrier_try_wait(&barrier, parity);
        gx_mbarrier_arrive(&barrier);
    }
    y[0] = seen;
}
TEST(an_mbarriers_parity_is_that_of_its_phase)
{
    Buffer<unsigned> y(1);
    GX_LAUNCH(look_at_phases, 1, 1, 0, 0, y.data);
    // In phase 0, before and after an arrival of two: parity 1 is complete; in phase 1 parity 0; in phase 2 parity 1.
    CHECK(y.download()[0] == 0b0101101001, "%x", y.download()[0]);
}

// ---- TMA -----------------------------------------------------------------------------------------------------------
struct Box {
    int rank;
    unsigned long long dim[4];
    unsigned box[4];
    int at[4];
};
// To shared memory and, as it lies there, to y; what was there when the copy was begun, to before.
template <int RANK, class T>
__global__ void load_box(T *y, float *before, const __grid_constant__ CUtensorMap map, Box b, int bytes)
{
    GX_DYNAMIC_SHARED(unsigned char, tile);
    GX_SHARED(unsigned long long, barrier, );
    int at[RANK];
    for (int i = 0; i < RANK; i++) at[i] = b.at[i];
    if (threadIdx.x == 0) {
        gx_mbarrier_init(&barrier, 1);
        gx_mbarrier_fence_init();
        memset(tile, 0, (size_t)bytes);
        gx_mbarrier_arrive_expect(&barrier, (unsigned)bytes);
        gx_tma_load<RANK>(tile, &map, &barrier, at);
        memcpy(before, tile, sizeof *before);
    }
    __syncthreads();
    gx_mbarrier_wait(&barrier, 0);
    for (int i = (int)threadIdx.x; i < bytes / (int)sizeof(T); i += (int)blockDim.x) y[i] = ((T *)tile)[i];
}

template <class T>
static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, T *data, const Box &b, CUtensorMapSwizzle swizzle)
{
    unsigned long long strides[3], bytes = sizeof(T);
    const unsigned ones[4] = {1, 1, 1, 1};
    for (int i = 0; i < 3; i++) strides[i] = bytes = (bytes * b.dim[i] + 15) / 16 * 16;
    return cuTensorMapEncodeTiled(map, type, (unsigned)b.rank, data, b.dim, strides, b.box, ones,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// The programming guide's table of swizzles: the 16 bytes number c of row r of `width` bytes come to c ^ r of 128, c ^
// r/2 of 64, c ^ r/4 of 32 (modulo their number).
static int swizzled_byte(int byte, int width)
{
    if (!width) return byte;
    const int row = byte / width, c = byte % width / 16, n = width / 16;
    return row * width + (c ^ row / (8 / n) % n) * 16 + byte % 16;
}

template <int RANK, class T>
static void check_box(CUtensorMapDataType type, CUtensorMapSwizzle swizzle, const Box &b, const char *what)
{
    size_t n = 1, of_box = 1, pitch[4] = {1, 1, 1, 1};
    for (int i = 0; i < b.rank; i++) {
        pitch[i] = n;
        n *= b.dim[i];
        if (!i) n = (n * sizeof(T) + 15) / 16 * 16 / sizeof(T);
        of_box *= b.box[i];
    }
    std::vector<T> values(n);
    for (size_t i = 0; i < n; i++) values[i] = T((float)(i % 251 + 1)); // exact in every type
    Buffer<T> x(values), y(of_box);
    Buffer<float> before(1);
    alignas(64) CUtensorMap map;
    const bool encoded = CHECK(encode(&map, type, x.data, b, swizzle) == CUDA_SUCCESS, "%s: refused", what);
    if (!encoded) return;
    GX_LAUNCH((load_box<RANK, T>), 1, 64, of_box * sizeof(T), 0, y.data, before.data, map, b,
              (int)(of_box * sizeof(T)));
    const std::vector<T> got = y.download();
    CHECK(is_nan_pattern(before.download()[0]), "%s: landed at once", what);
    for (size_t i = 0; i < of_box; i++) {
        size_t rest = i, from = 0;
        bool is_in = true;
        for (int d = 0; d < b.rank; d++) {
            const long long at = b.at[d] + (long long)(rest % b.box[d]);
            rest /= b.box[d];
            is_in &= at >= 0 && at < (long long)b.dim[d];
            from += (size_t)at * pitch[d];
        }
        const float expected = is_in ? (float)values[from] : 0.0f;
        const float is =
            (float)got[(size_t)swizzled_byte((int)(i * sizeof(T)), swizzle ? 16 << swizzle : 0) / sizeof(T)];
        CHECK(is == expected, "%s: element %zu is %g, not %g", what, i, is, expected);
    }
}
TEST(tma_brings_boxes_swizzled_and_zeros_from_out_of_bounds)
{
    const CUtensorMapDataType bf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, fp16 = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                              fp32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    const Box two = {2, {100, 20, 1, 1}, {64, 16, 1, 1}, {64, 8, 0, 0}}, before = {2, {64, 20}, {64, 16}, {-16, -3}},
              three = {3, {64, 5, 7, 1}, {32, 4, 3, 1}, {32, 2, 5, 0}},
              four = {4, {16, 3, 4, 5}, {16, 2, 1, 8}, {0, 1, 2, -2}},
              wide = {2, {200, 9, 1, 1}, {200, 4, 1, 1}, {0, 7, 0, 0}};
    in_every_order([&](const char *order) {
        check_box<2, __nv_bfloat16>(bf16, CU_TENSOR_MAP_SWIZZLE_128B, two, order);
        check_box<2, __half>(fp16, CU_TENSOR_MAP_SWIZZLE_128B, before, order);
        check_box<3, __nv_bfloat16>(bf16, CU_TENSOR_MAP_SWIZZLE_64B, three, order);
        check_box<4, __nv_bfloat16>(bf16, CU_TENSOR_MAP_SWIZZLE_32B, four, order);
        check_box<3, float>(fp32, CU_TENSOR_MAP_SWIZZLE_128B, three, order);
        check_box<2, float>(fp32, CU_TENSOR_MAP_SWIZZLE_NONE, wide, order);
        check_box<4, float>(fp32, CU_TENSOR_MAP_SWIZZLE_NONE, four, order);
    });
}

TEST(maps_of_tensors_are_refused_as_by_the_driver)
{
    alignas(64) unsigned char room[192] = {};
    Buffer<__nv_bfloat16> x(4096);
    const unsigned ones[4] = {1, 1, 1, 1};
    const CUtensorMapSwizzle none = CU_TENSOR_MAP_SWIZZLE_NONE, of_64 = CU_TENSOR_MAP_SWIZZLE_64B,
                             of_128 = CU_TENSOR_MAP_SWIZZLE_128B;
    const CUresult right = CUDA_SUCCESS, refused = CUDA_ERROR_INVALID_VALUE;
    const struct {
        const char *what;
        int map, data; // bytes beyond an alignment
        unsigned rank;
        unsigned long long dim[3], stride[2];
        unsigned box[3];
        CUtensorMapSwizzle swizzle;
        CUresult result;
    } cases[] = {
        {"right", 0, 0, 2, {64, 8}, {128}, {64, 8}, of_128, right},
        {"the map's alignment", 32, 0, 2, {64, 8}, {128}, {64, 8}, of_128, refused},
        {"the data's", 0, 8, 2, {64, 8}, {128}, {64, 8}, of_128, refused},
        {"no dimensions", 0, 0, 0, {64, 8}, {128}, {64, 8}, of_128, refused},
        {"six dimensions", 0, 0, 6, {64, 8}, {128}, {64, 8}, of_128, refused},
        {"an empty one", 0, 0, 2, {64, 0}, {128}, {64, 8}, of_128, refused},
        {"a dimension of 2^32", 0, 0, 2, {64, 1ull << 32}, {128}, {64, 8}, of_128, right},
        {"a longer dimension", 0, 0, 2, {64, (1ull << 32) + 1}, {128}, {64, 8}, of_128, refused},
        {"a stride", 0, 0, 2, {60, 8}, {120}, {64, 8}, of_128, refused},
        {"a stride below 2^40", 0, 0, 2, {64, 8}, {(1ull << 40) - 16}, {64, 8}, of_128, right},
        {"a stride of 2^40", 0, 0, 2, {64, 8}, {1ull << 40}, {64, 8}, of_128, refused},
        {"rows that overlap", 0, 0, 2, {64, 8}, {64}, {64, 8}, of_128, refused},
        {"a multiple of a stride", 0, 0, 3, {64, 2, 2}, {128, 384}, {64, 2, 2}, of_128, right},
        {"no multiple of a stride", 0, 0, 3, {64, 2, 2}, {128, 272}, {64, 2, 2}, of_128, refused},
        {"a long box", 0, 0, 2, {64, 512}, {128}, {64, 257}, of_128, refused},
        {"an empty box", 0, 0, 2, {64, 8}, {128}, {64, 0}, of_128, refused},
        {"a box's row", 0, 0, 2, {64, 8}, {128}, {12, 8}, none, refused},
        {"a row beyond its swizzle", 0, 0, 2, {64, 8}, {128}, {64, 8}, of_64, refused},
    };
    auto encode = [&](const auto &c) {
        return cuTensorMapEncodeTiled((CUtensorMap *)(room + c.map), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, c.rank,
                                      (char *)x.data + c.data, c.dim, c.stride, c.box, ones,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, c.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    for (const auto &c : cases) {
        const CUresult result = encode(c);
        CHECK(result == c.result, "%s: %d", c.what, (int)result);
    }
    setenv("GX_EMU_CAPABILITY", "8.0", 1);
    const CUresult of_an_a100 = encode(cases[0]);
    setenv("GX_EMU_CAPABILITY", "9.0", 1);
    CHECK(of_an_a100 == CUDA_ERROR_NOT_SUPPORTED, "%d", (int)of_an_a100);
}

// ---- wgmma ---------------------------------------------------------------------------------------------------------
enum { WGMMA_A_BYTES = 8 << 10, WGMMA_ROOM = 40 << 10 }; // bytes: of a, of both; a row of 128 bytes has 32 of them

// Where element (mn, k) of a matrix with 16 columns k lies, in bytes, as the PTX ISA draws its atoms ("Shared Memory
// Matrix Layout"): of 8 rows of `width` bytes (16 without a swizzle), along mn or along k, next to each other along mn
// first. *leading and *stride become what the descriptor says of it.
static int byte_of_atoms(int mn, int k, int size, int width, bool mn_major, unsigned *leading, unsigned *stride)
{
    const int row = width ? width : 16, atom = 8 * row;
    const int along = mn_major ? mn : k, across = mn_major ? k : mn; // a row's elements lie along
    const int atoms_mn = mn_major ? (size * 2 + row - 1) / row : size / 8;
    const int a_mn = mn_major ? along * 2 / row : across / 8, a_k = mn_major ? across / 8 : along * 2 / row;
    const int to_next_mn = atom, to_next_k = atom * atoms_mn;
    *leading = (unsigned)(mn_major && width ? to_next_mn : to_next_k);
    *stride = (unsigned)(mn_major && width ? to_next_k : to_next_mn);
    return a_mn * to_next_mn + a_k * to_next_k + swizzled_byte(across % 8 * row + along * 2 % row, width);
}

struct WgmmaTest {
    unsigned leading[2], stride[2]; // of a and b
    int width;
    bool a_in_registers, accumulate;
};
// memory: a, and b behind it, as they shall lie in shared memory; a once more, by its registers.
template <int N, bool N_MAJOR>
__global__ void multiply_matrices(float *y, const __nv_bfloat16 *memory, const unsigned *registers, WgmmaTest t)
{
    GX_DYNAMIC_SHARED(__nv_bfloat16, tile);
    const int thread = (int)threadIdx.x;
    for (int i = thread; i < WGMMA_ROOM / 2; i += 128) tile[i] = memory[i];
    gx_fence_proxy_async();
    __syncthreads();
    float d[N / 2];
    unsigned a[4];
    for (int i = 0; i < N / 2; i++) d[i] = 1;
    for (int i = 0; i < 4; i++) a[i] = registers[thread * 4 + i];
    const unsigned long long of_a = gx_wgmma_descriptor(tile, t.leading[0], t.stride[0], t.width);
    const unsigned long long of_b = gx_wgmma_descriptor(tile + WGMMA_A_BYTES / 2, t.leading[1], t.stride[1], t.width);
    gx_wgmma_fence();
    for (int turn = 0; turn < 2; turn++) {
        if (t.a_in_registers) gx_wgmma<N, N_MAJOR>(d, a, of_b, turn || t.accumulate);
        else gx_wgmma<N, N_MAJOR>(d, of_a, of_b, turn || t.accumulate);
        gx_wgmma_commit();
    }
    for (int wait = 0; wait < 3; wait++) { // for none, for the first, for both
        if (wait == 1) gx_wgmma_wait<1>();
        if (wait == 2) gx_wgmma_wait<0>();
        for (int i = 0; i < N / 2; i++) y[(wait * 128 + thread) * (N / 2) + i] = d[i];
    }
}

static float a_of(int row, int k) { return (float)((row * 7 + k * 3) % 17 - 8) / 8; } // sums of products are exact
static float b_of(int k, int column) { return (float)((column * 5 + k * 11) % 19 - 9) / 8; }

template <int N, bool N_MAJOR>
static void check_wgmma(int width, bool a_in_registers, bool accumulate, const char *order)
{
    std::vector<__nv_bfloat16> memory(WGMMA_ROOM / 2, __nv_bfloat16(1000.0f)), registers(128 * 8);
    WgmmaTest t = {{0, 0}, {0, 0}, width, a_in_registers, accumulate};
    for (int k = 0; k < 16; k++) {
        for (int row = 0; row < 64; row++) {
            const int byte = byte_of_atoms(row, k, 64, width, false, &t.leading[0], &t.stride[0]);
            memory[(size_t)byte / 2] = __nv_bfloat16(a_of(row, k));
        }
        for (int n = 0; n < N; n++) {
            const int byte = byte_of_atoms(n, k, N, width, N_MAJOR, &t.leading[1], &t.stride[1]);
            memory[(size_t)(WGMMA_A_BYTES + byte) / 2] = __nv_bfloat16(b_of(k, n));
        }
    }
    // PTX ISA, the fragments of A for .m64nNk16: as for mma.m16n8k16, 16 rows to each warp
    for (int thread = 0; thread < 128; thread++)
        for (int i = 0; i < 8; i++)
            registers[(size_t)(thread * 8 + i)] =
                __nv_bfloat16(a_of(thread / 32 * 16 + a_row(thread % 32, i), a_column(thread % 32, i)));
    Buffer<__nv_bfloat16> x(memory), r(registers);
    Buffer<float> y(3 * 128 * (N / 2));
    GX_LAUNCH((multiply_matrices<N, N_MAJOR>), 1, 128, WGMMA_ROOM, 0, y.data, x.data, (const unsigned *)r.data, t);
    const std::vector<float> d = y.download();
    for (size_t at = 0; at < d.size(); at++) {
        const int wait = (int)at / (128 * (N / 2)), thread = (int)at / (N / 2) % 128, i = (int)at % (N / 2);
        // PTX ISA, the fragments of D: row of the register, and column
        const int row = thread / 32 * 16 + (thread % 32 >> 2) + (i % 4 < 2 ? 0 : 8);
        const int column = i / 4 * 8 + thread % 4 * 2 + (i & 1);
        float expected = accumulate ? 1.0f : 0.0f;
        for (int k = 0; k < 16; k++) expected += 2 * a_of(row, k) * b_of(k, column);
        CHECK(wait < 2 ? is_nan_pattern(d[at]) : d[at] == expected,
              "%s: n %d, swizzle %d, %s-major b, a in %s, after %d waits: [%d,%d] is %g, not %g", order, N, width,
              N_MAJOR ? "n" : "k", a_in_registers ? "registers" : "memory", wait, row, column, d[at], expected);
    }
}
TEST(wgmma_multiplies_what_descriptors_and_fragments_hold)
{
    in_every_order([](const char *order) {
        for (int width : {0, 32, 64, 128}) {
            check_wgmma<64, false>(width, false, true, order);
            check_wgmma<64, true>(width, true, false, order);
            check_wgmma<8, false>(width, true, true, order);
            check_wgmma<128, true>(width, false, true, order);
        }
        check_wgmma<256, false>(128, false, false, order);
        check_wgmma<256, true>(128, true, true, order);
        check_wgmma<24, false>(64, false, true, order);
        check_wgmma<48, true>(32, false, true, order);
    });
}

#endif
