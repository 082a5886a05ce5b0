// memory.h: device memory, pinned memory, and what a pointer is.
#ifndef GX_EMU_MEMORY_H
#define GX_EMU_MEMORY_H
#include "device.h"

inline cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = nullptr;
    if (!bytes) return cudaSuccess;
    *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!*p) return emu::result(cudaErrorMemoryAllocation);
    memset(*p, emu::shared_fresh_byte, bytes);
    return cudaSuccess;
}
template <class T> cudaError_t cudaMalloc(T **p, size_t bytes) { return cudaMalloc((void **)p, bytes); }
inline cudaError_t cudaFree(void *p) { return free(p), cudaSuccess; }
#define cudaHostAllocDefault 0u
template <class T> cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned = 0) { return cudaMalloc((void **)p, bytes); }
template <class T> cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned) { return cudaMalloc((void **)p, bytes); }
inline cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
inline cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) { return *free_bytes = *total = emu::device_memory, cudaSuccess; }

#endif
