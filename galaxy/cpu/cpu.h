// cpu.h: the device `cpu`: its table of operations, and its description.
#ifndef GX_CPU_H
#define GX_CPU_H
#include "activation.h"
#include "attention.h"
#include "columns.h"
#include "dropout.h"
#include "elementwise.h"
#include "embedding.h"
#include "gate.h"
#include "gemm.h"
#include "linear.h"
#include "loss.h"
#include "memory.h"
#include "norm.h"
#include "optimizer.h"
#include "quantize.h"
#include "residual.h"
#include "rope.h"
#include "rows.h"
#include "team.h"
#include "tune.h"
GX_BEGIN

const GxDevice *gx_device_cpu(void);

// "Intel(R) Xeon(R) Processor, 2 cores (avx2 avx512f avx512_bf16 amx_bf16), oneDNN 2.6.3"
void gx_cpu_describe(char *text, size_t size);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_IMPLEMENTED)
#define GX_CPU_IMPLEMENTED
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static GxDevice gx__cpu_device;
static pthread_once_t gx__cpu_device_once = PTHREAD_ONCE_INIT; // contexts in several threads may request it at once

static void gx__cpu_device_fill(void)
{
    GxDevice d = GX_ZERO;
    d.name = "cpu";
    d.computes = 1;
    d.dtypes = 1u << GX_F32 | 1u << GX_BF16;
    d.head_dim = 0; // any
    d.quantized_tile = 1 << 20;
    d.describe = gx_cpu_describe;

    d.shares_host_memory = 1;
    d.close = gx_cpu_close;
    d.arena_open = gx_cpu_arena_open;
    d.arena_close = gx_cpu_arena_close;
    d.host_arena_open = gx_cpu_arena_open;
    d.host_arena_close = gx_cpu_arena_close;
    d.to_device = gx_cpu_to_device;
    d.to_host = gx_cpu_to_host;
#ifdef GX_WITH_ONEDNN // else there is one way alone
    d.tune = gx_cpu_tune;
    d.tuned_text = gx_cpu_tuned_text;
    d.take_tuned = gx_cpu_take_tuned;
#endif

    d.zero = gx_cpu_zero;
    d.copy = gx_cpu_copy;
    d.convert = gx_cpu_convert;
    d.add = gx_cpu_add;
    d.scale = gx_cpu_scale;
    d.sum = gx_cpu_sum;

    d.embedding_forward = gx_cpu_embedding_forward;
    d.embedding_backward = gx_cpu_embedding_backward;

    d.pick_rows = gx_cpu_pick_rows;
    d.add_rows = gx_cpu_add_rows;
    d.put_pages = gx_cpu_put_pages;
    d.mean_rows_forward = gx_cpu_mean_rows_forward;
    d.mean_rows_backward = gx_cpu_mean_rows_backward;
    d.normalize_rows_forward = gx_cpu_normalize_rows_forward;
    d.normalize_rows_backward = gx_cpu_normalize_rows_backward;

    d.rms_norm_forward = gx_cpu_rms_norm_forward;
    d.add_rms_norm_forward = gx_cpu_add_rms_norm_forward;
    d.rms_norm_backward = gx_cpu_rms_norm_backward;
    d.head_norm_forward = gx_cpu_head_norm_forward;
    d.head_norm_backward = gx_cpu_head_norm_backward;
    d.layer_norm_forward = gx_cpu_layer_norm_forward;
    d.layer_norm_backward = gx_cpu_layer_norm_backward;

    d.dropout = gx_cpu_dropout;
    d.residual_forward = gx_cpu_residual_forward;
    d.residual_backward = gx_cpu_residual_backward;

    d.linear_forward = gx_cpu_linear_forward;
    d.linear_backward_input = gx_cpu_linear_backward_input;
    d.linear_backward_weight = gx_cpu_linear_backward_weight;

    d.dequantize = gx_cpu_dequantize;

    d.rope = gx_cpu_rope;
    d.text_positions = gx_cpu_text_positions;

    d.attention_scratch = gx_cpu_attention_scratch;
    d.attention_forward = gx_cpu_attention_forward;
    d.attention_backward = gx_cpu_attention_backward;
    d.attention_merge = gx_cpu_attention_merge;

    d.swiglu_forward = gx_cpu_swiglu_forward;
    d.swiglu_backward = gx_cpu_swiglu_backward;
    d.gelu_forward = gx_cpu_gelu_forward;
    d.gelu_backward = gx_cpu_gelu_backward;
    d.geglu_forward = gx_cpu_geglu_forward;
    d.geglu_backward = gx_cpu_geglu_backward;
    d.relu_forward = gx_cpu_relu_forward;
    d.relu_backward = gx_cpu_relu_backward;
    d.tanh_forward = gx_cpu_tanh_forward;
    d.tanh_backward = gx_cpu_tanh_backward;

    d.gate_forward = gx_cpu_gate_forward;
    d.gate_backward = gx_cpu_gate_backward;

    d.scale_columns_forward = gx_cpu_scale_columns_forward;
    d.scale_columns_backward = gx_cpu_scale_columns_backward;

    d.cross_entropy = gx_cpu_cross_entropy;
    d.cross_entropy_maximum = gx_cpu_cross_entropy_maximum;
    d.cross_entropy_sums = gx_cpu_cross_entropy_sums;
    d.cross_entropy_finish = gx_cpu_cross_entropy_finish;
    d.squared_error = gx_cpu_squared_error;
    d.binary_cross_entropy = gx_cpu_binary_cross_entropy;

    d.square_blocks = gx_cpu_square_blocks;
    d.add_blocks = gx_cpu_add_blocks;
    d.clip = gx_cpu_clip;
    d.adamw = gx_cpu_adamw;
    d.sgd = gx_cpu_sgd;
    gx__cpu_device = d;
}

const GxDevice *gx_device_cpu(void)
{
    pthread_once(&gx__cpu_device_once, gx__cpu_device_fill);
    return &gx__cpu_device;
}

// The value after "key : " in /proc/cpuinfo; empty if there is no such file or key.
static void gx__cpu_cpuinfo(const char *key, char *value, size_t size)
{
    char line[4096];
    value[0] = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !value[0] && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key))) continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(value, size, "%s", colon + (colon[1] == ' ' ? 2 : 1));
    }
    if (f) fclose(f);
}

void gx_cpu_describe(char *text, size_t size)
{
    static const char *const wanted[] = {"avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve"};
    char model[128], flags[4096], sets[160] = "";
    gx__cpu_cpuinfo("model name", model, sizeof model);
    gx__cpu_cpuinfo("flags", flags, sizeof flags - 1);
    if (!flags[0]) gx__cpu_cpuinfo("Features", flags, sizeof flags - 1); // ARM
    strcat(flags, " ");
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s ", wanted[i]);
        const char *at = strstr(flags, word);
        if (!at || (at > flags && at[-1] != ' ')) continue;
        if (sets[0]) strcat(sets, " ");
        strcat(sets, wanted[i]);
    }
    snprintf(text, size, "%s, %ld cores (%s), %s", model[0] ? model : "unknown CPU", sysconf(_SC_NPROCESSORS_ONLN),
             sets[0] ? sets : "baseline", gx_cpu_gemm_name());
}
#endif
