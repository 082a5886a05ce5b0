// atomics.h: atomicAdd and its kin, for the types that CUDA has them for (a type that nvcc refuses is refused).
//
// They order memory, which CUDA's do not: a missing __threadfence before or behind one is found by GX_EMU_FENCES=late
// (visibility.h).
#ifndef GX_EMU_ATOMICS_H
#define GX_EMU_ATOMICS_H
#include "words.h"

namespace emu
{

template <class T, class... Types>
concept OneOf = (std::same_as<T, Types> || ...);
using ull = unsigned long long;
template <class T>
concept Added = OneOf<T, int, unsigned, ull, float, double>;
template <class T>
concept Compared = OneOf<T, int, unsigned, ull, long long>;
template <class T>
concept Exchanged = OneOf<T, int, unsigned, ull, float>;
template <class T>
concept Swapped = OneOf<T, int, unsigned, ull, unsigned short>;
template <class T>
concept Combined = OneOf<T, int, unsigned, ull>;

// A float is exchanged as its bits: a NaN equals itself then.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 2, unsigned short, std::conditional_t<sizeof(T) == 4, unsigned, ull>>;

template <class T, class Op> __forceinline__ T atomic_update(T *p, Op op)
{
    if ((uintptr_t)p % sizeof(T)) kernel_fails("atomic at %p: misaligned", (void *)p);
    visibility_before_atomic(p, sizeof(T));
    Bits<T> old = __atomic_load_n((Bits<T> *)p, __ATOMIC_ACQUIRE), changed;
    do changed = __builtin_bit_cast(Bits<T>, op(__builtin_bit_cast(T, old)));
    while (!__atomic_compare_exchange_n((Bits<T> *)p, &old, changed, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    visibility_after_atomic(p, sizeof(T));
    return __builtin_bit_cast(T, old);
}

} // namespace emu

#define GX_EMU_ATOMIC(name, concept_, expression)                                                                      \
    template <emu::concept_ T> __forceinline__ T name(T *p, std::type_identity_t<T> v)                                 \
    {                                                                                                                  \
        return emu::atomic_update(p, [v]([[maybe_unused]] T old) { return (T)(expression); });                         \
    }
GX_EMU_ATOMIC(atomicAdd, Added, old + v)
GX_EMU_ATOMIC(atomicSub, Combined, old - v)
GX_EMU_ATOMIC(atomicMax, Compared, old < v ? v : old)
GX_EMU_ATOMIC(atomicMin, Compared, v < old ? v : old)
GX_EMU_ATOMIC(atomicExch, Exchanged, v)
GX_EMU_ATOMIC(atomicAnd, Combined, old &v)
GX_EMU_ATOMIC(atomicOr, Combined, old | v)
GX_EMU_ATOMIC(atomicXor, Combined, old ^ v)
#undef GX_EMU_ATOMIC

inline unsigned atomicInc(unsigned *p, unsigned last)
{
    return emu::atomic_update(p, [last](unsigned old) { return old >= last ? 0 : old + 1; });
}
inline unsigned atomicDec(unsigned *p, unsigned last)
{
    return emu::atomic_update(p, [last](unsigned old) { return old == 0 || old > last ? last : old - 1; });
}
template <emu::Swapped T> T atomicCAS(T *p, std::type_identity_t<T> expected, std::type_identity_t<T> v)
{
    return emu::atomic_update(p, [expected, v](T old) { return old == expected ? v : old; });
}

#endif
