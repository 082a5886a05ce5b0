// mbarrier.h: barriers in shared memory that count arrivals and bytes: mbarrier, from sm_90 on.
//
//     gx_mbarrier_init(&barrier, count);         // one thread
//     gx_mbarrier_fence_init();                  // the same thread, behind all that it initialises; then __syncthreads
//     gx_mbarrier_arrive(&barrier);              // one of the phase's `count` arrivals
//     gx_mbarrier_arrive_expect(&barrier, n);    // the same, and the phase waits for n bytes more (tma.h)
//     gx_mbarrier_wait(&barrier, parity);        // until the phase of this parity is complete: phases 0, 1, 2 ...
//     gx_mbarrier_try_wait(&barrier, parity)     // is it? After giving others time
//
// A phase is complete when all have arrived and all bytes are there; then the next one begins. Copies that bring bytes
// land as late as is legal: in a wait that only they hold up. An arrival orders what its thread did before in front of
// what a thread does that has waited for the phase.
//
// TMA sees a barrier only behind a fence: gx_mbarrier_fence_init by the thread that initialised it, or
// gx_fence_proxy_async (async_proxy.h). Threads need none.
//
// Not modelled: waits that give up, mbarrier.inval: a barrier's memory is a barrier's to the block's end.
#ifndef GX_EMU_MBARRIER_H
#define GX_EMU_MBARRIER_H
#include "async_proxy.h"
#include <deque>

namespace emu
{

constexpr unsigned mbarrier_most = (1 << 20) - 1;                // arrivals and bytes of a phase
constexpr unsigned long long mbarrier_mark = 0x6d62617272696572; // in shared memory, where a barrier is

struct Landing { // a copy on its way
    std::function<void()> land;
    unsigned bytes;
};
struct Mbarrier {
    const unsigned long long *at;
    int initialised_by;      // thread
    unsigned count, missing; // arrivals of a phase, and those that this one still waits for
    long long bytes = 0;     // that this one still waits for
    unsigned phase = 0;
    std::deque<Landing> landings;
    char order[2] = {}; // for ThreadSanitizer
    bool now(unsigned parity) const
    {
        Hidden hidden;
        return (phase & 1) == parity;
    }
};
struct Mbarriers { // of a block
    unsigned long long serial = 0;
    std::deque<Mbarrier> all;
};
inline Mbarriers mbarriers;

inline std::deque<Mbarrier> &mbarriers_of_block()
{
    if (mbarriers.serial != block.serial) mbarriers.all.clear(), mbarriers.serial = block.serial;
    return mbarriers.all;
}

inline Mbarrier *find_mbarrier(const unsigned long long *at)
{
    for (Mbarrier &m : mbarriers_of_block())
        if (m.at == at) return &m;
    return nullptr;
}

GX_EMU_UNCOUNTED inline Mbarrier &mbarrier_at(const unsigned long long *at, const Place &place)
{
    const unsigned address = shared_address(at);
    const bool is_marked = *(volatile const unsigned long long *)at == mbarrier_mark;
    Hidden hidden;
    Mbarrier *m = find_mbarrier(at);
    if (!m) kernel_fails("%s: the barrier at %u in shared memory was never initialized", text(place).c_str(), address);
    if (!is_marked)
        kernel_fails("%s: the barrier at %u in shared memory was overwritten", text(place).c_str(), address);
    return *m;
}

inline void show_to_async(const Mbarrier &m) { memcpy(seen_by_async(m.at), &mbarrier_mark, sizeof mbarrier_mark); }

inline void check_that_async_sees(const Mbarrier &m, const Place &place)
{
    if (memcmp(seen_by_async(m.at), &mbarrier_mark, sizeof mbarrier_mark))
        kernel_fails("%s: no fence.mbarrier_init by thread %d, which initialized the barrier at %u in shared memory",
                     text(place).c_str(), m.initialised_by, shared_address(m.at));
}

inline void complete_if_nothing_is_missing(Mbarrier &m)
{
    if (m.missing || m.bytes) return;
    m.phase++;
    m.missing = m.count;
    made_progress();
}

inline void mbarrier_expect(Mbarrier &m, unsigned bytes, const Place &place)
{
    if (bytes > mbarrier_most || m.bytes + bytes > mbarrier_most)
        kernel_fails("%s: a phase waits for %lld bytes; there may be %u", text(place).c_str(), m.bytes + bytes,
                     mbarrier_most);
    m.bytes += bytes;
}

inline void mbarrier_arrive(Mbarrier &m, const Place &place)
{
    if (!m.missing)
        kernel_fails("%s: an arrival too many: all %u of this phase have come, %lld bytes are missing",
                     text(place).c_str(), m.count, m.bytes);
    release_order(&m.order[m.phase & 1]);
    visibility_release_to_block();
    m.missing--;
    made_progress();
    complete_if_nothing_is_missing(m);
}

// Takes a copy that holds up a phase in which all have arrived, if there is one.
inline bool take_landing(Mbarrier &m, Landing *next)
{
    Hidden hidden;
    if (m.missing || m.bytes <= 0 || m.landings.empty()) return false;
    acquire_order(&m.order[m.phase & 1]);
    *next = m.landings.front();
    m.landings.pop_front();
    m.bytes -= next->bytes;
    return true;
}

// Is the phase of this parity complete? What it still waits for may land now: these writes are the kernel's own, not
// the emulator's, and so not hidden.
inline bool mbarrier_try(const unsigned long long *at, unsigned parity, const Place &place)
{
    Mbarrier &m = mbarrier_at(at, place);
    if (parity > 1) kernel_fails("%s: the parity is %u; there are 0 and 1", text(place).c_str(), parity);
    Landing next;
    while (m.now(parity) && take_landing(m, &next)) {
        next.land();
        Hidden hidden;
        release_order(&m.order[m.phase & 1]);
        if (m.bytes < 0)
            kernel_fails("%s: copies brought %lld bytes more than the phase waits for", text(place).c_str(), -m.bytes);
        complete_if_nothing_is_missing(m);
    }
    if (m.now(parity)) return false;
    acquire_order(&m.order[parity]);
    return true;
}

inline void no_landing_is_left()
{
    if (block.live > 1) return; // the last thread looks
    for (const Mbarrier &m : mbarriers.all)
        if (!m.landings.empty())
            kernel_fails("the block ends with %zu copies on their way to the barrier at %u in shared memory",
                         m.landings.size(), shared_address(m.at));
}
inline const bool looking_for_landings = at_exit(&mbarriers.serial, no_landing_is_left);

} // namespace emu

GX_EMU_UNCOUNTED inline void gx_mbarrier_init(unsigned long long *barrier, unsigned count, GX_EMU_HERE)
{
    const emu::Place place = {"mbarrier.init", where};
    if (emu::shared_address(barrier) % 8) emu::kernel_fails("%s: misaligned", emu::text(place).c_str());
    if (count < 1 || count > emu::mbarrier_most)
        emu::kernel_fails("%s: a count of %u; from 1 to %u are possible", emu::text(place).c_str(), count,
                          emu::mbarrier_most);
    *(volatile unsigned long long *)barrier = emu::mbarrier_mark;
    emu::Hidden hidden;
    if (emu::find_mbarrier(barrier)) emu::kernel_fails("%s: it is a barrier already", emu::text(place).c_str());
    emu::Mbarrier &m = emu::mbarriers.all.emplace_back();
    m.at = barrier;
    m.initialised_by = emu::self().linear;
    m.count = m.missing = count;
}
inline void gx_mbarrier_fence_init()
{
    emu::Hidden hidden;
    for (const emu::Mbarrier &m : emu::mbarriers_of_block())
        if (m.initialised_by == emu::self().linear) emu::show_to_async(m);
}

inline void gx_mbarrier_arrive(unsigned long long *barrier, GX_EMU_HERE)
{
    const emu::Place place = {"mbarrier.arrive", where};
    emu::Mbarrier &m = emu::mbarrier_at(barrier, place);
    emu::Hidden hidden;
    emu::mbarrier_arrive(m, place);
}
inline void gx_mbarrier_arrive_expect(unsigned long long *barrier, unsigned bytes, GX_EMU_HERE)
{
    const emu::Place place = {"mbarrier.arrive.expect_tx", where};
    emu::Mbarrier &m = emu::mbarrier_at(barrier, place);
    emu::Hidden hidden;
    emu::mbarrier_expect(m, bytes, place);
    emu::mbarrier_arrive(m, place);
}

inline bool gx_mbarrier_try_wait(unsigned long long *barrier, unsigned parity, GX_EMU_HERE)
{
    const emu::Place place = {"mbarrier.try_wait", where};
    if (emu::mbarrier_try(barrier, parity, place)) return true;
    emu::yield(place.what, where);
    return emu::mbarrier_try(barrier, parity, place);
}
inline void gx_mbarrier_wait(unsigned long long *barrier, unsigned parity, GX_EMU_HERE)
{
    while (!gx_mbarrier_try_wait(barrier, parity, where)) continue;
}

#endif
