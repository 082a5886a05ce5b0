// score_words.c: how well a model pronounces words that it was not trained on, and how well a simpler rule does, which
// gives a word the pronunciation of the word in TRAIN whose spelling is nearest (dev/demo_seq2seq.sh).
//
//     score_words TRAIN.tsv TEST.tsv WRITTEN.tsv     lines "word\tphonemes", behind a first line that names the columns
//
// WRITTEN has the words of TEST in their order, with what the model wrote. Prints, for both, the phoneme error rate
// (the sum of edit distances divided by the phonemes of TEST) and the share of words without an error:
//
//     words 1018
//     model 0.1209 0.5521
//     nearest 0.2939 0.0491
//
// The edit distance is Levenshtein's: the fewest insertions, deletions and replacements. Nearest is the word with the
// smallest distance between the letters; of several the one with the longest common end; of several still the first.
// All words of TRAIN are compared.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; // letters of a word, phonemes of a pronunciation

typedef struct {
    int n;
    int at[MOST]; // a letter; the one or two letters of a phoneme's name
} Sequence;

typedef struct {
    char word[MOST + 1];
    Sequence letters, phonemes;
} Entry;

typedef struct {
    Entry *at;
    int n;
} Entries;

static void stop(const char *path, const char *what)
{
    fprintf(stderr, "score_words: %s: %s\n", path, what);
    exit(1);
}

static Entry parse(const char *path, char *line)
{
    Entry e;
    char *tab = strchr(line, '\t');
    memset(&e, 0, sizeof e);
    if (!tab || tab - line > MOST) stop(path, "a line is not a word of at most 64 letters, a tab, phonemes");
    memcpy(e.word, line, (size_t)(tab - line));
    for (const char *c = line; c < tab; c++) e.letters.at[e.letters.n++] = *c;
    for (char *name = strtok(tab, "\t\n "); name; name = strtok(NULL, "\t\n ")) {
        if (e.phonemes.n == MOST) stop(path, "a word has more than 64 phonemes");
        for (const char *c = name; *c; c++) e.phonemes.at[e.phonemes.n] = 256 * e.phonemes.at[e.phonemes.n] + *c;
        e.phonemes.n++;
    }
    return e;
}

static Entries read_entries(const char *path)
{
    Entries all = {NULL, 0};
    char *line = NULL;
    size_t room = 0;
    FILE *in = fopen(path, "r");
    if (!in) stop(path, "cannot be read");
    for (int i = 0; getline(&line, &room, in) > 0; i++) {
        if (i == 0) continue;
        if (!(all.n & (all.n - 1))) all.at = (Entry *)realloc(all.at, sizeof(Entry) * (size_t)(all.n ? 2 * all.n : 1));
        if (!all.at) stop(path, "no memory");
        all.at[all.n++] = parse(path, line);
    }
    if (!all.n) stop(path, "has no words");
    free(line);
    fclose(in);
    return all;
}

// d[i][j] = min(d[i-1][j] + 1, d[i][j-1] + 1, d[i-1][j-1] + (a[i] != b[j])), a row at a time. From `most` on: `most`.
static int distance(const Sequence *a, const Sequence *b, int most)
{
    int row[MOST + 1];
    if (abs(a->n - b->n) >= most) return most;
    for (int j = 0; j <= b->n; j++) row[j] = j;
    for (int i = 1; i <= a->n; i++) {
        int diagonal = i - 1, least = i;
        row[0] = i;
        for (int j = 1; j <= b->n; j++) {
            const int replaced = diagonal + (a->at[i - 1] != b->at[j - 1]),
                      moved = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < moved ? replaced : moved;
            if (row[j] < least) least = row[j];
        }
        if (least >= most) return most; // rows only grow
    }
    return row[b->n] < most ? row[b->n] : most;
}

static int common_end(const Sequence *a, const Sequence *b)
{
    int n = 0;
    while (n < a->n && n < b->n && a->at[a->n - 1 - n] == b->at[b->n - 1 - n]) n++;
    return n;
}

static const Entry *nearest(const Entry *to, const Entries *all)
{
    const Entry *best = NULL;
    int least = MOST, end = -1;
    for (int i = 0; i < all->n; i++) {
        const int d = distance(&to->letters, &all->at[i].letters, least + 1);
        if (d > least) continue;
        const int e = common_end(&to->letters, &all->at[i].letters);
        if (d < least || e > end) best = &all->at[i], least = d, end = e;
    }
    return best;
}

typedef struct {
    int errors, phonemes, words, right;
} Score;

static void count(Score *s, const Entry *target, const Entry *guess)
{
    const int errors = distance(&guess->phonemes, &target->phonemes, 2 * MOST);
    s->errors += errors, s->phonemes += target->phonemes.n, s->words++, s->right += !errors;
}

static void print(const char *name, const Score *s)
{
    printf("%s %.4f %.4f\n", name, (double)s->errors / s->phonemes, (double)s->right / s->words);
}

int main(int argc, char **argv)
{
    if (argc != 4) return fprintf(stderr, "score_words TRAIN.tsv TEST.tsv WRITTEN.tsv\n"), 2;
    const Entries train = read_entries(argv[1]), test = read_entries(argv[2]), written = read_entries(argv[3]);
    Score model = {0, 0, 0, 0}, rule = {0, 0, 0, 0};
    if (written.n != test.n) stop(argv[3], "has not as many words as the file of targets");
    for (int i = 0; i < test.n; i++) {
        if (strcmp(written.at[i].word, test.at[i].word)) stop(argv[3], "has other words than the file of targets");
        count(&model, &test.at[i], &written.at[i]);
        count(&rule, &test.at[i], nearest(&test.at[i], &train));
    }
    printf("words %d\n", test.n);
    print("model", &model);
    print("nearest", &rule);
    return 0;
}
