// report.h: how the emulator ends a program that CUDA would leave undefined, and how it reads its environment
// variables.
#ifndef GX_EMU_REPORT_H
#define GX_EMU_REPORT_H
#include <cctype>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <link.h>
#include <string>
#include <unistd.h>

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

// A misspelt value would test nothing, so each is refused that is none of what there is; the first is the usual one.
inline std::string environment_word(const char *name, std::initializer_list<const char *> words)
{
    const std::string value = environment(name, *words.begin());
    std::string all;
    for (const char *word : words) {
        if (value == word) return value;
        all += all.empty() ? word : std::string(", ") + word;
    }
    fatal("%s is %s; there are: %s", name, value.c_str(), all.c_str());
}

// 1: all of the text is a number from `least` to `most`.
inline bool read_number(const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end = nullptr;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && !errno && *value >= least && *value <= most;
}
inline int64_t environment_number(const char *name, int64_t otherwise, int64_t least, int64_t most)
{
    const std::string text = environment(name, "");
    int64_t value = otherwise;
    if (text.empty() || read_number(text.c_str(), least, most, &value)) return value;
    fatal("%s is %s; it must be a number from %lld to %lld", name, text.c_str(), (long long)least, (long long)most);
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
    int64_t seed;
    if (!read_number(value.c_str() + colon + 1, 0, INT64_MAX, &seed))
        fatal("%s is %s; behind the colon there must be a number", name, value.c_str());
    return {value.substr(0, colon), (unsigned long long)seed};
}

// ---- files that a program adds to when it ends, for scripts --------------------------------------------------------
inline FILE *open_report(const char *variable) // the file that the variable names; nullptr: none
{
    const std::string name = environment(variable, "");
    if (name.empty()) return nullptr;
    FILE *f = fopen(name.c_str(), "a");
    if (!f) fatal("%s: %s cannot be written", variable, name.c_str());
    return f;
}
inline void close_report(FILE *f, const char *variable)
{
    if (fclose(f)) fatal("%s: %s cannot be written", variable, environment(variable, "").c_str());
}
inline std::string program_file()
{
    char name[4096] = "";
    if (readlink("/proc/self/exe", name, sizeof name - 1) < 0) fatal("/proc/self/exe cannot be read");
    return name;
}
inline uintptr_t address_in_program(const void *at) // as nm and addr2line have it
{
    uintptr_t bias = 0;
    dl_iterate_phdr([](dl_phdr_info *info, size_t, void *to) { return *(uintptr_t *)to = info->dlpi_addr, 1; }, &bias);
    return (uintptr_t)at - bias;
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
