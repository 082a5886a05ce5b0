// report.h: how the emulator ends a program that CUDA would leave undefined, and how it reads its environment
// variables.
#ifndef GX_EMU_REPORT_H
#define GX_EMU_REPORT_H
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace emu
{

__attribute__((format(printf, 1, 0))) inline void say_list(const char *format, va_list args)
{
    fputs("galaxy emulator: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    fflush(stderr);
}

__attribute__((format(printf, 1, 2))) inline void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_list(format, args);
    va_end(args);
}

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_list(format, args);
    va_end(args);
    abort();
}

// What a call of the driver or of a library gives for `error`, with the reason on stderr.
template <class Error>
__attribute__((format(printf, 3, 4))) Error refuse(Error error, const char *who, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    say("%s: %s", who, message);
    return error;
}

// Text that a handler of faults may make: it allocates nothing.
struct Line {
    char bytes[512] = "";
    const char *c_str() const { return bytes; }
    __attribute__((format(printf, 2, 3))) Line &add(const char *format, ...)
    {
        size_t used = strlen(bytes);
        va_list args;
        va_start(args, format);
        vsnprintf(bytes + used, sizeof bytes - used, format, args);
        va_end(args);
        return *this;
    }
};

// Variables are read when they are needed, not once: a test may change them between two launches.
inline std::string environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

// "random:17" or "random"; the part after the colon is the seed.
struct Choice {
    std::string word;
    unsigned long long seed;
};
inline Choice environment_choice(const char *name, const char *otherwise)
{
    std::string value = environment(name, otherwise);
    size_t colon = value.find(':');
    if (colon == std::string::npos) return {value, 1};
    return {value.substr(0, colon), strtoull(value.c_str() + colon + 1, nullptr, 10)};
}

// xorshift64* (Vigna 2016): enough to shuffle orders.
struct Random {
    unsigned long long state = 1;
    void seed(unsigned long long s) { state = (s + 1) * 0x9E3779B97F4A7C15ull | 1; }
    unsigned below(unsigned n)
    {
        state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
        return (unsigned)((state * 0x2545F4914F6CDD1Dull >> 33) % n);
    }
};

} // namespace emu
#endif
