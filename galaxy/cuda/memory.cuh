// cuda/memory.cuh: ops/memory.h on the GPU: the context's stream and handles, its memory, and copies between host and
// device.
//
// One stream per context runs all its operations in order; the host runs ahead. Small copies to the device pass through
// a staging buffer of pinned memory, so that the host may change its own copy at once. Small copies from the device
// also pass through it, and the host waits for them. A wait reports errors since the last one: a kernel's fault or an
// error of the driver.
#ifndef GX_CUDA_MEMORY_CUH
#define GX_CUDA_MEMORY_CUH
#include "../ops/memory.h"
#include "kernel.cuh"
GX_BEGIN

GxStatus gx_cuda_open(GxContext *g); // on GPU (rank on this machine) % (number of GPUs)
void gx_cuda_close(GxContext *g);
GxStatus gx_cuda_arena_open(GxContext *g, GxArena *a, int64_t bytes);
void gx_cuda_arena_close(GxContext *g, GxArena *a);
GxStatus gx_cuda_host_arena_open(GxContext *g, GxArena *a, int64_t bytes); // pinned
void gx_cuda_host_arena_close(GxContext *g, GxArena *a);
void gx_cuda_to_device(GxContext *g, void *buffer, const void *host_copy, int64_t bytes);
void gx_cuda_to_host(GxContext *g, void *host_copy, const void *buffer, int64_t bytes);
uint64_t gx_cuda_card(const GxContext *g); // a hash of the GPU's UUID, which is unique among all machines
void gx_cuda_memory(const GxContext *g, int64_t *free_bytes, int64_t *all_bytes);

// Also for other headers of the device.
GxStatus gx__cuda_error(GxContext *g, cudaError_t e, const char *what); // an error becomes the context's
int gx__cuda_cards(char *why, size_t size);                             // how many GPUs there are; if none, why
int gx__cuda_is_captured(GxContext *g, const char *what);               // 1: a graph is being captured; sets an error
enum { GX__CUDA_LAUNCHES = 256 }; // at most twice as many are in the driver's queue

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_MEMORY_IMPLEMENTED)
#define GX_CUDA_MEMORY_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernel.cuh"
#include "linear.cuh"
#include "../ops/loss.h" // GX_IGNORE_INDEX

#ifdef GX_EMU // which fills it, for each context of each test
enum { GX__CUDA_BLAS_WORKSPACE = 64 << 10, GX__CUDA_STAGE = 256 << 10 };
#else
enum { GX__CUDA_BLAS_WORKSPACE = 32 << 20, GX__CUDA_STAGE = 4 << 20 }; // bytes; cuBLAS asks for 32 MB on Hopper
#endif

GxStatus gx__cuda_error(GxContext *g, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return GX_OK;
    cudaGetLastError(); // clears the error, which a later launch must not report again
    return GX_FAIL(&g->error, GX_ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

// If collectives run on the GPU, the wait for a rank that died would never end, so their engine checks for dead ranks
// (g->while_waiting). event NULL: waits for everything launched.
static cudaError_t gx__cuda_finish(GxContext *g, cudaEvent_t event)
{
    const cudaStream_t stream = gx_cuda(g)->stream;
    if (!g->while_waiting) return event ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream);
    const double since = gx_seconds();
    cudaError_t e = cudaErrorNotReady;
    while (!gx_failed(g) && (e = event ? cudaEventQuery(event) : cudaStreamQuery(stream)) == cudaErrorNotReady)
        g->while_waiting(g, since);
    if (!gx_failed(g)) g->while_waiting(g, -1); // the wait may have ended because a rank left in the middle
    return e;
}

// The driver's queue holds about 1,024 launches. One more blocks the host inside the driver, where nothing checks for
// dead ranks, so there are never more than twice GX__CUDA_LAUNCHES.
static void gx__cuda_leave_room(GxContext *g)
{
    GxCuda *cuda = gx_cuda(g);
    if (cuda->is_capturing) return;
    if (!g->while_waiting || ++cuda->launches < GX__CUDA_LAUNCHES || gx_failed(g)) return;
    cuda->launches = 0;
    if (gx__cuda_error(g, gx__cuda_finish(g, cuda->earlier), "an operation before") == GX_OK && !gx_failed(g))
        gx__cuda_error(g, cudaEventRecord(cuda->earlier, cuda->stream), "cudaEventRecord");
}

void gx_cuda_check(GxContext *g, const char *what)
{
    gx__cuda_error(g, cudaGetLastError(), what);
    gx__cuda_leave_room(g);
}

// ---- open and close ------------------------------------------------------------------------------------------------

int gx__cuda_cards(char *why, size_t size)
{
    int cards = 0, driver = 0, runtime = 0;
    const cudaError_t e = cudaGetDeviceCount(&cards);
    if (e == cudaSuccess && cards > 0) return cards;
    cudaGetLastError();
    cudaDriverGetVersion(&driver); // the CUDA version that the driver supports, 1000*major + 10*minor; 0: no driver
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) snprintf(why, size, "there is no NVIDIA driver on this machine");
    else if (driver < runtime)
        snprintf(why, size, "the driver runs CUDA %d.%d, but this program is built for %d.%d; update the driver",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else snprintf(why, size, "the driver shows no card (%s); CUDA_VISIBLE_DEVICES may hide it", cudaGetErrorString(e));
    return 0;
}

static GxStatus gx__cuda_open_card(GxContext *g, int card)
{
    GxCuda *cuda = gx_cuda(g);
    int major = 0, minor = 0;
    const struct {
        int *value;
        cudaDeviceAttr attribute;
    } asked[] = {{&cuda->processors, cudaDevAttrMultiProcessorCount},
                 {&cuda->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin},
                 {&major, cudaDevAttrComputeCapabilityMajor},
                 {&minor, cudaDevAttrComputeCapabilityMinor}};
    GX_TRY(gx__cuda_error(g, cudaSetDevice(card), "cudaSetDevice"));
    for (const auto &a : asked)
        GX_TRY(gx__cuda_error(g, cudaDeviceGetAttribute(a.value, a.attribute, card), "cudaDeviceGetAttribute"));
    cuda->runs_sm_90a = major == 9 && minor == 0;
    cuda->fast_tf32 = minor == 0 && major >= 8 && major <= 10; // A100, H100, B200; other 8.x and 12.x are not
    return GX_OK;
}

static GxStatus gx__cuda_open_buffers(GxContext *g)
{
    GxCuda *cuda = gx_cuda(g);
    cuda->blas_workspace_bytes = GX__CUDA_BLAS_WORKSPACE;
    GX_TRY(gx__cuda_error(g, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                          "cudaStreamCreateWithFlags"));
    GX_TRY(gx__cuda_error(g, cudaEventCreateWithFlags(&cuda->earlier, cudaEventDisableTiming),
                          "cudaEventCreateWithFlags"));
    GX_TRY(gx__cuda_error(g, cudaMalloc(&cuda->blas_workspace, GX__CUDA_BLAS_WORKSPACE), "32 MB for matrix products"));
    GX_TRY(gx__cuda_error(g, cudaMalloc((void **)&cuda->fault, sizeof *cuda->fault), "cudaMalloc"));
    GX_TRY(gx__cuda_error(g, cudaMemsetAsync(cuda->fault, 0, sizeof *cuda->fault, cuda->stream), "cudaMemsetAsync"));
    GX_TRY(gx__cuda_error(g, cudaMallocHost((void **)&cuda->seen_fault, sizeof *cuda->seen_fault), "cudaMallocHost"));
    return gx__cuda_error(g, cudaMallocHost((void **)&cuda->stage, GX__CUDA_STAGE), "cudaMallocHost");
}

GxStatus gx_cuda_open(GxContext *g)
{
    char why[200];
    const int cards = gx__cuda_cards(why, sizeof why);
    if (!cards) return GX_FAIL(&g->error, GX_ERR_DEVICE, "the device cuda: %s; the device cpu needs no card", why);
    g->device_state = calloc(1, sizeof(GxCuda));
    if (!g->device_state) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the state of the device cuda");
    GX_TRY(gx__cuda_open_card(g, g->local_rank % cards));
    GX_TRY(gx__cuda_open_buffers(g));
    const cublasStatus_t blas = cublasLtCreate(&gx_cuda(g)->blas);
    if (blas != CUBLAS_STATUS_SUCCESS) return GX_FAIL(&g->error, GX_ERR_DEVICE, "cublasLtCreate: status %d", (int)blas);
    if (gx_cuda_linear_open(gx_cuda(g)) != GX_OK)
        return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the table of matrix products");
    return GX_OK;
}

void gx_cuda_close(GxContext *g) // it may be only partly open
{
    GxCuda *cuda = gx_cuda(g);
    if (!cuda) return;
    if (cuda->stream) cudaStreamSynchronize(cuda->stream);
    gx_cuda_linear_close(cuda);
    if (cuda->blas) cublasLtDestroy(cuda->blas);
    if (cuda->stage) cudaFreeHost(cuda->stage);
    if (cuda->seen_fault) cudaFreeHost(cuda->seen_fault);
    if (cuda->fault) cudaFree(cuda->fault);
    if (cuda->blas_workspace) cudaFree(cuda->blas_workspace);
    if (cuda->earlier) cudaEventDestroy(cuda->earlier);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    free(cuda);
    g->device_state = NULL;
}

uint64_t gx_cuda_card(const GxContext *g)
{
    char machine[256] = "";
    int card = 0;
    cudaDeviceProp p;
    if (!gx_cuda(g)) return 0;
    memset(&p, 0, sizeof p);
    if (cudaGetDevice(&card) != cudaSuccess || cudaGetDeviceProperties(&p, card) != cudaSuccess) cudaGetLastError();
    // A GPU that is integrated into its machine's processor (Jetson) is also identified by its machine's name. Other
    // GPUs are not: containers that share a GPU have different names.
    if (p.integrated) gethostname(machine, sizeof machine - 1);
    const uint64_t hash = gx_hash(GX_HASH_START, &p.uuid, sizeof p.uuid);
    return gx_hash(hash, machine, (int64_t)strlen(machine)) | 1;
}

void gx_cuda_memory(const GxContext *g, int64_t *free_bytes, int64_t *all_bytes)
{
    size_t left = 0, all = 0;
    if (gx_cuda(g) && cudaMemGetInfo(&left, &all) != cudaSuccess) cudaGetLastError();
    *free_bytes = (int64_t)left, *all_bytes = (int64_t)all;
}

// ---- memory --------------------------------------------------------------------------------------------------------

GxStatus gx_cuda_arena_open(GxContext *g, GxArena *a, int64_t bytes)
{
    size_t free_bytes = 0, all_bytes = 0;
    memset(a, 0, sizeof *a);
    const int64_t capacity = gx_round_up(gx_max(bytes, 1), GX_ALIGN);
    if (cudaMalloc((void **)&a->base, (size_t)capacity) != cudaSuccess) {
        cudaGetLastError();
        cudaMemGetInfo(&free_bytes, &all_bytes);
        return GX_FAIL(&g->error, GX_ERR_MEMORY,
                       "the card has %.1f of its %.1f MB free, but the arena needs %.1f MB (%ld bytes); use a smaller "
                       "model, batch or sequence",
                       (double)free_bytes / 1e6, (double)all_bytes / 1e6, (double)capacity / 1e6, (long)capacity);
    }
    a->capacity = capacity;
    return gx__cuda_error(g, cudaMemsetAsync(a->base, 0, (size_t)capacity, gx_cuda(g)->stream), "cudaMemsetAsync");
}

void gx_cuda_arena_close(GxContext *g, GxArena *a)
{
    cudaStreamSynchronize(gx_cuda(g)->stream);
    cudaFree(a->base);
    memset(a, 0, sizeof *a);
}

GxStatus gx_cuda_host_arena_open(GxContext *g, GxArena *a, int64_t bytes)
{
    memset(a, 0, sizeof *a);
    const int64_t capacity = gx_round_up(gx_max(bytes, 1), GX_ALIGN);
    const cudaError_t e = cudaMallocHost((void **)&a->base, (size_t)capacity);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return GX_FAIL(&g->error, GX_ERR_MEMORY, "the system refused %.1f MB of pinned memory: %s",
                       (double)capacity / 1e6, cudaGetErrorString(e));
    }
    memset(a->base, 0, (size_t)capacity);
    a->capacity = capacity;
    return GX_OK;
}

void gx_cuda_host_arena_close(GxContext *g, GxArena *a)
{
    cudaStreamSynchronize(gx_cuda(g)->stream); // copies from it may still be running
    cudaFreeHost(a->base);
    memset(a, 0, sizeof *a);
}

// ---- between host and device ---------------------------------------------------------------------------------------

// A graph would copy the same bytes at every launch, and a capture cannot wait for what has not run yet.
int gx__cuda_is_captured(GxContext *g, const char *what)
{
    if (!gx_cuda(g)->is_capturing) return 0;
    GX_FAIL(&g->error, GX_ERR_DEVICE,
            "%s (unit %d, %s) while operations are captured for a CUDA graph, in which the host can neither copy bytes "
            "nor wait; train with --cuda_graphs false",
            what, g->unit, g->site ? g->site : "-");
    return 1;
}

// Allocates from the staging buffer. If it is full, the host waits until all its contents have been copied.
static char *gx__cuda_stage(GxContext *g, int64_t bytes)
{
    GxCuda *cuda = gx_cuda(g);
    const int64_t size = gx_round_up(bytes, GX_ALIGN);
    if (size > GX__CUDA_STAGE - cuda->stage_used) gx_cuda_wait(g);
    char *p = cuda->stage + cuda->stage_used;
    cuda->stage_used += size;
    return p;
}

// The driver reads pinned memory asynchronously, and the host copy is pinned: small copies (tokens, the step's numbers)
// pass through the staging buffer; for large ones (weights) the host waits.
void gx_cuda_to_device(GxContext *g, void *buffer, const void *host_copy, int64_t bytes)
{
    const int staged = bytes <= GX__CUDA_STAGE;
    const void *from = host_copy;
    if (gx__cuda_is_captured(g, "to_device")) return;
    if (staged) from = memcpy(gx__cuda_stage(g, bytes), host_copy, (size_t)bytes);
    cudaMemcpyAsync(buffer, from, (size_t)bytes, cudaMemcpyHostToDevice, gx_cuda(g)->stream);
    gx_cuda_check(g, "to_device");
    if (!staged) gx_cuda_wait(g);
}

// The host copy may be any host memory (a variable). A copy into pageable memory blocks the host inside the driver
// until everything before it is done, and nothing would check for dead ranks (g->while_waiting). Small copies therefore
// pass through the staging buffer, and before large ones the host waits.
void gx_cuda_to_host(GxContext *g, void *host_copy, const void *buffer, int64_t bytes)
{
    const int staged = bytes <= GX__CUDA_STAGE;
    void *to = host_copy;
    if (gx__cuda_is_captured(g, "to_host")) return;
    if (staged) to = gx__cuda_stage(g, bytes);
    else gx_cuda_wait(g);
    if (gx_failed(g)) return;
    cudaMemcpyAsync(to, buffer, (size_t)bytes, cudaMemcpyDeviceToHost, gx_cuda(g)->stream);
    gx_cuda_check(g, "to_host");
    gx_cuda_wait(g);
    if (staged && !gx_failed(g)) memcpy(host_copy, to, (size_t)bytes);
}

void gx_cuda_wait(GxContext *g)
{
    GxCuda *cuda = gx_cuda(g);
    const GxCudaFault *f = cuda->seen_fault;
    if (gx__cuda_is_captured(g, "a wait for the device")) return;
    cudaMemcpyAsync(cuda->seen_fault, cuda->fault, sizeof *f, cudaMemcpyDeviceToHost, cuda->stream);
    const cudaError_t e = gx__cuda_finish(g, NULL);
    cuda->stage_used = 0;
    if (gx_failed(g)) return;
    if (gx__cuda_error(g, e, "an operation before") != GX_OK || f->kind == 0) return;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "label %d in row %ld; labels are 0 to %ld, or %d for those that do not count",
            f->value, (long)f->row, (long)f->limit - 1, GX_IGNORE_INDEX);
}
#endif
