// device.h: error codes, the card that the emulator plays, and the limits of a launch, checked as the driver does.
//
// A card of compute capability 8.0, or what GX_EMU_CAPABILITY says, with four multiprocessors. GX_EMU_SHARED=KB is the
// shared memory that a block may ask for: unless set 163, as on an A100, or with 9.0 227, as on an H100; 99 as on a
// consumer card.
#ifndef GX_EMU_DEVICE_H
#define GX_EMU_DEVICE_H
#include "shared.h"
#include <map>
#include <mutex>
#include <utility>

#define CUDART_VERSION 13000

// ---- errors --------------------------------------------------------------------------------------------------------
#define GX_EMU_ERRORS(E)                                                                                               \
    E(cudaSuccess, 0, "no error")                                                                                      \
    E(cudaErrorInvalidValue, 1, "invalid argument")                                                                    \
    E(cudaErrorMemoryAllocation, 2, "out of memory")                                                                   \
    E(cudaErrorInitializationError, 3, "initialization error")                                                         \
    E(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                              \
    E(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                                     \
    E(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                                        \
    E(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")                 \
    E(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                                   \
    E(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                                    \
    E(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                           \
    E(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                                  \
    E(cudaErrorNotReady, 600, "device not ready")                                                                      \
    E(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                                        \
    E(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                                   \
    E(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped")        \
    E(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region")              \
    E(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                                       \
    E(cudaErrorNotSupported, 801, "operation not supported")                                                           \
    E(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state")                            \
    E(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")                      \
    E(cudaErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture")               \
    E(cudaErrorStreamCaptureUnmatched, 903, "capture was not initiated in this stream")                                \
    E(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                                       \
    E(cudaErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream")                 \
    E(cudaErrorUnknown, 999, "unknown error")

#define GX_EMU_ERROR_VALUE(name, number, words) name = number,
typedef enum cudaError { GX_EMU_ERRORS(GX_EMU_ERROR_VALUE) } cudaError_t;
#undef GX_EMU_ERROR_VALUE

namespace emu
{

struct ErrorWords {
    cudaError_t code;
    const char *name, *words;
};
inline ErrorWords error_words(cudaError_t code)
{
#define GX_EMU_ERROR_ROW(name, number, words) {name, #name, words},
    static const ErrorWords all[] = {GX_EMU_ERRORS(GX_EMU_ERROR_ROW)};
#undef GX_EMU_ERROR_ROW
    for (const ErrorWords &e : all)
        if (e.code == code) return e;
    return {code, "unrecognized error code", "unrecognized error code"};
}

inline thread_local cudaError_t last_error = cudaSuccess;
inline cudaError_t result(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
    return e;
}

} // namespace emu

inline const char *cudaGetErrorName(cudaError_t e) { return emu::error_words(e).name; }
inline const char *cudaGetErrorString(cudaError_t e) { return emu::error_words(e).words; }
inline cudaError_t cudaPeekAtLastError() { return emu::last_error; }
inline cudaError_t cudaGetLastError() { return std::exchange(emu::last_error, cudaSuccess); }

// ---- the card ------------------------------------------------------------------------------------------------------
typedef struct {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor,
        reservedSharedMemPerBlock, totalConstMem;
    int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3],
        maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, regsPerBlock, regsPerMultiprocessor, l2CacheSize,
        memoryBusWidth, concurrentKernels, asyncEngineCount, unifiedAddressing, managedMemory, cooperativeLaunch,
        integrated, canMapHostMemory, ECCEnabled, pciBusID, pciDeviceID, pciDomainID;
};

// Numbers as in driver_types.h.
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106
};

namespace emu
{

// GX_EMU_CARDS: as many cards, all alike but for their numbers (and UUIDs, which begin with GX_EMU_UUID). The current
// one is a property of the host thread. 0: a machine without one.
inline int cards() { return (int)environment_number("GX_EMU_CARDS", 1, 0, 64); }
inline thread_local int current_card = 0;
inline bool is_card(int n) { return n >= 0 && n < cards(); }

// GX_EMU_CAPABILITY: compute capability, "8.0": of an A100, "9.0": of an H100
inline void read_capability(cudaDeviceProp &p)
{
    const std::string text = environment("GX_EMU_CAPABILITY", "8.0");
    int end = 0;
    if (sscanf(text.c_str(), "%d.%d%n", &p.major, &p.minor, &end) != 2 || text[(size_t)end])
        fatal("GX_EMU_CAPABILITY=%s is no compute capability, such as 9.0", text.c_str());
}

// GX_EMU_MOST_BLOCKS: that kernels of Galaxy, which loop over their jobs, ask for along x
inline int64_t most_blocks() { return environment_number("GX_EMU_MOST_BLOCKS", INT32_MAX, 1, INT32_MAX); }

// GX_EMU_MEMORY: megabytes, of each card
inline size_t device_memory() { return (size_t)environment_number("GX_EMU_MEMORY", 4096, 1, 1 << 20) << 20; }

inline cudaDeviceProp properties()
{
    cudaDeviceProp p{};
    snprintf(p.name, sizeof p.name, "Galaxy emulator");
    p.totalGlobalMem = device_memory();
    p.sharedMemPerBlock = shared_without_opt_in;
    p.sharedMemPerBlockOptin = shared_opt_in();
    p.sharedMemPerMultiprocessor = shared_opt_in() + shared_reserved;
    p.reservedSharedMemPerBlock = shared_reserved;
    p.totalConstMem = 64 << 10;
    read_capability(p);
    p.multiProcessorCount = 4, p.warpSize = warp_lanes;
    p.maxThreadsPerBlock = block_threads_max;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.maxThreadsPerMultiProcessor = 2048, p.maxBlocksPerMultiProcessor = 32;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.l2CacheSize = 40 << 20, p.memoryBusWidth = 5120;
    p.concurrentKernels = p.asyncEngineCount = p.unifiedAddressing = p.canMapHostMemory = 1;
    return p;
}

} // namespace emu

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (!emu::is_card(device)) return emu::result(cudaErrorInvalidDevice);
    *p = emu::properties();
    p->pciBusID = device;
    emu::environment("GX_EMU_UUID", "emulated").copy(p->uuid.bytes, sizeof p->uuid.bytes - 1);
    p->uuid.bytes[15] = (char)device;
    return cudaSuccess;
}

inline cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    if (!emu::is_card(device)) return emu::result(cudaErrorInvalidDevice);
    if (size < 13) return emu::result(cudaErrorInvalidValue);
    snprintf(text, (size_t)size, "0000:%02x:00.0", device);
    return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (!emu::is_card(device)) return emu::result(cudaErrorInvalidDevice);
    cudaDeviceProp p = emu::properties();
    const std::map<int, size_t> values = {
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock},
        {cudaDevAttrWarpSize, p.warpSize},
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
        {cudaDevAttrL2CacheSize, p.l2CacheSize},
        {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
        {cudaDevAttrComputeCapabilityMajor, p.major},
        {cudaDevAttrComputeCapabilityMinor, p.minor},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor},
        {cudaDevAttrCooperativeLaunch, p.cooperativeLaunch},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin},
        {cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor},
    };
    auto found = values.find(attribute);
    if (found == values.end()) return emu::result(cudaErrorInvalidValue);
    *value = (int)found->second;
    return cudaSuccess;
}

inline cudaError_t cudaGetDeviceCount(int *n) { return *n = emu::cards(), *n ? cudaSuccess : cudaErrorNoDevice; }
inline cudaError_t cudaGetDevice(int *device) { return *device = emu::current_card, cudaSuccess; }
inline cudaError_t cudaSetDevice(int device)
{
    if (!emu::is_card(device)) return emu::result(cudaErrorInvalidDevice);
    return emu::current_card = device, cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }

// ---- kernels' attributes and the limits of a launch ----------------------------------------------------------------
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, maxDynamicSharedSizeBytes;
};

namespace emu
{

inline std::mutex attributes_lock;
inline std::map<const void *, size_t> dynamic_shared_allowed; // of kernels that opted in

inline size_t dynamic_shared_limit(const void *kernel)
{
    std::lock_guard held(attributes_lock);
    auto found = dynamic_shared_allowed.find(kernel);
    return found == dynamic_shared_allowed.end() ? shared_without_opt_in : found->second;
}

inline cudaError_t check_launch(const void *kernel, dim3 grid, dim3 threads, size_t shared_bytes)
{
    cudaDeviceProp p = properties();
    const unsigned g[3] = {grid.x, grid.y, grid.z}, t[3] = {threads.x, threads.y, threads.z};
    for (int i = 0; i < 3; i++)
        if (!g[i] || !t[i] || g[i] > (unsigned)p.maxGridSize[i] || t[i] > (unsigned)p.maxThreadsDim[i])
            return cudaErrorInvalidConfiguration;
    if ((size_t)threads.x * threads.y * threads.z > block_threads_max) return cudaErrorInvalidConfiguration;
    if (shared_bytes > dynamic_shared_limit(kernel)) return cudaErrorInvalidValue;
    return cudaSuccess;
}

} // namespace emu

inline cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess; // a hint
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || (size_t)value > emu::shared_opt_in())
        return emu::result(cudaErrorInvalidValue);
    std::lock_guard held(emu::attributes_lock);
    emu::dynamic_shared_allowed[kernel] = (size_t)value;
    return cudaSuccess;
}
template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}

// Registers are not modelled: numRegs is a plausible number.
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *kernel)
{
    *a = {};
    a->maxThreadsPerBlock = emu::block_threads_max, a->numRegs = 32, a->ptxVersion = a->binaryVersion = 80;
    a->maxDynamicSharedSizeBytes = (int)emu::dynamic_shared_limit(kernel);
    return cudaSuccess;
}
template <class... P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, void (*kernel)(P...))
{
    return cudaFuncGetAttributes(a, (const void *)kernel);
}

// By threads and shared memory alone.
template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...), int threads,
                                                          size_t dynamic_shared)
{
    if (threads < 1 || threads > emu::block_threads_max) return emu::result(cudaErrorInvalidValue);
    cudaDeviceProp p = emu::properties();
    if (dynamic_shared > emu::dynamic_shared_limit((const void *)kernel)) return *blocks = 0, cudaSuccess;
    int by_threads = p.maxThreadsPerMultiProcessor / ((threads + 31) / 32 * 32);
    int by_shared = (int)(p.sharedMemPerMultiprocessor / (dynamic_shared + emu::shared_reserved));
    *blocks = std::min({by_threads, by_shared, p.maxBlocksPerMultiProcessor});
    return cudaSuccess;
}

#endif
