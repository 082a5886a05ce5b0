// cp_async.h: copies from global to shared memory behind a thread's back: cp.async with its groups.
//
//     gx_cp_async<16>(to, from, bytes);    // 16 bytes (or 4), of which `bytes` are read, the others are 0
//     gx_cp_async_commit();                // what this thread began since the last commit is a group
//     gx_cp_async_wait<N>();               // until all but its last N groups have landed
//
// A copy may land at any time between its beginning and the wait. So `to` is NaN from the beginning on, which shows who
// still reads what was there, and gets the bytes in the wait, which shows who reads before it. A wait is for a thread's
// own copies: what others copied is there behind a barrier.
#ifndef GX_EMU_CP_ASYNC_H
#define GX_EMU_CP_ASYNC_H
#include "words.h"

namespace emu
{

struct AsyncCopy {
    unsigned char *to;
    const unsigned char *from;
    int bytes, of;
};
struct CopiesUnderWay { // of a thread
    std::vector<AsyncCopy> copies;
    std::vector<size_t> groups; // how many copies each committed group has
    size_t committed = 0;       // copies in groups
};

inline void land(const AsyncCopy &c)
{
    if (c.bytes) memcpy(c.to, c.from, (size_t)c.bytes);
    memset(c.to + c.bytes, 0, (size_t)(c.of - c.bytes));
}

inline void no_copy_is_left()
{
    const size_t left = per_thread<CopiesUnderWay>().copies.size();
    if (left) kernel_fails("a thread ends with %zu copies by cp.async that it has not waited for", left);
}
inline const bool looking_for_copies = at_exit(&last_block_with<CopiesUnderWay>, no_copy_is_left);

} // namespace emu

template <int OF> __forceinline__ void gx_cp_async(void *to, const void *from, int bytes)
{
    static_assert(OF == 4 || OF == 8 || OF == 16);
    if (bytes < 0 || bytes > OF) emu::kernel_fails("cp.async: %d bytes of %d", bytes, OF);
    if (emu::shared_address(to) % OF || (uintptr_t)from % OF)
        emu::kernel_fails("cp.async of %d bytes from %p to %p: misaligned", OF, from, to);
    const emu::AsyncCopy c = {(unsigned char *)to, (const unsigned char *)from, bytes, OF};
    if (bytes) (void)*(volatile const unsigned char *)from, (void)*((volatile const unsigned char *)from + bytes - 1);
    emu::store_by_copy(to, OF);
    memset(to, emu::fresh_byte, OF);
    emu::Hidden hidden;
    emu::per_thread<emu::CopiesUnderWay>().copies.push_back(c);
}

inline void gx_cp_async_commit()
{
    emu::Hidden hidden;
    emu::CopiesUnderWay &mine = emu::per_thread<emu::CopiesUnderWay>();
    mine.groups.push_back(mine.copies.size() - mine.committed);
    mine.committed = mine.copies.size();
}

template <int N> void gx_cp_async_wait()
{
    std::vector<emu::AsyncCopy> landing;
    {
        emu::Hidden hidden;
        emu::CopiesUnderWay &mine = emu::per_thread<emu::CopiesUnderWay>();
        size_t n = 0, groups = mine.groups.size() > N ? mine.groups.size() - N : 0;
        for (size_t i = 0; i < groups; i++) n += mine.groups[i];
        landing.assign(mine.copies.begin(), mine.copies.begin() + (long)n);
        mine.copies.erase(mine.copies.begin(), mine.copies.begin() + (long)n);
        mine.groups.erase(mine.groups.begin(), mine.groups.begin() + (long)groups);
        mine.committed -= n;
    }
    for (const emu::AsyncCopy &c : landing) emu::land(c);
}

#endif
