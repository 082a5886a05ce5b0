// files.h: files and folders: reading and writing whole files, new files that never exist incomplete, folders, hashes.
//
// A file gets its name only when it is complete: it is written under a temporary name beside it, synced, then renamed,
// then the folder is synced; every name that the system accepts is possible. Whatever happens in between (disk full, a
// signal, a power cut), the name has the old contents or the new, never a part. Only regular files are read (a named
// pipe would hang), and only regular files and folders are removed: links are not followed in removal. Only regular
// files are written: for a device, a pipe or a broken link, writing is an error and changes nothing. A link to a
// regular file remains, and the file that it leads to is written.
//
//     char *text; int64_t bytes;
//     GX_TRY(gx_file_read("notes.txt", 1 << 20, &text, &bytes, err));   // text[bytes] == 0
//     GX_TRY(gx_file_write("copy.txt", text, bytes, err));
//     free(text);
//
// Paths have at most GX_PATH - 1 bytes, the system's limit. POSIX only.
#ifndef GX_FILES_H
#define GX_FILES_H
#include "../base/status.h"
GX_BEGIN

enum { GX_FILE_NAME = 256 };

// Paths.
GxStatus gx_path_join(char *out, const char *folder, const char *name, GxError *err); // out[GX_PATH]
// The bytes of a path without the slashes at its end, as in "out/checkpoint-2//"; "/" keeps its own. The path may be
// cut there.
int gx_path_length(const char *path);
void gx_path_parent(char *out, const char *path); // out[GX_PATH]: its folder: "out" for "out/model", "." for "model"
const char *gx_path_name(const char *path);       // after its last slash: "model" of "out/model"
int gx_path_is_file(const char *path);            // a regular file, or a link to one
int gx_path_is_folder(const char *path);          // a folder, or a link to one
int gx_path_is_broken(const char *path);          // a link to nothing
int gx_path_is_plain(const char *name);           // one part of a path: not empty, no '/', not "." or ".."
// 1: the folder has a regular file of this name, or a link to one.
int gx_folder_has(const char *folder, const char *name);
// 1: the path ends with `end` (".txt"), ignoring case.
int gx_path_has_end(const char *path, const char *end);
// What is at the path, for a message: "a file", "a folder", "a pipe", "a broken link", …; "nothing". Links are
// followed.
const char *gx_path_kind(const char *path);

// Files that exist. Offsets and sizes in bytes; a short read or write is an error. Opens a regular file for reading;
// the caller closes fd.
GxStatus gx_file_open(const char *path, int *fd, int64_t *bytes, GxError *err);
// Replaces *fd of such a file by that of a copy, a file without a name that disappears when it is closed; in /tmp, as
// by tmpfile.
GxStatus gx_file_copy_apart(const char *path, int *fd, int64_t bytes, GxError *err);
GxStatus gx_file_read_at(int fd, const char *path, void *out, int64_t bytes, int64_t offset, GxError *err);
GxStatus gx_file_write_at(int fd, const char *path, const void *data, int64_t bytes, int64_t offset, GxError *err);
// A file larger than cap is an error; free(*text)
GxStatus gx_file_read(const char *path, int64_t cap, char **text, int64_t *bytes, GxError *err);
GxStatus gx_file_sync(const char *path, GxError *err); // a file or a folder, to the disk

// Refuses a path that must not be written to: it exists and is not a regular file, or it is the file that this
// program's standard output goes to. gx_file_create calls it; other code that opens a file for writing must, too.
GxStatus gx_file_check_output(const char *path, GxError *err);

// A new file: create, gx_file_write_at(file.fd, file.path, …), then commit or abandon. A failed commit leaves nothing
// behind.
typedef struct {
    int is_open, fd, folder; // folder: the file's folder, open
    char path[GX_PATH];
    char name[GX_FILE_NAME], temporary[GX_FILE_NAME]; // its name in that folder, and its name until it is committed
} GxNewFile;
GxStatus gx_file_create(GxNewFile *file, const char *path, GxError *err);
// Long before it is created: an error that names `who`, an option, if the file exists or cannot be created.
GxStatus gx_file_check_new(const char *path, const char *who, GxError *err);
GxStatus gx_file_commit(GxNewFile *file, GxError *err);
void gx_file_abandon(GxNewFile *file);
GxStatus gx_file_write(const char *path, const void *data, int64_t bytes, GxError *err); // all of it in one call

GxStatus gx_file_hash(const char *path, uint64_t *hash, int64_t *bytes, GxError *err);

// Checks that a text is UTF-8 without bytes of value 0; the error names line and byte. text[bytes] is the next part of
// the file, and ends with a whole character; the byte after it is readable, and is 0 or the first byte of the next
// character.
typedef struct { // how far the file has been checked; {path, 1, 0} at its beginning
    const char *path;
    int64_t line, byte;
} GxTextPlace;
GxStatus gx_text_check(GxTextPlace *place, const char *text, int64_t bytes, GxError *err);

// Folders.
typedef struct {
    char name[GX_FILE_NAME];
    int is_file, is_folder; // a link is neither
    int64_t bytes;
} GxFolderEntry;
typedef struct {
    GxFolderEntry *entry; // sorted by name
    int n;
} GxFolder;
GxStatus gx_folder_list(GxFolder *folder, const char *path, GxError *err);
void gx_folder_close(GxFolder *folder);
GxStatus gx_folder_make(const char *path, GxError *err); // with its parents; may exist already
// A new folder under TMPDIR, or else /tmp, whose name begins with `name`. path[GX_PATH]
GxStatus gx_folder_make_temporary(char *path, const char *name, GxError *err);
// Removes a tree of files and folders; if it contains anything else, nothing is removed
GxStatus gx_folder_remove(const char *path, GxError *err);
// Fails if gx_folder_remove would not remove the folder, since something in it is neither a file nor a folder.
GxStatus gx_folder_check_removal(const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_FILES_IMPLEMENTED)
#define GX_FILES_IMPLEMENTED
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

GxStatus gx_path_join(char *out, const char *folder, const char *name, GxError *err)
{
    size_t n = strlen(folder);
    int length = snprintf(out, GX_PATH, "%s%s%s", folder, n == 0 || folder[n - 1] == '/' ? "" : "/", name);
    if (length >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", out, GX_PATH - 1);
    return GX_OK;
}

int gx_path_length(const char *path)
{
    int n = (int)strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return n;
}

int gx_path_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

int gx_path_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int gx_folder_has(const char *folder, const char *name)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO; // a path that is too long does not exist
    return gx_path_join(path, folder, name, &ignored) == GX_OK && gx_path_is_file(path);
}

int gx_path_is_broken(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 && lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

int gx_path_is_plain(const char *name)
{
    return name[0] && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

static const char *gx__files_kind(mode_t mode)
{
    return S_ISREG(mode)    ? "a file"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

const char *gx_path_kind(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0) return gx__files_kind(st.st_mode);
    return gx_path_is_broken(path) ? "a broken link" : "nothing";
}

// 1: a pointer of Git LFS: a few lines in place of a large file that has not been fetched.
static int gx__files_is_lfs_pointer(int fd, int64_t bytes)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    char text[sizeof begin - 1];
    return bytes < 1024 && pread(fd, text, sizeof text, 0) == (ssize_t)sizeof text && !memcmp(text, begin, sizeof text);
}

GxStatus gx_file_open(const char *path, int *fd, int64_t *bytes, GxError *err)
{
    struct stat st;
    // O_NONBLOCK: opening a pipe must not block before fstat tells what it is.
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    int failed = fstat(*fd, &st) != 0;
    if (!failed && S_ISREG(st.st_mode)) {
        *bytes = (int64_t)st.st_size;
        if (!gx__files_is_lfs_pointer(*fd, *bytes)) return GX_OK;
        close(*fd);
        *fd = -1;
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s is a Git LFS pointer and not the file itself; fetch that with \"git lfs pull\"", path);
    }
    int reason = errno;
    close(*fd);
    *fd = -1;
    if (failed) return GX_FAIL(err, GX_ERR_IO, "cannot access %s: %s", path, strerror(reason));
    return GX_FAIL(err, GX_ERR_IO, "%s is %s%s; expected a file", path, gx__files_kind(st.st_mode),
                   S_ISDIR(st.st_mode) ? "" : ", not a regular file");
}

GxStatus gx_file_read_at(int fd, const char *path, void *out, int64_t bytes, int64_t offset, GxError *err)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)out + done, (size_t)gx_min(bytes - done, 1 << 30), (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return GX_FAIL(err, GX_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (n == 0)
            return GX_FAIL(err, GX_ERR_IO,
                           "%s ends at byte %ld, but %ld were expected: it was shortened while it was read", path,
                           (long)(offset + done), (long)(offset + bytes));
        done += n;
    }
    return GX_OK;
}

GxStatus gx_file_write_at(int fd, const char *path, const void *data, int64_t bytes, int64_t offset, GxError *err)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t n =
            pwrite(fd, (const char *)data + done, (size_t)gx_min(bytes - done, 1 << 30), (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return GX_FAIL(err, GX_ERR_IO, "cannot write %s: %s", path,
                           n < 0 ? strerror(errno) : "no bytes were accepted");
        done += n;
    }
    return GX_OK;
}

static GxStatus gx__files_copy(const char *path, int from, int to, int64_t bytes, GxError *err)
{
    char block[1 << 14];
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof block) {
        const int64_t n = gx_min((int64_t)sizeof block, bytes - at);
        GX_TRY(gx_file_read_at(from, path, block, n, at, err));
        GX_TRY(gx_file_write_at(to, "the copy of it in /tmp", block, n, at, err));
    }
    return GX_OK;
}

GxStatus gx_file_copy_apart(const char *path, int *fd, int64_t bytes, GxError *err)
{
    FILE *apart = tmpfile();
    const int copy = apart ? fcntl(fileno(apart), F_DUPFD_CLOEXEC, 0) : -1;
    if (copy < 0) GX_FAIL(err, GX_ERR_IO, "cannot make a copy of %s in /tmp: %s", path, strerror(errno));
    else if (gx__files_copy(path, *fd, copy, bytes, err) == GX_OK) {
        close(*fd);
        *fd = copy;
    } else close(copy);
    if (apart) fclose(apart);
    return gx_error_code(err);
}

GxStatus gx_file_read(const char *path, int64_t cap, char **text, int64_t *bytes, GxError *err)
{
    int fd;
    *text = NULL;
    GX_TRY(gx_file_open(path, &fd, bytes, err));
    GxStatus status = GX_OK;
    if (*bytes > cap)
        status =
            GX_FAIL(err, GX_ERR_FORMAT, "%s has %ld bytes; at most %ld are read here", path, (long)*bytes, (long)cap);
    else if (!(*text = (char *)malloc((size_t)*bytes + 1)))
        status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for the %ld bytes of %s", (long)*bytes, path);
    else status = gx_file_read_at(fd, path, *text, *bytes, 0, err);
    close(fd);
    if (status != GX_OK) {
        free(*text);
        *text = NULL;
        return status;
    }
    (*text)[*bytes] = 0;
    return GX_OK;
}

static GxStatus gx__files_sync_and_close(int fd, const char *path, GxError *err)
{
    int failed = fsync(fd) != 0 && errno != EINVAL; // EINVAL: the file system cannot sync folders
    int reason = errno;
    close(fd);
    if (failed) return GX_FAIL(err, GX_ERR_IO, "cannot sync %s: %s", path, strerror(reason));
    return GX_OK;
}

GxStatus gx_file_sync(const char *path, GxError *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    return gx__files_sync_and_close(fd, path, err);
}

void gx_path_parent(char *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) snprintf(out, GX_PATH, ".");
    else snprintf(out, GX_PATH, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

const char *gx_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int gx_path_has_end(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcasecmp(path + n - m, end);
}

GxStatus gx_file_check_output(const char *path, GxError *err)
{
    struct stat st, own;
    const char *kind = gx_path_kind(path);
    if (!strcmp(kind, "nothing")) return GX_OK;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return GX_FAIL(err, GX_ERR_IO,
                       "%s is %s, which cannot be written to; expected a regular file, or no file of that name: choose "
                       "another name or folder",
                       path, kind);
    for (int fd = 1; fd <= 2; fd++) // later output would be lost with the old file
        if (fstat(fd, &own) == 0 && own.st_dev == st.st_dev && own.st_ino == st.st_ino)
            return GX_FAIL(err, GX_ERR_IO, "%s is where this program's standard %s goes; choose another name", path,
                           fd == 1 ? "output" : "error");
    return GX_OK;
}

// "model.safetensors.tmp-1234-0"; a name that is too long is truncated.
static void gx__files_temporary_name(char out[GX_FILE_NAME], const char *name, int attempt)
{
    char suffix[40];
    const int room = GX_FILE_NAME - 1 - snprintf(suffix, sizeof suffix, ".tmp-%ld-%d", (long)getpid(), attempt);
    int n = (int)gx_min((int64_t)strlen(name), room);
    while (n > 0 && ((unsigned char)name[n] & 0xC0) == 0x80) n--; // does not split a UTF-8 character
    snprintf(out, GX_FILE_NAME, "%.*s%s", n, name, suffix);
}

// 0, or errno.
static int gx__files_create_temporary(GxNewFile *file)
{
    struct stat st;
    if (fstatat(file->folder, file->name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno != ENOENT)
        return errno;                                 // an invalid name is refused now, not when everything is written
    for (int attempt = 0; attempt < 100; attempt++) { // skips names that a killed program has left behind
        gx__files_temporary_name(file->temporary, file->name, attempt);
        file->fd = openat(file->folder, file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0) return 0;
        if (errno != EEXIST) break;
    }
    return errno;
}

// Finds the folder and the name of the file to write, following a link; 0, or errno.
static int gx__files_open_folder(GxNewFile *file)
{
    struct stat st;
    char parent[GX_PATH], *real = realpath(file->path, NULL); // NULL: there is no such file yet
    if (!real && lstat(file->path, &st) == 0) return ENOENT;  // a link to a file without a name, /dev/fd/3
    const char *path = real ? real : file->path;
    const int length = snprintf(file->name, sizeof file->name, "%s", gx_path_name(path));
    gx_path_parent(parent, path);
    free(real);
    if (length >= (int)sizeof file->name) return ENAMETOOLONG;
    file->folder = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return file->folder < 0 ? errno : 0;
}

GxStatus gx_file_create(GxNewFile *file, const char *path, GxError *err)
{
    memset(file, 0, sizeof *file);
    file->folder = -1;
    if (snprintf(file->path, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    GX_TRY(gx_file_check_output(path, err));
    int reason = gx__files_open_folder(file);
    if (!reason) reason = gx__files_create_temporary(file);
    if (reason && file->folder >= 0) close(file->folder);
    if (reason) return GX_FAIL(err, GX_ERR_IO, "cannot create %s: %s", path, strerror(reason));
    file->is_open = 1;
    return GX_OK;
}

GxStatus gx_file_check_new(const char *path, const char *who, GxError *err)
{
    GxNewFile file;
    if (access(path, F_OK) == 0 || gx_path_is_broken(path))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s %s already exists; remove it, or choose another name", who, path);
    GX_TRY(gx_file_create(&file, path, err)); // only to see whether that is possible
    gx_file_abandon(&file);
    return GX_OK;
}

void gx_file_abandon(GxNewFile *file)
{
    if (!file->is_open) return;
    close(file->fd);
    unlinkat(file->folder, file->temporary, 0);
    close(file->folder);
    file->is_open = 0;
}

GxStatus gx_file_commit(GxNewFile *file, GxError *err)
{
    if (!file->is_open) return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: committed, but not open", file->path);
    if (fsync(file->fd) != 0 || renameat(file->folder, file->temporary, file->folder, file->name) != 0) {
        int reason = errno;
        gx_file_abandon(file);
        return GX_FAIL(err, GX_ERR_IO, "cannot finish %s: %s", file->path, strerror(reason));
    }
    close(file->fd); // cannot fail: everything is synced
    file->is_open = 0;
    return gx__files_sync_and_close(file->folder, file->path, err);
}

GxStatus gx_file_write(const char *path, const void *data, int64_t bytes, GxError *err)
{
    GxNewFile file;
    GX_TRY(gx_file_create(&file, path, err));
    GxStatus status = gx_file_write_at(file.fd, file.path, data, bytes, 0, err);
    if (status == GX_OK) return gx_file_commit(&file, err);
    gx_file_abandon(&file);
    return status;
}

GxStatus gx_file_hash(const char *path, uint64_t *hash, int64_t *bytes, GxError *err)
{
    enum { CHUNK = 1 << 20 };
    int fd;
    *hash = GX_HASH_START;
    GX_TRY(gx_file_open(path, &fd, bytes, err));
    char *chunk = (char *)malloc(CHUNK);
    GxStatus status = chunk ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to read %s", path);
    for (int64_t at = 0; at < *bytes && status == GX_OK; at += CHUNK) {
        int64_t n = gx_min(CHUNK, *bytes - at);
        status = gx_file_read_at(fd, path, chunk, n, at, err);
        if (status == GX_OK) *hash = gx_hash(*hash, chunk, n);
    }
    free(chunk);
    close(fd);
    return status;
}

GxStatus gx_text_check(GxTextPlace *place, const char *text, int64_t bytes, GxError *err)
{
    for (int64_t i = 0, n; i < bytes; i += n, place->byte += n) {
        const unsigned char c = (unsigned char)text[i];
        n = c < 0x80 ? 1 : gx_utf8_bytes(text + i);
        if (c == 0)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: a byte of value 0; expected text in UTF-8", place->path,
                           (long)place->line);
        if (n == 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s:%ld: the byte 0x%02X at %ld is not UTF-8; save the file in that encoding", place->path,
                           (long)place->line, c, (long)place->byte);
        place->line += c == '\n';
    }
    return GX_OK;
}

static int gx__files_folder_compare(const void *a, const void *b)
{
    return strcmp(((const GxFolderEntry *)a)->name, ((const GxFolderEntry *)b)->name);
}

static GxStatus gx__files_folder_append(GxFolder *folder, int *capacity, int fd, const char *path, const char *name,
                                        GxError *err)
{
    struct stat st;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return GX_FAIL(err, GX_ERR_IO, "cannot access %s/%s: %s", path, name, strerror(errno));
    if (folder->n == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 16;
        GxFolderEntry *grown = (GxFolderEntry *)realloc(folder->entry, (size_t)*capacity * sizeof *grown);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to list %s", path);
        folder->entry = grown;
    }
    GxFolderEntry *e = &folder->entry[folder->n++];
    memset(e, 0, sizeof *e);
    if (snprintf(e->name, sizeof e->name, "%s", name) >= GX_FILE_NAME)
        return GX_FAIL(err, GX_ERR_IO, "%s holds a name that is too long", path);
    e->is_file = S_ISREG(st.st_mode);
    e->is_folder = S_ISDIR(st.st_mode);
    e->bytes = (int64_t)st.st_size;
    return GX_OK;
}

GxStatus gx_folder_list(GxFolder *folder, const char *path, GxError *err)
{
    int capacity = 0;
    memset(folder, 0, sizeof *folder);
    DIR *dir = opendir(path);
    if (!dir) return GX_FAIL(err, GX_ERR_IO, "cannot list %s: %s", path, strerror(errno));
    GxStatus status = GX_OK;
    for (struct dirent *d = readdir(dir); d && status == GX_OK; d = readdir(dir))
        if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
            status = gx__files_folder_append(folder, &capacity, dirfd(dir), path, d->d_name, err);
    closedir(dir);
    if (status != GX_OK) gx_folder_close(folder);
    else if (folder->n) qsort(folder->entry, (size_t)folder->n, sizeof *folder->entry, gx__files_folder_compare);
    return status;
}

void gx_folder_close(GxFolder *folder)
{
    free(folder->entry);
    memset(folder, 0, sizeof *folder);
}

GxStatus gx_folder_make(const char *path, GxError *err)
{
    char part[GX_PATH];
    if (snprintf(part, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    for (char *p = part + 1; part[0]; p++) {
        if (*p && *p != '/') continue;
        int last = *p == 0;
        *p = 0;
        const int why = mkdir(part, 0777) == 0 ? 0 : errno; // checking for the folder changes errno
        if (why && !gx_path_is_folder(part))
            return GX_FAIL(err, GX_ERR_IO, "cannot make the folder %s: %s%s", part,
                           why == EEXIST ? gx_path_kind(part) : strerror(why),
                           why == EEXIST ? " of that name is there; choose another one" : "");
        if (last) return GX_OK;
        *p = '/';
    }
    return GX_FAIL(err, GX_ERR_ARGUMENT, "a folder without a name cannot be made");
}

enum { GX__FILES_TREE_DEPTH = 16 };

// remove 0: only checks that everything in the tree is a file or a folder, which is done first.
static GxStatus gx__files_tree_remove(const char *path, int remove, int depth, GxError *err)
{
    GxFolder folder;
    if (depth > GX__FILES_TREE_DEPTH) return GX_FAIL(err, GX_ERR_IO, "%s lies too deep to be removed", path);
    GX_TRY(gx_folder_list(&folder, path, err));
    GxStatus status = GX_OK;
    for (int i = 0; i < folder.n && status == GX_OK; i++) {
        const GxFolderEntry *e = &folder.entry[i];
        char inner[GX_PATH];
        status = gx_path_join(inner, path, e->name, err);
        if (status != GX_OK) break;
        if (e->is_folder) status = gx__files_tree_remove(inner, remove, depth + 1, err);
        else if (!e->is_file)
            status = GX_FAIL(err, GX_ERR_IO, "%s is neither a file nor a folder, so it was not made here, %s", inner,
                             "remove it by hand");
        else if (remove && unlink(inner) != 0)
            status = GX_FAIL(err, GX_ERR_IO, "cannot remove %s: %s", inner, strerror(errno));
    }
    gx_folder_close(&folder);
    if (status == GX_OK && remove && rmdir(path) != 0)
        status = GX_FAIL(err, GX_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    return status;
}

GxStatus gx_folder_make_temporary(char *path, const char *name, GxError *err)
{
    const char *parent = getenv("TMPDIR");
    char last[GX_FILE_NAME];
    snprintf(last, sizeof last, "%.200s-XXXXXX", name);
    GX_TRY(gx_path_join(path, parent && parent[0] ? parent : "/tmp", last, err));
    if (mkdtemp(path)) return GX_OK;
    return GX_FAIL(err, GX_ERR_IO, "cannot make the folder %s: %s; set TMPDIR to use another place", path,
                   strerror(errno));
}

GxStatus gx_folder_check_removal(const char *path, GxError *err) { return gx__files_tree_remove(path, 0, 0, err); }

GxStatus gx_folder_remove(const char *path, GxError *err)
{
    struct stat st;
    if (lstat(path, &st) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return GX_FAIL(err, GX_ERR_IO, "%s is not a folder; it is not removed", path);
    GX_TRY(gx_folder_check_removal(path, err));
    return gx__files_tree_remove(path, 1, 0, err);
}
#endif
