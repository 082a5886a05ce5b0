// config_help.h: --help: the options that most people need, where the program names them; --help all: every option;
// --help WORD: those with WORD in their names or their group's.
#ifndef GX_CONFIG_HELP_H
#define GX_CONFIG_HELP_H
#include "config.h"
#include <stdio.h>
GX_BEGIN

// A line of the short --help.
typedef struct {
    const char *title;  // what the options from here on are for; NULL: as the line before
    const char *option; // by its name; a program that does not have it leaves the line out
    const char *help;   // in fewer words than the option's own
} GxHelpLine;

// Lines of at most `width` columns: each option, what it is for, what it may be, its default; behind --help alone those
// of `common` instead, if there are any. Text before it (the usage) is the program's.
void gx_config_help(const GxConfig *c, const GxHelpLine *common, int n, FILE *out, int width);
int gx_config_is_about(const GxConfig *c, const GxOptionGroup *g, int option); // what --help WORD shows

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONFIG_HELP_IMPLEMENTED)
#define GX_CONFIG_HELP_IMPLEMENTED
#include <string.h>
#include "../base/text.h"

int gx_config_is_about(const GxConfig *c, const GxOptionGroup *g, int option)
{
    const char *word = c->help_about;
    return !word[0] || !strcmp(word, "all") || strstr(g->title, word) || strstr(g->option[option].name, word);
}

static int gx__config_option_flag(const GxField *o, char *out, size_t size) // "--seq_len N"; its columns
{
    static const char *const kinds[] = {" N",    " X",           "",      " TEXT", " N,N,…",
                                        " PATH", " NAME,NAME,…", " TEXT", " TEXT", " HASH"};
    return gx_text_columns(out, snprintf(out, size, "--%s%s", o->name, kinds[o->type]));
}

// A flag, and behind it or below it, from column `at` on, what it is for; `more` goes on whole where it can.
static void gx__config_help_line(FILE *out, const char *flag, int at, int width, const char *help, const char *more)
{
    const int length = gx_text_columns(flag, (int64_t)strlen(flag));
    if (2 + length + 2 > at) fprintf(out, "  %s\n%*s", flag, at, "");
    else fprintf(out, "  %s%*s", flag, at - 2 - length, "");
    const int column = gx_text_wrap(out, help, NULL, at, at, width);
    gx_text_wrap(out, more, ";", column, at, width);
    fprintf(out, "\n");
}

// What the option may be, unless that is left out, and its default; `nothing`: where it has none.
static void gx__config_help_option(FILE *out, const GxField *o, const char *help, int says_expected,
                                   const char *nothing, int at, int width)
{
    char flag[GX_CONFIG_NAME_CAP + 16], expected[200] = "", more[200 + GX_FIELD_TEXT] = "";
    const char *standard = o->default_text && o->default_text[0] ? o->default_text : nothing;
    gx__config_option_flag(o, flag, sizeof flag);
    if (says_expected && o->allowed) gx_field_expected(o, expected, sizeof expected);
    if (expected[0] || standard)
        snprintf(more, sizeof more, " (%s%s%s%s)", expected, expected[0] && standard ? "; " : "",
                 standard ? "default: " : "", standard ? standard : "");
    gx__config_help_line(out, flag, at, width, help, more);
}

static int gx__config_help_column(const GxConfig *c, int width)
{
    char flag[GX_CONFIG_NAME_CAP + 16];
    int longest = (int)strlen("--config FILE");
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++)
            longest = (int)gx_max(longest, gx__config_option_flag(&c->group[g].option[i], flag, sizeof flag));
    return 4 + (int)gx_min(longest, width / 3); // a longer flag has a line of its own
}

static void gx__config_help_common(const GxConfig *c, const GxHelpLine *common, int n, FILE *out, int width)
{
    const int at = gx__config_help_column(c, width);
    const char *title = NULL; // that is still to be written
    for (int i = 0; i < n; i++) {
        const GxField *o;
        void *target;
        if (common[i].title) title = common[i].title;
        if (gx_config_find(c, common[i].option, &o, &target) < 0) continue;
        if (title) fprintf(out, "%s%s\n", title == common[0].title ? "" : "\n", title);
        gx__config_help_option(out, o, common[i].help, o->type == GX_FIELD_STRING, NULL, at, width);
        title = NULL;
    }
    fprintf(out, "\n");
    gx__config_help_line(out, "--config FILE", at, width, "options from a JSON file; flags win over it", "");
    gx__config_help_line(out, "--help all", at, width, "every option; --help WORD: those with WORD in their names", "");
}

void gx_config_help(const GxConfig *c, const GxHelpLine *common, int n, FILE *out, int width)
{
    const char *about = c->help_about;
    const int at = gx__config_help_column(c, width), is_whole = !about[0] || !strcmp(about, "all");
    if (!about[0] && n > 0) {
        gx__config_help_common(c, common, n, out, width);
        return;
    }
    if (is_whole) {
        gx__config_help_line(out, "--config FILE", at, width,
                             "options from a JSON file with the same names; flags win over it", "");
        gx__config_help_line(out, "--help WORD", at, width, "options with WORD in their names; all: every option", "");
        gx__config_help_line(out, "--version", at, width, "what this program is, and what it was built with", "");
    }
    static const char *const nothing[] = {"0", "0", "false", "none", "none", "none", "none", "none", "none", "none"};
    const char *title = NULL;
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++) {
            const GxField *o = &c->group[g].option[i];
            if (!gx_config_is_about(c, &c->group[g], i)) continue;
            if (!title || strcmp(title, c->group[g].title))
                fprintf(out, "%s%s\n", title || is_whole ? "\n" : "", c->group[g].title);
            title = c->group[g].title;
            gx__config_help_option(out, o, o->help, 1, nothing[o->type], at, width);
        }
}
#endif
