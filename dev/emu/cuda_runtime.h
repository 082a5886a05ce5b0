// cuda_runtime.h: stands in for the CUDA toolkit's when CUDA sources are compiled by g++ for the CPU. docs/emulator.md
// is the manual.
//
//     g++ -x c++ -std=c++20 -DGX_EMU -Idev/emu file.cu -lpthread
//
//     // kernel<<<grid, block, shared_bytes, stream>>>(args...)
//     GX_LAUNCH(kernel, grid, block, shared_bytes, stream, args...);
//     GX_LAUNCH((kernel<float, 4>), ...);                                // a template's instance in parentheses
#ifndef GX_EMU_CUDA_RUNTIME_H
#define GX_EMU_CUDA_RUNTIME_H
#if !defined(__cplusplus) || __cplusplus < 202002L
#error "the emulator is C++20: compile with g++ -x c++ -std=c++20"
#endif
#include "atomics.h"
#include "device.h"
#include "memory.h"
#include "graph.h"
#include "launches.h"
#include "stream.h"
#include "visibility.h"
#include <tuple>

namespace emu
{

// A card cannot read pageable host memory.
template <class T> void check_parameter(const char *kernel, int number, T value)
{
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
        std::lock_guard held(device_lock);
        if (value && spot_of(value).where == Where::pageable)
            fatal("kernel %s: parameter %d points at pageable host memory (%p)", kernel, number, (const void *)value);
    }
}

// Arguments are converted to the kernel's parameters and copied now, as a launch does.
template <class... P, class... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 threads, size_t shared_bytes, cudaStream_t stream,
            A &&...args)
{
    static_assert((std::is_trivially_copyable_v<std::remove_reference_t<P>> && ...),
                  "a kernel's parameters are copied byte by byte");
    static_assert((!std::is_reference_v<P> && ...), "a kernel's parameters are values");
    if (cudaError_t e = check_launch((const void *)kernel, grid, threads, shared_bytes)) return (void)result(e);
    note_launch((const void *)kernel, threads, shared_bytes);
    std::tuple<P...> copies(std::forward<A>(args)...);
    std::apply([&, number = 0](auto... p) mutable { (check_parameter(name, ++number, p), ...); }, copies);
    std::string bytes = bytes_of(kernel);
    std::apply([&](auto... p) { ((bytes += bytes_of(p)), ...); }, copies);
    enqueue_kernel(stream, (const void *)kernel,
                   Launch{name, grid, threads, shared_bytes, [kernel, copies] { std::apply(kernel, copies); }, bytes});
}

} // namespace emu

#define GX_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    emu::launch(#kernel, kernel, grid, block, shared_bytes, stream __VA_OPT__(, ) __VA_ARGS__)

#endif
