// banks.h: how often the lanes of a warp meet in a bank of shared memory, for every access.
//
// A build of its own counts (GX_EMU_COUNTS_BANKS; `make DEVICE=emu VARIANT=banks`): g++ compiles it with
// -fsanitize=thread, which calls a function in front of each access to memory, and it is linked without, so that these
// functions are the ones below. -O1 -fno-tree-sra: a struct of 16 bytes is then read and written as one, as by nvcc.
// Any other build counts ldmatrix alone (ldmatrix.h).
//
// What the lanes of a warp bring to the same instruction for the n-th time is one request, where n begins anew whenever
// all lanes meet, at a barrier or in a collective. Lanes that have not come have diverged and do not count.
//
// The rule (CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x and later): 32 banks, of which each
// gives a word of 4 bytes in a pass, successive words lie in successive banks, and the same word is no conflict: it
// goes to all who read it, and is written by one of those who write it. Of 8 bytes a lane, half a warp is served at a
// time, of 16 a quarter (the Guide's section on compute capability 2.x, "64-Bit Accesses" and "128-Bit Accesses"; it
// is what later cards do, too, as ldmatrix's 8 rows of 16 bytes). Atomics on the same address go one after another
// (the Guide's "SIMT Architecture"). Passes beyond one for each group of lanes are conflicts.
//
// A request that takes more is a fault with GX_EMU_BANKS=refuse. With GX_EMU_BANKS_REPORT=FILE a line for each
// instruction that uses shared memory is added to FILE when the program ends; dev/cuda/banks.sh reads them.
//
// Not modelled: that nvcc may join neighbouring accesses, or split one of a struct that is aligned to less than its
// size; lanes that take a loop together in some of its turns only, between two meetings, are matched by their own
// turns.
#ifndef GX_EMU_BANKS_H
#define GX_EMU_BANKS_H
#include "shared.h"

namespace emu
{

constexpr unsigned bank_count = 32, bank_bytes = 4;

struct BankRequest {
    unsigned lanes; // that have come
    unsigned address[warp_lanes];
};
enum class BankUse : uint8_t { load, store, atomic };

inline bool refuses_bank_conflicts()
{
    static const bool refuses = environment_word("GX_EMU_BANKS", {"count", "refuse"}) == "refuse";
    return refuses;
}

// Passes that lanes of a request take which are served together.
__attribute__((no_sanitize("thread"))) inline int bank_passes(const BankRequest &r, unsigned lanes, unsigned bytes,
                                                              BankUse use)
{
    unsigned word_of[bank_count][warp_lanes * 2]; // an access of 2 bytes or more may be misaligned
    int words[bank_count] = {}, most = 0;
    for (; lanes; lanes &= lanes - 1) {
        const unsigned address = r.address[__builtin_ctz(lanes)];
        for (unsigned word = address / bank_bytes; word <= (address + bytes - 1) / bank_bytes; word++) {
            const unsigned bank = word % bank_count;
            int i = use == BankUse::atomic ? words[bank] : 0;
            while (i < words[bank] && word_of[bank][i] != word) i++;
            if (i == words[bank]) word_of[bank][words[bank]++] = word;
            most = words[bank] > most ? words[bank] : most;
        }
    }
    return most;
}

struct BankPasses {
    int least, taken;
};
__attribute__((no_sanitize("thread"))) inline BankPasses bank_passes(const BankRequest &r, unsigned bytes, BankUse use)
{
    const int together = bytes <= bank_bytes ? warp_lanes : (int)(bank_count * bank_bytes / bytes);
    BankPasses p = {0, 0};
    for (int first = 0; first < warp_lanes; first += together) {
        const unsigned lanes = r.lanes & (unsigned)(((1ull << together) - 1) << first);
        p.least += lanes != 0;
        p.taken += bank_passes(r, lanes, bytes, use);
    }
    return p;
}

#ifdef GX_EMU_COUNTS_BANKS
#define GX_EMU_UNCOUNTED __attribute__((no_sanitize("thread"))) // accesses that are no thread's loads and stores

struct BankCounts {
    long long requests = 0, least = 0, conflicts = 0; // least: passes if there were no conflicts
};
struct BankTurns { // of a warp since its lanes met
    unsigned times[warp_lanes];
    unsigned used, room;
    BankRequest *request; // the n-th
};
constexpr int warps_max = block_threads_max / warp_lanes;
struct BankSite { // an instruction of a kernel
    const char *kernel;
    const void *at; // behind it
    unsigned part;  // of a struct that takes several: the bytes in front of it
    unsigned bytes;
    BankUse use;
    BankCounts counts;
    BankPasses worst;
    BankTurns turns[warps_max];
};
struct Banks {
    BankSite **table = nullptr; // by hash
    unsigned sites = 0;
    std::vector<BankSite *> used[warps_max]; // since the lanes met
};
inline Banks banks;
constexpr unsigned bank_sites_max = 1 << 16;

inline size_t address_of(const BankSite *s) { return address_in_program((const char *)s->at - 1); }
inline const char *text(BankUse use)
{
    return use == BankUse::load ? "load" : use == BankUse::store ? "store" : "atomic";
}

inline void report_banks()
{
    FILE *f = open_report("GX_EMU_BANKS_REPORT");
    if (!f) return;
    for (unsigned i = 0; i < bank_sites_max; i++)
        if (const BankSite *s = banks.table[i])
            fprintf(f, "%s\t%#zx\t%s\t%s %u\t%lld\t%lld\t%lld\t%d\t%d\n", program_file().c_str(), address_of(s),
                    s->kernel, text(s->use), s->bytes, s->counts.requests, s->counts.least, s->counts.conflicts,
                    s->worst.taken, s->worst.least);
    close_report(f, "GX_EMU_BANKS_REPORT");
}

inline BankSite *open_bank_site(const void *at, unsigned part, unsigned bytes, BankUse use)
{
    if (!banks.table) {
        banks.table = (BankSite **)calloc(bank_sites_max, sizeof *banks.table);
        atexit(report_banks);
    }
    if (++banks.sites > bank_sites_max / 2) fatal("too many instructions use shared memory");
    BankSite *s = (BankSite *)calloc(1, sizeof *s);
    s->kernel = block.launch->name, s->at = at, s->part = part, s->bytes = bytes, s->use = use;
    return s;
}

GX_EMU_UNCOUNTED inline BankSite *bank_site(const void *at, unsigned part, unsigned bytes, BankUse use)
{
    const char *kernel = block.launch->name;
    unsigned i = (unsigned)((((uintptr_t)at + part) * 31 + (uintptr_t)kernel) * 0x9E3779B97F4A7C15ull >> 40);
    for (;; i++) {
        BankSite **s = banks.table ? &banks.table[i % bank_sites_max] : nullptr;
        if (s && *s) {
            const BankSite &x = **s;
            if (x.at == at && x.part == part && x.kernel == kernel && x.bytes == bytes && x.use == use) return *s;
            continue;
        }
        BankSite *fresh = open_bank_site(at, part, bytes, use);
        return banks.table[i % bank_sites_max] = fresh;
    }
}

inline void widen(BankTurns &t)
{
    t.room = t.room ? t.room * 2 : 4;
    t.request = (BankRequest *)realloc((void *)t.request, t.room * sizeof *t.request);
    if (!t.request) fatal("no memory for %u requests of a warp", t.room);
}

// The running thread's access; `at` is the return address of who was called in front of it.
GX_EMU_UNCOUNTED inline void bank_access(const void *p, unsigned bytes, BankUse use, const void *at, unsigned part = 0)
{
    const size_t offset = (size_t)((const unsigned char *)p - shared.base);
    const Thread *me = block.current;
    if (offset >= shared_capacity || !me) return;
    BankSite *s = bank_site(at, part, bytes, use);
    BankTurns &t = s->turns[me->warp];
    const unsigned n = t.times[me->lane]++;
    if (n >= t.room) widen(t);
    if (n >= t.used) {
        if (!t.used) banks.used[me->warp].push_back(s);
        t.request[t.used++].lanes = 0;
    }
    t.request[n].lanes |= 1u << me->lane;
    t.request[n].address[me->lane] = (unsigned)offset;
}

GX_EMU_UNCOUNTED inline void count_request(BankSite *s, const BankRequest &r, int warp)
{
    const BankPasses p = bank_passes(r, s->bytes, s->use);
    s->counts.requests++;
    s->counts.least += p.least;
    s->counts.conflicts += p.taken - p.least;
    if (p.taken - p.least > s->worst.taken - s->worst.least || !s->worst.least) s->worst = p;
    if (p.taken > p.least && refuses_bank_conflicts())
        kernel_fails("a %s of %u bytes by lanes %s of warp %d takes %d passes over the banks of shared memory, where "
                     "%d would do (addr2line -i -e PROGRAM %#zx)",
                     text(s->use), s->bytes, text_of_lanes(r.lanes).c_str(), warp, p.taken, p.least, address_of(s));
}

// All lanes of the warp that have not exited are in the same place.
GX_EMU_UNCOUNTED inline void bank_lanes_meet(int warp)
{
    for (BankSite *s : banks.used[warp]) {
        BankTurns &t = s->turns[warp];
        for (unsigned n = 0; n < t.used; n++) count_request(s, t.request[n], warp);
        for (unsigned &times : t.times) times = 0;
        t.used = 0;
    }
    banks.used[warp].clear();
}

// Of a kernel by the name it is launched by, since they were asked for last.
inline BankCounts take_bank_counts(const char *kernel)
{
    BankCounts all;
    for (unsigned i = 0; banks.table && i < bank_sites_max; i++) {
        BankSite *s = banks.table[i];
        if (!s || strcmp(s->kernel, kernel)) continue;
        all.requests += s->counts.requests, all.least += s->counts.least, all.conflicts += s->counts.conflicts;
        s->counts = BankCounts();
    }
    return all;
}
#else
#define GX_EMU_UNCOUNTED
inline void bank_lanes_meet(int) {}
#endif

} // namespace emu

#ifdef GX_EMU_COUNTS_BANKS
// ---- what g++ calls ------------------------------------------------------------------------------------------------
// A function that is missing here, of another version of g++, is missed by the linker.
#define GX_EMU_HOOK extern "C" inline __attribute__((used, noinline, no_sanitize("thread")))
#define GX_EMU_HOOK_ACCESS(name, bytes, use)                                                                           \
    GX_EMU_HOOK void __tsan_##name(void *p)                                                                            \
    {                                                                                                                  \
        emu::bank_access(p, bytes, emu::BankUse::use, __builtin_return_address(0));                                    \
    }
#define GX_EMU_HOOK_ACCESSES(bytes)                                                                                    \
    GX_EMU_HOOK_ACCESS(read##bytes, bytes, load)                                                                       \
    GX_EMU_HOOK_ACCESS(write##bytes, bytes, store)
GX_EMU_HOOK_ACCESSES(1)
GX_EMU_HOOK_ACCESSES(2)
GX_EMU_HOOK_ACCESSES(4)
GX_EMU_HOOK_ACCESSES(8)
GX_EMU_HOOK_ACCESSES(16)
#undef GX_EMU_HOOK_ACCESSES
#undef GX_EMU_HOOK_ACCESS

// A struct of another size: in parts of the largest power of two that its size is a multiple of, 16 bytes at most.
namespace emu
{
GX_EMU_UNCOUNTED inline void bank_range(const void *p, size_t bytes, BankUse use, const void *at)
{
    const size_t part = std::min<size_t>(bytes & -bytes, 16);
    for (size_t i = 0; i < bytes; i += part) bank_access((const char *)p + i, (unsigned)part, use, at, (unsigned)i);
}
} // namespace emu
GX_EMU_HOOK void __tsan_read_range(void *p, size_t n)
{
    emu::bank_range(p, n, emu::BankUse::load, __builtin_return_address(0));
}
GX_EMU_HOOK void __tsan_write_range(void *p, size_t n)
{
    emu::bank_range(p, n, emu::BankUse::store, __builtin_return_address(0));
}

GX_EMU_HOOK void __tsan_init() {}
GX_EMU_HOOK void __tsan_func_entry(void *) {}
GX_EMU_HOOK void __tsan_func_exit() {}
GX_EMU_HOOK void __tsan_vptr_update(void *, void *) {}
GX_EMU_HOOK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Operations of the processor. An atomic of CUDA (atomics.h) is one of them in shared memory, an exchange.
#define GX_EMU_HOOK_UPDATE(name, T, bits)                                                                              \
    GX_EMU_HOOK T __tsan_atomic##bits##_##name(volatile void *p, T v, int)                                             \
    {                                                                                                                  \
        return __atomic_##name((volatile T *)p, v, __ATOMIC_SEQ_CST);                                                  \
    }
#define GX_EMU_HOOK_ATOMICS(T, bits)                                                                                   \
    GX_EMU_HOOK T __tsan_atomic##bits##_load(const volatile void *p, int)                                              \
    {                                                                                                                  \
        return __atomic_load_n((const volatile T *)p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                                                  \
    GX_EMU_HOOK void __tsan_atomic##bits##_store(volatile void *p, T v, int)                                           \
    {                                                                                                                  \
        __atomic_store_n((volatile T *)p, v, __ATOMIC_SEQ_CST);                                                        \
    }                                                                                                                  \
    GX_EMU_HOOK bool __tsan_atomic##bits##_compare_exchange_strong(volatile void *p, void *expected, T v, int, int)    \
    {                                                                                                                  \
        emu::bank_access((const void *)p, bits / 8, emu::BankUse::atomic, __builtin_return_address(0));                \
        return __atomic_compare_exchange_n((volatile T *)p, (T *)expected, v, false, __ATOMIC_SEQ_CST,                 \
                                           __ATOMIC_SEQ_CST);                                                          \
    }                                                                                                                  \
    GX_EMU_HOOK_UPDATE(exchange_n, T, bits)                                                                            \
    GX_EMU_HOOK_UPDATE(fetch_add, T, bits)                                                                             \
    GX_EMU_HOOK_UPDATE(fetch_sub, T, bits)                                                                             \
    GX_EMU_HOOK_UPDATE(fetch_and, T, bits)                                                                             \
    GX_EMU_HOOK_UPDATE(fetch_or, T, bits)
GX_EMU_HOOK_ATOMICS(unsigned char, 8)
GX_EMU_HOOK_ATOMICS(unsigned short, 16)
GX_EMU_HOOK_ATOMICS(unsigned, 32)
GX_EMU_HOOK_ATOMICS(unsigned long, 64)
#undef GX_EMU_HOOK_ATOMICS
#undef GX_EMU_HOOK_UPDATE
#endif

namespace emu
{
// A store of the running thread that no statement of its own makes: cp.async's.
#ifdef GX_EMU_COUNTS_BANKS
GX_EMU_UNCOUNTED __attribute__((noinline)) inline void store_by_copy(void *p, unsigned bytes)
{
    bank_access(p, bytes, BankUse::store, __builtin_return_address(0));
}
#else
inline void store_by_copy(void *, unsigned) {}
#endif
} // namespace emu
#endif
