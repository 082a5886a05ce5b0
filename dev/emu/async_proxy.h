// async_proxy.h: what the asynchronous units of an H100 see of shared memory: TMA (tma.h) and wgmma (wgmma.h).
//
//     gx_fence_proxy_async();      // what was written by ordinary stores is seen by these units, too
//
// They have a view of their own. What TMA brings is in both views; what threads store is in theirs alone until a fence
// behind it, and a unit that reads earlier finds what was there before, which at first is NaN. A fence publishes all
// that its block has written up to then, whichever thread wrote it.
#ifndef GX_EMU_ASYNC_PROXY_H
#define GX_EMU_ASYNC_PROXY_H
#include "words.h"

namespace emu
{

struct AsyncView {
    unsigned long long serial = 0; // of the block that it belongs to
    std::vector<unsigned char> bytes;
};
inline AsyncView async_view;

// The place in the units' view that is p in the threads'.
inline unsigned char *seen_by_async(const void *p)
{
    if (async_view.serial != block.serial) {
        async_view.serial = block.serial;
        async_view.bytes.assign(shared_capacity, fresh_byte);
    }
    return async_view.bytes.data() + shared_address(p);
}

// Do `bytes` bytes from p on lie in one variable of the block's shared memory?
inline bool is_in_shared(const unsigned char *p, size_t bytes)
{
    for (const SharedVariable &v : shared.variables)
        if (p >= v.begin && p + bytes <= v.begin + v.bytes) return true;
    return false;
}

// Swizzled memory: within rows of 8 times 128 bytes, the 16 bytes that lie at an address change places with others of
// their row of `width` bytes (32, 64 or 128; 0: they stay). CUDA programming guide, "Tensor Memory Access", swizzle.
inline unsigned swizzled(unsigned address, int width)
{
    const unsigned chunks = width ? (unsigned)width / 16 - 1 : 0;
    return address ^ (address >> 7 & chunks) << 4;
}
// Bytes after which the pattern repeats.
inline unsigned swizzle_period(int width) { return width ? (unsigned)width * 8 : 16; }

} // namespace emu

inline void gx_fence_proxy_async()
{
    emu::Hidden hidden;
    for (const emu::SharedVariable &v : emu::shared.variables) memcpy(emu::seen_by_async(v.begin), v.begin, v.bytes);
}

#endif
