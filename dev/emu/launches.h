// launches.h: what kernels ask for at their launches: threads of a block, and dynamic shared memory.
//
// With GX_EMU_LAUNCHES=FILE a line for each kernel is added to FILE when the program ends: program, address of the
// kernel as nm has it, threads, bytes; of its launches the one with the most bytes, and the most threads among these.
// dev/cuda/launches.sh reads them.
#ifndef GX_EMU_LAUNCHES_H
#define GX_EMU_LAUNCHES_H
#include "report.h"
#include "vector_types.h"
#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace emu
{

struct Launches {
    std::mutex lock;
    std::map<const void *, std::pair<size_t, size_t>> of; // kernel: bytes, threads
};
inline Launches launches;

inline void report_launches()
{
    FILE *f = open_report("GX_EMU_LAUNCHES");
    if (!f) return;
    for (const auto &[kernel, most] : launches.of)
        fprintf(f, "%s\t%zx\t%zu\t%zu\n", program_file().c_str(), (size_t)address_in_program(kernel), most.second,
                most.first);
    close_report(f, "GX_EMU_LAUNCHES");
}

inline void note_launch(const void *kernel, dim3 threads, size_t bytes)
{
    if (environment("GX_EMU_LAUNCHES", "").empty()) return;
    std::lock_guard held(launches.lock);
    if (launches.of.empty()) atexit(report_launches);
    const std::pair<size_t, size_t> now(bytes, (size_t)threads.x * threads.y * threads.z);
    std::pair<size_t, size_t> &most = launches.of[kernel];
    most = std::max(most, now);
}

} // namespace emu
#endif
