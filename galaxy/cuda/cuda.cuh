// cuda/cuda.cuh: the device `cuda`: its table of operations, and what it has to say about itself.
#ifndef GX_CUDA_CUH
#define GX_CUDA_CUH
#include "activation.cuh"
#include "attention.cuh"
#include "cuda.h"
#include "elementwise.cuh"
#include "embedding.cuh"
#include "linear.cuh"
#include "loss.cuh"
#include "memory.cuh"
#include "norm.cuh"
#include "optimizer.cuh"
#include "rope.cuh"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_IMPLEMENTED)
#define GX_CUDA_IMPLEMENTED
#include "memory.cuh" // gx__cuda_cards
#include <stdio.h>

static const GxDevice gx__cuda_device_cuda = {
    "cuda",
    1,
    1u << GX_F32 | 1u << GX_BF16,
    GX_CUDA_MAX_HEAD,
    gx_cuda_describe,
    0,
    gx_cuda_open,
    gx_cuda_close,
    gx_cuda_arena_open,
    gx_cuda_arena_close,
    gx_cuda_host_arena_open,
    gx_cuda_host_arena_close,
    gx_cuda_to_device,
    gx_cuda_to_host,
    gx_cuda_wait,
    gx_cuda_card,
    gx_cuda_memory,
    gx_cuda_zero,
    gx_cuda_copy,
    gx_cuda_convert,
    gx_cuda_add,
    gx_cuda_sum,
    gx_cuda_embedding_forward,
    gx_cuda_embedding_backward,
    gx_cuda_rms_norm_forward,
    gx_cuda_add_rms_norm_forward,
    gx_cuda_rms_norm_backward,
    gx_cuda_linear_forward,
    gx_cuda_linear_backward_input,
    gx_cuda_linear_backward_weight,
    gx_cuda_rope,
    gx_cuda_attention_scratch,
    gx_cuda_attention_forward,
    gx_cuda_attention_backward,
    gx_cuda_swiglu_forward,
    gx_cuda_swiglu_backward,
    gx_cuda_cross_entropy,
    gx_cuda_cross_entropy_maximum,
    gx_cuda_cross_entropy_sums,
    gx_cuda_cross_entropy_finish,
    gx_cuda_sum_squares,
    gx_cuda_clip,
    gx_cuda_adamw,
    gx_cuda_sgd,
};

const GxDevice *gx_device_cuda(void) { return &gx__cuda_device_cuda; }

void gx_cuda_describe(char *text, size_t size)
{
    int card = 0, driver = 0, runtime = 0;
    cudaDeviceProp p;
    if (!gx__cuda_cards(text, size)) return;
    const cudaError_t e =
        cudaGetDevice(&card) == cudaSuccess ? cudaGetDeviceProperties(&p, card) : cudaErrorInvalidDevice;
    if (e != cudaSuccess) {
        snprintf(text, size, "card %d does not answer: %s", card, cudaGetErrorString(e));
        return;
    }
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    snprintf(text, size, "%s, sm_%d%d, %.0f GiB, CUDA %d.%d, driver for %d.%d", p.name, p.major, p.minor,
             (double)p.totalGlobalMem / (double)(1 << 30), runtime / 1000, runtime % 1000 / 10, driver / 1000,
             driver % 1000 / 10);
}
#endif
