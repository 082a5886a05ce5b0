// test_modes.cu: every mode against serial, on the threads engine: loss, every gradient by name, grad norm, parameters
// after three steps of SGD, weights and moments after a step of AdamW from a given state. A subset runs under MPI, too:
// ./test_modes starts itself by mpirun, `mpirun -np N ./test_modes --mpi I` is one rank of layout I.
#include "test/modes.h"

// How many ranks there are, and what each of them has: of every mode with a tp group. Heads 3,3 share the second of
// three K,V heads; 1,3,2 the first among ranks 0 and 1.
static const Layout shapes[] = {
    {.what = "2 ranks", .dp = 1, .tp = 2, .micro = 1, .samples = {4}},
    {.what = "2 ranks, heads 4,2, columns 30,10, tokens 5,3",
     .dp = 1,
     .tp = 2,
     .micro = 1,
     .samples = {3},
     .heads = {4, 2},
     .columns = {30, 10},
     .sequence = {5, 3}},
    {.what = "2 ranks, tied, accumulation", .dp = 1, .tp = 2, .micro = 2, .samples = {2}, .tied = 1},
    {.what = "2 ranks, no labels in rank 1's slice",
     .dp = 1,
     .tp = 2,
     .micro = 1,
     .samples = {2},
     .sequence = {5, 3},
     .no_label_begin = 5,
     .no_label_end = 8},
    {.what = "3 ranks", .dp = 1, .tp = 3, .micro = 1, .samples = {3}},
    {.what = "3 ranks, heads 1,3,2, columns 5,20,15, vocabulary 40,1,20, tokens 1,5,2",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {3},
     .heads = {1, 3, 2},
     .columns = {5, 20, 15},
     .vocab = {40, 1, 20},
     .sequence = {1, 5, 2}},
    {.what = "3 ranks, heads 1,4,1, tokens 6,1,1, tied, accumulation",
     .dp = 1,
     .tp = 3,
     .micro = 3,
     .samples = {2},
     .heads = {1, 4, 1},
     .columns = {1, 38, 1},
     .vocab = {1, 1, 59},
     .sequence = {6, 1, 1},
     .tied = 1},
    {.what = "3 ranks, heads 1,4,1 on two K,V heads, accumulation",
     .dp = 1,
     .tp = 3,
     .micro = 2,
     .samples = {2},
     .kv_heads = 2,
     .heads = {1, 4, 1}},
    {.what = "4 ranks", .dp = 1, .tp = 4, .micro = 1, .samples = {2}},
    {.what = "4 ranks, heads 1,1,3,1, tokens 2,1,4,1, accumulation",
     .dp = 1,
     .tp = 4,
     .micro = 2,
     .samples = {2},
     .heads = {1, 1, 3, 1},
     .columns = {10, 3, 20, 7},
     .sequence = {2, 1, 4, 1}},
    {.what = "4 ranks, heads 1,1,3,1 on one K,V head, tokens 2,1,4,1",
     .dp = 1,
     .tp = 4,
     .micro = 1,
     .samples = {2},
     .kv_heads = 1,
     .heads = {1, 1, 3, 1},
     .sequence = {2, 1, 4, 1}},
    {.what = "4 ranks, a K,V head for each query head",
     .dp = 1,
     .tp = 4,
     .micro = 1,
     .samples = {2},
     .kv_heads = 6,
     .heads = {1, 1, 3, 1}},
    // times data parallelism
    {.what = "dp 2 x 2 ranks", .dp = 2, .tp = 2, .micro = 1, .samples = {2, 2}},
    {.what = "dp 2 x 2 ranks, heads 5,1, tokens 7,1, 3 and 1 samples, accumulation",
     .dp = 2,
     .tp = 2,
     .micro = 2,
     .samples = {3, 1},
     .heads = {5, 1},
     .columns = {33, 7},
     .sequence = {7, 1}},
    {.what = "dp 2 x 2 ranks, tied, no labels on the second half",
     .dp = 2,
     .tp = 2,
     .micro = 1,
     .samples = {1, 2},
     .no_labels = 2,
     .tied = 1},
    {.what = "dp 2 x 3 ranks, heads 1,3,2", .dp = 2, .tp = 3, .micro = 1, .samples = {1, 2}, .heads = {1, 3, 2}},
    // norms of heads
    {.what = "2 ranks, normed heads, tied, accumulation",
     .dp = 1,
     .tp = 2,
     .micro = 2,
     .samples = {2},
     .tied = 1,
     .normed = 1},
    {.what = "3 ranks, normed heads 1,3,2, tokens 1,5,2",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {3},
     .heads = {1, 3, 2},
     .sequence = {1, 5, 2},
     .normed = 1},
    {.what = "4 ranks, normed heads 1,1,3,1 on one K,V head, tokens 2,1,4,1",
     .dp = 1,
     .tp = 4,
     .micro = 1,
     .samples = {2},
     .kv_heads = 1,
     .heads = {1, 1, 3, 1},
     .sequence = {2, 1, 4, 1},
     .normed = 1},
    {.what = "dp 2 x 2 ranks, normed heads 5,1, tokens 7,1, 3 and 1 samples, accumulation",
     .dp = 2,
     .tp = 2,
     .micro = 2,
     .samples = {3, 1},
     .heads = {5, 1},
     .sequence = {7, 1},
     .normed = 1},
    // norms of what blocks give, before it is added, and two kinds of RoPE
    {.what = "3 ranks, Gemma 3, heads 1,3,2, tokens 1,5,2, tied",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {3},
     .heads = {1, 3, 2},
     .sequence = {1, 5, 2},
     .tied = 1,
     .window = 3,
     .gemma = 1},
    {.what = "dp 2 x 2 ranks, Gemma 3 on one K,V head, tokens 7,1, 3 and 1 samples, accumulation",
     .dp = 2,
     .tp = 2,
     .micro = 2,
     .samples = {3, 1},
     .kv_heads = 1,
     .sequence = {7, 1},
     .window = 3,
     .gemma = 1},
    // sliding windows, shorter and longer than a rank's slice
    {.what = "2 ranks, windows of 3, accumulation", .dp = 1, .tp = 2, .micro = 2, .samples = {2}, .window = 3},
    {.what = "3 ranks, windows of 2, heads 1,3,2, tokens 1,5,2, tied",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {2},
     .heads = {1, 3, 2},
     .sequence = {1, 5, 2},
     .tied = 1,
     .window = 2},
    {.what = "4 ranks, windows of 2, one K,V head, tokens 2,1,4,1",
     .dp = 1,
     .tp = 4,
     .micro = 1,
     .samples = {2},
     .kv_heads = 1,
     .sequence = {2, 1, 4, 1},
     .window = 2},
    {.what = "3 ranks, windows of 6 in the first layer, normed heads",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {3},
     .normed = 1,
     .window = 6},
    {.what = "dp 2 x 2 ranks, windows of 4, tokens 7,1, 3 and 1 samples",
     .dp = 2,
     .tp = 2,
     .micro = 1,
     .samples = {3, 1},
     .sequence = {7, 1},
     .window = 4},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const Layout data_parallel[] = {
    // one rank to a tp group: the mode is serial
    {.what = "dp 2", .dp = 2, .tp = 1, .micro = 1, .samples = {2, 2}},
    {.what = "dp 2, 3 and 1 samples", .dp = 2, .tp = 1, .micro = 1, .samples = {3, 1}},
    {.what = "dp 2, accumulation", .dp = 2, .tp = 1, .micro = 2, .samples = {1, 3}},
    {.what = "dp 2, tied, accumulation", .dp = 2, .tp = 1, .micro = 2, .samples = {2, 1}, .tied = 1},
    {.what = "dp 2, no labels on rank 1", .dp = 2, .tp = 1, .micro = 1, .samples = {2, 2}, .no_labels = 2},
    {.what = "dp 2, no labels on rank 0, accumulation",
     .dp = 2,
     .tp = 1,
     .micro = 3,
     .samples = {2, 1},
     .no_labels = 1},
    {.what = "dp 3", .dp = 3, .tp = 1, .micro = 1, .samples = {2, 2, 2}},
    {.what = "dp 3, 1, 3 and 2 samples, accumulation", .dp = 3, .tp = 1, .micro = 2, .samples = {1, 3, 2}},
    {.what = "dp 3, tied, no labels on rank 2",
     .dp = 3,
     .tp = 1,
     .micro = 1,
     .samples = {1, 1, 2},
     .no_labels = 3,
     .tied = 1},
    {.what = "dp 2, windows of 3", .dp = 2, .tp = 1, .micro = 1, .samples = {2, 1}, .window = 3},
    {.what = "dp 4", .dp = 4, .tp = 1, .micro = 1, .samples = {2, 2, 2, 2}},
    {.what = "dp 4, 1, 1, 4 and 1 samples, accumulation", .dp = 4, .tp = 1, .micro = 3, .samples = {1, 1, 4, 1}},
};
enum { DATA_PARALLEL = sizeof data_parallel / sizeof *data_parallel };
static const Layout one_rank = {.what = "1 rank", .dp = 1, .tp = 1, .micro = 1, .samples = {4}};

static Layout layout(const GxMode *mode, const char *shape)
{
    return test_layout(mode, test_shape(shapes, SHAPES, shape));
}

TEST(data_parallel_is_serial)
{
    for (int i = 0; i < DATA_PARALLEL; i++) check_shape(&data_parallel[i], test_modes, 1);
}
TEST(every_mode_is_serial)
{
    for (int i = 0; i < SHAPES; i++)
        if (shapes[i].dp == 1) check_diagonal(0, &shapes[i], i, SHAPES, test_modes + 1, MODES - 1);
}
TEST(data_parallel_times_every_mode_is_serial)
{
    for (int i = 0; i < SHAPES; i++)
        if (shapes[i].dp > 1) check_diagonal(0, &shapes[i], i, SHAPES, test_modes + 1, MODES - 1);
}

// ---- every valid triple of methods ---------------------------------------------------------------------------------

static const Layout small[] = {
    {.what = "2 ranks, even", .dp = 1, .tp = 2, .micro = 1, .samples = {2}},
    {.what = "2 ranks, even, tied", .dp = 1, .tp = 2, .micro = 1, .samples = {2}, .tied = 1},
    {.what = "2 ranks, uneven",
     .dp = 1,
     .tp = 2,
     .micro = 1,
     .samples = {2},
     .heads = {5, 1},
     .columns = {7, 33},
     .vocab = {60, 1},
     .sequence = {3, 5}},
    {.what = "2 ranks, uneven, tied",
     .dp = 1,
     .tp = 2,
     .micro = 1,
     .samples = {2},
     .heads = {1, 5},
     .columns = {39, 1},
     .vocab = {20, 41},
     .sequence = {7, 1},
     .tied = 1},
    {.what = "3 ranks, even", .dp = 1, .tp = 3, .micro = 1, .samples = {2}},
    {.what = "3 ranks, even, tied", .dp = 1, .tp = 3, .micro = 1, .samples = {2}, .tied = 1},
    {.what = "3 ranks, uneven",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {2},
     .heads = {1, 3, 2},
     .columns = {5, 20, 15},
     .vocab = {40, 1, 20},
     .sequence = {1, 5, 2}},
    {.what = "3 ranks, uneven, tied",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {2},
     .heads = {4, 1, 1},
     .columns = {1, 38, 1},
     .vocab = {1, 1, 59},
     .sequence = {1, 1, 6},
     .tied = 1},
    {.what = "2 ranks, even, normed heads", .dp = 1, .tp = 2, .micro = 1, .samples = {2}, .normed = 1},
    {.what = "3 ranks, uneven, normed heads, tied",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {2},
     .heads = {1, 3, 2},
     .sequence = {1, 5, 2},
     .tied = 1,
     .normed = 1},
    {.what = "2 ranks, uneven, windows of 3",
     .dp = 1,
     .tp = 2,
     .micro = 1,
     .samples = {2},
     .sequence = {5, 3},
     .window = 3},
    {.what = "3 ranks, uneven, Gemma 3",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {2},
     .heads = {1, 3, 2},
     .sequence = {1, 5, 2},
     .window = 3,
     .gemma = 1},
};
enum { SMALL = sizeof small / sizeof *small };

TEST(all_18_triples_of_methods_are_serial)
{
    const GxMode *triple[TRIPLES];
    for (int i = 0; i < TRIPLES; i++) triple[i] = &test_triples[i];
    static const int half[] = {0, 3, 5, 6}; // all pairs of: 2 ranks or 3, even or not, tied or not
    for (int i = 0; i < SMALL && !TEST_IS_SANITIZED; i++) check_diagonal(0, &small[i], i, SMALL, triple, TRIPLES);
    for (int i = 0; i < 4 && TEST_IS_SANITIZED; i++) check_diagonal(0, &small[half[i]], i, 4, triple, TRIPLES);
}

// The ends have a method of their own: any, beside any triple.
TEST(every_method_of_the_ends_is_serial)
{
    static const GxMethod ends[] = {GX_METHOD_NONE, GX_METHOD_TP, GX_METHOD_SP};
    GxMode mode[3 * TRIPLES];
    char name[3 * TRIPLES][80];
    const GxMode *each[SMALL][3 * TRIPLES];
    int n[SMALL] = {0};
    for (int i = 0; i < 3 * TRIPLES; i++) {
        const GxMode *triple = &test_triples[i / 3];
        mode[i] = *triple;
        mode[i].name = name[i];
        mode[i].methods.ends = ends[i % 3];
        snprintf(name[i], sizeof name[i], "%s, the ends %s", triple->name, gx_method_name(ends[i % 3]));
        const int k = (i / 3 + i) % SMALL; // shapes in turn
        if (mode[i].methods.ends != triple->methods.ends) each[k][n[k]++] = &mode[i];
    }
    for (int k = 0; k < SMALL; k++) check_shape(&small[k], each[k], n[k]);
}

// ---- random lists --------------------------------------------------------------------------------------------------

// A list of n entries of at least 1 that sums to the total; or none.
static void random_list(int64_t *list, int n, int64_t total, uint64_t seed)
{
    if (gx_random_bits(21, seed, 0, 9) % 4 == 0) return;
    for (int r = 0; r < n; r++) list[r] = 1;
    for (int64_t rest = total - n; rest > 0; rest--) list[gx_random_bits(21, seed, (uint32_t)rest, 9) % (uint32_t)n]++;
}

TEST(modes_with_random_lists_are_serial)
{
    for (uint64_t i = 0; i < 24; i++) {
        const GxMode *mode = test_modes[1 + i % (MODES - 1)];
        Layout l = {.mode = mode, .dp = 1, .tp = 2 + (int)(i / 2 % 3), .micro = 1 + (int)(i % 3 == 0)};
        Result serial;
        if (l.tp < 4 && i % 5 == 0) l.dp = 2;
        for (int r = 0; r < l.dp; r++) l.samples[r] = 1 + gx_random_bits(21, i, (uint32_t)r, 1) % 3;
        random_list(l.heads, l.tp, model_config.num_attention_heads, 4 * i);
        random_list(l.columns, l.tp, model_config.intermediate_size, 4 * i + 1);
        random_list(l.sequence, l.tp, T, 4 * i + 2);
        random_list(l.vocab, l.tp, model_config.vocab_size, 4 * i + 3);
        l.tied = i % 4 == 3, l.normed = gx_random_bits(21, i, 0, 3) % 2;
        l.kv_heads = (const int[]){0, 1, 2, 6}[gx_random_bits(21, i, 0, 2) % 4];
        if (i % 2) l.window = 2 + gx_random_bits(21, i, 0, 4) % (T - 1); // of 1, q and k have no gradient
        snprintf(l.what, sizeof l.what,
                 "%s number %ld: tp %d, dp %d, %ld K,V heads, windows of %ld, %sheads %ld,%ld,%ld,%ld, columns "
                 "%ld,%ld,%ld,%ld, tokens "
                 "%ld,%ld,%ld,%ld",
                 mode->name, (long)i, l.tp, l.dp, (long)l.kv_heads, (long)l.window, l.normed ? "normed " : "",
                 (long)l.heads[0], (long)l.heads[1], (long)l.heads[2], (long)l.heads[3], (long)l.columns[0],
                 (long)l.columns[1], (long)l.columns[2], (long)l.columns[3], (long)l.sequence[0], (long)l.sequence[1],
                 (long)l.sequence[2], (long)l.sequence[3]);
        run_serial(&l, &serial);
        check_ranks(&l, &serial);
        free_result(&serial);
    }
}

// ---- bit for bit ---------------------------------------------------------------------------------------------------

TEST(every_mode_on_one_rank_is_serial_bit_for_bit)
{
    Result serial;
    run_serial(&one_rank, &serial);
    for (int i = 0; i < MODES + TRIPLES; i++) {
        Rank rank[MAX_RANKS];
        const Layout l = test_layout(i < MODES ? test_modes[i] : &test_triples[i - MODES], &one_rank);
        run_ranks(&l, rank);
        CHECK(same_bits(&rank[0].result, &serial), "%s is not serial", l.what);
        free_ranks(&l, rank);
    }
    free_result(&serial);
}

TEST(every_mode_gives_the_same_bits_twice)
{
    for (int i = 0; i < MODES; i++) {
        Rank a[MAX_RANKS], b[MAX_RANKS];
        const Layout *shape =
            i ? test_shape(shapes, SHAPES, "dp 2 x 2 ranks, heads 5,1, tokens 7,1, 3 and 1 samples, accumulation")
              : test_shape(data_parallel, DATA_PARALLEL, "dp 3, 1, 3 and 2 samples, accumulation");
        const Layout l = test_layout(test_modes[i], shape);
        run_ranks(&l, a);
        run_ranks(&l, b);
        for (int r = 0; r < ranks_of(&l); r++) CHECK(same_bits(&a[r].result, &b[r].result), "%s: rank %d", l.what, r);
        free_ranks(&l, a);
        free_ranks(&l, b);
    }
}

static int same_stream(const Result *a, const Result *b)
{
    const size_t bytes = (size_t)(a->rows * model_config.hidden_size) * 4;
    int same = a->rows == b->rows;
    for (int i = 0; same && i <= LAYERS; i++)
        same = (!i || !memcmp(a->y[i], b->y[i], bytes)) && !memcmp(a->dx[i], b->dx[i], bytes);
    return same;
}

// The same operations and collectives, in the same order. Composed, everything is started, some spelled out blocks: so
// waits are apart.
static int same_work(const GxRecorder *a, const GxRecorder *b)
{
    int same = a->comm_bytes == b->comm_bytes && a->bytes == b->bytes && a->flops == b->flops;
    int64_t i = 0, k = 0;
    for (;; i++, k++) {
        while (i < a->n && a->event[i].kind == GX_EVENT_WAIT) i++;
        while (k < b->n && b->event[k].kind == GX_EVENT_WAIT) k++;
        if (i >= a->n || k >= b->n || !same) return same && i >= a->n && k >= b->n;
        const GxEvent *x = &a->event[i], *y = &b->event[k];
        same = x->kind == y->kind && !strcmp(x->name, y->name) && !strcmp(x->site, y->site) && x->unit == y->unit &&
               x->axes == y->axes && x->bytes == y->bytes;
    }
}

// A mode is written twice: spelled out in its source, and derived from its methods. What both send, in which order, and
// everything that they compute.
TEST(every_mode_spelled_out_is_the_composed_one_bit_for_bit)
{
    static const char *const some[] = {"2 ranks",
                                       "3 ranks, heads 1,3,2, columns 5,20,15, vocabulary 40,1,20, tokens 1,5,2",
                                       "3 ranks, heads 1,4,1, tokens 6,1,1, tied, accumulation",
                                       "dp 2 x 2 ranks, heads 5,1, tokens 7,1, 3 and 1 samples, accumulation"};
    for (int i = 1; i < MODES; i++)
        for (int k = 0; k < 4; k++) {
            Rank a[MAX_RANKS], b[MAX_RANKS];
            const GxMode composed = test_composed(test_modes[i]);
            const Layout l = layout(test_modes[i], some[k]), derived = layout(&composed, some[k]);
            run_ranks(&l, a);
            run_ranks(&derived, b);
            for (int r = 0; r < ranks_of(&l); r++) {
                const Result *x = &a[r].result, *y = &b[r].result;
                CHECK(!x->error[0] && !y->error[0], "%s: rank %d: %s%s", l.what, r, x->error, y->error);
                CHECK(same_bits(x, y) && same_stream(x, y), "%s: rank %d", l.what, r);
                CHECK(same_work(&x->window, &y->window), "%s: rank %d: other operations or collectives", l.what, r);
            }
            free_ranks(&l, a);
            free_ranks(&derived, b);
        }
}

// ---- by tiles ------------------------------------------------------------------------------------------------------

TEST(modes_by_tiles_are_serial)
{
    for (int i = 0; i < SHAPES; i++) check_shape(&shapes[i], test_tiled, TILED);
}

static int64_t smallest_slice(const Layout *l) // rows
{
    int64_t least = l->sequence[0] ? l->sequence[0] : 8 / l->tp;
    for (int r = 1; r < l->tp && l->sequence[0]; r++) least = gx_min(least, l->sequence[r]);
    int64_t samples = l->samples[0];
    for (int d = 1; d < l->dp; d++) samples = gx_min(samples, l->samples[d]);
    return least * samples;
}

static double products_of(const GxRecorder *r) // FLOPs
{
    double flops = 0;
    for (int64_t i = 0; i < r->n; i++)
        if (r->event[i].kind == GX_EVENT_OP && strstr(r->event[i].name, "linear")) flops += r->event[i].flops;
    return flops;
}

// Messages instead of collectives, and products in parts: the same bytes and FLOPs. The same bits, too, of our own
// products, whose rows do not depend on each other (one row by itself is computed in another way).
TEST(tiles_send_and_compute_what_the_mode_does)
{
    for (int i = 0; i < SHAPES; i++) {
        Rank a[MAX_RANKS], b[MAX_RANKS];
        const Layout whole = test_layout(&gx_galaxy, &shapes[i]), tiled = test_layout(&gx_galaxy_tiled, &shapes[i]);
        const int same = !strncmp(gx_cpu_gemm_name(), "plain", 5) && smallest_slice(&shapes[i]) > 1;
        run_ranks(&whole, a);
        run_ranks(&tiled, b);
        for (int r = 0; r < ranks_of(&whole); r++) {
            const Result *x = &a[r].result, *y = &b[r].result;
            CHECK(!x->error[0] && !y->error[0], "%s: rank %d: %s%s", tiled.what, r, x->error, y->error);
            CHECK(x->window.comm_bytes == y->window.comm_bytes && products_of(&x->window) == products_of(&y->window),
                  "%s: rank %d sends %ld bytes instead of %ld, and its products have %g FLOPs instead of %g",
                  tiled.what, r, (long)y->window.comm_bytes, (long)x->window.comm_bytes, products_of(&y->window),
                  products_of(&x->window));
            CHECK(!same || (same_bits(x, y) && same_stream(x, y)), "%s: rank %d: other bits", tiled.what, r);
        }
        free_ranks(&whole, a);
        free_ranks(&tiled, b);
    }
}

// In the forward of a unit's pair, what happens at its core and its doors, in a letter each: S, a message is started; P, a
// product; W, a wait; o, another operation.
static void letters(const GxRecorder *r, int unit, const char *core, char *text, size_t size)
{
    size_t n = 0;
    for (int64_t i = 0; i < r->n && n + 1 < size; i++) {
        const GxEvent *e = &r->event[i];
        if (e->unit != unit || strncmp(e->site, core, strlen(core)) || strstr(e->site, "norm") ||
            strstr(e->site, "con"))
            continue;
        if (strstr(e->name, "backward")) break;
        text[n++] = e->kind == GX_EVENT_WAIT         ? 'W'
                    : e->kind == GX_EVENT_COLLECTIVE ? 'S'
                    : strcmp(e->site, core)          ? 'x' // not at a door
                    : strstr(e->name, "linear")      ? 'P'
                                                     : 'o';
    }
    text[n] = 0;
}

TEST(a_tile_is_waited_for_behind_the_product_of_the_one_before)
{
    Rank rank[MAX_RANKS];
    const Layout l = layout(&gx_galaxy_tiled, "3 ranks");
    run_ranks(&l, rank);
    for (int r = 0; r < 3; r++) {
        char att[200], mlp[200];
        letters(&rank[r].result.window, 1, "att", att, sizeof att);
        letters(&rank[r].result.window, 1, "mlp", mlp, sizeof mlp);
        // a message is sent and another received; o: RoPE and attention, or the activation; at the end the sum
        const char *of_att = "SSSSPWPWPooPSSPSSPWWoooo", *of_mlp = "SSSSPWPWPoPSSPSSPWWoooo";
        if (!gx_default_device()->shares_host_memory) // by copies in the host's memory, nothing is started
            of_att = "SSSSPPPooPSSPSSPoooo", of_mlp = "SSSSPPPoPSSPSSPoooo";
        CHECK(!strncmp(att, of_att, strlen(of_att)), "rank %d: attention is %s", r, att);
        CHECK(!strncmp(mlp, of_mlp, strlen(of_mlp)), "rank %d: the MLP is %s", r, mlp);
    }
    free_ranks(&l, rank);
}

// ------------------------------------------------------------------------------------------------------------------

// Rows of the whole stream as TP has them, against Galaxy's slices.
static void check_rows(const char *what, int layer, float *const *whole, const Rank *galaxy, int ranks, int is_gradient)
{
    int64_t row = 0;
    for (int r = 0; r < ranks; r++) {
        const Result *g = &galaxy[r].result;
        const float *slice = is_gradient ? g->dx[layer] : g->y[layer];
        CHECK(!memcmp(slice, whole[layer] + row * model_config.hidden_size,
                      (size_t)(g->rows * model_config.hidden_size) * 4),
              "%s: %s of layer %d: rank %d's slice is not what tensor parallelism has", what,
              is_gradient ? "gradient" : "output", layer, r);
        row += g->rows;
    }
}

// All-reduce is reduce-scatter and all-gather, and what lies between them looks at one row at a time: so the two modes
// have the same bits, but for the norms' gradients, which are sums over rows.
TEST(galaxy_is_tensor_parallelism_bit_for_bit_in_activations_input_gradients_and_matrix_gradients)
{
    static const char *const some[] = {"2 ranks",
                                       "3 ranks, heads 1,3,2, columns 5,20,15, vocabulary 40,1,20, tokens 1,5,2",
                                       "4 ranks", "2 ranks, tied, accumulation"};
    for (int p = 0; p < 4; p++) {
        const Layout a = layout(&gx_tp, some[p]), b = layout(&gx_galaxy, some[p]);
        Rank tp[MAX_RANKS], galaxy[MAX_RANKS];
        int matrices = 0;
        run_ranks(&a, tp);
        run_ranks(&b, galaxy);
        for (int layer = 1; layer <= LAYERS; layer++) check_rows(b.what, layer, tp[0].result.y, galaxy, b.tp, 0);
        for (int layer = 0; layer <= LAYERS; layer++) check_rows(b.what, layer, tp[0].result.dx, galaxy, b.tp, 1);
        for (int r = 0; r < a.tp; r++) {
            const GxTable *t = &tp[r].result.model->m.table;
            for (int i = 0; i < t->n; i++) {
                const int64_t at = test_flat(tp[r].result.model, i);
                if (t->row[i].ndim != 2 || t->row[i].has_alias) continue;
                CHECK(!memcmp(tp[r].result.flat.b.grads + at, galaxy[r].result.flat.b.grads + at,
                              (size_t)gx_tensor_count(&t->row[i]) * 4),
                      "%s: the gradient of %s on rank %d", b.what, t->row[i].name, r);
                matrices++;
            }
            CHECK(tp[r].result.loss[0] == galaxy[r].result.loss[0], "%s: the first loss", b.what);
        }
        CHECK(matrices >= a.tp * 7 * LAYERS, "%d matrices", matrices);
        free_ranks(&a, tp);
        free_ranks(&b, galaxy);
    }
}

// ---- under MPI -----------------------------------------------------------------------------------------------------

// Of everything that a run left behind: losses, norms, every gradient, every weight, every moment.
static uint64_t hash_of(const Result *r)
{
    uint64_t h = gx_hash(GX_HASH_START, r->loss, sizeof r->loss);
    h = gx_hash(h, r->logits, 4 * r->columns * model_config.vocab_size);
    h = gx_hash(h, r->norm, sizeof r->norm);
    for (int k = 0; k < BUFFERS; k++) h = gx_hash(h, r->flat.all[k], 4 * r->n);
    return h;
}

static const char *program; // argv[0]

// What runs under MPI, too, by number: data parallelism; every mode; every second one times data parallelism.
enum { MPI_LAYOUTS = 2 + (MODES - 1) + (MODES - 1) / 2 };
static Layout mpi_layout(int number)
{
    static const char *const alone[] = {"dp 3, tied, no labels on rank 2", "dp 4, 1, 1, 4 and 1 samples, accumulation"};
    const int mode = number - 1;
    if (number < 2) return test_layout(&test_serial, test_shape(data_parallel, DATA_PARALLEL, alone[number]));
    if (mode < MODES)
        return layout(test_modes[mode], "3 ranks, heads 1,3,2, columns 5,20,15, vocabulary 40,1,20, tokens 1,5,2");
    return layout(test_modes[2 + 2 * (mode - MODES)],
                  "dp 2 x 2 ranks, heads 5,1, tokens 7,1, 3 and 1 samples, accumulation");
}

static int mpi_main(int number)
{
    const Layout l = mpi_layout(number);
    Rank r;
    GxError err = GX_ZERO;
    memset(&r, 0, sizeof r);
    if (gx_mpi_comm(&r.comm, &err) != GX_OK) return fprintf(stderr, "%s\n", err.message), 1;
    r.layout = &l;
    r.rank = r.comm.rank;
    rank_main(&r);
    printf("rank %d hash %016llx\n", r.rank, (unsigned long long)hash_of(&r.result));
    return test_state.failures != 0 || r.result.error[0];
}

TEST(mpi_gives_the_bits_of_threads_in_losses_gradients_weights_and_moments)
{
#ifndef GX_WITH_MPI
    SKIP("built without GX_WITH_MPI");
#endif
    if (system("command -v mpirun >/dev/null 2>&1")) SKIP("there is no mpirun here");
    for (int i = 0; i < MPI_LAYOUTS; i++) {
        if (!test_diagonal(1, i, MPI_LAYOUTS, 0, 2)) continue;
        const Layout layout = mpi_layout(i), *l = &layout;
        Rank rank[MAX_RANKS];
        char line[1200];
        int seen = 0;
        run_ranks(l, rank);
        snprintf(line, sizeof line,
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
                 "OMPI_MCA_hwloc_base_binding_policy=none ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=detect_deadlocks=0 "
                 "timeout 60 mpirun -np %d %.600s "
                 "--mpi %d",
                 ranks_of(l), program, i);
        FILE *out = popen(line, "r");
        while (out && fgets(line, sizeof line, out)) {
            int r;
            unsigned long long hash;
            if (sscanf(line, "rank %d hash %llx", &r, &hash) != 2 || r < 0 || r >= ranks_of(l)) continue;
            CHECK(hash == hash_of(&rank[r].result), "%s: rank %d has other bits under MPI", l->what, r);
            seen++;
        }
        int status = out ? pclose(out) : -1;
        CHECK(seen == ranks_of(l) && status == 0, "%s: %d ranks answered, mpirun ended with %d", l->what, seen, status);
        free_ranks(l, rank);
    }
}

TEST(a_window_without_labels_has_loss_0_and_gradients_0)
{
    static const Layout nothing = {
        .what = "nothing counts", .dp = 1, .tp = 3, .micro = 2, .samples = {2}, .no_labels = 1};
    for (int i = 0; i < MODES; i++) {
        Rank rank[MAX_RANKS];
        Layout l = test_layout(test_modes[i], &nothing);
        if (i == 0) l.tp = 1;
        run_ranks(&l, rank);
        for (int k = 0; k < ranks_of(&l); k++) {
            const Result *r = &rank[k].result;
            double sum = 0;
            for (int64_t e = 0; e < r->n; e++) sum += fabs((double)r->flat.b.grads[e]);
            CHECK(!r->error[0] && r->labels[0] == 0 && r->loss[0] == 0 && r->norm[0] == 0 && sum == 0,
                  "%s: %ld labels, loss %g, norm %g, sum of |gradients| %g; %s", l.what, (long)r->labels[0], r->loss[0],
                  r->norm[0], sum, r->error);
        }
        free_ranks(&l, rank);
    }
}

// ---- what goes wrong -----------------------------------------------------------------------------------------------

// Rank 1 goes its own way; what the others are told.
typedef struct {
    Rank r;
    const GxMode *mode;
    int leaves; // after a forward pass
    double seconds;
} Astray;

static void *astray_main(void *user)
{
    Astray *a = (Astray *)user;
    const Layout *l = a->r.layout;
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    GxBatch batch;
    int32_t *tokens = (int32_t *)malloc(2 * T * MAX_COLUMNS * sizeof *tokens);
    const double started = gx_seconds();
    fill_window(l, 0, 0, l->samples[0], 1, &batch, tokens);
    if (test_model_open_split(t, &model_config, a->mode, T, l->samples[0], 7, &a->r.comm, 1, l->tp, NULL)) {
        gx_model_init(&t->g, &t->m, 42);
        test_put_batch(t, &batch, 0);
        if (a->leaves) gx_runner_forward(&t->g, &t->r, &batch, t->g.step->loss_sum);
        else gx_runner_train(&t->g, &t->r, &batch, NULL, NULL);
    }
    snprintf(a->r.result.error, sizeof a->r.result.error, "%s", t->g.error.message);
    test_model_close(t);
    a->seconds = gx_seconds() - started;
    free(tokens);
    free(t);
    return NULL;
}

static void run_astray(const Layout *l, Astray *rank, const GxMode *mode_of_1, int leaves)
{
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    memset(rank, 0, (size_t)l->tp * sizeof *rank);
    if (!CHECK(gx_threads_group_open(&group, l->tp, &err) == GX_OK, "%s", err.message)) return;
    for (int r = 0; r < l->tp; r++) {
        rank[r].r.layout = l;
        rank[r].mode = r == 1 ? mode_of_1 : l->mode;
        rank[r].leaves = r == 1 && leaves;
        gx_threads_comm(&rank[r].r.comm, group, r);
        pthread_create(&rank[r].r.thread, NULL, astray_main, &rank[r]);
    }
    for (int r = 0; r < l->tp; r++) pthread_join(rank[r].r.thread, NULL);
    gx_threads_group_close(group);
}

TEST(a_rank_that_returns_early_ends_the_others_with_its_number)
{
    for (int i = 1; i < MODES; i++) {
        Astray rank[MAX_RANKS];
        const Layout l = layout(test_modes[i], i % 2 ? "3 ranks" : "4 ranks");
        run_astray(&l, rank, l.mode, 1);
        for (int r = 0; r < l.tp; r++) {
            if (r == 1) continue;
            CHECK(strstr(rank[r].r.result.error, "rank 1"), "%s: rank %d was told \"%s\"", l.what, r,
                  rank[r].r.result.error);
            CHECK(rank[r].seconds < 30, "%s: rank %d waited %.0f s", l.what, r, rank[r].seconds);
        }
    }
}

// The first collectives at which two modes part, as their layouts demand them.
static void part_ways(const Layout *l, const GxMode *a, const GxMode *b, GxDemand *x, GxDemand *y)
{
    enum { MOST = 100 };
    const GxDemandShape shape = {LAYERS,
                                 T * l->samples[0],
                                 model_config.hidden_size,
                                 T * l->samples[0],
                                 model_config.num_key_value_heads * model_config.head_dim,
                                 HEAD_CHUNK};
    GxDemand one[MOST], other[MOST];
    const int n = (int)gx_min(gx_demands(a->methods, &shape, one, MOST), gx_demands(b->methods, &shape, other, MOST));
    int i = 0;
    while (i + 1 < n && one[i].kind == other[i].kind && one[i].rows * one[i].width == other[i].rows * other[i].width)
        i++;
    *x = one[i], *y = other[i];
}

// Of any two modes of the list.
TEST(ranks_in_different_modes_are_told_what_both_sides_are_in)
{
    for (int i = 1; i < MODES; i++)
        for (int k = i + 1; k < MODES; k++) {
            Astray rank[MAX_RANKS];
            GxDemand a, b;
            char zero[80], one[80];
            const Layout l = layout(test_modes[i], "2 ranks");
            part_ways(&l, test_modes[i], test_modes[k], &a, &b);
            snprintf(zero, sizeof zero, "rank 0 is in %s", gx_move_name(a.kind));
            snprintf(one, sizeof one, "rank 1 is in %s", gx_move_name(b.kind));
            run_astray(&l, rank, test_modes[k], 0);
            for (int r = 0; r < 2; r++) {
                const char *error = rank[r].r.result.error;
                CHECK(strstr(error, zero) && strstr(error, one),
                      "%s, and rank 1 in %s: rank %d was told \"%s\", not \"%s\" and \"%s\"", l.what,
                      test_modes[k]->name, r, error, zero, one);
                CHECK(rank[r].seconds < 30, "rank %d waited %.0f s", r, rank[r].seconds);
            }
        }
}

// ---- checkpoints ---------------------------------------------------------------------------------------------------

typedef struct {
    GxComm comm;
    pthread_t thread;
    const char *folder;
    int64_t tensors, meetings;
    char error[1200];
} Saver;

static void *saver_main(void *user)
{
    Saver *s = (Saver *)user;
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    GxRecorder recorder = GX_ZERO;
    GxConfig args;
    GxTrainState state = GX_ZERO;
    GxError disk = GX_ZERO;
    snprintf(state.optimizer, sizeof state.optimizer, "adamw");
    gx_config_open(&args);
    if (test_model_open(t, &model_config, &test_serial, T, 1, 7, &s->comm, 1)) {
        gx_model_init(&t->g, &t->m, 42);
        for (int i = 0; i < t->m.table.n; i++) s->tensors += !t->m.table.row[i].has_alias;
        t->g.recorder = &recorder;
        const GxCheckpoint checkpoint = {.m = &t->m, .o = &t->o, .state = &state, .args = &args, .dtype = GX_F32};
        gx_checkpoint_save(&t->g, s->folder, &checkpoint, &disk);
        t->g.recorder = NULL;
        for (int64_t i = 0; i < recorder.n; i++)
            s->meetings += recorder.event[i].kind == GX_EVENT_COLLECTIVE && !strcmp(recorder.event[i].name, "barrier");
    }
    snprintf(s->error, sizeof s->error, "%s%s", t->g.error.message, disk.message);
    test_model_close(t);
    gx_recorder_close(&recorder);
    free(t);
    return NULL;
}

// A checkpoint may take longer than a rank waits for another one: all meet after each tensor, also those that have
// nothing to save.
TEST(all_ranks_follow_a_checkpoint_tensor_by_tensor)
{
    Saver rank[2];
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    char parent[] = "/tmp/galaxy-save-XXXXXX", folder[64];
    if (!CHECK(mkdtemp(parent) && gx_threads_group_open(&group, 2, &err) == GX_OK, "%s", err.message)) return;
    snprintf(folder, sizeof folder, "%s/checkpoint-1", parent);
    memset(rank, 0, sizeof rank);
    for (int r = 0; r < 2; r++) {
        rank[r].folder = folder;
        gx_threads_comm(&rank[r].comm, group, r);
        pthread_create(&rank[r].thread, NULL, saver_main, &rank[r]);
    }
    for (int r = 0; r < 2; r++) pthread_join(rank[r].thread, NULL);
    for (int r = 0; r < 2; r++)
        CHECK(!rank[r].error[0] && rank[r].tensors > 10 &&
                  rank[r].meetings == 3 * rank[r].tensors + 2, // weights, two moments; two files
              "rank %d: %ld meetings for %ld tensors; %s", r, (long)rank[r].meetings, (long)rank[r].tensors,
              rank[r].error);
    CHECK(gx_folder_verify(folder, 1, &err) == GX_OK, "%s", err.message);
    gx_threads_group_close(group);
    gx_folder_remove(parent, &err);
}

// ---- stopping ------------------------------------------------------------------------------------------------------

enum { ASKERS = 3, WISHES = 1 << ASKERS };
typedef struct {
    GxComm comm;
    pthread_t thread;
    int stops[WISHES]; // what this rank is told where the ranks of this set ask
    int moved[WISHES]; // 1: its weights are others then
    char error[600];
} Asker;

static uint64_t hash_of_masters(TestModel *t)
{
    const int64_t n = gx_table_parameters(&t->m.table);
    float *masters = test_kept(t, gx_store_master_at(&t->m.store, 0, 0), n);
    const uint64_t hash = gx_hash(GX_HASH_START, masters, 4 * n);
    free(masters);
    return hash;
}

static void *asker_main(void *user)
{
    Asker *a = (Asker *)user;
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    if (test_model_open(t, &model_config, &test_serial, T, 1, 7, &a->comm, 1)) {
        static const int32_t tokens[T] = {0};
        GxBatch b = GX_ZERO;
        b.T = T, b.B = 1, b.runs = gx_runs_one(T, 0);
        b.tokens = b.target[0].labels = tokens;
        test_put_batch(t, &b, 0);
        gx_model_init(&t->g, &t->m, 42);
        for (int set = 0; set < WISHES; set++) {
            const uint64_t before = hash_of_masters(t);
            int stop = set >> a->comm.rank & 1;
            test_set_step(t, 0.1f, 0);
            gx_runner_train(&t->g, &t->r, &b, NULL, &stop);
            a->stops[set] = stop;
            a->moved[set] = hash_of_masters(t) != before;
        }
    }
    snprintf(a->error, sizeof a->error, "%s", t->g.error.message);
    test_model_close(t);
    free(t);
    return NULL;
}

// ... and leave the window before it changes anything.
TEST(all_ranks_stop_where_one_of_them_asks_or_several_do)
{
    Asker rank[ASKERS];
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    if (!CHECK(gx_threads_group_open(&group, ASKERS, &err) == GX_OK, "%s", err.message)) return;
    memset(rank, 0, sizeof rank);
    for (int r = 0; r < ASKERS; r++) {
        gx_threads_comm(&rank[r].comm, group, r);
        pthread_create(&rank[r].thread, NULL, asker_main, &rank[r]);
    }
    for (int r = 0; r < ASKERS; r++) pthread_join(rank[r].thread, NULL);
    for (int r = 0; r < ASKERS; r++) {
        CHECK(!rank[r].error[0], "rank %d: %s", r, rank[r].error);
        for (int set = 0; set < WISHES; set++)
            CHECK(rank[r].stops[set] == (set != 0), "where the set %d asks, rank %d is told %d", set, r,
                  rank[r].stops[set]);
        for (int set = 0; set < WISHES; set++)
            CHECK(rank[r].moved[set] == (set == 0), "where the set %d asks, rank %d's weights move: %d", set, r,
                  rank[r].moved[set]);
    }
    gx_threads_group_close(group);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && !strcmp(argv[1], "--mpi")) return mpi_main(atoi(argv[2]));
    return test_main(argc, argv);
}
