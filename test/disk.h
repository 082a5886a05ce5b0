// test/disk.h: what a power cut would leave. It takes the place of fsync, pwrite, rename, renameat, unlink, unlinkat
// and rmdir in the whole program (the linker's --wrap); each still does what it did, and notes what is not on the disk
// yet.
//
//     disk_watch();
//     …the library writes, publishes, removes…
//     CHECK(!disk_wrong(), "%s", disk_wrong());
//
// Wrong is: a file that gets its name with contents that were written since it was synced; a folder that gets its name
// while one of its files, or its list of names, is not synced, or where a file came after the manifest; a rename or a
// removal while the rename before is not synced in its folder; and any of these left behind.
#ifndef GX_TEST_DISK_H
#define GX_TEST_DISK_H
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_fsync(int fd);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
int __real_rename(const char *from, const char *to);
int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __real_unlink(const char *path);
int __real_unlinkat(int folder, const char *name, int flags);
int __real_rmdir(const char *path);

enum { DISK_NODES = 64, DISK_PATH = 1100 };
typedef struct { // a file, or a folder's list of names
    ino_t inode;
    int is_synced, is_changed; // synced at all; changed since then
    char name[DISK_PATH];      // for messages
} DiskNode;
static struct {
    int watches, n, renames; // renames: of files and folders, since it watches
    DiskNode node[DISK_NODES];
    char wrong[3 * DISK_PATH], last[DISK_PATH]; // last: the file that got its name last
} disk;

__attribute__((format(printf, 1, 2))) static void disk_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (disk.watches && !disk.wrong[0]) vsnprintf(disk.wrong, sizeof disk.wrong, format, args);
    va_end(args);
}

static DiskNode *disk_node(const struct stat *st, const char *name)
{
    DiskNode *d = disk.node;
    while (d < disk.node + disk.n && d->inode != st->st_ino) d++;
    if (d == disk.node + disk.n) {
        if (disk.n == DISK_NODES) abort();
        memset(d, 0, sizeof *d);
        d->inode = st->st_ino, disk.n++;
    }
    if (name) snprintf(d->name, sizeof d->name, "%s", name);
    return d;
}

static DiskNode *disk_path(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0) abort();
    return disk_node(&st, path);
}

static DiskNode *disk_parent(const char *path)
{
    char parent[DISK_PATH];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    return disk_path(parent);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    struct stat st;
    if (disk.watches && fstat(fd, &st) == 0) disk_node(&st, NULL)->is_changed = 1;
    return __real_pwrite(fd, data, bytes, offset);
}

int __wrap_fsync(int fd)
{
    struct stat st;
    const int status = __real_fsync(fd);
    if (!disk.watches || status != 0 || fstat(fd, &st) != 0) return status;
    DiskNode *d = disk_node(&st, NULL);
    d->is_synced = 1, d->is_changed = 0;
    return status;
}

static void disk_look_into(const char *path)
{
    DIR *dir = opendir(path);
    if (disk_path(path)->is_changed) disk_note("%s gets its name before its list of files is synced", path);
    if (!strstr(disk.last, "/manifest.json"))
        disk_note("%s gets its name after \"%s\", and not after its manifest", path, disk.last);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        char file[DISK_PATH];
        snprintf(file, sizeof file, "%.800s/%.255s", path, e->d_name);
        if (e->d_name[0] == '.') continue;
        const DiskNode *d = disk_path(file);
        if (!d->is_synced || d->is_changed) disk_note("%s gets its name before %s is synced", path, e->d_name);
    }
    if (dir) closedir(dir);
}

int __wrap_rename(const char *from, const char *to)
{
    struct stat st;
    if (!disk.watches || lstat(from, &st) != 0) return __real_rename(from, to);
    if (disk_parent(to)->is_changed) disk_note("%s gets its name before the rename before it is synced", to);
    if (S_ISDIR(st.st_mode) && strstr(from, ".gx-new")) disk_look_into(from);
    if (S_ISREG(st.st_mode) && disk_path(from)->is_changed) disk_note("%s gets its name before it is synced", to);
    const int status = __real_rename(from, to);
    disk_parent(to)->is_changed = 1, disk.renames++;
    if (S_ISREG(st.st_mode)) snprintf(disk.last, sizeof disk.last, "%s", to);
    return status;
}

static void disk_remove(const char *path)
{
    struct stat st;
    if (!disk.watches || lstat(path, &st) != 0) return;
    for (const DiskNode *d = disk.node; d < disk.node + disk.n; d++)
        if (d->is_changed) disk_note("%s is removed before %s is synced", path, d->name);
    DiskNode *gone = disk_node(&st, path);
    *gone = disk.node[--disk.n]; // its number may be another's next
}

int __wrap_unlink(const char *path)
{
    disk_remove(path);
    return __real_unlink(path);
}

// The path of a name in an open folder.
static const char *disk_at(char path[DISK_PATH], int folder, const char *name)
{
    char link[40], into[DISK_PATH - 300];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    const ssize_t n = readlink(link, into, sizeof into - 1);
    if (n < 0) abort();
    into[n] = 0;
    snprintf(path, DISK_PATH, "%s/%.255s", into, name);
    return path;
}

int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    char a[DISK_PATH], b[DISK_PATH];
    if (!disk.watches) return __real_renameat(from_folder, from, to_folder, to);
    return __wrap_rename(disk_at(a, from_folder, from), disk_at(b, to_folder, to));
}

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    char path[DISK_PATH];
    if (disk.watches) disk_remove(disk_at(path, folder, name));
    return __real_unlinkat(folder, name, flags);
}

int __wrap_rmdir(const char *path)
{
    disk_remove(path);
    return __real_rmdir(path);
}

static void disk_watch(void)
{
    memset(&disk, 0, sizeof disk);
    disk.watches = 1;
}

static const char *disk_wrong(void) // NULL: nothing; it no longer watches
{
    for (const DiskNode *d = disk.node; d < disk.node + disk.n; d++)
        if (d->is_changed) disk_note("%s is left behind without being synced", d->name);
    disk.watches = 0;
    return disk.wrong[0] ? disk.wrong : NULL;
}
#endif
