// test_cp.cu: context parallelism: which rows of a sequence each rank has, how evenly that divides attention, what is
// sent, and that a part of a batch is what the batch has there. That it trains as serial, beside all other options, is
// shown by test_pairs.cu; programs with --cp by test_train_cp.cu.
#include "test/subjects.h"

static uint64_t draws;
static int64_t any(int64_t least, int64_t most) // of this range
{
    return least + (int64_t)(gx_random_bits(7, draws++, 0, 9) % (uint64_t)(most - least + 1));
}

static GxSplit rows_of(const int64_t *rows, int n)
{
    GxSplit s = gx_split_even(n, n);
    for (int r = 0; r < n; r++) s.begin[r + 1] = s.begin[r] + rows[r];
    return s;
}

static GxCp open_cp(const GxSplit *rows, int zigzags)
{
    GxCp cp;
    GxError e = GX_ZERO;
    CHECK(gx_cp_open(&cp, 0, rows, zigzags, &e) == GX_OK, "%s", e.message);
    return cp;
}

// ---- which rows ----------------------------------------------------------------------------------------------------

TEST(every_position_is_a_row_of_one_rank_whatever_the_shares)
{
    GxContext g = GX_ZERO;
    for (int i = 0; i < 2000; i++) {
        const int n = (int)any(1, 9), zigzags = (int)any(1, GX_CP_ZIGZAGS);
        int64_t part[9], seen[400] = {0};
        for (int r = 0; r < n; r++) part[r] = any(1, 40);
        const GxSplit rows = rows_of(part, n);
        const GxCp cp = open_cp(&rows, zigzags);
        for (int r = 0; r < n; r++) {
            const GxRuns runs = gx_cp_runs(&cp, r);
            int64_t before = -1;
            CHECK(gx_runs_check(&g, "cp", &runs) && gx_runs_rows(&runs) == part[r], "%ld rows, not %ld",
                  (long)gx_runs_rows(&runs), (long)part[r]);
            for (int64_t t = 0; t < part[r]; t++) {
                const int64_t at = gx_runs_position(&runs, t);
                CHECK(at > before && at < gx_split_total(&rows) && gx_runs_row(&runs, at) == t, "row %ld is %ld",
                      (long)t, (long)at);
                before = at, seen[at]++;
            }
            CHECK(gx_runs_row(&runs, gx_split_total(&rows)) < 0, "a row behind the end");
        }
        for (int64_t t = 0; t < gx_split_total(&rows); t++)
            CHECK(seen[t] == 1, "%ld ranks have position %ld", (long)seen[t], (long)t);
    }
}

TEST(rows_that_cannot_be_shared_are_refused)
{
    const int64_t none[] = {3, 0, 2};
    const GxSplit rows = rows_of(none, 3), two = gx_split_even(8, 2);
    GxCp cp;
    GxError e = GX_ZERO, f = GX_ZERO;
    CHECK(gx_cp_open(&cp, 0, &rows, 1, &e) == GX_ERR_ARGUMENT && strstr(e.message, "rank 1 of the 3"), "%s", e.message);
    CHECK(gx_cp_open(&cp, 0, &two, GX_CP_ZIGZAGS + 1, &f) == GX_ERR_ARGUMENT, "%s", f.message);
}

// ---- how much attention that is ------------------------------------------------------------------------------------

TEST(of_causal_attention_each_rank_has_as_much_as_of_the_rows)
{
    for (int i = 0; i < 500; i++) {
        const int n = (int)any(2, 8);
        int64_t part[8];
        for (int r = 0; r < n; r++) part[r] = 2 * any(1, 30);
        const GxSplit rows = rows_of(part, n);
        const GxCp cp = open_cp(&rows, 1);
        const int64_t T_all = gx_split_total(&rows);
        for (int r = 0; r < n; r++) {
            GxAttention a = GX_ZERO;
            a.causal = 1, a.q_runs = gx_cp_runs(&cp, r), a.k_runs = gx_runs_one(T_all, 0);
            CHECK(2 * gx_attention_pairs(&a) == part[r] * (T_all + 1), "rank %d of %d: %ld pairs for %ld rows", r, n,
                  (long)gx_attention_pairs(&a), (long)part[r]);
        }
    }
}

// The busiest rank's pairs over their mean, of a sequence with `cuts` documents that begin anywhere.
static double busiest(const GxCp *cp, int64_t length, int cuts)
{
    static int64_t begin[1 << 14];
    double most = 0, all = 0;
    memset(begin, 0, sizeof begin);
    for (int i = 0; i < cuts; i++) begin[any(1, length - 1)] = 1;
    for (int64_t t = 1, at = 0; t < length; t++) at = begin[t] = begin[t] ? t : at;
    for (int r = 0; r < cp->n; r++) {
        const GxRuns runs = gx_cp_runs(cp, r);
        double pairs = 0;
        for (int64_t t = 0; t < gx_runs_rows(&runs); t++) {
            const int64_t at = gx_runs_position(&runs, t);
            pairs += (double)(at - begin[at] + 1);
        }
        most = fmax(most, pairs), all += pairs;
    }
    return most * cp->n / all;
}

// What is expected was simulated elsewhere: 8 ranks, 12 cuts.
TEST(zigzags_balance_sequences_of_several_documents)
{
    static const struct {
        int zigzags;
        double expected;
    } of[] = {{1, 1.80}, {2, 1.53}, {4, 1.32}, {8, 1.19}};
    enum { LENGTH = 1 << 12, TIMES = 400 };
    const GxSplit rows = gx_split_even(LENGTH, 8);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const GxCp cp = open_cp(&rows, of[i].zigzags);
        double mean = 0;
        for (int k = 0; k < TIMES; k++) mean += busiest(&cp, LENGTH, 12) / TIMES;
        CHECK(fabs(mean - of[i].expected) < 0.05, "%d zigzags: %.3f, expected %.2f", of[i].zigzags, mean,
              of[i].expected);
    }
}

// ---- what is sent --------------------------------------------------------------------------------------------------

// A layer's keys and values, of each sample, go from each rank to every other; so do their gradients, to their owners.
// By a ring each rank sends as many blocks on as there are others; in the backward also their gradients, which go one
// further, to be at home.
static void check_sent(Layout l)
{
    Rank rank[MAX_RANKS];
    int64_t sent = 0, times = 0;
    const int64_t of_row = 2 * model_config.num_key_value_heads * model_config.head_dim * 4, others = l.cp - 1;
    run_ranks(&l, rank);
    for (int r = 0; r < ranks_of(&l); r++) {
        const GxRecorder *e = &rank[r].result.window;
        for (int64_t i = 0; i < e->n; i++) {
            const GxEvent *event = &e->event[i];
            if (event->kind != GX_EVENT_COLLECTIVE || event->axes != GX_AXIS_CP || !event->site ||
                strcmp(event->site, "att"))
                continue;
            sent += event->bytes, times++;
        }
    }
    const int64_t blocks = l.ring ? 2 * others + l.cp : 2 * others, calls = l.ring ? 2 * blocks : 2,
                  all = LAYERS * columns_of(&l) * l.micro * T * of_row * blocks;
    CHECK(sent == all, "%s: %ld bytes, not %ld", l.what, (long)sent, (long)all);
    CHECK(times == LAYERS * l.micro * ranks_of(&l) * calls, "%s: %ld messages", l.what, (long)times);
    free_ranks(&l, rank);
}

TEST(ranks_that_share_sequences_send_what_formulas_say)
{
    for (int ring = 0; ring < 2; ring++) {
        const Layout two = {.what = "cp 2",
                            .mode = &test_serial,
                            .dp = 1,
                            .tp = 1,
                            .micro = 2,
                            .samples = {3},
                            .cp = 2,
                            .ring = ring},
                     uneven = {.what = "cp 3, uneven",
                               .mode = &test_serial,
                               .dp = 1,
                               .tp = 1,
                               .micro = 1,
                               .samples = {2},
                               .cp = 3,
                               .ring = ring,
                               .cp_rows = {5, 1, 2}};
        check_sent(two), check_sent(uneven);
    }
}

// Keys and values of all rows on each rank, or of its own.
TEST(a_ring_keeps_the_keys_and_values_of_its_own_rows_alone)
{
    int64_t bytes[2];
    for (int ring = 0; ring < 2; ring++) {
        TestModel *t = (TestModel *)calloc(1, sizeof *t);
        GxCp cp;
        GxError e = GX_ZERO;
        const GxSplit rows = gx_split_even(T, 4);
        if (!CHECK(test_model_open(t, &model_config, &test_serial, T, 1, 8, NULL, 1), "no model")) return;
        CHECK(gx_cp_open(&cp, 0, &rows, 1, &e) == GX_OK, "%s", e.message);
        cp.by_ring = ring;
        t->m.cp = cp, t->m.max_T = 2;
        bytes[ring] = gx_slot_bytes(&t->m, 1, 2, 1, 0);
        t->m.cp.n = 0;
        test_model_close(t);
        free(t);
    }
    const int64_t of_row = 2 * model_config.num_key_value_heads * model_config.head_dim * 4;
    CHECK(bytes[0] - bytes[1] == gx_round_up(T * of_row, GX_ALIGN) - gx_round_up(2 * of_row, GX_ALIGN),
          "%ld and %ld bytes of a layer", (long)bytes[0], (long)bytes[1]);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
