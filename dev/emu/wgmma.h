// wgmma.h: a warpgroup's product of matrices in tensor cores, from sm_90 on: wgmma.mma_async.sync.aligned.m64nNk16 of
// bf16 with fp32 sums.
//
//     gx_wgmma_fence();                                    // behind ordinary use of the registers
//     gx_wgmma<N, false>(d, a, b, accumulate);             // d [64,N] (+)= a [64,16] b [16,N]; a, b: descriptors
//     gx_wgmma<N, true>(d, registers, b, accumulate);      // a in registers; true: b is N-major in shared memory
//     gx_wgmma_commit();                                   // what this thread began since the last commit is a group
//     gx_wgmma_wait<N>();                                  // until all but its last N groups are done
//     gx_wgmma_descriptor(address, leading, stride, swizzle)
//
// The 128 threads of four warps, of which the first has a number divisible by 4, come with the same descriptors in the
// same order; a warp waits until the others have come, too. Warp w has rows 16w to 16w+15; a row's registers are those
// of mma.sync (mma_sync.h), eight columns after eight.
//
// Matrices are read in a thread's own wait, from the units' view of shared memory (async_proxy.h): it shows who
// overwrites them earlier, and who has not fenced. Until then the sums are NaN; whoever writes them is told. A fence is
// asked for in front of a product whose sums no other one is adding to.
//
// Not modelled: that registers of a change while they are read (they are copied), a fence that is missing for these
// alone, a from shared memory that is M-major, base offsets of descriptors, signs of products, other types than bf16.
// Sums are taken in the order of k.
#ifndef GX_EMU_WGMMA_H
#define GX_EMU_WGMMA_H
#include "async_proxy.h"
#include "small_float.h"
#include "cuda_bf16.h"

namespace emu
{

constexpr int wgmma_m = 64, wgmma_k = 16, warpgroup_warps = 4, warpgroup_threads = 128;

// PTX ISA, "Matrix Descriptor Format": 62-63 swizzle, 49-51 base offset, 32-45 stride, 16-29 leading, 0-13 address; the
// last three in units of 16 bytes.
struct Descriptor {
    unsigned start, leading, stride; // bytes
    int width;                       // of the swizzle
};

inline Descriptor descriptor(unsigned long long x, const Place &place)
{
    const unsigned mode = (unsigned)(x >> 62);
    const Descriptor d = {(unsigned)(x & 0x3fff) << 4, (unsigned)(x >> 16 & 0x3fff) << 4,
                          (unsigned)(x >> 32 & 0x3fff) << 4, mode ? 256 >> mode : 0};
    if (x & 0x3fffc000c000c000ull)
        kernel_fails("%s: descriptor %#llx has a base offset, or bits that are reserved", text(place).c_str(), x);
    if (d.start % swizzle_period(d.width) >= (d.width ? 128u : 16u))
        kernel_fails("%s: a matrix at %u in shared memory: its swizzle of %d bytes repeats every %u",
                     text(place).c_str(), d.start, d.width, swizzle_period(d.width));
    return d;
}

// PTX ISA, "Shared Memory Matrix Layout": where element (mn, k) lies, in bytes from the start, before it is swizzled.
// An atom is 8 rows of the swizzle's width, of 16 bytes without one.
inline unsigned matrix_offset(const Descriptor &d, bool mn_major, int mn, int k)
{
    const int width = d.width ? d.width : 16, row = width / 2; // bytes, elements
    if (!mn_major)
        return (unsigned)(mn / 8) * d.stride + (unsigned)(mn % 8 * width) +
               (d.width ? (unsigned)k * 2 : (unsigned)(k / 8) * d.leading + (unsigned)(k % 8 * 2));
    return (unsigned)(mn / row) * (d.width ? d.leading : d.stride) + (unsigned)(mn % row * 2) +
           (unsigned)(k / 8) * (d.width ? d.stride : d.leading) + (unsigned)(k % 8 * width);
}

inline float matrix_element(const Descriptor &d, bool mn_major, int mn, int k, const Place &place)
{
    const unsigned address = swizzled(d.start + matrix_offset(d, mn_major, mn, k), d.width);
    const unsigned char *p = shared.base + address;
    {
        Hidden hidden;
        if (!is_in_shared(p, 2))
            kernel_fails("%s: element (%d,%d) of a matrix at %u lies at %u in shared memory, where there is nothing",
                         text(place).c_str(), mn, k, d.start, address);
    }
    (void)*(volatile const unsigned short *)p; // for who looks for races
    __nv_bfloat16 x;
    memcpy((void *)&x, seen_by_async(p), sizeof x);
    return (float)x;
}

// ---- what is under way ---------------------------------------------------------------------------------------------

struct WgmmaCall { // the same for all threads of a warpgroup
    int n;
    bool from_registers, n_major, accumulate;
    unsigned long long a, b;
    bool operator==(const WgmmaCall &) const = default;
};
struct WarpgroupCall {
    WgmmaCall call;
    unsigned arrived; // warps
};
struct Warpgroup {
    unsigned long long serial = 0; // of the block
    std::vector<WarpgroupCall> calls;
};
inline Warpgroup warpgroups[block_threads_max / warpgroup_threads];

struct RowsOfA {
    unsigned short x[2][wgmma_k]; // of this thread's sums, where a is in registers
};
struct Wgmma { // of a thread
    WgmmaCall call;
    RowsOfA a;
    float *d;
    Place place;
};
struct Sums { // that products under way add to
    float *d;
    std::vector<float> values;
};
struct WgmmasUnderWay { // of a thread
    std::vector<Wgmma> products;
    std::vector<size_t> groups; // how many products each committed group has
    size_t committed = 0;       // products in groups
    size_t done = 0, begun = 0; // products, since the block began
    std::vector<Sums> sums;
    bool fenced = false;
};

inline Warpgroup &my_warpgroup()
{
    Warpgroup &g = warpgroups[self().warp / warpgroup_warps];
    if (g.serial != block.serial) g.serial = block.serial, g.calls.clear();
    return g;
}

// All lanes of a warp are here; its product number `number` is that of the other warps of the warpgroup.
inline void join_warpgroup(const WgmmaCall &call, size_t number, const Place &place)
{
    const int first = self().warp / warpgroup_warps * warpgroup_warps;
    const bool whole = (size_t)(first + warpgroup_warps) * warp_lanes <= block.threads.size();
    if (!whole) kernel_fails("%s needs four warps from warp %d on; the block ends before", text(place).c_str(), first);
    Warpgroup &g = my_warpgroup();
    if (number == g.calls.size()) g.calls.push_back({call, 0});
    if (!(g.calls[number].call == call))
        kernel_fails("%s: the warps of a warpgroup come with different products", text(place).c_str());
    g.calls[number].arrived |= 1u << (self().warp - first);
}

inline bool is_all_nan_pattern(const float *d, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (__float_as_uint(d[i]) != ~0u) return false;
    return true;
}

inline Sums &find_sums(WgmmasUnderWay &mine, const float *d)
{
    return *std::find_if(mine.sums.begin(), mine.sums.end(), [d](const Sums &s) { return s.d == d; });
}

inline void begin_sums(WgmmasUnderWay &mine, float *d, int n, const Place &place)
{
    for (const Sums &s : mine.sums) {
        if (s.d != d && (s.d >= d + n || d >= s.d + s.values.size())) continue;
        if (s.d == d && s.values.size() == (size_t)n) {
            if (is_all_nan_pattern(d, (size_t)n)) return;
            kernel_fails("%s: the sums were written while products add to them", text(place).c_str());
        }
        kernel_fails("%s: products of other sizes add to these sums", text(place).c_str());
    }
    if (!mine.fenced) kernel_fails("%s: no wgmma.fence since the registers of its sums were used", text(place).c_str());
    mine.sums.push_back({d, std::vector<float>(d, d + n)});
    memset(d, fresh_byte, (size_t)n * sizeof *d);
}

struct WgmmaLane {
    WgmmaCall call;
    unsigned a[4];
};

// Row lane/4 + 8*half of a: its registers are spread over four lanes as those of mma.m16n8k16.
inline void gather_rows(Lanes<WgmmaLane> in, Lanes<RowsOfA> out)
{
    for (int lane = 0; lane < warp_lanes; lane++)
        for (int half = 0; half < 2; half++)
            for (int k = 0; k < wgmma_k; k++)
                out[lane].x[half][k] =
                    (unsigned short)(in[lane / 4 * 4 + k % 8 / 2].a[half + k / 8 * 2] >> 16 * (k % 2));
}

inline void wgmma_begin(float *d, const WgmmaLane &lane, const Place &place)
{
    const RowsOfA rows =
        warp_collective<RowsOfA>(~0u, place, lane, [&](unsigned lanes, Lanes<WgmmaLane> in, Lanes<RowsOfA> out) {
            if (lanes != ~0u) kernel_fails("%s needs all lanes of a warp", text(place).c_str());
            for (int i = 1; i < warp_lanes; i++)
                if (!(in[i].call == in[0].call))
                    kernel_fails("%s: lanes 0 and %d come with different products", text(place).c_str(), i);
            gather_rows(in, out);
        });
    Hidden hidden;
    WgmmasUnderWay &mine = per_thread<WgmmasUnderWay>();
    join_warpgroup(lane.call, mine.begun, place);
    begin_sums(mine, d, lane.call.n / 2, place);
    mine.products.push_back({lane.call, rows, d, place});
    mine.begun++;
}

// PTX ISA, "Register Fragments" of wgmma .m64nNk16: register i of d is row lane/4 + i%4/2*8 of the warp's 16, column
// i/4*8 + lane%4*2 + i%2.
inline void multiply(const Wgmma &w, std::vector<float> &sums)
{
    const Descriptor of_b = descriptor(w.call.b, w.place);
    const int lane = self().lane, first = self().warp % warpgroup_warps * 16 + lane / 4;
    float a[2][wgmma_k];
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < wgmma_k; k++)
            a[half][k] = w.call.from_registers
                             ? (float)__builtin_bit_cast(__nv_bfloat16, w.a.x[half][k])
                             : matrix_element(descriptor(w.call.a, w.place), false, first + half * 8, k, w.place);
    if (!w.call.accumulate) std::fill(sums.begin(), sums.end(), 0.0f);
    for (int k = 0; k < wgmma_k; k++)
        for (int i = 0; i < w.call.n / 2; i += i % 2 ? 3 : 1) { // of the upper half; the lower one's are two behind
            const float b = matrix_element(of_b, w.call.n_major, i / 4 * 8 + lane % 4 * 2 + i % 2, k, w.place);
            sums[(size_t)i] += a[0][k] * b;
            sums[(size_t)i + 2] += a[1][k] * b;
        }
}

inline void wait_for_warpgroup(size_t number, const Place &place)
{
    for (;;) {
        {
            Hidden hidden;
            if (my_warpgroup().calls[number].arrived == (1u << warpgroup_warps) - 1) return;
        }
        yield(place.what, place.where);
    }
}

// Sums that no product adds to any more are there.
inline void return_sums(WgmmasUnderWay &mine, const Place &place)
{
    for (size_t i = 0; i < mine.sums.size();) {
        const Sums &s = mine.sums[i];
        const bool goes_on =
            std::any_of(mine.products.begin(), mine.products.end(), [&s](const Wgmma &w) { return w.d == s.d; });
        if (goes_on) {
            i++;
            continue;
        }
        if (!is_all_nan_pattern(s.d, s.values.size()))
            kernel_fails("%s: the sums were written before this wait for the products that add to them",
                         text(place).c_str());
        std::copy(s.values.begin(), s.values.end(), s.d);
        mine.sums.erase(mine.sums.begin() + (long)i);
        mine.fenced = false;
    }
}

inline void wgmma_wait(size_t groups_left, const Place &place)
{
    warp_collective<char>(~0u, place, '\0', [](unsigned, auto, auto) {});
    std::vector<Wgmma> products;
    WgmmasUnderWay *mine;
    {
        Hidden hidden;
        mine = &per_thread<WgmmasUnderWay>();
        size_t n = 0, groups = mine->groups.size() > groups_left ? mine->groups.size() - groups_left : 0;
        for (size_t i = 0; i < groups; i++) n += mine->groups[i];
        products.assign(mine->products.begin(), mine->products.begin() + (long)n);
        mine->products.erase(mine->products.begin(), mine->products.begin() + (long)n);
        mine->groups.erase(mine->groups.begin(), mine->groups.begin() + (long)groups);
        mine->committed -= n;
    }
    for (const Wgmma &w : products) {
        wait_for_warpgroup(mine->done++, place);
        multiply(w, find_sums(*mine, w.d).values);
    }
    return_sums(*mine, place);
    // A warp waits as one: what one lane does next comes behind the reads of all.
    warp_collective<char>(
        ~0u, place, '\0', [](unsigned, auto, auto) {}, true);
}

inline void no_wgmma_is_left()
{
    const size_t left = per_thread<WgmmasUnderWay>().products.size();
    if (left) kernel_fails("a thread ends with %zu products by wgmma that it has not waited for", left);
}
inline const bool looking_for_wgmmas = at_exit(&last_block_with<WgmmasUnderWay>, no_wgmma_is_left);

inline bool is_multiple_of_16_below(unsigned x, unsigned limit) { return x % 16 == 0 && x < limit; }

} // namespace emu

// Of a matrix from `start` on in shared memory; leading, stride: bytes, as "Strides" of the PTX ISA says; swizzle:
// bytes of its width, 0, 32, 64 or 128.
inline unsigned long long gx_wgmma_descriptor(const void *start, unsigned leading, unsigned stride, int swizzle)
{
    const unsigned address = emu::shared_address(start), limit = 1 << 18;
    const bool right = emu::is_multiple_of_16_below(address, limit) && emu::is_multiple_of_16_below(leading, limit) &&
                       emu::is_multiple_of_16_below(stride, limit);
    if (!right)
        emu::kernel_fails(
            "a descriptor of %u in shared memory, offsets %u and %u: not all are multiples of 16 below 2^18", address,
            leading, stride);
    const unsigned long long mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return address >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32 |
           mode << 62;
}

inline void gx_wgmma_fence(GX_EMU_HERE)
{
    emu::warp_collective<char>(~0u, {"wgmma.fence", where}, '\0', [](unsigned, auto, auto) {});
    emu::Hidden hidden;
    emu::per_thread<emu::WgmmasUnderWay>().fenced = true;
}

template <int N, bool N_MAJOR>
void gx_wgmma(float (&d)[N / 2], unsigned long long a, unsigned long long b, bool accumulate, GX_EMU_HERE)
{
    static_assert(N % 8 == 0 && N >= 8 && N <= 256);
    emu::wgmma_begin(d, {{N, false, N_MAJOR, accumulate, a, b}, {}}, {"wgmma", where});
}
template <int N, bool N_MAJOR>
void gx_wgmma(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b, bool accumulate, GX_EMU_HERE)
{
    static_assert(N % 8 == 0 && N >= 8 && N <= 256);
    emu::wgmma_begin(d, {{N, true, N_MAJOR, accumulate, 0, b}, {a[0], a[1], a[2], a[3]}}, {"wgmma", where});
}

inline void gx_wgmma_commit()
{
    emu::Hidden hidden;
    emu::WgmmasUnderWay &mine = emu::per_thread<emu::WgmmasUnderWay>();
    mine.groups.push_back(mine.products.size() - mine.committed);
    mine.committed = mine.products.size();
}
template <int N> void gx_wgmma_wait(GX_EMU_HERE) { emu::wgmma_wait(N, {"wgmma.wait_group", where}); }

// Registers of each thread of a warpgroup, from now on: no more than a check here.
template <int REGISTERS> void gx_setmaxnreg_increase()
{
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0);
}
template <int REGISTERS> void gx_setmaxnreg_decrease()
{
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0);
}

#endif
