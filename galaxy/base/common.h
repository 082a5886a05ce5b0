// base/common.h: what every header of Galaxy uses: version, macros for C and C++, small integer helpers.
//
// Headers are written in the common subset of C11 and C++17. A header always gives its declarations; it gives its
// implementation if GALAXY_IMPLEMENTATION is defined before the include, which exactly one file of a program must do.
// Objects of C and C++ (CUDA) link together.
//
// The implementation needs POSIX (clocks, sockets, mkdtemp), which the system's headers leave out under -std=c11. It
// requests POSIX itself if no system header has been included before it; otherwise compile with -std=gnu11.

// A system header of glibc or musl was included first, and has already left POSIX out (macOS's headers never do). One
// error, and no implementation, which would only add a hundred further errors.
#ifdef GALAXY_IMPLEMENTATION
#if (defined(__GLIBC__) && !defined(__USE_MISC)) ||                                                                    \
    (defined(_FEATURES_H) && !defined(__GLIBC__) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE) &&              \
     !defined(_BSD_SOURCE))
#error "compile this file with -std=gnu11 or -D_GNU_SOURCE, or include galaxy.h before all system headers"
#undef GALAXY_IMPLEMENTATION
#endif
#endif

#ifndef GX_COMMON_H
#define GX_COMMON_H

#if defined(GALAXY_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>

#define GX_VERSION_MAJOR 0
#define GX_VERSION_MINOR 1
#define GX_VERSION_PATCH 0
#define GX_VERSION       "0.1.0"

#ifdef __cplusplus
#define GX_BEGIN extern "C" {
#define GX_END   }
#define GX_ZERO                                                                                                        \
    {                                                                                                                  \
    }
#define GX_RESTRICT __restrict__
#else
#define GX_BEGIN
#define GX_END
#define GX_ZERO                                                                                                        \
    {                                                                                                                  \
        0                                                                                                              \
    }
#define GX_RESTRICT restrict
#endif

// Marks functions that kernels may call, too.
#ifdef __CUDACC__
#define GX_ANYWHERE __host__ __device__
#else
#define GX_ANYWHERE
#endif

#if defined(__GNUC__)
#define GX_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define GX_PRINTF(fmt, first)
#endif

// OpenMP where it is compiled in, nothing (and no warning) where it is not: GX_OMP(parallel for num_threads(n)),
// GX_OMP(simd reduction(+ : s)).
#define GX__PRAGMA(text) _Pragma(#text)
#ifdef _OPENMP
#define GX_OMP(...) GX__PRAGMA(omp __VA_ARGS__)
#else
#define GX_OMP(...)
#endif

GX_BEGIN

enum { GX_PATH = 4096 }; // bytes of a path with its terminating 0: as many as the system accepts

static inline int64_t gx_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t gx_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t gx_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t gx_round_up(int64_t a, int64_t multiple) { return gx_ceil_div(a, multiple) * multiple; }

double gx_seconds(void); // monotonic clock, seconds

// FNV-1a, 64 bits (Fowler, Noll, Vo): detects truncated and corrupted files, but not forged ones.
#define GX_HASH_START UINT64_C(0xcbf29ce484222325)
#define GX_HASH_PRIME UINT64_C(0x100000001b3)
uint64_t gx_hash(uint64_t hash, const void *data, int64_t bytes); // continues from `hash`

// The number of bytes of the UTF-8 character that a text begins with (RFC 3629: no overlong forms, no surrogates,
// nothing above U+10FFFF); 0: the text does not begin with one.
int gx_utf8_bytes(const char *text);
// Makes a text printable: control characters and bytes that are not UTF-8, such as a truncated character, become
// question marks.
void gx_text_clean(char *text);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_COMMON_IMPLEMENTED)
#define GX_COMMON_IMPLEMENTED
#include <time.h>

double gx_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t gx_hash(uint64_t hash, const void *data, int64_t bytes)
{
    const unsigned char *p = (const unsigned char *)data;
    for (int64_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * GX_HASH_PRIME;
    return hash;
}

int gx_utf8_bytes(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    const int n = *p < 0x80                 ? 1
                  : *p >= 0xC2 && *p < 0xE0 ? 2
                  : *p >= 0xE0 && *p < 0xF0 ? 3
                  : *p >= 0xF0 && *p < 0xF5 ? 4
                                            : 0;
    if ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] > 0x9F) || (*p == 0xF0 && p[1] < 0x90) ||
        (*p == 0xF4 && p[1] > 0x8F))
        return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return n;
}

void gx_text_clean(char *text)
{
    for (char *p = text; *p;) {
        const int n = gx_utf8_bytes(p);
        const int is_control = (n == 1 && (unsigned char)*p < 0x20) || *p == 0x7F ||
                               (n == 2 && (unsigned char)*p == 0xC2 && (unsigned char)p[1] < 0xA0); // U+0080 to U+009F
        if (n == 0 || (is_control && *p != '\n' && *p != '\t')) *p++ = '?';
        else p += n;
    }
}
#endif
