// block.h: one block of threads: who runs, who waits for whom, barriers, warps, and what is said when they wait for
// ever.
//
// Blocks run one after another, a block's threads as fibers of whichever host thread drains the streams. A thread runs
// until it must wait for others; the order among those that could run is the reader's choice (GX_EMU_ORDER). One block
// exists at a time: `block` is it.
//
// What is built on top of this (words.h; tensor-core and asynchronous instructions) uses:
//     self()                      the running thread
//     barrier_wait(...)           a barrier of the block, by number
//     warp_collective<Out>(...)   every lane in the mask brings a value; one function looks at all, each gets its own
//     yield()                     in a loop that waits for memory to change; made_progress() when it has changed
//     per_thread<T>()             a T of the running thread, fresh in every block
//     at_exit(&serial, hook)      called when a thread ends in the block of that number: &last_block_with<T> is that of
//                                 the last block in which a thread has asked for its T
#ifndef GX_EMU_BLOCK_H
#define GX_EMU_BLOCK_H
#include "fiber.h"
#include "vector_types.h"
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <source_location>
#include <thread>
#include <type_traits>
#include <vector>

namespace emu
{

constexpr int warp_lanes = 32, block_threads_max = 1024, barriers_per_block = 16, collective_bytes = 64;

enum class Order { forward, reverse, random };

struct Place { // in the source: where somebody waits
    const char *what = nullptr;
    std::source_location where;
};

struct Barrier {
    int arrived = 0, expected = 0; // 0: all threads that have not exited
    int votes = 0, result = 0;     // threads whose predicate holds: now, and in the round that was released last
    Place place;
    unsigned round = 0;
    char order[2]; // for ThreadSanitizer; two, so that one who leaves late does not see the next round
};

struct WarpGroup { // lanes that meet in one collective
    unsigned mask = 0, arrived = 0;
    Place place;
    unsigned round = 0;
    char order[2];
};

struct Warp {
    unsigned exist = 0, exited = 0; // bits of lanes
    int groups_open = 0;            // with a lane that waits
    WarpGroup group[warp_lanes];    // as many as disjoint masks can be under way
    alignas(16) std::byte in[warp_lanes][collective_bytes], out[warp_lanes][collective_bytes];
};

enum class State : uint8_t { runnable, waits_barrier, waits_warp, exited };

struct Thread {
    uint3 index;
    int linear, lane, warp;
    State state;
    int barrier;   // that it waits at
    unsigned mask; // of the collective that it waits in
    Place place;
    Fiber *fiber; // none before it first runs
};

struct Launch {
    const char *name;
    dim3 grid, threads;
    size_t shared_bytes;
    std::function<void()> body; // one thread's
    std::string arguments;      // the kernel's address and its arguments, as bytes
};

// ---- the block that runs -------------------------------------------------------------------------------------------
struct Block {
    const Launch *launch = nullptr;
    std::thread::id runs_on; // host thread
    uint3 index{};
    unsigned long long serial = 0; // counts all blocks that ever ran
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Barrier barriers[barriers_per_block];
    int live = 0, at_barriers = 0; // threads

    Order order = Order::forward;
    Random random;
    unsigned long long seed = ~0ull;      // what `random` was last seeded with
    Thread *ready[2 * block_threads_max]; // a ring: `waiting_in_line` of them from `first`
    unsigned first = 0, waiting_in_line = 0;
    long long idle_yields = 0; // since a thread last did something else

    Thread *current = nullptr;
    Fiber *host = nullptr;
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Fiber *> idle;
    char begins, ends; // for ThreadSanitizer
};
inline Block block;

inline Thread &self() { return *block.current; }
inline void made_progress() { block.idle_yields = 0; }

template <class T> inline unsigned long long last_block_with = 0; // its serial
template <class T> T &per_thread()
{
    struct Slot {
        unsigned long long serial = 0;
        T value{};
    };
    static std::vector<Slot> slots(block_threads_max);
    {
        Hidden hidden;
        last_block_with<T> = block.serial;
    }
    Slot &slot = slots[self().linear];
    if (slot.serial != block.serial) slot.value = T{}, slot.serial = block.serial;
    return slot.value;
}

struct ExitHook {
    const unsigned long long *serial;
    void (*call)();
};
inline std::vector<ExitHook> exit_hooks;
inline bool at_exit(const unsigned long long *serial, void (*hook)())
{
    return exit_hooks.push_back({serial, hook}), true;
}

// ---- reports -------------------------------------------------------------------------------------------------------
inline Line text(Place p) { return Line().add("%s at %s:%u", p.what, p.where.file_name(), (unsigned)p.where.line()); }

inline Line where_am_i()
{
    Line line;
    if (!block.launch) return line;
    line.add("kernel %s, block (%u,%u,%u)", block.launch->name, block.index.x, block.index.y, block.index.z);
    if (Thread *t = block.current) line.add(", thread (%u,%u,%u)", t->index.x, t->index.y, t->index.z);
    return line;
}

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void kernel_fails(const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fatal("%s: %s", where_am_i().c_str(), message);
}

inline std::string text_of_lanes(unsigned lanes)
{
    std::string s;
    for (int first = 0; first < warp_lanes; first++) {
        if (!(lanes >> first & 1)) continue;
        int last = first;
        while (last + 1 < warp_lanes && (lanes >> (last + 1) & 1)) last++;
        s += (s.empty() ? "" : ",") + std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
        first = last;
    }
    return s.empty() ? "none" : s;
}

// Neighbours in linear order that wait in the same place are one line of the report.
[[noreturn]] inline void report_deadlock()
{
    block.current = nullptr;
    say("%s: %d of %zu threads wait for ever:", where_am_i().c_str(), block.live, block.threads.size());
    for (size_t i = 0; i < block.threads.size();) {
        const Thread &t = block.threads[i];
        size_t end = i + 1;
        while (end < block.threads.size() && block.threads[end].state == t.state && block.threads[end].warp == t.warp &&
               block.threads[end].mask == t.mask && block.threads[end].place.where.line() == t.place.where.line())
            end++;
        Line what;
        if (t.state == State::exited) what.add("exited");
        else if (t.place.what) what.add("in %s", text(t.place).c_str());
        else what.add("runs");
        for (const WarpGroup &g : block.warps[t.warp].group)
            if (t.state == State::waits_warp && g.arrived && g.mask == t.mask)
                what.add(", mask lanes %s, missing %s", text_of_lanes(g.mask).c_str(),
                         text_of_lanes(g.mask & ~g.arrived).c_str());
        fprintf(stderr, "    threads %zu-%zu (warp %d): %s\n", i, end - 1, t.warp, what.c_str());
        i = end;
    }
    fflush(stderr);
    abort();
}

inline bool fences_are_late = false;       // GX_EMU_FENCES=late, in the kernel that runs
inline void visibility_attribute_writes(); // visibility.h
inline void visibility_attribute()         // the running thread gives way
{
    if (fences_are_late) visibility_attribute_writes();
}
template <class Members> void visibility_meet(Members is_member);

// ---- who runs next -------------------------------------------------------------------------------------------------
inline Thread *&in_line(unsigned i) { return block.ready[(block.first + i) % (2 * block_threads_max)]; }

inline void line_up_in_front(Thread *t)
{
    block.first--, block.waiting_in_line++;
    t->state = State::runnable;
    in_line(0) = t;
}
inline void line_up_at_the_end(Thread *t) { in_line(block.waiting_in_line++) = t; }

inline Thread *next_in_line()
{
    if (!block.waiting_in_line) return nullptr;
    if (block.order == Order::random) std::swap(in_line(0), in_line(block.random.below(block.waiting_in_line)));
    block.waiting_in_line--;
    return block.ready[block.first++ % (2 * block_threads_max)];
}

// Those that were let go run before those that have not begun: a warp's stacks stay in the cache.
template <class Members> void let_go(int begin, int end, Members is_member)
{
    bool up = block.order == Order::reverse; // the last that is put in front is the first to run
    for (int i = 0; i < end - begin; i++) {
        Thread *t = &block.threads[up ? begin + i : end - 1 - i];
        if (is_member(*t)) line_up_in_front(t);
    }
}

inline void thread_fiber_body();

inline Fiber *open_fiber()
{
    block.fibers.push_back(std::make_unique<Fiber>());
    fiber_open(block.fibers.back().get(), thread_fiber_body, (unsigned)block.fibers.size());
    return block.fibers.back().get();
}

// ThreadSanitizer takes a fiber for a thread: there, thread i of every block runs on fiber i, opened beforehand, since
// what opens a fiber counts as ordered before all that the fiber does.
inline Fiber *take_fiber(int linear)
{
    if (watches_races) return block.fibers[linear].get();
    if (block.idle.empty()) return open_fiber();
    Fiber *f = block.idle.back();
    block.idle.pop_back();
    return f;
}

inline void resume(Fiber *from, Thread *t)
{
    if (!t->fiber) t->fiber = take_fiber(t->linear);
    block.current = t;
    fiber_switch(from, t->fiber);
}

// The running thread waits, or is somewhere in line; somebody else runs until its turn comes.
inline void give_way()
{
    Thread *me = block.current, *next = next_in_line();
    if (!next) report_deadlock();
    if (next != me) resume(me->fiber, next);
}

inline void yield(const char *what = "a loop that yields", std::source_location where = std::source_location::current())
{
    Hidden hidden;
    visibility_attribute();
    Thread &me = self();
    me.place = {what, where};
    if (++block.idle_yields > 1000000) report_deadlock();
    line_up_at_the_end(&me);
    give_way();
}

// ---- barriers ------------------------------------------------------------------------------------------------------
#ifdef GX_EMU_COUNTS_BANKS
constexpr bool counts_banks = true;
#else
constexpr bool counts_banks = false;
#endif
inline void bank_lanes_meet(int warp); // banks.h: all its lanes that have not exited are in the same place

inline void lanes_meet_at_barrier(int id)
{
    for (size_t w = 0; counts_banks && w < block.warps.size(); w++) {
        unsigned here = 0;
        for (size_t i = w * warp_lanes; i < std::min((w + 1) * warp_lanes, block.threads.size()); i++) {
            const Thread &t = block.threads[i];
            here |= (unsigned)(t.state == State::waits_barrier && t.barrier == id) << t.lane;
        }
        if (here && here == (block.warps[w].exist & ~block.warps[w].exited)) bank_lanes_meet((int)w);
    }
}

inline void barrier_release_if_complete(Barrier &b)
{
    int expected = b.expected ? b.expected : block.live;
    if (!b.arrived || b.arrived < expected) return;
    int id = (int)(&b - block.barriers);
    auto waits_here = [id](const Thread &t) { return t.state == State::waits_barrier && t.barrier == id; };
    visibility_meet([&](const Thread &t) { return waits_here(t) || (!b.expected && t.state == State::exited); });
    b.result = b.votes;
    block.at_barriers -= b.arrived;
    b.arrived = b.votes = 0;
    b.round++;
    made_progress();
    lanes_meet_at_barrier(id);
    let_go(0, (int)block.threads.size(), waits_here);
}

inline bool is_same_word(const char *a, const char *b) { return a == b || !strcmp(a, b); }

// `expected` 0: all threads of the block that have not exited. Returns how many of them said `vote`.
inline int barrier_wait(int id, int expected, int vote, Place place)
{
    Hidden hidden;
    visibility_attribute();
    Thread &me = self();
    Barrier &b = block.barriers[id];
    if (!b.arrived) b.place = place, b.expected = expected;
    if (b.expected != expected)
        kernel_fails("%s waits for %d threads, others there for %d", text(place).c_str(), expected, b.expected);
    if (!expected && (b.place.where.line() != place.where.line() || !is_same_word(b.place.what, place.what)))
        kernel_fails("the block's threads diverged: some are in %s, this one in %s", text(b.place).c_str(),
                     text(place).c_str());
    void *order = &b.order[b.round & 1];
    release_order(order);
    b.arrived++;
    block.at_barriers++;
    b.votes += vote != 0;
    me.state = State::waits_barrier, me.barrier = id, me.place = place;
    barrier_release_if_complete(b);
    give_way();
    acquire_order(order);
    return b.result;
}

// ---- warps ---------------------------------------------------------------------------------------------------------
template <class T> struct Lanes { // what each lane of a warp brought or gets
    std::byte (*slot)[collective_bytes];
    T &operator[](int lane) const { return *(T *)slot[lane]; }
};

inline WarpGroup &warp_group(Warp &w, unsigned mask, const Place &place)
{
    for (WarpGroup &g : w.group) {
        if (!g.arrived || g.mask != mask) continue;
        if (!is_same_word(g.place.what, place.what))
            kernel_fails("the warp's lanes diverged: lanes %s are in %s, this one in %s",
                         text_of_lanes(g.arrived).c_str(), text(g.place).c_str(), text(place).c_str());
        return g;
    }
    WarpGroup *g = std::find_if(w.group, w.group + warp_lanes, [](const WarpGroup &x) { return !x.arrived; });
    g->mask = mask;
    g->place = place;
    w.groups_open++;
    return *g;
}

inline void check_mask(const Thread &me, const Warp &w, unsigned mask, const Place &place)
{
    if (!(mask >> me.lane & 1))
        kernel_fails("%s: lane %d is not in its own mask (lanes %s)", text(place).c_str(), me.lane,
                     text_of_lanes(mask).c_str());
    if (mask & w.exited)
        kernel_fails("%s: the mask names lanes %s, which have exited", text(place).c_str(),
                     text_of_lanes(mask & w.exited).c_str());
}

// Every lane in `mask` brings `in`; the last one calls combine(lanes, in, out) on all of them and each takes its own
// out. Lanes beyond the block's end count as absent. Only __syncwarp orders memory between lanes.
template <class Out, class In, class Combine>
Out warp_collective(unsigned mask, Place place, const In &in, Combine combine, bool orders_memory = false)
{
    static_assert(sizeof(In) <= collective_bytes && sizeof(Out) <= collective_bytes);
    Hidden hidden;
    visibility_attribute();
    Thread &me = self();
    Warp &w = block.warps[me.warp];
    check_mask(me, w, mask, place);
    WarpGroup &g = warp_group(w, mask, place);
    void *order = &g.order[g.round & 1];
    if (orders_memory) release_order(order);
    memcpy(w.in[me.lane], &in, sizeof in);
    g.arrived |= 1u << me.lane;
    me.state = State::waits_warp, me.mask = mask, me.place = place;
    if (g.arrived == (mask & w.exist)) {
        unsigned lanes = g.arrived;
        combine(lanes, Lanes<In>{w.in}, Lanes<Out>{w.out});
        if (counts_banks && lanes == (w.exist & ~w.exited)) bank_lanes_meet(me.warp);
        g.arrived = 0;
        g.round++;
        w.groups_open--;
        made_progress();
        int base = me.warp * warp_lanes;
        auto is_in_it = [lanes](const Thread &t) { return lanes >> t.lane & 1; };
        if (orders_memory) visibility_meet([&](const Thread &t) { return t.warp == me.warp && is_in_it(t); });
        let_go(base, std::min(base + warp_lanes, (int)block.threads.size()), is_in_it);
    }
    give_way();
    if (orders_memory) acquire_order(order);
    Out out;
    memcpy(&out, w.out[me.lane], sizeof out);
    return out;
}

// ---- a thread's life -----------------------------------------------------------------------------------------------
inline void thread_exits(Thread &t)
{
    for (const ExitHook &hook : exit_hooks)
        if (*hook.serial == block.serial) hook.call();
    visibility_attribute();
    t.state = State::exited;
    block.live--;
    made_progress();
    Warp &w = block.warps[t.warp];
    w.exited |= 1u << t.lane;
    for (int i = 0; i < warp_lanes && w.groups_open; i++) {
        const WarpGroup &g = w.group[i];
        if (g.arrived && (g.mask >> t.lane & 1))
            kernel_fails("lane %d exits while lanes %s wait for it in %s", t.lane, text_of_lanes(g.arrived).c_str(),
                         text(g.place).c_str());
    }
    for (int i = 0; i < barriers_per_block && block.at_barriers; i++) barrier_release_if_complete(block.barriers[i]);
}

// A fiber whose thread has exited runs the next one that has not begun itself: threads that never wait cost no switch.
inline void thread_fiber_body()
{
    fiber_begin();
    masked_begin();
    for (;;) {
        Fiber *mine = self().fiber;
        acquire_order(&block.begins);
        masked_end();
        block.launch->body();
        masked_begin();
        release_order(&block.ends);
        thread_exits(self());
        Thread *next = next_in_line();
        if (!next && block.live) report_deadlock();
        if (next && !next->fiber && !watches_races) {
            next->fiber = mine;
            block.current = next;
            continue;
        }
        if (!watches_races) block.idle.push_back(mine);
        if (next) resume(mine, next);
        else fiber_switch(mine, block.host);
    }
}

// ---- a kernel's life -----------------------------------------------------------------------------------------------
inline void choose_order()
{
    Choice choice = environment_choice("GX_EMU_ORDER", "forward");
    if (choice.word == "forward") block.order = Order::forward;
    else if (choice.word == "reverse") block.order = Order::reverse;
    else if (choice.word == "random") block.order = Order::random;
    else fatal("GX_EMU_ORDER is %s; there are forward, reverse and random:SEED", choice.word.c_str());
    // once, so that a kernel that is launched again meets another order
    if (block.order == Order::random && block.seed != choice.seed) block.random.seed(block.seed = choice.seed);
}

inline void lay_out_threads(dim3 d)
{
    int n = (int)(d.x * d.y * d.z);
    while (watches_races && (int)block.fibers.size() < n) open_fiber();
    block.threads.resize(n);
    block.warps.resize((n + warp_lanes - 1) / warp_lanes);
    for (int i = 0; i < n; i++) {
        Thread &t = block.threads[i];
        t.index = {i % d.x, i / d.x % d.y, i / (d.x * d.y)};
        t.linear = i, t.lane = i % warp_lanes, t.warp = i / warp_lanes;
    }
    for (size_t w = 0; w < block.warps.size(); w++) {
        int lanes = std::min(warp_lanes, n - (int)w * warp_lanes);
        block.warps[w].exist = lanes == warp_lanes ? ~0u : (1u << lanes) - 1;
    }
}

inline void shared_memory_begin(size_t dynamic_bytes); // shared.h
inline void shared_memory_end();

inline void visibility_begin(); // visibility.h
inline void visibility_end_block();
inline void visibility_end();

inline void run_block(uint3 index)
{
    block.index = index;
    block.serial++;
    block.live = (int)block.threads.size();
    for (Warp &w : block.warps) w.exited = 0;
    for (Thread &t : block.threads) t.fiber = nullptr, t.place.what = nullptr, t.mask = 0;
    shared_memory_begin(block.launch->shared_bytes);
    let_go(0, block.live, [](const Thread &) { return true; });
    Fiber host;
    fiber_of_host(&host);
    block.host = &host;
    release_order(&block.begins);
    resume(&host, next_in_line());
    block.current = nullptr;
    for (size_t w = 0; counts_banks && w < block.warps.size(); w++) bank_lanes_meet((int)w);
    shared_memory_end();
    visibility_end_block();
}

inline std::vector<unsigned> order_of_blocks(size_t n)
{
    if (n > 1u << 28) kernel_fails("a grid of %zu blocks is too much for the emulator", n);
    std::vector<unsigned> order(n);
    std::iota(order.begin(), order.end(), 0u);
    if (block.order == Order::reverse) std::reverse(order.begin(), order.end());
    if (block.order == Order::random)
        for (size_t i = n; i > 1; i--) std::swap(order[i - 1], order[block.random.below((unsigned)i)]);
    return order;
}

inline void run_kernel(const Launch &launch)
{
    Hidden hidden;
    block.launch = &launch;
    block.runs_on = std::this_thread::get_id();
    choose_order();
    lay_out_threads(launch.threads);
    dim3 grid = launch.grid;
    visibility_begin();
    for (unsigned i : order_of_blocks((size_t)grid.x * grid.y * grid.z))
        run_block({i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)});
    visibility_end();
    acquire_order(&block.ends);
    block.launch = nullptr;
}

} // namespace emu
#endif
