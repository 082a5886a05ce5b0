// cuda/cuda.cuh: the device `cuda`: its table of operations, and its description.
#ifndef GX_CUDA_CUH
#define GX_CUDA_CUH
#include "activation.cuh"
#include "attention.cuh"
#include "columns.cuh"
#include "cuda.h"
#include "dropout.cuh"
#include "elementwise.cuh"
#include "embedding.cuh"
#include "gate.cuh"
#include "graph.cuh"
#include "linear.cuh"
#include "loss.cuh"
#include "memory.cuh"
#include "norm.cuh"
#include "optimizer.cuh"
#include "quantize.cuh"
#include "residual.cuh"
#include "rope.cuh"
#include "rows.cuh"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_IMPLEMENTED)
#define GX_CUDA_IMPLEMENTED
#include "memory.cuh" // gx__cuda_cards
#include <stdio.h>

static GxDevice gx__cuda_device_filled(void)
{
    GxDevice d = GX_ZERO;
    d.name = "cuda";
    d.computes = 1;
    d.dtypes = 1u << GX_F32 | 1u << GX_BF16;
    d.head_dim = GX_CUDA_MAX_HEAD;
    d.attention_misses_tensor_cores = gx_cuda_attention_misses_tensor_cores;
    d.quantized_tile = 1 << 24;
    d.describe = gx_cuda_describe;

    d.shares_host_memory = 0;
    d.open = gx_cuda_open;
    d.close = gx_cuda_close;
    d.arena_open = gx_cuda_arena_open;
    d.arena_close = gx_cuda_arena_close;
    d.host_arena_open = gx_cuda_host_arena_open;
    d.host_arena_close = gx_cuda_host_arena_close;
    d.to_device = gx_cuda_to_device;
    d.to_host = gx_cuda_to_host;
    d.wait = gx_cuda_wait;
    d.card = gx_cuda_card;
    d.memory = gx_cuda_memory;
    d.tune = gx_cuda_tune;
    d.tuned_text = gx_cuda_tuned_text;
    d.take_tuned = gx_cuda_take_tuned;

    d.graph_begin = gx_cuda_graph_begin;
    d.graph_end = gx_cuda_graph_end;
    d.graph_launch = gx_cuda_graph_launch;
    d.graph_close = gx_cuda_graph_close;
#ifdef GX_EMU
    if (emu::environment_word("GX_EMU_GRAPHS", {"keep", "compare"}) == "compare")
        d.graph_compare = gx_cuda_graph_compare;
#endif

    d.zero = gx_cuda_zero;
    d.copy = gx_cuda_copy;
    d.convert = gx_cuda_convert;
    d.add = gx_cuda_add;
    d.scale = gx_cuda_scale;
    d.sum = gx_cuda_sum;

    d.embedding_forward = gx_cuda_embedding_forward;
    d.embedding_backward = gx_cuda_embedding_backward;

    d.pick_rows = gx_cuda_pick_rows;
    d.add_rows = gx_cuda_add_rows;
    d.put_pages = gx_cuda_put_pages;
    d.mean_rows_forward = gx_cuda_mean_rows_forward;
    d.mean_rows_backward = gx_cuda_mean_rows_backward;
    d.normalize_rows_forward = gx_cuda_normalize_rows_forward;
    d.normalize_rows_backward = gx_cuda_normalize_rows_backward;

    d.rms_norm_forward = gx_cuda_rms_norm_forward;
    d.add_rms_norm_forward = gx_cuda_add_rms_norm_forward;
    d.rms_norm_backward = gx_cuda_rms_norm_backward;
    d.head_norm_forward = gx_cuda_head_norm_forward;
    d.head_norm_backward = gx_cuda_head_norm_backward;
    d.layer_norm_forward = gx_cuda_layer_norm_forward;
    d.layer_norm_backward = gx_cuda_layer_norm_backward;

    d.dropout = gx_cuda_dropout;
    d.residual_forward = gx_cuda_residual_forward;
    d.residual_backward = gx_cuda_residual_backward;

    d.linear_forward = gx_cuda_linear_forward;
    d.linear_backward_input = gx_cuda_linear_backward_input;
    d.linear_backward_weight = gx_cuda_linear_backward_weight;

    d.dequantize = gx_cuda_dequantize;

    d.rope = gx_cuda_rope;
    d.text_positions = gx_cuda_text_positions;

    d.attention_scratch = gx_cuda_attention_scratch;
    d.attention_forward = gx_cuda_attention_forward;
    d.attention_backward = gx_cuda_attention_backward;
    d.attention_merge = gx_cuda_attention_merge;

    d.swiglu_forward = gx_cuda_swiglu_forward;
    d.swiglu_backward = gx_cuda_swiglu_backward;
    d.gelu_forward = gx_cuda_gelu_forward;
    d.gelu_backward = gx_cuda_gelu_backward;
    d.geglu_forward = gx_cuda_geglu_forward;
    d.geglu_backward = gx_cuda_geglu_backward;
    d.relu_forward = gx_cuda_relu_forward;
    d.relu_backward = gx_cuda_relu_backward;
    d.tanh_forward = gx_cuda_tanh_forward;
    d.tanh_backward = gx_cuda_tanh_backward;

    d.gate_forward = gx_cuda_gate_forward;
    d.gate_backward = gx_cuda_gate_backward;

    d.scale_columns_forward = gx_cuda_scale_columns_forward;
    d.scale_columns_backward = gx_cuda_scale_columns_backward;

    d.cross_entropy = gx_cuda_cross_entropy;
    d.cross_entropy_maximum = gx_cuda_cross_entropy_maximum;
    d.cross_entropy_sums = gx_cuda_cross_entropy_sums;
    d.cross_entropy_finish = gx_cuda_cross_entropy_finish;
    d.squared_error = gx_cuda_squared_error;
    d.binary_cross_entropy = gx_cuda_binary_cross_entropy;

    d.square_blocks = gx_cuda_square_blocks;
    d.add_blocks = gx_cuda_add_blocks;
    d.clip = gx_cuda_clip;
    d.adamw = gx_cuda_adamw;
    d.sgd = gx_cuda_sgd;
    return d;
}

const GxDevice *gx_device_cuda(void)
{
    static const GxDevice device = gx__cuda_device_filled(); // filled once, by the first thread
    return &device;
}

void gx_cuda_describe(char *text, size_t size)
{
    int card = 0, driver = 0, runtime = 0;
    cudaDeviceProp p;
    if (!gx__cuda_cards(text, size)) return;
    const cudaError_t e =
        cudaGetDevice(&card) == cudaSuccess ? cudaGetDeviceProperties(&p, card) : cudaErrorInvalidDevice;
    if (e != cudaSuccess) {
        snprintf(text, size, "the card %d does not answer: %s", card, cudaGetErrorString(e));
        return;
    }
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    snprintf(text, size, "%s, sm_%d%d, %.0f GiB, CUDA %d.%d, driver for %d.%d", p.name, p.major, p.minor,
             (double)p.totalGlobalMem / (double)(1 << 30), runtime / 1000, runtime % 1000 / 10, driver / 1000,
             driver % 1000 / 10);
}
#endif
