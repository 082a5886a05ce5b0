// test_bert_modes.cu: models with picked rows in every mode against serial, dropout on: BERT's masked tokens with pairs
// of texts, labels of whole texts (BERT, RoBERTa, DistilBERT, LLaMA), labels of tokens, LLaMA with texts that share a
// column and labels that do not count, GPT-2, and BART, mBART and T5, whose decoders attend to their encoder's output.
// As test_modes.cu: loss, every gradient by name, norms, weights, moments, results of a validation.
#include "test/subjects.h"

static const Layout shapes[] = {
    {.what = "2 ranks", .dp = 1, .tp = 2, .micro = 1, .samples = {4}, .tied = 1},
    {.what = "2 ranks, heads 4,2, columns 30,10, tokens 5,3",
     .dp = 1,
     .tp = 2,
     .micro = 1,
     .samples = {3},
     .heads = {4, 2},
     .columns = {30, 10},
     .sequence = {5, 3}},
    {.what = "2 ranks, no labels in rank 1's slice, accumulation",
     .dp = 1,
     .tp = 2,
     .micro = 2,
     .samples = {2},
     .sequence = {5, 3},
     .no_label_begin = 5,
     .no_label_end = 8,
     .tied = 1},
    {.what = "3 ranks, heads 1,3,2, columns 5,20,15, vocabulary 40,1,20, tokens 1,5,2",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {3},
     .heads = {1, 3, 2},
     .columns = {5, 20, 15},
     .vocab = {40, 1, 20},
     .sequence = {1, 5, 2},
     .tied = 1},
    {.what = "4 ranks, heads 1,1,3,1, tokens 2,1,4,1, accumulation",
     .dp = 1,
     .tp = 4,
     .micro = 2,
     .samples = {2},
     .heads = {1, 1, 3, 1},
     .sequence = {2, 1, 4, 1},
     .tied = 1},
    {.what = "dp 2, 3 and 1 samples, x 2 ranks, accumulation, no labels on the second half",
     .dp = 2,
     .tp = 2,
     .micro = 2,
     .samples = {3, 1},
     .no_labels = 2,
     .tied = 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const Layout copies[] = {
    {.what = "dp 2", .dp = 2, .tp = 1, .micro = 1, .samples = {2, 2}, .tied = 1},
    {.what = "dp 3, 1, 4 and 1 samples, accumulation", .dp = 3, .tp = 1, .micro = 2, .samples = {1, 4, 1}, .tied = 1},
    {.what = "dp 2, no labels on rank 0", .dp = 2, .tp = 1, .micro = 2, .samples = {2, 1}, .no_labels = 1, .tied = 1},
};
enum { COPIES = sizeof copies / sizeof *copies };

// Of copies one, of shapes two, each in a mode.
static void check_subject_of(int i, const TestSubject *subject, const char *name)
{
    test_subject = subject;
    for (int s = 0; s < COPIES; s++) {
        Layout l = copies[s];
        snprintf(l.what, sizeof l.what, "%s, %.100s", name, copies[s].what);
        if (test_diagonal(0, i, SUBJECTS, s, COPIES)) check_shape(&l, test_modes, 1);
    }
    for (int s = 0; s < SHAPES; s++) {
        Layout l = shapes[s];
        snprintf(l.what, sizeof l.what, "%s, %.100s", name, shapes[s].what);
        if (test_diagonal(0, i, SUBJECTS, s % 3, 3)) check_diagonal(i, &l, s, SHAPES, test_modes + 1, MODES - 1);
    }
    test_subject = NULL;
}
static void check_subject(int i) { check_subject_of(i, subjects[i], subject_names[i]); }
TEST(masked_tokens_and_pairs_of_texts_in_every_mode_are_serial) { check_subject(0); }
TEST(masked_tokens_in_every_mode_are_serial) { check_subject(1); }
TEST(labels_in_every_mode_are_serial) { check_subject(2); }
TEST(several_labels_in_every_mode_are_serial) { check_subject(3); }
TEST(numbers_in_every_mode_are_serial) { check_subject(4); }
TEST(llama_texts_that_share_a_column_in_every_mode_are_serial) { check_subject(5); }
TEST(llama_labels_in_every_mode_are_serial) { check_subject(6); }
TEST(vectors_in_every_mode_are_serial) { check_subject(7); }
TEST(vectors_of_first_tokens_in_every_mode_are_serial) { check_subject(8); }

// Its head has a second dropout, of the rows that it picks.
TEST(labels_of_a_roberta_in_every_mode_are_serial)
{
    for (int i = 0; i < 3; i++) check_subject_of(i, &roberta_labels, "labels of a RoBERTa");
}

// Of a DistilBERT attention has no dropout behind it, and the head has a relu.
TEST(labels_of_a_distilbert_in_every_mode_are_serial)
{
    for (int i = 0; i < 3; i++) check_subject_of(i, &distilled_labels, "labels of a DistilBERT");
}

// Their head is a dropout of the rows that it picks, and one small matrix.
TEST(labels_of_tokens_in_every_mode_are_serial)
{
    for (int i = 0; i < 3; i++) check_subject_of(i, &token_labels, "labels of tokens");
}

TEST(targets_of_sources_in_every_mode_are_serial)
{
    for (int i = 0; i < 3; i++) check_subject_of(i, &targets, "targets");
}

// An mBART: norms before cores, dropout behind them, embeddings that are scaled.
TEST(targets_of_an_mbart_in_every_mode_are_serial)
{
    for (int i = 0; i < 3; i++) check_subject_of(i, &translations, "targets of an mBART");
}

TEST(targets_of_sources_of_a_t5_in_every_mode_are_serial)
{
    for (int i = 0; i < 3; i++) check_subject_of(i, &t5_targets, "targets of a T5");
}

TEST(gpt2_texts_that_share_a_column_in_every_mode_are_serial)
{
    for (int i = 0; i < 3; i++) check_subject_of(i, &gpt2_texts, "texts of a GPT-2");
}
TEST(gpt2_labels_in_every_mode_are_serial)
{
    for (int i = 0; i < 3; i++) check_subject_of(i, &gpt2_scores, "labels of a GPT-2");
}

// ---- every valid triple of methods, and of the ends ----------------------------------------------------------------

// Number `which` of `of` alike cases.
static void check_triples(const TestSubject *subject, const char *title, const Layout *shape, int which, int of)
{
    static const GxMethod ends[] = {GX_METHOD_NONE, GX_METHOD_TP, GX_METHOD_SP};
    static GxMode mode[3 * TRIPLES];
    static char name[3 * TRIPLES][80];
    const GxMode *each[3 * TRIPLES];
    GxError unsound = GX_ZERO;
    Layout l = *shape;
    int n = 0;
    for (int m = 0; m < 3 * TRIPLES; m++) {
        GxMethods methods = test_triples[m / 3].methods;
        methods.ends = ends[m % 3];
        if (gx_methods_check(methods, &unsound) != GX_OK) continue;
        snprintf(name[n], sizeof name[n], "%s, ends %s", test_triple_name[m / 3], gx_method_name(methods.ends));
        mode[n] = gx_composed(name[n], methods);
        each[n] = &mode[n], n++;
    }
    test_subject = subject;
    snprintf(l.what, sizeof l.what, "%s, %.60s", title, shape->what);
    check_diagonal(0, &l, which, of, each, n);
    test_subject = NULL;
}
TEST(all_triples_of_methods_with_all_of_the_ends_are_serial)
{
    static const struct {
        int subject, shape;
    } cases[] = {{0, 3}, {7, 3}, {0, 1}, {2, 3}, {6, 1}};
    for (int i = 0; i < (TEST_IS_SANITIZED ? 2 : 5); i++)
        check_triples(subjects[cases[i].subject], subject_names[cases[i].subject], &shapes[cases[i].shape], i, 5);
    check_triples(&targets, "targets", &shapes[3], 2, 5);
    check_triples(&token_labels, "labels of tokens", &shapes[3], 1, 5);
    check_triples(&targets, "targets", &shapes[1], 0, 5);
    check_triples(&translations, "targets of an mBART", &shapes[3], 4, 5);
    check_triples(&t5_targets, "targets of a T5", &shapes[3], 1, 5);
    check_triples(&t5_targets, "targets of a T5", &shapes[1], 4, 5);
    check_triples(&gpt2_texts, "texts of a GPT-2", &shapes[3], 2, 5);
    check_triples(&gpt2_scores, "labels of a GPT-2", &shapes[1], 3, 5);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
