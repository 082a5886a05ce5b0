// test_io.cu: files, JSON, options, published folders, safetensors, tokenizer, dataset. Everything is written below one
// temporary folder.
#include "rooms/data_corpora.c" // looks inside
#include "galaxy/io/claim.h"
#include "galaxy/io/config.h"
#include "galaxy/io/config_args.h"
#include "galaxy/io/config_help.h"
#include "galaxy/io/config_json.h"
#include "galaxy/io/files.h"
#include "galaxy/io/folder.h"
#include "galaxy/io/json.h"
#include "galaxy/io/safetensors.h"
#include "galaxy/text/tokenizer.h"
#include "test/disk.h"
#include "test/test.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- words of these tests ------------------------------------------------------------------------------------------

static char root[GX_PATH]; // made in main, removed there

static const char *at(const char *name) // the path of `name` in the temporary folder; good for the next 8 calls
{
    static char paths[8][GX_PATH];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, GX_PATH, "%.600s/%.300s", root, name);
    return path;
}

static void put(const char *path, const void *data, int64_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!CHECK(f != NULL, "cannot create %s", path)) return;
    fwrite(data, 1, (size_t)bytes, f);
    fclose(f);
}

static void put_text(const char *path, const char *text) { put(path, text, (int64_t)strlen(text)); }

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static int names_in(const char *path) // how many
{
    GxError err = GX_ZERO;
    GxFolder folder;
    if (gx_folder_list(&folder, path, &err) != GX_OK) return -1;
    int n = folder.n;
    gx_folder_close(&folder);
    return n;
}

// Checks that an error of this code was set, whose message holds `part`, and clears it.
static int refused(GxError *err, GxStatus status, GxStatus expected, const char *part, const char *what)
{
    int ok = CHECK(status == expected && gx_error_code(err) == expected, "%s: status %s, expected %s (%s)", what,
                   gx_status_name(status), gx_status_name(expected), err->message);
    ok &= CHECK(strstr(err->message, part) != NULL, "%s: the message \"%s\" does not hold \"%s\"", what, err->message,
                part);
    gx_error_clear(err);
    return ok;
}

static uint64_t random_state = 1;
static uint32_t random_below(uint32_t n)
{
    return (uint32_t)(((uint64_t)gx_philox(99, random_state++, 0, 0).w[0] * n) >> 32);
}

// While it holds, the disk seems full: no file grows beyond `bytes`.
static struct rlimit disk_before;
static void disk_holds(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &disk_before);
    limit = disk_before;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
}
static void disk_is_back(void) { setrlimit(RLIMIT_FSIZE, &disk_before); }

// ---- files ---------------------------------------------------------------------------------------------------------

TEST(files_come_back_as_written)
{
    GxError err = GX_ZERO;
    char *text = NULL;
    int64_t bytes = 0;
    CHECK(gx_file_write(at("a"), "one\0two", 7, &err) == GX_OK, "%s", err.message);
    CHECK(gx_file_write(at("a"), "three\0four", 10, &err) == GX_OK, "%s", err.message); // replaces
    CHECK(gx_file_read(at("a"), 10, &text, &bytes, &err) == GX_OK, "%s", err.message);
    CHECK(bytes == 10 && text && !memcmp(text, "three\0four", 11), "%ld bytes", (long)bytes);
    free(text);
    refused(&err, gx_file_read(at("a"), 9, &text, &bytes, &err), GX_ERR_FORMAT, "at most 9", "beyond the cap");
    CHECK(gx_file_write(at("a"), "", 0, &err) == GX_OK && size_of(at("a")) == 0, "an empty file: %s", err.message);
    CHECK(gx_file_read(at("a"), 0, &text, &bytes, &err) == GX_OK && bytes == 0, "%s", err.message);
    free(text);
    CHECK(unlink(at("a")) == 0 && names_in(root) == 0, "something besides the file was left");
}

TEST(only_regular_files_are_read)
{
    GxError err = GX_ZERO;
    char *text = NULL;
    int64_t bytes;
    refused(&err, gx_file_read(at("missing"), 10, &text, &bytes, &err), GX_ERR_IO, "missing: No such file",
            "a missing file");
    refused(&err, gx_file_read(root, 10, &text, &bytes, &err), GX_ERR_IO, "a folder; expected a file", "a folder");
    mkfifo(at("pipe"), 0600);
    refused(&err, gx_file_read(at("pipe"), 10, &text, &bytes, &err), GX_ERR_IO, "not a regular file",
            "a pipe that nobody writes");
    refused(&err, gx_file_read("/dev/zero", 10, &text, &bytes, &err), GX_ERR_IO, "not a regular file", "a device");
    unlink(at("pipe"));
}

// A device that this test makes itself, where it may (root may, outside of some containers).
static int make_device(const char *path) { return mknod(path, S_IFCHR | 0600, makedev(1, 3)) == 0; }

TEST(what_is_no_plain_file_is_never_written_over)
{
    static const struct {
        const char *name, *kind;
    } cases[] = {{"pipe", "pipe is a pipe"},
                 {"device", "device is a device"},
                 {"to_device", "to_device is a device"},
                 {"to_nothing", "to_nothing is a broken link"},
                 {"circle", "circle is a broken link"},
                 {"folder", "folder is a folder"},
                 {"to_folder", "to_folder is a folder"}};
    GxError err = GX_ZERO;
    struct stat before, after;
    mkfifo(at("pipe"), 0600), mkdir(at("folder"), 0700);
    const int has_device = make_device(at("device"));
    CHECK(!symlink("device", at("to_device")) && !symlink("nothing", at("to_nothing")) &&
              !symlink("circle", at("circle")) && !symlink("folder", at("to_folder")),
          "no links");
    const int names = names_in(root);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!has_device && strstr(cases[i].name, "device")) continue;
        lstat(at(cases[i].name), &before);
        refused(&err, gx_file_write(at(cases[i].name), "x", 1, &err), GX_ERR_IO, cases[i].kind, cases[i].name);
        lstat(at(cases[i].name), &after);
        CHECK(before.st_ino == after.st_ino && before.st_mode == after.st_mode, "%s was replaced", cases[i].name);
    }
    CHECK(names_in(root) == names, "%d names are left of %d", names_in(root), names);
    refused(&err, gx_folder_make(at("to_nothing"), &err), GX_ERR_IO, "a broken link of that name", "a folder");
    refused(&err, gx_folder_make(at("pipe"), &err), GX_ERR_IO, "a pipe of that name", "a folder");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) unlink(at(cases[i].name));
    CHECK(gx_folder_remove(at("folder"), &err) == GX_OK && names_in(root) == 0, "%s", err.message);
}

TEST(a_link_to_a_file_stays_one_and_its_file_is_written)
{
    GxError err = GX_ZERO;
    struct stat st;
    mkdir(at("elsewhere"), 0700);
    put_text(at("elsewhere/file"), "old");
    CHECK(!symlink("elsewhere/file", at("link")) && !symlink(at("link"), at("second")), "no links");
    CHECK(gx_file_write(at("second"), "newer", 5, &err) == GX_OK, "%s", err.message);
    CHECK(size_of(at("elsewhere/file")) == 5 && names_in(at("elsewhere")) == 1, "the file is not the new one");
    CHECK(lstat(at("link"), &st) == 0 && S_ISLNK(st.st_mode) && lstat(at("second"), &st) == 0 && S_ISLNK(st.st_mode),
          "a link was exchanged for a file");
    unlink(at("link")), unlink(at("second"));
    CHECK(gx_folder_remove(at("elsewhere"), &err) == GX_OK && names_in(root) == 0, "%s", err.message);
}

TEST(where_standard_output_goes_nothing_else_is_written)
{
    GxError err = GX_ZERO;
    put_text(at("log"), "printed");
    fflush(stdout);
    const int was = dup(1), now = open(at("log"), O_WRONLY | O_CLOEXEC);
    dup2(now, 1);
    const GxStatus by_name = gx_file_write(at("log"), "x", 1, &err);
    GxError of_link = GX_ZERO, of_nameless = GX_ZERO;
    CHECK(!symlink("/proc/self/fd/1", at("stdout")), "no link"); // as /dev/stdout is one
    const GxStatus by_link = gx_file_write(at("stdout"), "x", 1, &of_link);
    const int64_t bytes = size_of(at("log"));
    unlink(at("log"));
    dup2(now, 3 + was), dup2(was, 1);
    char nameless[40];
    snprintf(nameless, sizeof nameless, "/proc/self/fd/%d", 3 + was);
    CHECK(!symlink(nameless, at("nameless")), "no link");
    const GxStatus by_nameless = gx_file_write(at("nameless"), "x", 1, &of_nameless);
    close(was), close(now), close(3 + was);
    refused(&err, by_name, GX_ERR_IO, "this program's standard output", "by its name");
    refused(&of_link, by_link, GX_ERR_IO, "this program's standard output", "by a link");
    refused(&of_nameless, by_nameless, GX_ERR_IO, "cannot create", "a file without a name");
    CHECK(bytes == 7 && unlink(at("stdout")) == 0 && unlink(at("nameless")) == 0 && names_in(root) == 0,
          "the log was written over");
}

TEST(a_full_disk_leaves_the_old_file)
{
    GxError err = GX_ZERO;
    char *big = (char *)calloc(1, 100000), *text = NULL;
    int64_t bytes = 0;
    gx_file_write(at("kept"), "old", 3, &err);
    disk_holds(50000);
    GxStatus status = gx_file_write(at("kept"), big, 100000, &err), fresh_status;
    disk_is_back();
    CHECK(strstr(err.message, at("kept")) != NULL, "the path is not in \"%s\"", err.message);
    refused(&err, status, GX_ERR_IO, "File too large", "a file that does not fit");
    CHECK(gx_file_read(at("kept"), 10, &text, &bytes, &err) == GX_OK && bytes == 3 && !memcmp(text, "old", 3),
          "the old file is gone: %s", err.message);
    disk_holds(50000);
    fresh_status = gx_file_write(at("fresh"), big, 100000, &err);
    disk_is_back();
    refused(&err, fresh_status, GX_ERR_IO, "File too large", "a new file that does not fit");
    CHECK(names_in(root) == 1, "%d names are left; expected only the old file", names_in(root));
    refused(&err, gx_file_write(at("no/such/folder"), "x", 1, &err), GX_ERR_IO, "No such file",
            "a folder that is not there");
    unlink(at("kept"));
    free(text);
    free(big);
}

TEST(hash_is_fnv1a_64)
{
    GxError err = GX_ZERO;
    uint64_t hash;
    int64_t bytes;
    CHECK(gx_hash(GX_HASH_START, "", 0) == 0xcbf29ce484222325u, "of nothing"); // the published vectors
    CHECK(gx_hash(GX_HASH_START, "a", 1) == 0xaf63dc4c8601ec8cu, "of a");
    CHECK(gx_hash(GX_HASH_START, "foobar", 6) == 0x85944171f73967e8u, "of foobar");
    CHECK(gx_hash(gx_hash(GX_HASH_START, "foo", 3), "bar", 3) == 0x85944171f73967e8u, "in two parts");
    int64_t n = (1 << 20) + 17; // more than one chunk
    char *big = (char *)malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) big[i] = (char)(i * 7 + i / 251);
    put(at("big"), big, n);
    CHECK(gx_file_hash(at("big"), &hash, &bytes, &err) == GX_OK && bytes == n && hash == gx_hash(GX_HASH_START, big, n),
          "of a file: %s", err.message);
    unlink(at("big"));
    free(big);
}

TEST(folders_are_made_listed_and_removed)
{
    GxError err = GX_ZERO;
    GxFolder folder;
    CHECK(gx_folder_make(at("x/y/z"), &err) == GX_OK && gx_path_is_folder(at("x/y/z")), "%s", err.message);
    CHECK(gx_folder_make(at("x/y/z/"), &err) == GX_OK, "once more: %s", err.message);
    put_text(at("x/y/file"), "12345");
    refused(&err, gx_folder_make(at("x/y/file/deeper"), &err), GX_ERR_IO, "x/y/file: a file of that name",
            "below a file");
    refused(&err, gx_folder_make("", &err), GX_ERR_ARGUMENT, "without a name", "no name");
    GxError why = GX_ZERO;
    gx_folder_make("/sys/galaxy", &why); // nobody may, root neither
    CHECK(why.code == GX_ERR_IO && !strstr(why.message, "No such file"), "what mkdir said is lost: %s", why.message);
    CHECK(gx_folder_list(&folder, at("x/y"), &err) == GX_OK && folder.n == 2, "%s", err.message);
    CHECK(!strcmp(folder.entry[0].name, "file") && folder.entry[0].is_file && folder.entry[0].bytes == 5, "%s",
          folder.entry[0].name);
    CHECK(!strcmp(folder.entry[1].name, "z") && folder.entry[1].is_folder, "%s", folder.entry[1].name);
    gx_folder_close(&folder);
    char name[32];
    for (int i = 0; i < 40; i++) snprintf(name, sizeof name, "x/y/z/%d", i * 29 % 40 + 10), put_text(at(name), "");
    CHECK(gx_folder_list(&folder, at("x/y/z"), &err) == GX_OK && folder.n == 40, "%s", err.message);
    for (int i = 0; i < folder.n; i++)
        CHECK(atoi(folder.entry[i].name) == i + 10, "name %d is %s", i, folder.entry[i].name);
    gx_folder_close(&folder);
    CHECK(gx_folder_remove(at("x"), &err) == GX_OK && names_in(root) == 0, "%s", err.message);
    refused(&err, gx_folder_remove(at("x"), &err), GX_ERR_IO, "No such file", "one that is gone");
}

TEST(removing_a_folder_follows_no_link_and_takes_all_or_nothing)
{
    GxError err = GX_ZERO;
    gx_folder_make(at("mine/a"), &err);
    gx_folder_make(at("theirs"), &err);
    put_text(at("mine/a/file"), "mine");
    put_text(at("theirs/file"), "theirs");
    CHECK(symlink(at("theirs"), at("mine/z")) == 0, "no link");
    refused(&err, gx_folder_remove(at("mine"), &err), GX_ERR_IO, "neither a file nor a folder",
            "a folder with a link in it");
    CHECK(size_of(at("mine/a/file")) == 4 && size_of(at("theirs/file")) == 6, "something was removed");
    refused(&err, gx_folder_remove(at("mine/z"), &err), GX_ERR_IO, "not a folder", "a link to a folder");
    unlink(at("mine/z"));
    CHECK(gx_folder_remove(at("mine"), &err) == GX_OK && gx_folder_remove(at("theirs"), &err) == GX_OK, "%s",
          err.message);
}

TEST(slashes_at_the_end_of_a_path_are_no_part_of_it)
{
    static const struct {
        const char *path;
        int length;
    } list[] = {{"", 0}, {"/", 1}, {"//", 1}, {"out", 3}, {"out/", 3}, {"a/b/c///", 5}, {"/out//in/", 8}, {"./", 1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        CHECK(gx_path_length(list[i].path) == list[i].length, "%s: %d", list[i].path, gx_path_length(list[i].path));
}

TEST(paths_that_are_too_long_are_refused)
{
    GxError err = GX_ZERO;
    char out[GX_PATH], name[GX_PATH];
    int fd;
    int64_t bytes;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    refused(&err, gx_path_join(out, "folder", name, &err), GX_ERR_ARGUMENT, "longer than", "join");
    refused(&err, gx_file_write(name, "", 0, &err), GX_ERR_IO, "cannot create nnn", "a name of 4095 bytes");
    refused(&err, gx_file_open(name, &fd, &bytes, &err), GX_ERR_IO, "too long", "a name of 4095 bytes");
    CHECK(gx_path_join(out, "a/", "b", &err) == GX_OK && !strcmp(out, "a/b"), "%s", out);
    CHECK(gx_path_is_plain("a") && !gx_path_is_plain("") && !gx_path_is_plain("..") && !gx_path_is_plain(".") &&
              !gx_path_is_plain("a/b"),
          "plain names");
}

// A folder of n bytes in all, with names of up to 255 bytes.
static void long_folder(char *path, int n)
{
    GxError err = GX_ZERO;
    snprintf(path, GX_PATH, "%s", at("long"));
    for (int length = (int)strlen(path); length < n; length = (int)strlen(path)) {
        int name = (int)gx_min(n - length - 1, 255);
        if (n - length - 1 - name == 1) name--; // a name needs a byte, too
        path[length] = '/';
        memset(path + length + 1, 'd', (size_t)name);
        path[length + 1 + name] = 0;
    }
    CHECK((int)strlen(path) == n && gx_folder_make(path, &err) == GX_OK, "%d of %d bytes: %s", (int)strlen(path), n,
          err.message);
}

// Whatever the system takes as a path, to the last byte, is read and written: also where a temporary name beside it
// would be longer than that.
TEST(paths_and_names_up_to_the_systems_limit_work)
{
    static const int name_bytes[] = {1, 2, 200, 240, 254, 255};
    GxError err = GX_ZERO;
    char folder[GX_PATH], path[GX_PATH], name[300], *text = NULL;
    int64_t bytes;
    uint64_t hash;
    for (size_t i = 0; i < sizeof name_bytes / sizeof *name_bytes; i++) {
        const int n = name_bytes[i];
        for (int b = 0; b < n; b += 2) memcpy(name + b, n - b == 1 ? "x" : "é", 2);
        name[n] = 0;
        long_folder(folder, GX_PATH - 1 - 1 - n);
        if (!CHECK(gx_path_join(path, folder, name, &err) == GX_OK && strlen(path) == GX_PATH - 1, "%s", err.message))
            break;
        for (int again = 0; again < 2; again++)
            CHECK(gx_file_write(path, "text", 4, &err) == GX_OK, "a name of %d bytes: %s", n, err.message);
        CHECK(gx_file_read(path, 10, &text, &bytes, &err) == GX_OK && bytes == 4 && !strcmp(text, "text") &&
                  gx_file_hash(path, &hash, &bytes, &err) == GX_OK && names_in(folder) == 1,
              "a name of %d bytes: %s", n, err.message);
        free(text), text = NULL;
        CHECK(gx_folder_remove(at("long"), &err) == GX_OK, "%s", err.message);
    }
    long_folder(folder, GX_PATH - 2);
    refused(&err, gx_path_join(path, folder, "xy", &err), GX_ERR_ARGUMENT, "is longer than 4095 bytes", "a byte more");
    CHECK(gx_folder_remove(at("long"), &err) == GX_OK, "%s", err.message);
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

static GxStatus parse(GxJson **out, const char *text, GxError *err)
{
    return gx_json_parse(out, text, (int64_t)strlen(text), "test.json", err);
}

TEST(json_keeps_order_integers_and_doubles)
{
    GxError err = GX_ZERO;
    GxJson *v = NULL, *again = NULL;
    char *text = NULL;
    int64_t bytes = 0;
    const char *source =
        "{\"z\":9223372036854775807,\"a\":[1,-0.5,1e-07,2.0],\"m\":{\"t\":true,\"f\":false,\"n\":null},\"s\":"
        "\"\\u00e9\\\"\\\\\\n\\u0001\"}";
    CHECK(parse(&v, source, &err) == GX_OK, "%s", err.message);
    CHECK(gx_json_dump(v, 0, &text, &bytes, &err) == GX_OK, "%s", err.message);
    CHECK(!strcmp(text,
                  "{\"z\":9223372036854775807,\"a\":[1,-0.5,1e-07,2.0],\"m\":{\"t\":true,\"f\":false,\"n\":null},\"s\":"
                  "\"\xc3\xa9\\\"\\\\\\n\\u0001\"}"),
          "%s", text ? text : "nothing");
    free(text);
    CHECK(gx_json_dump(v, 2, &text, &bytes, &err) == GX_OK && parse(&again, text, &err) == GX_OK, "%s", err.message);
    CHECK(!strncmp(text,
                   "{\n  \"z\": 9223372036854775807,\n  \"a\": [1, -0.5, 1e-07, 2.0],\n  \"m\": {\n    \"t\": true,\n",
                   80),
          "%s", text);
    CHECK(!strcmp(gx_json_string(gx_json_get(again, "s")), "\xc3\xa9\"\\\n\x01"), "%s",
          gx_json_string(gx_json_get(again, "s")));
    CHECK(gx_json_type(gx_json_at(gx_json_get(v, "a"), 3)) == GX_JSON_REAL &&
              gx_json_at(gx_json_get(v, "a"), 4) == NULL,
          "the list");
    free(text);
    gx_json_free(v);
    gx_json_free(again);
}

TEST(doubles_read_back_to_the_same_bits)
{
    char text[32];
    const double values[] = {0.1,
                             3e-4,
                             1.0 / 3,
                             1e300 * 10,
                             5e-324,
                             2.2250738585072014e-308,
                             1.7976931348623157e308,
                             -0.0,
                             123456789012345680.0,
                             0.95};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        gx_format_double(text, values[i]);
        double back = strtod(text, NULL);
        CHECK(!memcmp(&back, &values[i], 8), "%s for %.17g", text, values[i]);
    }
    gx_format_double(text, 0.1);
    CHECK(!strcmp(text, "0.1"), "%s", text);
    gx_format_double(text, 3.0);
    CHECK(!strcmp(text, "3.0"), "%s", text);
    for (int i = 0; i < 10000; i++) {
        uint64_t bits = (uint64_t)random_below(0xFFFFFFFF) << 32 | random_below(0xFFFFFFFF);
        double value, back;
        memcpy(&value, &bits, 8);
        if (!isfinite(value)) continue;
        gx_format_double(text, value);
        back = strtod(text, NULL);
        if (memcmp(&back, &value, 8)) CHECK(0, "%s for %.17g", text, value);
    }
}

TEST(json_errors_say_file_line_and_column)
{
    static const struct {
        const char *text, *message;
    } bad[] = {{"{\"a\": 1,\n  \"b\": }", "test.json:2:"},
               {"{\"a\": 1, \"a\": 2}", "duplicate"},
               {"{\"a\": 1} x", "test.json:1:"},
               {"", "test.json:1:"},
               {"{\"a\": 12345678901234567890}", "too big"},
               {"{\"a\": 1e999}", "overflow"},
               {"{\"a\": NaN}", "invalid token"},
               {"{\"a\": \"\xff\"}", "decode"},
               {"{\"a\": \"\\u0000\"}", "\\u0000"},
               {"{\"a\": 01}", "test.json:1:"},
               {"{'a': 1}", "test.json:1:"},
               {"{\"a\": 1,}", "test.json:1:"},
               {"{\"a\": \"x", "premature"},
               {"[[1]", "test.json:1:"}};
    GxError err = GX_ZERO;
    GxJson *v;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refused(&err, parse(&v, bad[i].text, &err), GX_ERR_FORMAT, bad[i].message, bad[i].text);
        CHECK(v == NULL, "%s gave a value", bad[i].text);
    }
    refused(&err, gx_json_parse(&v, "{\"a\":\n 1\0}", 11, "test.json", &err), GX_ERR_FORMAT,
            "test.json:2:3: a byte of value 0", "a 0 behind a number");
    refused(&err, parse(&v, "{\"a\":\n \"\\\\u0000\", \"b\": \"x\\u0000\"}", &err), GX_ERR_FORMAT,
            "test.json:2:20: a text has \\u0000", "an escaped 0, and not a \\ before u0000");
    put_text(at("bad.json"), "{\n\n!");
    refused(&err, gx_json_read(&v, at("bad.json"), 100, &err), GX_ERR_FORMAT, "bad.json:3:", "a file");
    refused(&err, gx_json_read(&v, at("bad.json"), 2, &err), GX_ERR_FORMAT, "at most 2", "beyond the cap");
    unlink(at("bad.json"));
}

TEST(integers_beyond_64_bits_are_doubles_where_that_is_asked_for)
{
    GxError err = GX_ZERO;
    GxJson *v = NULL;
    const char *source = "[1000000000000000019884624838656, -9223372036854775809, 9223372036854775808, "
                         "9223372036854775807, -9223372036854775808, \"9223372036854775808\\\"9223372036854775808\", "
                         "1.9223372036854775808, 19223372036854775808e-1, 0.5]";
    const double expected[] = {1e30, -9223372036854775808.0, 9223372036854775808.0, 0,  0,
                               0,    1.9223372036854775808,  1922337203685477580.8, 0.5};
    refused(&err, parse(&v, source, &err), GX_ERR_FORMAT, "test.json:1:", "a big integer, strictly");
    CHECK(gx_json_parse_with(&v, source, (int64_t)strlen(source), "test.json", GX_JSON_BIG_INTEGERS, &err) == GX_OK,
          "%s", err.message);
    for (int i = 0; i < 9; i++) {
        const GxJson *x = gx_json_at(v, i);
        const GxJsonType type = i == 3 || i == 4 ? GX_JSON_INT : i == 5 ? GX_JSON_STRING : GX_JSON_REAL;
        CHECK(gx_json_type(x) == type, "element %d is %s", i, gx_json_type_name(x));
        if (type == GX_JSON_REAL) CHECK(gx_json_double(x) == expected[i], "element %d: %.17g", i, gx_json_double(x));
    }
    CHECK(gx_json_int(gx_json_at(v, 3)) == INT64_MAX && gx_json_int(gx_json_at(v, 4)) == INT64_MIN, "integers");
    CHECK(!strcmp(gx_json_string(gx_json_at(v, 5)), "9223372036854775808\"9223372036854775808"), "%s",
          gx_json_string(gx_json_at(v, 5)));
    gx_json_free(v);
    char beyond[400] = "[";
    memset(beyond + 1, '9', 310), strcpy(beyond + 311, "]"); // beyond double, too
    refused(&err, gx_json_parse_with(&v, beyond, (int64_t)strlen(beyond), "test.json", GX_JSON_BIG_INTEGERS, &err),
            GX_ERR_FORMAT, "test.json:1:", "beyond double");
    refused(&err, gx_json_parse_with(&v, "[012345678901234567890]", 23, "test.json", GX_JSON_BIG_INTEGERS, &err),
            GX_ERR_FORMAT, "test.json:1:", "a 0 before it");
}

TEST(json_nesting_and_size_are_bounded)
{
    GxError err = GX_ZERO;
    GxJson *v = NULL;
    char deep[300] = "";
    for (int i = 0; i < GX_JSON_DEPTH; i++) strcat(deep, "[");
    strcat(deep, "\"[[[[\\\"[[[\"");
    for (int i = 0; i < GX_JSON_DEPTH; i++) strcat(deep, "]");
    CHECK(parse(&v, deep, &err) == GX_OK, "64 deep, brackets in a string: %s", err.message);
    gx_json_free(v);
    memmove(deep + 1, deep, strlen(deep) + 1);
    strcat(deep, "]");
    refused(&err, parse(&v, deep, &err), GX_ERR_FORMAT, "test.json:1:65: nested deeper than 64", "65 deep");
    int64_t n = 2 * (int64_t)GX_JSON_VALUES + 2;
    char *many = (char *)malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) many[i] = i == 0 ? '[' : i % 2 ? '0' : ',';
    many[n - 1] = ']';
    refused(&err, gx_json_parse(&v, many, n, "test.json", &err), GX_ERR_FORMAT, "more values", "8 million");
    char *brackets = (char *)malloc((size_t)n);
    memset(brackets, '[', (size_t)n);
    refused(&err, gx_json_parse(&v, brackets, n, "test.json", &err), GX_ERR_FORMAT, "nested deeper", "only brackets");
    free(brackets);
    free(many);
}

TEST(json_members_have_types_and_may_be_optional)
{
    GxError err = GX_ZERO;
    GxJson *v = NULL, *child = NULL;
    int64_t i = 7;
    double d = 7;
    int b = 7;
    const char *s = "seven";
    CHECK(parse(&v, "{\"i\": 3, \"d\": 2.5, \"b\": true, \"s\": \"x\", \"n\": null, \"a\": [1], \"o\": {}}", &err) ==
              GX_OK,
          "%s", err.message);
    CHECK(gx_json_get_int(v, "absent", 0, &i, "f", &err) == GX_OK && i == 7, "absent gave %ld", (long)i);
    CHECK(gx_json_get_int(v, "n", 0, &i, "f", &err) == GX_OK && i == 7, "null gave %ld", (long)i);
    CHECK(gx_json_get_int(v, "i", 1, &i, "f", &err) == GX_OK && i == 3, "%ld", (long)i);
    CHECK(gx_json_get_double(v, "d", 1, &d, "f", &err) == GX_OK && d == 2.5, "%g", d);
    CHECK(gx_json_get_double(v, "i", 1, &d, "f", &err) == GX_OK && d == 3, "an integer is a number: %g", d);
    CHECK(gx_json_get_bool(v, "b", 1, &b, "f", &err) == GX_OK && b == 1, "%d", b);
    CHECK(gx_json_get_string(v, "s", 1, &s, "f", &err) == GX_OK && !strcmp(s, "x"), "%s", s);
    CHECK(gx_json_get_array(v, "a", 1, &child, "f", &err) == GX_OK && gx_json_size(child) == 1, "%s", err.message);
    CHECK(gx_json_get_object(v, "o", 1, &child, "f", &err) == GX_OK && gx_json_size(child) == 0, "%s", err.message);
    refused(&err, gx_json_get_int(v, "n", 1, &i, "f.json", &err), GX_ERR_FORMAT,
            "f.json: \"n\" is missing; expected an integer", "null, required");
    refused(&err, gx_json_get_int(v, "d", 0, &i, "f.json", &err), GX_ERR_FORMAT,
            "f.json: \"d\" is a number; expected an integer", "a double for an int");
    refused(&err, gx_json_get_bool(v, "i", 0, &b, "f", &err), GX_ERR_FORMAT, "expected true or false",
            "an int for a bool");
    refused(&err, gx_json_get_object(v, "a", 0, &child, "f", &err), GX_ERR_FORMAT, "is an array; expected an object",
            "an array for an object");
    refused(&err, gx_json_get_string(gx_json_get(v, "a"), "x", 0, &s, "f", &err), GX_ERR_FORMAT,
            "in an array, not in an object", "members of an array");
    gx_json_free(v);
}

TEST(json_copies_change_only_what_is_set)
{
    GxError err = GX_ZERO;
    GxJson *v = NULL, *copy;
    char *text = NULL;
    int64_t bytes;
    parse(&v, "{\"first\":1,\"dtype\":\"bfloat16\",\"gone\":0,\"nested\":{\"deep\":[1,2]}}", &err);
    copy = gx_json_copy(v);
    gx_json_set(copy, "dtype", gx_json_new_string("float32"), &err);
    gx_json_set(gx_json_get(copy, "nested"), "more", gx_json_new_bool(1), &err);
    gx_json_append(gx_json_get(gx_json_get(copy, "nested"), "deep"), gx_json_new_null(), &err);
    gx_json_set(copy, "new", gx_json_new_double(0.5), &err);
    gx_json_remove(copy, "gone");
    CHECK(gx_json_dump(copy, 0, &text, &bytes, &err) == GX_OK, "%s", err.message);
    CHECK(
        !strcmp(text, "{\"first\":1,\"dtype\":\"float32\",\"nested\":{\"deep\":[1,2,null],\"more\":true},\"new\":0.5}"),
        "%s", text);
    CHECK(bytes == (int64_t)strlen(text), "%ld bytes", (long)bytes);
    free(text);
    gx_json_dump(v, 0, &text, &bytes, &err);
    CHECK(!strcmp(text, "{\"first\":1,\"dtype\":\"bfloat16\",\"gone\":0,\"nested\":{\"deep\":[1,2]}}"),
          "the original became %s", text);
    free(text);
    refused(&err, gx_json_set(copy, "nan", gx_json_new_double(NAN), &err), GX_ERR_ARGUMENT, "nan has no value",
            "a NaN");
    refused(&err, gx_json_set(copy, "text", gx_json_new_string("\xff"), &err), GX_ERR_ARGUMENT, "UTF-8", "not UTF-8");
    refused(&err, gx_json_set(NULL, "text", gx_json_new_string("x"), &err), GX_ERR_ARGUMENT, "no value", "no object");
    CHECK(gx_json_write(copy, at("c.json"), &err) == GX_OK, "%s", err.message);
    gx_json_free(v);
    CHECK(gx_json_read(&v, at("c.json"), 1000, &err) == GX_OK && gx_json_double(gx_json_get(v, "new")) == 0.5, "%s",
          err.message);
    unlink(at("c.json"));
    gx_json_free(v);
    gx_json_free(copy);
}

// ---- options -------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t seq_len, steps;
    double learning_rate, dropout;
    int resume, report;
    char precision[GX_FIELD_TEXT], out[GX_FIELD_TEXT], folder[GX_PATH];
} TrainOptions;
typedef struct {
    GxIntList heads, split;
} ModelOptions;

static const GxField train_table[] = {
    {"seq_len", GX_FIELD_INT, offsetof(TrainOptions, seq_len), "256", "tokens in a sample", "1.."},
    {"steps", GX_FIELD_INT, offsetof(TrainOptions, steps), NULL, "optimizer steps", NULL},
    {"learning_rate", GX_FIELD_DOUBLE, offsetof(TrainOptions, learning_rate), "3e-4", "of the largest step", "0.."},
    {"dropout", GX_FIELD_DOUBLE, offsetof(TrainOptions, dropout), "0.1", "probability", "0..0.9"},
    {"resume", GX_FIELD_BOOL, offsetof(TrainOptions, resume), NULL, "from the newest checkpoint", NULL},
    {"report", GX_FIELD_BOOL, offsetof(TrainOptions, report), "true", "write one", NULL},
    {"precision", GX_FIELD_STRING, offsetof(TrainOptions, precision), "fp32", "of activations", "fp32|bf16|fp16"},
    {"out", GX_FIELD_STRING, offsetof(TrainOptions, out), "", "a word", NULL},
    {"folder", GX_FIELD_PATH, offsetof(TrainOptions, folder), "", "a path", NULL}};
static const GxField model_table[] = {
    {"heads", GX_FIELD_INT_LIST, offsetof(ModelOptions, heads), "3,1", "per rank", "0.."},
    {"split", GX_FIELD_INT_LIST, offsetof(ModelOptions, split), NULL, "per rank", NULL}};

static TrainOptions train;
static ModelOptions model;

static GxStatus read_args(GxConfig *c, const char *line,
                          GxError *err) // words between single spaces; %: the temporary folder
{
    static char words[9000];
    char *argv[64] = {(char *)"program"};
    int argc = 1, n = 0;
    memset(&train, 0xEE, sizeof train);
    memset(&model, 0xEE, sizeof model);
    for (const char *p = line; *p; p++)
        n += snprintf(words + n, sizeof words - (size_t)n, *p == '%' ? "%s" : "%.1s", *p == '%' ? root : p);
    words[n] = 0;
    for (char *word = strtok(words, " "); word && argc < 64; word = strtok(NULL, " ")) argv[argc++] = word;
    gx_config_open(c);
    GX_TRY(gx_config_add(c, "Training", train_table, 9, &train, err));
    GX_TRY(gx_config_add(c, "Model", model_table, 2, &model, err));
    GX_TRY(gx_config_add_alias(c, "block_size", "seq_len", err));
    return gx_config_read_args(c, argc, argv, err);
}

TEST(options_have_their_defaults)
{
    GxError err = GX_ZERO;
    GxConfig c;
    CHECK(read_args(&c, "", &err) == GX_OK, "%s", err.message);
    CHECK(train.seq_len == 256 && train.steps == 0 && train.learning_rate == 3e-4 && train.dropout == 0.1, "numbers");
    CHECK(train.resume == 0 && train.report == 1 && !strcmp(train.precision, "fp32") && !strcmp(train.out, ""),
          "bools and texts");
    CHECK(model.heads.n == 2 && model.heads.v[0] == 3 && model.heads.v[1] == 1 && model.split.n == 0, "lists");
    CHECK(!gx_config_is_set(&c, "seq_len") && !gx_config_is_set(&c, "nonsense") && !c.help, "set");
}

TEST(flags_set_options)
{
    GxError err = GX_ZERO;
    GxConfig c;
    CHECK(read_args(&c,
                    "--seq_len 17 --steps=-3 --learning_rate 1e-5 --resume --report false --precision=bf16 "
                    "--out=--odd=name --heads "
                    "[5,6,7] --split 1,2",
                    &err) == GX_OK,
          "%s", err.message);
    CHECK(train.seq_len == 17 && train.steps == -3 && train.learning_rate == 1e-5, "numbers");
    CHECK(train.resume == 1 && train.report == 0 && !strcmp(train.precision, "bf16") &&
              !strcmp(train.out, "--odd=name"),
          "texts: %s", train.out);
    CHECK(model.heads.n == 3 && model.heads.v[2] == 7 && model.split.n == 2 && model.split.v[1] == 2, "lists");
    CHECK(gx_config_source(&c, "seq_len") == GX_FROM_FLAG && gx_config_source(&c, "dropout") == GX_FROM_DEFAULT,
          "sources");
    CHECK(read_args(&c, "--split [] --resume=true --steps +4", &err) == GX_OK && model.split.n == 0 &&
              train.resume == 1 && train.steps == 4,
          "%s", err.message);
    CHECK(read_args(&c, "--dropout 0.9 --seq_len 1 --heads 0", &err) == GX_OK && train.dropout == 0.9,
          "the ends of a range: %s", err.message);
    CHECK(read_args(&c, "--seq_len 5 --help --nonsense", &err) == GX_OK && c.help && !c.version, "%s", err.message);
    CHECK(read_args(&c, "--seq_len 5 --version --nonsense", &err) == GX_OK && c.version && !c.help, "%s", err.message);
}

TEST(of_two_equal_flags_the_last_counts)
{
    GxError err = GX_ZERO;
    GxConfig c;
    CHECK(read_args(&c, "--seq_len 5 --resume --heads 1,2,3 --seq_len=7 --out a --resume=false --heads 4 --out=b",
                    &err) == GX_OK,
          "%s", err.message);
    CHECK(train.seq_len == 7 && train.resume == 0 && !strcmp(train.out, "b") && model.heads.n == 1 &&
              model.heads.v[0] == 4,
          "seq_len %ld, resume %d, out %s, %d heads", (long)train.seq_len, train.resume, train.out, model.heads.n);
    refused(&err, read_args(&c, "--seq_len 5x --seq_len 5", &err), GX_ERR_ARGUMENT, "--seq_len is \"5x\"",
            "a wrong one that another replaces");
    put_text(at("first.json"), "{\"seq_len\": 32, \"steps\": 9}");
    put_text(at("second.json"), "{\"seq_len\": 64, \"dropout\": 0.5}");
    CHECK(read_args(&c, "--config %/first.json --dropout 0.25 --config %/second.json", &err) == GX_OK, "%s",
          err.message);
    CHECK(train.seq_len == 64 && train.steps == 0 && train.dropout == 0.25 && !strcmp(c.file, at("second.json")),
          "seq_len %ld, steps %ld, dropout %g from %s", (long)train.seq_len, (long)train.steps, train.dropout, c.file);
    unlink(at("first.json"));
    unlink(at("second.json"));
}

TEST(wrong_flags_are_named_with_what_is_expected)
{
    static const struct {
        const char *line, *message;
    } bad[] = {
        {"--learning_rte 1", "no option --learning_rte; did you mean --learning_rate?"},
        {"--learning-rate 1", "did you mean --learning_rate?"},
        {"--learning 1", "did you mean --learning_rate?"},
        {"--head 1", "did you mean --heads?"},
        {"--quite_another_thing 1", "no option --quite_another_thing; --help lists"},
        {"--seq_len", "--seq_len needs a value: an integer, at least 1"},
        {"--seq_len --resume", "--seq_len needs a value"},
        {"--seq_len 12x", "--seq_len is \"12x\"; expected an integer, at least 1"},
        {"--seq_len 1.5", "expected an integer"},
        {"--seq_len 1e3", "expected an integer"},
        {"--seq_len=", "expected an integer"},
        {"--seq_len 0x10", "expected an integer"},
        {"--seq_len 0", "at least 1"},
        {"--steps 9223372036854775808", "--steps is \"9223372036854775808\"; expected an integer"},
        {"--learning_rate nan", "--learning_rate is \"nan\"; expected a number, at least 0"},
        {"--learning_rate inf", "expected a number"},
        {"--learning_rate 1e999", "expected a number"},
        {"--learning_rate 1e", "expected a number"},
        {"--learning_rate -1", "at least 0"},
        {"--learning_rate 0x1p3", "expected a number"},
        {"--dropout 0.91", "a number from 0 to 0.9"},
        {"--dropout 0.5,", "expected a number"},
        {"--resume yes", "--resume is followed by \"yes\"; expected true or false"},
        {"--dropout 0.5 yes", "\"yes\" is not an option"},
        {"--resume=yes", "--resume is \"yes\"; expected true or false"},
        {"--precision fp8", "--precision is \"fp8\"; expected one of fp32|bf16|fp16"},
        {"--precision fp", "one of"},
        {"--precision=", "one of"},
        {"--heads 3,x", "--heads is \"3,x\"; expected a list of at most 256 integers, each at least 0, such as 3,1"},
        {"--heads 3,,1", "expected a list of at most 256 integers"},
        {"--heads 3,", "expected a list of at most 256 integers"},
        {"--heads [3,1", "expected a list of at most 256 integers"},
        {"--heads 3,-1", "each at least 0"},
        {"--split 1,x", "expected a list of at most 256 integers, such as 3,1"},
        {"--heads [", "expected a list of at most 256 integers"},
        {"--out \xff\xfe", "UTF-8"},
        {"seq_len 5", "\"seq_len\" is not an option"},
        {"-s 5", "\"-s\" is not an option"},
        {"--", "is not an option"},
        {"--config", "--config needs a value"},
        {"--config %/none.json", "No such file"}};
    GxError err = GX_ZERO;
    GxConfig c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GxStatus status = read_args(&c, bad[i].line, &err);
        refused(&err, status, strstr(bad[i].message, "No such") ? GX_ERR_IO : GX_ERR_ARGUMENT, bad[i].message,
                bad[i].line);
    }
    char longest[400] = "--out=", line[800] = "--heads 1";
    memset(longest + 6, 'x', GX_FIELD_TEXT);
    longest[6 + GX_FIELD_TEXT] = 0;
    refused(&err, read_args(&c, longest, &err), GX_ERR_ARGUMENT, "at most 255 bytes", "256 bytes");
    longest[6 + GX_FIELD_TEXT - 1] = 0;
    CHECK(read_args(&c, longest, &err) == GX_OK && strlen(train.out) == 255, "255 bytes: %s", err.message);
    static char path[GX_PATH + 20] = "--folder=";
    memset(path + 9, 'p', GX_PATH);
    refused(&err, read_args(&c, path, &err), GX_ERR_ARGUMENT, "at most 4095 bytes", "a path of 4096 bytes");
    path[9 + GX_PATH - 1] = 0;
    CHECK(read_args(&c, path, &err) == GX_OK && !strcmp(train.folder, path + 9), "a path of 4095 bytes: %s",
          err.message);
    CHECK(gx_config_write_json(&c, at("long.json"), &err) == GX_OK &&
              read_args(&c, "--config %/long.json", &err) == GX_OK && !strcmp(train.folder, path + 9),
          "and in a file: %s", err.message);
    unlink(at("long.json"));
    for (int i = 1; i < 256; i++) strcat(line, ",1");
    CHECK(read_args(&c, line, &err) == GX_OK && model.heads.n == 256, "256 elements: %s", err.message);
    strcat(line, ",1");
    refused(&err, read_args(&c, line, &err), GX_ERR_ARGUMENT, "at most 256", "257 elements");
}

TEST(values_that_are_cut_in_messages_end_with_an_ellipsis)
{
    char x[131] = "", line[300], says[300];
    GxError err = GX_ZERO;
    GxConfig c;
    memset(x, 'x', 130);
    const struct {
        const char *line, *says;
    } list[] = {{"--seq_len %.100s", "--seq_len is \"%.100s\"; expected an integer"},
                {"--seq_len %s", "--seq_len is \"%.100s…\"; expected an integer"},
                {"--seq_len 1%.98séyyy", "--seq_len is \"1%.98s…\"; expected an integer"}, // é is two bytes
                {"--%s", "no option --%.100s…; --help"},
                {"%s", "\"%.100s…\" is not an option"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(line, sizeof line, list[i].line, x);
        snprintf(says, sizeof says, list[i].says, x);
        refused(&err, read_args(&c, line, &err), GX_ERR_ARGUMENT, says, line);
    }
}

TEST(flags_win_over_the_config_file_wherever_it_stands)
{
    GxError err = GX_ZERO;
    GxConfig c;
    put_text(at("c.json"), "{\"_comment\": [\"free\"], \"seq_len\": 32, \"learning_rate\": 1, \"resume\": true, "
                           "\"heads\": [4], \"out\": \"x\"}");
    const char *lines[] = {"--seq_len 64 --config %/c.json --dropout 0.2",
                           "--config=%/c.json --seq_len 64 --dropout 0.2"};
    for (int i = 0; i < 2; i++) {
        CHECK(read_args(&c, lines[i], &err) == GX_OK, "%s", err.message);
        CHECK(train.seq_len == 64 && train.learning_rate == 1 && train.resume == 1 && train.dropout == 0.2,
              "order %d: %ld", i, (long)train.seq_len);
        CHECK(model.heads.n == 1 && model.heads.v[0] == 4 && !strcmp(train.out, "x"), "order %d: list, text", i);
        CHECK(gx_config_source(&c, "seq_len") == GX_FROM_FLAG && gx_config_source(&c, "heads") == GX_FROM_FILE &&
                  !gx_config_is_set(&c, "steps"),
              "sources");
        CHECK(!strcmp(c.file, at("c.json")), "%s", c.file);
    }
    unlink(at("c.json"));
}

TEST(an_option_may_be_given_by_another_name_and_is_saved_by_its_own)
{
    GxError err = GX_ZERO;
    GxConfig c;
    put_text(at("c.json"), "{\"block_size\": 5}");
    CHECK(read_args(&c, "--config %/c.json", &err) == GX_OK && train.seq_len == 5, "%s", err.message);
    CHECK(read_args(&c, "--block_size 7", &err) == GX_OK && train.seq_len == 7, "%s", err.message);
    CHECK(gx_config_is_set(&c, "seq_len"), "it is not set");
    GxJson *json = gx_config_to_json(&c, &err);
    CHECK(gx_json_int(gx_json_get(json, "seq_len")) == 7 && !gx_json_get(json, "block_size"), "saved otherwise");
    gx_json_free(json);
    refused(&err, gx_config_add_alias(&c, "heads", "seq_len", &err), GX_ERR_ARGUMENT, "cannot be another name",
            "taken");
    refused(&err, gx_config_add_alias(&c, "h", "head", &err), GX_ERR_ARGUMENT, "cannot be another name", "of nothing");
    unlink(at("c.json"));
}

TEST(config_files_are_strict)
{
    static const struct {
        const char *text, *message;
    } bad[] = {{"{\"seq_length\": 3}", "c.json: there is no option seq_length; did you mean seq_len?"},
               {"{\"seq_len\": \"3\"}", "c.json: seq_len is \"3\"; expected an integer, at least 1"},
               {"{\"seq_len\": 3.0}", "seq_len is 3.0; expected an integer"},
               {"{\"seq_len\": null}", "expected an integer"},
               {"{\"seq_len\": 0}", "at least 1"},
               {"{\"resume\": 1}", "expected true or false"},
               {"{\"learning_rate\": \"1\"}", "expected a number"},
               {"{\"heads\": 3}", "expected a list of at most 256 integers"},
               {"{\"heads\": [1.5]}", "expected a list of at most 256 integers"},
               {"{\"heads\": [-1]}", "at least 0"},
               {"{\"out\": [\"x\"]}", "UTF-8 text"},
               {"{\"precision\": \"fp8\"}", "one of"},
               {"{\"training\": {\"seq_len\": 3}}", "no option training"},
               {"{\"config\": \"x\"}", "no option config"}};
    GxError err = GX_ZERO;
    GxConfig c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text(at("c.json"), bad[i].text);
        refused(&err, read_args(&c, "--config %/c.json", &err), GX_ERR_ARGUMENT, bad[i].message, bad[i].text);
    }
    put_text(at("c.json"), "[1]");
    refused(&err, read_args(&c, "--config %/c.json", &err), GX_ERR_FORMAT, "an array; expected an object", "a list");
    put_text(at("c.json"), "{\"seq_len\": 3, \"block_size\": 4}");
    refused(&err, read_args(&c, "--config %/c.json", &err), GX_ERR_ARGUMENT,
            "has \"block_size\" and \"seq_len\", which are one option", "an option by two names");
    put_text(at("c.json"), "{\"seq_len\": 3, \"seq_len\": 4}");
    refused(&err, read_args(&c, "--config %/c.json", &err), GX_ERR_FORMAT, "duplicate", "a key twice");
    unlink(at("c.json"));
}

TEST(the_resolved_config_reads_back_to_the_same_values)
{
    GxError err = GX_ZERO;
    GxConfig c;
    CHECK(read_args(&c,
                    "--learning_rate 0.1 --dropout 0.30000000000000004 --steps 9223372036854775807 --resume --out "
                    "\xc3\xa9\"\\ --heads "
                    "1,2,3 --split []",
                    &err) == GX_OK,
          "%s", err.message);
    TrainOptions t = train;
    ModelOptions m = model;
    CHECK(gx_config_write_json(&c, at("resolved.json"), &err) == GX_OK, "%s", err.message);
    CHECK(read_args(&c, "--config %/resolved.json", &err) == GX_OK, "%s", err.message);
    CHECK(t.seq_len == train.seq_len && t.steps == train.steps && t.learning_rate == train.learning_rate &&
              t.dropout == train.dropout,
          "numbers");
    CHECK(t.resume == train.resume && t.report == train.report && !strcmp(t.out, train.out) &&
              !strcmp(t.precision, train.precision),
          "text %s", train.out);
    CHECK(!memcmp(&m, &model, sizeof m), "lists");
    unlink(at("resolved.json"));
}

static int widest_line(const char *text) // in columns
{
    int widest = 0;
    for (const char *line = text; *line; line += line[strcspn(line, "\n")] == '\n') {
        const int columns = gx_text_columns(line, (int64_t)strcspn(line, "\n"));
        widest = columns > widest ? columns : widest;
        line += strcspn(line, "\n");
    }
    return widest;
}

static char *help_of(int width) // free() it
{
    GxError err = GX_ZERO;
    GxConfig c;
    char *text = NULL;
    size_t bytes = 0;
    CHECK(read_args(&c, "", &err) == GX_OK, "%s", err.message);
    FILE *f = open_memstream(&text, &bytes);
    gx_config_help(&c, NULL, 0, f, width);
    fclose(f);
    return text;
}

// What the help says behind these arguments, on lines of 80 columns; free() it.
static char *help_behind(const char *line, const GxHelpLine *common, int n)
{
    GxError err = GX_ZERO;
    GxConfig c;
    char *text = NULL;
    size_t bytes = 0;
    CHECK(read_args(&c, line, &err) == GX_OK && c.help, "%s: %s", line, err.message);
    FILE *f = open_memstream(&text, &bytes);
    gx_config_help(&c, common, n, f, 80);
    fclose(f);
    return text;
}

TEST(help_alone_shows_the_common_options_and_help_WORD_those_of_a_name_or_group)
{
    static const GxHelpLine common[] = {{"first", "seq_len", "tokens"},
                                        {NULL, "no_such_option", "of another program"},
                                        {"nothing of it is here", "nor_this", "of another program"},
                                        {"second", "precision", "of numbers"},
                                        {NULL, "resume", "go on"}};
    static const struct {
        const char *line, *has, *has_not;
    } list[] = {{"--help", "first\n  --seq_len N", "--dropout"},
                {"--help", "second\n  --precision TEXT", "nothing of it is here"},
                {"--help", "of numbers (one of fp32|bf16|fp16;", "no_such_option"},
                {"--help", "go on\n", "go on ("}, // nothing is said of false
                {"--help", "--help all", "another program"},
                {"-h --dropout 0.5", "first\n", "--dropout"},
                {"--seq_len 3 --help all", "--dropout X", "go on"},
                {"--help drop", "--dropout X", "--seq_len"},
                {"--help drop", "--dropout X", "--config FILE"},
                {"--help Model", "Model\n  --heads", "--seq_len"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *text = help_behind(list[i].line, common, 5);
        CHECK(strstr(text, list[i].has) && !strstr(text, list[i].has_not), "%s: %s", list[i].line, text);
        free(text);
    }
    char *first = help_behind("--help", common, 5), *none = help_behind("--help", NULL, 0),
         *all = help_behind("--help all", common, 5);
    CHECK(!strncmp(first, "first\n", 6) && !strcmp(none, all), "%s", first);
    free(first), free(none), free(all);
    GxError err = GX_ZERO;
    GxConfig c;
    refused(&err, read_args(&c, "--help xyz", &err), GX_ERR_ARGUMENT,
            "--help xyz: no option and no group of options has that in its name; --help all", "a word");
    CHECK(!c.help, "it is an error, and not help");
}

TEST(options_that_differ_from_their_defaults_are_told_apart)
{
    static const char *const lines[] = {"", "--seq_len 256 --report true --heads 3,1 --learning_rate 0.0003",
                                        "--seq_len 255 --resume --out a --heads 3,2 --steps 0"};
    static const char *const expected[] = {"{}", "{}",
                                           "{\"seq_len\":255,\"resume\":true,\"out\":\"a\",\"heads\":[3,2]}"};
    GxError err = GX_ZERO;
    GxConfig c;
    for (int i = 0; i < 3; i++) {
        char *text = NULL;
        int64_t bytes;
        CHECK(read_args(&c, lines[i], &err) == GX_OK, "%s", err.message);
        GxJson *changed = gx_config_changed_to_json(&c, &err);
        gx_json_dump(changed, 0, &text, &bytes, &err);
        CHECK(text && !strcmp(text, expected[i]), "%s: %s", lines[i], text ? text : err.message);
        free(text), gx_json_free(changed);
    }
}

TEST(help_lists_every_option_once_with_its_default)
{
    char *text = help_of(80);
    CHECK(strstr(text, "\nTraining\n") && strstr(text, "\nModel\n"), "%s", text);
    CHECK(strstr(text, "  --seq_len N        tokens in a sample (an integer, at least 1; default: 256)\n") != NULL,
          "%s", text);
    CHECK(strstr(text, "  --heads N,N,…      per rank") != NULL, "%s", text);
    CHECK(strstr(text, "  --resume           from the newest checkpoint (default: false)\n") != NULL, "%s", text);
    CHECK(strstr(text, "one of fp32|bf16|fp16; default: fp32)\n") &&
              strstr(text, "  --out TEXT         a word (default: none)\n") &&
              strstr(text, "  --folder PATH      a path (default: none)\n"),
          "%s", text);
    free(text);
}

TEST(help_is_as_wide_as_it_may_be_and_says_the_same)
{
    char *wide = help_of(200);
    for (int width = 40; width < 100; width += 3) {
        char *text = help_of(width), *p = text;
        CHECK(widest_line(text) <= width, "%d columns in help of %d:\n%s", widest_line(text), width, text);
        for (const char *q = wide; *q || *p; p += *p != 0, q += *q != 0) { // but for what divides words
            p += strspn(p, " \n"), q += strspn(q, " \n");
            if (!CHECK(*p == *q, "help of %d columns goes on with \"%.30s\", of 200 with \"%.30s\"", width, p, q))
                break;
        }
        free(text);
    }
    CHECK(widest_line(wide) > 80, "%d columns where 200 may be", widest_line(wide));
    free(wide);
    wide = help_of(40);
    CHECK(strstr(wide, "\n  --learning_rate X\n                 of the largest step"), "no line of its own: %s", wide);
    free(wide);
}

TEST(options_of_other_programs_are_refused_with_the_names_of_these)
{
    static const GxField other[] = {{"wings", GX_FIELD_INT, 0, "2", "", NULL}};
    char *args[] = {(char *)"test", (char *)"--wings", (char *)"4"},
         *near[] = {(char *)"test", (char *)"--wing", (char *)"4"};
    GxError err = GX_ZERO;
    GxConfig c;
    gx_config_open(&c);
    CHECK(gx_config_add_elsewhere(&c, other, 1, "fly or glide", &err) == GX_OK, "%s", err.message);
    refused(&err, gx_config_read_args(&c, 3, args, &err), GX_ERR_ARGUMENT,
            "no option --wings in this program; use fly or glide", "a flag");
    put_text(at("other.json"), "{\"wings\": 4}");
    refused(&err, gx_config_read_json(&c, at("other.json"), &err), GX_ERR_ARGUMENT,
            "other.json: there is no option wings in this program", "a file");
    refused(&err, gx_config_read_args(&c, 3, near, &err), GX_ERR_ARGUMENT, "no option --wing; --help",
            "a misspelt flag");
    CHECK(gx_config_is_set(&c, "wings") == 0, "it was set");
    unlink(at("other.json"));
}

TEST(options_of_other_tasks_are_refused_with_the_names_of_these)
{
    static const GxField other[] = {{"wings", GX_FIELD_INT, 0, "2", "", NULL}};
    char *args[] = {(char *)"test", (char *)"--wings=4"};
    GxError err = GX_ZERO;
    GxConfig c;
    gx_config_open(&c);
    gx_config_add_elsewhere(&c, other, 1, "--task fly", &err);
    gx_config_add_elsewhere(&c, other, 1, "--task glide", &err);
    refused(&err, gx_config_read_args(&c, 2, args, &err), GX_ERR_ARGUMENT,
            "no option --wings for this task; it belongs to --task fly or --task glide: choose that", "a flag");
}

static char names[GX_FIELD_NAMES_TEXT];
static GxStatus read_names(GxConfig *c, int argc, char **argv, GxError *err)
{
    static const GxField table[] = {{"names", GX_FIELD_NAMES, 0, "a", "what they are called", NULL}};
    memset(err, 0, sizeof *err);
    gx_config_open(c);
    GX_TRY(gx_config_add(c, "t", GX_FIELDS(table), names, err));
    return gx_config_read_args(c, argc, argv, err);
}

TEST(lists_of_names_are_long_flags_and_lists_in_files)
{
    static const struct {
        const char *json, *names; // NULL: it is refused
    } files[] = {{"\"x, y\"", "x, y"},
                 {"[\"x\", \"two words\", \"\u00e9\"]", "x,two words,\xc3\xa9"},
                 {"[2, 0, -1]", "2,0,-1"},
                 {"[]", ""},
                 {"[\"x,y\"]", NULL},
                 {"[\"x\", \"\"]", NULL},
                 {"[\"x\", null]", NULL},
                 {"[[\"x\"]]", NULL},
                 {"2", NULL}};
    static char flag[GX_FIELD_NAMES_TEXT + 20], text[100];
    char file[600], *from_file[] = {(char *)"test", (char *)"--config", file}, *by_flag[] = {(char *)"test", flag};
    GxError err = GX_ZERO;
    GxConfig c;
    snprintf(file, sizeof file, "%s", at("names.json"));
    CHECK(read_names(&c, 1, from_file, &err) == GX_OK && !strcmp(names, "a"), "the default: %s", names);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(text, sizeof text, "{\"names\": %s}", files[i].json);
        put_text(at("names.json"), text);
        const GxStatus status = read_names(&c, 3, from_file, &err);
        if (files[i].names) CHECK(status == GX_OK && !strcmp(names, files[i].names), "%s: %s", names, err.message);
        else refused(&err, status, GX_ERR_ARGUMENT, "; expected names separated by commas", files[i].json);
    }
    // as many as there may be labels, as long as they may be; and back from the file that keeps them
    size_t end = (size_t)snprintf(flag, sizeof flag, "--names=");
    for (int i = 0; i < 1000; i++) end += (size_t)snprintf(flag + end, sizeof flag - end, "%s%0200d", i ? ", " : "", i);
    CHECK(read_names(&c, 2, by_flag, &err) == GX_OK && !strcmp(names, flag + 8), "1000 names: %s", err.message);
    CHECK(gx_config_write_json(&c, file, &err) == GX_OK && read_names(&c, 3, from_file, &err) == GX_OK &&
              !strcmp(names, flag + 8),
          "and in a file: %s", err.message);
    memset(flag + 8, 'x', GX_FIELD_NAMES_TEXT);
    refused(&err, read_names(&c, 2, by_flag, &err), GX_ERR_ARGUMENT, "of at most 262143 bytes", "too many bytes");
    unlink(at("names.json"));
}

TEST(wrong_option_tables_are_found)
{
    static const GxField twice[] = {{"a", GX_FIELD_INT, 0, "1", "", NULL}, {"a", GX_FIELD_INT, 0, "1", "", NULL}};
    static const GxField bad_default[] = {{"a", GX_FIELD_INT, 0, "one", "", NULL}};
    static const GxField outside[] = {{"a", GX_FIELD_INT, 0, "7", "", "..6"}};
    static const GxField reserved[][1] = {{{"config", GX_FIELD_INT, 0, "7", "", NULL}},
                                          {{"help", GX_FIELD_INT, 0, "7", "", NULL}},
                                          {{"version", GX_FIELD_INT, 0, "7", "", NULL}}};
    GxError err = GX_ZERO;
    GxConfig c;
    int64_t value;
    gx_config_open(&c);
    refused(&err, gx_config_add(&c, "t", twice, 2, &value, &err), GX_ERR_ARGUMENT, "a is described twice", "twice");
    gx_config_open(&c);
    refused(&err, gx_config_add(&c, "t", bad_default, 1, &value, &err), GX_ERR_ARGUMENT, "a is \"one\"", "default");
    gx_config_open(&c);
    refused(&err, gx_config_add(&c, "t", outside, 1, &value, &err), GX_ERR_ARGUMENT, "at most 6", "range");
    for (int i = 0; i < 3; i++) {
        gx_config_open(&c);
        refused(&err, gx_config_add(&c, "t", reserved[i], 1, &value, &err), GX_ERR_ARGUMENT, reserved[i][0].name,
                "reserved");
    }
}

// ---- structs in JSON -----------------------------------------------------------------------------------------------

static GxStatus fields_from(const char *text, int required, TrainOptions *o, GxError *err)
{
    GxJson *json;
    memset(err, 0, sizeof *err);
    GX_TRY(gx_json_parse(&json, text, (int64_t)strlen(text), "here", err));
    GxStatus status = gx_json_get_fields(json, GX_FIELDS(train_table), required, o, "here", err);
    gx_json_free(json);
    return status;
}

TEST(a_struct_goes_into_json_and_back_by_its_table)
{
    const TrainOptions o = {12, -3, 0.1, 0.30000000000000004, 1, 0, "bf16", "\xc3\xa9\"\\", "a/path"};
    TrainOptions back, some = {7, 8, 0.5, 0.25, 0, 1, "fp16", "x", ""};
    GxError err = GX_ZERO;
    char *text;
    int64_t bytes;
    GxJson *json = gx_json_new_object();
    CHECK(gx_json_set_fields(json, GX_FIELDS(train_table), &o, &err) == GX_OK, "%s", err.message);
    gx_json_dump(json, 0, &text, &bytes, &err);
    memset(&back, 0xEE, sizeof back);
    CHECK(fields_from(text, 1, &back, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < 9; i++) CHECK(gx_field_same(&train_table[i], &o, &back), "%s", train_table[i].name);
    free(text);
    gx_json_free(json);
    CHECK(fields_from("{\"steps\": null, \"seq_len\": 9, \"other\": []}", 0, &some, &err) == GX_OK, "%s", err.message);
    CHECK(some.seq_len == 9 && some.steps == 8 && !strcmp(some.out, "x"), "what is absent or null was changed");
}

TEST(a_hash_is_unsigned_hexadecimal_and_an_earlier_number_is_read)
{
    static const GxField field = {"hash", GX_FIELD_HASH, 0, NULL, "of a text", NULL};
    static const char *const same[] = {"{\"hash\": \"0xf051a5b0b9d5a1df\"}", "{\"hash\": -1129939853042671137}"},
                             *const bad[] = {"{\"hash\": \"0x12\"}", "{\"hash\": \"0xF051A5B0B9D5A1DF\"}",
                                             "{\"hash\": \"f051a5b0b9d5a1df\"}", "{\"hash\": 1.5}",
                                             "{\"hash\": \"0xf051a5b0b9d5a1df0\"}"};
    int64_t value = (int64_t)0xf051a5b0b9d5a1dfu, bytes;
    GxError err = GX_ZERO;
    GxJson *json = gx_json_new_object();
    char *text = NULL;
    gx_json_set_fields(json, &field, 1, &value, &err);
    gx_json_dump(json, 0, &text, &bytes, &err);
    CHECK(text && strstr(text, "\"0xf051a5b0b9d5a1df\""), "%s", text ? text : "no text");
    free(text);
    gx_json_free(json);
    for (int i = 0; i < 2; i++) {
        value = 0;
        gx_json_parse(&json, same[i], (int64_t)strlen(same[i]), "here", &err);
        CHECK(gx_json_get_fields(json, &field, 1, 1, &value, "here", &err) == GX_OK, "%s", err.message);
        CHECK(value == (int64_t)0xf051a5b0b9d5a1dfu, "%s: %lx", same[i], (unsigned long)value);
        gx_json_free(json);
    }
    for (int i = 0; i < 5; i++) {
        gx_json_parse(&json, bad[i], (int64_t)strlen(bad[i]), "here", &err);
        refused(&err, gx_json_get_fields(json, &field, 1, 1, &value, "here", &err), GX_ERR_FORMAT, "here: hash is",
                "expected a hash");
        gx_json_free(json);
    }
}

TEST(a_value_outside_of_its_range_names_file_key_value_and_range)
{
    static const struct {
        const char *text, *message;
        int required;
    } bad[] = {{"{\"seq_len\": -1}", "here: seq_len is -1; expected an integer, at least 1", 0},
               {"{\"dropout\": 0.95}", "here: dropout is 0.95; expected a number from 0 to 0.9", 0},
               {"{\"precision\": \"fp8\"}", "here: precision is \"fp8\"; expected one of fp32|bf16|fp16", 0},
               {"{\"steps\": 1.5}", "here: steps is 1.5; expected an integer", 0},
               {"{\"resume\": 1}", "here: resume is 1; expected true or false", 0},
               {"{\"seq_len\": 1}", "here: steps is missing; expected an integer", 1},
               {"{\"seq_len\": null}", "here: seq_len is missing; expected an integer, at least 1", 1},
               {"[]", "here holds an array; expected an object", 0}};
    TrainOptions o;
    GxError err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(&err, fields_from(bad[i].text, bad[i].required, &o, &err), GX_ERR_FORMAT, bad[i].message, bad[i].text);
}

TEST(packed_fields_are_the_struct_without_its_padding)
{
    const ModelOptions o = {{2, {3, 1}}, {0, {0}}};
    const int64_t bytes = gx_fields_bytes(GX_FIELDS(model_table)) + gx_fields_bytes(GX_FIELDS(train_table));
    ModelOptions back;
    char *packed = (char *)malloc((size_t)gx_fields_bytes(GX_FIELDS(model_table)));
    CHECK(bytes == 2 * (int64_t)sizeof(GxIntList) + 4 * 8 + 2 * 4 + 2 * GX_FIELD_TEXT + GX_PATH, "%ld bytes",
          (long)bytes);
    memset(&back, 0xEE, sizeof back);
    gx_fields_pack(GX_FIELDS(model_table), &o, packed);
    gx_fields_unpack(GX_FIELDS(model_table), &back, packed);
    for (int i = 0; i < 2; i++) CHECK(gx_field_same(&model_table[i], &o, &back), "%s", model_table[i].name);
    free(packed);
}

// ---- published folders ---------------------------------------------------------------------------------------------

static void publish(const char *name, const char *text, GxError *err)
{
    char folder[GX_PATH], path[GX_PATH];
    CHECK(gx_publish_begin(at(name), folder, err) == GX_OK, "%s", err->message);
    gx_path_join(path, folder, "weights", err);
    put_text(path, text);
    gx_path_join(path, folder, "state", err);
    put_text(path, "state");
    CHECK(gx_publish_finish(at(name), err) == GX_OK, "%s", err->message);
}

TEST(a_published_folder_is_whole_and_replaces_the_one_before)
{
    GxError err = GX_ZERO;
    publish("step", "first", &err);
    CHECK(gx_folder_verify(at("step"), 1, &err) == GX_OK && size_of(at("step/weights")) == 5 &&
              names_in(at("step")) == 3,
          "%s", err.message);
    publish("step/", "second one", &err); // the slash does not matter
    CHECK(gx_folder_verify(at("step"), 1, &err) == GX_OK && size_of(at("step/weights")) == 10, "%s", err.message);
    CHECK(names_in(root) == 1, "%d names beside the folder", names_in(root) - 1);
    gx_folder_remove(at("step"), &err);
}

TEST(torn_folders_are_recognised)
{
    GxError err = GX_ZERO;
    publish("step", "weights", &err);
    put_text(at("step/weights"), "weighty");
    CHECK(gx_folder_verify(at("step"), 0, &err) == GX_OK, "sizes alone: %s", err.message);
    refused(&err, gx_folder_verify(at("step"), 1, &err), GX_ERR_FORMAT, "damaged: weights has the hash",
            "other contents");
    put_text(at("step/weights"), "weight");
    refused(&err, gx_folder_verify(at("step"), 0, &err), GX_ERR_FORMAT,
            "damaged: weights has 6 bytes, but its manifest says 7", "another size");
    unlink(at("step/weights"));
    refused(&err, gx_folder_verify(at("step"), 0, &err), GX_ERR_FORMAT,
            "the file weights, which its manifest names, is missing", "a missing file");
    put_text(at("step/" GX_MANIFEST), "{\"files\": [{\"name\": \"weights\", \"by");
    refused(&err, gx_folder_verify(at("step"), 0, &err), GX_ERR_FORMAT, "manifest.json:1:", "half a manifest");
    put_text(at("step/" GX_MANIFEST), "{\"files\": [{\"name\": \"../step/state\", \"bytes\": 5, \"fnv1a64\": \"0\"}]}");
    refused(&err, gx_folder_verify(at("step"), 0, &err), GX_ERR_FORMAT, "leads out of the folder", "a path");
    put_text(at("step/" GX_MANIFEST), "{}");
    refused(&err, gx_folder_verify(at("step"), 0, &err), GX_ERR_FORMAT, "\"files\" is missing", "an empty manifest");
    unlink(at("step/" GX_MANIFEST));
    refused(&err, gx_folder_verify(at("step"), 0, &err), GX_ERR_FORMAT, "never finished", "no manifest");
    gx_folder_remove(at("step"), &err);
}

// A power cut may come at any time: what has its name then has its contents, too.
TEST(what_is_written_is_on_the_disk_before_it_has_its_name)
{
    const GxTokenizer bytes = gx_tokenizer_bytes();
    GxSafetensorsEntry e = GX_ZERO;
    GxSafetensorsWriter w;
    GxError err = GX_ZERO;
    char folder[GX_PATH], path[GX_PATH];
    const float values[3] = {1, 2, 3};
    snprintf(e.name, sizeof e.name, "x");
    e.dtype = GX_F32, e.ndim = 1, e.shape[0] = 3;
    disk_watch();
    CHECK(gx_file_write(at("alone"), "text", 4, &err) == GX_OK && disk.renames == 1, "%s", err.message);
    CHECK(!disk_wrong(), "%s", disk_wrong());
    for (int twice = 0; twice < 2; twice++) { // the second one replaces the first
        disk_watch();
        CHECK(gx_publish_begin(at("step"), folder, &err) == GX_OK, "%s", err.message);
        gx_path_join(path, folder, "x.safetensors", &err);
        gx_safetensors_create(&w, path, &e, 1, NULL, 0, &err);
        gx_safetensors_write(&w, "x", 0, values, 3, &err);
        gx_safetensors_finish(&w, &err);
        gx_tokenizer_write(&bytes, folder, &err);
        gx_path_join(path, folder, "by_others", &err);
        put_text(path, "not written by the library");
        CHECK(gx_publish_finish(at("step"), &err) == GX_OK, "%s", err.message);
        CHECK(disk.renames == 3 + 2 + twice, "%d renames: of three files, the manifest and the folder", disk.renames);
        CHECK(!disk_wrong(), "%s", disk_wrong());
    }
    disk_watch();
    CHECK(gx_publish_remove(at("step"), &err) == GX_OK && disk.renames == 1, "%s", err.message);
    CHECK(!disk_wrong(), "%s", disk_wrong());
    unlink(at("alone"));
}

TEST(files_of_a_folder_inside_a_published_one_are_published_with_it)
{
    GxError err = GX_ZERO;
    char folder[GX_PATH], path[GX_PATH];
    for (int again = 0; again < 2; again++) { // the second replaces the first
        CHECK(gx_publish_begin(at("deep"), folder, &err) == GX_OK, "%s", err.message);
        snprintf(path, sizeof path, "%.4000s/inner", folder);
        gx_folder_make(path, &err);
        snprintf(path, sizeof path, "%.4000s/inner/config", folder);
        put_text(path, again ? "two" : "one");
        CHECK(gx_publish_finish(at("deep"), &err) == GX_OK && gx_folder_verify(at("deep"), 1, &err) == GX_OK, "%s",
              err.message);
        CHECK(names_in(at("deep")) == 2 && size_of(at("deep/inner/config")) == 3, "not all is there");
    }
    put_text(at("deep/inner/config"), "six");
    refused(&err, gx_folder_verify(at("deep"), 1, &err), GX_ERR_FORMAT, "damaged: inner/config has the hash",
            "contents");
    unlink(at("deep/inner/config"));
    refused(&err, gx_folder_verify(at("deep"), 0, &err), GX_ERR_FORMAT,
            "the file inner/config, which its manifest names", "none");
    const char *const outside[] = {"inner/../../x", "../x", "/x", "inner/", "inner//x", "a/b/c", "./x"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        char manifest[200];
        snprintf(manifest, sizeof manifest, "{\"files\": [{\"name\": \"%s\", \"bytes\": 5, \"fnv1a64\": \"0\"}]}",
                 outside[i]);
        put_text(at("deep/" GX_MANIFEST), manifest);
        refused(&err, gx_folder_verify(at("deep"), 0, &err), GX_ERR_FORMAT, "leads out of the folder", outside[i]);
    }
    gx_folder_remove(at("deep"), &err);
}

TEST(a_crash_while_publishing_loses_no_finished_folder)
{
    GxError err = GX_ZERO;
    char folder[GX_PATH];
    publish("step", "first", &err);
    rename(at("step"), at("step" GX_OLD_SUFFIX)); // stopped between the two renames
    CHECK(gx_publish_recover(at("step"), &err) == GX_OK && gx_folder_verify(at("step"), 1, &err) == GX_OK, "%s",
          err.message);
    gx_folder_make(at("step" GX_OLD_SUFFIX), &err); // stopped before the old one was removed
    gx_folder_make(at("step" GX_NEW_SUFFIX), &err); // and a run that was killed while it wrote
    put_text(at("step" GX_NEW_SUFFIX "/half"), "half");
    CHECK(gx_publish_begin(at("step"), folder, &err) == GX_OK && names_in(folder) == 0, "%s", err.message);
    CHECK(!gx_path_is_folder(at("step" GX_OLD_SUFFIX)) && gx_folder_verify(at("step"), 1, &err) == GX_OK, "%s",
          err.message);
    gx_folder_remove(folder, &err);
    gx_folder_remove(at("step"), &err);
}

// Stopped between the two renames of a replacement: the new folder is finished, whatever the one before was.
TEST(a_finished_folder_is_not_lost_where_a_torn_one_was_to_be_replaced)
{
    GxError err = GX_ZERO;
    publish("step", "first", &err);
    unlink(at("step/weights"));
    rename(at("step"), at("step" GX_OLD_SUFFIX));
    publish("step", "second", &err);
    rename(at("step"), at("step" GX_NEW_SUFFIX));
    CHECK(gx_publish_recover(at("step"), &err) == GX_OK && gx_folder_verify(at("step"), 1, &err) == GX_OK, "%s",
          err.message);
    CHECK(size_of(at("step/weights")) == 6 && names_in(root) == 1, "%d names beside the folder", names_in(root) - 1);
    gx_folder_remove(at("step"), &err);
}

// A child removes a folder of many files and is killed at the first name that is missing.
static void remove_and_be_killed(const char *name)
{
    char first[GX_PATH];
    GxError err = GX_ZERO;
    snprintf(first, sizeof first, "%s", at(name));
    strcat(first, "/file-0000");
    const pid_t child = fork();
    if (child == 0) _exit(gx_publish_remove(at(name), &err) != GX_OK);
    while (gx_path_is_file(first) && waitpid(child, NULL, WNOHANG) == 0) {}
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

TEST(a_removal_that_was_killed_leaves_the_name_whole_or_free)
{
    enum { FILES = 1000, KILLS = 3 };
    int halves = 0;
    for (int k = 0; k < KILLS; k++) {
        char folder[GX_PATH], path[GX_PATH];
        GxError err = GX_ZERO;
        gx_publish_begin(at("step"), folder, &err);
        for (int i = 0; i < FILES; i++) {
            snprintf(path, sizeof path, "%.900s/file-%04d", folder, i);
            put(path, "", 0);
        }
        CHECK(gx_publish_finish(at("step"), &err) == GX_OK, "%s", err.message);
        remove_and_be_killed("step");
        halves += names_in(at("step" GX_OLD_SUFFIX)) > 0;
        CHECK(!gx_path_is_folder(at("step")) || gx_folder_verify(at("step"), 0, &err) == GX_OK, "%s", err.message);
        CHECK(gx_publish_recover(at("step"), &err) == GX_OK && !gx_path_is_folder(at("step" GX_OLD_SUFFIX)), "%s",
              err.message);
        CHECK(!gx_path_is_folder(at("step")) || gx_folder_verify(at("step"), 0, &err) == GX_OK, "%s", err.message);
        CHECK(gx_publish_begin(at("step"), folder, &err) == GX_OK, "%s", err.message);
        gx_folder_remove(folder, &err);
        if (gx_path_is_folder(at("step"))) gx_folder_remove(at("step"), &err);
    }
    CHECK(halves > 0, "none of %d removals was killed in its middle", KILLS);
}

TEST(what_cannot_be_removed_keeps_its_name)
{
    GxError err = GX_ZERO;
    publish("step", "first", &err);
    CHECK(symlink("/", at("step/link")) == 0, "no link");
    refused(&err, gx_publish_remove(at("step"), &err), GX_ERR_IO, "remove it by hand", "a link");
    CHECK(gx_folder_verify(at("step"), 1, &err) == GX_OK, "%s", err.message);
    unlink(at("step/link"));
    unlink(at("step/" GX_MANIFEST));
    refused(&err, gx_publish_remove(at("step"), &err), GX_ERR_ARGUMENT, "not written by this library", "no manifest");
    CHECK(size_of(at("step/weights")) == 5, "it was removed");
    gx_folder_remove(at("step"), &err);
}

TEST(a_full_disk_publishes_nothing)
{
    GxError err = GX_ZERO;
    char folder[GX_PATH];
    publish("step", "first", &err);
    gx_publish_begin(at("step"), folder, &err);
    put_text(at("step" GX_NEW_SUFFIX "/weights"), "second");
    disk_holds(20); // the manifest is longer
    GxStatus status = gx_publish_finish(at("step"), &err);
    disk_is_back();
    refused(&err, status, GX_ERR_IO, "manifest.json", "a manifest that does not fit");
    CHECK(gx_folder_verify(at("step"), 1, &err) == GX_OK && size_of(at("step/weights")) == 5,
          "the folder before is gone: %s", err.message);
    gx_folder_remove(folder, &err);
    gx_folder_remove(at("step"), &err);
}

TEST(a_folder_of_somebody_else_is_never_replaced)
{
    GxError err = GX_ZERO;
    char folder[GX_PATH];
    gx_folder_make(at("home"), &err);
    put_text(at("home/letter"), "dear");
    refused(&err, gx_publish_begin(at("home"), folder, &err), GX_ERR_ARGUMENT, "not written by this library", "begin");
    gx_folder_make(at("home" GX_NEW_SUFFIX), &err);
    refused(&err, gx_publish_finish(at("home"), &err), GX_ERR_ARGUMENT, "not written by this library", "finish");
    CHECK(size_of(at("home/letter")) == 4, "the letter is gone");
    gx_folder_make(at("home" GX_NEW_SUFFIX "/sub/sub"), &err);
    refused(&err, gx_publish_finish(at("home"), &err), GX_ERR_ARGUMENT, "sub/sub is not a file; only plain files",
            "a folder in a folder inside");
    refused(&err, gx_publish_begin("/", folder, &err), GX_ERR_ARGUMENT, "the folder needs a name", "the root");
    refused(&err, gx_publish_begin("", folder, &err), GX_ERR_ARGUMENT, "the folder needs a name", "nothing");
    gx_folder_remove(at("home" GX_NEW_SUFFIX), &err);
    gx_folder_remove(at("home"), &err);
    gx_folder_make(at("empty"), &err); // an empty one may be
    publish("empty", "x", &err);
    gx_folder_remove(at("empty"), &err);
}

// ---- outputs that one process makes --------------------------------------------------------------------------------

TEST(an_output_that_another_process_is_writing_is_refused_with_its_name)
{
    GxError err = GX_ZERO;
    GxClaim one, two, other;
    char holder[60];
    snprintf(holder, sizeof holder, "x.out is being written by process %ld on ", (long)getpid());
    CHECK(gx_claim_file(&one, at("x.out"), &err) == GX_OK, "%s", err.message);
    refused(&err, gx_claim_file(&two, at("x.out"), &err), GX_ERR_ARGUMENT, holder, "the same file");
    CHECK(gx_claim_file(&other, at("y.out"), &err) == GX_OK, "another file of the folder: %s", err.message);
    gx_claim_end(&other);
    put_text(at("x.out"), "whole");
    gx_claim_end(&one);
    refused(&err, gx_claim_file(&two, at("x.out"), &err), GX_ERR_ARGUMENT, "x.out already exists", "a second time");
    unlink(at("x.out"));
    CHECK(gx_claim_folder(&one, at("x.out/"), &err) == GX_OK, "%s", err.message);
    put_text(at("x.out.gx-new/file"), "its");
    refused(&err, gx_claim_folder(&two, at("x.out"), &err), GX_ERR_ARGUMENT, "wait for it, or choose another --output",
            "the same folder");
    CHECK(size_of(at("x.out.gx-new/file")) == 3, "what the first has written is gone");
    CHECK(gx_claim_publish(&one, GX_OK, &err) == GX_OK && gx_folder_verify(at("x.out"), 1, &err) == GX_OK, "%s",
          err.message);
    refused(&err, gx_claim_folder(&two, at("x.out"), &err), GX_ERR_ARGUMENT, "is not empty", "a second time");
    CHECK(gx_folder_remove(at("x.out"), &err) == GX_OK && gx_claim_folder(&one, at("x.out"), &err) == GX_OK, "%s",
          err.message);
    CHECK(gx_claim_publish(&one, GX_ERR_IO, &err) == GX_ERR_IO && names_in(root) == 0,
          "of a failure something is left");
}

TEST(a_claim_ends_with_its_process)
{
    GxError err = GX_ZERO;
    GxClaim c;
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        gx_claim_folder(&c, at("made"), &err);
        put_text(at("made.gx-new/half"), "ha");
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && size_of(at("made.gx-new/half")) == 2, "%d",
          status);
    CHECK(gx_claim_folder(&c, at("made"), &err) == GX_OK && names_in(at("made.gx-new")) == 0, "%s", err.message);
    CHECK(gx_claim_publish(&c, GX_ERR_IO, &err) == GX_ERR_IO && names_in(root) == 0, "something is left");
    CHECK(!symlink("elsewhere", at("made.gx-lock")), "no link");
    put_text(at("elsewhere"), "theirs");
    refused(&err, gx_claim_folder(&c, at("made"), &err), GX_ERR_IO, "cannot create", "a link in the lock's place");
    CHECK(size_of(at("elsewhere")) == 6, "what the link leads to was written");
    unlink(at("made.gx-lock")), unlink(at("elsewhere"));
}

// What another process does between this one's open of the lock and its flock. NULL: nothing.
static void (*meanwhile)(void);
static GxClaim claim_of_another;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
    void (*happens)(void) = meanwhile;
    meanwhile = NULL;
    if (happens) happens();
    return __real_flock(fd, operation);
}

static void another_finishes(void) { put_text(at("o"), "whole"), unlink(at("o.gx-lock")); }

static void another_ends_and_a_third_begins(void)
{
    GxError err = GX_ZERO;
    unlink(at("o.gx-lock"));
    CHECK(gx_claim_file(&claim_of_another, at("o"), &err) == GX_OK, "%s", err.message);
}

TEST(what_others_do_just_before_a_lock_is_had_is_seen)
{
    GxError err = GX_ZERO;
    GxClaim c;
    meanwhile = another_finishes;
    refused(&err, gx_claim_file(&c, at("o"), &err), GX_ERR_ARGUMENT, "o already exists", "another finishes");
    CHECK(unlink(at("o")) == 0 && names_in(root) == 0, "something else is left");
    meanwhile = another_ends_and_a_third_begins;
    refused(&err, gx_claim_file(&c, at("o"), &err), GX_ERR_ARGUMENT, "o is being written by process", "a third begins");
    gx_claim_end(&claim_of_another);
    CHECK(meanwhile == NULL && names_in(root) == 0, "something is left");
}

// Each tries until somebody has made it; returns 1 for the one who has.
static int claim_and_make(int is_folder)
{
    GxClaim c;
    GxError err = GX_ZERO;
    for (;;) {
        const GxStatus status = is_folder ? gx_claim_folder(&c, at("o"), &err) : gx_claim_file(&c, at("o"), &err);
        if (status != GX_OK && !strstr(err.message, "is being written by")) return 0;
        gx_error_clear(&err);
        if (status != GX_OK) continue;
        put_text(is_folder ? at("o.gx-new/file") : at("o"), "x");
        if (is_folder && gx_claim_publish(&c, GX_OK, &err) != GX_OK) return 100;
        gx_claim_end(&c);
        return 1;
    }
}

TEST(of_processes_that_write_the_same_output_at_once_one_makes_it)
{
    enum { PROCESSES = 6, ROUNDS = 6 };
    GxError err = GX_ZERO;
    for (int round = 0; round < ROUNDS; round++) {
        int makers = 0, status = 0;
        for (int i = 0; i < PROCESSES; i++)
            if (fork() == 0) _exit(claim_and_make(round % 2));
        for (int i = 0; i < PROCESSES; i++) wait(&status), makers += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
        CHECK(makers == 1 && names_in(root) == 1, "round %d: made %d times, %d names are left", round, makers,
              names_in(root));
        if (round % 2) gx_folder_remove(at("o"), &err);
        else unlink(at("o"));
    }
}

// ---- safetensors ---------------------------------------------------------------------------------------------------

// A file with this header and `data` bytes behind it, byte i being i % 251.
static void put_safetensors(const char *path, const char *header, int64_t data)
{
    uint64_t n = strlen(header);
    char *file = (char *)malloc((size_t)(8 + n) + (size_t)data);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, (size_t)n);
    for (int64_t i = 0; i < data; i++) file[8 + (int64_t)n + i] = (char)(i % 251);
    put(path, file, 8 + (int64_t)n + data);
    free(file);
}

static GxSafetensorsEntry entry(const char *name, GxDtype dtype, int ndim, int64_t d0, int64_t d1)
{
    GxSafetensorsEntry e;
    memset(&e, 0, sizeof e);
    snprintf(e.name, sizeof e.name, "%s", name);
    e.dtype = dtype;
    e.ndim = ndim;
    e.shape[0] = d0;
    e.shape[1] = d1;
    return e;
}

TEST(safetensors_refuses_what_breaks_a_rule)
{
#define ONE(members) "{\"t\":{" members "}}"
    static const struct {
        const char *header;
        int64_t data;
        const char *message;
    } bad[] = {
        // rule 2: one strict JSON object
        {"", 0, "does not begin with {"},
        {"\xff", 0, "does not begin with {"},
        {"{", 0, "x.safetensors:1:"},
        {"[]", 0, "does not begin with {"},
        {" {}", 0, "does not begin with {"},
        {"{} x", 0, "x.safetensors:1:"},
        {"{\"\xff\":{}}", 0, "x.safetensors:1:"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_"
         "offsets\":[1,2]}}",
         2, "duplicate"},
        {ONE("\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, "duplicate"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]"), 1, "tensor t: dimension 0"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1e0],\"data_offsets\":[0,1]"), 1, "tensor t: dimension 0"},
        {ONE("\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]"), 1, "tensor t: dimension 0"},
        {ONE("\"dtype\":\"U8\",\"shape\":[true],\"data_offsets\":[0,1]"), 1, "tensor t: dimension 0"},
        {ONE("\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]"), 1, "tensor t: dimension 0"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0.0,1]"), 1, "exactly two"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]"), 1, "exactly two"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]"), 1, "too big"},
        // rule 3: what a tensor has
        {"{\"t\":3}", 0, "tensor t: it is an integer; expected an object"},
        {"{\"t\":null}", 0, "tensor t: it is null"},
        {ONE("\"shape\":[1],\"data_offsets\":[0,1]"), 1, "tensor t: \"dtype\" is nothing"},
        {ONE("\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]"), 1, "tensor t: \"dtype\" is an integer"},
        {ONE("\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, "tensor t: the dtype \"F31\" is not known"},
        {ONE("\"dtype\":\"U8\",\"data_offsets\":[0,1]"), 1, "tensor t: \"shape\" is nothing"},
        {ONE("\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]"), 1, "tensor t: \"shape\" is an integer"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1]"), 1, "exactly two"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]"), 1, "exactly two"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]"), 1, "exactly two"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":0,\"1\":1}"), 1, "exactly two"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1, "tensor t: has 9 dimensions"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "its name has 0 bytes"},
        {"{\"__metadata__\":[\"format\"]}", 0, "__metadata__ is an array"},
        {"{\"__metadata__\":{\"format\":1}}", 0, "\"format\" is an integer; expected a string"},
        // rule 4: the data, from its first byte to its last
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]"), 2,
         "begin at 1, but 0 was expected: there is a hole"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
         "offsets\":[3,5]}}",
         5, "tensor b: its data begin at 3, but 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
         "offsets\":[1,3]}}",
         3, "overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
         "offsets\":[0,2]}}",
         2, "overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_"
         "offsets\":[2,2]}}",
         4, "overlaps"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]"), 1, "end at 0, before they begin at 1"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"), 2, "1 bytes follow the last tensor"},
        {"{}", 3, "3 bytes follow"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 6, "end at 8, but the file holds 6"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775806,9223372036854775807]"), 1,
         "the file holds 1"},
        // rule 5: shape times size
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4,
         "shape and dtype take 8 bytes, but its data_offsets give 4"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2,18446744073709551614],\"data_offsets\":[0,4]"), 4, "too big"},
        {ONE("\"dtype\":\"U8\",\"shape\":[2,9223372036854775807],\"data_offsets\":[0,4]"), 4,
         "does not fit into 64 bits"},
        {ONE("\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"), 0,
         "does not fit into 64 bits"}, // wraps to 0
        {ONE("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
         "does not fit into 64 bits"}, // wraps to 0
        {ONE("\"dtype\":\"U8\",\"shape\":[0,9223372036854775807,9223372036854775807],\"data_offsets\":[0,0]"), 0,
         "does not fit into 64 bits"}, // and is 0
        {ONE("\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,1]"), 1, "shape and dtype take 0 bytes"},
        {ONE("\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,0]"), 0, "shape and dtype take 1 bytes"}};
    GxError err = GX_ZERO;
    GxSafetensors s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_safetensors(at("x.safetensors"), bad[i].header, bad[i].data);
        GxStatus status = gx_safetensors_open(&s, at("x.safetensors"), &err);
        CHECK(strstr(err.message, "x.safetensors") != NULL, "the file is not named in \"%s\"", err.message);
        refused(&err, status, GX_ERR_FORMAT, bad[i].message, bad[i].header);
        CHECK(s.file == NULL && s.entry == NULL, "something stayed open");
    }
    unlink(at("x.safetensors"));
}

// rule 1, and the seeds that need files of their own
TEST(safetensors_refuses_headers_that_do_not_fit)
{
    static const struct {
        uint64_t n;
        int64_t file;
        const char *message;
    } bad[] = {{0, 0, "has 0 bytes"},
               {0, 7, "has 7 bytes"},
               {0, 8, "does not begin with {"},
               {1, 8, "a header size of 1 is announced, but the file has 8 bytes"},
               {9, 16, "a header size of 9 is announced"},
               {UINT64_MAX, 16, "is announced"},
               {UINT64_MAX - 7, 16, "is announced"},
               {(uint64_t)1 << 63, 16, "is announced"}};
    GxError err = GX_ZERO;
    GxSafetensors s;
    char file[16] = "        {}     ";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(file, &bad[i].n, 8);
        put(at("x.safetensors"), file, bad[i].file);
        refused(&err, gx_safetensors_open(&s, at("x.safetensors"), &err), GX_ERR_FORMAT, bad[i].message,
                bad[i].message);
    }
    uint64_t huge = 100000001; // in a file that is large enough, thanks to a hole
    put(at("x.safetensors"), &huge, 8);
    CHECK(truncate(at("x.safetensors"), 200000000) == 0, "no large file");
    refused(&err, gx_safetensors_open(&s, at("x.safetensors"), &err), GX_ERR_FORMAT, "headers have at most 100000000",
            "one byte beyond the cap");
    huge = (uint64_t)1 << 30;
    put(at("x.safetensors"), &huge, 8);
    CHECK(truncate(at("x.safetensors"), (off_t)2 << 30) == 0, "no large file");
    refused(&err, gx_safetensors_open(&s, at("x.safetensors"), &err), GX_ERR_FORMAT, "headers have at most 100000000",
            "a string of 1 GiB");
    refused(&err, gx_safetensors_open(&s, at("none"), &err), GX_ERR_IO, "No such file", "a missing file");
    unlink(at("x.safetensors"));
}

TEST(safetensors_bounds_names_depth_and_count)
{
    GxError err = GX_ZERO;
    GxSafetensors s;
    const char *format = "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":%s%s}}";
    char name[GX_SAFETENSORS_NAME + 1], deep[GX_JSON_DEPTH + 1], shut[GX_JSON_DEPTH + 1], header[1000];
    memset(name, 'n', sizeof name);
    name[GX_SAFETENSORS_NAME - 1] = 0;
    snprintf(header, sizeof header, format, name, "1", "");
    put_safetensors(at("x.safetensors"), header, 1);
    CHECK(gx_safetensors_open(&s, at("x.safetensors"), &err) == GX_OK && gx_safetensors_find(&s, name),
          "a name of 255 bytes: %s", err.message);
    gx_safetensors_close(&s);
    name[GX_SAFETENSORS_NAME - 1] = 'n', name[GX_SAFETENSORS_NAME] = 0;
    snprintf(header, sizeof header, format, name, "1", "");
    put_safetensors(at("x.safetensors"), header, 1);
    refused(&err, gx_safetensors_open(&s, at("x.safetensors"), &err), GX_ERR_FORMAT, "its name has 256 bytes",
            "a name of 256 bytes");
    memset(deep, '[', GX_JSON_DEPTH), memset(shut, ']', GX_JSON_DEPTH);
    deep[GX_JSON_DEPTH] = shut[GX_JSON_DEPTH] = 0;
    snprintf(header, sizeof header, format, "t", deep, shut);
    put_safetensors(at("x.safetensors"), header, 1);
    refused(&err, gx_safetensors_open(&s, at("x.safetensors"), &err), GX_ERR_FORMAT, "nested deeper", "66 deep");

    int64_t n = 0, size = (int64_t)(GX_SAFETENSORS_COUNT + 1) * 60 + 10;
    char *many = (char *)malloc((size_t)size);
    for (int i = 0; i <= GX_SAFETENSORS_COUNT; i++)
        n += snprintf(many + n, (size_t)(size - n), "%c\"%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}",
                      i ? ',' : '{', i);
    snprintf(many + n, (size_t)(size - n), "}");
    put_safetensors(at("x.safetensors"), many, 1); // all on the same byte
    refused(&err, gx_safetensors_open(&s, at("x.safetensors"), &err), GX_ERR_FORMAT, "more than 262144 tensors",
            "too many tensors");
    free(many);
    unlink(at("x.safetensors"));
}

TEST(safetensors_takes_what_is_odd_but_legal)
{
    GxError err = GX_ZERO;
    GxSafetensors s;
    unsigned char raw[8] = GX_ZERO;
    float f = 0;
    put_safetensors(at("x.safetensors"),
                    "{\"empty\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[1,1]},\"byte\":{\"dtype\":"
                    "\"BOOL\",\"shape\":[1],"
                    "\"data_offsets\":[0,1]},"
                    "\"__metadata__\":{\"k\":\"v\"},\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[1,5],"
                    "\"note\":[]}}   ",
                    5);
    CHECK(gx_safetensors_open(&s, at("x.safetensors"), &err) == GX_OK && s.n == 3, "%s", err.message);
    const GxSafetensorsEntry *scalar = gx_safetensors_find(&s, "scalar"), *empty = gx_safetensors_find(&s, "empty"),
                             *byte = gx_safetensors_find(&s, "byte");
    CHECK(scalar && scalar->ndim == 0 && scalar->elements == 1 && empty && empty->elements == 0 && byte &&
              byte->dtype == -1,
          "entries");
    CHECK(gx_safetensors_read(&s, scalar, 0, 1, &f, &err) == GX_OK && !memcmp(&f, "\1\2\3\4", 4), "unaligned: %s",
          err.message);
    CHECK(gx_safetensors_read(&s, empty, 0, 0, &f, &err) == GX_OK, "%s", err.message);
    CHECK(gx_safetensors_read_raw(&s, scalar, 0, 1, raw, &err) == GX_OK && raw[3] == 4, "%s", err.message);
    refused(&err, gx_safetensors_read(&s, byte, 0, 1, &f, &err), GX_ERR_UNSUPPORTED, "holds BOOL", "bools as floats");
    refused(&err, gx_safetensors_read(&s, scalar, 1, 1, &f, &err), GX_ERR_ARGUMENT, "it has 1", "behind its end");
    refused(&err, gx_safetensors_read(&s, scalar, -1, 1, &f, &err), GX_ERR_ARGUMENT, "it has 1",
            "before its beginning");
    refused(&err, gx_safetensors_read(&s, scalar, INT64_MAX, INT64_MAX, &f, &err), GX_ERR_ARGUMENT, "it has 1",
            "far behind its end");
    CHECK(!strcmp(gx_safetensors_metadata(&s, "k"), "v") && !gx_safetensors_metadata(&s, "format") &&
              !gx_safetensors_find(&s, "tensor"),
          "what is not there");
    gx_safetensors_close(&s);
    put_safetensors(at("x.safetensors"), "{}", 0);
    CHECK(gx_safetensors_open(&s, at("x.safetensors"), &err) == GX_OK && s.n == 0, "no tensors: %s", err.message);
    gx_safetensors_close(&s);
    unlink(at("x.safetensors"));
}

enum { ROWS = 7, COLS = 3001 }; // 21007 elements: three chunks of a conversion

static void write_sample(const char *path, const float *values, GxError *err)
{
    const int32_t numbers[3] = {-1, 0, INT32_MAX};
    GxSafetensorsEntry entries[] = {entry("b.bf16", GX_BF16, 2, ROWS, COLS), entry("z.f32", GX_F32, 2, ROWS, COLS),
                                    entry("h.f16", GX_F16, 2, ROWS, COLS),   entry("d.f64", GX_F64, 1, 2, 0),
                                    entry("a.f32", GX_F32, 0, 0, 0),         entry("i.i32", GX_I32, 1, 3, 0),
                                    entry("e.empty", GX_F32, 2, 0, 5)};
    GxSafetensorsPair meta = {"step", "17"};
    GxSafetensorsWriter w;
    const char *names[] = {"z.f32", "b.bf16", "h.f16"};
    CHECK(gx_safetensors_create(&w, path, entries, 7, &meta, 1, err) == GX_OK, "%s", err->message);
    for (int k = 0; k < 3; k++) { // the second half first, row by row after it
        gx_safetensors_write_floats(&w, names[k], 4 * COLS, values + 4 * COLS, 3 * COLS, err);
        for (int r = 3; r >= 0; r--) gx_safetensors_write_floats(&w, names[k], r * COLS, values + r * COLS, COLS, err);
    }
    gx_safetensors_write_floats(&w, "d.f64", 0, values, 2, err);
    gx_safetensors_write_floats(&w, "a.f32", 0, values, 1, err);
    gx_safetensors_write(&w, "i.i32", 0, numbers, 3, err);
    CHECK(gx_safetensors_finish(&w, err) == GX_OK, "%s", err->message);
}

TEST(safetensors_round_trip_in_every_dtype_and_order)
{
    GxError err = GX_ZERO;
    GxSafetensors s;
    float *values = (float *)malloc(ROWS * COLS * sizeof *values), *back = (float *)malloc(ROWS * COLS * sizeof *back);
    int32_t numbers[3];
    for (int i = 0; i < ROWS * COLS; i++) values[i] = (float)((i % 251) - 125) / 64; // 8 bits: exact in every dtype
    write_sample(at("x.safetensors"), values, &err);
    CHECK(names_in(root) == 1, "a temporary file stayed");
    if (!CHECK(gx_safetensors_open(&s, at("x.safetensors"), &err) == GX_OK && s.n == 7, "%s", err.message)) return;
    const char *names[] = {"z.f32", "b.bf16", "h.f16"};
    for (int k = 0; k < 3; k++) {
        const GxSafetensorsEntry *e = gx_safetensors_find(&s, names[k]);
        memset(back, 0xEE, ROWS * COLS * sizeof *back);
        CHECK(e && gx_safetensors_read(&s, e, 0, ROWS * COLS, back, &err) == GX_OK &&
                  !memcmp(back, values, ROWS * COLS * sizeof *back),
              "%s: %s", names[k], err.message);
        CHECK(e && gx_safetensors_read(&s, e, COLS + 5, 8200, back, &err) == GX_OK &&
                  !memcmp(back, values + COLS + 5, 8200 * sizeof *back),
              "part of %s", names[k]);
    }
    CHECK(gx_safetensors_read(&s, gx_safetensors_find(&s, "d.f64"), 0, 2, back, &err) == GX_OK && back[1] == values[1],
          "%s", err.message);
    CHECK(gx_safetensors_read_raw(&s, gx_safetensors_find(&s, "i.i32"), 0, 3, numbers, &err) == GX_OK &&
              numbers[0] == -1 && numbers[2] == INT32_MAX,
          "integers");
    CHECK(!strcmp(gx_safetensors_metadata(&s, "format"), "pt") && !strcmp(gx_safetensors_metadata(&s, "step"), "17"),
          "metadata");
    gx_safetensors_close(&s);
    unlink(at("x.safetensors"));
    free(values);
    free(back);
}

TEST(safetensors_are_written_in_the_order_of_the_format)
{
    GxError err = GX_ZERO;
    GxSafetensorsEntry entries[] = {entry("long", GX_U8, 1, 3, 0), entry("b", GX_F32, 1, 1, 0),
                                    entry("d", GX_F64, 1, 1, 0), entry("a", GX_F32, 1, 2, 0)};
    GxSafetensorsWriter w;
    char *text = NULL;
    int64_t bytes = 0;
    const unsigned char data[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    CHECK(gx_safetensors_create(&w, at("x.safetensors"), entries, 4, NULL, 0, &err) == GX_OK, "%s", err.message);
    gx_safetensors_write(&w, "a", 0, data, 2, &err), gx_safetensors_write(&w, "b", 0, data, 1, &err);
    gx_safetensors_write(&w, "long", 0, data, 3, &err), gx_safetensors_write(&w, "d", 0, data, 1, &err);
    CHECK(gx_safetensors_finish(&w, &err) == GX_OK &&
              gx_file_read(at("x.safetensors"), 10000, &text, &bytes, &err) == GX_OK,
          "%s", err.message);
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\"},\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
        "offsets\":[16,20]},"
        "\"long\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[20,23]}}";
    int64_t n = (int64_t)strlen(header), padded = (n + 7) / 8 * 8, announced;
    memcpy(&announced, text, 8);
    CHECK(n % 8 != 0, "the header needs no padding: the test shows nothing");
    CHECK(announced == padded && bytes == 8 + padded + 23, "%ld bytes of header, %ld in all", (long)announced,
          (long)bytes);
    CHECK(!memcmp(text + 8, header, (size_t)n) && (int64_t)strspn(text + 8 + n, " ") >= padded - n, "%.*s", (int)n,
          text + 8);
    CHECK(!memcmp(text + 8 + padded + 8, data, 8) && text[8 + padded + 22] == 3, "data");
    free(text);
    unlink(at("x.safetensors"));
}

TEST(safetensors_writer_refuses_what_is_not_whole_or_does_not_fit)
{
    GxError err = GX_ZERO;
    GxSafetensorsEntry entries[] = {entry("a", GX_F32, 1, 10, 0), entry("b", GX_BF16, 1, 4, 0)}, bad;
    GxSafetensorsPair format = {"format", "tf"};
    GxSafetensorsWriter w;
    float values[10] = GX_ZERO;
    CHECK(gx_safetensors_create(&w, at("x.safetensors"), entries, 2, NULL, 0, &err) == GX_OK, "%s", err.message);
    refused(&err, gx_safetensors_write_floats(&w, "c", 0, values, 1, &err), GX_ERR_ARGUMENT,
            "tensor c is not among those", "another name");
    refused(&err, gx_safetensors_write_floats(&w, "a", 8, values, 3, &err), GX_ERR_ARGUMENT, "it has 10",
            "behind its end");
    gx_safetensors_write_floats(&w, "b", 0, values, 4, &err);
    gx_safetensors_write_floats(&w, "a", 0, values, 3, &err);
    gx_safetensors_write_floats(&w, "a", 4, values, 6, &err);
    gx_safetensors_write_floats(&w, "a", 4, values, 6, &err); // twice does not make up for the missing one
    refused(&err, gx_safetensors_finish(&w, &err), GX_ERR_ARGUMENT,
            "tensor a was not written whole: its element 3 of 10", "a hole");
    CHECK(names_in(root) == 0, "a file was left");
    refused(&err, gx_safetensors_write_floats(&w, "a", 0, values, 1, &err), GX_ERR_ARGUMENT, "not open",
            "after the end");
    refused(&err, gx_safetensors_finish(&w, &err), GX_ERR_ARGUMENT, "not open", "finish twice");
    gx_safetensors_create(&w, at("x.safetensors"), entries, 2, NULL, 0, &err);
    gx_safetensors_write_floats(&w, "a", 0, values, 10, &err);
    refused(&err, gx_safetensors_finish(&w, &err), GX_ERR_ARGUMENT, "tensor b was not written whole: its element 0",
            "the last tensor");
    gx_safetensors_create(&w, at("x.safetensors"), entries, 2, NULL, 0, &err);
    gx_safetensors_abort(&w);
    gx_safetensors_abort(&w);
    CHECK(names_in(root) == 0, "a file was left");

    GxSafetensorsEntry twice[] = {entries[0], entries[0]};
    refused(&err, gx_safetensors_create(&w, at("x"), twice, 2, NULL, 0, &err), GX_ERR_FORMAT,
            "tensor a: it is listed twice", "twice");
    bad = entry("__metadata__", GX_F32, 1, 1, 0);
    refused(&err, gx_safetensors_create(&w, at("x"), &bad, 1, NULL, 0, &err), GX_ERR_ARGUMENT, "not allowed",
            "a reserved name");
    bad = entry("a", GX_F32, 9, 1, 0);
    refused(&err, gx_safetensors_create(&w, at("x"), &bad, 1, NULL, 0, &err), GX_ERR_FORMAT, "9 dimensions", "rank");
    bad = entry("a", GX_F32, 2, -1, 1);
    refused(&err, gx_safetensors_create(&w, at("x"), &bad, 1, NULL, 0, &err), GX_ERR_FORMAT, "dimension 0 is -1",
            "negative");
    bad = entry("a", GX_F32, 2, INT64_MAX, 2);
    refused(&err, gx_safetensors_create(&w, at("x"), &bad, 1, NULL, 0, &err), GX_ERR_FORMAT, "64 bits", "overflow");
    bad = entry("\xff", GX_F32, 1, 1, 0);
    refused(&err, gx_safetensors_create(&w, at("x"), &bad, 1, NULL, 0, &err), GX_ERR_ARGUMENT, "UTF-8",
            "a name that is not UTF-8");
    refused(&err, gx_safetensors_create(&w, at("x"), entries, 2, &format, 1, &err), GX_ERR_ARGUMENT, "always \"pt\"",
            "another format");
    CHECK(names_in(root) == 0, "a file was left");
}

TEST(safetensors_on_a_full_disk_leave_no_file)
{
    GxError err = GX_ZERO;
    GxSafetensorsEntry e = entry("a", GX_F32, 1, 20000, 0);
    GxSafetensorsWriter w;
    float *values = (float *)calloc(20000, sizeof *values);
    CHECK(gx_safetensors_create(&w, at("x.safetensors"), &e, 1, NULL, 0, &err) == GX_OK, "%s", err.message);
    disk_holds(40000);
    GxStatus status = gx_safetensors_write_floats(&w, "a", 0, values, 20000, &err);
    disk_is_back();
    refused(&err, status, GX_ERR_IO, "File too large", "80000 bytes");
    refused(&err, gx_safetensors_finish(&w, &err), GX_ERR_ARGUMENT, "not written whole", "finish nevertheless");
    CHECK(names_in(root) == 0, "a file was left");
    free(values);
}

TEST(a_copy_of_safetensors_is_what_they_were_whatever_becomes_of_the_file)
{
    GxError err = GX_ZERO;
    GxSafetensors s;
    GxSafetensorsWriter w;
    GxSafetensorsEntry e = entry("a", GX_F32, 1, 20000, 0);
    float *values = (float *)calloc(20000, sizeof *values), *back = (float *)calloc(20000, sizeof *back);
    for (int i = 0; i < 20000; i++) values[i] = (float)i;
    gx_safetensors_create(&w, at("x.safetensors"), &e, 1, NULL, 0, &err);
    gx_safetensors_write_floats(&w, "a", 0, values, 20000, &err);
    if (!CHECK(gx_safetensors_finish(&w, &err) == GX_OK, "%s", err.message)) return;
    if (!CHECK(gx_safetensors_open_copy(&s, at("x.safetensors"), &err) == GX_OK, "%s", err.message)) return;
    CHECK(truncate(at("x.safetensors"), 100) == 0 && unlink(at("x.safetensors")) == 0 && names_in(root) == 0, "files");
    CHECK(gx_safetensors_read(&s, gx_safetensors_find(&s, "a"), 0, 20000, back, &err) == GX_OK, "%s", err.message);
    CHECK(!memcmp(values, back, 20000 * sizeof *values), "other values");
    gx_safetensors_close(&s);
    refused(&err, gx_safetensors_open_copy(&s, at("x.safetensors"), &err), GX_ERR_IO, "No such file", "a missing file");
    refused(&err, gx_safetensors_open_copy(&s, root, &err), GX_ERR_IO, "is a folder", "a folder");
    free(values), free(back);
}

TEST(half_and_bf16_round_to_nearest_even)
{
    int wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) { // every value comes back
        float f = gx_from_f16((uint16_t)h), b = gx_from_bf16((uint16_t)h);
        wrong += isnan(f) ? (gx_to_f16(f) & 0x7FFF) <= 0x7C00 : gx_to_f16(f) != h;
        wrong += isnan(b) ? (gx_to_bf16(b) & 0x7FFF) <= 0x7F80 : gx_to_bf16(b) != h;
    }
    CHECK(wrong == 0, "%d of 65536 do not come back", wrong);
    wrong = 0;
    for (uint32_t h = 0; h < 0x7BFF; h++) { // between neighbours: the nearer, at the middle the even one
        double low = gx_from_f16((uint16_t)h), high = gx_from_f16((uint16_t)(h + 1)), middle = (low + high) / 2;
        wrong += gx_to_f16((float)middle) != (h & 1 ? h + 1 : h);
        wrong += gx_to_f16(nextafterf((float)middle, 0)) != h;
        wrong += gx_to_f16(nextafterf((float)middle, INFINITY)) != h + 1;
    }
    for (uint32_t b = 0x3F80; b < 0x4080; b++) {
        double low = gx_from_bf16((uint16_t)b), high = gx_from_bf16((uint16_t)(b + 1)), middle = (low + high) / 2;
        wrong += gx_to_bf16((float)middle) != (b & 1 ? b + 1 : b);
        wrong += gx_to_bf16(nextafterf((float)middle, 0)) != b;
        wrong += gx_to_bf16(nextafterf((float)middle, INFINITY)) != b + 1;
    }
    CHECK(wrong == 0, "%d roundings are wrong", wrong);
    CHECK(gx_from_f16(0x3C00) == 1 && gx_from_f16(0xC000) == -2 && gx_from_f16(1) == ldexpf(1, -24), "known halves");
    CHECK(gx_to_f16(65520) == 0x7C00 && gx_to_f16(65519) == 0x7BFF && gx_to_f16(-1e30f) == 0xFC00, "the ends of half");
    CHECK(gx_to_bf16(3.4e38f) == 0x7F80 && gx_from_bf16(0x3F80) == 1, "the ends of bf16");
}

static void put_shard(const char *path, const char *tensor)
{
    char header[200];
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", tensor);
    put_safetensors(path, header, 4);
}

TEST(safetensors_have_paths_up_to_the_systems_limit_and_messages_name_both_ends_of_them)
{
    GxError err = GX_ZERO;
    GxSafetensors s;
    char folder[GX_PATH], path[GX_PATH];
    const GxSafetensorsEntry tensor = entry("a", GX_U8, 1, 4, 0);
    GxSafetensorsWriter w;
    long_folder(folder, GX_PATH - 1 - 14);
    CHECK(gx_path_join(path, folder, "x.safetensors", &err) == GX_OK, "%s", err.message);
    refused(&err, gx_safetensors_open(&s, path, &err), GX_ERR_IO, "/x.safetensors: No such file", "no file");
    CHECK(gx_safetensors_create(&w, path, &tensor, 1, NULL, 0, &err) == GX_OK &&
              gx_safetensors_write(&w, "a", 0, "text", 4, &err) == GX_OK && gx_safetensors_finish(&w, &err) == GX_OK &&
              gx_safetensors_open(&s, path, &err) == GX_OK,
          "%s", err.message);
    CHECK(s.n == 1 && !strcmp(s.file[0].path, path), "another file");
    gx_safetensors_close(&s);
    put_text(path, "not a safetensors file");
    refused(&err, gx_safetensors_open(&s, path, &err), GX_ERR_FORMAT, "it is cut off, or not a safetensors file",
            "rubbish");
    CHECK(gx_folder_remove(at("long"), &err) == GX_OK, "%s", err.message);
}

TEST(safetensors_shards_must_agree_with_their_index)
{
#define INDEX "m/model.safetensors.index.json"
    GxError err = GX_ZERO;
    GxSafetensors s;
    static const struct {
        const char *index, *message;
    } bad[] = {{"{\"metadata\":{},\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\",\"c\":\"s2\"}}",
                "tensor c: it is not in s2, where the index says it is"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"s2\",\"b\":\"s2\"}}", "tensor a: it is not in s2"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"s1\",\"d\":\"s3\"}}", "tensor e: it is not in"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"s2\",\"b\":\"s1\"}}", "it is not in s"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"s1\",\"b\":\"s4\"}}", "names the shard s4, which is missing"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"../m/s1\"}}", "not a plain file name"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"..\"}}", "not a plain file name"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not a plain file name"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"out/../s1\"}}", "not a plain file name"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"s1\",\"a2\":\"copy\"}}", "tensor a: it is also in s1"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":1}}", "tensor a: its file is an integer"},
               {"{\"metadata\":{},\"weight_map\":{}}", "the weight_map is empty"},
               {"{\"weight_map\":{\"a\":\"s1\"}}", "\"metadata\" is missing"},
               {"{\"metadata\":{}}", "\"weight_map\" is missing"},
               {"[]", "in an array"},
               {"{", "index.json:1:"},
               {"{\"metadata\":{},\"weight_map\":{\"a\":\"s1\",\"a\":\"s2\"}}", "duplicate"}};
    gx_folder_make(at("m"), &err);
    refused(&err, gx_safetensors_open(&s, at("m"), &err), GX_ERR_IO, "neither model.safetensors nor",
            "an empty folder");
    put_shard(at("m/s1"), "a"), put_shard(at("m/s2"), "b"), put_shard(at("m/copy"), "a");
    put_safetensors(at("m/s3"),
                    "{\"d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"e\":{\"dtype\":\"U8\",\"shape\":["
                    "1],\"data_offsets\":[1,2]}}",
                    2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text(at(INDEX), bad[i].index);
        refused(&err, gx_safetensors_open(&s, at("m"), &err), GX_ERR_FORMAT, bad[i].message, bad[i].index);
    }
    put_text(at(INDEX), "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"b\":\"s2\",\"a\":\"s1\"}}");
    CHECK(gx_safetensors_open(&s, at("m"), &err) == GX_OK && s.n == 2 && s.files == 2, "%s", err.message);
    unsigned char raw[4] = GX_ZERO;
    CHECK(gx_safetensors_read_raw(&s, gx_safetensors_find(&s, "b"), 1, 3, raw, &err) == GX_OK && raw[2] == 3, "%s",
          err.message);
    gx_safetensors_close(&s);
    put_shard(at("m/model.safetensors"), "single");
    CHECK(gx_safetensors_open(&s, at("m"), &err) == GX_OK && gx_safetensors_find(&s, "single"),
          "model.safetensors beats the index: %s", err.message);
    gx_safetensors_close(&s);
    CHECK(gx_folder_remove(at("m"), &err) == GX_OK, "%s", err.message);
}

static void put_link(const char *to, const char *name)
{
    CHECK(symlink(to, at(name)) == 0, "cannot make the link %s", name);
}

// Opened as a user would name it; each tensor is one of put_shard's.
static void check_weights(const char *path, int tensors, const char *what)
{
    GxError err = GX_ZERO;
    GxSafetensors s;
    unsigned char raw[4] = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&s, path, &err) == GX_OK && s.n == tensors, "%s: %s", what, err.message)) return;
    for (int i = 0; i < s.n; i++)
        CHECK(gx_safetensors_read_raw(&s, &s.entry[i], 1, 3, raw, &err) == GX_OK && raw[2] == 3, "%s: %s", what,
              err.message);
    gx_safetensors_close(&s);
}

// A snapshot is a folder of links into blobs/, as huggingface_hub lays it out.
TEST(weights_in_hugging_faces_cache_are_read_through_its_links)
{
#define SNAPSHOT "hub/models--org--name/snapshots/5d0f2e"
    static const char *const two[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    GxError err = GX_ZERO;
    GxSafetensors s;
    char name[300];
    CHECK(gx_folder_make(at(SNAPSHOT), &err) == GX_OK &&
              gx_folder_make(at("hub/models--org--name/blobs"), &err) == GX_OK,
          "%s", err.message);
    put_shard(at("hub/models--org--name/blobs/aa01"), "a"), put_shard(at("hub/models--org--name/blobs/bb02"), "b");
    put_text(at("hub/models--org--name/blobs/cc03"),
             "{\"metadata\":{},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
             "\"b\":\"model-00002-of-00002.safetensors\"}}");
    put_link("../../blobs/cc03", SNAPSHOT "/model.safetensors.index.json");
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, SNAPSHOT "/%s", two[i]);
        put_link(i ? "../../blobs/bb02" : "../../blobs/aa01", name);
    }
    check_weights(at(SNAPSHOT), 2, "shards");
    put_link("models--org--name/snapshots/5d0f2e", "hub/here");
    check_weights(at("hub/here"), 2, "the snapshot by a link");
    unlink(at("hub/models--org--name/blobs/bb02")); // as when a download was broken off
    refused(&err, gx_safetensors_open(&s, at(SNAPSHOT), &err), GX_ERR_IO,
            "model-00002-of-00002.safetensors is a link to a file that does not exist", "half a download");
    put_link("../../blobs/aa01", SNAPSHOT "/model.safetensors");
    check_weights(at(SNAPSHOT), 1, "one file");
    check_weights(at(SNAPSHOT "/model.safetensors"), 1, "the file itself");
    unlink(at("hub/models--org--name/blobs/aa01"));
    refused(&err, gx_safetensors_open(&s, at(SNAPSHOT), &err), GX_ERR_IO,
            "/model.safetensors is a link to a file that does not exist", "nothing was downloaded");
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, SNAPSHOT "/%s", two[i]);
        unlink(at(name));
    }
    unlink(at(SNAPSHOT "/model.safetensors")), unlink(at(SNAPSHOT "/model.safetensors.index.json"));
    unlink(at("hub/here"));
    CHECK(gx_folder_remove(at("hub"), &err) == GX_OK, "%s", err.message);
}

// The folder is the user's: a link may lead to weights elsewhere, one file or a shard of several. Only names inside of
// files have to stay in it.
TEST(links_that_lead_out_of_a_model_folder_are_followed)
{
    GxError err = GX_ZERO;
    gx_folder_make(at("m"), &err), gx_folder_make(at("elsewhere"), &err);
    put_shard(at("elsewhere/a"), "a"), put_shard(at("m/s2"), "b");
    put_link(at("elsewhere/a"), "m/model.safetensors");
    check_weights(at("m"), 1, "one file");
    unlink(at("m/model.safetensors"));
    put_link("../elsewhere/a", "m/s1");
    put_text(at("m/model.safetensors.index.json"), "{\"metadata\":{},\"weight_map\":{\"b\":\"s2\",\"a\":\"s1\"}}");
    check_weights(at("m"), 2, "a shard");
    unlink(at("m/s1"));
    CHECK(gx_folder_remove(at("m"), &err) == GX_OK && gx_folder_remove(at("elsewhere"), &err) == GX_OK, "%s",
          err.message);
}

// Opens and reads everything, as a program would; whatever it says, it may not crash.
static int open_and_read(const char *path)
{
    static float values[1 << 16];
    GxError err = GX_ZERO;
    GxSafetensors s;
    if (gx_safetensors_open(&s, path, &err) != GX_OK) return CHECK(err.message[0] != 0, "refused without a word"), 0;
    for (int i = 0; i < s.n; i++) {
        const GxSafetensorsEntry *e = &s.entry[i];
        if (e->elements > 1 << 13) continue;
        if (gx_safetensors_read(&s, e, 0, e->elements, values, &err) != GX_OK) gx_error_clear(&err);
        if (gx_safetensors_read_raw(&s, e, 0, e->elements, values, &err) != GX_OK) CHECK(0, "%s", err.message);
    }
    gx_safetensors_close(&s);
    return 1;
}

TEST(safetensors_survive_damaged_files)
{
    GxError err = GX_ZERO;
    GxSafetensorsEntry entries[] = {entry("model.a", GX_F32, 2, 3, 4), entry("model.b", GX_BF16, 1, 5, 0),
                                    entry("c", GX_U8, 0, 0, 0), entry("d", GX_I64, 2, 2, 0)};
    GxSafetensorsWriter w;
    char *valid = NULL, damaged[2000];
    const char zeros[64] = GX_ZERO;
    int64_t n = 0;
    int accepted = 0, rounds = 6000;
    gx_safetensors_create(&w, at("x.safetensors"), entries, 4, NULL, 0, &err);
    for (int i = 0; i < 4; i++)
        gx_safetensors_write(&w, entries[i].name, 0, zeros, i == 0 ? 12 : i == 1 ? 5 : i == 2 ? 1 : 0, &err);
    CHECK(gx_safetensors_finish(&w, &err) == GX_OK &&
              gx_file_read(at("x.safetensors"), 1000, &valid, &n, &err) == GX_OK,
          "%s", err.message);
    int64_t header;
    memcpy(&header, valid, 8);
    for (int round = 0; round < rounds; round++) {
        int64_t size = n;
        memcpy(damaged, valid, (size_t)n);
        if (round % 4 == 0) size = random_below((uint32_t)n); // cut off
        if (round % 16 == 1) memset(damaged + n, 'x', 100), size = n + 1 + random_below(100);
        static const char tokens[] = "0123456789[]{}\",:-.eE \\";
        for (uint32_t k = round % 16 == 0 ? 0 : 1 + random_below(3); k > 0; k--) {
            uint32_t place = random_below(2) ? random_below((uint32_t)n) : 8 + random_below((uint32_t)header);
            damaged[place] = random_below(2)
                                 ? (char)random_below(256)
                                 : tokens[random_below(sizeof tokens - 1)]; // digits and brackets damage the structure
        }
        put(at("x.safetensors"), damaged, size);
        accepted += open_and_read(at("x.safetensors"));
    }
    CHECK(accepted > 0 && accepted < rounds,
          "%d of %d damaged files were accepted (damage to names and data cannot show)", accepted, rounds);
    for (int64_t size = 0; size < n; size++) { // every truncation is refused
        put(at("x.safetensors"), valid, size);
        CHECK(!open_and_read(at("x.safetensors")), "cut off at %ld of %ld bytes, and accepted", (long)size, (long)n);
    }
    put(at("x.safetensors"), valid, n);
    CHECK(open_and_read(at("x.safetensors")), "the undamaged file");
    free(valid);
    unlink(at("x.safetensors"));
}

TEST(a_file_shortened_while_open_is_an_error)
{
    GxError err = GX_ZERO;
    GxSafetensors s;
    unsigned char raw[4];
    put_shard(at("x.safetensors"), "a");
    CHECK(gx_safetensors_open(&s, at("x.safetensors"), &err) == GX_OK, "%s", err.message);
    CHECK(truncate(at("x.safetensors"), size_of(at("x.safetensors")) - 2) == 0, "truncate");
    refused(&err, gx_safetensors_read_raw(&s, &s.entry[0], 0, 4, raw, &err), GX_ERR_IO, "shortened", "cut off by 2");
    gx_safetensors_close(&s);
    unlink(at("x.safetensors"));
}

// ---- tokenizer -----------------------------------------------------------------------------------------------------

TEST(byte_tokens_are_the_bytes)
{
    GxError err = GX_ZERO;
    GxTokenizer t = gx_tokenizer_bytes();
    unsigned char text[256];
    char back[256];
    int32_t ids[256];
    int64_t n = 0, length = 0;
    for (int i = 0; i < 256; i++) text[i] = (unsigned char)i;
    CHECK(gx_tokenizer_encode(&t, text, 256, GX_SPECIAL_AS_TOKENS, ids, &n, &err) == GX_OK && n == 256 && ids[0] == 0 &&
              ids[128] == 128 && ids[255] == 255,
          "encode: %s", err.message);
    CHECK(t.longest == 1 && gx_tokenizer_decode(&t, ids, 256, GX_SPECIAL_AS_TOKENS, back, &length, &err) == GX_OK &&
              length == 256 && !memcmp(back, text, 256),
          "%s", err.message);
    ids[3] = 256;
    refused(&err, gx_tokenizer_decode(&t, ids, 256, GX_SPECIAL_AS_TOKENS, back, &length, &err), GX_ERR_ARGUMENT,
            "token 3 has the id 256; the vocabulary ends at 255", "an id beyond");
    ids[3] = -100;
    refused(&err, gx_tokenizer_decode(&t, ids, 256, GX_SPECIAL_AS_TOKENS, back, &length, &err), GX_ERR_ARGUMENT,
            "the id -100", "a negative id");
    CHECK(!strcmp(gx_tokenizer_identity(&t), "byte-256"), "%s", gx_tokenizer_identity(&t));
}

TEST(the_vocabulary_is_gpt2s_alphabet_in_the_order_of_the_bytes)
{
    static const struct {
        int byte;
        const char *character;
    } known[] = {{'\n', "Ċ"}, {' ', "Ġ"}, {'!', "!"}, {'A', "A"}, {'~', "~"}, {0, "Ā"},  {127, "ġ"},
                 {128, "Ģ"},  {160, "ł"}, {161, "¡"}, {173, "Ń"}, {174, "®"}, {255, "ÿ"}};
    GxError err = GX_ZERO;
    GxTokenizer t = gx_tokenizer_bytes();
    GxJson *v = NULL;
    CHECK(gx_tokenizer_write(&t, root, &err) == GX_OK && gx_tokenizer_check(&t, root, &err) == GX_OK, "%s",
          err.message);
    CHECK(gx_json_read(&v, at("tokenizer.json"), 1 << 20, &err) == GX_OK, "%s", err.message);
    const GxJson *vocab = gx_json_get(gx_json_get(v, "model"), "vocab");
    int64_t next = 0;
    for (GxJsonMember m = GX_ZERO; gx_json_next(vocab, &m); next++)
        CHECK(gx_json_int(m.value) == next, "%s is %ld", m.key, (long)gx_json_int(m.value));
    CHECK(next == 256, "%ld entries", (long)next);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK(gx_json_get(vocab, known[i].character) &&
                  gx_json_int(gx_json_get(vocab, known[i].character)) == known[i].byte,
              "%s", known[i].character);
    gx_json_free(v);
    unlink(at("tokenizer.json")), unlink(at("tokenizer_config.json"));
}

TEST(other_tokenizers_are_told_apart)
{
    static const struct {
        const char *from, *to, *message;
    } changes[] = {{"\"use_regex\": false", "\"use_regex\": true ", "\"use_regex\" is true or false, unlike"},
                   {"\"merges\": []", "\"merges\": [\"a b\"]", "\"merges\" is an array, unlike"},
                   {"\"BPE\"", "\"Unigram\"", "\"type\" is a string, unlike"},
                   {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "\"normalizer\" is an object"},
                   {"\"added_tokens\": []", "\"added_tokens\": [{\"id\": 256}]", "\"added_tokens\" is an array"},
                   {"\"A\": 65", "\"A\": 66", "the entry A is 66; expected the id 65"},
                   {"\"A\": 65", "\"AA\": 65", "the entry A is nothing"},
                   {"\"A\": 65", "\"A\": 65, \"AA\": 256", "257 entries"},
                   {"\"decoder\"", "\"decode\"", "\"type\" is nothing"},
                   {"\"model\": {", "\"model\": 3, \"x\": {", "\"type\" is nothing"},
                   {"\"post_processor\": null", "\"post_processor\": {\"special_tokens\": {\"<s>\": 1}}",
                    "\"post_processor\" is an object"}};
    GxError err = GX_ZERO;
    GxTokenizer t = gx_tokenizer_bytes();
    char *text = NULL, changed[20000];
    int64_t bytes = 0;
    refused(&err, gx_tokenizer_check(&t, root, &err), GX_ERR_IO, "tokenizer.json is missing", "no tokenizer");
    gx_tokenizer_write(&t, root, &err);
    CHECK(gx_file_read(at("tokenizer.json"), 10000, &text, &bytes, &err) == GX_OK, "%s", err.message);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *place = strstr(text, changes[i].from);
        if (!CHECK(place != NULL, "%s is not in the file", changes[i].from)) continue;
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(place - text), text, changes[i].to,
                 place + strlen(changes[i].from));
        put_text(at("tokenizer.json"), changed);
        refused(&err, gx_tokenizer_check(&t, root, &err), GX_ERR_FORMAT, changes[i].message, changes[i].to);
    }
    char *place = strstr(text, "\"post_processor\": null"); // as transformers saves it again
    snprintf(changed, sizeof changed, "%.*s\"post_processor\": {\"special_tokens\": {}}%s", (int)(place - text), text,
             place + 22);
    put_text(at("tokenizer.json"), changed);
    CHECK(gx_tokenizer_check(&t, root, &err) == GX_OK, "a post-processor that adds nothing: %s", err.message);
    free(text);
    unlink(at("tokenizer.json")), unlink(at("tokenizer_config.json"));
}

// ---- dataset -------------------------------------------------------------------------------------------------------

TEST(the_shuffle_is_a_permutation_that_depends_on_seed_and_epoch)
{
    static unsigned char seen[5000];
    const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4999};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int64_t n = sizes[k], outside = 0, twice = 0;
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < n; i++) {
                int64_t p = gx_permute(5, epoch, n, i);
                if (p < 0 || p >= n) outside++;
                else twice += seen[p]++;
            }
            CHECK(outside == 0 && twice == 0, "of %ld: %ld outside, %ld twice", (long)n, (long)outside, (long)twice);
        }
    int64_t same_epoch = 0, same_seed = 0, fixed = 0, neighbours = 0;
    for (int64_t i = 0; i < 4999; i++) {
        int64_t p = gx_permute(5, 0, 4999, i);
        same_epoch += p == gx_permute(5, 1, 4999, i);
        same_seed += p == gx_permute(6, 0, 4999, i);
        fixed += p == i;
        neighbours += i > 0 && p == gx_permute(5, 0, 4999, i - 1) + 1;
    }
    CHECK(same_epoch < 10 && same_seed < 10 && fixed < 10 && neighbours < 10,
          "equal: %ld epochs, %ld seeds, %ld fixed, %ld neighbours (1 of each is expected)", (long)same_epoch,
          (long)same_seed, (long)fixed, (long)neighbours);
}

TEST(the_shuffle_of_four_reaches_every_order_evenly)
{
    int count[256] = {0}, orders = 0, n = 24 * 400;
    for (int epoch = 0; epoch < n; epoch++) {
        int code = 0;
        for (int i = 0; i < 4; i++) code = code * 4 + (int)gx_permute(1, epoch, 4, i);
        count[code]++;
    }
    double chi2 = 0;
    for (int i = 0; i < 256; i++)
        if (count[i]) orders++, chi2 += (count[i] - 400.0) * (count[i] - 400.0) / 400;
    CHECK(orders == 24, "%d of 24 orders", orders);
    CHECK(chi2 < 23 + 8 * sqrt(2 * 23.0), "chi-squared %g; 23 +- 7 was expected", chi2); // 8 standard deviations
}

static void put_letters(const char *path, int64_t n) // byte i tells its position: lines of 16
{
    char *text = (char *)malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) text[i] = i % 16 == 15 ? '\n' : (char)('a' + (i * 7 + i / 16) % 26);
    put(path, text, n);
    free(text);
}

TEST(every_epoch_visits_every_window_once)
{
    enum { T = 10 };
    GxError err = GX_ZERO;
    GxDataset d;
    put_letters(at("text"), 507);
    if (!CHECK(gx_dataset_open(&d, at("text"), 0, T, &err) == GX_OK, "%s", err.message)) return;
    int64_t windows = gx_tokens_epoch_samples(&d.train, T);
    int shifts = 0;
    CHECK(d.train.n == 507 && d.held_out.n == 0 && windows == 49 && gx_tokens_eval_samples(&d.train, T) == 50,
          "%ld windows", (long)windows);
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        unsigned char seen[49] = {0};
        int64_t shift = gx_dataset_sample_start(&d.train, 3, epoch * windows, T) % T, wrong = 0;
        for (int64_t w = 0; w < windows; w++) {
            int64_t start = gx_dataset_sample_start(&d.train, 3, epoch * windows + w, T);
            wrong += start < 0 || start + T + 1 > d.train.n || start % T != shift || seen[start / T]++;
        }
        CHECK(wrong == 0, "epoch %ld: %ld windows are outside, misplaced or seen twice", (long)epoch, (long)wrong);
        shifts |= 1 << shift;
        if (epoch == 0) CHECK(shift == 0, "the first epoch is shifted by %ld", (long)shift);
    }
    CHECK(__builtin_popcount((unsigned)shifts) > 5, "only %d shifts in 20 epochs",
          __builtin_popcount((unsigned)shifts));
    gx_dataset_close(&d);
    unlink(at("text"));
}

TEST(labels_are_the_next_tokens_with_any_stride)
{
    enum { T = 10, B = 3 };
    GxError err = GX_ZERO;
    GxDataset d;
    int32_t tokens[T * B], labels[T * B], again[T], after[T];
    char *text = NULL;
    int64_t bytes;
    put_letters(at("text"), 507);
    CHECK(gx_file_read(at("text"), 1000, &text, &bytes, &err) == GX_OK, "%s", err.message);
    if (!CHECK(gx_dataset_open(&d, at("text"), 0.2, T, &err) == GX_OK, "%s", err.message)) return;
    for (int64_t index = 0; index < 100; index++) {
        for (int b = 0; b < B; b++) gx_dataset_sample(&d, 8, index * B + b, T, tokens + b, labels + b, B, &err);
        for (int b = 0; b < B; b++) {
            int64_t start = gx_dataset_sample_start(&d.train, 8, index * B + b, T), wrong = 0;
            gx_dataset_sample(&d, 8, index * B + b, T, again, after, 1, &err);
            for (int t = 0; t < T; t++)
                wrong += tokens[t * B + b] != text[start + t] || labels[t * B + b] != text[start + t + 1] ||
                         again[t] != tokens[t * B + b] || after[t] != labels[t * B + b];
            CHECK(wrong == 0, "sample %ld: %ld tokens are wrong", (long)(index * B + b), (long)wrong);
        }
    }
    for (int64_t w = 0; w < gx_tokens_eval_samples(&d.held_out, T); w++) {
        gx_dataset_eval_sample(&d, w, T, again, after, 1, &err);
        for (int t = 0; t < T; t++)
            CHECK(again[t] == text[d.train.n + w * T + t] && after[t] == text[d.train.n + w * T + t + 1],
                  "window %ld, token %d", (long)w, t);
    }
    CHECK(gx_error_code(&err) == GX_OK, "%s", err.message);
    free(text);
    gx_dataset_close(&d);
    unlink(at("text"));
}

TEST(the_smallest_text_is_one_sample)
{
    GxError err = GX_ZERO;
    GxDataset d;
    put_text(at("text"), "abcdefgh"); // 8 bytes: T = 7 is the most
    for (int64_t T = 1; T <= 7; T++) {
        CHECK(gx_dataset_open(&d, at("text"), 0, T, &err) == GX_OK, "%s", err.message);
        for (int64_t index = 0; index < 200; index++) {
            int64_t start = gx_dataset_sample_start(&d.train, 1, index, T);
            if (start < 0 || start + T + 1 > 8)
                CHECK(0, "T = %ld: sample %ld begins at %ld", (long)T, (long)index, (long)start);
        }
        gx_dataset_close(&d);
    }
    refused(&err, gx_dataset_open(&d, at("text"), 0, 8, &err), GX_ERR_FORMAT,
            "8 bytes are left for training; one sample of 8 tokens needs 9", "one byte too few");
    refused(&err, gx_dataset_open(&d, at("text"), 0.25, 4, &err), GX_ERR_FORMAT, "2 bytes are held out",
            "a small validation part");
    refused(&err, gx_dataset_open(&d, at("text"), 1, 4, &err), GX_ERR_ARGUMENT, "validation_fraction is 1",
            "nothing to train on");
    refused(&err, gx_dataset_open(&d, at("text"), NAN, 4, &err), GX_ERR_ARGUMENT, "validation_fraction", "NaN");
    refused(&err, gx_dataset_open(&d, at("text"), 0, 0, &err), GX_ERR_ARGUMENT, "seq_len is 0", "no tokens");
    refused(&err, gx_dataset_open(&d, at("text"), 0, INT64_MAX, &err), GX_ERR_FORMAT,
            "one sample of 9223372036854775807 tokens needs 9223372036854775808", "more tokens than can be counted");
    put_text(at("text"), "");
    refused(&err, gx_dataset_open(&d, at("text"), 0, 1, &err), GX_ERR_FORMAT, "is empty; expected a file",
            "an empty file");
    unlink(at("text"));
    refused(&err, gx_dataset_open(&d, at("text"), 0, 1, &err), GX_ERR_IO, "No such file", "a missing file");
    refused(&err, gx_dataset_open(&d, root, 0, 1, &err), GX_ERR_IO, "a folder; expected a file", "a folder");
}

TEST(the_held_out_part_begins_a_line)
{
    GxError err = GX_ZERO;
    GxDataset d;
    put_letters(at("text"), 1600);
    CHECK(gx_dataset_open(&d, at("text"), 0.1, 8, &err) == GX_OK, "%s", err.message);
    CHECK(d.train.n == 1440 && d.held_out.n == 160 && d.train.n % 16 == 0, "cut at a line's end: %ld", (long)d.train.n);
    gx_dataset_close(&d);
    CHECK(gx_dataset_open(&d, at("text"), 0.105, 8, &err) == GX_OK && d.train.n == 1424 && d.held_out.begin == 1424,
          "cut in a line: %ld", (long)d.train.n);
    gx_dataset_close(&d);
    char line[1000];
    memset(line, 'x', sizeof line);
    line[10] = '\n';
    put(at("text"), line, 1000);
    CHECK(gx_dataset_open(&d, at("text"), 0.1, 8, &err) == GX_OK && d.train.n == 900, "one long line: %ld",
          (long)d.train.n);
    gx_dataset_close(&d);
    char *lines = (char *)malloc(200000); // the line's end lies several reads before the cut
    memset(lines, 'x', 200000);
    lines[40000] = lines[30000] = '\n';
    put(at("text"), lines, 200000);
    free(lines);
    CHECK(gx_dataset_open(&d, at("text"), 0.4, 8, &err) == GX_OK && d.train.n == 40001, "a line of 160 KB: %ld",
          (long)d.train.n);
    gx_dataset_close(&d);
    unlink(at("text"));
}

// A sample that is longer than what is read at a time.
TEST(long_samples_are_whole)
{
    enum { T = 3 * GX__DATASET_CHUNK };
    GxError err = GX_ZERO;
    GxDataset d;
    char *text = NULL;
    int64_t bytes, wrong = 0;
    int32_t *tokens = (int32_t *)calloc(2 * T, sizeof *tokens), *labels = tokens + T;
    put_letters(at("text"), 8 * T + 5);
    CHECK(gx_file_read(at("text"), 1 << 20, &text, &bytes, &err) == GX_OK &&
              gx_dataset_open(&d, at("text"), 0.3, T, &err) == GX_OK,
          "%s", err.message);
    const int64_t start = gx_dataset_sample_start(&d.train, 1, 4, T);
    CHECK(gx_dataset_sample(&d, 1, 4, T, tokens, labels, 1, &err) == GX_OK, "%s", err.message);
    for (int64_t t = 0; t < T; t++) wrong += tokens[t] != text[start + t] || labels[t] != text[start + t + 1];
    CHECK(gx_dataset_eval_sample(&d, 1, T, tokens, labels, 1, &err) == GX_OK, "%s", err.message);
    for (int64_t t = 0; t < T; t++)
        wrong += tokens[t] != text[d.train.n + T + t] || labels[t] != text[d.train.n + T + t + 1];
    CHECK(wrong == 0, "%ld tokens are wrong", (long)wrong);
    gx_dataset_close(&d);
    free(text), free(tokens);
    unlink(at("text"));
}

TEST(a_text_that_shrinks_while_it_is_trained_on_is_an_error_and_no_crash)
{
    enum { T = 10 };
    GxError err = GX_ZERO;
    GxDataset d;
    int32_t tokens[T], labels[T];
    double bits;
    put_letters(at("text"), 60000);
    if (!CHECK(gx_dataset_open(&d, at("text"), 0.1, T, &err) == GX_OK, "%s", err.message)) return;
    CHECK(!gx_dataset_changed(&d) && truncate(at("text"), 100) == 0, "it has not changed yet");
    const int64_t index = 7;
    CHECK(gx_dataset_sample_start(&d.train, 1, index, T) > 100, "choose another sample");
    refused(&err, gx_dataset_sample(&d, 1, index, T, tokens, labels, 1, &err), GX_ERR_IO,
            "text ends at byte 100, but 60000 were expected: it was shortened during the training", "a sample");
    refused(&err, gx_dataset_eval_sample(&d, 0, T, tokens, labels, 1, &err), GX_ERR_IO, "shortened during", "a window");
    refused(&err, gx_dataset_bigram_bits(&d, &bits, &err), GX_ERR_IO, "shortened during", "the baseline");
    CHECK(gx_dataset_changed(&d), "a text that is shorter has changed");
    gx_dataset_close(&d);
    unlink(at("text"));
}

TEST(a_text_that_was_written_to_since_it_was_opened_is_known_to_have_changed)
{
    GxError err = GX_ZERO;
    GxDataset d;
    const struct timespec opened[2] = {{1000000000, 5}, {1000000000, 5}}, later[2] = {{1000000000, 6}, {1000000000, 6}};
    put_letters(at("text"), 500);
    utimensat(AT_FDCWD, at("text"), opened, 0);
    if (!CHECK(gx_dataset_open(&d, at("text"), 0, 8, &err) == GX_OK, "%s", err.message)) return;
    CHECK(!gx_dataset_changed(&d), "nothing happened");
    utimensat(AT_FDCWD, at("text"), later, 0);
    CHECK(gx_dataset_changed(&d), "as long as before, a nanosecond later");
    put_letters(at("text"), 501);
    utimensat(AT_FDCWD, at("text"), opened, 0);
    CHECK(gx_dataset_changed(&d), "another size, its old time");
    put_letters(at("text"), 500);
    utimensat(AT_FDCWD, at("text"), opened, 0);
    CHECK(!gx_dataset_changed(&d), "as it was");
    unlink(at("text")); // whoever replaces the file by another one leaves the open one alone
    put_letters(at("text"), 400);
    CHECK(!gx_dataset_changed(&d), "another file of its name");
    gx_dataset_close(&d);
    unlink(at("text"));
}

static uint64_t hash_of(const char *path, int threads)
{
    GxError err = GX_ZERO;
    GxDataset d;
    uint64_t hash = 0;
    CHECK(gx_dataset_open(&d, path, 0, 1, &err) == GX_OK && gx_dataset_hash(&d, threads, &hash, &err) == GX_OK, "%s",
          err.message);
    gx_dataset_close(&d);
    return hash;
}

// As the header says it, without chunks, threads or lanes side by side.
static uint64_t hash_by_definition(const unsigned char *text, int64_t n)
{
    uint64_t of_block[8];
    int64_t blocks = 0;
    for (int64_t begin = 0; begin < n; begin += GX_DATASET_BLOCK) {
        uint64_t lane[GX_DATASET_LANES];
        for (int k = 0; k < GX_DATASET_LANES; k++) {
            lane[k] = GX_HASH_START;
            for (int64_t i = begin + k; i < gx_min(n, begin + GX_DATASET_BLOCK); i += GX_DATASET_LANES)
                lane[k] = gx_hash(lane[k], text + i, 1);
        }
        of_block[blocks++] = gx_hash(GX_HASH_START, lane, sizeof lane);
    }
    return gx_hash(GX_HASH_START, of_block, blocks * 8);
}

TEST(the_hash_of_a_text_is_of_every_byte_whatever_the_threads)
{
    enum { N = 3 * GX_DATASET_BLOCK + 77 };
    static const int64_t places[] = {
        0, 1, 63, 64, 65535, 65536, N / 2, N / 2 + 64, N - 1, GX_DATASET_BLOCK - 1, 2097152 + 5};
    unsigned char *text = (unsigned char *)malloc(N);
    for (int64_t i = 0; i < N; i++) text[i] = (unsigned char)(gx_philox(3, (uint64_t)i / 4, 0, 0).w[i % 4] >> 9);
    put(at("text"), text, N);
    const uint64_t hash = hash_of(at("text"), 1);
    CHECK(hash == hash_by_definition(text, N), "%016lx is not what the header says", (unsigned long)hash);
    for (int threads = 2; threads <= 5; threads++)
        CHECK(hash_of(at("text"), threads) == hash, "%d threads give another hash", threads);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        FILE *f = fopen(at("text"), "r+b");
        if (!CHECK(f && fseek(f, (long)places[i], SEEK_SET) == 0, "no text")) break;
        fputc(text[places[i]] ^ 1, f), fclose(f);
        CHECK(hash_of(at("text"), 2) != hash, "byte %ld may be another one", (long)places[i]);
        put(at("text"), text, N);
    }
    memmove(text, text + GX_DATASET_BLOCK, GX_DATASET_BLOCK), put(at("text"), text, N);
    const uint64_t first = hash_of(at("text"), 2); // two equal blocks; then a text that is shorter
    CHECK(first != hash && truncate(at("text"), N - 1) == 0 && hash_of(at("text"), 2) != first, "blocks, size");
    free(text);
    unlink(at("text"));
}

// ---- a hash that is remembered -------------------------------------------------------------------------------------

enum { LATER = 10, TOO_SOON = 0 }; // seconds after the text was last touched

static uint64_t hash_after(const char *path, int seconds)
{
    GxError err = GX_ZERO;
    GxDataset d;
    uint64_t hash = 0;
    struct stat st;
    CHECK(gx_dataset_open(&d, path, 0, 1, &err) == GX_OK && fstat(d.fd, &st) == 0, "%s", err.message);
    const int64_t now = gx_nanoseconds(st.st_ctim) + (int64_t)seconds * 1000000000;
    CHECK(gx__dataset_hash_at(&d, 2, now, &hash, &err) == GX_OK, "%s", err.message);
    gx_dataset_close(&d);
    return hash;
}

static void put_cached_text(int64_t bytes) // all zero but for its first lines
{
    put_letters(at("text"), 1000);
    CHECK(truncate(at("text"), bytes) == 0, "cannot make a file of %ld bytes", (long)bytes);
}

// Has the cache say something else, to see whether it is asked.
static void change_cache(const char *key, GxJson *value)
{
    GxError err = GX_ZERO;
    GxJson *json = NULL;
    CHECK(gx_json_read(&json, at("text" GX_DATASET_CACHE), 4096, &err) == GX_OK &&
              gx_json_set(json, key, value, &err) == GX_OK &&
              gx_json_write(json, at("text" GX_DATASET_CACHE), &err) == GX_OK,
          "%s", err.message);
    gx_json_free(json);
}

TEST(the_hash_of_a_large_text_is_remembered_beside_it)
{
    put_cached_text(GX_DATASET_CACHED - 1);
    hash_after(at("text"), LATER);
    CHECK(size_of(at("text" GX_DATASET_CACHE)) < 0, "a small text is hashed at once; nothing is left beside it");
    put_cached_text(GX_DATASET_CACHED);
    const uint64_t hash = hash_after(at("text"), TOO_SOON);
    CHECK(size_of(at("text" GX_DATASET_CACHE)) < 0, "remembered, though it may still be written to");
    CHECK(hash_after(at("text"), LATER) == hash && size_of(at("text" GX_DATASET_CACHE)) > 0, "not remembered");
    change_cache("hash", gx_json_new_int(-5));
    CHECK(hash_after(at("text"), LATER) == (uint64_t)-5, "hashed again");
    CHECK(hash_after(at("text"), TOO_SOON) == hash, "trusted, though the text may have been written to");
    unlink(at("text")), unlink(at("text" GX_DATASET_CACHE));
}

TEST(a_remembered_hash_counts_for_that_very_file_alone)
{
    const struct timespec old[2] = {{1000000000, 5}, {1000000000, 5}}, next[2] = {{1000000000, 6}, {1000000000, 6}};
    put_cached_text(GX_DATASET_CACHED);
    utimensat(AT_FDCWD, at("text"), old, 0);
    const uint64_t hash = hash_after(at("text"), LATER);
    static const char *const keys[] = {"version", "bytes", "mtime_ns", "ctime_ns", "inode"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        change_cache("hash", gx_json_new_int(-5));
        change_cache(keys[i], gx_json_new_int(1000));
        CHECK(hash_after(at("text"), LATER) == hash, "of a file with another %s", keys[i]);
        CHECK(hash_after(at("text"), LATER) == hash, "what was remembered then");
    }
    change_cache("hash", gx_json_new_int(-5));
    utimensat(AT_FDCWD, at("text"), next, 0); // a nanosecond later
    CHECK(hash_after(at("text"), LATER) == hash, "of a file that was written a nanosecond earlier");
    change_cache("hash", gx_json_new_int(-5));
    FILE *f = fopen(at("text"), "r+b"); // another text of the same size and time
    if (CHECK(f != NULL, "no text")) fputc('#', f), fclose(f);
    utimensat(AT_FDCWD, at("text"), next, 0);
    const uint64_t other = hash_after(at("text"), LATER);
    CHECK(other != hash && other != (uint64_t)-5, "of the text that was there before");
    unlink(at("text")), unlink(at("text" GX_DATASET_CACHE));
}

TEST(a_cache_that_is_damaged_or_cannot_be_written_costs_time_alone)
{
    static const char *const damaged[] = {"", "{", "[]", "{\"version\": 1}", "{\"hash\": \"5\"}"};
    put_cached_text(GX_DATASET_CACHED);
    const uint64_t hash = hash_after(at("text"), LATER);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        put_text(at("text" GX_DATASET_CACHE), damaged[i]);
        CHECK(hash_after(at("text"), LATER) == hash && size_of(at("text" GX_DATASET_CACHE)) > 60,
              "after %s: the hash, or the cache of %ld bytes", damaged[i], (long)size_of(at("text" GX_DATASET_CACHE)));
    }
    unlink(at("text" GX_DATASET_CACHE));
    CHECK(mkdir(at("text" GX_DATASET_CACHE), 0777) == 0 && hash_after(at("text"), LATER) == hash, "a folder is there");
    CHECK(rmdir(at("text" GX_DATASET_CACHE)) == 0 && unlink(at("text")) == 0, "something else was left");
}

TEST(ranks_that_write_the_cache_at_once_never_leave_half_of_it)
{
    const gx__DatasetHashed file = {1, 2, 3, 4, 5, 6};
    int torn = 0, status = 0;
    gx__dataset_remember(at("text" GX_DATASET_CACHE), &file);
    for (int child = 0; child < 2; child++)
        if (fork() == 0) {
            for (int i = 0; i < 25; i++) gx__dataset_remember(at("text" GX_DATASET_CACHE), &file);
            _exit(0);
        }
    for (int i = 0; i < 1000; i++) {
        gx__DatasetHashed wanted = file;
        wanted.hash = 0;
        torn += !gx__dataset_recall(at("text" GX_DATASET_CACHE), &wanted) || wanted.hash != 6;
    }
    CHECK(torn == 0, "%d times of 1000 it was not whole", torn);
    for (int child = 0; child < 2; child++) wait(&status);
    unlink(at("text" GX_DATASET_CACHE));
}

// A text that is divided by hand.
static GxDataset divided_text(const char *train, const char *held_out)
{
    GxError err = GX_ZERO;
    GxDataset d;
    char text[100];
    snprintf(text, sizeof text, "%s%s", train, held_out);
    put_text(at("text"), text);
    CHECK(gx_dataset_open(&d, at("text"), 0, 1, &err) == GX_OK, "%s", err.message);
    d.train.n = d.held_out.begin = (int64_t)strlen(train), d.held_out.n = (int64_t)strlen(held_out);
    d.train_text = d.train, d.held_out_text = d.held_out;
    return d;
}

TEST(bigram_bits_are_those_of_the_formula)
{
    GxError err = GX_ZERO;
    GxDataset d = divided_text("ababac", "abca");
    double bits = 0;
    // a: b twice, c once, 3 in all; b: a twice, 2 in all; c: nothing
    double expected = -(log2(3.0 / 259) + log2(1.0 / 258) + log2(1.0 / 256)) / 3;
    CHECK(gx_dataset_bigram_bits(&d, &bits, &err) == GX_OK && fabs(bits - expected) < 1e-12, "%.15g, expected %.15g",
          bits, expected);
    gx_dataset_close(&d);
    d = divided_text("", "abca");
    CHECK(gx_dataset_bigram_bits(&d, &bits, &err) == GX_OK && fabs(bits - 8) < 1e-12,
          "without training %g; 8 was expected", bits);
    gx_dataset_close(&d);
    d = divided_text("ababac", "");
    refused(&err, gx_dataset_bigram_bits(&d, &bits, &err), GX_ERR_ARGUMENT, "0 bytes are held out", "nothing held out");
    gx_dataset_close(&d);
    unlink(at("text"));
}

// Each part of the text is one text to the tokenizer; samples and windows are those of its ids.
TEST(a_dataset_of_a_tokenizers_ids_has_the_ids_of_its_two_parts)
{
    enum { T = 16, LINES = 300 };
    GxError err = GX_ZERO;
    GxDataset d;
    GxTokenizer t;
    char *text = (char *)calloc(LINES * 40, 1);
    int32_t tokens[T], labels[T], *ids = NULL;
    for (int i = 0; i < LINES; i++)
        snprintf(text + strlen(text), 40, "line %d says the <s> of \xC3\xA9t\xC3\xA9\n", i * 7);
    const int64_t n = (int64_t)strlen(text);
    put_text(at("text"), text);
    if (!CHECK(gx_tokenizer_open(&t, "data/ref/bpe/byte_fallback.json", &err) == GX_OK, "%s", err.message)) return;
    CHECK(gx_dataset_open(&d, at("text"), 0.2, T, &err) == GX_OK, "%s", err.message);
    const int64_t cut = d.train.n;
    CHECK(text[cut - 1] == '\n' && cut < n, "cut at %ld of %ld", (long)cut, (long)n);
    if (!CHECK(gx_dataset_tokenize(&d, &t, T, &err) == GX_OK, "%s", err.message)) return;
    ids = (int32_t *)malloc((size_t)(gx_tokenizer_most(&t, n) + 1) * sizeof *ids);
    for (int part = 0; part < 2; part++) {
        const GxTokens *of = part ? &d.held_out : &d.train, *bytes = part ? &d.held_out_text : &d.train_text;
        const char *from = text + (part ? cut : 0);
        int64_t count = 0, most = part ? n - cut : cut;
        gx_tokenizer_encode(&t, from, most, GX_SPECIAL_AS_TEXT, ids, &count, &err);
        CHECK(count == of->n && count < most && !memcmp(ids, d.ids + of->begin, (size_t)count * sizeof *ids),
              "part %d has %ld ids, expected %ld", part, (long)of->n, (long)count);
        CHECK(bytes->n == most && bytes->begin == (part ? cut : 0), "part %d: %ld bytes", part, (long)bytes->n);
    }
    CHECK(d.held_out.begin == d.train.n, "one part behind the other");
    for (int64_t index = 0; index < 3 * gx_tokens_epoch_samples(&d.train, T); index++) {
        const int64_t start = gx_dataset_sample_start(&d.train, 5, index, T);
        CHECK(gx_dataset_sample(&d, 5, index, T, tokens, labels, 1, &err) == GX_OK && start + T < d.train.n &&
                  !memcmp(tokens, d.ids + start, sizeof tokens) && !memcmp(labels, d.ids + start + 1, sizeof labels),
              "sample %ld", (long)index);
    }
    const int64_t last = gx_tokens_eval_samples(&d.held_out, T) - 1;
    CHECK(gx_dataset_eval_sample(&d, last, T, tokens, labels, 1, &err) == GX_OK &&
              !memcmp(tokens, d.ids + d.train.n + last * T, sizeof tokens) && (last + 1) * T < d.held_out.n,
          "window %ld", (long)last);
    const int64_t all = d.held_out.n; // too few for as long a sample, though there are bytes enough
    gx_dataset_close(&d);
    CHECK(gx_dataset_open(&d, at("text"), 0.2, all, &err) == GX_OK, "%s", err.message);
    refused(&err, gx_dataset_tokenize(&d, &t, all, &err), GX_ERR_FORMAT, "tokens are held out", "few tokens");
    CHECK(!d.ids && d.train.n == d.train_text.n, "it is as it was");
    gx_dataset_close(&d);
    gx_tokenizer_close(&t);
    free(ids), free(text);
    unlink(at("text"));
}

// Pairs across the places where a long text is cut into reads are counted, each once.
TEST(bigram_bits_of_a_long_text_count_every_pair)
{
    enum { N = 4 * GX__DATASET_CHUNK + 77 };
    GxError err = GX_ZERO;
    GxDataset d;
    char *text = NULL;
    int64_t bytes, (*count)[256] = (int64_t(*)[256])calloc(256, sizeof *count), after[256] = {0};
    double bits = 0, sum = 0;
    put_letters(at("text"), N);
    CHECK(gx_file_read(at("text"), N, &text, &bytes, &err) == GX_OK &&
              gx_dataset_open(&d, at("text"), 0.4, 8, &err) == GX_OK,
          "%s", err.message);
    for (int64_t i = 1; i < d.train.n; i++) count[(int)text[i - 1]][(int)text[i]]++, after[(int)text[i - 1]]++;
    for (int64_t i = d.train.n + 1; i < N; i++)
        sum -= log2((double)(count[(int)text[i - 1]][(int)text[i]] + 1) / (double)(after[(int)text[i - 1]] + 256));
    CHECK(gx_dataset_bigram_bits(&d, &bits, &err) == GX_OK, "%s", err.message);
    CHECK(bits == sum / (double)(d.held_out.n - 1), "%.17g, one by one %.17g", bits, sum / (double)(d.held_out.n - 1));
    gx_dataset_close(&d);
    free(text), free(count);
    unlink(at("text"));
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.500s/test_io.XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(root)) {
        printf("cannot make a temporary folder %s\n", root);
        return 1;
    }
    int failed = test_main(argc, argv);
    if (gx_folder_remove(root, &err) != GX_OK) printf("%s\n", err.message);
    return failed;
}
