// galaxy_cuda.cuh: the device `cuda`, Galaxy's operations on NVIDIA GPUs. This header includes the library's CUDA code.
//
// HOW TO USE IT
//     #define GALAXY_IMPLEMENTATION      in exactly one file of a program, which then contains host code and kernels
//     #include "galaxy.h"
//     #include "galaxy_cuda.cuh"
//   `nvcc -std=c++17 -arch=native -x cu program.cu -lcublasLt` builds it; for an H100, `-arch=sm_90a -DGX_CUDA_SM_90A`
//   instead of `-arch=native` adds the kernels that only Hopper GPUs can run (cuda/hopper.cuh). To compile only the
//   kernels with nvcc and the rest with a C compiler, define GALAXY_CUDA_IMPLEMENTATION (`nvcc -x cu
//   -DGALAXY_CUDA_IMPLEMENTATION -c galaxy_cuda.cuh`); galaxy.h then declares what C programs need (cuda/cuda.h):
//     GxContext g = GX_ZERO;
//     g.device = gx_device_cuda();
//     GX_TRY(gx_device_open(&g));        // then arenas (ops/memory.h) and operations, as on any device
//   Every header can also be included by itself.
//
// WHAT IT NEEDS
//   CUDA 12 or newer with cuBLASLt, and NCCL's header (the library is loaded only if ranks use it, comm/nccl.h); a GPU
//   of compute capability 8.0 or higher (bf16). A context runs on its rank's GPU: the rank's number on the machine
//   modulo the number of GPUs. CUDA's current device is set per host thread, so only the thread that opened a context
//   uses it.
//
// WHAT IT DOES NOT DO
//   An operation does not allocate, synchronize or add floats atomically: it launches kernels on the context's stream,
//   and the same input gives the same bits. The host learns of errors when it waits (gx_to_host, gx_device_wait).
//
// NUMERICS
//   As specified in ops/: fp32 or bf16 activations and weights, fp32 sums (fp64 over all elements), rounded once.
//   Matrix products use TF32 if the context asks for it; attention in fp32 does three TF32 multiplications for each
//   fp32 one. No fast-math, but attention's exp2 and a division in GELU are the GPU's approximate instructions.
//
// THE FILES: galaxy/cuda has the files of galaxy/cpu, with the same functions in the same order. kernel.cuh and mma.cuh
// have what all of them use, attention_mma.cuh has attention on tensor cores, and cuda.cuh the table of operations.
#ifndef GALAXY_CUDA_CUH
#define GALAXY_CUDA_CUH
#if defined(GALAXY_IMPLEMENTATION) && !defined(GALAXY_CUDA_IMPLEMENTATION)
#define GALAXY_CUDA_IMPLEMENTATION
#endif
#include "galaxy/cuda/kernel.cuh"
#include "galaxy/cuda/mma.cuh"
#include "galaxy/cuda/memory.cuh"
#include "galaxy/cuda/graph.cuh"
#include "galaxy/cuda/elementwise.cuh"
#include "galaxy/cuda/embedding.cuh"
#include "galaxy/cuda/rows.cuh"
#include "galaxy/cuda/norm.cuh"
#include "galaxy/cuda/dropout.cuh"
#include "galaxy/cuda/residual.cuh"
#include "galaxy/cuda/linear.cuh"
#include "galaxy/cuda/quantize.cuh"
#include "galaxy/cuda/rope.cuh"
#include "galaxy/cuda/attention_parts.cuh"
#include "galaxy/cuda/attention_mma.cuh"
#include "galaxy/cuda/attention.cuh"
#include "galaxy/cuda/activation.cuh"
#include "galaxy/cuda/gate.cuh"
#include "galaxy/cuda/columns.cuh"
#include "galaxy/cuda/loss.cuh"
#include "galaxy/cuda/optimizer.cuh"
#include "galaxy/cuda/cuda.cuh"
#include "galaxy/comm/nccl.cuh"
#endif
