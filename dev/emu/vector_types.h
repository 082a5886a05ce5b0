// vector_types.h: dim3, float4 and their kin, laid out and aligned as CUDA's.
#ifndef GX_EMU_VECTOR_TYPES_H
#define GX_EMU_VECTOR_TYPES_H

#define GX_EMU_VECTORS(type, name, align2, align4)                                                                     \
    struct name##1 { type x; };                                                                                        \
    struct alignas(align2) name##2 { type x, y; };                                                                     \
    struct name##3 { type x, y, z; };                                                                                  \
    struct alignas(align4) name##4 { type x, y, z, w; };                                                               \
    constexpr name##1 make_##name##1(type x) { return {x}; }                                                           \
    constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }                                                \
    constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                     \
    constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

GX_EMU_VECTORS(signed char, char, 2, 4)
GX_EMU_VECTORS(unsigned char, uchar, 2, 4)
GX_EMU_VECTORS(short, short, 4, 8)
GX_EMU_VECTORS(unsigned short, ushort, 4, 8)
GX_EMU_VECTORS(int, int, 8, 16)
GX_EMU_VECTORS(unsigned int, uint, 8, 16)
GX_EMU_VECTORS(long long, longlong, 16, 16)
GX_EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
GX_EMU_VECTORS(float, float, 8, 16)
GX_EMU_VECTORS(double, double, 16, 16)
#undef GX_EMU_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#endif
