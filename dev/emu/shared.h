// shared.h: shared memory of the block that runs: an arena with a red zone around every variable, filled with NaN
// before every block.
//
//     GX_SHARED(float, tile, [32][33]);       // __shared__ float tile[32][33]
//     GX_DYNAMIC_SHARED(float, row);          // extern __shared__ float row[]
//
// Under AddressSanitizer the zones are poisoned; without it a write into them is found when the block ends.
#ifndef GX_EMU_SHARED_H
#define GX_EMU_SHARED_H
#include "block.h"

#define GX_SHARED(type, name, dims)                                                                                    \
    typedef type name##_shared_type dims;                                                                              \
    static char name##_shared_key;                                                                                     \
    name##_shared_type &name = *(name##_shared_type *)emu::shared_variable(                                            \
        &name##_shared_key, #name, sizeof(name##_shared_type), alignof(name##_shared_type))
#define GX_DYNAMIC_SHARED(type, name) type *name = (type *)emu::shared.dynamic

namespace emu
{

constexpr size_t shared_without_opt_in = 48 << 10, shared_reserved = 1 << 10; // bytes
inline size_t shared_opt_in() // an A100's, or an H100's where it plays one (device.h)
{
    const int usual = environment("GX_EMU_CAPABILITY", "8.0") == "9.0" ? 227 : 163;
    return (size_t)environment_number("GX_EMU_SHARED", usual, 48, 1024) << 10;
}

constexpr size_t shared_zone = 64, shared_alignment = 1024; // bytes; swizzled tiles want 1024
constexpr size_t shared_capacity = 512 << 10; // so that zones and alignment never decide whether a kernel fits

struct SharedVariable {
    const void *key;
    const char *name;
    unsigned char *begin;
    size_t bytes;
};

struct Shared {
    unsigned char *base = nullptr;
    size_t used = 0;                        // with zones
    size_t declared = 0, dynamic_bytes = 0; // without
    void *dynamic = nullptr;
    std::vector<SharedVariable> variables;
};
inline Shared shared;

constexpr unsigned char fresh_byte = 0xff; // NaN in every float type
constexpr unsigned char zone_byte = 0xfb;  // around memory: whoever changes it went out of bounds

inline void *shared_take(const void *key, const char *name, size_t bytes, size_t alignment)
{
    size_t begin = (shared.used + shared_zone + alignment - 1) / alignment * alignment, end = begin + bytes;
    if (end + shared_zone > shared_capacity) kernel_fails("shared memory: no room for %zu bytes of %s", bytes, name);
    unpoison(shared.base + shared.used, end + shared_zone - shared.used);
    memset(shared.base + shared.used, zone_byte, begin - shared.used);
    memset(shared.base + begin, fresh_byte, bytes);
    memset(shared.base + end, zone_byte, shared_zone);
    poison(shared.base + shared.used, begin - shared.used);
    poison(shared.base + end, shared_zone);
    shared.used = end;
    shared.variables.push_back({key, name, shared.base + begin, bytes});
    return shared.base + begin;
}

// The first thread of a block that comes to a variable makes room for it.
inline void *shared_variable(const void *key, const char *name, size_t bytes, size_t alignment)
{
    Hidden hidden;
    for (const SharedVariable &v : shared.variables)
        if (v.key == key) return v.begin;
    shared.declared += bytes;
    if (shared.declared > shared_without_opt_in)
        kernel_fails("%zu bytes of shared memory are declared; there may be %zu", shared.declared,
                     shared_without_opt_in);
    // A kernel has asked for more where its dynamic memory alone is more.
    const size_t both = shared.dynamic_bytes > shared_without_opt_in ? shared_opt_in() : shared_without_opt_in;
    if (shared.declared + shared.dynamic_bytes > both)
        kernel_fails("%zu bytes of declared and %zu of dynamic shared memory; a block has %zu", shared.declared,
                     shared.dynamic_bytes, both);
    return shared_take(key, name, bytes, std::max<size_t>(alignment, 16));
}

// With MAP_FIXED, new pages in the place of the old: ThreadSanitizer forgets who used the addresses in the block
// before.
inline void shared_memory_map(size_t bytes, int flags)
{
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    shared.base = (unsigned char *)mmap(shared.base, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (shared.base == MAP_FAILED) fatal("no memory for the shared memory of a block");
}

inline void shared_memory_begin(size_t dynamic_bytes)
{
    if (!shared.base) shared_memory_map(shared_capacity, 0);
    else if (watches_races && shared.used) shared_memory_map(shared.used, MAP_FIXED);
    poison(shared.base, shared_capacity);
    shared.used = shared.declared = 0;
    shared.dynamic_bytes = dynamic_bytes;
    shared.variables.clear();
    shared.dynamic =
        dynamic_bytes ? shared_take(&shared, "dynamic shared memory", dynamic_bytes, shared_alignment) : nullptr;
}

inline void check_zone(const SharedVariable &v, const unsigned char *begin, const unsigned char *end)
{
    for (const unsigned char *p = begin; p < end; p++)
        if (*p != zone_byte)
            kernel_fails("shared memory was written %zd bytes from the beginning of %s, which has %zu", p - v.begin,
                         v.name, v.bytes);
}

inline void shared_memory_end()
{
    unpoison(shared.base, shared_capacity);
    const unsigned char *before = shared.base;
    for (const SharedVariable &v : shared.variables) {
        check_zone(v, before, v.begin);
        check_zone(v, v.begin + v.bytes, v.begin + v.bytes + shared_zone);
        before = v.begin + v.bytes;
    }
}

// The offset that PTX instructions take as a shared address.
inline unsigned shared_address(const void *p)
{
    size_t offset = (size_t)((const unsigned char *)p - shared.base);
    if (offset >= shared_capacity) kernel_fails("%p is no address in shared memory", p);
    return (unsigned)offset;
}

} // namespace emu
#endif
