// test_base.cu: status, arena, random numbers, tensor table, store, mesh, partitions, recorder, types,
// text; and the tests' own frame.
#include "rooms/base.c" // looks inside
#include "galaxy/base/context.h"
#include "galaxy/base/dtype.h"
#include "galaxy/base/mesh.h"
#include "galaxy/base/partition.h"
#include "galaxy/base/random.h"
#include "galaxy/base/store.h"
#include "galaxy/base/text.h"
#include "test/test.h"
#include <sys/wait.h>
#include <unistd.h>

TEST(first_error_stays)
{
    GxError err = GX_ZERO;
    GX_FAIL(&err, GX_ERR_IO, "first %d", 1);
    GX_FAIL(&err, GX_ERR_MEMORY, "second");
    CHECK(gx_error_code(&err) == GX_ERR_IO && !strcmp(err.message, "first 1"), "code %d, message %s", err.code,
          err.message);
    gx_error_clear(&err);
    CHECK(gx_error_code(&err) == GX_OK, "code %d after clear", err.code);
}

TEST(a_message_can_be_read_whatever_it_quotes)
{
    static const struct {
        const char *quoted, *says;
    } list[] = {{"caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\"caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\""},
                {"a\xFF\xC3", "\"a??\""},                                      // bytes that are no characters
                {"\xC0\xAF \xED\xA0\x80 \xF4\x90\x80\x80", "\"?? ??? ????\""}, // overlong, half of a pair, too large
                {"\x1B[31mred\x7F\r", "\"?[31mred??\""},                       // what a terminal would obey
                {"\xC2\x9B"
                 "31mred \xC2\xA0",
                 "\"??31mred \xC2\xA0\""},                                     // the same in one character
                {"12345678901234567\xE2\x82\xAC", "\"12345678901234567??\""}}; // cut off by %.19s
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxError err = GX_ZERO;
        GX_FAIL(&err, GX_ERR_FORMAT, "\"%.19s\"", list[i].quoted);
        CHECK(!strcmp(err.message, list[i].says), "%d: %s", (int)i, err.message);
    }
}

static void note_line(void *user, GxLogLevel level, const char *text)
{
    (void)level;
    snprintf((char *)user, 100, "%s", text);
}

TEST(a_line_of_the_log_can_be_read_whatever_it_quotes)
{
    char line[100] = "";
    const GxLogger log = {note_line, line};
    gx_log(&log, GX_LOG_WARNING, "out/%s is not whole", "\xC3\x1B]0;");
    CHECK(!strcmp(line, "out/??]0; is not whole"), "%s", line);
}

// The known answers of Random123's kat_vectors for philox4x32, 10 rounds.
// A path of thousands of bytes leaves room for what the message is about.
TEST(a_message_that_is_too_long_keeps_its_beginning_and_its_end)
{
    GxError err = GX_ZERO;
    char path[4001], short_text[20];
    for (int i = 0; i < 4000; i += 2) memcpy(path + i, "é", 2); // cut at any byte, half of the cuts would be wrong
    for (int shift = 0; shift < 2; shift++) {
        path[4000] = 0;
        gx_error_clear(&err);
        GX_FAIL(&err, GX_ERR_IO, "%scannot open %s: No such file", shift ? "x" : "", path);
        const char *dots = strstr(err.message, "…"), *wrong = NULL;
        for (const char *p = err.message; *p && !wrong; p++) // between ASCII and the dots: whole characters
            if ((*p == '\xC3') != (p[1] == '\xA9')) wrong = p;
        CHECK(strlen(err.message) > sizeof err.message - 4 && dots && !strstr(dots + 1, "…") && !wrong, "%s", wrong);
        CHECK(strstr(err.message, "cannot open éé") && strstr(err.message, "éé: No such file"), "%s", err.message);
    }
    gx_error_clear(&err);
    memset(short_text, 'x', 19), short_text[19] = 0;
    for (int n = (int)sizeof err.message - 25; n < (int)sizeof err.message - 15; n++) { // with and without
        gx_error_clear(&err);
        GX_FAIL(&err, GX_ERR_IO, "%0*d%s", n, 7, short_text);
        const int fits = n + 19 < (int)sizeof err.message;
        CHECK((strstr(err.message, "…") == NULL) == fits && strlen(err.message) == (size_t)(fits ? n + 19 : 599),
              "%d bytes: %d, %s", n + 19, (int)strlen(err.message), err.message);
    }
}

TEST(philox_gives_the_published_numbers)
{
    GxRandom4 zero = gx_philox(0, 0, 0, 0);
    CHECK(zero.w[0] == 0x6627e8d5 && zero.w[1] == 0xe169c58d && zero.w[2] == 0xbc57ac4c && zero.w[3] == 0x9b00dbd8,
          "%08x %08x %08x %08x", zero.w[0], zero.w[1], zero.w[2], zero.w[3]);
    GxRandom4 ones = gx_philox(~0ull, ~0ull, ~0u, ~0u);
    CHECK(ones.w[0] == 0x408f276d && ones.w[1] == 0x41c83b0e && ones.w[2] == 0xa20bc7c6 && ones.w[3] == 0x6d5451fd,
          "%08x %08x %08x %08x", ones.w[0], ones.w[1], ones.w[2], ones.w[3]);
    GxRandom4 pi = gx_philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x13198a2e, 0x03707344);
    CHECK(pi.w[0] == 0xd16cfe09 && pi.w[1] == 0x94fdcceb && pi.w[2] == 0x5001e420 && pi.w[3] == 0x24126ea1,
          "%08x %08x %08x %08x", pi.w[0], pi.w[1], pi.w[2], pi.w[3]);
}

TEST(normal_numbers_have_mean_0_and_variance_1)
{
    const int n = 100000;
    double sum = 0, squares = 0, products = 0;
    float before = gx_random_normal(7, 0, 0, 1);
    for (int i = 1; i <= n; i++) {
        float x = gx_random_normal(7, (uint64_t)i, 0, 1);
        sum += x;
        squares += (double)x * x;
        products += (double)x * before;
        before = x;
    }
    double sigma = 1 / sqrt(n); // standard deviation of each of the three means; 5 of them
    CHECK(fabs(sum / n) < 5 * sigma, "mean %g", sum / n);
    CHECK(fabs(squares / n - 1) < 5 * sqrt(2) * sigma, "variance %g", squares / n);
    CHECK(fabs(products / n) < 5 * sigma, "correlation of neighbours %g", products / n);
}

static void lay_out(GxArena *a, char *take[3])
{
    take[0] = (char *)gx_arena_allocate(a, GX_MEM_WEIGHTS, 100);
    GxArenaMark mark = gx_arena_mark(a);
    gx_arena_allocate(a, GX_MEM_WORKSPACE, 1000);
    gx_arena_release(a, mark);
    take[1] = (char *)gx_arena_allocate(a, GX_MEM_GRADS, 1);
    take[2] = (char *)gx_arena_allocate(a, GX_MEM_WORKSPACE, 64);
}

TEST(dry_arena_counts_what_the_real_one_needs)
{
    GxError err = GX_ZERO;
    GxArena dry, real;
    char *take[3];
    gx_arena_open_dry(&dry);
    lay_out(&dry, take);
    CHECK(dry.peak == 128 + 1024, "peak %ld", (long)dry.peak);
    CHECK(dry.kind_peak[GX_MEM_WORKSPACE] == 1024 && dry.kind_used[GX_MEM_WORKSPACE] == 64, "workspace %ld, %ld",
          (long)dry.kind_peak[GX_MEM_WORKSPACE], (long)dry.kind_used[GX_MEM_WORKSPACE]);
    CHECK(gx_arena_open(&real, dry.peak, &err) == GX_OK, "%s", err.message);
    lay_out(&real, take);
    CHECK(real.peak == dry.peak && !real.exhausted, "peak %ld of %ld", (long)real.peak, (long)dry.peak);
    for (int i = 0; i < 3; i++) CHECK((size_t)take[i] % GX_ALIGN == 0, "buffer %d at %p", i, (void *)take[i]);
    memset(take[0], 1, 100);
    CHECK(take[1] == take[0] + 128, "scratch was not given back");
    CHECK(gx_arena_allocate(&real, GX_MEM_GRADS, 1000) == NULL && real.exhausted,
          "a take beyond the capacity was given");
    gx_arena_close(&real);
}

static GxTensor tensor(const char *name, int unit, int64_t rows, int64_t cols)
{
    GxTensor t = GX_ZERO;
    snprintf(t.name, sizeof t.name, "%s", name);
    t.unit = unit;
    t.ndim = 2;
    t.global_shape[0] = t.end[0] = rows;
    t.global_shape[1] = t.end[1] = cols;
    t.init_std = 1;
    return t;
}

TEST(table_finds_names_and_refuses_what_cannot_be)
{
    GxError err = GX_ZERO;
    GxTable table = GX_ZERO;
    GxTensor q = tensor("q", 0, 3, 5), k = tensor("k", 1, 1, 5), late = tensor("late", 0, 2, 2),
             head = tensor("head", 1, 3, 5);
    const GxTensorId iq = gx_table_add(&table, &q, &err), ik = gx_table_add(&table, &k, &err);
    CHECK(err.code == GX_OK && table.units == 2, "%s", err.message);
    CHECK(gx_table_find(&table, "k").index == ik.index && gx_table_find(&table, "nope").index < 0, "find");
    CHECK(gx_table_add(&table, &q, &err).index < 0 && strstr(err.message, "twice"), "%s", err.message);
    gx_error_clear(&err);
    CHECK(gx_table_add(&table, &late, &err).index < 0 && strstr(err.message, "in ascending order"), "%s", err.message);
    gx_error_clear(&err);
    head.has_alias = 1, head.alias.index = 7;
    CHECK(gx_table_add(&table, &head, &err).index < 0 && strstr(err.message, "not in the table"), "%s", err.message);
    gx_error_clear(&err);
    head.alias = iq;
    CHECK(gx_table_add(&table, &head, &err).index == 2 && gx_table_parameters(&table) == 20,
          "%ld parameters, tied ones once", (long)gx_table_parameters(&table));
    gx_table_close(&table);
}

// ---- frozen tensors ------------------------------------------------------------------------------------------------

static const char *const frozen_names[] = {"embed.weight", "layers.0.norm", "layers.0.q", "layers.1.norm",
                                           "layers.1.q",   "layers.10.q",   "tied.a",     "tied.b"};
enum { FROZEN_NAMES = sizeof frozen_names / sizeof *frozen_names };

// As a letter each: f frozen, . trained. tied.a and tied.b are other names of embed.weight.
static void freezes(const char *patterns, const char *wanted, const char *says)
{
    GxError err = GX_ZERO;
    GxTable table = GX_ZERO;
    char found[FROZEN_NAMES + 1] = "";
    int n = 0;
    for (int i = 0; i < FROZEN_NAMES; i++) {
        GxTensor t = tensor(frozen_names[i], 0, 2, 2);
        t.has_alias = !strncmp(t.name, "tied", 4);
        gx_table_add(&table, &t, &err);
    }
    CHECK(err.code == GX_OK, "%s", err.message);
    const int count = gx_table_freeze(&table, patterns, &err);
    for (int i = 0; i < FROZEN_NAMES; i++) found[i] = table.row[i].frozen ? 'f' : '.', n += table.row[i].frozen;
    CHECK(!strcmp(found, wanted) && count == n, "\"%s\" freezes %s (%d of them, it says), not %s", patterns, found,
          count, wanted);
    CHECK(says ? strstr(err.message, says) != NULL : err.code == GX_OK, "\"%s\": %s", patterns, err.message);
    gx_table_close(&table);
}

TEST(tensors_are_frozen_by_patterns_of_their_names)
{
    freezes("layers.0.q", "..f.....", NULL);
    freezes("layers.*.q", "..f.ff..", NULL);
    freezes("layers.?.q", "..f.f...", NULL);
    freezes("*norm", ".f.f....", NULL);
    freezes("layers.1*,*.norm", ".f.fff..", NULL);
    freezes("layers.0.*,layers.0.q", ".ff.....", NULL); // one that two patterns match counts once
    freezes("*", "ffffffff", NULL);
    freezes("***0*q", "..f..f..", NULL);
}

TEST(a_tensor_is_frozen_under_all_its_names)
{
    freezes("embed.*", "f.....ff", NULL);
    freezes("tied.a", "f.....ff", NULL);
    freezes("tied.b", "f.....ff", NULL);
}

TEST(a_pattern_that_no_name_matches_is_refused)
{
    freezes("layers.2.q", "........", "no tensor is called \"layers.2.q\"; names are like layers.1.q");
    freezes("layers.0.", "........", "\"layers.0.\"");
    freezes("layers.1.q,nope,layers.0.q", "..f.f...", "\"nope\"");
    freezes("q", "........", "\"q\"");
}

// ---- first values --------------------------------------------------------------------------------------------------

TEST(initial_values_do_not_depend_on_the_split)
{
    GxTensor whole = tensor("w", 0, 6, 10), part = whole;
    part.begin[0] = 2, part.end[0] = 5, part.begin[1] = 3, part.end[1] = 7;
    float all[60], mine[12];
    gx_tensor_init(&whole, 99, 0, gx_tensor_count(&whole), all);
    gx_tensor_init(&part, 99, 0, gx_tensor_count(&part), mine);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 4; c++) CHECK(mine[r * 4 + c] == all[(r + 2) * 10 + c + 3], "row %d, column %d", r, c);
    gx_tensor_init(&part, 99, 5, 4, mine); // elements 5 to 8 by themselves
    for (int i = 0; i < 4; i++)
        CHECK(mine[i] == all[gx_tensor_global_index(&part, 5 + i)], "element %d of the box", 5 + i);
}

// Nothing but the name, the seed and the place in the tensor: not the unit, the rows before it in the table, its role
// or dtype.
TEST(initial_values_follow_the_name_alone)
{
    GxTensor a = tensor("layers.0.q", 0, 4, 8), same = tensor("layers.0.q", 5, 4, 8),
             other = tensor("layers.0.k", 0, 4, 8);
    float x[32], y[32];
    int equal = 0;
    same.role = GX_ROLE_EMBEDDING, same.dtype = GX_BF16, same.packed = 1, same.frozen = 1;
    gx_tensor_init(&a, 7, 0, 32, x);
    gx_tensor_init(&same, 7, 0, 32, y);
    CHECK(!memcmp(x, y, sizeof x), "one name has two values");
    gx_tensor_init(&other, 7, 0, 32, y);
    for (int i = 0; i < 32; i++) equal += x[i] == y[i];
    CHECK(equal == 0, "%d of 32 values are those of another name", equal);
    gx_tensor_init(&a, 8, 0, 32, y);
    for (int i = 0; i < 32; i++) equal += x[i] == y[i];
    CHECK(equal == 0, "%d of 32 values are those of another seed", equal);
    a.init_std = 0.02f;
    gx_tensor_init(&a, 7, 0, 32, y);
    for (int i = 0; i < 32; i++) CHECK(y[i] == 0.02f * x[i], "value %d is not scaled by init_std", i);
    for (int zeros = 0; zeros < 2; zeros++) {
        a.init = zeros ? GX_INIT_ZEROS : GX_INIT_ONES;
        gx_tensor_init(&a, 7, 0, 32, y);
        for (int i = 0; i < 32; i++) CHECK(y[i] == !zeros, "value %d of %s is %g", i, zeros ? "zeros" : "ones", y[i]);
    }
}

// ---- where tensors lie ---------------------------------------------------------------------------------------------

enum { EMBED, NORM, Q, K, V, O, FINAL, HEAD, ROWS }; // of units 0, 1, 1, 1, 1, 1, 2, 2

// q, k and v are packed; the head is another name for the embedding.
static void open_rows(GxTable *table, const char *freeze)
{
    GxError err = GX_ZERO;
    GxTensor t[ROWS] = {tensor("embed", 0, 9, 5), tensor("norm", 1, 1, 5), tensor("q", 1, 4, 5),
                        tensor("k", 1, 2, 5),     tensor("v", 1, 2, 5),    tensor("o", 1, 5, 4),
                        tensor("final", 2, 1, 5), tensor("head", 2, 9, 5)};
    memset(table, 0, sizeof *table);
    t[K].packed = t[V].packed = 1;
    t[HEAD].has_alias = 1, t[HEAD].alias.index = EMBED;
    for (int i = 0; i < ROWS; i++) gx_table_add(table, &t[i], &err);
    if (freeze) gx_table_freeze(table, freeze, &err);
    CHECK(err.code == GX_OK, "%s", err.message);
}

static void check_places(const GxStore *s, const int64_t weight[ROWS], const int64_t trainable[ROWS])
{
    for (int i = 0; i < ROWS; i++) {
        CHECK(s->place[i].weight == weight[i], "%s: weights begin at %ld, not %ld", s->table->row[i].name,
              (long)s->place[i].weight, (long)weight[i]);
        CHECK(s->place[i].trainable == trainable[i], "%s: gradients begin at %ld, not %ld", s->table->row[i].name,
              (long)s->place[i].trainable, (long)trainable[i]);
    }
}

// 16 numbers to a line of 64 bytes. embed 45, norm 5, q|k|v 20+10+10, o 20, final 5.
TEST(packed_tensors_lie_behind_each_other_and_others_begin_a_line)
{
    static const int64_t place[ROWS] = {0, 48, 64, 84, 94, 112, 144, 0};
    GxError err = GX_ZERO;
    GxTable table;
    GxStore s;
    open_rows(&table, NULL);
    CHECK(gx_store_open(&s, &table, gx_units(0, 3), GX_F32, &err) == GX_OK, "%s", err.message);
    check_places(&s, place, place);
    CHECK(s.weights_n == 149 && s.trained_n == 149, "%ld weights, %ld are trained", (long)s.weights_n,
          (long)s.trained_n);
    for (int u = 0; u < 3; u++) CHECK(gx_store_trains_unit(&s, u), "unit %d", u);
    gx_store_close(&s);
    gx_table_close(&table);
}

// Weights lie as before. v is packed behind k, which has no gradient: v's begins a line, apart from q's.
TEST(what_is_frozen_has_a_weight_and_nothing_else)
{
    static const int64_t weight[ROWS] = {0, 48, 64, 84, 94, 112, 144, 0},
                         trainable[ROWS] = {-1, 0, 16, -1, 48, -1, -1, -1};
    GxError err = GX_ZERO;
    GxTable table;
    GxStore s;
    open_rows(&table, "head,k,o,final");
    CHECK(gx_store_open(&s, &table, gx_units(0, 3), GX_F32, &err) == GX_OK, "%s", err.message);
    check_places(&s, weight, trainable);
    CHECK(s.weights_n == 149 && s.trained_n == 58, "%ld weights, %ld are trained", (long)s.weights_n,
          (long)s.trained_n);
    CHECK(!gx_store_trains_unit(&s, 0) && gx_store_trains_unit(&s, 1) && !gx_store_trains_unit(&s, 2),
          "units that are trained");
    gx_store_close(&s);
    gx_table_close(&table);
}

TEST(a_rank_has_the_tensors_of_its_units)
{
    static const int64_t first[ROWS] = {0, 48, 64, 84, 94, 112, -1, -1}, middle[ROWS] = {-1, 0, 16, 36, 46, 64, -1, -1};
    GxError err = GX_ZERO;
    GxTable table;
    GxStore s;
    open_rows(&table, NULL);
    CHECK(gx_store_open(&s, &table, gx_units(0, 2), GX_F32, &err) == GX_OK, "%s", err.message);
    check_places(&s, first, first);
    CHECK(!gx_store_trains_unit(&s, 2), "a unit of others is trained here");
    gx_store_close(&s);
    CHECK(gx_store_open(&s, &table, gx_units(1, 2), GX_F32, &err) == GX_OK && s.weights_n == 84, "%s", err.message);
    check_places(&s, middle, middle);
    CHECK(gx_store_has(&s, Q) && !gx_store_has(&s, EMBED) && !gx_store_trains(&s, EMBED), "what it has");
    CHECK(gx_store_master_at(&s, EMBED, 0) == NULL && gx_store_grads(&s, EMBED) == NULL, "a place of what it has not");
    gx_store_close(&s);
    CHECK(gx_store_open(&s, &table, gx_units(1, 3), GX_F32, &err) == GX_OK, "%s", err.message);
    CHECK(!gx_store_is_alias(&s, HEAD) && gx_store_holder(&s, EMBED) == HEAD && gx_store_is_apart(&s, EMBED),
          "the head without its embedding has a copy of it");
    CHECK(gx_store_trains_unit(&s, 2) && gx_store_unit(&s, HEAD) == 2, "whose gradient is the head's unit's");
    gx_store_close(&s);
    gx_table_close(&table);
}

// Of two names of a tensor that another stage has, the first one is a copy, and the second a name of that.
TEST(a_rank_has_one_copy_of_a_tensor_that_several_of_its_units_share)
{
    GxError err = GX_ZERO;
    GxTable table = GX_ZERO;
    GxStore s;
    GxTensor t[4] = {tensor("embed", 0, 9, 5), tensor("again", 1, 9, 5), tensor("other", 1, 2, 5),
                     tensor("head", 2, 9, 5)};
    t[1].has_alias = t[3].has_alias = 1;
    for (int i = 0; i < 4; i++) gx_table_add(&table, &t[i], &err);
    CHECK(gx_store_open(&s, &table, gx_units(1, 3), GX_F32, &err) == GX_OK, "%s", err.message);
    CHECK(gx_store_holder(&s, 0) == 1 && !gx_store_is_alias(&s, 1) && gx_store_is_alias(&s, 3),
          "which row is the copy");
    CHECK(s.place[3].weight == s.place[1].weight && gx_store_unit(&s, 3) == 1 && s.weights_n == 48 + 10, "%ld weights",
          (long)s.weights_n);
    CHECK(gx_store_is_apart(&s, 0) && gx_store_trains(&s, 3) && !gx_store_trains_unit(&s, 2), "what is trained");
    gx_store_close(&s);
    CHECK(gx_store_open(&s, &table, gx_units(2, 3), GX_F32, &err) == GX_OK, "%s", err.message);
    CHECK(gx_store_holder(&s, 0) == 3 && !gx_store_is_alias(&s, 3) && gx_store_is_alias(&s, 1), "the head's copy");
    gx_store_close(&s);
    CHECK(gx_store_open(&s, &table, gx_units(0, 3), GX_F32, &err) == GX_OK && !gx_store_is_apart(&s, 0), "one stage");
    gx_store_close(&s);
    gx_table_close(&table);
}

static void open_store(GxContext *g, GxArena *arena, GxStore *s, const GxTable *table, GxDtype dtype, int moments)
{
    memset(g, 0, sizeof *g);
    gx_arena_open(arena, 1 << 14, &g->error);
    g->arena = arena;
    gx_store_open(s, table, gx_units(0, 3), dtype, &g->error);
    gx_store_allocate(g, s, moments);
    CHECK(!gx_failed(g), "%s", g->error.message);
}

static void close_store(GxArena *arena, GxStore *s)
{
    gx_store_close(s);
    gx_arena_close(arena);
}

TEST(in_fp32_the_weights_are_their_own_masters)
{
    GxContext g;
    GxArena arena;
    GxTable table;
    GxStore s;
    const GxTensorId k = {K}, v = {V}, head = {HEAD};
    open_rows(&table, "k");
    open_store(&g, &arena, &s, &table, GX_F32, 1);
    CHECK(s.masters == NULL && s.moment[0] && s.moment[1] == NULL, "one moment, no masters");
    CHECK(gx_store_master_at(&s, V, 0) == gx_store_weight(&s, v) &&
              gx_store_master_at(&s, K, 0) == gx_store_weight(&s, k),
          "a value in two places");
    CHECK(gx_store_weight(&s, v) == (char *)s.weights + 4 * 94 && gx_store_weight(&s, head) == s.weights, "weights");
    CHECK(gx_store_moment_at(&s, 0, V, 0) == s.moment[0] + s.place[V].trainable &&
              gx_store_moment_at(&s, 1, V, 0) == NULL && gx_store_moment_at(&s, 0, K, 0) == NULL,
          "moments");
    CHECK(arena.kind_used[GX_MEM_WEIGHTS] == gx_round_up(4 * 149, 64) &&
              arena.kind_used[GX_MEM_OPTIMIZER] == gx_round_up(4 * s.trained_n, 64) &&
              arena.kind_used[GX_MEM_GRADS] == gx_round_up(4 * s.trained_n, 64),
          "memory for %ld and %ld numbers", (long)s.weights_n, (long)s.trained_n);
    close_store(&arena, &s);
    gx_table_close(&table);
}

TEST(in_bf16_what_is_trained_has_masters_in_fp32)
{
    GxContext g;
    GxArena arena;
    GxTable table;
    GxStore s;
    const GxTensorId v = {V};
    open_rows(&table, "k");
    open_store(&g, &arena, &s, &table, GX_BF16, 2);
    CHECK(gx_store_master_at(&s, V, 0) == s.masters + s.place[V].trainable, "of a trained one");
    CHECK(gx_store_master_at(&s, K, 0) == NULL, "of a frozen one");
    CHECK(gx_store_weight(&s, v) == (char *)s.weights + 2 * 94, "weights of two bytes");
    CHECK(gx_store_moment_at(&s, 0, V, 0) && gx_store_moment_at(&s, 1, V, 0), "two moments");
    CHECK(arena.kind_used[GX_MEM_WEIGHTS] == gx_round_up(2 * 149, 64) &&
              arena.kind_used[GX_MEM_OPTIMIZER] == 3 * gx_round_up(4 * s.trained_n, 64),
          "weights in %ld bytes, masters and moments in %ld", (long)arena.kind_used[GX_MEM_WEIGHTS],
          (long)arena.kind_used[GX_MEM_OPTIMIZER]);
    close_store(&arena, &s);
    gx_table_close(&table);
}

TEST(weights_alone_take_nothing_for_training)
{
    GxContext g;
    GxArena arena;
    GxTable table;
    GxStore s;
    int accumulate = 7;
    const GxTensorId q = {Q};
    open_rows(&table, NULL);
    open_store(&g, &arena, &s, &table, GX_BF16, -1);
    CHECK(s.grads == NULL && s.masters == NULL && s.moment[0] == NULL && arena.used == gx_round_up(2 * 149, 64),
          "%ld bytes", (long)arena.used);
    CHECK(gx_store_grad(&s, q, &accumulate) == NULL && accumulate == 7, "a gradient that nobody wants");
    close_store(&arena, &s);
    open_store(&g, &arena, &s, &table, GX_F32, 0);
    CHECK(s.grads && s.moment[0] == NULL && arena.kind_used[GX_MEM_OPTIMIZER] == 0, "an optimizer without moments");
    close_store(&arena, &s);
    gx_table_close(&table);
}

// Whoever comes first in a window writes, all others add: whichever use of the tied one it is, in whatever order.
TEST(a_gradient_is_written_once_and_then_added_to_in_any_order)
{
    static const int order[][6] = {{EMBED, HEAD, Q, EMBED, HEAD, Q},
                                   {HEAD, Q, Q, EMBED, HEAD, HEAD},
                                   {Q, HEAD, HEAD, EMBED, V, V},
                                   {HEAD, HEAD, V, Q, V, Q}};
    GxContext g;
    GxArena arena;
    GxTable table;
    GxStore s;
    open_rows(&table, "k");
    open_store(&g, &arena, &s, &table, GX_F32, 0);
    for (int window = 0; window < 4; window++) {
        int seen[ROWS] = {0};
        gx_store_begin_window(&s);
        for (int i = 0; i < 6; i++) {
            const GxTensorId id = {order[window][i]};
            const int tensor = id.index == HEAD ? EMBED : id.index;
            int accumulate = -1;
            const float *grad = gx_store_grad(&s, id, &accumulate);
            CHECK(grad == s.grads + s.place[tensor].trainable && grad == gx_store_grads(&s, id.index),
                  "window %d: gradient of %s", window, table.row[id.index].name);
            CHECK(accumulate == seen[tensor], "window %d, touch %d (%s): accumulate is %d", window, i,
                  table.row[id.index].name, accumulate);
            seen[tensor] = 1;
        }
        for (int i = 0; i < HEAD; i++)
            CHECK(s.place[i].is_written == seen[i], "window %d: is %s written?", window, table.row[i].name);
    }
    const GxTensorId k = {K};
    int accumulate = 7;
    CHECK(gx_store_grad(&s, k, &accumulate) == NULL && accumulate == 7 && !s.place[K].is_written, "of a frozen one");
    close_store(&arena, &s);
    gx_table_close(&table);
}

// ---- mesh ----------------------------------------------------------------------------------------------------------
TEST(mesh_puts_neighbours_in_tp_side_by_side)
{
    GxMesh m;
    GxError err = GX_ZERO;
    int dims[5] = {2, 1, -1, 1, 2}, ranks[12] = {0}, me;
    CHECK(gx_mesh_open(&m, dims, 7, 12, &err) == GX_OK, "%s", err.message);
    CHECK(m.dim[2] == 3, "dp_shard is %d", m.dim[2]);
    CHECK(m.coord[0] == 1 && m.coord[2] == 0 && m.coord[4] == 1, "rank 7 is at %d, %d, %d", m.coord[0], m.coord[2],
          m.coord[4]);
    CHECK(gx_mesh_group(&m, GX_AXIS_TP, ranks, 12, &me) == 2 && ranks[0] == 6 && ranks[1] == 7 && me == 1, "tp: %d, %d",
          ranks[0], ranks[1]);
    CHECK(gx_mesh_group(&m, GX_AXIS_PP, ranks, 12, &me) == 2 && ranks[0] == 1 && ranks[1] == 7 && me == 1, "pp: %d, %d",
          ranks[0], ranks[1]);
    CHECK(gx_mesh_group(&m, GX_AXIS_LOSS, ranks, 12, &me) == 3 && ranks[0] == 7 && ranks[1] == 9 && ranks[2] == 11,
          "loss: %d, %d, %d", ranks[0], ranks[1], ranks[2]);
    CHECK(gx_mesh_group(&m, GX_AXIS_PP | GX_AXIS_TP, ranks, 12, &me) == 4 && ranks[0] == 0 && ranks[1] == 1 &&
              ranks[2] == 6 && ranks[3] == 7 && me == 3,
          "pp+tp: %d, %d, %d, %d", ranks[0], ranks[1], ranks[2], ranks[3]);
    CHECK(gx_mesh_size(&m, GX_AXIS_ALL) == 12 && gx_mesh_index(&m, GX_AXIS_ALL) == 7 && gx_mesh_size(&m, 0) == 1,
          "whole and empty groups");
    CHECK(gx_mesh_axes(&m, GX_AXIS_ALL) == (GX_AXIS_PP | GX_AXIS_DP_SHARD | GX_AXIS_TP), "axes of several ranks: %d",
          gx_mesh_axes(&m, GX_AXIS_ALL));
}

// pp 2 x dp_shard 2 x tp 2: of the four ranks that have a sample's tokens the first of those with the head.
TEST(one_of_the_ranks_with_the_same_samples_counts_them)
{
    static const int dims[5] = {2, 1, 2, 1, 2};
    GxError err = GX_ZERO;
    GxContext g = GX_ZERO;
    CHECK(gx_counts_samples(&g), "a rank alone");
    for (int rank = 0; rank < 8; rank++) {
        GxMesh m;
        CHECK(gx_mesh_open(&m, dims, rank, 8, &err) == GX_OK, "%s", err.message);
        g.mesh = &m;
        CHECK(gx_counts_samples(&g) == (rank == 4 || rank == 6) && gx_head_index(&g) == 1, "rank %d: %d", rank,
              gx_counts_samples(&g));
    }
}

TEST(every_group_of_a_mesh_is_a_partition_of_the_world)
{
    int dims[5] = {2, 2, 3, 1, 2}, ranks[24], others[24], me;
    GxError err = GX_ZERO;
    for (int axes = 0; axes <= GX_AXIS_ALL; axes++)
        for (int rank = 0; rank < 24; rank++) {
            GxMesh m, o;
            gx_mesh_open(&m, dims, rank, 24, &err);
            int n = gx_mesh_group(&m, axes, ranks, 24, &me), agree = ranks[me] == rank;
            for (int i = 0; i < n; i++) {
                gx_mesh_open(&o, dims, ranks[i], 24, &err);
                gx_mesh_group(&o, axes, others, 24, NULL);
                agree =
                    agree && !memcmp(ranks, others, (size_t)n * sizeof *ranks) && (i == 0 || ranks[i] > ranks[i - 1]);
            }
            CHECK(agree, "axes %d, rank %d: the members do not see the same group, in order", axes, rank);
        }
}

static void refuses_mesh(int pp, int replicate, int shard, int cp, int tp, int world, const char *says)
{
    int dims[5] = {pp, replicate, shard, cp, tp};
    GxMesh m;
    GxError err = GX_ZERO;
    CHECK(gx_mesh_open(&m, dims, 0, world, &err) == GX_ERR_ARGUMENT, "a mesh was accepted that needs: %s", says);
    CHECK(strstr(err.message, says), "%s: does not say \"%s\"", err.message, says);
}

TEST(mesh_that_does_not_fit_is_refused_with_its_equation_and_the_nearest)
{
    refuses_mesh(1, 1, 2, 1, 3, 8, "dp_shard 2 x cp 1 x tp 3 = 6 ranks, but the world has 8");
    refuses_mesh(1, 1, 2, 1, 3, 8, "fits: pp 1 x dp_replicate 1 x dp_shard 2 x cp 1 x tp 4");
    refuses_mesh(1, 1, -1, 1, 3, 8, "fits: pp 1 x dp_replicate 1 x dp_shard 2 x cp 1 x tp 4");
    refuses_mesh(1, 1, -1, 1, 16, 8, "fits: pp 1 x dp_replicate 1 x dp_shard 1 x cp 1 x tp 8");
    refuses_mesh(0, 1, 1, 1, 1, 1, "pp is 0");
    refuses_mesh(1, -1, 1, 1, 1, 1, "dp_replicate is -1");
    refuses_mesh(65536, 65536, 65536, 65536, 2, 2, "but the world has 2"); // no overflow
}

// ---- partitions ----------------------------------------------------------------------------------------------------
TEST(even_split_gives_the_remainder_to_the_first)
{
    GxSplit s = gx_split_even(11, 4);
    CHECK(gx_split_part(&s, 0) == 3 && gx_split_part(&s, 2) == 3 && gx_split_part(&s, 3) == 2 &&
              gx_split_total(&s) == 11,
          "11 over 4");
    s = gx_split_even(2, 3);
    CHECK(gx_split_part(&s, 1) == 1 && gx_split_part(&s, 2) == 0 && gx_split_total(&s) == 2, "2 over 3");
}

static void refuses_list(const int64_t *list, int n_list, int64_t total, int n, const char *says)
{
    GxError err = GX_ZERO;
    GxSplit s;
    CHECK(gx_split_list(&s, "tp_num_attention_heads_list", list, n_list, total, n, &err) == GX_ERR_ARGUMENT,
          "accepted; it should say: %s", says);
    CHECK(strstr(err.message, says) && strstr(err.message, "tp_num_attention_heads_list"), "%s: does not say \"%s\"",
          err.message, says);
}

TEST(split_lists_are_taken_or_refused_with_the_nearest)
{
    GxError err = GX_ZERO;
    GxSplit s;
    int64_t good[3] = {1, 3, 2}, bad[3] = {1, 3, 3}, zero[3] = {0, 4, 2}, half[2] = {30, 30};
    CHECK(gx_split_list(&s, "heads", good, 3, 6, 3, &err) == GX_OK && s.begin[1] == 1 && s.begin[2] == 4 &&
              s.begin[3] == 6,
          "%s", err.message);
    CHECK(gx_split_list(&s, "heads", NULL, 0, 7, 3, &err) == GX_OK && s.begin[1] == 3 && s.begin[2] == 5 &&
              s.begin[3] == 7,
          "%s", err.message);
    refuses_list(bad, 3, 6, 3, "[1,3,3] sums to 7");
    refuses_list(bad, 3, 6, 3, "nearest is [1,3,2]");
    refuses_list(zero, 3, 6, 3, "nearest is [1,3,2]");
    refuses_list(half, 2, 13, 2, "nearest is [7,6]");
    refuses_list(good, 3, 6, 2, "3 entries for 2 ranks; valid is for example [3,3]");
    refuses_list(good, 1, 6, 2, "1 entry for 2 ranks");
    refuses_list(good, 3, 6, 1, "3 entries for 1 rank; valid");
    refuses_list(NULL, 0, 2, 3, "2 cannot be split among 3 ranks");
}

TEST(nearest_list_is_always_valid)
{
    int64_t list[GX_MAX_PARTS];
    char text[160];
    for (int round = 0; round < 2000; round++) {
        int n = 1 + (int)(gx_random_bits(1, (uint64_t)round, 0, 0) % 40);
        int64_t total = n + gx_random_bits(2, (uint64_t)round, 0, 0) % 100, sum = 0, smallest = total,
                nearest[GX_MAX_PARTS];
        for (int r = 0; r < n; r++) list[r] = (int64_t)(gx_random_bits(3, (uint64_t)(round * 100 + r), 0, 0) % 30) - 3;
        gx__split_list_nearest(list, total, n, nearest);
        for (int r = 0; r < n; r++) sum += nearest[r], smallest = gx_min(smallest, nearest[r]);
        CHECK(sum == total && smallest >= 1, "[%s] for %ld", gx__split_list_text(nearest, n, text), (long)total);
    }
}

TEST(key_value_heads_are_shared_where_query_heads_need_them)
{
    GxError err = GX_ZERO;
    GxSplit s;
    GxShares kv;
    int64_t q_first = 0;
    int64_t list[3] = {1, 3, 2};
    gx_split_list(&s, "heads", list, 3, 6, 3, &err);
    CHECK(gx_shares_kv(&kv, &q_first, &s, 3, 1, 8, &err) == GX_OK && q_first == 1, "%s", err.message);
    const GxRange *p = kv.part;
    CHECK(p[0].begin == 0 && p[0].end == 8 && p[1].begin == 0 && p[1].end == 16 && p[2].begin == 16 && p[2].end == 24 &&
              kv.me == 1,
          "[%ld,%ld) [%ld,%ld) [%ld,%ld)", (long)p[0].begin, (long)p[0].end, (long)p[1].begin, (long)p[1].end,
          (long)p[2].begin, (long)p[2].end);
    CHECK(gx_shares_kv(&kv, &q_first, &s, 4, 1, 8, &err) == GX_ERR_ARGUMENT &&
              strstr(err.message, "6 query heads cannot share 4"),
          "%s", err.message);
}

TEST(a_split_of_a_shorter_sequence_keeps_its_proportions_and_no_part_grows)
{
    GxError err = GX_ZERO;
    for (uint64_t i = 0; i < 2000; i++) {
        GxSplit s;
        int64_t list[5], total = 0;
        int n = 1 + (int)(gx_random_bits(3, i, 0, 0) % 5);
        for (int r = 0; r < n; r++) total += list[r] = 1 + gx_random_bits(3, i, (uint32_t)r, 1) % 9;
        gx_split_list(&s, "list", list, n, total, n, &err);
        int64_t less = n + (int64_t)(gx_random_bits(3, i, 0, 2) % (uint64_t)(total - n + 1));
        GxSplit like = gx_split_like(&s, less);
        CHECK(gx_split_total(&like) == less && like.n == n, "%ld of %ld in %d parts", (long)gx_split_total(&like),
              (long)less, like.n);
        for (int r = 0; r < n; r++)
            CHECK(gx_split_part(&like, r) >= 1 && gx_split_part(&like, r) <= list[r],
                  "part %d of %ld: %ld, was %ld of %ld", r, (long)less, (long)gx_split_part(&like, r), (long)list[r],
                  (long)total);
    }
}

// ---- recorder ------------------------------------------------------------------------------------------------------

TEST(recorder_sums_and_lists)
{
    GxRecorder rec = GX_ZERO;
    for (int i = 0; i < 3000; i++) {
        GxEvent op = GX_ZERO, comm = GX_ZERO;
        op.kind = GX_EVENT_OP, op.name = "op", op.site = "att", op.unit = i, op.bytes = 10, op.flops = 100;
        comm.kind = GX_EVENT_COLLECTIVE, comm.name = "all_reduce", comm.unit = i, comm.axes = 1, comm.bytes = 7;
        gx_recorder_add(&rec, &op);
        gx_recorder_add(&rec, &comm);
    }
    CHECK(rec.n == 6000 && rec.flops == 300000 && rec.bytes == 30000 && rec.comm_bytes == 21000, "%ld %ld", (long)rec.n,
          (long)rec.flops);
    CHECK(rec.event[5998].unit == 2999, "unit %d", rec.event[5998].unit);
    gx_recorder_close(&rec);
}

typedef struct {
    double now; // every look at it is one second later than the one before
    char told[200];
} FakeClock;
static double fake_now(void *clock) { return ++((FakeClock *)clock)->now; }
static void fake_timed(void *clock, const GxEvent *e, double seconds)
{
    FakeClock *c = (FakeClock *)clock;
    const size_t n = strlen(c->told);
    snprintf(c->told + n, sizeof c->told - n, "%s %g, ", e->name, seconds);
}

TEST(recorder_with_a_clock_tells_how_long_each_event_took)
{
    FakeClock clock = GX_ZERO;
    GxRecorder rec = GX_ZERO;
    GxEvent e = GX_ZERO;
    rec.totals_only = 1, rec.clock = fake_now, rec.timed = fake_timed, rec.user = &clock;
    e.name = "a", gx_recorder_add(&rec, &e);
    clock.now += 10, e.name = "b", gx_recorder_add(&rec, &e);
    clock.now += 100, gx_recorder_wait(&rec, 7, "att", 0); // of which start it is, no list says
    clock.now += 1000, gx_recorder_settle(&rec);
    clock.now += 10000, gx_recorder_settle(&rec); // nothing is running
    e.name = "c", gx_recorder_add(&rec, &e);
    gx_recorder_settle(&rec);
    CHECK(!strcmp(clock.told, "a 11, b 101, wait 1001, c 1, "), "%s", clock.told);
    gx_recorder_close(&rec);
}

TEST(recorder_notes_a_wait_once_and_behind_its_start)
{
    GxRecorder rec = GX_ZERO;
    GxEvent start = GX_ZERO;
    start.kind = GX_EVENT_COLLECTIVE, start.name = "all_gather", start.bytes = 7;
    gx_recorder_wait(&rec, 1, "att", 3); // no start: it was recorded elsewhere
    start.ticket = 1, gx_recorder_add(&rec, &start);
    start.ticket = 0, gx_recorder_add(&rec, &start); // blocking
    start.ticket = 2, gx_recorder_add(&rec, &start);
    gx_recorder_wait(&rec, 0, "att", 3); // nothing to wait for
    for (int again = 0; again < 2; again++) gx_recorder_wait(&rec, 1, "att", 3), gx_recorder_wait(&rec, 2, "mlp", 4);
    CHECK(rec.n == 5 && rec.comm_bytes == 21, "%ld events, %ld bytes", (long)rec.n, (long)rec.comm_bytes);
    for (int i = 0; rec.n == 5 && i < 2; i++) {
        const GxEvent *e = &rec.event[3 + i];
        CHECK(e->kind == GX_EVENT_WAIT && e->ticket == 1 + i && e->unit == 3 + i && !strcmp(e->site, i ? "mlp" : "att"),
              "wait %d: ticket %ld at %s of unit %d", i, (long)e->ticket, e->site, e->unit);
    }
    gx_recorder_close(&rec);
}

// ---- test.h --------------------------------------------------------------------------------------------------------

static void checks_right(void) { CHECK(1, "never said"); }
static void checks_wrong(void) { CHECK(0, "seven is %d", 7); }
static void checks_nothing(void) {}
static void skips(void) { SKIP("no reason"); }
static void checks_right_and_skips(void)
{
    CHECK(1, "never said");
    SKIP("no reason");
}
static void checks_wrong_and_skips(void)
{
    CHECK(0, "eight is %d", 8);
    SKIP("no reason");
}

// These tests and no others, in a child process: what it prints, and its status.
static int run_tests(Test *tests, int n, char *text, size_t bytes)
{
    int ends[2], status = -1;
    size_t used = 0;
    ssize_t got;
    fflush(stdout);
    if (pipe(ends)) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        char *words[] = {(char *)"tests", NULL};
        for (int i = 0; i < n; i++) tests[i].next = i + 1 < n ? &tests[i + 1] : NULL;
        test_state.first = tests;
        dup2(ends[1], 1);
        status = test_main(1, words);
        fflush(stdout);
        _exit(status);
    }
    close(ends[1]);
    while ((got = read(ends[0], text + used, bytes - 1 - used)) > 0) used += (size_t)got;
    text[used] = 0;
    close(ends[0]);
    if (pid > 0) waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(tests_with_a_failed_check_or_none_fail_whatever_they_say_then)
{
    Test all[] = {{"right", checks_right, 0, NULL},
                  {"wrong", checks_wrong, 0, NULL},
                  {"nothing", checks_nothing, 0, NULL},
                  {"skip", skips, 0, NULL},
                  {"right_skip", checks_right_and_skips, 0, NULL},
                  {"wrong_skip", checks_wrong_and_skips, 0, NULL}};
    static const char *const lines[] = {"ok   right\n",
                                        ": seven is 7\n",
                                        "FAIL wrong\n",
                                        "FAIL nothing: it checked nothing\n",
                                        "skip skip: no reason\n",
                                        "skip right_skip: no reason\n",
                                        ": eight is 8\n",
                                        "FAIL wrong_skip\n",
                                        "\n1 passed, 3 failed, 2 skipped\n"};
    char text[2000];
    int status = run_tests(all, 6, text, sizeof text);
    CHECK(status == 1, "status %d of tests that fail", status);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(text, lines[i]), "no \"%s\" in: %s", lines[i], text);
    status = run_tests(&all[5], 1, text, sizeof text);
    CHECK(status == 1 && strstr(text, "0 passed, 1 failed, 0 skipped"), "status %d: %s", status, text);
    status = run_tests(&all[3], 2, text, sizeof text);
    CHECK(status == 0 && strstr(text, "0 passed, 0 failed, 2 skipped"), "status %d: %s", status, text);
}

// ---- types ---------------------------------------------------------------------------------------------------------

// Over all floats of one binade, and of others where the grid is the same but for its scale: a bf16 has 8 significant
// bits, so neighbours in [1,2) are 2^-7 apart, and the nearest is 2^-8 away at most: relative to the number, at most
// 2^-8/(1 + 2^-8), which a tie just above 1 reaches.
TEST(rounding_to_bf16_is_off_by_at_most_one_part_in_257)
{
    static const int exponents[] = {0, 1, -1, 100, -100};
    for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
        double worst = 0, squares = 0;
        for (int i = 0; i < 1 << 23; i++) {
            const double x = ldexp(1 + (double)i / (1 << 23), exponents[e]);
            const double error = fabs((double)gx_from_bf16(gx_to_bf16((float)x)) - x) / x;
            worst = error > worst ? error : worst;
            squares += error * error;
        }
        CHECK(worst == 1.0 / 257, "2^%d: off by 1/%.9g at most, not by 1/257", exponents[e], 1 / worst);
        CHECK(worst <= ldexp(1, -8), "2^%d: off by more than 2^-8", exponents[e]);
        const double rms = sqrt(
            squares / (1 << 23)); // evenly spread: 2^-8/sqrt(3) of a number between 1 and 2, sqrt(1/2) on the average
        CHECK(fabs(rms / (ldexp(1, -8) / sqrt(6)) - 1) < 1e-3, "2^%d: %g off on the average of squares", exponents[e],
              rms);
    }
}

// ---- text for people -----------------------------------------------------------------------------------------------

TEST(items_of_a_list_come_one_after_the_other)
{
    static const struct {
        const char *list, *items; // each in brackets
    } lists[] = {{NULL, ""},    {"", ""},        {"a", "[a]"},        {"ab,c", "[ab][c]"},
                 {"a,", "[a]"}, {",a", "[][a]"}, {"a,,b", "[a][][b]"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *left = lists[i].list;
        char got[100] = "";
        GxTextItem item;
        while (gx_text_next(&left, &item))
            snprintf(got + strlen(got), sizeof got - strlen(got), "[%.*s]", (int)item.n, item.at);
        CHECK(!strcmp(got, lists[i].items), "\"%s\" became %s, not %s", lists[i].list ? lists[i].list : "", got,
              lists[i].items);
    }
}

TEST(a_text_that_is_cut_says_so_and_ends_with_a_whole_character)
{
    static const struct {
        const char *text, *cut; // into 9 bytes
    } list[] = {{"", ""},
                {"12345678", "12345678"},
                {"123456789", "12345…"},
                {"1234\xc3\xa9"
                 "67",
                 "1234\xc3\xa9"
                 "67"},
                {"1234\xc3\xa9"
                 "678",
                 "1234…"},
                {"\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80…"}};
    char out[9];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        CHECK(!strcmp(gx_text_cut(list[i].text, out, sizeof out), list[i].cut), "%s became %s, expected %s",
              list[i].text, out, list[i].cut);
    CHECK(!strcmp(gx_text_cut("12345", out, 4), "…"), "into 4 bytes: %s", out);
    static const struct {
        int64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 bytes"},        {1, "1 byte"},
                 {999, "999 bytes"},    {1000, "1.0 KB"},
                 {20480, "20.5 KB"},    {999949, "999.9 KB"},
                 {999950, "1.0 MB"},    {1234567890, "1.2 GB"},
                 {999960000, "1.0 GB"}, {2000000000000, "2000.0 GB"}};
    char size[GX_TEXT_SIZE];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(!strcmp(gx_text_size(sizes[i].bytes, size), sizes[i].text), "%ld bytes became %s, expected %s",
              (long)sizes[i].bytes, size, sizes[i].text);
    CHECK(gx_text_columns("é…x", 6) == 3, "%d columns of é…x", gx_text_columns("é…x", 6));
}

TEST(a_line_is_wrapped_at_words_or_phrases_and_nothing_is_lost)
{
    static const struct {
        const char *text, *behind;
        int column, indent, width;
        const char *wrapped;
        int last;
    } list[] = {
        {"fits as it  is", NULL, 0, 2, 14, "fits as it  is", 14},
        {"one two three four", NULL, 0, 2, 9, "one two\n  three\n  four", 6},
        {"one two three four", NULL, 5, 5, 12, "one two\n     three\n     four", 9},
        {"two three", NULL, 9, 4, 11, "\n    two\n    three", 9},
        {"a word_that_is_longer b", NULL, 0, 2, 10, "a\n  word_that_is_longer\n  b", 3},
        {"one of fp32|bf16|fp16", NULL, 0, 2, 13, "one of fp32|\n  bf16|fp16", 11},
        {"\xc3\xa9\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9", NULL, 0, 0, 6, "\xc3\xa9\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9", 6},
        {"plan: weights 1.2, gradients 3.4, all 5", ",;:", 0, 2, 21, "plan: weights 1.2,\n  gradients 3.4,\n  all 5",
         7},
        {"a phrase that is long, short", ",;:", 0, 2, 12, "a phrase\n  that is\n  long,\n  short", 7},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        const int last = gx_text_wrap(out, list[i].text, list[i].behind, list[i].column, list[i].indent, list[i].width);
        fclose(out);
        CHECK(!strcmp(text, list[i].wrapped) && last == list[i].last, "case %d: %d columns at last, expected %d:\n%s",
              (int)i, last, list[i].last, text);
        free(text);
    }
}

int main(int argc, char **argv) { return test_main(argc, argv); }
