// claim.h: claims the output of a tool, a file or a folder: it must not exist before, and no other process may make it
// at the same time.
//
//     GxClaim claim;
//     GX_TRY(gx_claim_folder(&claim, "out/model", err));       // fails if it exists, or another process is making it
//     GxStatus status = …write files into claim.folder…;
//     GX_TRY(gx_claim_publish(&claim, status, err));           // or removes what was written, if status is an error
//
//     GX_TRY(gx_claim_file(&claim, "out/model.gguf", err));
//     …a new file (files.h)…
//     gx_claim_end(&claim);
//
// A claim is a lock on a file beside the output, out/model.gx-lock, which names its holder and is removed at the end.
// It ends with the process: the next program takes over a file that a killed one has left. On a file system without
// locks there is no protection. A run's folder needs no claim, since the run locks the folder itself (run/output.h).
#ifndef GX_CLAIM_H
#define GX_CLAIM_H
#include "folder.h"
GX_BEGIN

#define GX_LOCK_SUFFIX ".gx-lock"

typedef struct {
    int is_held, fd;
    char path[GX_PATH]; // of the lock
    // for a folder: its path, and that of the temporary one (folder.h) to write into
    char output[GX_PATH], folder[GX_PATH];
} GxClaim;

// For --output_file: the path must not exist, its folder must.
GxStatus gx_claim_file(GxClaim *c, const char *path, GxError *err);
void gx_claim_end(GxClaim *c);
// For --output_dir: the path must be an empty folder or not exist. Makes its parent folders.
GxStatus gx_claim_folder(GxClaim *c, const char *path, GxError *err);
// status: the result of writing, which is returned if it is an error; otherwise publishes, and returns the result of
// that. Ends the claim.
GxStatus gx_claim_publish(GxClaim *c, GxStatus status, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CLAIM_IMPLEMENTED)
#define GX_CLAIM_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static GxStatus gx__claim_need_no_file(const char *path, GxError *err)
{
    struct stat st;
    if (lstat(path, &st) != 0) return GX_OK;
    GX_TRY(gx_file_check_output(path, err));
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s already exists; choose another --output_file, or remove it", path);
}

// The error, which quotes the holder: "process 1234 on node1".
static GxStatus gx__claim_refuse(const GxClaim *c, const char *output, const char *option, GxError *err)
{
    char holder[200] = "";
    const ssize_t n = pread(c->fd, holder, sizeof holder - 1, 0);
    holder[n > 0 ? n : 0] = 0;
    holder[strcspn(holder, "\n")] = 0;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is being written by %s; wait for it, or choose another %s", output,
                   holder[0] ? holder : "another process", option);
}

static void gx__claim_write_holder(const GxClaim *c)
{
    char host[65] = "", line[120];
    GxError ignored = GX_ZERO; // affects only the message that others get
    gethostname(host, sizeof host - 1);
    const int n = snprintf(line, sizeof line, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(c->fd, 0) == 0) gx_file_write_at(c->fd, c->path, line, n, 0, &ignored);
}

// 1: the locked file still has its name; its previous holder may have removed it meanwhile.
static int gx__claim_is_named(const GxClaim *c)
{
    struct stat locked, named;
    return fstat(c->fd, &locked) == 0 && lstat(c->path, &named) == 0 && locked.st_dev == named.st_dev &&
           locked.st_ino == named.st_ino;
}

static GxStatus gx__claim_lock(GxClaim *c, const char *output, const char *option, GxError *err)
{
    memset(c, 0, sizeof *c);
    if (snprintf(c->path, GX_PATH, "%.*s" GX_LOCK_SUFFIX, gx_path_length(output), output) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", output, GX_PATH - 9);
    for (int attempt = 0; attempt < 1000; attempt++) {
        GX_TRY(gx_file_check_output(c->path, err));
        c->fd = open(c->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (c->fd < 0) return GX_FAIL(err, GX_ERR_IO, "cannot create %s: %s", c->path, strerror(errno));
        const int is_taken = flock(c->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        c->is_held = !is_taken && gx__claim_is_named(c);
        if (c->is_held) gx__claim_write_holder(c);
        if (c->is_held) return GX_OK;
        if (is_taken) gx__claim_refuse(c, output, option, err);
        close(c->fd);
        if (is_taken) return gx_error_code(err);
    }
    return GX_FAIL(err, GX_ERR_IO, "%s is replaced again and again by other processes", c->path);
}

void gx_claim_end(GxClaim *c)
{
    if (!c->is_held) return;
    unlink(c->path); // while it is locked: a process that has opened the old file sees that its name is gone
    close(c->fd);
    c->is_held = 0;
}

GxStatus gx_claim_file(GxClaim *c, const char *path, GxError *err)
{
    GX_TRY(gx__claim_need_no_file(path, err));
    GX_TRY(gx__claim_lock(c, path, "--output_file", err));
    // checked again: another process may have just finished it
    const GxStatus status = gx__claim_need_no_file(path, err);
    if (status != GX_OK) gx_claim_end(c);
    return status;
}

GxStatus gx_claim_folder(GxClaim *c, const char *path, GxError *err)
{
    char name[GX_PATH], parent[GX_PATH];
    GX_TRY(gx_folder_need_empty(path, err));
    snprintf(name, sizeof name, "%.*s", gx_path_length(path), path);
    gx_path_parent(parent, name);
    GX_TRY(gx_folder_make(parent, err));
    GX_TRY(gx__claim_lock(c, path, "--output_dir", err));
    snprintf(c->output, sizeof c->output, "%s", name);
    GxStatus status = gx_folder_need_empty(path, err); // checked again, under the lock
    if (status == GX_OK) status = gx_publish_begin(path, c->folder, err);
    if (status != GX_OK) gx_claim_end(c);
    return status;
}

GxStatus gx_claim_publish(GxClaim *c, GxStatus status, GxError *err)
{
    GxError ignored = GX_ZERO; // the first error is the one to report
    if (status == GX_OK) status = gx_publish_finish(c->output, err);
    if (status != GX_OK) gx_folder_remove(c->folder, &ignored);
    gx_claim_end(c);
    return status;
}
#endif
