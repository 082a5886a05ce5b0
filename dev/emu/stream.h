// stream.h: streams and events; operations run when they are enqueued.
#ifndef GX_EMU_STREAM_H
#define GX_EMU_STREAM_H
#include "memory.h"
#include <chrono>

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
#define cudaStreamDefault      0u
#define cudaStreamNonBlocking  1u
#define cudaEventDefault       0u
#define cudaEventDisableTiming 2u

struct CUstream_st {
    unsigned flags;
};
struct CUevent_st {
    std::chrono::steady_clock::time_point time;
};
typedef CUstream_st *cudaStream_t;
typedef CUevent_st *cudaEvent_t;

namespace emu
{

inline std::mutex device_lock;

template <class Operation> void enqueue(cudaStream_t, Operation operation)
{
    std::lock_guard held(device_lock);
    operation();
}
inline void enqueue_kernel(cudaStream_t stream, Launch launch)
{
    enqueue(stream, [&] { run_kernel(launch); });
}

} // namespace emu

inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream = nullptr)
{
    return emu::enqueue(stream, [=] { memmove(to, from, bytes); }), cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream = nullptr)
{
    return emu::enqueue(stream, [=] { memset(to, value, bytes); }), cudaSuccess;
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, bytes, kind);
}
inline cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes); }

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return *s = new CUstream_st{flags}, cudaSuccess; }
inline cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }
inline cudaError_t cudaStreamDestroy(cudaStream_t s) { return delete s, cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { return *e = new CUevent_st{}, cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
inline cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t = nullptr)
{
    return e->time = std::chrono::steady_clock::now(), cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    return *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count(), cudaSuccess;
}

#endif
