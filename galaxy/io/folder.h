// folder.h: publishes a folder as a whole (a checkpoint, a model): either it has all its files, with the contents that
// were written, or a reader can tell that it is incomplete.
//
// The files are written into a temporary folder beside the final one. gx_publish_finish syncs and hashes them, writes
// manifest.json last ({"files": [{"name", "bytes", "fnv1a64"}]}), syncs the folder and renames it. A folder of that
// name that was published before is renamed first and removed last: at every moment one of the two is complete, and
// gx_publish_recover gives it its name back. gx_publish_remove works alike: a folder with the final name is complete or
// does not exist, however a removal ended. A folder that is neither empty nor has a manifest was not made by this
// library, and is never replaced or removed. Names that end in GX_NEW_SUFFIX or GX_OLD_SUFFIX are reserved.
//
//     char folder[GX_PATH];
//     GX_TRY(gx_publish_begin("out/step-100", folder, err));     // an empty folder, without what a killed run left
//     …write files into `folder`, and folders with files, but no deeper…
//     GX_TRY(gx_publish_finish("out/step-100", err));
//     GX_TRY(gx_folder_verify("out/step-100", 1, err));          // before reading; 0: names and sizes, 1: contents
//
// Code that lists folders must skip names with these suffixes. There must be one writer per name: a run locks its
// folder (run/output.h), a tool claims its output (claim.h).
#ifndef GX_FOLDER_H
#define GX_FOLDER_H
#include "json.h"
GX_BEGIN

#define GX_MANIFEST   "manifest.json"
#define GX_NEW_SUFFIX ".gx-new"
#define GX_OLD_SUFFIX ".gx-old"

GxStatus gx_publish_begin(const char *final_path, char *temporary, GxError *err); // temporary[GX_PATH]
GxStatus gx_publish_finish(const char *final_path, GxError *err);
GxStatus gx_publish_recover(const char *final_path, GxError *err); // after a crash; gx_publish_begin calls it
GxStatus gx_publish_remove(const char *final_path, GxError *err);
GxStatus gx_folder_move(const char *from, const char *to, GxError *err); // to a name that does not exist; synced
// For --output_dir of a program that writes a folder: it must be empty or not exist.
GxStatus gx_folder_need_empty(const char *path, GxError *err);
int gx_folder_is_ours(const char *path); // 1: published or empty: only such a folder may be replaced
// GX_ERR_FORMAT: incomplete or damaged; the message names the file.
GxStatus gx_folder_verify(const char *path, int contents, GxError *err);
int gx_folder_names(const char *path, const char *name); // 1: its manifest names this file, whether it exists or not

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_FOLDER_IMPLEMENTED)
#define GX_FOLDER_IMPLEMENTED
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GX__FOLDER_MANIFEST_CAP = 16 << 20 };

// "out/step-100/" and ".gx-new" give "out/step-100.gx-new".
static GxStatus gx__folder_beside(char *out, const char *path, const char *suffix, GxError *err)
{
    const int n = gx_path_length(path);
    if (n == 0 || (n == 1 && (path[0] == '/' || path[0] == '.')))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "\"%s\" cannot be published; the folder needs a name", path);
    if (snprintf(out, GX_PATH, "%.*s%s", n, path, suffix) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    return GX_OK;
}

static int gx__folder_path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static GxStatus gx__folder_rename(const char *from, const char *to, GxError *err)
{
    if (rename(from, to) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
    char parent[GX_PATH];
    gx_path_parent(parent, to);
    return gx_file_sync(parent, err);
}

GxStatus gx_folder_move(const char *from, const char *to, GxError *err)
{
    if (gx__folder_path_exists(to)) return GX_FAIL(err, GX_ERR_IO, "cannot move %s: %s already exists", from, to);
    return gx__folder_rename(from, to, err);
}

int gx_folder_is_ours(const char *path)
{
    struct stat st;
    GxFolder folder;
    GxError ignored = GX_ZERO; // a folder that cannot be listed is not ours
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || gx_folder_list(&folder, path, &ignored) != GX_OK) return 0;
    int ours = folder.n == 0;
    for (int i = 0; i < folder.n; i++) ours |= !strcmp(folder.entry[i].name, GX_MANIFEST);
    gx_folder_close(&folder);
    return ours;
}

static GxStatus gx__folder_need_ours(const char *path, GxError *err)
{
    if (gx_folder_is_ours(path)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s is not a folder with a %s: it was not written by this library, or is incomplete, and is left "
                   "alone; move it away, remove it, or choose another name",
                   path, GX_MANIFEST);
}

static int gx__folder_is_whole(const char *path)
{
    GxError torn = GX_ZERO;
    return gx_folder_verify(path, 0, &torn) == GX_OK;
}

// Gives the name to a new folder that was finished, or else to the older one, which is still complete since its removal
// had not begun.
GxStatus gx_publish_recover(const char *final_path, GxError *err)
{
    char final_name[GX_PATH], temporary[GX_PATH], old[GX_PATH];
    GX_TRY(gx__folder_beside(final_name, final_path, "", err));
    GX_TRY(gx__folder_beside(temporary, final_path, GX_NEW_SUFFIX, err));
    GX_TRY(gx__folder_beside(old, final_path, GX_OLD_SUFFIX, err));
    if (!gx__folder_path_exists(final_name) && gx__folder_is_whole(temporary))
        GX_TRY(gx__folder_rename(temporary, final_name, err));
    if (!gx__folder_path_exists(final_name) && gx__folder_is_whole(old))
        GX_TRY(gx__folder_rename(old, final_name, err));
    if (gx__folder_path_exists(temporary)) GX_TRY(gx_folder_remove(temporary, err));
    return gx__folder_path_exists(old) ? gx_folder_remove(old, err) : GX_OK;
}

GxStatus gx_publish_begin(const char *final_path, char *temporary, GxError *err)
{
    char final_name[GX_PATH];
    GX_TRY(gx__folder_beside(final_name, final_path, "", err));
    GX_TRY(gx__folder_beside(temporary, final_path, GX_NEW_SUFFIX, err));
    GX_TRY(gx_publish_recover(final_path, err));
    if (gx__folder_path_exists(final_name)) GX_TRY(gx__folder_need_ours(final_name, err));
    return gx_folder_make(temporary, err);
}

// name: of a file in the folder, or, with a '/', of one in a folder inside it.
static GxStatus gx__folder_manifest_add(GxJson *files, const char *folder, const char *name, GxError *err)
{
    char path[GX_PATH], hex[17];
    uint64_t hash;
    int64_t bytes;
    GX_TRY(gx_path_join(path, folder, name, err));
    GX_TRY(gx_file_sync(path, err));
    GX_TRY(gx_file_hash(path, &hash, &bytes, err));
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash);
    GxJson *file = gx_json_new_object();
    GxStatus status = gx_json_set(file, "name", gx_json_new_string(name), err);
    if (status == GX_OK) status = gx_json_set(file, "bytes", gx_json_new_int(bytes), err);
    if (status == GX_OK) status = gx_json_set(file, "fnv1a64", gx_json_new_string(hex), err);
    if (status == GX_OK) return gx_json_append(files, file, err);
    gx_json_free(file);
    return status;
}

// Adds all files of the folder, or, if inner is not "", of the folder `inner` inside it.
static GxStatus gx__folder_manifest_list(GxJson *files, const char *folder, const char *inner, GxError *err)
{
    GxFolder list;
    char path[GX_PATH], name[GX_PATH];
    snprintf(path, sizeof path, "%s", folder);
    if (inner[0]) GX_TRY(gx_path_join(path, folder, inner, err));
    GX_TRY(gx_folder_list(&list, path, err));
    GxStatus status = GX_OK;
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        const GxFolderEntry *e = &list.entry[i];
        snprintf(name, sizeof name, "%s", e->name);
        if (inner[0]) status = gx_path_join(name, inner, e->name, err);
        if (status != GX_OK || (!inner[0] && !strcmp(e->name, GX_MANIFEST))) continue;
        if (e->is_file) status = gx__folder_manifest_add(files, folder, name, err);
        else if (e->is_folder && !inner[0]) status = gx__folder_manifest_list(files, folder, e->name, err);
        else
            status =
                GX_FAIL(err, GX_ERR_ARGUMENT,
                        "%s/%s is not a file; only plain files and folders of them can be published", folder, name);
    }
    gx_folder_close(&list);
    return status == GX_OK && inner[0] ? gx_file_sync(path, err) : status;
}

static GxStatus gx__folder_manifest_write(const char *folder, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, folder, GX_MANIFEST, err));
    GxJson *root = gx_json_new_object(), *files = gx_json_new_array();
    GxStatus status = gx_json_set(root, "files", files, err);
    if (status == GX_OK) status = gx__folder_manifest_list(files, folder, "", err);
    if (status == GX_OK) status = gx_json_write(root, path, err); // synced, with its folder
    gx_json_free(root);
    return status;
}

static GxStatus gx__folder_step_aside(const char *final_name, const char *old, GxError *err)
{
    GX_TRY(gx__folder_need_ours(final_name, err));
    if (gx__folder_path_exists(old)) GX_TRY(gx_folder_remove(old, err));
    return gx__folder_rename(final_name, old, err);
}

GxStatus gx_publish_remove(const char *final_path, GxError *err)
{
    char final_name[GX_PATH], old[GX_PATH];
    GX_TRY(gx__folder_beside(final_name, final_path, "", err));
    GX_TRY(gx__folder_beside(old, final_path, GX_OLD_SUFFIX, err));
    GX_TRY(gx_folder_check_removal(final_name, err)); // a folder that cannot be removed keeps its name
    GX_TRY(gx__folder_step_aside(final_name, old, err));
    return gx_folder_remove(old, err);
}

GxStatus gx_publish_finish(const char *final_path, GxError *err)
{
    char final_name[GX_PATH], temporary[GX_PATH], old[GX_PATH];
    GX_TRY(gx__folder_beside(final_name, final_path, "", err));
    GX_TRY(gx__folder_beside(temporary, final_path, GX_NEW_SUFFIX, err));
    GX_TRY(gx__folder_beside(old, final_path, GX_OLD_SUFFIX, err));
    GX_TRY(gx__folder_manifest_write(temporary, err));
    if (!gx__folder_path_exists(final_name)) return gx__folder_rename(temporary, final_name, err);

    GX_TRY(gx__folder_step_aside(final_name, old, err));
    GxStatus status = gx__folder_rename(temporary, final_name, err);
    if (status == GX_OK) return gx_folder_remove(old, err);
    if (!gx__folder_path_exists(final_name)) gx__folder_rename(old, final_name, err);
    return status;
}

// "a", or "a/b".
static int gx__folder_is_inside(const char *name)
{
    char first[GX_FILE_NAME] = "";
    const char *slash = strchr(name, '/');
    if (!slash) return gx_path_is_plain(name);
    if (slash - name >= GX_FILE_NAME) return 0;
    memcpy(first, name, (size_t)(slash - name));
    return gx_path_is_plain(first) && gx_path_is_plain(slash + 1);
}

static GxStatus gx__folder_manifest_check(const char *folder, const GxJson *file, const char *manifest, int contents,
                                          GxError *err)
{
    const char *name = "", *hex = "";
    char path[GX_PATH], found[17];
    int64_t expected = 0, bytes = 0;
    GX_TRY(gx_json_get_string(file, "name", 1, &name, manifest, err));
    GX_TRY(gx_json_get_int(file, "bytes", 1, &expected, manifest, err));
    GX_TRY(gx_json_get_string(file, "fnv1a64", 1, &hex, manifest, err));
    if (!gx__folder_is_inside(name))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the name \"%s\" leads out of the folder", manifest, name);
    GX_TRY(gx_path_join(path, folder, name, err));

    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is damaged: the file %s, which its manifest names, is missing", folder,
                       name);
    if ((int64_t)st.st_size != expected)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is damaged: %s has %ld bytes, but its manifest says %ld", folder, name,
                       (long)st.st_size, (long)expected);
    if (!contents) return GX_OK;

    uint64_t hash;
    GX_TRY(gx_file_hash(path, &hash, &bytes, err));
    snprintf(found, sizeof found, "%016llx", (unsigned long long)hash);
    if (strcmp(found, hex))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is damaged: %s has the hash %s, but its manifest says %s", folder, name,
                       found, hex);
    return GX_OK;
}

GxStatus gx_folder_verify(const char *path, int contents, GxError *err)
{
    char manifest[GX_PATH];
    GxJson *root, *files = NULL;
    GX_TRY(gx_path_join(manifest, path, GX_MANIFEST, err));
    if (!gx__folder_path_exists(manifest))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has no %s: it was never finished, or lost it", path, GX_MANIFEST);
    // Other members are ignored: the size of a file and its hash describe it completely.
    GX_TRY(gx_json_read(&root, manifest, GX__FOLDER_MANIFEST_CAP, err));
    GxStatus status = gx_json_get_array(root, "files", 1, &files, manifest, err);
    for (int64_t i = 0; status == GX_OK && i < gx_json_size(files); i++)
        status = gx__folder_manifest_check(path, gx_json_at(files, i), manifest, contents, err);
    gx_json_free(root);
    return status;
}

int gx_folder_names(const char *path, const char *name)
{
    char manifest[GX_PATH];
    GxError ignored = GX_ZERO; // a manifest that cannot be read names nothing
    GxJson *root = NULL;
    int names = 0;
    if (gx_path_join(manifest, path, GX_MANIFEST, &ignored) == GX_OK)
        gx_json_read(&root, manifest, GX__FOLDER_MANIFEST_CAP, &ignored);
    const GxJson *files = gx_json_get(root, "files");
    for (int64_t i = 0; i < gx_json_size(files); i++)
        names |= !strcmp(gx_json_string(gx_json_get(gx_json_at(files, i), "name")), name);
    gx_json_free(root);
    return names;
}

GxStatus gx_folder_need_empty(const char *path, GxError *err)
{
    GxFolder folder = GX_ZERO;
    struct stat st;
    char name[GX_PATH];
    // with a slash at its end, lstat would follow a link
    snprintf(name, sizeof name, "%.*s", gx_path_length(path), path);
    if (lstat(name, &st) != 0) return GX_OK; // other obstacles are found in writing
    if (!S_ISDIR(st.st_mode))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is %s%s; expected an empty folder, or no folder of that name: choose another --output_dir",
                       path, S_ISLNK(st.st_mode) && gx_path_is_folder(name) ? "a link to " : "", gx_path_kind(name));
    GX_TRY(gx_folder_list(&folder, path, err));
    const int n = folder.n;
    gx_folder_close(&folder);
    if (n == 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is not empty; choose another --output_dir, or remove it", path);
}
#endif
