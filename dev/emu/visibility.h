// visibility.h: when a block's writes reach other blocks.
//
// GX_EMU_FENCES=late: at the block's next __threadfence, or at the kernel's end: a reader that was told by an atomic
// alone finds the old values. Atomics themselves are seen at once. early (the default): at once, as blocks run one
// after another. Either is legal. A fence publishes all that its block has written up to then, whichever thread wrote
// it.
//
// Not modelled: that a reader may have old values of its own (its side of the fence), and fences of other scopes.
#ifndef GX_EMU_VISIBILITY_H
#define GX_EMU_VISIBILITY_H
#include "memory.h"

namespace emu
{

struct Published { // what other blocks see of an allocation
    unsigned char *begin;
    std::vector<unsigned char> bytes;
};
struct Delayed { // written by a block that has ended, and not published
    unsigned char *begin;
    std::vector<unsigned char> bytes;
};
struct Visibility {
    bool is_late = false; // in the kernel that runs
    std::vector<Published> published;
    std::vector<Delayed> delayed;
};
inline Visibility visibility;

inline void visibility_begin()
{
    Choice fences = environment_choice("GX_EMU_FENCES", "early");
    if (fences.word != "early" && fences.word != "late")
        fatal("GX_EMU_FENCES is %s; there are early and late", fences.word.c_str());
    visibility.is_late = fences.word == "late";
    visibility.published.clear();
    visibility.delayed.clear();
    if (!visibility.is_late) return;
    for (auto &[map, a] : memory.device)
        if (!a.freed && (memory.open_card < 0 || memory.open_card == a.card))
            visibility.published.push_back({a.begin, {a.begin, a.begin + a.bytes}});
}

inline void publish()
{
    if (!visibility.is_late) return;
    Hidden hidden;
    for (Published &p : visibility.published) memcpy(p.bytes.data(), p.begin, p.bytes.size());
}

inline void publish_atomic(void *at, size_t bytes)
{
    if (!visibility.is_late) return;
    Hidden hidden;
    for (Published &p : visibility.published)
        if ((unsigned char *)at >= p.begin && (unsigned char *)at < p.begin + p.bytes.size())
            memcpy(p.bytes.data() + ((unsigned char *)at - p.begin), at, bytes);
}

inline void visibility_end_block()
{
    if (!visibility.is_late) return;
    for (Published &p : visibility.published) {
        const size_t n = p.bytes.size();
        if (!memcmp(p.begin, p.bytes.data(), n)) continue;
        for (size_t i = 0, end; i < n; i = end + 1) {
            while (i < n && p.begin[i] == p.bytes[i]) i++;
            for (end = i; end < n && p.begin[end] != p.bytes[end];) end++;
            if (i < end) visibility.delayed.push_back({p.begin + i, {p.begin + i, p.begin + end}});
        }
        memcpy(p.begin, p.bytes.data(), n);
    }
}

inline void visibility_end()
{
    for (const Delayed &d : visibility.delayed) memcpy(d.begin, d.bytes.data(), d.bytes.size());
    visibility.delayed.clear();
    visibility.published.clear();
    visibility.is_late = false;
}

} // namespace emu
#endif
