// cpu.h: the device `cpu`: its table of operations, and what it has to say about itself.
#ifndef GX_CPU_H
#define GX_CPU_H
#include "activation.h"
#include "attention.h"
#include "elementwise.h"
#include "embedding.h"
#include "gemm.h"
#include "linear.h"
#include "loss.h"
#include "memory.h"
#include "norm.h"
#include "optimizer.h"
#include "rope.h"
GX_BEGIN

const GxDevice *gx_device_cpu(void);

// "Intel(R) Xeon(R) Processor, 2 cores (avx2 avx512f avx512_bf16 amx_bf16), oneDNN 2.6.3"
void gx_cpu_describe(char *text, size_t size);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_IMPLEMENTED)
#define GX_CPU_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const GxDevice gx__cpu_device_cpu = {
    "cpu",
    1,
    1u << GX_F32 | 1u << GX_BF16,
    0,
    gx_cpu_describe,
    1,
    NULL,
    NULL,
    gx_cpu_arena_open,
    gx_cpu_arena_close,
    gx_cpu_arena_open,
    gx_cpu_arena_close,
    gx_cpu_to_device,
    gx_cpu_to_host,
    NULL,
    NULL,
    NULL,
    gx_cpu_zero,
    gx_cpu_copy,
    gx_cpu_convert,
    gx_cpu_add,
    gx_cpu_sum,
    gx_cpu_embedding_forward,
    gx_cpu_embedding_backward,
    gx_cpu_rms_norm_forward,
    gx_cpu_add_rms_norm_forward,
    gx_cpu_rms_norm_backward,
    gx_cpu_linear_forward,
    gx_cpu_linear_backward_input,
    gx_cpu_linear_backward_weight,
    gx_cpu_rope,
    gx_cpu_attention_scratch,
    gx_cpu_attention_forward,
    gx_cpu_attention_backward,
    gx_cpu_swiglu_forward,
    gx_cpu_swiglu_backward,
    gx_cpu_cross_entropy,
    gx_cpu_cross_entropy_maximum,
    gx_cpu_cross_entropy_sums,
    gx_cpu_cross_entropy_finish,
    gx_cpu_sum_squares,
    gx_cpu_clip,
    gx_cpu_adamw,
    gx_cpu_sgd,
};

const GxDevice *gx_device_cpu(void) { return &gx__cpu_device_cpu; }

// The value behind "key : " in /proc/cpuinfo; empty where there is no such file or key.
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
