// queue.h: streams as queues of operations that run as late as is legal, and the one scheduler of the process.
//
// Nothing runs when it is enqueued. A host thread that needs something done (synchronises a stream, an event; a
// blocking copy) runs what this depends on, of whatever stream and whatever host thread's, and nothing else: earlier
// operations of the same stream, events waited for, and for a collective what its peers have before their parts. If a
// peer has not enqueued its part yet, the host thread sleeps until more is enqueued. So an event or a synchronisation
// that is missing leaves a reader with memory that nobody has written.
//
// GX_EMU_STREAMS = late (as said), eager (all that can run does at once), random:SEED (some of it does at once).
// GX_EMU_PATIENCE: seconds after which a wait for a peer is taken for a deadlock.
//
// A stream holds GX_EMU_QUEUE operations (1024, about as many as a driver's): who enqueues another one waits until the
// first of them is done.
//
// GX_EMU_COUNT=1: how many operations the host asked for is said at the end.
//
// GX_EMU_DRIVER=blocking: what the driver may do only while the card is idle, it does so, and lets nobody else in
// meanwhile: taking and giving back memory, making NCCL's groups, and loading a kernel when it is first launched (not
// with CUDA_MODULE_LOADING=EAGER). Behind a collective whose peers have not come that is a deadlock, and reported. free
// (the default): it does none of this. Either is legal.
//
// A host thread is a rank with a card's clock of its own: cudaDeviceSynchronize waits for the streams on the current
// card that it created or used last, and the legacy default stream is one per host thread and card.
#ifndef GX_EMU_QUEUE_H
#define GX_EMU_QUEUE_H
#include "memory.h"
#include <chrono>
#include <list>
#include <set>
#include <thread>

struct CUstream_st;

namespace emu
{

// A value's bytes, without what lies between its members.
template <class T> std::string bytes_of(T value)
{
    static_assert(std::is_trivially_copyable_v<T>);
    __builtin_clear_padding(&value);
    return std::string(reinterpret_cast<const char *>(&value), sizeof value);
}

struct Node { // of a graph (graph.h)
    std::string name;
    std::function<void()> run;
    std::string arguments; // their bytes
    std::vector<size_t> after;
};
struct Capture {
    std::vector<Node> nodes;
    std::map<CUstream_st *, std::vector<size_t>> tail; // what the stream's next node comes behind
    CUstream_st *origin = nullptr;
    bool spoilt = false;
};
inline thread_local int captures = 0; // that this host thread has begun

// How much the host has asked for, of all streams; GX_EMU_COUNT=1: said when the process ends.
struct Asked {
    unsigned long long operations = 0, graphs = 0, nodes = 0; // nodes: of the graphs launched
    ~Asked()
    {
        if (environment_word("GX_EMU_COUNT", {"0", "1"}) == "1")
            say("the host asked for %llu operations, %llu of them graphs of %llu nodes", operations, graphs, nodes);
    }
};
inline Asked asked; // device_lock is held

struct Operation {
    std::string name, arguments;                   // arguments: their bytes, for graphs
    std::function<void()> run, finish;             // finish: after all that it meets have run
    std::vector<std::shared_ptr<Operation>> after; // of other streams
    // A part of a collective: appends all parts that run as one, its own included; false: somebody has not come yet.
    std::function<bool(std::vector<Operation *> *)> meet;
    CUstream_st *stream = nullptr;
    bool is_kernel = false;                     // which reaches the memory of its card alone
    std::chrono::steady_clock::time_point time; // when it ran,
    double said_ms = 0;                         // and its stream's said_ms then
    bool done = false, being_reached = false;
};
using OperationRef = std::shared_ptr<Operation>;

} // namespace emu

struct CUstream_st {
    unsigned flags = 0;
    int card = 0;
    std::thread::id creator, user; // user: who enqueued last
    std::deque<emu::OperationRef> queue;
    emu::OperationRef last;
    std::shared_ptr<emu::Capture> capture; // it is a part of; what is enqueued becomes a node
    bool destroyed = false;
    int queries = 0;    // in a row that found it busy
    double said_ms = 0; // of what ran in it, by its clock: what it was said to take
};
typedef CUstream_st *cudaStream_t;
#define cudaStreamDefault     0x00u
#define cudaStreamNonBlocking 0x01u
#define cudaStreamLegacy      ((cudaStream_t)0x1)

namespace emu
{

inline std::list<CUstream_st> streams;
inline std::map<std::pair<std::thread::id, int>, CUstream_st *> legacy_streams; // by host thread and card
inline Random early; // how much of it runs at once under random
inline unsigned long long early_seed = ~0ull;

// ---- what can run --------------------------------------------------------------------------------------------------
inline bool complete(Operation &op);

// Everything that comes before it is done. false: something waits for a peer that has not come.
inline bool reach(Operation &op)
{
    while (!op.done && op.stream->queue.front().get() != &op) {
        OperationRef first = op.stream->queue.front();
        if (!complete(*first)) return false;
    }
    for (const OperationRef &other : op.after)
        if (!complete(*other)) return false;
    return true;
}

// `parts`: all that run as one with it.
inline bool reach_peers(const Operation &op, std::vector<Operation *> *parts)
{
    if (!op.meet(parts)) return false;
    for (Operation *peer : *parts)
        if (peer != &op && (peer->being_reached || !reach(*peer))) return false;
    return true;
}

inline void mark_done(Operation &op)
{
    OperationRef keep = op.stream->queue.front();
    op.stream->queue.pop_front();
    op.done = true;
    op.time = std::chrono::steady_clock::now();
    op.said_ms = op.stream->said_ms;
    op.run = op.finish = nullptr;
    op.meet = nullptr;
    op.after.clear();
    CUstream_st *s = op.stream;
    if (s->destroyed && s->queue.empty()) streams.remove_if([s](const CUstream_st &x) { return &x == s; });
}

inline void execute(const std::vector<Operation *> &parts)
{
    for (Operation *op : parts) {
        set_access(true, op->is_kernel && cards() > 1 ? op->stream->card : -1);
        if (op->run) op->run();
    }
    set_access(true);
    for (Operation *op : parts)
        if (op->finish) op->finish();
    for (Operation *op : parts) mark_done(*op);
    tell_change();
}

inline bool complete(Operation &op)
{
    if (op.done) return true;
    if (op.being_reached) return false; // it waits for itself: only more that is enqueued can help
    std::vector<Operation *> parts;
    op.being_reached = true;
    bool reached = reach(op) && (!op.meet || reach_peers(op, &parts));
    op.being_reached = false;
    if (!op.meet) parts.push_back(&op);
    if (reached && !op.done) execute(parts); // done: as a part of what one before it was waiting for
    return reached;
}

// ---- who waits -----------------------------------------------------------------------------------------------------
[[noreturn]] inline void report_no_progress(const std::string &what, unsigned long long seconds)
{
    say("a host thread waits for %s, and nothing has changed for %llu s; what is queued:", what.c_str(), seconds);
    for (const CUstream_st &s : streams)
        if (!s.queue.empty())
            fprintf(stderr, "    stream %p: %zu operations, the first is %s\n", (const void *)&s, s.queue.size(),
                    s.queue.front()->name.c_str());
    fflush(stderr);
    abort();
}

inline void sleep_until_changed(std::unique_lock<std::mutex> &held, const std::string &what)
{
    const int64_t patience = environment_number("GX_EMU_PATIENCE", 60, 1, 1000000);
    unsigned long long seen = device_changes;
    set_access(false);
    if (!device_changed.wait_for(held, std::chrono::seconds(patience), [seen] { return device_changes != seen; }))
        report_no_progress(what, patience);
}

inline void wait_for(std::unique_lock<std::mutex> &held, const OperationRef &op)
{
    catch_faults();
    while (op && !complete(*op)) sleep_until_changed(held, op->name);
    set_access(false);
}

inline bool has_room(CUstream_st &s) // lets the first of a full one run, if it can
{
    const size_t most = (size_t)environment_number("GX_EMU_QUEUE", 1024, 1, 1 << 20);
    bool moved = true;
    while (s.queue.size() >= most && moved) {
        const OperationRef first = s.queue.front();
        moved = complete(*first);
    }
    set_access(false);
    return s.queue.size() < most;
}

inline void wait_for_room(CUstream_st &s) // device_lock is held
{
    catch_faults();
    std::unique_lock held(device_lock, std::adopt_lock);
    while (!has_room(s)) sleep_until_changed(held, "room in a full stream, behind " + s.queue.front()->name);
    held.release();
}

inline bool is_mine(const CUstream_st &s) // on the current card
{
    return s.card == current_card && (s.creator == std::this_thread::get_id() || s.user == std::this_thread::get_id());
}

inline void synchronize_mine(std::unique_lock<std::mutex> &held)
{
    std::vector<OperationRef> last;
    for (const CUstream_st &s : streams)
        if (is_mine(s) && s.last) last.push_back(s.last);
    for (const OperationRef &op : last) wait_for(held, op);
}

inline bool is_capturing() { return captures > 0; }

inline void wait_in_driver(const std::string &why)
{
    if (environment_word("GX_EMU_DRIVER", {"free", "blocking"}) == "free") return;
    catch_faults();
    std::vector<OperationRef> last;
    for (const CUstream_st &s : streams)
        if (is_mine(s) && s.last) last.push_back(s.last);
    for (const OperationRef &op : last)
        if (!complete(*op))
            fatal("%s waits inside the driver, which lets nobody else in, for %s, whose peers have not come",
                  why.c_str(), op->stream->queue.front()->name.c_str());
    set_access(false);
}

inline void load_kernel(const void *kernel, const char *name)
{
    static std::set<const void *> loaded;
    if (environment("CUDA_MODULE_LOADING", "LAZY") != "EAGER" && loaded.insert(kernel).second)
        wait_in_driver(std::string("loading the kernel ") + name);
}

// ---- enqueuing -----------------------------------------------------------------------------------------------------
inline CUstream_st *open_stream(unsigned flags)
{
    CUstream_st &s = streams.emplace_back();
    s.flags = flags;
    s.card = current_card;
    s.creator = s.user = std::this_thread::get_id();
    return &s;
}

inline CUstream_st *legacy_stream_of(std::thread::id thread)
{
    CUstream_st *&s = legacy_streams[{thread, current_card}];
    if (!s) {
        s = open_stream(cudaStreamDefault);
        s->creator = thread;
    }
    return s;
}

// The queue behind a handle; NULL for a handle that is none, which is said.
inline CUstream_st *find_stream(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy) return legacy_stream_of(std::this_thread::get_id());
    for (CUstream_st &s : streams)
        if (&s == handle && !s.destroyed) return &s;
    say("%p is no stream (destroyed, or never created)", (void *)handle);
    return nullptr;
}

inline bool is_legacy(const CUstream_st &s)
{
    auto found = legacy_streams.find({s.creator, s.card});
    return found != legacy_streams.end() && found->second == &s;
}

// The legacy default stream runs after what blocking streams have and before what they get (CUDA C++ Programming Guide,
// default stream).
inline void order_with_legacy(Operation &op, const CUstream_st &s)
{
    if (is_legacy(s)) {
        for (const CUstream_st &other : streams)
            if (&other != &s && other.creator == s.creator && other.card == s.card &&
                !(other.flags & cudaStreamNonBlocking) && other.last)
                op.after.push_back(other.last);
    } else if (!(s.flags & cudaStreamNonBlocking)) {
        auto found = legacy_streams.find({s.creator, s.card});
        if (found != legacy_streams.end() && found->second->last) op.after.push_back(found->second->last);
    }
}

inline void run_early()
{
    Choice choice = environment_choice("GX_EMU_STREAMS", "late");
    if (choice.word == "late") return;
    if (choice.word != "eager" && choice.word != "random")
        fatal("GX_EMU_STREAMS is %s; there are late, eager and random:SEED", choice.word.c_str());
    if (early_seed != choice.seed) early.seed(early_seed = choice.seed);
    std::vector<OperationRef> some;
    for (const CUstream_st &s : streams) {
        if (s.queue.empty()) continue;
        if (choice.word == "eager") some.push_back(s.queue.back());
        else if (early.below(2)) some.push_back(s.queue[early.below((unsigned)s.queue.size())]);
    }
    for (const OperationRef &op : some) complete(*op);
    set_access(false);
}

inline cudaError_t spoil_capture(CUstream_st &s, const char *what)
{
    say("%s is not permitted while the stream is captured", what);
    s.capture->spoilt = true;
    return cudaErrorStreamCaptureUnsupported;
}

inline OperationRef enqueue(CUstream_st *s, OperationRef op)
{
    if (s->capture) {
        std::vector<size_t> &tail = s->capture->tail[s];
        s->capture->nodes.push_back({op->name, op->run, op->arguments, tail});
        tail = {s->capture->nodes.size() - 1};
        return op;
    }
    asked.operations++;
    wait_for_room(*s);
    op->stream = s;
    order_with_legacy(*op, *s);
    std::erase_if(op->after, [](const OperationRef &other) { return other->done; });
    s->queue.push_back(op);
    s->last = op;
    s->user = std::this_thread::get_id();
    s->queries = 0;
    catch_faults();
    run_early();
    tell_change();
    return op;
}

// A launch, or the record of an event, wants a stream of the current card.
inline bool is_of_this_card(const CUstream_st &s, const char *what)
{
    if (s.card == current_card) return true;
    say("%s on a stream of card %d, while card %d is the current one", what, s.card, current_card);
    return false;
}

inline OperationRef enqueue(CUstream_st *s, std::string name, std::function<void()> run, OperationRef after = nullptr,
                            std::string arguments = "")
{
    auto op = std::make_shared<Operation>();
    op->name = std::move(name);
    op->arguments = std::move(arguments);
    op->run = std::move(run);
    if (after) op->after.push_back(after);
    return enqueue(s, op);
}

} // namespace emu
#endif
