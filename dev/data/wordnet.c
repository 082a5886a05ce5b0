// wordnet.c: WordNet's data files as texts to train BERT on; prepare_bert.sh says what they are. Writes below OUT:
//
//     wordnet FOLDER OUT
//
// A line of data.noun and its siblings is a synset: words that share a meaning, pointers to other synsets, and behind
// " | " a gloss: a definition, then examples in quotes (wndb(5WN)). Everything follows from the lines and from the
// hashes of definitions: the same files give the same bytes.
#define GALAXY_IMPLEMENTATION
#include "galaxy/io/files.h"
#include <ctype.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 150000, MOST_WORDS = 2 * MOST, TEXT = 4096, CANDIDATES = 5, GROUPS_OF = 6, LEAST_WORDS = 3 };
enum { TRAIN, VALIDATION, TEST, SPLITS };
static const char *const split_name[SPLITS] = {"train", "validation", "test"};
static const char *const part[] = {"noun", "verb", "adj", "adv"};

typedef struct {
    int part, split;
    long offset,
        family;  // family: the offset of its first hypernym, or of the head of its cluster of adjectives; else its own
    char *words; // "a, b"
    char *definition; // the gloss without examples
    char *examples;   // a line each
    int usages;       // how many of: a pointer ";u", the usage of a word (from 1) or of all (0)
    struct Usage {
        long synset;
        int word;
    } * usage;
    int is_vulgar;        // as a whole
    uint64_t hash;        // of the definition
    int is_odd;           // the definition is too short, or it needed a quote that is not there any more
    int copies, is_copy;  // synsets with this definition, and not the first of them in its part of speech
    int parts, namesakes; // parts of speech that have this definition; synsets with these words
} Synset;
static Synset all[MOST];
static int n;

static _Noreturn void fail(const char *what, const char *name)
{
    fprintf(stderr, "wordnet: %s %s\n", what, name);
    exit(1);
}

static char *copy(const char *text)
{
    char *out = strdup(text);
    if (!out) fail("no memory for", text);
    return out;
}

// ---- a synset ------------------------------------------------------------------------------------------------------

// One space between words, none behind an opening bracket; `word' as 'word'; nothing at the end that led to a quote.
static void tidy(char *text)
{
    char *out = text;
    for (const char *p = text; *p; p++) {
        const char c = *p == '_' ? ' ' : *p == '`' ? '\'' : *p;
        if (c == ' ' && (out == text || out[-1] == ' ' || out[-1] == '(')) continue;
        *out++ = c;
    }
    *out = 0;
    static const char *const loose[] = {" ", ";", ":", ",", "-", " as in", " e.g.", " such as", " as", " eg", " i.e."};
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++) {
        const size_t bytes = strlen(loose[i]), length = strlen(text);
        if (length < bytes || strcmp(text + length - bytes, loose[i])) continue;
        text[length - bytes] = 0;
        i = (size_t)-1; // from the first again
    }
}

static int is_odd(const char *definition)
{
    int words = 1, open = 0;
    for (const char *p = definition; *p; p++) {
        words += *p == ' ';
        open += (*p == '(') - (*p == ')');
    }
    return words < LEAST_WORDS || open != 0 || strpbrk(definition, "\"<>{}[]|^") != NULL ||
           !isalnum((unsigned char)definition[strspn(definition, "('")]);
}

// What stands in quotes, a line each; nothing where a quote is not closed.
static char *examples_of(const char *gloss)
{
    char out[TEXT] = "";
    int quotes = 0;
    for (const char *p = gloss; *p; p++) quotes += *p == '"';
    for (const char *p = strchr(gloss, '"'); p && quotes % 2 == 0;) {
        const char *end = strchr(p + 1, '"');
        char one[TEXT];
        snprintf(one, sizeof one, "%.*s", (int)(end - p - 1), p + 1);
        tidy(one);
        if (strchr(one, ' ') && !is_odd(one)) snprintf(out + strlen(out), sizeof out - strlen(out), "%s\n", one);
        p = strchr(end + 1, '"');
    }
    return copy(out);
}

static void read_words(Synset *s, char **next)
{
    char out[TEXT] = "";
    for (long words = strtol(strsep(next, " "), NULL, 16); words > 0; words--) {
        char *word = strsep(next, " "), *mark = strchr(word, '('); // of an adjective: "(p)", "(a)", "(ip)"
        if (mark) *mark = 0;
        tidy(word);
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", out[0] ? ", " : "", word);
        strsep(next, " ");
    }
    s->words = copy(out);
}

static void read_pointers(Synset *s, char **next)
{
    s->family = s->offset;
    for (long pointers = strtol(strsep(next, " "), NULL, 10), found = 0; pointers > 0; pointers--) {
        const char *kind = strsep(next, " ");
        const long to = strtol(strsep(next, " "), NULL, 10);
        strsep(next, " ");
        const long from = strtol(strsep(next, " "), NULL, 16) >> 8; // the number of a word, before the target's
        if (!strcmp(kind, ";u")) {
            s->usage = (struct Usage *)realloc(s->usage, (size_t)(s->usages + 1) * sizeof *s->usage);
            if (!s->usage) fail("no memory for", s->words);
            s->usage[s->usages].synset = to, s->usage[s->usages++].word = (int)from;
        }
        if (found || !(kind[0] == '@' || kind[0] == '&')) continue;
        s->family = to, found = 1;
    }
}

static void read_line(char *line, int of_part)
{
    char *gloss = strstr(line, " | "), *next = line;
    if (!isdigit((unsigned char)line[0]) || !gloss) return; // the license
    if (n == MOST) fail("too many synsets in", part[of_part]);
    Synset *s = &all[n++];
    *gloss = 0, gloss += 3;
    s->part = of_part;
    s->offset = strtol(strsep(&next, " "), NULL, 10);
    strsep(&next, " ");
    const char *type = strsep(&next, " ");
    read_words(s, &next);
    read_pointers(s, &next);
    if (type[0] == 'a') s->family = s->offset; // the head: its pointers '&' lead to the others
    s->examples = examples_of(gloss);
    gloss[strcspn(gloss, "\"")] = 0;
    tidy(gloss);
    s->definition = copy(gloss);
    s->is_odd = is_odd(gloss);
    s->hash = gx_hash(GX_HASH_START, gloss, (int64_t)strlen(gloss));
    const int bucket = (int)((s->hash >> 32) % 10);
    s->split = bucket == 0 ? TEST : bucket == 1 ? VALIDATION : TRAIN;
}

static void read_part(const char *folder, int of_part)
{
    char path[GX_PATH], *text;
    int64_t bytes;
    GxError err = GX_ZERO;
    snprintf(path, sizeof path, "%.4000s/data.%s", folder, part[of_part]);
    if (gx_file_read(path, 1 << 28, &text, &bytes, &err) != GX_OK) fail(err.message, "");
    for (char *next = text, *line; (line = strsep(&next, "\n")) != NULL;) read_line(line, of_part);
    free(text);
}

// ---- vulgar words, and slurs ---------------------------------------------------------------------------------------
//
// WordNet marks them: by a pointer to one of three usages, or in the definition. Where at least half of a word's
// meanings in a part of speech are marked, it is left out everywhere; a synset that is marked, or has no word left, too.
static const char *const usages[] = {"obscenity", "ethnic slur", "disparagement"};
static const char
    *const note = // "(ethnic slur) ...", "obscene terms for ...", "a Latin American (disparaging) term for"
    "^\\((often |sometimes )?(offensive|vulgar|obscene|derogatory|disparaging|pejorative|ethnic slur)( [A-Za-z ]+)?\\)|"
    "(offensive|vulgar|obscene|derogatory|disparaging|pejorative|insulting)( (and|or) [a-z]+)?\\)? "
    "(terms?|names?|words?|slang|expressions?|references?) (for|of|to|used) ";

typedef struct {
    char *text;
    int part, is_marked;
} Word;
static Word words[MOST_WORDS];
static int n_words;
static const char *vulgar[MOST_WORDS];
static int n_vulgar;

static int by_text(const void *a, const void *b)
{
    const Word *x = (const Word *)a, *y = (const Word *)b;
    const int order = strcmp(x->text, y->text);
    return order ? order : x->part - y->part;
}

static int has_word(const char *list, const char *word) // in "a, b"
{
    char text[TEXT], *next = text, *one;
    snprintf(text, sizeof text, "%s", list);
    while ((one = strsep(&next, ",")) != NULL)
        if (!strcmp(one + (one[0] == ' '), word)) return 1;
    return 0;
}

static long usage_offset[16];
static int n_usages;

static void find_usages(void)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof usages / sizeof *usages; k++) {
            if (all[i].part != 0 || !has_word(all[i].words, usages[k])) continue;
            if (n_usages == (int)(sizeof usage_offset / sizeof *usage_offset)) fail("too many synsets of", usages[k]);
            usage_offset[n_usages++] = all[i].offset;
        }
}

static int is_usage(long offset)
{
    for (int i = 0; i < n_usages; i++)
        if (usage_offset[i] == offset) return 1;
    return 0;
}

static int is_marked(const Synset *s, int word) // from 1; 0: the synset as a whole
{
    for (int i = 0; i < s->usages; i++)
        if (s->usage[i].word == word && is_usage(s->usage[i].synset)) return 1;
    return 0;
}

static void find_vulgar(void)
{
    regex_t in_definition;
    if (regcomp(&in_definition, note, REG_EXTENDED | REG_NOSUB)) fail("wrong:", note);
    for (int i = 0; i < n; i++) {
        all[i].is_vulgar = is_marked(&all[i], 0) || !regexec(&in_definition, all[i].definition, 0, NULL, 0);
        char *text = copy(all[i].words), *one;
        for (int k = 1; (one = strsep(&text, ",")) != NULL; k++) {
            if (n_words == MOST_WORDS) fail("too many words in", all[i].words);
            const Word w = {one + (one[0] == ' '), all[i].part, all[i].is_vulgar || is_marked(&all[i], k)};
            words[n_words++] = w;
        }
    }
    regfree(&in_definition);
    qsort(words, (size_t)n_words, sizeof *words, by_text);
    for (int begin = 0, end; begin < n_words; begin = end) {
        int marked = 0;
        for (end = begin; end < n_words && !by_text(&words[begin], &words[end]); end++) marked += words[end].is_marked;
        if (marked && 2 * marked >= end - begin && (!n_vulgar || strcmp(vulgar[n_vulgar - 1], words[begin].text)))
            vulgar[n_vulgar++] = words[begin].text;
    }
}

static int is_vulgar(const char *word)
{
    for (int i = 0; i < n_vulgar; i++)
        if (!strcmp(vulgar[i], word)) return 1;
    return 0;
}

static int has_vulgar(const char *text) // one of the words in a text, whole
{
    for (int i = 0; i < n_vulgar; i++)
        for (const char *p = text; (p = strstr(p, vulgar[i])) != NULL; p++) {
            const char behind = p[strlen(vulgar[i])];
            if ((p == text || !isalpha((unsigned char)p[-1])) && !isalpha((unsigned char)behind)) return 1;
        }
    return 0;
}

static void leave_out_vulgar(void)
{
    int kept = 0, fewer_words = 0, examples = 0;
    find_usages();
    find_vulgar();
    for (int i = 0; i < n; i++) {
        Synset *s = &all[i];
        char left[TEXT] = "", *text = copy(s->words), *one;
        for (int k = 1; (one = strsep(&text, ",")) != NULL; k++) {
            one += one[0] == ' ';
            if (s->is_vulgar || is_marked(s, k) || is_vulgar(one)) continue;
            snprintf(left + strlen(left), sizeof left - strlen(left), "%s%s", left[0] ? ", " : "", one);
        }
        if (!left[0]) continue;
        fewer_words += strcmp(left, s->words) != 0;
        s->words = copy(left);
        left[0] = 0;
        for (text = s->examples; (one = strsep(&text, "\n")) != NULL;) {
            if (!one[0]) continue;
            if (has_vulgar(one)) examples++;
            else snprintf(left + strlen(left), sizeof left - strlen(left), "%s\n", one);
        }
        s->examples = copy(left);
        all[kept++] = *s;
    }
    printf("  left out as vulgar or disparaging: %d of %d synsets, words of %d others, %d examples\n", n - kept, n,
           fewer_words, examples);
    n = kept;
}

// ---- orders, and what is there twice -------------------------------------------------------------------------------

static int by_definition(const void *a, const void *b)
{
    const Synset *x = (const Synset *)a, *y = (const Synset *)b;
    const int order = strcmp(x->definition, y->definition);
    return order ? order : x->part != y->part ? x->part - y->part : (x->offset > y->offset) - (x->offset < y->offset);
}

static int by_words(const void *a, const void *b)
{
    const int order = strcmp(((const Synset *)a)->words, ((const Synset *)b)->words);
    return order ? order : by_definition(a, b);
}

static int by_hash(const void *a, const void *b) // any beginning of such a list is a fair sample of it
{
    const Synset *x = (const Synset *)a, *y = (const Synset *)b;
    return x->hash != y->hash ? (x->hash > y->hash) - (x->hash < y->hash) : by_definition(a, b);
}

static int by_family(const void *a, const void *b)
{
    const Synset *x = (const Synset *)a, *y = (const Synset *)b;
    if (x->part != y->part) return x->part - y->part;
    if (x->family != y->family) return (x->family > y->family) - (x->family < y->family);
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void find_copies(void)
{
    qsort(all, (size_t)n, sizeof *all, by_definition);
    for (int begin = 0, end; begin < n; begin = end) {
        int parts = 1;
        for (end = begin + 1; end < n && !strcmp(all[end].definition, all[begin].definition); end++) {
            all[end].is_copy = all[end].part == all[end - 1].part;
            parts += !all[end].is_copy;
        }
        for (int i = begin; i < end; i++) all[i].copies = end - begin, all[i].parts = parts;
    }
    qsort(all, (size_t)n, sizeof *all, by_words);
    for (int begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && !strcmp(all[end].words, all[begin].words);) end++;
        for (int i = begin; i < end; i++) all[i].namesakes = end - begin;
    }
}

// ---- what is written -----------------------------------------------------------------------------------------------

static FILE *create(const char *out, const char *folder, int split)
{
    char path[GX_PATH];
    GxError err = GX_ZERO;
    snprintf(path, sizeof path, "%.4000s/%s", out, folder);
    if (gx_folder_make(path, &err) != GX_OK) fail(err.message, "");
    snprintf(path, sizeof path, "%.4000s/%s/%s.tsv", out, folder, split_name[split]);
    FILE *f = fopen(path, "w");
    if (!f) fail("cannot create", path);
    return f;
}

static void done(FILE *f, const char *name)
{
    if (ferror(f) || fclose(f) != 0) fail("cannot write", name);
}

static int is_of_part(const Synset *s) { return !s->is_odd && !s->is_copy && s->parts == 1; }
static int is_pair(const Synset *s) { return !s->is_odd && s->copies == 1 && s->namesakes == 1; }

static void write_parts(const char *out, int split)
{
    long count[4] = {0, 0, 0, 0};
    FILE *f = create(out, "pos", split);
    fprintf(f, "text\tlabel\n");
    for (int i = 0; i < n; i++) {
        if (all[i].split != split || !is_of_part(&all[i])) continue;
        fprintf(f, "%s\t%s\n", all[i].definition, part[all[i].part]);
        count[all[i].part]++;
    }
    done(f, "pos");
    printf("  pos/%s.tsv:", split_name[split]);
    for (int k = 0; k < 4; k++) printf(" %ld %s%s", count[k], part[k], k < 3 ? "," : "\n");
}

static void write_pairs(const char *out, int split)
{
    long count = 0;
    FILE *f = create(out, "pairs", split);
    fprintf(f, "anchor\tpositive\n");
    for (int i = 0; i < n; i++)
        if (all[i].split == split && is_pair(&all[i])) {
            fprintf(f, "%s\t%s\n", all[i].words, all[i].definition);
            count++;
        }
    done(f, "pairs");
    printf("  pairs/%s.tsv: %ld\n", split_name[split], count);
}

// 1: one of the words of x is a word of y.
static int share_words(const Synset *x, const Synset *y)
{
    char words[TEXT], padded[TEXT + 4], *next = words, *word;
    snprintf(words, sizeof words, "%s", x->words);
    snprintf(padded, sizeof padded, ", %s, ", y->words);
    while ((word = strsep(&next, ",")) != NULL) {
        char one[TEXT + 4];
        snprintf(one, sizeof one, ", %s, ", word + (word[0] == ' '));
        if (strstr(padded, one)) return 1;
    }
    return 0;
}

typedef struct {
    const Synset *list[CANDIDATES];
    int n;
} Group;

static void add_candidate(Group *g, const Synset *s)
{
    const Synset *own = g->list[0];
    if (g->n == CANDIDATES || s->split != own->split || s->part != own->part || !is_pair(s)) return;
    for (int i = 0; i < g->n; i++)
        if (g->list[i] == s) return;
    if (!share_words(own, s)) g->list[g->n++] = s;
}

// The group's own definition, up to two of its family, the rest of anywhere in its part of speech. all[] is by family.
static void make_group(Group *g, int i)
{
    uint64_t draw = all[i].hash;
    g->list[0] = &all[i], g->n = 1;
    for (int away = 1; away < 40 && g->n < 3; away++) {
        if (i + away < n && all[i + away].family == all[i].family) add_candidate(g, &all[i + away]);
        if (g->n < 3 && i >= away && all[i - away].family == all[i].family) add_candidate(g, &all[i - away]);
    }
    for (int tries = 0; tries < 10000 && g->n < CANDIDATES; tries++) {
        draw = gx_hash(draw, &tries, sizeof tries);
        add_candidate(g, &all[(draw >> 20) % (uint64_t)n]);
    }
}

static uint64_t place_of(const Synset *own, const Synset *s)
{
    return gx_hash(own->hash, s->definition, (int64_t)strlen(s->definition)) >> 16;
}

static void write_group(FILE *f, const Group *g, long number)
{
    for (int place = 0; place < g->n; place++)
        for (int i = 0; i < g->n; i++) { // who has `place` others before it
            int before = 0;
            for (int j = 0; j < g->n; j++)
                before += place_of(g->list[0], g->list[j]) < place_of(g->list[0], g->list[i]);
            if (before == place)
                fprintf(f, "%ld\t%s\t%s\t%d\n", number, g->list[0]->words, g->list[i]->definition, i == 0);
        }
}

static int places_by_hash(const void *a, const void *b)
{
    return by_hash(&all[*(const int *)a], &all[*(const int *)b]);
}

// all[] is by family, the groups are by hash.
static void write_groups(const char *out, int split)
{
    static int order[MOST];
    long count = 0;
    for (int i = 0; i < n; i++) order[i] = i;
    qsort(order, (size_t)n, sizeof *order, places_by_hash);
    FILE *f = create(out, "rerank", split);
    fprintf(f, "group\ttext\ttext2\tlabel\n");
    for (int i = 0; i < n; i++) {
        const Synset *s = &all[order[i]];
        Group g;
        if (s->split != split || !is_pair(s) || (s->hash >> 8) % GROUPS_OF) continue;
        make_group(&g, order[i]);
        write_group(f, &g, ++count);
    }
    done(f, "rerank");
    printf("  rerank/%s.tsv: %ld groups of %d\n", split_name[split], count, CANDIDATES);
}

// A family is a document. What is held out anywhere is not there. all[] is by family.
static void write_documents(const char *out)
{
    char path[GX_PATH];
    snprintf(path, sizeof path, "%.4000s/wordnet.txt", out);
    FILE *f = fopen(path, "w");
    if (!f) fail("cannot create", path);
    for (int i = 0, begun = 0; i < n; i++) {
        if (i && (all[i].family != all[i - 1].family || all[i].part != all[i - 1].part)) {
            if (begun) fprintf(f, "\n");
            begun = 0;
        }
        if (all[i].split != TRAIN || all[i].is_odd) continue;
        fprintf(f, "%s: %s\n%s", all[i].words, all[i].definition, all[i].examples);
        begun = 1;
    }
    done(f, path);
}

int main(int argc, char **argv)
{
    if (argc != 3) fail("usage: wordnet FOLDER OUT,", "FOLDER with data.noun, data.verb, data.adj, data.adv");
    for (int k = 0; k < 4; k++) read_part(argv[1], k);
    leave_out_vulgar();
    find_copies();
    qsort(all, (size_t)n, sizeof *all, by_hash);
    for (int split = 0; split < SPLITS; split++) write_parts(argv[2], split);
    for (int split = 0; split < TEST; split++) write_pairs(argv[2], split);
    qsort(all, (size_t)n, sizeof *all, by_family);
    for (int split = 0; split < TEST; split++) write_groups(argv[2], split);
    write_documents(argv[2]);
    return 0;
}
