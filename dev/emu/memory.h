// memory.h: device memory, pinned memory, and what a pointer points at.
//
// Every cudaMalloc is a mapping of its own between two guard pages. It ends flush with the upper one, up to CUDA's
// alignment of 256 bytes; the bytes of slack hold a pattern that is checked when the memory is freed (and are poisoned
// under AddressSanitizer). Fresh memory is NaN. Freed mappings stay reserved for a while, so that a late use faults
// too.
//
// Host code has no business in device memory: it is mapped without access and opened only while queued work runs
// (queue.h).
#ifndef GX_EMU_MEMORY_H
#define GX_EMU_MEMORY_H
#include "device.h"
#include <condition_variable>
#include <csignal>
#include <deque>
#include <sys/ucontext.h>

namespace emu
{

// Held by whoever looks at or changes the device's state: its memory, its queues; and for as long as queued work runs.
inline std::mutex device_lock;
inline std::condition_variable device_changed; // something was enqueued or has run
inline unsigned long long device_changes = 0;

inline void tell_change()
{
    device_changes++;
    device_changed.notify_all();
}

constexpr size_t page_bytes = 4096, device_alignment = 256, quarantined_max = 256;

struct Allocation {
    unsigned char *map, *begin; // of the guard page before it; of the user's bytes
    size_t map_bytes, bytes;
    bool freed;
    int card;
    unsigned char *inner() const { return map + page_bytes; } // between the guard pages
    size_t inner_bytes() const { return map_bytes - 2 * page_bytes; }
};

struct Range {
    size_t bytes;
    bool device; // a __device__ or __constant__ variable; else pinned
};

struct Memory {
    std::map<const unsigned char *, Allocation> device; // by the beginning of the mapping; freed ones too
    std::map<const unsigned char *, Range> registered;  // pinned memory, symbols
    std::deque<const unsigned char *> quarantine;       // oldest first
    std::map<int, size_t> used;                         // by card
    bool open = false;                                  // device memory may be accessed
    int open_card = -1;                                 // of this card alone; -1: of all
};
inline Memory memory;

template <class Map> auto *find_around(Map &map, const void *p)
{
    auto after = map.upper_bound((const unsigned char *)p);
    return after == map.begin() ? nullptr : &*std::prev(after);
}

inline const Allocation *find_mapping(const void *p) // guard pages included
{
    auto *entry = find_around(memory.device, p);
    if (!entry || (const unsigned char *)p >= entry->second.map + entry->second.map_bytes) return nullptr;
    return &entry->second;
}

enum class Where { pageable, pinned, device };
struct Spot {
    Where where = Where::pageable;
    size_t left = SIZE_MAX; // bytes from the pointer to the end of what it points into
    int card = 0;           // of device memory
};
inline Spot spot_of(const void *p)
{
    const unsigned char *c = (const unsigned char *)p;
    if (const Allocation *a = find_mapping(p)) {
        bool inside = !a->freed && c >= a->begin && c <= a->begin + a->bytes;
        return {Where::device, inside ? (size_t)(a->begin + a->bytes - c) : 0, a->card};
    }
    auto *entry = find_around(memory.registered, p);
    if (!entry || c > entry->first + entry->second.bytes) return {};
    return {entry->second.device ? Where::device : Where::pinned, (size_t)(entry->first + entry->second.bytes - c),
            current_card};
}

// ---- faults --------------------------------------------------------------------------------------------------------
inline Line text_of_address(const Allocation &a, const unsigned char *p)
{
    Line line;
    if (p < a.begin) line.add("%zd bytes before", a.begin - p);
    else if (p < a.begin + a.bytes) line.add("%zd bytes into", p - a.begin);
    else line.add("%zd bytes past the end of", p - a.begin - (ssize_t)a.bytes);
    line.add(" an allocation of %zu%s", a.bytes, a.freed ? " that was freed" : "");
    return cards() > 1 ? line.add(" on card %d", a.card) : line;
}

inline bool visibility_opens(const Allocation &a, unsigned char *p); // visibility.h

inline struct sigaction fault_otherwise; // whoever handled faults before: a sanitizer, the system

inline const char *kind_of_access([[maybe_unused]] void *context)
{
#ifdef __x86_64__
    return ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2 ? "wrote"
                                                                   : "read"; // bit 1 of the page fault's error code
#else
    return "touched";
#endif
}

inline void fault(int signal, siginfo_t *info, void *context)
{
    unsigned char *p = (unsigned char *)info->si_addr;
    const char *access = kind_of_access(context);
    bool in_kernel = block.launch && block.current && block.runs_on == std::this_thread::get_id();
    if (const Allocation *a = find_mapping(p)) {
        if (in_kernel && visibility_opens(*a, p)) return;
        Line address = text_of_address(*a, p);
        if (in_kernel)
            fatal("%s: %s device memory at %p, %s", where_am_i().c_str(), access, (const void *)p, address.c_str());
        if (memory.open)
            fatal("an operation of a stream %s device memory at %p, %s", access, (const void *)p, address.c_str());
        fatal("host code %s device memory at %p, %s", access, (const void *)p, address.c_str());
    }
    if (in_kernel) {
        const unsigned char *stack = (const unsigned char *)self().fiber->stack;
        if (p < stack && p >= stack - fiber_guard_bytes)
            fatal("%s: its stack of %zu bytes is full; GX_EMU_STACK=BYTES gives more", where_am_i().c_str(),
                  self().fiber->stack_bytes);
        say("%s: %s at %p, which is no memory", where_am_i().c_str(), access, (const void *)p);
    }
    sigaction(signal, &fault_otherwise, nullptr); // on return the access faults again, now there
}

// A handler needs a stack of its own: that of the fiber may be the one that is full.
inline void catch_faults()
{
    static const bool once = [] {
        struct sigaction action = {};
        action.sa_sigaction = fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, &fault_otherwise);
        return true;
    }();
    thread_local const bool stack = [] {
        stack_t now, mine = {};
        if (sigaltstack(nullptr, &now) == 0 && !(now.ss_flags & SS_DISABLE)) return true;
        static thread_local char bytes[32 << 10];
        mine.ss_sp = bytes;
        mine.ss_size = sizeof bytes;
        return sigaltstack(&mine, nullptr) == 0;
    }();
    (void)once, (void)stack;
}

// ---- access --------------------------------------------------------------------------------------------------------
inline void set_access(bool open, int card = -1)
{
    if (memory.open == open && memory.open_card == card) return;
    for (auto &[map, a] : memory.device) {
        const bool opens = open && (card < 0 || card == a.card);
        if (!a.freed) mprotect(a.inner(), a.inner_bytes(), opens ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
    memory.open = open;
    memory.open_card = card;
}

// ---- taking and giving back ----------------------------------------------------------------------------------------
inline void *device_take(size_t bytes)
{
    size_t rounded = (bytes + device_alignment - 1) / device_alignment * device_alignment;
    size_t inner = (rounded + page_bytes - 1) / page_bytes * page_bytes;
    if (memory.used[current_card] + rounded > device_memory()) return nullptr;
    void *map = mmap(nullptr, inner + 2 * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return nullptr;
    Allocation a = {(unsigned char *)map, nullptr, inner + 2 * page_bytes, bytes, false, current_card};
    a.begin = a.inner() + inner - rounded;
    mprotect(a.inner(), inner, PROT_READ | PROT_WRITE);
    memset(a.inner(), zone_byte, inner);
    memset(a.begin, fresh_byte, bytes);
    poison(a.map, a.map_bytes);
    unpoison(a.begin, bytes);
    if (!memory.open) mprotect(a.inner(), inner, PROT_NONE);
    memory.device[a.map] = a;
    memory.used[current_card] += rounded;
    return a.begin;
}

inline void check_slack(const Allocation &a)
{
    if (!memory.open) mprotect(a.inner(), a.inner_bytes(), PROT_READ);
    unpoison(a.inner(), a.inner_bytes());
    for (const unsigned char *p = a.inner(); p < a.inner() + a.inner_bytes(); p++) {
        if (p == a.begin) p += a.bytes;
        if (p < a.inner() + a.inner_bytes() && *p != zone_byte)
            fatal("device memory was written %s", text_of_address(a, p).c_str());
    }
}

inline void forget_oldest()
{
    auto oldest = memory.device.find(memory.quarantine.front());
    memory.quarantine.pop_front();
    unpoison(oldest->second.map, oldest->second.map_bytes);
    munmap(oldest->second.map, oldest->second.map_bytes);
    memory.device.erase(oldest);
}

inline bool device_give_back(void *p)
{
    auto *entry = find_around(memory.device, p);
    if (!entry || entry->second.begin != p || entry->second.freed) return false;
    Allocation &a = entry->second;
    check_slack(a);
    a.freed = true;
    memory.used[a.card] -= (a.bytes + device_alignment - 1) / device_alignment * device_alignment;
    mmap(a.map, a.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0); // the pages go, the addresses stay
    poison(a.map, a.map_bytes);
    memory.quarantine.push_back(a.map);
    if (memory.quarantine.size() > quarantined_max) forget_oldest();
    return true;
}

// queue.h: all that this host thread has enqueued; what waits for it inside the driver (GX_EMU_DRIVER)
inline void synchronize_mine(std::unique_lock<std::mutex> &held);
inline void wait_in_driver(const std::string &why);
inline bool is_capturing(); // this host thread, a stream

} // namespace emu

// ---- the interface -------------------------------------------------------------------------------------------------
#define cudaHostAllocDefault  0x00u
#define cudaHostAllocPortable 0x01u
#define cudaHostAllocMapped   0x02u

enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

inline cudaError_t cudaMalloc(void **p, size_t bytes)
{
    std::lock_guard held(emu::device_lock);
    emu::catch_faults();
    if (emu::is_capturing()) return *p = nullptr, emu::result(cudaErrorStreamCaptureUnsupported);
    emu::wait_in_driver("cudaMalloc");
    *p = bytes ? emu::device_take(bytes) : nullptr;
    return emu::result(bytes && !*p ? cudaErrorMemoryAllocation : cudaSuccess);
}
template <class T> cudaError_t cudaMalloc(T **p, size_t bytes) { return cudaMalloc((void **)p, bytes); }

inline cudaError_t cudaFree(void *p) // waits for what the caller has enqueued, as the driver does
{
    if (!p) return cudaSuccess;
    std::unique_lock held(emu::device_lock);
    emu::wait_in_driver("cudaFree");
    emu::synchronize_mine(held);
    return emu::result(emu::device_give_back(p) ? cudaSuccess : cudaErrorInvalidValue);
}

inline cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    std::lock_guard held(emu::device_lock);
    if (!p || !bytes) return emu::result(cudaErrorInvalidValue);
    if (emu::spot_of(p).where != emu::Where::pageable) return emu::result(cudaErrorHostMemoryAlreadyRegistered);
    emu::wait_in_driver("pinned memory");
    emu::memory.registered[(unsigned char *)p] = {bytes, false};
    return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(void *p)
{
    std::unique_lock held(emu::device_lock);
    emu::synchronize_mine(held);
    return emu::result(emu::memory.registered.erase((unsigned char *)p) ? cudaSuccess
                                                                        : cudaErrorHostMemoryNotRegistered);
}

inline cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    *p = bytes ? aligned_alloc(emu::page_bytes, (bytes + emu::page_bytes - 1) / emu::page_bytes * emu::page_bytes)
               : nullptr;
    if (!bytes) return cudaSuccess;
    if (!*p) return emu::result(cudaErrorMemoryAllocation);
    memset(*p, emu::fresh_byte, bytes);
    return cudaHostRegister(*p, bytes, flags);
}
template <class T> cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags)
{
    return cudaHostAlloc((void **)p, bytes, flags);
}
template <class T> cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned flags = 0)
{
    return cudaHostAlloc((void **)p, bytes, flags);
}

inline cudaError_t cudaFreeHost(void *p)
{
    if (!p) return cudaSuccess;
    if (cudaError_t e = cudaHostUnregister(p)) return e;
    return free(p), cudaSuccess;
}

template <class T> cudaError_t cudaHostGetDevicePointer(T **device, void *host, unsigned)
{
    return *device = (T *)host, cudaSuccess;
}

inline cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    std::lock_guard held(emu::device_lock);
    *total = emu::device_memory();
    *free_bytes = emu::device_memory() - emu::memory.used[emu::current_card];
    return cudaSuccess;
}

inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p)
{
    std::lock_guard held(emu::device_lock);
    emu::Where where = emu::spot_of(p).where;
    *a = {};
    a->type = where == emu::Where::device   ? cudaMemoryTypeDevice
              : where == emu::Where::pinned ? cudaMemoryTypeHost
                                            : cudaMemoryTypeUnregistered;
    a->device = emu::spot_of(p).card;
    a->devicePointer = where == emu::Where::pageable ? nullptr : (void *)p;
    a->hostPointer = where == emu::Where::device ? nullptr : (void *)p;
    return cudaSuccess;
}

// __device__ and __constant__ variables are host variables here; their addresses become device addresses when they are
// asked for.
template <class T> cudaError_t cudaGetSymbolAddress(void **p, T &symbol)
{
    std::lock_guard held(emu::device_lock);
    emu::memory.registered[(unsigned char *)&symbol] = {sizeof symbol, true};
    return *p = &symbol, cudaSuccess;
}

#endif
