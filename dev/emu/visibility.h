// visibility.h: when a block's writes reach other blocks.
//
// GX_EMU_FENCES=late: as late as is legal. Who tells others does three things, and who is told does two:
//
//     part[i] = x;                              // write
//     __threadfence();                          // fence
//     atomicAdd(&count, 1);                     // tell, by an atomic
//         if (atomicAdd(&count, 1) == last)     // hear, by an atomic
//             __threadfence();                  // fence
//             y = part[i];
//
// A thread's fence is for its own writes, and for those of other threads that it met behind them (__syncthreads,
// __syncwarp); its atomic tells what it has fenced itself, or what a thread had fenced before the two met. A block sees
// of other blocks' global memory what was there when the kernel began, until a thread of it fences that has heard, or
// has met one that had. What was not told reaches others at the kernel's end. early (the default): all at once, as
// blocks run one after another. Either is legal.
//
// How: when a block begins, global memory is closed to writes. The first write into a page faults, and the page is kept
// as it was; when the thread that runs gives way, what differs is what it has written.
//
// Not modelled: telling or hearing by a volatile access (others see it at the kernel's end), fences of other scopes and
// fences of a part of a block (who has heard brings news to the whole block), order among writes that were told,
// pinned memory and __device__ variables (seen at once).
#ifndef GX_EMU_VISIBILITY_H
#define GX_EMU_VISIBILITY_H
#include "memory.h"
#include <bitset>

namespace emu
{

using ThreadSet = std::bitset<block_threads_max>; // of a block

struct Bytes {
    unsigned char *begin;
    size_t n;
};
struct Writes {
    std::vector<Bytes> bytes;
    ThreadSet known;  // to whom they happened before
    ThreadSet fenced; // by whom, or before they met who did
};
struct Kept { // of bytes that will be put back
    std::vector<Bytes> places;
    std::vector<unsigned char> bytes;
};
struct Page {                         // that somebody has written in this kernel
    unsigned char before[page_bytes]; // what a block sees that has heard nothing: the kernel's beginning, and atomics
    unsigned char told[page_bytes];   // what others see who have heard and fenced
};
struct OpenPage { // to threads' writes
    unsigned char *begin;
    unsigned char was[page_bytes]; // when the running thread began to run
};
constexpr size_t open_pages_max = 8; // that stay open for the next thread: less to compare against more faults
constexpr size_t open_pages_room = 1 << 20;

// A list that a handler of faults may grow: it has room for all from the beginning.
struct OpenPages {
    OpenPage *page = nullptr;
    size_t n = 0, known = 0; // known: are in Visibility.pages
    OpenPage *begin() { return page; }
    OpenPage *end() { return page + n; }
};

struct Visibility {
    std::map<unsigned char *, Page> pages;
    Kept delayed; // written by blocks that have ended, and not told
    OpenPages open;
    std::vector<unsigned char *> differ; // pages in which the block that runs may see something else than `before`
    std::vector<Writes> writes;          // of the block that runs, not told
    ThreadSet heard;
    bool brought = false; // the block sees what others have told
};
inline Visibility visibility;

// Whole pages, of which AddressSanitizer may have closed a part in front of an allocation or behind it: not by memcpy
// and memcmp, which it looks into.
typedef uint64_t __attribute__((may_alias)) PageWord;
#define GX_EMU_OF_PAGES __attribute__((no_sanitize("address"))) inline
GX_EMU_OF_PAGES void copy_page(void *to, const void *from)
{
    for (size_t i = 0; i < page_bytes / sizeof(PageWord); i++)
        ((volatile PageWord *)to)[i] = ((const volatile PageWord *)from)[i];
}
GX_EMU_OF_PAGES bool same_words(const void *a, const void *b, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(PageWord); i++)
        if (((const volatile PageWord *)a)[i] != ((const volatile PageWord *)b)[i]) return false;
    return true;
}

inline unsigned char *page_of(const void *p) { return (unsigned char *)((uintptr_t)p / page_bytes * page_bytes); }

// ---- pages ---------------------------------------------------------------------------------------------------------
inline void set_writable(unsigned char *begin, size_t bytes, bool writable)
{
    mprotect(begin, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

inline bool is_open_to_kernels(const Allocation &a)
{
    return !a.freed && (memory.open_card < 0 || memory.open_card == a.card);
}

// A kernel wrote to memory that is closed to it: was that because its writes are watched?
inline bool visibility_opens(const Allocation &a, unsigned char *p)
{
    Hidden hidden;
    const bool is_inside = p >= a.inner() && p < a.inner() + a.inner_bytes();
    if (!fences_are_late || !is_open_to_kernels(a) || !is_inside) return false;
    unsigned char *begin = page_of(p);
    for (const OpenPage &o : visibility.open)
        if (o.begin == begin) return false;
    if (visibility.open.n == open_pages_room) fatal("a kernel writes %zu pages at once", open_pages_room);
    OpenPage &o = visibility.open.page[visibility.open.n++];
    o.begin = begin;
    copy_page(o.was, begin);
    set_writable(begin, page_bytes, true);
    return true;
}

inline void note_open_pages() // what the handler of faults left undone
{
    OpenPages &open = visibility.open;
    for (; open.known < open.n; open.known++) {
        const OpenPage &o = open.page[open.known];
        auto [entry, is_new] = visibility.pages.try_emplace(o.begin);
        if (is_new) memcpy(entry->second.before, o.was, page_bytes), memcpy(entry->second.told, o.was, page_bytes);
        visibility.differ.push_back(o.begin);
    }
}

// ---- what threads have written -------------------------------------------------------------------------------------
GX_EMU_OF_PAGES void append_differences(std::vector<Bytes> &list, const OpenPage &o)
{
    for (size_t i = 0, end; i < page_bytes; i = end) {
        if (i % 64 == 0 && same_words(o.begin + i, o.was + i, 64)) {
            end = i + 64;
            continue;
        }
        for (end = i; end < page_bytes && o.begin[end] != o.was[end];) end++;
        if (i < end) list.push_back({o.begin + i, end - i});
        else end++;
    }
}

inline void close_pages()
{
    for (const OpenPage &o : visibility.open) set_writable(o.begin, page_bytes, false);
    visibility.open.n = visibility.open.known = 0;
}

// The running thread gives way, or fences: what it has written since it began to run is its own.
inline void visibility_attribute_writes()
{
    if (!visibility.open.n) return;
    Hidden hidden;
    note_open_pages();
    Writes w;
    for (OpenPage &o : visibility.open) {
        if (same_words(o.begin, o.was, page_bytes)) continue;
        append_differences(w.bytes, o);
        copy_page(o.was, o.begin);
    }
    if (visibility.open.n > open_pages_max) close_pages();
    if (w.bytes.empty()) return;
    w.known.set((size_t)self().linear);
    visibility.writes.push_back(std::move(w));
}

inline void unite_equal(std::vector<Writes> &all, std::vector<Writes>::iterator end) // of those up to `end`
{
    auto kept = all.begin();
    for (auto w = all.begin(); w != end; ++w) {
        auto same = [w](const Writes &k) { return k.known == w->known && k.fenced == w->fenced; };
        auto k = std::find_if(all.begin(), kept, same);
        if (k != kept) k->bytes.insert(k->bytes.end(), w->bytes.begin(), w->bytes.end());
        else if (kept++ != w) *k = std::move(*w);
    }
    all.erase(kept, end);
}

// Threads meet: what happened before for one of them did for all.
template <class Members> void visibility_meet(Members is_member)
{
    if (!fences_are_late || (visibility.writes.empty() && visibility.heard.none())) return;
    ThreadSet members;
    for (const Thread &t : block.threads) members[(size_t)t.linear] = is_member(t);
    if ((visibility.heard & members).any()) visibility.heard |= members;
    auto is_theirs = [&members](const Writes &w) { return (w.known & members).any(); };
    const auto end = std::partition(visibility.writes.begin(), visibility.writes.end(), is_theirs);
    for (auto w = visibility.writes.begin(); w != end; ++w) {
        w->known |= members;
        if ((w->fenced & members).any()) w->fenced |= members;
    }
    unite_equal(visibility.writes, end);
}

// What the running thread knows, its whole block does from now on: it fences for its block, or arrives at an mbarrier.
// (Who does not wait for that could not know yet.)
inline void visibility_release_to_block()
{
    if (!fences_are_late) return;
    Hidden hidden;
    visibility_attribute();
    const size_t me = (size_t)self().linear;
    if (visibility.heard[me]) visibility.heard.set();
    for (Writes &w : visibility.writes) {
        if (w.known[me]) w.known.set();
        if (w.fenced[me]) w.fenced.set();
    }
}

// ---- fences and atomics --------------------------------------------------------------------------------------------
inline void keep(Kept &kept, const std::vector<Writes> &all)
{
    for (const Writes &w : all)
        for (const Bytes &b : w.bytes) {
            kept.places.push_back(b);
            kept.bytes.insert(kept.bytes.end(), b.begin, b.begin + b.n);
        }
}

inline void put_back(const Kept &kept)
{
    const unsigned char *from = kept.bytes.data();
    for (const Bytes &b : kept.places) memcpy(b.begin, from, b.n), from += b.n;
}

inline void bring_news() // the block sees what was told, and what it has written itself
{
    Kept own;
    keep(own, visibility.writes);
    for (auto &[begin, page] : visibility.pages) {
        set_writable(begin, page_bytes, true);
        copy_page(begin, page.told);
        visibility.differ.push_back(begin);
    }
    put_back(own);
    for (auto &[begin, page] : visibility.pages) set_writable(begin, page_bytes, false);
    close_pages();
    visibility.brought = true;
}

inline void visibility_fence()
{
    if (!fences_are_late) return;
    Hidden hidden;
    visibility_attribute();
    const size_t me = (size_t)self().linear;
    for (Writes &w : visibility.writes)
        if (w.known[me]) w.fenced.set(me);
    if (visibility.heard[me]) bring_news();
}

inline unsigned char *place_in(unsigned char (&copy)[page_bytes], const void *at) // of what lies at `at`
{
    return copy + (uintptr_t)at % page_bytes;
}

// An atomic works on what is there by now, unless its block has written there itself.
inline void visibility_before_atomic(void *at, size_t bytes)
{
    if (!fences_are_late || visibility.brought) return;
    Hidden hidden;
    auto found = visibility.pages.find(page_of(at));
    if (found == visibility.pages.end()) return;
    Page &page = found->second;
    if (!memcmp(at, place_in(page.before, at), bytes)) memcpy(at, place_in(page.told, at), bytes);
}

inline void visibility_tell()
{
    const size_t me = (size_t)self().linear;
    for (const Writes &w : visibility.writes)
        for (const Bytes &b : w.bytes)
            if (w.fenced[me]) memcpy(place_in(visibility.pages.at(page_of(b.begin)).told, b.begin), b.begin, b.n);
    std::erase_if(visibility.writes, [me](const Writes &w) { return w.fenced[me]; });
}

inline void visibility_after_atomic(const void *at, size_t bytes)
{
    if (!fences_are_late) return;
    Hidden hidden;
    note_open_pages();
    auto found = visibility.pages.find(page_of(at));
    if (found == visibility.pages.end()) return; // shared memory
    memcpy(place_in(found->second.before, at), at, bytes);
    memcpy(place_in(found->second.told, at), at, bytes);
    for (OpenPage &o : visibility.open)
        if (o.begin == page_of(at)) memcpy(place_in(o.was, at), at, bytes);
    visibility_tell();
    visibility.heard.set((size_t)self().linear);
}

// ---- a kernel's life -----------------------------------------------------------------------------------------------
inline void watch_writes(bool watched)
{
    for (auto &[map, a] : memory.device)
        if (is_open_to_kernels(a)) set_writable(a.inner(), a.inner_bytes(), !watched);
}

inline void visibility_begin()
{
    const Choice fences = environment_choice("GX_EMU_FENCES", "early");
    if (fences.word != "early" && fences.word != "late")
        fatal("GX_EMU_FENCES is %s; there are early and late", fences.word.c_str());
    fences_are_late = fences.word == "late";
    if (!fences_are_late) return;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    OpenPage *&room = visibility.open.page;
    if (!room) room = (OpenPage *)mmap(nullptr, open_pages_room * sizeof *room, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (room == MAP_FAILED) fatal("no memory for the pages that a kernel writes");
    watch_writes(true);
}

inline void visibility_end_block()
{
    if (!fences_are_late) return;
    keep(visibility.delayed, visibility.writes);
    close_pages();
    for (unsigned char *begin : visibility.differ) {
        const Page &page = visibility.pages.at(begin);
        if (same_words(begin, page.before, page_bytes)) continue;
        set_writable(begin, page_bytes, true);
        copy_page(begin, page.before);
        set_writable(begin, page_bytes, false);
    }
    visibility.differ.clear();
    visibility.writes.clear();
    visibility.heard.reset();
    visibility.brought = false;
}

inline void visibility_end()
{
    if (!fences_are_late) return;
    watch_writes(false);
    for (auto &[begin, page] : visibility.pages) copy_page(begin, page.told);
    put_back(visibility.delayed);
    visibility.pages.clear();
    visibility.delayed = {};
    fences_are_late = false;
}

} // namespace emu
#endif
