// test_emu.h: what the emulator's two test sources share: buffers on the device, ranks as threads.
#ifndef GX_TEST_EMU_H
#define GX_TEST_EMU_H
#include "cublasLt.h"
#include "nccl.h"
#include <atomic>
#include <thread>

int run_bug(const char *name, bool bug); // test_emu_bugs.cu

template <class T> struct Buffer { // on the device
    T *data = nullptr;
    size_t n;
    explicit Buffer(size_t n_) : n(n_) { cudaMalloc(&data, n * sizeof(T)); }
    explicit Buffer(const std::vector<T> &values) : Buffer(values.size())
    {
        cudaMemcpy(data, values.data(), n * sizeof(T), cudaMemcpyHostToDevice);
        cudaDeviceSynchronize(); // for streams that do not wait for the default stream
    }
    Buffer(const Buffer &) = delete;
    ~Buffer() { cudaFree(data); }
    std::vector<T> download() const // in the default stream's order
    {
        std::vector<T> values(n);
        cudaMemcpy(values.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost);
        return values;
    }
};

inline std::vector<float> counting(int n)
{
    std::vector<float> v((size_t)n);
    for (int i = 0; i < n; i++) v[(size_t)i] = (float)i;
    return v;
}

struct Rank {
    int rank, ranks;
    ncclComm_t comm;
    cudaStream_t stream;
};

// f on `ranks` threads, each with a communicator and a stream that does not wait for the default one.
template <class F> void with_ranks(int ranks, F f)
{
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; rank++)
        threads.emplace_back([=, &f] {
            Rank r = {rank, ranks, nullptr, nullptr};
            ncclCommInitRank(&r.comm, ranks, id, rank);
            cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking);
            f(r);
            if (r.comm) ncclCommDestroy(r.comm);
            cudaStreamDestroy(r.stream);
        });
    for (std::thread &t : threads) t.join();
}

#endif
