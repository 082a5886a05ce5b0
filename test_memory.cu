// test_memory.cu: what ops/memory.h promises of every device: what is copied, when, and what is said where memory ends.
#include "galaxy/cpu/cpu.h"
#ifdef GX_WITH_CUDA
#include "galaxy/cuda/cuda.h"
#endif
#include "test/test.h"

static const GxDevice *const *devices(int *n)
{
    static const GxDevice *all[2];
    *n = 0;
    all[(*n)++] = gx_device_cpu();
#ifdef GX_WITH_CUDA
    all[(*n)++] = gx_device_cuda();
#endif
    return all;
}

typedef struct {
    GxContext g;
    GxArena arena, host;
} Rank;

static int rank_open(Rank *r, const GxDevice *device, int64_t bytes)
{
    memset(r, 0, sizeof *r);
    r->g.device = device;
    const int ok = gx_device_open(&r->g) == GX_OK && gx_arenas_open(&r->g, &r->arena, &r->host, bytes, bytes) == GX_OK;
    return CHECK(ok, "%s: %s", device->name, r->g.error.message);
}
static void rank_close(Rank *r)
{
    CHECK(!gx_failed(&r->g), "%s: %s", r->g.device->name, r->g.error.message);
    gx_arenas_close(&r->g, &r->arena, &r->host);
    gx_device_close(&r->g);
}

// Memory of the host as a host copy has it: pinned where the device has use for that.
static void *host_copy_of(Rank *r, int64_t bytes)
{
    return gx_arena_allocate(gx_host_arena(&r->g), GX_MEM_ACTIVATIONS, bytes);
}

static void check_bytes(const char *x, char expected, int64_t n, const char *what)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += x[i] != expected;
    CHECK(wrong == 0, "%s: %ld of %ld bytes are not what the host had at the call", what, (long)wrong, (long)n);
}

// Nothing waits between the copies, so a device that reads late would find the later bytes.
static void check_copies(const GxDevice *device, int64_t bytes, int copies)
{
    enum { MOST = 8 };
    Rank r;
    char *buffer[MOST], what[80];
    if (!rank_open(&r, device, (copies + 2) * gx_round_up(bytes, GX_ALIGN))) return;
    char *host_copy = (char *)host_copy_of(&r, bytes), *back = (char *)host_copy_of(&r, bytes);
    for (int i = 0; i < copies; i++) {
        buffer[i] = (char *)gx_arena_allocate(r.g.arena, GX_MEM_ACTIVATIONS, bytes);
        memset(host_copy, 'a' + i, (size_t)bytes);
        gx_to_device(&r.g, buffer[i], host_copy, bytes);
    }
    memset(host_copy, 0, (size_t)bytes);
    for (int i = 0; i < copies; i++) {
        snprintf(what, sizeof what, "%s, copy %d of %ld bytes", device->name, i, (long)bytes);
        gx_to_host(&r.g, back, buffer[i], bytes);
        check_bytes(back, (char)('a' + i), bytes, what);
    }
    rank_close(&r);
}

TEST(what_the_host_has_at_the_call_is_copied)
{
    static const int64_t bytes[] = {1, 1000, 3 << 20, 4 << 20, (4 << 20) + 1, 9 << 20};
    int n;
    const GxDevice *const *device = devices(&n);
    for (int d = 0; d < n; d++)
        for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
            check_copies(device[d], bytes[i], bytes[i] > 4 << 20 ? 2 : 5);
}

TEST(copies_and_operations_go_in_the_order_of_calls)
{
    int n;
    const GxDevice *const *device = devices(&n);
    for (int d = 0; d < n; d++) {
        Rank r;
        if (!rank_open(&r, device[d], 1024)) continue;
        float *x = (float *)gx_arena_allocate(r.g.arena, GX_MEM_ACTIVATIONS, 4),
              *sum = (float *)gx_arena_allocate(r.g.arena, GX_MEM_ACTIVATIONS, 4);
        float *host_copy = (float *)host_copy_of(&r, 4), *result = (float *)host_copy_of(&r, 4);
        for (int i = 1; i <= 4; i++) { // sum = 1 + 2 + 3 + 4 if each addition sees its own x
            *host_copy = (float)i;
            gx_to_device(&r.g, x, host_copy, 4);
            gx_add(&r.g, sum, sum, x, 1, GX_F32);
        }
        gx_to_host(&r.g, result, sum, 4);
        CHECK(*result == 10, "%s: %g instead of 10", device[d]->name, (double)*result);
        rank_close(&r);
    }
}

TEST(arenas_begin_with_zeros)
{
    enum { BYTES = 100000 };
    int n;
    const GxDevice *const *device = devices(&n);
    for (int d = 0; d < n; d++)
        for (int again = 0; again < 2; again++) { // memory that was used before, too
            Rank r;
            if (!rank_open(&r, device[d], BYTES)) continue;
            char *x = (char *)gx_arena_allocate(r.g.arena, GX_MEM_ACTIVATIONS, BYTES / 4),
                 *host_copy = (char *)host_copy_of(&r, BYTES / 4);
            check_bytes(host_copy, 0, BYTES / 4, device[d]->name);
            memset(host_copy, 1, BYTES / 4);
            gx_to_host(&r.g, host_copy, x, BYTES / 4);
            check_bytes(host_copy, 0, BYTES / 4, device[d]->name);
            memset(host_copy, 1, BYTES / 4);
            gx_to_device(&r.g, x, host_copy, BYTES / 4);
            rank_close(&r);
        }
}

TEST(an_arena_that_does_not_fit_says_how_much_was_asked_for)
{
    int n;
    const GxDevice *const *device = devices(&n);
    for (int d = 0; d < n; d++) {
        Rank r;
        memset(&r, 0, sizeof r);
        r.g.device = device[d];
        CHECK(gx_device_open(&r.g) == GX_OK, "%s", r.g.error.message);
        CHECK(gx_arenas_open(&r.g, &r.arena, &r.host, 1LL << 60, 0) == GX_ERR_MEMORY, "%s: 2^60 bytes: %s",
              device[d]->name, gx_status_name(gx_status(&r.g)));
        CHECK(strstr(r.g.error.message, "1152921504606.8 MB") != NULL, "%s: \"%s\"", device[d]->name,
              r.g.error.message);
        CHECK(!r.arena.base && !r.host.base, "%s: what was refused is there", device[d]->name);
        gx_device_close(&r.g);
    }
}

TEST(two_ranks_share_a_device)
{
    int n;
    const GxDevice *const *device = devices(&n);
    for (int d = 0; d < n; d++) {
        Rank r[2];
        float *x[2], result[2] = {0, 0};
        if (!rank_open(&r[0], device[d], 256) || !rank_open(&r[1], device[d], 256)) continue;
        for (int i = 0; i < 2; i++) {
            const float value = (float)(i + 1);
            x[i] = (float *)gx_arena_allocate(r[i].g.arena, GX_MEM_ACTIVATIONS, 4);
            gx_to_device(&r[i].g, x[i], &value, 4);
        }
        for (int i = 0; i < 2; i++) gx_add(&r[i].g, x[i], x[i], x[i], 1, GX_F32);
        for (int i = 0; i < 2; i++) gx_to_host(&r[i].g, &result[i], x[i], 4);
        CHECK(result[0] == 2 && result[1] == 4, "%s: %g and %g instead of 2 and 4", device[d]->name, (double)result[0],
              (double)result[1]);
        rank_close(&r[0]);
        rank_close(&r[1]);
    }
}

#ifdef GX_WITH_CUDA
TEST(the_device_cuda_says_what_it_is)
{
    char text[200] = "";
    gx_cuda_describe(text, sizeof text);
    CHECK(strstr(text, "sm_") && strstr(text, "GiB") && strstr(text, "driver"), "\"%s\"", text);
}
#endif

int main(int argc, char **argv) { return test_main(argc, argv); }
