// test_record_cache.cu: records in a file or in memory: what is written is read, and what is wrong is not there.
#include "galaxy/data/record_cache.h"
#include "test/test.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/galaxy_test_record_cache_XXXXXX", path[200], other[200];

enum { BYTES = 1000, STRIDE = 32 + 1024, HEAD = 64 };

static void fill(char record[BYTES], int number)
{
    for (int i = 0; i < BYTES; i++) record[i] = (char)(i * 7 + number * 31 + i / 100);
}
static GxRecordKey key_of(int number) { return gx_record_key(&number, sizeof number); }

static int has(GxRecordCache *c, int number) // 1: it is there, as it was written
{
    char record[BYTES], wanted[BYTES];
    fill(wanted, number);
    const int is_there = gx_record_cache_read(c, key_of(number), record);
    CHECK(!is_there || !memcmp(record, wanted, BYTES), "record %d is another", number);
    return is_there;
}

static int put(GxRecordCache *c, int number)
{
    char record[BYTES];
    fill(record, number);
    return gx_record_cache_write(c, key_of(number), record);
}

static int open_it(GxRecordCache *c, uint64_t about, int64_t most) // what was found; -1: an error
{
    GxError err = GX_ZERO;
    GxRecordsFound found;
    return CHECK(gx_record_cache_open(c, path, BYTES, about, most, &found, &err) == GX_OK, "%s", err.message)
               ? (int)found
               : -1;
}

static void make(int records) // anew
{
    GxRecordCache c;
    unlink(path);
    CHECK(open_it(&c, 1, 1000) == GX_RECORDS_NEW, "it was there");
    for (int i = 0; i < records; i++) CHECK(put(&c, i), "record %d is not taken", i);
    gx_record_cache_close(&c);
}

static void harm(long at, int bits) // bits of the byte at `at`
{
    FILE *f = fopen(path, "r+b");
    fseek(f, at, SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(byte ^ bits, f);
    fclose(f);
}

static void check_has(int from, int n,
                      const char *missing) // of n records: those that are '0' in `missing` are not there
{
    GxRecordCache c;
    CHECK(open_it(&c, 1, 1000) == GX_RECORDS_SAME, "it is not the same");
    for (int i = from; i < n; i++) CHECK(has(&c, i) == (missing[i] == '1'), "record %d", i);
    gx_record_cache_close(&c);
}

TEST(what_is_written_is_read_now_and_later)
{
    GxRecordCache c;
    make(500);
    CHECK(open_it(&c, 1, 1000) == GX_RECORDS_SAME && c.n == 500, "%ld records", (long)c.n);
    for (int i = 0; i < 500; i++) CHECK(has(&c, i), "record %d is not there", i);
    CHECK(!has(&c, 500) && c.damaged == 0, "a record that nobody wrote");
    CHECK(put(&c, 3) && put(&c, 500) && has(&c, 3) && has(&c, 500) && c.n == 501, "%ld records", (long)c.n);
    gx_record_cache_close(&c);
    struct stat st;
    CHECK(stat(path, &st) == 0 && st.st_size == HEAD + 501 * STRIDE, "%ld bytes", (long)st.st_size);
}

TEST(a_record_that_is_damaged_anywhere_is_not_there_and_is_written_in_its_place)
{
    static const long at[] = {0, 8, 15, 16, 23, 32, 32 + 500, 32 + BYTES - 1};
    GxRecordCache c;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        make(3);
        harm(HEAD + STRIDE + at[i], 1 << (i % 8));
        check_has(0, 3, "101");
        open_it(&c, 1, 1000);
        CHECK(put(&c, 1) && has(&c, 0) && has(&c, 1) && has(&c, 2), "byte %ld", at[i]);
        gx_record_cache_close(&c);
        check_has(0, 3, "111");
    }
}

TEST(a_record_under_the_key_of_another_is_not_there)
{
    char bytes[STRIDE];
    make(3);
    FILE *f = fopen(path, "r+b");
    fseek(f, HEAD + 16, SEEK_SET); // behind the key of the first
    CHECK(fread(bytes, 1, STRIDE - 16, f) == STRIDE - 16, "it cannot be read");
    fseek(f, HEAD + STRIDE + 16, SEEK_SET);
    fwrite(bytes, 1, STRIDE - 16, f);
    fclose(f);
    check_has(0, 3, "101");
}

TEST(a_file_that_was_cut_off_anywhere_has_the_records_before)
{
    for (long bytes = HEAD + 2 * STRIDE - 1; bytes >= HEAD; bytes -= 400) {
        make(3);
        CHECK(truncate(path, bytes) == 0, "it cannot be cut");
        check_has(0, 3, bytes >= HEAD + STRIDE ? "100" : "000");
        GxRecordCache c;
        open_it(&c, 1, 1000);
        CHECK(put(&c, 2) && has(&c, 2), "%ld bytes", bytes);
        gx_record_cache_close(&c);
        check_has(0, 3, bytes >= HEAD + STRIDE ? "101" : "001");
    }
}

TEST(a_file_about_something_else_is_emptied)
{
    GxRecordCache c;
    for (int i = 0; i < 4; i++) {
        make(3);
        if (i == 1) harm(i * 9, 1);           // what it is
        if (i == 2) truncate(path, HEAD - 1); // half a head
        if (i == 3) harm(HEAD - 1, 4);        // its hash
        CHECK(open_it(&c, i ? 1 : 2, 1000) == GX_RECORDS_OTHER && c.n == 0, "way %d: %ld records", i, (long)c.n);
        CHECK(!has(&c, 0) && put(&c, 0) && has(&c, 0), "way %d", i);
        gx_record_cache_close(&c);
    }
    GxError err = GX_ZERO;
    GxRecordsFound found;
    make(3);
    CHECK(gx_record_cache_open(&c, path, BYTES + 1, 1, 1, &found, &err) == GX_OK && found == GX_RECORDS_OTHER, "%s",
          err.message);
    gx_record_cache_close(&c);
}

TEST(a_file_that_is_none_of_records_is_left_as_it_is)
{
    static const char *const texts[] = {"my notes", "GXRECORX and more", "x"};
    for (int i = 0; i < 3; i++) {
        GxRecordCache c;
        GxRecordsFound found;
        GxError err = GX_ZERO;
        char now[40] = "";
        CHECK(gx_file_write(path, texts[i], (int64_t)strlen(texts[i]), &err) == GX_OK, "%s", err.message);
        CHECK(gx_record_cache_open(&c, path, BYTES, 1, 1, &found, &err) == GX_ERR_FORMAT &&
                  strstr(err.message, "is not a cache of records, and is left as it is"),
              "\"%s\": %s", texts[i], err.message);
        FILE *f = fopen(path, "r");
        CHECK(f && fread(now, 1, sizeof now - 1, f) == strlen(texts[i]) && !strcmp(now, texts[i]), "it is \"%s\"", now);
        if (f) fclose(f);
        unlink(path);
    }
}

// Another run empties it, and writes what it is about under the same keys.
TEST(records_of_a_file_that_has_become_anothers_are_not_taken)
{
    GxRecordCache reader, writer;
    GxError err = GX_ZERO;
    GxRecordsFound found;
    make(2);
    unlink(other);
    CHECK(gx_record_cache_open(&reader, other, BYTES, 1, 1000, &found, &err) == GX_OK, "%s", err.message);
    CHECK(gx_record_cache_inspect(&reader, path, &err) == GX_OK && has(&reader, 1), "%s", err.message);
    CHECK(open_it(&writer, 2, 1000) == GX_RECORDS_OTHER, "it is about the same");
    put(&writer, 0), put(&writer, 1);
    CHECK(has(&writer, 1) && !has(&reader, 0) && !has(&reader, 1) && reader.damaged == 2, "%ld damaged",
          (long)reader.damaged);
    gx_record_cache_close(&reader), gx_record_cache_close(&writer);
}

TEST(one_writes_a_file_and_others_read_it)
{
    GxRecordCache c, d, e;
    GxError err = GX_ZERO;
    GxRecordsFound found;
    make(2);
    open_it(&c, 1, 1000);
    CHECK(open_it(&d, 1, 1000) == GX_RECORDS_IN_USE && has(&d, 1) && !put(&d, 7) && !has(&d, 7), "two write it");
    unlink(other);
    CHECK(gx_record_cache_open(&e, other, BYTES, 1, 1000, &found, &err) == GX_OK, "%s", err.message);
    put(&e, 9), put(&e, 1);
    CHECK(gx_record_cache_inspect(&e, path, &err) == GX_OK, "%s", err.message);
    CHECK(has(&e, 0) && has(&e, 1) && has(&e, 9) && e.n == 3, "%ld records", (long)e.n);
    harm(HEAD + 40, 1); // record 0 of the other file: it goes into its own
    CHECK(!has(&e, 0) && put(&e, 0) && has(&e, 0), "record 0");
    gx_record_cache_close(&c), gx_record_cache_close(&d), gx_record_cache_close(&e);
    CHECK(gx_record_cache_open(&e, other, BYTES, 2, 1000, &found, &err) == GX_OK && found == GX_RECORDS_OTHER, "found");
    CHECK(gx_record_cache_inspect(&e, path, &err) == GX_OK && !has(&e, 1), "records about something else");
    gx_record_cache_close(&e);
}

TEST(no_more_are_written_than_there_is_room_for)
{
    GxRecordCache c;
    char *memory = (char *)malloc((size_t)gx_record_cache_memory(BYTES, 4));
    gx_record_cache_open_memory(&c, memory, BYTES, 4);
    for (int i = 0; i < 6; i++) CHECK(put(&c, i) == (i < 4) && has(&c, i) == (i < 4), "record %d", i);
    CHECK(!has(&c, 7) && c.is_full && !gx_error_code(&c.error), "%s", c.error.message);
    gx_record_cache_close(&c);
    free(memory);
    unlink(path);
    open_it(&c, 1, 4);
    for (int i = 0; i < 6; i++) CHECK(put(&c, i) == (i < 4), "record %d", i);
    gx_record_cache_close(&c);
    check_has(0, 6, "111100");
}

TEST(a_disk_that_is_full_leaves_whole_records)
{
    struct rlimit all, some;
    GxRecordCache c;
    unlink(path);
    open_it(&c, 1, 1000);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &all), some = all;
    some.rlim_cur = HEAD + 2 * STRIDE + 500;
    setrlimit(RLIMIT_FSIZE, &some);
    for (int i = 0; i < 5; i++) CHECK(put(&c, i) == (i < 2), "record %d", i);
    setrlimit(RLIMIT_FSIZE, &all);
    CHECK(gx_error_code(&c.error) == GX_ERR_IO && strstr(c.error.message, path), "\"%s\"", c.error.message);
    CHECK(!put(&c, 5) && has(&c, 0) && has(&c, 1), "it goes on");
    gx_record_cache_close(&c);
    check_has(0, 5, "11000");
}

TEST(what_is_no_file_is_an_error)
{
    GxRecordCache c;
    GxError err = GX_ZERO;
    GxRecordsFound found;
    CHECK(gx_record_cache_open(&c, folder, BYTES, 1, 1, &found, &err) == GX_ERR_IO && strstr(err.message, "a folder"),
          "a folder: %s", err.message);
    gx_error_clear(&err);
    CHECK(gx_record_cache_check("/dev/null", &err) == GX_ERR_IO && strstr(err.message, "/dev/null is a device"), "%s",
          err.message);
    gx_error_clear(&err);
    unlink(path);
    CHECK(mkfifo(path, 0600) == 0 && gx_record_cache_open(&c, path, BYTES, 1, 1, &found, &err) == GX_ERR_IO &&
              strstr(err.message, "is a pipe") && unlink(path) == 0,
          "a pipe: %s", err.message);
    gx_error_clear(&err);
    unlink(other);
    CHECK(symlink(other, path) == 0 && gx_record_cache_open(&c, path, BYTES, 1, 1, &found, &err) == GX_ERR_IO &&
              strstr(err.message, "is a broken link") && access(other, F_OK) != 0 && unlink(path) == 0,
          "a link to nothing: %s", err.message);
    gx_error_clear(&err);
    CHECK(gx_record_cache_check(path, &err) == GX_OK, "nothing: %s", err.message);
    gx_error_clear(&err);
    CHECK(gx_record_cache_open(&c, "/nowhere/at/all", BYTES, 1, 1, &found, &err) == GX_ERR_IO, "nowhere");
    gx_error_clear(&err);
    CHECK(gx_record_cache_open(&c, path, 0, 1, 1, &found, &err) == GX_ERR_ARGUMENT, "no bytes");
    GxRecordCache none = GX_ZERO;
    CHECK(!has(&none, 1) && !put(&none, 1), "a cache that was never opened");
    gx_record_cache_close(&none);
}

// Every bit of every length has a part in it.
TEST(hashes_of_other_bytes_are_others)
{
    unsigned char data[80];
    for (int n = 0; n < 80; n++) {
        memset(data, 0, sizeof data);
        const uint64_t zeros = gx_record_hash(5, data, n);
        CHECK(n == 0 || zeros != gx_record_hash(5, data, n - 1), "%d and %d zeros", n, n - 1);
        for (int bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            CHECK(gx_record_hash(5, data, n) != zeros, "bit %d of %d bytes", bit, n);
            data[bit / 8] = 0;
        }
    }
    CHECK(gx_record_hash(5, data, 40) != gx_record_hash(6, data, 40), "what it continues from");
    const GxRecordKey a = key_of(1), b = key_of(2);
    CHECK(a.word[0] != b.word[0] && a.word[1] != b.word[1] && a.word[0] != a.word[1], "keys");
}

int main(int argc, char **argv)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/records", folder), snprintf(other, sizeof other, "%s/others", folder);
    const int status = test_main(argc, argv);
    unlink(path), unlink(other), rmdir(folder);
    return status;
}
