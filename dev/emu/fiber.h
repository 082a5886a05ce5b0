// fiber.h: functions on stacks of their own that give way to each other by name: what a block's threads run on.
//
//     Fiber a; fiber_open(&a, body, 0); ... fiber_switch(&host, &a);      // comes back when somebody switches to host
//
// A body never returns. It calls fiber_begin() first, and knows no thread-local variables across a switch: a fiber may
// be resumed by another host thread than the one that left it. AddressSanitizer is told about every change of stack,
// ThreadSanitizer sees each fiber as a thread.
#ifndef GX_EMU_FIBER_H
#define GX_EMU_FIBER_H
#include "report.h"
#include <cstdint>
#include <sys/mman.h>
#if defined(__SANITIZE_ADDRESS__)
#define GX_EMU_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__) // VARIANT=banks undefines it
#define GX_EMU_TSAN 1
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *object);
void __tsan_release(void *object);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}
#endif
#if !defined(__x86_64__) && !defined(GX_EMU_UCONTEXT)
#define GX_EMU_UCONTEXT 1
#endif
#ifdef GX_EMU_UCONTEXT
#include <ucontext.h>
#endif

namespace emu
{

// ---- what sanitizers are told --------------------------------------------------------------------------------------
inline void poison([[maybe_unused]] const void *p, [[maybe_unused]] size_t bytes)
{
#ifdef GX_EMU_ASAN
    ASAN_POISON_MEMORY_REGION(p, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void *p, [[maybe_unused]] size_t bytes)
{
#ifdef GX_EMU_ASAN
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
#endif
}

#ifdef GX_EMU_TSAN
constexpr bool watches_races = true;
inline void acquire_order(void *object) { __tsan_acquire(object); }
inline void release_order(void *object) { __tsan_release(object); }
inline void masked_begin()
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void masked_end() { AnnotateIgnoreWritesEnd(__FILE__, __LINE__), AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
#else
constexpr bool watches_races = false;
inline void acquire_order(void *) {}
inline void release_order(void *) {}
inline void masked_begin() {}
inline void masked_end() {}
#endif

// The emulator's own state is not the kernel's: accesses in the life of a Hidden are no part of any race.
struct Hidden {
    Hidden() { masked_begin(); }
    ~Hidden() { masked_end(); }
    Hidden(const Hidden &) = delete;
};

// ---- contexts ------------------------------------------------------------------------------------------------------
struct Fiber {
#ifdef GX_EMU_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer = nullptr;
#endif
    const void *stack = nullptr; // of a host thread: known once it was left
    size_t stack_bytes = 0;
    void *fake_stack = nullptr; // ASan's, for locals that are watched after their scope
    void *tsan = nullptr;
};

inline Fiber *fiber_left = nullptr; // where the running switch came from

#ifdef GX_EMU_UCONTEXT
inline void fiber_jump(Fiber *from, Fiber *to) { swapcontext(&from->context, &to->context); }
inline void fiber_prepare(Fiber *f, char *stack, size_t bytes, void (*body)())
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = bytes;
    f->context.uc_link = nullptr;
    makecontext(&f->context, body, 0);
}
#else
// The callee-saved registers of the System V ABI. `noipa`: otherwise -fipa-ra sees that the caller-saved ones are not
// touched here and keeps values in them across the switch.
__attribute__((naked, noinline, noipa, no_sanitize("thread", "address"))) inline void
fiber_exchange([[maybe_unused]] void **save, [[maybe_unused]] void *load)
{
    asm volatile("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
                 "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
                 "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
inline void fiber_jump(Fiber *from, Fiber *to) { fiber_exchange(&from->stack_pointer, to->stack_pointer); }
inline void fiber_prepare(Fiber *f, char *stack, size_t bytes, void (*body)())
{
    void **top = (void **)(((uintptr_t)stack + bytes) & ~(uintptr_t)15);
    *--top = nullptr; // a return address that is never used: at a function's entry the stack is 8 mod 16
    *--top = (void *)body;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    f->stack_pointer = top;
}
#endif

inline void fiber_arrive([[maybe_unused]] void *fake_stack)
{
#ifdef GX_EMU_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, &fiber_left->stack, &fiber_left->stack_bytes);
#endif
}

inline void fiber_switch(Fiber *from, Fiber *to)
{
    fiber_left = from;
#ifdef GX_EMU_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#ifdef GX_EMU_TSAN
    __tsan_switch_to_fiber(to->tsan, 1); // 1: the switch itself orders nothing
#endif
    fiber_jump(from, to);
    fiber_arrive(from->fake_stack);
}

inline void fiber_begin() { fiber_arrive(nullptr); } // the first thing that a body does

// The fiber that stands for the caller's own stack.
inline void fiber_of_host([[maybe_unused]] Fiber *f)
{
#ifdef GX_EMU_TSAN
    f->tsan = __tsan_get_current_fiber();
#endif
}

// No local array of a kernel reaches across it. With a stack it is an odd number of pages: at a distance of a power of
// two all stacks, wherever in a page their tops are, would fight for the same sets of the second cache.
constexpr size_t fiber_guard_bytes = (1 << 20) + 4096;

inline size_t fiber_stack_bytes()
{
#if defined(GX_EMU_ASAN) || defined(GX_EMU_TSAN)
    const int64_t usual = 262144; // red zones around locals, and no overlap of their lives
#else
    const int64_t usual = 65536;
#endif
    static const size_t bytes =
        ((size_t)environment_number("GX_EMU_STACK", usual, 4096, 1 << 30) + 4095) & ~(size_t)4095;
    return bytes;
}

// `number`: the tops of stacks are spread over a page's cache lines; at equal offsets all of them would fight for the
// same sets of the cache.
inline void fiber_open(Fiber *f, void (*body)(), unsigned number)
{
    const size_t bytes = fiber_stack_bytes();
    char *memory = (char *)mmap(nullptr, fiber_guard_bytes + bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fatal("no memory for the stack of a thread (%zu bytes)", bytes);
    mprotect(memory, fiber_guard_bytes, PROT_NONE); // a stack that overflows faults
    f->stack = memory + fiber_guard_bytes;
    f->stack_bytes = bytes;
    fiber_prepare(f, memory + fiber_guard_bytes, bytes - number % 21 * 192, body);
#ifdef GX_EMU_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
}

} // namespace emu
#endif
