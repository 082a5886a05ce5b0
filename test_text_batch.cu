// test_text_batch.cu: texts in the columns of a batch, the rows that losses are about, and which texts a column gets.
#include "galaxy/task/text_batch.h"
#include "test/test.h"

// ---- batches -------------------------------------------------------------------------------------------------------

static void is(const char *what, const int32_t *found, const int32_t *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!CHECK(found[i] == expected[i], "%s[%ld] is %d, expected %d", what, (long)i, found[i], expected[i])) return;
}

enum { T = 5, B = 2, ROOM = 4096 };
static const GxTextLayout two = {9, 2, {{2, 0}, {1, 3}}, 0, 0}; // target 0: labels; target 1: 3 values each

TEST(arrays_lie_behind_each_other_in_a_block_and_its_host)
{
    static const GxTextLayout layouts[] = {two, {0, 1, {{1, GX_TEXT_ROWS_ALONE}}, 0, 0}, {0, 0, {{0, 0}}, 0, 0}};
    for (int i = 0; i < 3; i++) {
        const GxTextLayout *l = &layouts[i];
        static char block[ROOM], host_copy[ROOM];
        GxTextArrays a;
        GxBatch b = GX_ZERO;
        b.T = T, b.B = B;
        const int64_t bytes = gx_text_layout(l, &b, NULL, NULL);
        CHECK(!b.tokens && !b.target[0].rows, "arrays of no block");
        CHECK(gx_text_layout(l, &b, block, host_copy) == bytes && bytes % GX_ALIGN == 0 && bytes <= ROOM, "%ld bytes",
              (long)bytes);
        gx_text_arrays(l, T, B, host_copy, &a);
        for (int k = 0; k < l->targets; k++) {
            const GxTarget *t = &b.target[k];
            CHECK(t->n == l->target[k].most * B, "target %d: at most %ld rows", k, (long)t->n);
            CHECK(t->rows_host == a.rows[k] && t->labels_host == a.labels[k], "target %d: its host_copy", k);
            CHECK((t->labels != NULL) == (l->target[k].outputs == 0) &&
                      (t->values != NULL) == (l->target[k].outputs > 0),
                  "target %d: labels, or values, or neither", k);
        }
        // each array has its room: what is written to one is in no other
        memset(host_copy, 0, sizeof host_copy);
        memset(a.tokens, 1, 4 * T * B), memset(a.types, 2, 4 * T * B), memset(a.positions, 3, 4 * T * B);
        memset(a.documents, 4, 8 * T * B);
        for (int k = 0; k < l->targets; k++) {
            const int64_t most = l->target[k].most * B;
            memset(a.rows[k], 5 + 3 * k, (size_t)most * 4);
            if (a.labels[k]) memset(a.labels[k], 6 + 3 * k, (size_t)most * 4);
            if (a.values[k]) memset(a.values[k], 7 + 3 * k, (size_t)(most * l->target[k].outputs) * 4);
        }
        int64_t of[16] = {0}, sum = 5 * T * B * 4;
        for (int64_t j = 0; j < ROOM; j++) of[(int)host_copy[j]]++;
        CHECK(of[1] == 4 * T * B && of[2] == 4 * T * B && of[3] == 4 * T * B && of[4] == 8 * T * B, "overlap");
        for (int k = 0; k < l->targets; k++) {
            const int64_t outputs = l->target[k].outputs, most = l->target[k].most * B,
                          words = 1 + (outputs == 0  ? 1
                                       : outputs > 0 ? outputs
                                                     : 0);
            sum += most * words * 4;
            CHECK(of[5 + 3 * k] + of[6 + 3 * k] + of[7 + 3 * k] == most * words * 4, "target %d overlaps", k);
        }
        CHECK(of[0] == ROOM - sum, "written beyond the arrays");
        for (int64_t j = bytes; j < ROOM; j++) CHECK(host_copy[j] == 0, "byte %ld is beyond the block", (long)j);
    }
}

// Of a RoBERTa whose padding is token 2: it has row 2 of the positions, and the others count from 3 in each text.
TEST(positions_begin_behind_the_padding_token_and_do_not_count_it)
{
    static const GxTextLayout layout = {2, 0, {{0, 0}}, 3, 1}, plain = {2, 0, {{0, 0}}, 3, 0};
    static const int32_t first[] = {0, 2, 7}, second[] = {2, 5}, expected[][T] = {{3, 2, 4, 2, 3}, {3, 4, 5, 3, 4}};
    for (int i = 0; i < 2; i++) {
        static char host_copy[ROOM];
        GxTextWriter w;
        GxBatch b = GX_ZERO;
        b.T = T, b.B = B;
        gx_text_begin(&w, i ? &plain : &layout, &b, host_copy);
        gx_text_put(&w, 1, 0, first, NULL, 3), gx_text_put(&w, 1, 3, second, NULL, 2);
        gx_text_finish(&w);
        for (int t = 0; t < T; t++) {
            is("positions", &w.to.positions[t * B + 1], &expected[i][t], 1);
            CHECK(w.to.positions[t * B] == 0 && w.to.tokens[t * B] == 2, "padding behind texts");
        }
    }
}

// Column 0: the texts 1 2 and 3 4 5 (types 0 1 1); column 1: the text 6 7 8, then padding. By hand.
TEST(a_batch_is_what_one_writes_by_hand)
{
    static const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 8}, types[] = {0, 1, 1};
    static const int32_t tokens[] = {1, 6, 2, 7, 3, 8, 4, 9, 5, 9}, type[] = {0, 0, 0, 0, 0, 0, 1, 0, 1, 0},
                         positions[] = {0, 0, 1, 1, 0, 2, 1, 0, 2, 0},
                         documents[] = {0, 2, 0, 3, 0, 2, 0, 3, 2, 5, 0, 3, 2, 5, 0, 0, 2, 5, 0, 0};
    static const int32_t rows0[] = {0, 3, 5, 8}, labels0[] = {11, 14, 12, 13}, rows1[] = {1, 4};
    static const float first[] = {1, 2, 3}, second[] = {4, 5, 6};
    char host_copy[ROOM];
    GxBatch b = GX_ZERO;
    GxTextWriter w;
    memset(host_copy, 0x55, sizeof host_copy);
    b.T = T, b.B = B;
    for (int again = 0; again < 2; again++) { // what a batch held before leaves no trace
        gx_text_layout(&two, &b, host_copy, host_copy);
        gx_text_begin(&w, &two, &b, host_copy);
        gx_text_put(&w, 0, 0, text, NULL, 2);
        gx_text_put(&w, 0, 2, text + 2, types, 3);
        gx_text_put(&w, 1, 0, text + 5, NULL, 3);
        gx_text_label(&w, 0, 0, 0, 11);
        gx_text_label(&w, 0, 0, 4, 13);
        gx_text_label(&w, 0, 1, 1, 14);
        gx_text_label(&w, 0, 1, 2, 12);
        gx_text_values(&w, 1, 0, 2, second);
        gx_text_values(&w, 1, 1, 0, first);
        gx_text_finish(&w);
        is("tokens", b.tokens, tokens, T * B);
        is("types", b.types, type, T * B);
        is("positions", b.positions, positions, T * B);
        is("documents", b.documents, documents, 2 * T * B);
        CHECK(b.target[0].n == 4 && b.target[1].n == 2, "%ld and %ld rows", (long)b.target[0].n, (long)b.target[1].n);
        is("rows of target 0", b.target[0].rows_host, rows0, 4);
        is("labels", b.target[0].labels_host, labels0, 4);
        is("rows of target 1", b.target[1].rows_host, rows1, 2);
        CHECK(!memcmp(b.target[1].values, first, sizeof first) &&
                  !memcmp(b.target[1].values + 3, second, sizeof second),
              "values go with their rows");
        int64_t count[GX_MAX_LOSSES] = {100, 0, 0, 7};
        gx_text_counts(&two, &b, count);
        CHECK(count[0] == 104 && count[1] == 2 && count[3] == 7, "counts");
    }
}

TEST(a_batch_without_texts_is_padding_and_nothing_counts)
{
    char host_copy[ROOM];
    GxBatch b = GX_ZERO;
    GxTextWriter w;
    b.T = T, b.B = B;
    gx_text_layout(&two, &b, host_copy, host_copy);
    gx_text_begin(&w, &two, &b, host_copy);
    gx_text_finish(&w);
    for (int i = 0; i < T * B; i++)
        CHECK(b.tokens[i] == 9 && b.documents[2 * i] == b.documents[2 * i + 1] && b.positions[i] == 0 &&
                  b.types[i] == 0,
              "row %d", i);
    CHECK(b.target[0].n == 0 && b.target[1].n == 0 && b.target[0].rows != NULL, "no row counts, and not all do");
}

TEST(rows_are_sorted_however_many_there_are)
{
    enum { COLUMNS = 37, LENGTH = 53 };
    static const GxTextLayout l = {0, 1, {{LENGTH, 0}}, 0, 0};
    static char host_copy[1 << 17];
    GxBatch b = GX_ZERO;
    GxTextWriter w;
    b.T = LENGTH, b.B = COLUMNS;
    CHECK(gx_text_layout(&l, &b, host_copy, host_copy) <= (int64_t)sizeof host_copy, "room");
    for (uint64_t seed = 0; seed < 50; seed++) {
        int64_t n = 0;
        gx_text_begin(&w, &l, &b, host_copy);
        for (int c = 0; c < COLUMNS; c++)
            for (int t = 0; t < LENGTH; t++)
                if (gx_random_bits(seed, (uint64_t)(c * LENGTH + t), 0, 1) % 50 <= seed) {
                    gx_text_label(&w, 0, c, t, 3 * (t * COLUMNS + c));
                    n++;
                }
        gx_text_finish(&w);
        CHECK(b.target[0].n == n, "%ld rows of %ld", (long)b.target[0].n, (long)n);
        for (int64_t i = 0; i < n; i++)
            CHECK((i == 0 || w.to.rows[0][i] > w.to.rows[0][i - 1]) && w.to.labels[0][i] == 3 * w.to.rows[0][i],
                  "row %ld", (long)i);
    }
}

// ---- texts into columns --------------------------------------------------------------------------------------------

enum { TEXTS = 211, WIDTH = 32 };
static int32_t lengths[TEXTS];
static void draw_lengths(void)
{
    for (int i = 0; i < TEXTS; i++) lengths[i] = 1 + (int32_t)(gx_random_bits(5, (uint64_t)i, 0, 1) % WIDTH);
}

TEST(an_epoch_has_every_text_once_and_columns_are_as_full_as_next_fit_makes_them)
{
    static const int most[] = {0, 1, 2, 3, WIDTH};
    draw_lengths();
    for (int m = 0; m < 5; m++) {
        GxTextPacking p;
        GxError err = GX_ZERO;
        if (!CHECK(gx_text_packing_open(&p, lengths, TEXTS, WIDTH, most[m], &err) == GX_OK, "%s", err.message)) return;
        int64_t c = 0, differ = 0, first_epoch[TEXTS];
        for (int epoch = 0; epoch < 3; epoch++) {
            int seen[TEXTS] = {0};
            int64_t all = 0, before = 0, before_n = 0;
            while (all < TEXTS) {
                const int64_t *text;
                int64_t n, tokens = 0;
                gx_text_packing_column(&p, 3, c++, &text, &n);
                if (!CHECK(n >= 1 && (!most[m] || n <= most[m]), "%ld texts in a column", (long)n)) return;
                for (int64_t i = 0; i < n; i++) {
                    if (epoch == 0) first_epoch[all] = text[i];
                    differ += epoch > 0 && first_epoch[all] != text[i];
                    seen[text[i]]++, tokens += lengths[text[i]], all++;
                }
                CHECK(tokens <= WIDTH, "%ld tokens in a column of %d", (long)tokens, WIDTH);
                CHECK(before == 0 || before + lengths[text[0]] > WIDTH || before_n == most[m],
                      "text %ld had room in the column before", (long)text[0]);
                before = tokens, before_n = n;
            }
            CHECK(all == TEXTS, "an epoch ends with its texts");
            if (epoch == 0) CHECK(gx_text_packing_columns(&p, 3) == c, "columns of the first epoch");
            for (int i = 0; i < TEXTS; i++) CHECK(seen[i] == 1, "text %d comes %d times", i, seen[i]);
        }
        CHECK(differ > TEXTS, "another order in each epoch: %ld of %d differ", (long)differ, 2 * TEXTS);
        gx_text_packing_close(&p);
    }
}

// Of pairs either text may be what does not fit.
TEST(columns_of_pairs_hold_both_texts_and_are_as_full_as_next_fit_makes_them)
{
    enum { OTHERS = 5 * WIDTH / 4 };
    static int32_t others[TEXTS];
    GxTextPacking p;
    GxError err = GX_ZERO;
    int64_t all = 0, before[2] = {WIDTH, OTHERS}, why[2] = {0, 0};
    draw_lengths();
    for (int i = 0; i < TEXTS; i++)
        others[i] = 1 + (int32_t)(gx_random_bits(9, (uint64_t)i, 0, 1) % (2 * (uint32_t)lengths[i]));
    for (int i = 0; i < TEXTS; i++) others[i] = (int32_t)gx_min(others[i], OTHERS);
    if (!CHECK(gx_text_packing_open(&p, lengths, TEXTS, WIDTH, 0, &err) == GX_OK &&
                   gx_text_packing_pair(&p, others, OTHERS, &err) == GX_OK,
               "%s", err.message))
        return;
    for (int64_t c = 0; all < TEXTS; c++) {
        const int64_t *text;
        int64_t n, tokens[2] = {0, 0};
        gx_text_packing_column(&p, 3, c, &text, &n);
        const int fits[2] = {before[0] + lengths[text[0]] <= WIDTH, before[1] + others[text[0]] <= OTHERS};
        CHECK(!fits[0] || !fits[1], "pair %ld had room in the column before", (long)text[0]);
        for (int k = 0; k < 2; k++) why[k] += !fits[k] && fits[1 - k];
        for (int64_t i = 0; i < n; i++, all++) tokens[0] += lengths[text[i]], tokens[1] += others[text[i]];
        CHECK(tokens[0] <= WIDTH && tokens[1] <= OTHERS, "%ld and %ld tokens", (long)tokens[0], (long)tokens[1]);
        memcpy(before, tokens, sizeof before);
    }
    CHECK(why[0] > 5 && why[1] > 5, "%ld columns end for the first text alone, %ld for the other", (long)why[0],
          (long)why[1]);
    gx_text_packing_close(&p);
    others[5] = OTHERS + 1;
    CHECK(gx_text_packing_open(&p, lengths, TEXTS, WIDTH, 0, &err) == GX_OK &&
              gx_text_packing_pair(&p, others, OTHERS, &err) != GX_OK && strstr(err.message, "text 5 has"),
          "%s", err.message);
    gx_text_packing_close(&p);
}

// Whoever asks for some of the columns, in whatever order, gets those that one gets who asks for all.
TEST(a_column_depends_on_seed_and_number_alone)
{
    enum { COLUMNS = 500 };
    GxError err = GX_ZERO;
    GxTextPacking all, some;
    draw_lengths();
    for (int most = 0; most < 2; most++) {
        int64_t sum[COLUMNS], differ = 0;
        CHECK(gx_text_packing_open(&all, lengths, TEXTS, WIDTH, most, &err) == GX_OK &&
                  gx_text_packing_open(&some, lengths, TEXTS, WIDTH, most, &err) == GX_OK,
              "%s", err.message);
        const int64_t *text;
        int64_t n;
        for (int c = 0; c < COLUMNS; c++) {
            gx_text_packing_column(&all, 7, c, &text, &n);
            sum[c] = (int64_t)gx_hash(GX_HASH_START, text, n * 8);
        }
        for (int i = 0; i < COLUMNS; i++) {
            const int64_t c = i < 100 ? COLUMNS - 1 - i : gx_permute(1, 0, COLUMNS, i);
            if (i >= 100) gx_text_packing_column(&some, 8, c, &text, &n); // another seed in between
            differ += i >= 100 && sum[c] != (int64_t)gx_hash(GX_HASH_START, text, n * 8);
            gx_text_packing_column(&some, 7, c, &text, &n);
            CHECK(sum[c] == (int64_t)gx_hash(GX_HASH_START, text, n * 8), "column %ld", (long)c);
        }
        CHECK(differ > (COLUMNS - 100) * 9 / 10, "another seed, another order: %ld differ", (long)differ);
        gx_text_packing_close(&all);
        gx_text_packing_close(&some);
    }
}

TEST(texts_that_fit_no_column_are_refused)
{
    GxTextPacking p;
    GxError err = GX_ZERO;
    int32_t length[] = {3, 5, 4};
    CHECK(gx_text_packing_open(&p, length, 3, 4, 0, &err) == GX_ERR_ARGUMENT &&
              strstr(err.message, "text 1 has 5 tokens; a column holds from 1 to 4"),
          "%s", err.message);
    gx_text_packing_close(&p);
    gx_error_clear(&err);
    CHECK(gx_text_packing_open(&p, length, 0, 4, 0, &err) == GX_ERR_ARGUMENT && strstr(err.message, "no text"), "%s",
          err.message);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
