// porter_stemmer.h: the stem of an English word: "connection", "connected" and "connecting" all become "connect".
//
// The algorithm is Porter's (An algorithm for suffix stripping, Program 14(3), 1980) with the changes that NLTK's
// PorterStemmer makes by default, on which the package rouge_score relies: a few irregular words; words of one or two
// letters stay; dies and died become die; a final y becomes i behind any consonant but the first letter; "bli", "alli",
// "fulli" and "logi" have rules of their own.
//
//     int64_t n = gx_porter_stem(word, 10);    // word: "connection"; n is 7
#ifndef GX_PORTER_STEMMER_H
#define GX_PORTER_STEMMER_H
#include "../base/status.h"
GX_BEGIN

// Replaces word[n], of the letters a to z and digits, by its stem. Returns the stem's length, which is at most n.
int64_t gx_porter_stem(char *word, int64_t n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PORTER_STEMMER_IMPLEMENTED)
#define GX_PORTER_STEMMER_IMPLEMENTED
#include <string.h>

static int gx__porter_is_plain_vowel(char c) { return c && strchr("aeiou", c) != NULL; }

// A y is a vowel behind a consonant: `before` says whether the letter before it is one (0 at the beginning).
static int gx__porter_consonant_after(char c, int before) { return c == 'y' ? !before : !gx__porter_is_plain_vowel(c); }

static int gx__porter_is_consonant(const char *w, int64_t i)
{
    int is = 0;
    int64_t k = i;
    while (k > 0 && w[k] == 'y') k--;
    for (; k <= i; k++) is = gx__porter_consonant_after(w[k], is);
    return is;
}

// m: how often a consonant follows a vowel.
static int64_t gx__porter_measure(const char *w, int64_t n)
{
    int64_t m = 0;
    for (int64_t i = 0, before = 1, is; i < n; i++, before = is) {
        is = gx__porter_consonant_after(w[i], i ? (int)before : 0);
        m += is && !before;
    }
    return m;
}

static int gx__porter_has_vowel(const char *w, int64_t n)
{
    for (int64_t i = 0, is = 0; i < n; i++)
        if (!(is = gx__porter_consonant_after(w[i], (int)is))) return 1;
    return 0;
}

// *d: the word ends with a double consonant.
static int gx__porter_is_doubled(const char *w, int64_t n)
{
    return n >= 2 && w[n - 1] == w[n - 2] && gx__porter_is_consonant(w, n - 1);
}

// *o: it ends with consonant, vowel, consonant, the last of them not w, x or y; or it is a vowel and a consonant.
static int gx__porter_is_short(const char *w, int64_t n)
{
    if (n < 2 || gx__porter_is_consonant(w, n - 2) || !gx__porter_is_consonant(w, n - 1)) return 0;
    return n == 2 || (gx__porter_is_consonant(w, n - 3) && !strchr("wxy", w[n - 1]));
}

static int gx__porter_ends(const char *w, int64_t n, const char *suffix)
{
    const int64_t bytes = (int64_t)strlen(suffix);
    return n >= bytes && !memcmp(w + n - bytes, suffix, (size_t)bytes);
}

typedef struct { // only the first rule whose suffix the word has is tried
    const char *suffix, *by;
    int64_t m; // the measure of what is before the suffix must be larger; -1: any is
} GxPorterRule;

static int64_t gx__porter_replace(char *w, int64_t n, const GxPorterRule *rule)
{
    const int64_t by = (int64_t)strlen(rule->by), stem = n - (int64_t)strlen(rule->suffix);
    if (rule->m >= 0 && gx__porter_measure(w, stem) <= rule->m) return n;
    memcpy(w + stem, rule->by, (size_t)by);
    return stem + by;
}

static int64_t gx__porter_apply(char *w, int64_t n, const GxPorterRule *rules, int n_rules)
{
    for (int i = 0; i < n_rules; i++)
        if (gx__porter_ends(w, n, rules[i].suffix)) return gx__porter_replace(w, n, &rules[i]);
    return n;
}
#define GX__PORTER_APPLY(rules) gx__porter_apply(w, n, rules, (int)(sizeof(rules) / sizeof *(rules)))

// Plurals.
static int64_t gx__porter_step_1a(char *w, int64_t n)
{
    static const GxPorterRule rules[] = {{"sses", "ss", -1}, {"ies", "i", -1}, {"ss", "ss", -1}, {"s", "", -1}};
    return n == 4 && gx__porter_ends(w, n, "ies") ? n - 1 : GX__PORTER_APPLY(rules);
}

// What is behind -ed and -ing, tidied up.
static int64_t gx__porter_restore(char *w, int64_t n)
{
    static const GxPorterRule rules[] = {{"at", "ate", -1}, {"bl", "ble", -1}, {"iz", "ize", -1}};
    const int64_t longer = GX__PORTER_APPLY(rules);
    if (longer > n) return longer;
    if (gx__porter_is_doubled(w, n)) return strchr("lsz", w[n - 1]) ? n : n - 1;
    if (gx__porter_measure(w, n) != 1 || !gx__porter_is_short(w, n)) return n;
    w[n] = 'e';
    return n + 1;
}

// -eed, -ed and -ing.
static int64_t gx__porter_step_1b(char *w, int64_t n)
{
    static const GxPorterRule eed = {"eed", "ee", 0};
    if (gx__porter_ends(w, n, "ied")) return n == 4 ? n - 1 : n - 2;
    if (gx__porter_ends(w, n, "eed")) return gx__porter_replace(w, n, &eed);
    if (gx__porter_ends(w, n, "ed")) return gx__porter_has_vowel(w, n - 2) ? gx__porter_restore(w, n - 2) : n;
    if (gx__porter_ends(w, n, "ing")) return gx__porter_has_vowel(w, n - 3) ? gx__porter_restore(w, n - 3) : n;
    return n;
}

static void gx__porter_step_1c(char *w, int64_t n)
{
    if (n > 2 && w[n - 1] == 'y' && gx__porter_is_consonant(w, n - 2)) w[n - 1] = 'i';
}

static int64_t gx__porter_step_2(char *w, int64_t n)
{
    static const GxPorterRule rules[] = {
        {"ational", "ate", 0}, {"tional", "tion", 0}, {"enci", "ence", 0}, {"anci", "ance", 0}, {"izer", "ize", 0},
        {"bli", "ble", 0},     {"alli", "al", 0},     {"entli", "ent", 0}, {"eli", "e", 0},     {"ousli", "ous", 0},
        {"ization", "ize", 0}, {"ation", "ate", 0},   {"ator", "ate", 0},  {"alism", "al", 0},  {"iveness", "ive", 0},
        {"fulness", "ful", 0}, {"ousness", "ous", 0}, {"aliti", "al", 0},  {"iviti", "ive", 0}, {"biliti", "ble", 0},
        {"fulli", "ful", 0},
    };
    if (gx__porter_ends(w, n, "alli") && gx__porter_measure(w, n - 4) > 0) return gx__porter_step_2(w, n - 2);
    // the l of "logi" counts as a part of what is before it
    if (gx__porter_ends(w, n, "logi")) return gx__porter_measure(w, n - 3) > 0 ? n - 1 : n;
    return GX__PORTER_APPLY(rules);
}

static int64_t gx__porter_step_3(char *w, int64_t n)
{
    static const GxPorterRule rules[] = {{"icate", "ic", 0}, {"ative", "", 0}, {"alize", "al", 0}, {"iciti", "ic", 0},
                                         {"ical", "ic", 0},  {"ful", "", 0},   {"ness", "", 0}};
    return GX__PORTER_APPLY(rules);
}

static int64_t gx__porter_step_4(char *w, int64_t n)
{
    static const GxPorterRule rules[] = {
        {"al", "", 1},   {"ance", "", 1}, {"ence", "", 1}, {"er", "", 1},    {"ic", "", 1},
        {"able", "", 1}, {"ible", "", 1}, {"ant", "", 1},  {"ement", "", 1}, {"ment", "", 1},
        {"ent", "", 1},  {"ion", "", 1},  {"ou", "", 1},   {"ism", "", 1},   {"ate", "", 1},
        {"iti", "", 1},  {"ous", "", 1},  {"ive", "", 1},  {"ize", "", 1},
    };
    if (gx__porter_ends(w, n, "ion") && n > 3 && !strchr("st", w[n - 4])) return n;
    return GX__PORTER_APPLY(rules);
}

// A final e, and one of two l.
static int64_t gx__porter_step_5(char *w, int64_t n)
{
    if (n && w[n - 1] == 'e') {
        const int64_t m = gx__porter_measure(w, n - 1);
        if (m > 1 || (m == 1 && !gx__porter_is_short(w, n - 1))) n--;
    }
    return gx__porter_ends(w, n, "ll") && gx__porter_measure(w, n - 1) > 1 ? n - 1 : n;
}

int64_t gx_porter_stem(char *w, int64_t n)
{
    static const char *const irregular[][2] = {
        {"sky", "sky"},         {"skies", "sky"},       {"dying", "die"},      {"lying", "lie"},
        {"tying", "tie"},       {"news", "news"},       {"innings", "inning"}, {"inning", "inning"},
        {"outings", "outing"},  {"outing", "outing"},   {"howe", "howe"},      {"cannings", "canning"},
        {"canning", "canning"}, {"proceed", "proceed"}, {"exceed", "exceed"},  {"succeed", "succeed"},
    };
    for (size_t i = 0; i < sizeof irregular / sizeof *irregular; i++) {
        const int64_t stem = (int64_t)strlen(irregular[i][1]);
        if (n != (int64_t)strlen(irregular[i][0]) || memcmp(w, irregular[i][0], (size_t)n)) continue;
        memcpy(w, irregular[i][1], (size_t)stem);
        return stem;
    }
    if (n <= 2) return n;
    n = gx__porter_step_1b(w, gx__porter_step_1a(w, n));
    gx__porter_step_1c(w, n);
    n = gx__porter_step_4(w, gx__porter_step_3(w, gx__porter_step_2(w, n)));
    return gx__porter_step_5(w, n);
}
#undef GX__PORTER_APPLY
#endif
