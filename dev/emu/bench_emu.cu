// bench_emu.cu: what the emulator costs, in time of the CPU. The figures stand in docs/emulator.md.
//
//     g++ -x c++ -std=c++20 -O2 -DGX_EMU -Idev/emu dev/emu/bench_emu.cu -o build/bench_emu -lpthread && build/bench_emu
#include "cp_async.h"
#include "cublasLt.h"
#include "wgmma.h"

static double now() // other work on the machine does not count
{
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

constexpr int ROUNDS = 16;
__global__ void store(float *y) { y[threadIdx.x] = 1; }
__global__ void barriers(float *y)
{
    for (int i = 0; i < ROUNDS; i++) __syncthreads();
    y[threadIdx.x] = 1;
}
__global__ void shuffles(float *y)
{
    float v = (float)threadIdx.x;
    for (int i = 0; i < ROUNDS; i++) v += __shfl_xor_sync(0xffffffffu, v, 1 << i % 5);
    y[threadIdx.x] = v;
}

// The median of several runs, in seconds.
template <class F> static double seconds(F f)
{
    std::vector<double> times;
    for (int i = 0; i < 7; i++) {
        double begin = now();
        f();
        times.push_back(now() - begin);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static double of_kernel(void (*kernel)(float *), int blocks, int threads, float *y)
{
    return seconds([=] {
        GX_LAUNCH(kernel, blocks, threads, 0, 0, y);
        cudaDeviceSynchronize();
    });
}

static double of_product(int n, float *a, float *b, float *d)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, n, n, n);
    const float one = 1, zero = 0;
    double time = seconds([&] {
        cublasLtMatmul(handle, desc, &one, a, layout, b, layout, &zero, d, layout, d, layout, nullptr, nullptr, 0, 0);
        cudaDeviceSynchronize();
    });
    cublasLtMatrixLayoutDestroy(layout), cublasLtMatmulDescDestroy(desc), cublasLtDestroy(handle);
    return time;
}

int main()
{
    const int n = 256, most = 1024, all = 51200; // threads of a block, of a launch
    float *a, *b, *d;
    for (float **p : {&a, &b, &d}) {
        cudaMalloc(p, n * n * sizeof(float));
        cudaMemset(*p, 0, n * n * sizeof(float));
    }
    for (const char *order : {"forward", "reverse", "random:1"}) {
        setenv("GX_EMU_ORDER", order, 1);
        for (int threads : {most / 4, most}) {
            const int blocks = all / threads;
            const double thread = of_kernel(store, blocks, threads, d) / all * 1e9,
                         barrier = of_kernel(barriers, blocks, threads, d) / all / ROUNDS * 1e9,
                         shuffle = of_kernel(shuffles, blocks, threads, d) / all / ROUNDS * 1e9;
            printf("%-9s blocks of %4d: %6.1f ns per thread that never waits, %6.1f per barrier, %6.1f per shuffle\n",
                   order, threads, thread, barrier, shuffle);
        }
    }
    unsetenv("GX_EMU_ORDER");
    printf("%6.1f us per launch of one thread, synchronised\n", of_kernel(store, 1, 1, d) * 1e6);
    double many = seconds([=] {
        for (int i = 0; i < 1000; i++) GX_LAUNCH(store, 1, 1, 0, 0, d);
        cudaDeviceSynchronize();
    });
    printf("%6.1f us per launch of one thread, a thousand in a row\n", many / 1000 * 1e6);
    printf("%6.2f GFLOP/s in a product of 256 x 256 x 256\n", 2.0 * n * n * n / of_product(n, a, b, d) * 1e-9);
    return 0;
}
