// run/offload.h: which kinds of memory are kept in a file (--offload, --offload_dir).
#ifndef GX_OFFLOAD_H
#define GX_OFFLOAD_H
#include "options.h"
GX_BEGIN

// The kinds that a list names, "optimizer,gradients", as a mask of 1 << GxMemoryKind; "none": 0. err NULL: words that
// are none are left out; otherwise they are an error.
int gx_offload_kinds(const char *list, GxError *err);
// Refuses --offload without a folder on a disk, and, unless --offload none is given, the folder without --offload.
GxStatus gx_offload_check(const GxTrainOptions *o, const GxConfig *c, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OFFLOAD_IMPLEMENTED)
#define GX_OFFLOAD_IMPLEMENTED
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

static int gx__offload_kind(const char *word, size_t n) // -1: there is none of this name
{
    static const struct {
        const char *name;
        int kind;
    } kinds[] = {{"optimizer", GX_MEM_OPTIMIZER},
                 {"gradients", GX_MEM_GRADS},
                 {"activations", GX_MEM_ACTIVATIONS},
                 {"parameters", GX_MEM_WEIGHTS}};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == n && !strncmp(kinds[i].name, word, n)) return kinds[i].kind;
    return -1;
}

int gx_offload_kinds(const char *list, GxError *err)
{
    int mask = 0;
    if (!*list || !strcmp(list, "none")) return 0;
    for (const char *word = list;; word++) {
        const size_t n = strcspn(word, ",");
        const int kind = gx__offload_kind(word, n);
        if (kind >= 0) mask |= 1 << kind;
        else if (err)
            GX_FAIL(err, GX_ERR_ARGUMENT,
                    "--offload %s: there is no \"%.*s\"; it is none, or a list of optimizer, gradients, activations, "
                    "parameters, with commas and without spaces",
                    list, (int)n, word);
        if (!word[n]) return mask;
        word += n;
    }
}

static GxStatus gx__offload_check_folder(const char *folder, GxError *err)
{
    struct stat is;
    if (stat(folder, &is) == 0 && !S_ISDIR(is.st_mode))
        return GX_FAIL(err, GX_ERR_IO, "--offload_dir %s is not a folder", folder);
    if (access(folder, F_OK | W_OK | X_OK) != 0)
        return GX_FAIL(err, GX_ERR_IO, "--offload_dir %s: no file can be made there: %s", folder, strerror(errno));
#ifdef __linux__
    enum { TMPFS = 0x01021994 };
    struct statfs s;
    if (statfs(folder, &s) == 0 && s.f_type == TMPFS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--offload_dir %s is in memory itself (tmpfs); name a folder on a disk",
                       folder);
#endif
    return GX_OK;
}

GxStatus gx_offload_check(const GxTrainOptions *o, const GxConfig *c, GxError *err)
{
    const int kinds = gx_offload_kinds(o->offload, err);
    if (gx_error_code(err) != GX_OK) return gx_error_code(err);
    if (kinds && !o->offload_dir[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--offload %s needs a folder on a disk: name it with --offload_dir, or leave out --offload",
                       o->offload);
    if (kinds) return gx__offload_check_folder(o->offload_dir, err);
    if (gx_config_source(c, "offload_dir") == GX_FROM_FLAG && gx_config_source(c, "offload") != GX_FROM_FLAG)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--offload_dir %s, but nothing is offloaded; say what with --offload, such as --offload "
                       "optimizer,gradients",
                       o->offload_dir);
    return GX_OK;
}
#endif
