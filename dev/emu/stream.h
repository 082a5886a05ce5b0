// stream.h: the runtime's interface to streams: copies, fills, events, synchronisation.
//
// When a copy reads and writes its host memory (CUDA Runtime API, "API synchronization behavior"):
//   pageable to device      the bytes are taken at the call; they arrive in the stream's order, and even cudaMemcpy
//                           does not wait for that
//   pinned to device        read when the operation runs: late
//   device to pageable      the call returns after the copy
//   device to pinned        written when the operation runs: late
#ifndef GX_EMU_STREAM_H
#define GX_EMU_STREAM_H
#include "queue.h"

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
#define cudaEventDefault       0x00u
#define cudaEventBlockingSync  0x01u
#define cudaEventDisableTiming 0x02u

struct CUevent_st {
    unsigned flags;
    int card;
    emu::OperationRef record;              // the last one
    std::shared_ptr<emu::Capture> capture; // it was recorded in, behind these nodes
    std::vector<size_t> behind;
    int queries = 0; // in a row that found it busy
};
typedef CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *);

// ---- copies --------------------------------------------------------------------------------------------------------
namespace emu
{

struct Copy { // `rows` rows of `width` bytes
    char *to;
    size_t to_pitch;
    const char *from;
    size_t from_pitch, width, rows;
    size_t reach(size_t pitch) const { return rows ? (rows - 1) * pitch + width : 0; }
};

inline void run_copy(const Copy &c)
{
    for (size_t row = 0; row < c.rows; row++) memmove(c.to + row * c.to_pitch, c.from + row * c.from_pitch, c.width);
}

inline cudaError_t check_copy(const Copy &c, Spot to, Spot from, cudaMemcpyKind kind)
{
    static const char *names[] = {"pageable host memory", "pinned memory", "device memory"};
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool named_right = kind == cudaMemcpyDefault ||
                       (to_device == (to.where == Where::device) && from_device == (from.where == Where::device));
    bool fits = c.reach(c.to_pitch) <= to.left && c.reach(c.from_pitch) <= from.left;
    if (named_right && fits) return cudaSuccess;
    say("a copy of kind %d, %zu rows of %zu bytes, from %p (%s%s) to %p (%s%s)", kind, c.rows, c.width,
        (const void *)c.from, names[(int)from.where], c.reach(c.from_pitch) > from.left ? ", too short" : "",
        (void *)c.to, names[(int)to.where], c.reach(c.to_pitch) > to.left ? ", too short" : "");
    return cudaErrorInvalidValue;
}

inline std::function<void()> copy_of_the_bytes_now(Copy c)
{
    auto bytes = std::make_shared<std::vector<char>>(c.width * c.rows);
    run_copy({bytes->data(), c.width, c.from, c.from_pitch, c.width, c.rows});
    return [c, bytes] { run_copy({c.to, c.to_pitch, bytes->data(), c.width, c.width, c.rows}); };
}

inline cudaError_t copy(Copy c, cudaMemcpyKind kind, cudaStream_t handle, bool blocking)
{
    std::unique_lock held(device_lock);
    CUstream_st *s = find_stream(handle);
    if (!s) return result(cudaErrorInvalidResourceHandle);
    if (!c.width || !c.rows) return cudaSuccess;
    Spot to = spot_of(c.to), from = spot_of(c.from);
    if (cudaError_t e = check_copy(c, to, from, kind)) return result(e);
    if (s->capture && (blocking || to.where == Where::pageable || from.where == Where::pageable))
        return result(spoil_capture(*s, blocking ? "a copy that waits" : "a copy of pageable memory"));
    if (blocking && captures) return result(cudaErrorStreamCaptureUnsupported);
    bool taken_now = from.where == Where::pageable && to.where == Where::device;
    bool waits = taken_now  ? false
                 : blocking ? to.where != Where::device || from.where != Where::device
                            : to.where == Where::pageable;
    if (taken_now && blocking) wait_for(held, s->last);
    OperationRef op = enqueue(
        s, "a copy", taken_now ? copy_of_the_bytes_now(c) : [c] { run_copy(c); }, nullptr, bytes_of(c));
    if (waits) wait_for(held, op);
    return cudaSuccess;
}

inline cudaError_t fill(void *to, int value, size_t bytes, cudaStream_t handle)
{
    std::unique_lock held(device_lock);
    CUstream_st *s = find_stream(handle);
    if (!s) return result(cudaErrorInvalidResourceHandle);
    if (!bytes) return cudaSuccess;
    Spot spot = spot_of(to);
    if (spot.where == Where::pageable || bytes > spot.left) {
        say("a fill of %zu bytes at %p, where %s", bytes, to,
            spot.where == Where::pageable ? "is no device memory" : "there are fewer");
        return result(cudaErrorInvalidValue);
    }
    enqueue(
        s, "a fill", [=] { memset(to, value, bytes); }, nullptr, bytes_of(to) + bytes_of(value) + bytes_of(bytes));
    return cudaSuccess;
}

} // namespace emu

inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream = nullptr)
{
    return emu::copy({(char *)to, bytes, (const char *)from, bytes, bytes, 1}, kind, stream, false);
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    return emu::copy({(char *)to, bytes, (const char *)from, bytes, bytes, 1}, kind, nullptr, true);
}
inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                     size_t rows, cudaMemcpyKind kind, cudaStream_t stream = nullptr)
{
    if (width > to_pitch || width > from_pitch) return emu::result(cudaErrorInvalidValue);
    return emu::copy({(char *)to, to_pitch, (const char *)from, from_pitch, width, rows}, kind, stream, false);
}
inline cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                size_t rows, cudaMemcpyKind kind)
{
    if (width > to_pitch || width > from_pitch) return emu::result(cudaErrorInvalidValue);
    return emu::copy({(char *)to, to_pitch, (const char *)from, from_pitch, width, rows}, kind, nullptr, true);
}
template <class T>
cudaError_t cudaMemcpyToSymbol(T &symbol, const void *from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice)
{
    void *to;
    cudaGetSymbolAddress(&to, symbol);
    return cudaMemcpy((char *)to + offset, from, bytes, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void *to, const T &symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost)
{
    void *from;
    cudaGetSymbolAddress(&from, const_cast<T &>(symbol));
    return cudaMemcpy(to, (char *)from + offset, bytes, kind);
}
inline cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s = nullptr)
{
    return emu::fill(to, value, bytes, s);
}
inline cudaError_t cudaMemset(void *to, int value, size_t bytes) { return emu::fill(to, value, bytes, nullptr); }

// ---- kernels and host functions ------------------------------------------------------------------------------------
namespace emu
{

inline cudaError_t enqueue_kernel(cudaStream_t handle, const void *kernel, Launch launch)
{
    std::unique_lock held(device_lock);
    CUstream_st *s = find_stream(handle);
    if (!s) return result(cudaErrorInvalidResourceHandle);
    if (!is_of_this_card(*s, launch.name)) return result(cudaErrorInvalidResourceHandle);
    load_kernel(kernel, launch.name);
    auto op = std::make_shared<Operation>();
    op->name = std::string("kernel ") + launch.name;
    op->arguments = bytes_of(launch.grid) + bytes_of(launch.threads) + bytes_of(launch.shared_bytes) + launch.arguments;
    op->run = [launch = std::move(launch)] { run_kernel(launch); };
    op->is_kernel = true;
    enqueue(s, op);
    return cudaSuccess;
}

} // namespace emu

inline cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t f, void *data)
{
    std::unique_lock held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    if (!s) return emu::result(cudaErrorInvalidResourceHandle);
    emu::enqueue(
        s, "a host function", [f, data] { f(data); }, nullptr, emu::bytes_of(f) + emu::bytes_of(data));
    return cudaSuccess;
}

// ---- streams -------------------------------------------------------------------------------------------------------
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    std::lock_guard held(emu::device_lock);
    if (flags & ~cudaStreamNonBlocking) return emu::result(cudaErrorInvalidValue);
    return *s = emu::open_stream(flags), cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return *least = 0, *greatest = -5, cudaSuccess;
}

// What is queued still runs when it is needed.
inline cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    std::lock_guard held(emu::device_lock);
    CUstream_st *s = handle ? emu::find_stream(handle) : nullptr;
    if (!s || emu::is_legacy(*s)) return emu::result(cudaErrorInvalidResourceHandle);
    s->destroyed = true;
    if (s->queue.empty()) emu::streams.remove_if([s](const CUstream_st &x) { return &x == s; });
    return cudaSuccess;
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    std::unique_lock held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    if (!s) return emu::result(cudaErrorInvalidResourceHandle);
    if (s->capture) return emu::result(emu::spoil_capture(*s, "cudaStreamSynchronize"));
    if (emu::is_legacy(*s))
        emu::enqueue(s, "the end of the default stream", nullptr); // after what blocking streams have
    emu::wait_for(held, s->last);
    return cudaSuccess;
}

inline cudaError_t cudaDeviceSynchronize()
{
    std::unique_lock held(emu::device_lock);
    if (emu::captures) return emu::result(cudaErrorStreamCaptureUnsupported);
    emu::synchronize_mine(held);
    return cudaSuccess;
}

namespace emu
{

// Who asks again and again must see an end: the first question finds the work not begun, the second does as much of it
// as can be done.
inline cudaError_t query(const OperationRef &op, int *queries)
{
    if (!op || op->done) return cudaSuccess;
    bool done = (*queries)++ ? complete(*op) : false;
    set_access(false);
    return done ? cudaSuccess : cudaErrorNotReady;
}

} // namespace emu

inline cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    std::lock_guard held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    if (!s) return emu::result(cudaErrorInvalidResourceHandle);
    if (s->capture) return emu::result(emu::spoil_capture(*s, "cudaStreamQuery"));
    return emu::query(s->last, &s->queries);
}

// ---- events --------------------------------------------------------------------------------------------------------
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    return *e = new CUevent_st{flags, emu::current_card, nullptr, nullptr, {}}, cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
inline cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    std::lock_guard held(emu::device_lock);
    return delete e, cudaSuccess;
}

inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t handle = nullptr)
{
    std::lock_guard held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    if (!s) return emu::result(cudaErrorInvalidResourceHandle);
    if (e->card != s->card) {
        emu::say("an event of card %d is recorded on a stream of card %d", e->card, s->card);
        return emu::result(cudaErrorInvalidResourceHandle);
    }
    e->capture = s->capture;
    if (s->capture) return e->behind = s->capture->tail[s], cudaSuccess;
    e->record = emu::enqueue(s, "the record of an event", nullptr);
    e->queries = 0;
    return cudaSuccess;
}

// Waits for the record that is the last one now; an event without one is no hindrance.
inline cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t e, unsigned = 0)
{
    std::lock_guard held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    if (!s) return emu::result(cudaErrorInvalidResourceHandle);
    if (e->capture && e->capture->nodes.empty() && !e->capture->origin->capture) e->capture = nullptr; // it has ended
    if (s->capture && s->capture != e->capture) {
        s->capture->spoilt = true;
        return emu::result(cudaErrorStreamCaptureIsolation);
    }
    if (e->capture) { // from now on the stream is a part of it
        s->capture = e->capture;
        std::vector<size_t> &tail = s->capture->tail[s];
        tail.insert(tail.end(), e->behind.begin(), e->behind.end());
        return cudaSuccess;
    }
    if (e->record && !e->record->done) emu::enqueue(s, "a wait for an event", nullptr, e->record);
    return cudaSuccess;
}

inline cudaError_t cudaEventQuery(cudaEvent_t e)
{
    std::lock_guard held(emu::device_lock);
    if (e->capture) return emu::result(cudaErrorStreamCaptureUnsupported);
    return emu::query(e->record, &e->queries);
}

inline cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    std::unique_lock held(emu::device_lock);
    if (e->capture) return emu::result(cudaErrorStreamCaptureUnsupported);
    emu::OperationRef record = e->record;
    emu::wait_for(held, record);
    return cudaSuccess;
}

inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    std::lock_guard held(emu::device_lock);
    if (!begin->record || !end->record || ((begin->flags | end->flags) & cudaEventDisableTiming))
        return emu::result(cudaErrorInvalidResourceHandle);
    if (!begin->record->done || !end->record->done) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(end->record->time - begin->record->time).count() +
          (float)(end->record->said_ms - begin->record->said_ms);
    return cudaSuccess;
}

#endif
