// galaxy_cuda.cuh: the device `cuda`: Galaxy's operations on NVIDIA GPUs. The front door of the library, CUDA side.
//
// HOW TO USE IT
//     #define GALAXY_IMPLEMENTATION      in exactly one file of a program: there host side and kernels are compiled
//     #include "galaxy.h"
//     #include "galaxy_cuda.cuh"
//   A bare `nvcc -std=c++17 -arch=native -x cu program.cu -lcublasLt` builds it; for an H100 `-arch=sm_90a
//   -DGX_CUDA_SM_90A` in place of `-arch=native` adds the kernels that it alone can run (cuda/hopper.cuh). Files that
//   are compiled apart, kernels by nvcc, the rest by a C compiler: GALAXY_CUDA_IMPLEMENTATION compiles the kernels
//   alone (`nvcc -x cu -DGALAXY_CUDA_IMPLEMENTATION -c galaxy_cuda.cuh`), and galaxy.h declares to C what programs need
//   (cuda/cuda.h):
//     GxContext g = GX_ZERO;
//     g.device = gx_device_cuda();
//     GX_TRY(gx_device_open(&g));        // then arenas (ops/memory.h), and operations as on any device
//   Any header can also be included by itself.
//
// WHAT IT NEEDS
//   CUDA 12 or newer with cuBLASLt, and NCCL's header (the library is loaded where ranks ask for it, comm/nccl.h); a
//   card of sm_80 or newer (bf16). A context runs on the card of its rank: rank number on the machine modulo cards.
//   CUDA's current card is a property of the host's thread, so a context is used by the thread that opened it.
//
// WHAT IT DOES NOT DO
//   An operation allocates nothing, waits for nothing and adds no floats atomically: it puts kernels on the context's
//   stream, and the same input gives the same bits. The host hears of errors when it waits (gx_to_host,
//   gx_device_wait).
//
// NUMERICS
//   As ops/ says: fp32 or bf16 activations and weights, fp32 sums (fp64 over all elements), rounded once. TF32 in
//   matrix products where the context asks for it; attention in fp32 multiplies three times in TF32 what makes fp32. No
//   fast-math; exp2 of attention and a division of GELU are the card's own instructions.
//
// THE FILES: galaxy/cuda has the files of galaxy/cpu, with the same functions in the same order; kernel.cuh and mma.cuh
// hold the words they are written with, attention_mma.cuh attention in tensor cores, cuda.cuh the table.
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
