// test_corpus.cu: texts as documents of tokens: read from texts, JSON lines and folders, kept in files, divided, and
// cut into samples that hold several.
#include "galaxy.h"
#include "test/test.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VOCAB = 1162 };
static char root[64];
static GxTokenizer bpe;

static const char *at(const char *name)
{
    static char path[8][200];
    static int turn;
    char *p = path[turn++ % 8];
    snprintf(p, 200, "%s/%s", root, name);
    return p;
}

static void put(const char *name, const void *data, int64_t bytes)
{
    GxError err = GX_ZERO;
    CHECK(gx_file_write(at(name), data, bytes, &err) == GX_OK, "%s", err.message);
}
static void put_text(const char *name, const char *text) { put(name, text, (int64_t)strlen(text)); }

static void refused(GxError *err, GxStatus status, GxStatus expected, const char *words, const char *what)
{
    CHECK(status == expected, "%s: status %d, expected %d (%s)", what, (int)status, (int)expected, err->message);
    CHECK(strstr(err->message, words), "%s: no \"%s\" in: %s", what, words, err->message);
    gx_error_clear(err);
}

static GxStatus open_file(GxTokenFile *f, const char *name, GxError *err)
{
    int fd;
    int64_t bytes;
    GX_TRY(gx_file_open(at(name), &fd, &bytes, err));
    CHECK(gx_token_file_is_one(fd), "%s is a file of tokens", name);
    const GxStatus status = gx_token_file_open(f, fd, at(name), bytes, err);
    close(fd);
    return status;
}

static char said[4096]; // by the library
static void hear(void *user, GxLogLevel level, const char *text)
{
    (void)user;
    if (level != GX_LOG_ERROR) snprintf(said, sizeof said, "%s", text);
}
static const GxLogger log_of_test = {hear, NULL};

// ---- files of tokens -----------------------------------------------------------------------------------------------

static void write_file(const char *name, const int32_t *ids, int64_t n, const int64_t *begin, int64_t documents)
{
    GxError err = GX_ZERO;
    GxTokenDocument document[8];
    GxTokenFile f = {0,    n,    documents, 0, "bpe-1162-0123456789abcdef", 0, document, 0, 0, 0, 0, 0, 0, NULL,
                     NULL, NULL, GX_ZERO,   0};
    for (int64_t i = 0; i < documents; i++) document[i].begin = begin[i], document[i].bytes = 10 * i, f.bytes += 10 * i;
    CHECK(gx_token_file_write(at(name), &f, ids, NULL, &err) == GX_OK, "%s", err.message);
}

TEST(a_file_of_tokens_is_read_as_it_was_written_in_the_narrowest_width)
{
    enum { N = 9001 };
    static int32_t ids[N], read[N];
    static const int64_t begin[] = {0, 1, 4000};
    for (int wide = 0; wide < 2; wide++) {
        GxError err = GX_ZERO;
        GxTokenFile f;
        for (int i = 0; i < N; i++) ids[i] = (i * 7919) % (wide ? 70000 : 65536);
        write_file("f.tokens", ids, N, begin, 3);
        if (!CHECK(open_file(&f, "f.tokens", &err) == GX_OK, "%s", err.message)) return;
        CHECK(f.width == (wide ? 4 : 2) && f.tokens == N && f.documents == 3 && f.bytes == 30 &&
                  !strcmp(f.tokenizer, "bpe-1162-0123456789abcdef"),
              "width %d, %ld tokens", f.width, (long)f.tokens);
        for (int i = 0; i < 3; i++) CHECK(f.document[i].begin == begin[i] && f.document[i].bytes == 10 * i, "%d", i);
        CHECK(f.document[3].begin == N, "the end");
        const int fd = open(at("f.tokens"), O_RDONLY);
        CHECK(gx_token_file_read(&f, fd, "f", 3, N - 3, read, &err) == GX_OK && !memcmp(read, ids + 3, 4 * (N - 3)),
              "other tokens: %s", err.message);
        f.vocab = ids[8000];
        refused(&err, gx_token_file_read(&f, fd, "f", 8000, 1, read, &err), GX_ERR_FORMAT, "token 8000 is", "beyond");
        close(fd);
        gx_token_file_close(&f);
    }
}

TEST(a_mask_is_read_as_it_was_written_and_leaves_labels_out)
{
    enum { N = 40003, T = 20000 };
    static int32_t ids[N], tokens[T], labels[T];
    static unsigned char mask[N / 8 + 1], read[N];
    GxError err = GX_ZERO;
    GxTokenFile f = {0, N, 1, 7, "bpe-1162-0123456789abcdef", 0, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, GX_ZERO, 0};
    GxTokenDocument document[] = {{0, 7}};
    char *plain, *masked;
    int64_t n[2];
    f.document = document;
    for (int i = 0; i < N; i++) ids[i] = i % 1000;
    for (int i = 0; i <= N / 8; i++) mask[i] = (unsigned char)(i * i % 251); // bits beyond the last token, too
    unlink(at("m.tokens")), unlink(at("p.tokens"));
    CHECK(gx_token_file_write(at("m.tokens"), &f, ids, mask, &err) == GX_OK &&
              gx_token_file_write(at("p.tokens"), &f, ids, NULL, &err) == GX_OK &&
              gx_file_read(at("m.tokens"), 1 << 20, &masked, &n[1], &err) == GX_OK &&
              gx_file_read(at("p.tokens"), 1 << 20, &plain, &n[0], &err) == GX_OK,
          "%s", err.message);
    // by the file's own description: 5001 bytes and zeros to 5008, and in both a table of two checksums
    const int64_t end = n[0] - 16;
    CHECK(n[1] == n[0] + 5008 && plain[8] == 3 && masked[8] == 3 && plain[104] == 0 && masked[104] == 1 &&
              !memcmp(plain + 12, masked + 12, 104 - 12) && !memcmp(plain + 128, masked + 128, (size_t)end - 128) &&
              !memcmp(masked + end, mask, 5000) && masked[end + 5000] == (char)(mask[5000] & 7) &&
              !memcmp(masked + end + 5001, "\0\0\0\0\0\0\0", 7),
          "%ld bytes and %ld with a mask", (long)n[0], (long)n[1]);
    put("m.tokens", masked, n[1] - 1);
    refused(&err, open_file(&f, "m.tokens", &err), GX_ERR_FORMAT, "announces", "a mask that was cut off");
    put("m.tokens", masked, n[1]), free(plain), free(masked);
    GxDataset d;
    if (!CHECK(gx_dataset_open(&d, at("m.tokens"), 0, 1, &err) == GX_OK && d.file.has_mask, "%s", err.message)) return;
    for (int64_t at = 0; at < 40; at++)
        for (int64_t some = 1; at + some <= N; some += some < 40 ? 1 : 13331) {
            CHECK(gx_token_file_read_mask(&d.file, d.fd, d.path, at, some, read, &err) == GX_OK, "%s", err.message);
            for (int64_t i = 0; i < some; i++)
                if (!CHECK(read[i] == (mask[(at + i) / 8] >> ((at + i) % 8) & 1), "token %ld", (long)(at + i))) return;
        }
    for (int64_t from = 0; from < 20001; from += 6667) {
        d.held_out.begin = from;
        CHECK(gx_dataset_eval_sample(&d, 0, T, tokens, labels, 1, &err) == GX_OK &&
                  gx_dataset_mask(&d, from, T, labels, -100, 1, &err) == GX_OK,
              "%s", err.message);
        for (int64_t t = 0; t < T; t++) {
            const int64_t next = from + t + 1;
            if (!CHECK(labels[t] == (mask[next / 8] >> (next % 8) & 1 ? ids[next] : -100) && tokens[t] == ids[from + t],
                       "token %ld is %d, behind %ld", (long)next, labels[t], (long)from))
                return;
        }
    }
    gx_dataset_close(&d);
}

// All of it, as a training and a tokenizer read it.
static GxStatus read_all(const char *name, GxError *err)
{
    static int32_t ids[1 << 17];
    static unsigned char mask[1 << 17];
    int fd;
    int64_t bytes;
    GxTokenFile f;
    GX_TRY(gx_file_open(at(name), &fd, &bytes, err));
    GxStatus status = gx_token_file_open(&f, fd, name, bytes, err);
    if (status == GX_OK) status = gx_token_file_read(&f, fd, name, 0, f.tokens, ids, err);
    if (status == GX_OK && f.has_mask) status = gx_token_file_read_mask(&f, fd, name, 0, f.tokens, mask, err);
    gx_token_file_close(&f);
    close(fd);
    return status;
}

// What versions 1 and 2 of the format are: without the table, the checksums and the word that there is a mask.
static void make_older(const char *name, const char *older)
{
    char *p;
    int64_t n, blocks = 1;
    GxError err = GX_ZERO;
    if (!CHECK(gx_file_read(at(name), 1 << 20, &p, &n, &err) == GX_OK && p[8] == 3, "%s", err.message)) return;
    while ((n - 128 - 8 * blocks + 65535) / 65536 > blocks) blocks++;
    p[8] = p[104] ? 2 : 1;
    memset(p + 104, 0, 24);
    put(older, p, n - 8 * blocks);
    free(p);
}

TEST(no_bit_of_a_file_of_tokens_changes_unnoticed)
{
    enum { N = 21 };
    static const unsigned char mask[] = {0xA5, 0x0F, 0xFF};
    static const GxTokenDocument document[] = {{0, 3}, {9, 4}};
    int32_t ids[N];
    int64_t bytes;
    int fd;
    GxError err = GX_ZERO;
    GxTokenFile f = {
        0,    N,    2,       7, "bpe-1162-0123456789abcdef", 0, (GxTokenDocument *)document, 0, 0, 0, 0, 0, 0, NULL,
        NULL, NULL, GX_ZERO, 0};
    for (int i = 0; i < N; i++) ids[i] = 3000 * i;
    unlink(at("bits.tokens"));
    CHECK(gx_token_file_write(at("bits.tokens"), &f, ids, mask, &err) == GX_OK &&
              read_all("bits.tokens", &err) == GX_OK && gx_file_open(at("bits.tokens"), &fd, &bytes, &err) == GX_OK,
          "%s", err.message);
    close(fd);
    fd = open(at("bits.tokens"), O_RDWR);
    CHECK(bytes == 128 + 48 + 32 + 8 + 8, "%ld bytes", (long)bytes); // header, tokens, documents, mask, a checksum
    for (int64_t bit = 8 * 8; bit < 8 * bytes; bit++) { // the first 8 bytes say that it is such a file at all
        unsigned char byte, changed;
        CHECK(pread(fd, &byte, 1, bit / 8) == 1, "byte %ld", (long)(bit / 8));
        changed = byte ^ (unsigned char)(1 << bit % 8);
        CHECK(pwrite(fd, &changed, 1, bit / 8) == 1, "byte %ld", (long)(bit / 8));
        const GxStatus status = read_all("bits.tokens", &err);
        CHECK(status == GX_ERR_FORMAT && strstr(err.message, "bits.tokens"), "bit %ld: status %d: %s", (long)bit,
              (int)status, err.message);
        gx_error_clear(&err);
        CHECK(pwrite(fd, &byte, 1, bit / 8) == 1, "byte %ld", (long)(bit / 8));
    }
    CHECK(read_all("bits.tokens", &err) == GX_OK, "%s", err.message);
    close(fd);
}

// A copy with a hole in it, and what is next to the hole. A block is read when something of it is needed, and once.
TEST(a_block_of_tokens_that_is_lost_is_an_error_where_it_is_read_and_costs_nothing_else)
{
    enum { N = 100000, A_BLOCK = 65536 / 2 };
    static const char zeros[4096] = {0};
    static int32_t ids[N], read[N];
    static const int64_t begin[] = {0};
    int64_t bytes;
    int fd;
    GxError err = GX_ZERO;
    GxTokenFile f;
    for (int i = 0; i < N; i++) ids[i] = 1 + i % 1000;
    write_file("hole.tokens", ids, N, begin, 1);
    fd = open(at("hole.tokens"), O_RDWR);
    CHECK(pwrite(fd, zeros, sizeof zeros, 128 + 65536 + 8192) == sizeof zeros, "no hole");
    close(fd);
    if (!CHECK(gx_file_open(at("hole.tokens"), &fd, &bytes, &err) == GX_OK &&
                   gx_token_file_open(&f, fd, "hole.tokens", bytes, &err) == GX_OK,
               "%s", err.message))
        return;
    CHECK(!f.is_whole[0] && !f.is_whole[1] && !f.is_whole[2] && f.is_whole[3], "opening it reads the documents' block");
    CHECK(gx_token_file_read(&f, fd, "hole.tokens", 5, A_BLOCK - 5, read, &err) == GX_OK && read[0] == ids[5] &&
              gx_token_file_read(&f, fd, "hole.tokens", 2 * A_BLOCK, 7, read, &err) == GX_OK &&
              read[6] == ids[2 * A_BLOCK + 6] && f.is_whole[0] && !f.is_whole[1] && f.is_whole[2],
          "%s", err.message);
    refused(&err, gx_token_file_read(&f, fd, "hole.tokens", A_BLOCK - 1, 2, read, &err), GX_ERR_FORMAT,
            "hole.tokens is damaged, or was changed: bytes 65664 to 131199 are not those that were written", "a hole");
    refused(&err, gx_token_file_read(&f, fd, "hole.tokens", 2 * A_BLOCK - 1, 1, read, &err), GX_ERR_FORMAT,
            "copy it again from an intact copy, or make it again (./tokenize --corpus)", "once more");
    gx_token_file_close(&f);
    close(fd);
    make_older("hole.tokens", "older.tokens"); // which nobody notices
    CHECK(read_all("older.tokens", &err) == GX_OK, "%s", err.message);
    refused(&err, read_all("hole.tokens", &err), GX_ERR_FORMAT, "is damaged", "all of it");
}

TEST(an_older_file_of_tokens_is_read_as_it_is_with_a_note)
{
    static const unsigned char mask[64] = {0xFF, 0x0F, 0, 0, 0xFF}; // something of either part
    GxError err = GX_ZERO;
    GxCorpus c;
    const GxTokenizer bytes = gx_tokenizer_bytes();
    put_text("older.jsonl", "{\"text\": \"an old gray cat sees\"}\n{\"text\": \"a tall tree near the river\"}\n");
    if (!CHECK(gx_corpus_open(&c, at("older.jsonl"), NULL, &bytes, 1, NULL, &err) == GX_OK, "%s", err.message)) return;
    for (int is_masked = 0; is_masked < 2; is_masked++) {
        GxDataset d[2];
        uint64_t hash[2];
        int32_t tokens[2][8], labels[2][8];
        unsigned char learned[2][20];
        unlink(at("now.tokens")), unlink(at("then.tokens"));
        CHECK(gx_token_file_write(at("now.tokens"), &c.file, c.ids, is_masked ? mask : NULL, &err) == GX_OK, "%s",
              err.message);
        make_older("now.tokens", "then.tokens");
        for (int i = 0; i < 2; i++) {
            said[0] = 0;
            if (!CHECK(gx_dataset_open_any(&d[i], at(i ? "then.tokens" : "now.tokens"), NULL, &bytes, 0.5, 8, 1,
                                           &log_of_test, &err) == GX_OK &&
                           gx_dataset_eval_sample(&d[i], 0, 8, tokens[i], labels[i], 1, &err) == GX_OK &&
                           gx_dataset_hash(&d[i], 1, &hash[i], &err) == GX_OK,
                       "%s", err.message))
                return;
            CHECK(i ? strstr(said, is_masked ? "then.tokens is a file of tokens of version 2"
                                             : "then.tokens is a file of tokens of version 1") &&
                          strstr(said, "no checksums")
                    : !said[0],
                  "%d: said %s", i, said);
            if (is_masked)
                CHECK(gx_token_file_read_mask(&d[i].file, d[i].fd, d[i].path, 0, 20, learned[i], &err) == GX_OK &&
                          learned[i][11] == 1 && learned[i][12] == 0,
                      "%s", err.message);
        }
        CHECK(!memcmp(tokens[0], tokens[1], sizeof tokens[0]) && !memcmp(labels[0], labels[1], sizeof labels[0]) &&
                  d[0].file.documents == d[1].file.documents && hash[0] != hash[1],
              "another text");
        for (int i = 0; i < 2; i++) gx_dataset_close(&d[i]);
    }
    gx_corpus_close(&c);
}

// By which ranks and resumed runs know a text: of a file with checksums it is read off its header.
TEST(another_token_makes_another_hash_of_a_file_of_tokens)
{
    enum { N = 70000 };
    static int32_t ids[N];
    static const int64_t begin[] = {0, 1};
    uint64_t hash[3];
    GxError err = GX_ZERO;
    for (int i = 0; i < 3; i++) {
        GxDataset d;
        ids[N - 1] = i == 1, ids[77] = i == 2;
        write_file("hashed.tokens", ids, N, begin, 2);
        CHECK(gx_dataset_open(&d, at("hashed.tokens"), 0, 1, &err) == GX_OK &&
                  gx_dataset_hash(&d, 1, &hash[i], &err) == GX_OK && !d.file.is_whole[0],
              "%s", err.message);
        gx_dataset_close(&d);
    }
    CHECK(hash[0] != hash[1] && hash[0] != hash[2] && hash[1] != hash[2], "one hash of several texts");
}

TEST(a_file_of_tokens_that_does_not_fit_is_refused)
{
    static const int32_t ids[] = {5, 6, 7, 8, 9};
    static const int64_t begin[] = {0, 2};
    static const struct {
        const char *what, *says;
        int offset;
        int64_t value;
        int bytes;
        const char *says_now; // of a file with checksums; NULL: that it is damaged
    } cases[] = {
        {"a version", "of version 5", 8, 5, 4, "of version 5"},
        {"no version", "of version 0", 8, 0, 4, "of version 0"},
        {"a mask that is not there", "announces", 8, 2, 4, "must be 0, but byte 112 is"},
        {"a newer header", "must be 0, but byte 104 is 1", 104, 1, 4, NULL},
        {"a width", "with 3 bytes each", 12, 3, 4, "with 3 bytes each"},
        {"no tokens", "announces", 16, 0, 8, NULL},
        {"a token more", "announces", 16, 9, 8, NULL},
        {"tokens beyond all", "announces", 16, INT64_MAX, 8, NULL},
        {"documents beyond all", "announces", 24, INT64_MAX / 8, 8, NULL},
        {"no documents", "announces", 24, 0, 8, NULL},
        {"negative bytes", "announces", 32, -1, 8, NULL},
        {"bytes of none", "10 bytes fewer than the 20", 32, 20, 8, NULL},
        {"bytes of others", "are not in order", 32, 5, 8, NULL},
        {"a first that begins later", "are not in order", 144, 1, 8, NULL},
        {"a second that begins first", "are not in order", 160, 0, 8, NULL},
        {"a second behind the end", "are not in order", 160, 5, 8, NULL},
        {"a name without an end", "has no end", 40, -1, 64, NULL},
    };
    GxError err = GX_ZERO;
    GxTokenFile f;
    char *text;
    int64_t n;
    write_file("good.tokens", ids, 5, begin, 2);
    make_older("good.tokens", "older.tokens"); // where no checksum stands before what is looked at
    for (int is_older = 0; is_older < 2; is_older++) {
        CHECK(gx_file_read(at(is_older ? "older.tokens" : "good.tokens"), 1 << 20, &text, &n, &err) == GX_OK &&
                  n == 144 + 32 + (is_older ? 0 : 8),
              "%ld bytes", (long)n);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char bad[184];
            memcpy(bad, text, (size_t)n);
            if (cases[i].bytes == 64) memset(bad + cases[i].offset, 'x', 64);
            else memcpy(bad + cases[i].offset, &cases[i].value, (size_t)cases[i].bytes);
            put("bad.tokens", bad, n);
            refused(&err, open_file(&f, "bad.tokens", &err), GX_ERR_FORMAT,
                    is_older            ? cases[i].says
                    : cases[i].says_now ? cases[i].says_now
                                        : "bad.tokens is damaged, or was changed",
                    cases[i].what);
        }
        for (int64_t cut = 8; cut < n; cut += 7) {
            put("bad.tokens", text, cut);
            refused(&err, open_file(&f, "bad.tokens", &err), GX_ERR_FORMAT, "bytes", "one that was cut off");
        }
        free(text);
    }
}

// ---- texts ---------------------------------------------------------------------------------------------------------

// The ids of a text by themselves, an end behind them.
static void check_document(const GxCorpus *c, int64_t i, const char *text, int32_t end)
{
    static int32_t ids[4000];
    GxError err = GX_ZERO;
    int64_t n = 0;
    if (!CHECK(i < c->file.documents, "there are %ld documents", (long)c->file.documents)) return;
    const int64_t begin = c->file.document[i].begin, length = c->file.document[i + 1].begin - begin;
    gx_tokenizer_encode(&bpe, text, (int64_t)strlen(text), GX_SPECIAL_AS_TEXT, ids, &n, &err);
    if (end >= 0) ids[n++] = end;
    CHECK(length == n && !memcmp(c->ids + begin, ids, 4 * n), "document %ld has %ld tokens, expected %ld", (long)i,
          (long)length, (long)n);
    CHECK(c->file.document[i].bytes == (int64_t)strlen(text), "document %ld: %ld bytes", (long)i,
          (long)c->file.document[i].bytes);
}

// Counts what a folder's files are passed over for.
static void count_passed(void *user, GxLogLevel level, const char *text)
{
    *(int *)user += level == GX_LOG_WARNING && strstr(text, "skipped: ") && strstr(text, "gone.") &&
                    strstr(text, ", which is a broken link");
}

TEST(a_folder_is_its_files_in_the_order_of_their_names_each_record_a_document)
{
    GxError err = GX_ZERO;
    GxCorpus c;
    CHECK(gx_folder_make(at("texts/sub"), &err) == GX_OK, "%s", err.message);
    put_text("texts/b.txt", "the second file\nhas two lines\n");
    put_text("texts/a.jsonl", "{\"text\": \"the first \\u00e9 record\", \"id\": 1}\n{\"text\": \"\"}\n{\"id\": 3}\n"
                              "{\"text\": \"and the last\\nof it\"}\n");
    put_text("texts/sub/z.TXT", "deeper");
    put_text("texts/sub/empty.txt", "");
    put_text("texts/c.md", "not this one");
    CHECK(gx_folder_make(at("texts/out/checkpoint-2"), &err) == GX_OK, "%s", err.message);
    put_text("texts/out/run.json", "{}");
    put_text("texts/out/log.jsonl", "{\"step\": 1}\n");
    put_text("texts/out/checkpoint-2/merges.txt", "t h\n");
    for (int threads = 1; threads <= 3; threads += 2)
        for (int32_t end = -1; end < 8; end += 8) {
            bpe.end = end;
            if (!CHECK(gx_corpus_open(&c, at("texts"), NULL, &bpe, threads, NULL, &err) == GX_OK, "%s", err.message))
                return;
            CHECK(c.file.documents == 4 && c.empty == 3 && c.file.document[4].begin == c.file.tokens,
                  "%ld documents, %ld empty", (long)c.file.documents, (long)c.empty);
            check_document(&c, 0, "the first \xC3\xA9 record", end);
            check_document(&c, 1, "and the last\nof it", end);
            check_document(&c, 2, "the second file\nhas two lines\n", end);
            check_document(&c, 3, "deeper", end);
            gx_corpus_close(&c);
        }
    int passed = 0;
    const GxLogger log = {count_passed, &passed};
    CHECK(symlink("nowhere", at("texts/gone.txt")) == 0, "no link");
    CHECK(gx_corpus_open(&c, at("texts"), NULL, &bpe, 1, &log, &err) == GX_OK && c.file.documents == 4 && passed == 1,
          "%d texts that are not there were named; %s", passed, err.message);
    gx_corpus_close(&c), unlink(at("texts/gone.txt"));
    CHECK(gx_corpus_open(&c, at("texts/b.txt"), NULL, &bpe, 1, NULL, &err) == GX_OK && c.file.documents == 1, "%s",
          err.message);
    check_document(&c, 0, "the second file\nhas two lines\n", -1); // a text alone has no end
    gx_corpus_close(&c);
    bpe.end = -1;
    put_text("bad.txt", "fine\nnot \xFF fine\n");
    refused(&err, gx_corpus_open(&c, at("bad.txt"), NULL, &bpe, 1, NULL, &err), GX_ERR_FORMAT, "bad.txt:2", "no UTF-8");
    put_text("bad.jsonl", "{\"txt\": \"a\"}\n");
    refused(&err, gx_corpus_open(&c, at("bad.jsonl"), NULL, &bpe, 1, NULL, &err), GX_ERR_FORMAT, "text", "no text");
    put_text("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 7}\n");
    refused(&err, gx_corpus_open(&c, at("bad.jsonl"), NULL, &bpe, 1, NULL, &err), GX_ERR_FORMAT, "bad.jsonl:2",
            "a number");
    CHECK(gx_folder_make(at("nothing"), &err) == GX_OK, "%s", err.message);
    refused(&err, gx_corpus_open(&c, at("nothing"), NULL, &bpe, 1, NULL, &err), GX_ERR_FORMAT, "there is no text in",
            "an empty folder");
}

// ---- texts, a piece at a time --------------------------------------------------------------------------------------

// Lines of many lengths, with all that may stand between and around them.
static const char *const lines_of_all_kinds[] = {
    "\xEF\xBB\xBF{\"text\": \"first\"}\n{\"text\": \"a second one that is longer than its neighbours are\"}\n{\"id\": "
    "1}\n{\"text\": \"\"}\n{\"text\": \"\xC3\xA9\xE6\x97\xA5\"}",
    "{\"text\": \"one\"}\r\n{\"text\": \"two\\nlines\"}\r\n{\"text\": null}\r\n\r\n\n\n", "{\"text\": \"alone\"}\n"};

static int corpora_equal(const GxCorpus *a, const GxCorpus *b)
{
    return a->file.tokens == b->file.tokens && a->file.documents == b->file.documents &&
           a->file.bytes == b->file.bytes && a->empty == b->empty &&
           !memcmp(a->ids, b->ids, (size_t)a->file.tokens * sizeof *a->ids) &&
           !memcmp(a->file.document, b->file.document, (size_t)(a->file.documents + 1) * sizeof *a->file.document);
}

static GxStatus read_pieces(GxCorpus *c, const char *path, int64_t piece, GxError *err)
{
    GxCorpusReader r;
    memset(c, 0, sizeof *c);
    GX_TRY(gx_corpus_reader_open(&r, path, NULL, &bpe, 2, NULL, err));
    GxStatus status = GX_OK;
    int64_t done = 0;
    r.piece = piece;
    while (status == GX_OK && r.place.file < r.files) {
        status = gx_corpus_reader_next(&r, c, err);
        const int64_t now = gx_corpus_reader_done(&r);
        CHECK(status != GX_OK || (now > done && now <= r.bytes), "%ld bytes are done, and were %ld", (long)now,
              (long)done);
        done = now;
    }
    CHECK(status != GX_OK || done == r.bytes, "%ld of %ld bytes", (long)done, (long)r.bytes);
    gx_corpus_reader_close(&r);
    return status;
}

TEST(pieces_of_any_size_give_the_same_documents_and_name_the_same_lines)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"{\"text\": \"a\"}\n\n\n{\"text\": \"b\"}\n", "p.jsonl:2: the line is empty, but others follow"},
               {"{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": 7}\n", "p.jsonl:3: \"text\" is"},
               {"{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"\n", "p.jsonl:3"},
               {"{\"text\": \"a\"}\n{\"text\": \"b\xFF\"}\n", "p.jsonl:2: the byte 0xFF at 25"},
               {"{\"id\": 1}\n{\"id\": 2}\n{\"id\": 3}\n", "no record has a \"text\""},
               {"\n\n\n", "holds no records"},
               {"", "is empty"}};
    GxError err = GX_ZERO;
    GxCorpus all, c;
    for (int k = 0; k < 3; k++) {
        put_text("p.jsonl", lines_of_all_kinds[k]);
        if (!CHECK(gx_corpus_open(&all, at("p.jsonl"), NULL, &bpe, 1, NULL, &err) == GX_OK, "%s", err.message)) return;
        CHECK(all.file.documents == (k == 0   ? 3
                                     : k == 1 ? 2
                                              : 1) &&
                  all.empty == (k == 0   ? 2
                                : k == 1 ? 1
                                         : 0),
              "%ld documents, %ld empty", (long)all.file.documents, (long)all.empty);
        for (int64_t piece = 1; piece <= 200; piece++) {
            CHECK(read_pieces(&c, at("p.jsonl"), piece, &err) == GX_OK && corpora_equal(&all, &c),
                  "text %d in pieces of %ld bytes: %s", k, (long)piece, err.message);
            gx_corpus_close(&c);
        }
        gx_corpus_close(&all);
    }
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        put_text("p.jsonl", bad[k].text);
        for (int64_t piece = 1; piece <= 60; piece += 1 + piece / 20) {
            refused(&err, read_pieces(&c, at("p.jsonl"), piece, &err), GX_ERR_FORMAT, bad[k].says, "a bad line");
            gx_corpus_close(&c);
        }
    }
}

// Text files share a piece: as many as fit it, up to records, and one at least.
TEST(text_files_are_read_a_piece_at_a_time_and_their_documents_are_those_of_one_after_the_other)
{
    static const char *const text[] = {"12345", "1234567890", "",
                                       "123",   "12",         "a much longer text than its neighbours"};
    static const struct {
        int64_t piece;
        int files[8]; // behind each piece: how many are done
    } expected[] = {{1, {1, 2, 3, 4, 5, 6, 7}}, {5, {1, 2, 5, 6, 7}}, {13, {1, 4, 5, 6, 7}}, {15, {3, 5, 6, 7}},
                    {18, {4, 5, 6, 7}},         {20, {5, 6, 7}},      {44, {5, 6, 7}},       {1000, {5, 6, 7}}};
    GxError err = GX_ZERO;
    GxCorpusReader r;
    GxCorpus c;
    char name[64];
    CHECK(gx_folder_make(at("pieces"), &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "pieces/%d.txt", i < 5 ? i : 6);
        put_text(name, text[i]);
    }
    put_text("pieces/5.jsonl", "{\"text\": \"a record\"}\n");
    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
        memset(&c, 0, sizeof c);
        if (!CHECK(gx_corpus_reader_open(&r, at("pieces"), NULL, &bpe, 1 + (int)k % 3, NULL, &err) == GX_OK, "%s",
                   err.message))
            return;
        r.piece = expected[k].piece;
        for (int i = 0; r.place.file < r.files && i < 8; i++)
            CHECK(gx_corpus_reader_next(&r, &c, &err) == GX_OK && r.place.file == expected[k].files[i],
                  "pieces of %ld bytes: %ld files behind piece %d: %s", (long)r.piece, (long)r.place.file, i,
                  err.message);
        CHECK(c.file.documents == 6 && c.empty == 1, "%ld documents", (long)c.file.documents);
        for (int i = 0; i < 6; i++)
            check_document(&c, i, i < 4 ? text[i + (i >= 2)] : i == 4 ? "a record" : text[5], -1);
        gx_corpus_reader_close(&r);
        gx_corpus_close(&c);
    }
}

// Threads share a long text: its document is what one of them would have made of it.
TEST(a_long_text_is_cut_among_threads_and_stays_one_document)
{
    static const char text[] = "One line,\nand another.\n\nBehind an empty one\n  and spaces\nare more:\nA\nB\nC";
    const GxTokenizer bytes = gx_tokenizer_bytes(); // whose texts can be cut behind a line
    GxError err = GX_ZERO;
    GxCorpusReader r;
    GxCorpus c, whole = GX_ZERO;
    CHECK(gx_folder_make(at("long"), &err) == GX_OK, "%s", err.message);
    put_text("long/a.txt", text), put_text("long/b.txt", "no line's end"), put_text("long/c.txt", text + 10);
    for (int cut = (int)sizeof text; cut > 0; cut--) {
        memset(&c, 0, sizeof c);
        if (!CHECK(gx_corpus_reader_open(&r, at("long"), NULL, &bytes, 2, NULL, &err) == GX_OK, "%s", err.message))
            return;
        r.cut = cut;
        CHECK(gx_corpus_reader_next(&r, &c, &err) == GX_OK && r.place.file == 3 && c.file.documents == 3, "%s",
              err.message);
        if (!whole.ids) whole = c;
        CHECK(corpora_equal(&whole, &c) && c.ids[0] == 'O', "parts of %d bytes: other documents", cut);
        gx_corpus_reader_close(&r);
        if (c.ids != whole.ids) gx_corpus_close(&c);
    }
    gx_corpus_close(&whole);
}

static struct {
    int pieces, killed_at; // of a run
} writing;

static void count_pieces(void *user, int64_t done, int64_t bytes, int64_t tokens)
{
    (void)user;
    CHECK(done <= bytes && tokens >= 0, "%ld of %ld bytes", (long)done, (long)bytes);
    if (writing.pieces++ == writing.killed_at) kill(getpid(), SIGKILL);
}

static void write_folder(void)
{
    char text[4000] = "";
    GxError err = GX_ZERO;
    CHECK(gx_folder_make(at("many/sub"), &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < 60; i++) sprintf(text + strlen(text), "{\"text\": \"%d of %d lines\"}\n", i, i * i);
    put_text("many/a.jsonl", text);
    put_text("many/b.txt", "a text of its own"), put_text("many/c.txt", "");
    put_text("many/sub/d.jsonl", lines_of_all_kinds[0]), put_text("many/sub/e.jsonl", lines_of_all_kinds[1]);
    put_text("many/z.jsonl", lines_of_all_kinds[2]);
}

static int same_files(const char *a, const char *b)
{
    uint64_t hash[2] = {0, 1};
    int64_t bytes[2];
    GxError err = GX_ZERO;
    return gx_file_hash(a, &hash[0], &bytes[0], &err) == GX_OK && gx_file_hash(b, &hash[1], &bytes[1], &err) == GX_OK &&
           hash[0] == hash[1] && bytes[0] == bytes[1];
}

TEST(a_file_that_is_written_in_parts_has_the_bytes_of_one_that_was_written_at_once)
{
    GxError err = GX_ZERO;
    GxCorpus c, all;
    write_folder();
    bpe.end = 5;
    unlink(at("once.tokens"));
    CHECK(gx_corpus_open(&c, at("many"), NULL, &bpe, 1, NULL, &err) == GX_OK &&
              gx_token_file_write(at("once.tokens"), &c.file, c.ids, NULL, &err) == GX_OK,
          "%s", err.message);
    for (int64_t part = 1; part <= 3000; part += part) {
        const GxCorpusWriting how = {1 + part % 2, NULL, NULL, NULL, part % 3 ? 100 : 0, part, NULL, 0, NULL};
        unlink(at("parts.tokens"));
        CHECK(gx_corpus_write(at("parts.tokens"), at("many"), &bpe, &how, &all, &err) == GX_OK, "%s", err.message);
        CHECK(same_files(at("once.tokens"), at("parts.tokens")), "parts of %ld bytes: another file", (long)part);
        CHECK(all.file.tokens == c.file.tokens && all.file.documents == c.file.documents &&
                  all.file.bytes == c.file.bytes && all.empty == c.empty && c.empty == 4,
              "parts of %ld bytes: other numbers", (long)part);
        CHECK(!gx_path_is_folder(at("parts.tokens.parts")), "the folder of parts is left");
    }
    gx_corpus_close(&c);
    bpe.end = -1;
    GxTokenDocument one = {0, 3}; // the widest part decides
    static const int32_t ids[2][2] = {{7, 65536}, {8, 9}};
    GxTokenFile f = {0, 2, 1, 3, "x", 0, &one, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, GX_ZERO, 0};
    const char *part[] = {at("wide.0"), at("wide.1")};
    CHECK(gx_token_file_write(part[0], &f, ids[0], NULL, &err) == GX_OK &&
              gx_token_file_write(part[1], &f, ids[1], NULL, &err) == GX_OK &&
              gx_token_file_join(at("wide.tokens"), part, 2, NULL, &f, &err) == GX_OK && f.width == 4 && f.tokens == 4,
          "%s", err.message);
    GxTokenFile joined;
    CHECK(open_file(&joined, "wide.tokens", &err) == GX_OK && joined.documents == 2 && joined.document[1].begin == 2,
          "%s", err.message);
    gx_token_file_close(&joined);
}

// Killed behind every piece in turn, and gone on with.
TEST(a_run_that_is_killed_goes_on_and_writes_the_same_bytes)
{
    GxCorpusWriting how = {1, NULL, count_pieces, NULL, 100, 150, NULL, 0, NULL};
    GxError err = GX_ZERO;
    GxCorpus c;
    write_folder();
    unlink(at("whole.tokens"));
    writing.pieces = 0, writing.killed_at = -1;
    CHECK(gx_corpus_write(at("whole.tokens"), at("many"), &bpe, &how, &c, &err) == GX_OK, "%s", err.message);
    const int pieces = writing.pieces;
    CHECK(pieces > 15, "%d pieces", pieces);
    for (int first = 0; first < pieces; first++) { // killed behind `first` pieces, then behind 2, and again
        int kills = 0, status = 1;
        unlink(at("killed.tokens"));
        while (status != 0 && kills < 100) {
            fflush(stdout);
            const pid_t child = fork();
            if (child == 0) {
                writing.pieces = 0, writing.killed_at = kills == 0 ? first : first % 3 == 0 ? -1 : 9;
                _exit(gx_corpus_write(at("killed.tokens"), at("many"), &bpe, &how, &c, &err) != GX_OK);
            }
            CHECK(waitpid(child, &status, 0) == child && (status == 0 || WIFSIGNALED(status)), "it ended with %d",
                  status);
            kills += status != 0;
            CHECK(gx_path_is_file(at("killed.tokens")) == (status == 0), "a file that is not whole");
        }
        CHECK(kills > 0 && same_files(at("whole.tokens"), at("killed.tokens")),
              "killed behind %d pieces and %d times: another file", first, kills);
        CHECK(!gx_path_is_folder(at("killed.tokens.parts")), "the folder of parts is left");
    }
}

// A part is kept, and progress.json says so.
static void kill_a_run(const GxCorpusWriting *how)
{
    GxCorpus c;
    GxError err = GX_ZERO;
    int status;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        writing.pieces = 0, writing.killed_at = 6;
        _exit(gx_corpus_write(at("half.tokens"), at("many"), &bpe, how, &c, &err));
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
              gx_path_is_file(at("half.tokens.parts/progress.json")),
          "it ended with %d", status);
}

TEST(parts_of_other_texts_or_of_another_tokenizer_or_damaged_ones_are_refused)
{
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"version", "2", "another version"}, {"tokenizer", "\"x\"", "it was written with another tokenizer: x"},
        {"file", "-1", "file is -1"},        {"file", "100", "it was damaged"},
        {"at", "1000000", "it was damaged"}, {"parts", "1000001", "parts is 1000001"},
        {"tokens", "1", "tokens in"},        {"documents", "null", "documents is missing"},
        {"parts", "90", "No such file"},     {"around", "5", "it was written with other tokens around a text"}};
    GxCorpusWriting how = {1, NULL, count_pieces, NULL, 100, 150, NULL, 0, NULL};
    GxError err = GX_ZERO;
    GxCorpus c;
    char old[40], changed[1200], *text, *at_key;
    int64_t bytes;
    write_folder();
    unlink(at("half.tokens"));
    kill_a_run(&how);
    writing.killed_at = -1;
    CHECK(gx_file_read(at("half.tokens.parts/progress.json"), 1000, &text, &bytes, &err) == GX_OK, "%s", err.message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(old, sizeof old, "\"%s\": ", cases[i].key);
        at_key = strstr(text, old) + strlen(old);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at_key - text), text, cases[i].value,
                 at_key + strcspn(at_key, ",\n"));
        put_text("half.tokens.parts/progress.json", changed);
        const GxStatus status = gx_corpus_write(at("half.tokens"), at("many"), &bpe, &how, &c, &err);
        CHECK(status != GX_OK && strstr(err.message, cases[i].says), "%s: %s", cases[i].key, err.message);
        gx_error_clear(&err);
        put_text("half.tokens.parts/progress.json", text);
    }
    put_text("many/b.txt", "a text of our own");
    refused(&err, gx_corpus_write(at("half.tokens"), at("many"), &bpe, &how, &c, &err), GX_ERR_ARGUMENT,
            "half.tokens.parts/progress.json belongs to a run that was not finished, and this run cannot continue it: "
            "the texts have changed since; remove ",
            "another text");
    CHECK(gx_folder_remove(at("half.tokens.parts"), &err) == GX_OK &&
              gx_folder_make(at("half.tokens.parts"), &err) == GX_OK,
          "%s", err.message);
    static const char *const own[] = {"part-of-my-life.txt", "part-1.tokens", "part-000001.tokens.notes",
                                      "progress.json.bak", "joined.tokens.tmp-mine"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        char name[100], says[100];
        snprintf(name, sizeof name, "half.tokens.parts/%s", own[i]);
        snprintf(says, sizeof says, "contains something else (%s)", own[i]);
        put_text(name, "mine");
        refused(&err, gx_corpus_write(at("half.tokens"), at("many"), &bpe, &how, &c, &err), GX_ERR_ARGUMENT, says,
                "somebody's own");
        CHECK(gx_path_is_file(at(name)), "%s was removed", name);
        unlink(at(name));
    }
    CHECK(gx_corpus_write(at("half.tokens"), at("many"), &bpe, &how, &c, &err) == GX_OK, "%s", err.message);
    free(text);
}

static void change_text(void *user, int64_t done, int64_t bytes, int64_t tokens)
{
    (void)user, (void)done, (void)bytes, (void)tokens;
    put_text("changing/b.txt", "a text of our own that is longer now");
    put_text("changing/c.jsonl", "{\"text\": \"SHORT\"}\n"); // as long as before
}

TEST(a_text_that_changes_while_a_file_of_tokens_is_written_is_an_error)
{
    GxCorpus c;
    GxError err = GX_ZERO;
    const GxCorpusWriting how = {1, NULL, change_text, NULL, 1, 0, NULL, 0, NULL};
    for (int i = 0; i < 2; i++) { // a text, and records
        CHECK(gx_folder_make(at("changing"), &err) == GX_OK, "%s", err.message);
        put_text("changing/a.txt", "a text");
        put_text(i ? "changing/c.jsonl" : "changing/b.txt", i ? "{\"text\": \"short\"}\n" : "a text of our own");
        usleep(20000); // times of files have steps of some milliseconds
        refused(&err, gx_corpus_write(at("changing.tokens"), at("changing"), &bpe, &how, &c, &err), GX_ERR_IO,
                "was changed while it was read", "a text that changed");
        CHECK(!gx_path_is_file(at("changing.tokens")), "the file is there");
        CHECK(gx_folder_remove(at("changing"), &err) == GX_OK, "%s", err.message);
    }
}

// ---- samples -------------------------------------------------------------------------------------------------------

// A corpus of documents of these many short words.
static void write_corpus(const char *name, const int *words, int n)
{
    char *text = (char *)calloc(1, 1 << 20), *p = text;
    for (int i = 0; i < n; i++) {
        p += sprintf(p, "{\"text\": \"");
        for (int w = 0; w < words[i]; w++) p += sprintf(p, "%d the %d ", i, w);
        p += sprintf(p, "\"}\n");
    }
    put_text(name, text);
    free(text);
}

TEST(whole_documents_are_held_out_unless_that_is_off_by_half)
{
    static const struct {
        int words[6];
        double fraction;
        int held_out; // whole documents; -1: a document is cut
    } cases[] = {
        {{20, 20, 20, 20, 20, 20}, 0.1, -1},  {{20, 20, 20, 20, 20, 20}, 0.34, 2}, {{20, 20, 20, 20, 20, 200}, 0.1, -1},
        {{500, 20, 20, 20, 20, 20}, 0.5, -1}, {{20, 20, 20, 20, 20, 20}, 0, 0},    {{20, 20, 20, 20, 20, 20}, 0.9, 5},
        {{39, 315, 2, 2, 2, 2}, 0.1, -1},     {{20, 20, 20, 20, 20, 20}, 0.2, 1},  {{90, 10, 10, 10, 10, 10}, 0.25, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxError err = GX_ZERO;
        GxDataset d;
        write_corpus("c.jsonl", cases[i].words, 6);
        if (!CHECK(gx_dataset_open_any(&d, at("c.jsonl"), NULL, &bpe, cases[i].fraction, 4, 1, NULL, &err) == GX_OK,
                   "%zu: %s", i, err.message))
            continue;
        const GxTokenFile *f = &d.file;
        const double wanted = cases[i].fraction * (double)f->tokens;
        int whole = -1;
        int64_t least = 0, most = 0; // bytes before the cut
        for (int k = 0; k <= 6; k++) {
            if (f->document[6 - k].begin == d.train.n) whole = k;
            if (k < 6 && f->document[k + 1].begin <= d.train.n) least += f->document[k].bytes;
            if (k < 6 && f->document[k].begin < d.train.n) most += f->document[k].bytes;
        }
        CHECK(whole == cases[i].held_out, "%zu: %d documents, expected %d; cut at %ld of %ld", i, whole,
              cases[i].held_out, (long)d.train.n, (long)f->tokens);
        CHECK((double)d.held_out.n >= wanted / 2 && (double)d.held_out.n <= 1.5 * wanted + 1, "%zu: %ld, wanted %g", i,
              (long)d.held_out.n, wanted);
        CHECK(whole >= 0 || (double)d.held_out.n - wanted < 1, "%zu: a document is cut at the part itself", i);
        CHECK(d.train.n + d.held_out.n == f->tokens && d.train_text.n + d.held_out_text.n == f->bytes &&
                  (d.held_out.n > 0) == (d.held_out_text.n > 0) && d.train_text.n >= least && d.train_text.n <= most &&
                  (whole >= 0 || (d.train_text.n > least && d.train_text.n < most)),
              "%zu: %ld bytes for training, from %ld to %ld", i, (long)d.train_text.n, (long)least, (long)most);
        gx_dataset_close(&d);
    }
}

// In memory and from a file; with every word counted by hand.
TEST(tokens_of_a_batch_know_their_document_and_its_last_one_predicts_nothing)
{
    enum { T = 24, B = 3, ROWS = T * B };
    static const int words[] = {3, 1, 9, 2, 2, 14, 5, 1, 1, 30, 4, 8};
    static int32_t batch[2][4 * ROWS];
    GxError err = GX_ZERO;
    int apart = 0;
    write_corpus("c.jsonl", words, 12);
    GxCorpus c;
    if (!CHECK(gx_corpus_open(&c, at("c.jsonl"), NULL, &bpe, 1, NULL, &err) == GX_OK, "%s", err.message)) return;
    unlink(at("c.tokens"));
    CHECK(gx_token_file_write(at("c.tokens"), &c.file, c.ids, NULL, &err) == GX_OK, "%s", err.message);
    for (int64_t first = 0; first < 60; first += B) {
        for (int way = 0; way < 2; way++) {
            GxCausalLm self;
            GxContext g = GX_ZERO;
            GxTaskSetup setup = GX_ZERO;
            GxBatch b = GX_ZERO;
            memset(&self, 0, sizeof self), memset(batch[way], 0, sizeof batch[way]);
            g.device = gx_device_cpu(), g.world = 1;
            setup.seq_len = T, setup.model = "";
            self.separate_documents = 1, self.validation_fraction = 0;
            snprintf(self.train_data, sizeof self.train_data, "%s", at(way ? "c.tokens" : "c.jsonl"));
            snprintf(self.tokenizer_path, sizeof self.tokenizer_path, "data/ref/bpe/byte_level.json");
            snprintf(self.chat_template, sizeof self.chat_template, "auto");
            snprintf(self.text_column, sizeof self.text_column, "text");
            snprintf(self.prompt_column, sizeof self.prompt_column, "prompt");
            snprintf(self.completion_column, sizeof self.completion_column, "completion");
            if (!CHECK(gx_causal_lm.data.open(&g, &self, &setup) == GX_OK, "%s", g.error.message)) return;
            CHECK(self.has_documents && setup.vocab == VOCAB && self.data.source[0].file.documents == 12, "way %d",
                  way);
            b.T = T, b.B = B, b.sample = first;
            CHECK(gx_causal_lm.batch.layout(&self, &b, batch[way], batch[way]) == sizeof batch[way], "bytes");
            CHECK(b.documents == batch[way] + 2 * ROWS, "where they lie");
            CHECK(gx_causal_lm.batch.fill(&g, &self, &b, batch[way], 5, &err) == GX_OK, "%s", err.message);
            gx_causal_lm.data.close(&self);
        }
        CHECK(!memcmp(batch[0], batch[1], sizeof batch[0]), "sample %ld: another batch from the file", (long)first);
        for (int64_t i = 0; i < B; i++) {
            const GxTokens all = {0, c.file.tokens};
            const int64_t start = gx_dataset_sample_start(&all, 5, first + i, T);
            for (int64_t t = 0; t < T; t++) {
                int64_t mine = 0, next = 0;
                while (c.file.document[mine + 1].begin <= start + t) mine++;
                while (c.file.document[next + 1].begin <= start + t + 1) next++;
                const int32_t *of = batch[0] + 2 * ROWS + 2 * (t * B + i), token = batch[0][t * B + i],
                              label = batch[0][ROWS + t * B + i];
                const int64_t begin = gx_max(0, c.file.document[mine].begin - start),
                              end = gx_min(T, c.file.document[mine + 1].begin - start);
                apart += mine != next;
                CHECK(token == c.ids[start + t] && label == (mine == next ? c.ids[start + t + 1] : GX_IGNORE_INDEX),
                      "sample %ld, position %ld: %d, then %d", (long)(first + i), (long)t, token, label);
                CHECK(of[0] == begin && of[1] == end, "sample %ld, position %ld: %d to %d, expected %ld to %ld",
                      (long)(first + i), (long)t, of[0], of[1], (long)begin, (long)end);
            }
        }
    }
    CHECK(apart > 20, "%d ends of documents were seen", apart);
    gx_corpus_close(&c);
}

TEST(a_text_alone_is_checked_as_those_of_a_folder_and_cut_between_characters)
{
    GxError err = GX_ZERO;
    GxDataset d;
    static const char *const bad[] = {"fine\nnot \xFF fine\n", "fine\ncut off \xE5\xA4"};
    for (int i = 0; i < 2; i++) {
        put_text("bad.txt", bad[i]);
        refused(&err, gx_dataset_open_any(&d, at("bad.txt"), NULL, &bpe, 0, 4, 1, NULL, &err), GX_ERR_FORMAT,
                "bad.txt:2", "no UTF-8");
    }
    put("bad.txt", "fine\n\0 of value 0\n", 18);
    refused(&err, gx_dataset_open_any(&d, at("bad.txt"), NULL, &bpe, 0, 4, 1, NULL, &err), GX_ERR_FORMAT, "bad.txt:2",
            "0");
    for (int behind = 0; behind < 2;
         behind++) { // a line of 240 characters of 2 bytes; with one more the cut falls in one
        char text[600] = "";
        for (int i = 0; i < 240; i++) strcat(text, "\xC3\xA9");
        if (behind) strcat(text, "a");
        put_text("line.txt", text);
        if (!CHECK(gx_dataset_open_any(&d, at("line.txt"), NULL, &bpe, 0.25, 4, 1, NULL, &err) == GX_OK, "%d: %s",
                   behind, err.message))
            return;
        CHECK(d.train_text.n == 360 && d.held_out_text.n == 120 + behind, "%d: cut at %ld", behind,
              (long)d.train_text.n);
        gx_dataset_close(&d);
    }
}

TEST(a_file_of_another_tokenizers_tokens_is_refused)
{
    static const int words[] = {20, 20};
    GxError err = GX_ZERO;
    GxCorpus c;
    GxDataset d;
    const GxTokenizer bytes = gx_tokenizer_bytes();
    write_corpus("c.jsonl", words, 2);
    unlink(at("c.tokens"));
    CHECK(gx_corpus_open(&c, at("c.jsonl"), NULL, &bytes, 1, NULL, &err) == GX_OK && c.file.tokens == c.file.bytes &&
              gx_token_file_write(at("c.tokens"), &c.file, c.ids, NULL, &err) == GX_OK,
          "bytes as tokens: %s", err.message);
    refused(&err, gx_dataset_open_any(&d, at("c.tokens"), NULL, &bpe, 0, 8, 1, NULL, &err), GX_ERR_ARGUMENT,
            "was made with the tokenizer byte-256, but this run's is bpe-1162", "another tokenizer");
    CHECK(gx_dataset_open_any(&d, at("c.tokens"), NULL, &bytes, 0, 8, 1, NULL, &err) == GX_OK && !d.ids, "%s",
          err.message);
    gx_dataset_close(&d);
    refused(&err, gx_dataset_open_any(&d, at("c.tokens"), NULL, &bytes, 0, 100000, 1, NULL, &err), GX_ERR_FORMAT,
            "tokens are left for training", "too few tokens");
    CHECK(gx_dataset_has_documents(at("c.tokens")) && gx_dataset_has_documents(at("c.jsonl")) &&
              gx_dataset_has_documents(root) && !gx_dataset_has_documents("README.md") &&
              !gx_dataset_has_documents(at("none")),
          "which has documents");
    gx_corpus_close(&c);
}

// ---- blends --------------------------------------------------------------------------------------------------------

// How many of the first n samples are of each source, as blend.h says it, in rational numbers: count[] of `n_parts`.
static void count_samples(const int64_t *part, int n_parts, int64_t n, int64_t *count)
{
    __extension__ typedef unsigned __int128 Wide;
    Wide all = 0;
    for (int s = 0; s < n_parts; s++) all += (Wide)part[s];
    for (int s = 0; s < n_parts; s++) {
        const Wide twice = 2 * (Wide)n * (Wide)part[s], below = twice / (2 * all), rest = twice % (2 * all);
        count[s] = (int64_t)(below + (rest >= all)); // the nearest
        n -= count[s], all -= (Wide)part[s];
    }
}

TEST(a_samples_source_follows_from_its_number_and_is_near_its_part_of_any_number_of_them)
{
    enum { MOST = 40 };
    static int64_t list[][MOST] = {
        {1}, {1, 1}, {3, 1}, {1, 1000000}, {1000000, 1}, {2, 3, 5, 7, 11}, {1 << 28, 1 << 28, 1, (1 << 29) - 1}, {0}};
    for (int i = 0; i < MOST; i++) list[7][i] = i % 3 ? 1 : 7;
    for (int k = 0; k < 8; k++) {
        int n = 0;
        int64_t all = 0, next[MOST] = {0}, count[MOST], after[MOST];
        while (n < MOST && list[k][n]) all += list[k][n++];
        for (int64_t i = 0; i < 4000; i++) { // each source's samples come one after the other
            int64_t number;
            const int s = gx_blend_find(list[k], n, i, &number);
            if (!CHECK(number == next[s], "list %d: sample %ld is number %ld of source %d, expected %ld", k, (long)i,
                       (long)number, s, (long)next[s]))
                break;
            next[s]++;
            count_samples(list[k], n, i + 1, count);
            for (int c = 0; c < n; c++) {
                const double part = (double)(i + 1) * (double)list[k][c] / (double)all;
                CHECK(count[c] == next[c] && gx_blend_share(list[k], n, c, i + 1) == next[c] &&
                          fabs((double)next[c] - part) <= (c + 1) / 2.0,
                      "list %d: of %ld samples %ld are of source %d, expected %ld", k, (long)i + 1, (long)next[c], c,
                      (long)count[c]);
            }
        }
        for (int i = 0; i < 2000; i++) { // anywhere
            int64_t number, at = (int64_t)(gx_philox(k, i, 1, 2).w[0]) << (i % 31);
            const int s = gx_blend_find(list[k], n, at, &number);
            count_samples(list[k], n, at, count), count_samples(list[k], n, at + 1, after);
            for (int c = 0; c < n; c++)
                CHECK(after[c] - count[c] == (c == s) && (c != s || number == count[c]),
                      "list %d: sample %ld is number %ld of source %d, and not of %d", k, (long)at, (long)number, s, c);
        }
        count_samples(list[k], n, all, count);
        for (int s = 0; s < n; s++)
            CHECK(count[s] == list[k][s] && gx_blend_share(list[k], n, s, all) == list[k][s],
                  "list %d: as many as there are parts, and %ld are of source %d", k, (long)count[s], s);
    }
}

TEST(a_source_without_a_part_has_no_share)
{
    static const int64_t part[3] = {3, 0, 0}, none[2] = {0, 0};
    CHECK(gx_blend_share(part, 3, 0, 7) == 7 && gx_blend_share(part, 3, 1, 7) == 0 &&
              gx_blend_share(part, 3, 2, 7) == 0,
          "of 3, 0, 0");
    CHECK(gx_blend_share(none, 2, 0, 7) == 0 && gx_blend_share(none, 2, 1, 7) == 0, "of 0, 0");
}

// A text, JSON lines and a file of tokens.
static const char *three_sources(void)
{
    static const int lines[] = {40, 3, 9, 30, 2, 14, 5, 11, 1, 30, 44, 8}, tokens[] = {200, 30, 170, 25, 60, 250};
    static char list[700];
    GxError err = GX_ZERO;
    GxCorpus c;
    char text[3000] = "";
    for (int i = 0; i < 120; i++) sprintf(text + strlen(text), "%d words and others\n", i * i);
    put_text("alone.txt", text);
    write_corpus("tokens.jsonl", tokens, 6), write_corpus("lines.jsonl", lines, 12);
    unlink(at("blend.tokens"));
    CHECK(gx_corpus_open(&c, at("tokens.jsonl"), NULL, &bpe, 1, NULL, &err) == GX_OK &&
              gx_token_file_write(at("blend.tokens"), &c.file, c.ids, NULL, &err) == GX_OK,
          "%s", err.message);
    gx_corpus_close(&c);
    snprintf(list, sizeof list, "%s,%s,%s", at("alone.txt"), at("lines.jsonl"), at("blend.tokens"));
    return list;
}

TEST(a_blends_samples_are_those_of_its_sources_in_epochs_of_their_own)
{
    enum { T = 12, STRIDE = 3 };
    static const char *const weights[] = {"", "5,2.5,2.5", "1e-3,1,0.5"};
    static const double parts[][3] = {{0, 0, 0}, {0.5, 0.25, 0.25}, {0.001 / 1.501, 1 / 1.501, 0.5 / 1.501}};
    const char *list = three_sources();
    CHECK(gx_blend_has_documents(list) && !gx_blend_has_documents(at("alone.txt")) && gx_blend_count_names(list) == 3,
          "three sources, two of which have documents");
    for (int w = 0; w < 3; w++) {
        GxError err = GX_ZERO;
        GxBlend b;
        if (!CHECK(gx_blend_open(&b, list, weights[w], &bpe, NULL, 0.2, T, 1, NULL, &err) == GX_OK, "%s", err.message))
            return;
        int64_t all = 0, windows[3], sum = 0, seen[3] = {0, 0, 0}, held_out[3] = {0, 0, 0};
        for (int s = 0; s < 3; s++) windows[s] = gx_tokens_epoch_samples(&b.source[s].train, T);
        for (int s = 0; s < 3; s++) all += b.part[s], sum += windows[s];
        for (int s = 0; s < 3; s++) {
            const double part = w ? parts[w][s] : (double)windows[s] / (double)sum;
            CHECK(fabs((double)b.part[s] / (double)all - part) < 1e-8, "%s: source %d has %ld parts of %ld", weights[w],
                  s, (long)b.part[s], (long)all);
        }
        for (int64_t i = 0; i < 2 * sum; i++) {
            int32_t ids[2][T * STRIDE], labels[2][T * STRIDE], documents[2][2 * T * STRIDE];
            const GxBlendSample to = {ids[0], labels[0], documents[0], -100, STRIDE};
            int64_t number;
            const int s = gx_blend_find(b.part, 3, i, &number);
            const GxDataset *d = &b.source[s];
            CHECK(number == seen[s]++, "sample %ld", (long)i);
            memset(ids, 0, sizeof ids), memset(labels, 0, sizeof labels), memset(documents, 0, sizeof documents);
            CHECK(gx_blend_sample(&b, 9, i, T, &to, NULL, &err) == GX_OK, "%s", err.message);
            CHECK(gx_dataset_sample(d, 9, number, T, ids[1], labels[1], STRIDE, &err) == GX_OK, "%s", err.message);
            const int64_t start = gx_dataset_sample_start(&d->train, 9, number, T);
            if (d->file.documents) gx_dataset_documents(d, start, T, ids[1], documents[1], labels[1], -100, STRIDE);
            for (int t = 0; !d->file.documents && t < T; t++) documents[1][2 * t * STRIDE + 1] = T;
            CHECK(!memcmp(ids[0], ids[1], sizeof ids[0]) && !memcmp(labels[0], labels[1], sizeof labels[0]) &&
                      !memcmp(documents[0], documents[1], sizeof documents[0]),
                  "sample %ld is another one than number %ld of source %d", (long)i, (long)number, s);
        }
        for (int s = 0; s < 3 && !w; s++)
            CHECK(seen[s] == 2 * windows[s], "source %d: %ld of %ld windows in two epochs", s, (long)seen[s],
                  (long)windows[s]);
        const int64_t n = gx_blend_eval_samples(&b);
        for (int64_t i = 0; i < n; i++) {
            int32_t ids[2][T], labels[2][T];
            const GxBlendSample to = {ids[0], labels[0], NULL, -100, 1};
            int64_t number;
            const int s = gx_blend_find(b.held_out, 3, i, &number);
            CHECK(number == held_out[s]++, "window %ld", (long)i);
            CHECK(gx_blend_eval_sample(&b, i, T, &to, &err) == GX_OK &&
                      gx_dataset_eval_sample(&b.source[s], number, T, ids[1], labels[1], 1, &err) == GX_OK &&
                      !memcmp(ids[0], ids[1], sizeof ids[0]) && !memcmp(labels[0], labels[1], sizeof labels[0]),
                  "window %ld is another one than number %ld of source %d", (long)i, (long)number, s);
        }
        for (int s = 0; s < 3; s++)
            CHECK(held_out[s] == gx_tokens_eval_samples(&b.source[s].held_out, T) && held_out[s] > 0,
                  "source %d: %ld windows are held out", s, (long)held_out[s]);
        gx_blend_close(&b);
    }
}

TEST(a_list_that_is_none_is_refused_and_a_comma_in_a_files_name_is_its_own)
{
    static const struct {
        const char *behind, *weights, *says;
    } cases[] = {
        {",", "", "expected paths separated by commas"},
        {",,x", "", "expected paths separated by commas"},
        {",no_such.txt", "", "no_such.txt"},
        {"", "1,2", "--train_data_weights: there are 2 weights (1,2), but 3 sources of data"},
        {"", "1,2,3,", "there are 4 weights"},
        {"", "1,0,1", "--train_data_weights: weight 2 of 1,0,1 is not a number from 1e-9 to 1e9"},
        {"", "1,1,-1", "weight 3 of"},
        {"", "nan,1,1", "weight 1 of"},
        {"", "0x1,1,1", "weight 1 of"},
        {"", " 1,1,1", "weight 1 of"},
        {"", "1,1e10,1", "weight 2 of"},
        {"", "1,,1", "weight 2 of"},
        {"", "1,1,1x", "weight 3 of"},
        {"", "1,1,1e", "weight 3 of"},
    };
    char list[900];
    GxError err = GX_ZERO;
    GxBlend b;
    const char *three = three_sources();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(list, sizeof list, "%s%s", three, cases[i].behind);
        const GxStatus status = gx_blend_open(&b, list, cases[i].weights, &bpe, NULL, 0.2, 12, 1, NULL, &err);
        CHECK(status != GX_OK && strstr(err.message, cases[i].says) && !b.source, "\"%s\", \"%s\": %s", cases[i].behind,
              cases[i].weights, err.message);
        gx_error_clear(&err);
    }
    snprintf(list, sizeof list, "%s,%s", three, at("alone.txt"));
    refused(&err, gx_blend_open(&b, list, "", &bpe, NULL, 0.2, 12, 1, NULL, &err), GX_ERR_ARGUMENT, "is named twice",
            "twice");
    snprintf(list, sizeof list, "%s,%s/./alone.txt", at("alone.txt"), root);
    refused(&err, gx_blend_open(&b, list, "", &bpe, NULL, 0.2, 12, 1, NULL, &err), GX_ERR_ARGUMENT,
            "/./alone.txt is named twice, also as", "twice, in two ways");
    put_text("array.json", " [{\"instruction\": \"say it\", \"output\": \"it\"}]");
    refused(&err, gx_blend_open(&b, at("array.json"), "", &bpe, NULL, 0.2, 12, 1, NULL, &err), GX_ERR_UNSUPPORTED,
            "is one JSON array; expected a .jsonl file with a record in each line", "an array of records");
    put_text("one, two.txt", "a text whose name has a comma in it, long enough to be cut into two samples");
    CHECK(gx_blend_open(&b, at("one, two.txt"), "", &bpe, NULL, 0, 12, 1, NULL, &err) == GX_OK && b.n == 1, "%s",
          err.message);
    gx_blend_close(&b);
}

// ---- llm.c's files -------------------------------------------------------------------------------------------------

static void write_bin(const char *name, int width, const int32_t *ids, int64_t n)
{
    unsigned char *file = (unsigned char *)calloc(1, (size_t)(1024 + width * n));
    const int32_t header[3] = {width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7, (int32_t)n};
    memcpy(file, header, sizeof header);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < width; k++) file[1024 + i * width + k] = (unsigned char)(ids[i] >> (8 * k));
    put(name, file, 1024 + width * n);
    free(file);
}

TEST(a_bin_file_that_does_not_fit_is_refused)
{
    static int32_t ids[40];
    static const struct {
        int at;
        int32_t value;
        int cut;
        const char *says;
    } cases[] = {{1, 2, 0, "the magic number 20240520 and version 2; expected"},
                 {0, 20240801, 0, "the magic number 20240801 and version 1; expected"},
                 {2, 41, 0, "of 1024 bytes and the 41 tokens of 2 bytes that it announces take 1106"},
                 {2, 0, 0, "announces no tokens"},
                 {2, -1, 0, "the 4294967295 tokens"},
                 {1, 1, 1, "has 1103 bytes"},
                 {1, 1, 1094, "has 10 bytes"},
                 {1, 1, 81, "has a header of 1024"}};
    GxError err = GX_ZERO;
    GxTokenFile f;
    char *text;
    int64_t n;
    write_bin("good.bin", 2, ids, 40);
    CHECK(gx_file_read(at("good.bin"), 1 << 20, &text, &n, &err) == GX_OK && n == 1104, "%s", err.message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char bad[1104];
        memcpy(bad, text, sizeof bad);
        memcpy(bad + 4 * cases[i].at, &cases[i].value, 4);
        put("bad.bin", bad, (int64_t)sizeof bad - cases[i].cut);
        refused(&err, open_file(&f, "bad.bin", &err), GX_ERR_FORMAT, cases[i].says, "a header");
    }
    free(text);
    const GxTokenizer bytes = gx_tokenizer_bytes();
    GxDataset d;
    refused(&err, gx_dataset_open_any(&d, at("good.bin"), NULL, &bytes, 0, 4, 1, NULL, &err), GX_ERR_ARGUMENT,
            "does not say which tokenizer made it; name that tokenizer (--tokenizer)", "no tokenizer");
    for (int i = 0; i < 40; i++) ids[i] = i == 33 ? VOCAB : 5;
    int32_t tokens[4], labels[4];
    write_bin("other.bin", 4, ids, 40);
    if (!CHECK(gx_dataset_open_any(&d, at("other.bin"), NULL, &bpe, 0, 4, 1, NULL, &err) == GX_OK && d.file.width == 4,
               "%s", err.message))
        return;
    int failed = 0;
    for (int64_t i = 0; i < gx_tokens_epoch_samples(&d.train, 4); i++)
        if (gx_dataset_sample(&d, 1, i, 4, tokens, labels, 1, &err) != GX_OK) {
            refused(&err, GX_ERR_FORMAT, GX_ERR_FORMAT,
                    "token 33 is 1162, but the tokenizer's ids are 0 to 1161: it was made with",
                    "an id of another tokenizer");
            failed++;
        }
    CHECK(failed == 1 || failed == 2, "%d windows have it", failed); // as a label, too
    gx_dataset_close(&d);
}

// The same documents as in a file of tokens of ours, whichever of its tokens says where they are.
TEST(documents_of_a_bin_file_are_between_the_tokenizers_own_tokens)
{
    enum { T = 10, END = 1, BEGIN = 2 };
    static const int words[] = {3, 1, 9, 2, 2, 14, 5, 1, 1, 30, 4, 8, 50, 22, 7, 19};
    static const struct {
        const char *what;
        int32_t before, behind, begins, ends; // in the data; of the tokenizer
        int width;
    } cases[] = {{"an end", -1, END, -1, END, 2},
                 {"a beginning", BEGIN, -1, BEGIN, -1, 4},
                 {"both", BEGIN, END, BEGIN, END, 2},
                 {"one token that is both", BEGIN, -1, BEGIN, BEGIN, 2}};
    const GxTokenizer plain = bpe;
    GxError err = GX_ZERO;
    GxCorpus c;
    write_corpus("c.jsonl", words, 16);
    if (!CHECK(gx_corpus_open(&c, at("c.jsonl"), NULL, &bpe, 1, NULL, &err) == GX_OK, "%s", err.message)) return;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        static int32_t ids[4000];
        GxTokenDocument document[17];
        GxTokenFile f = {0, 0, 16, c.file.bytes, "", 0, document, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, GX_ZERO, 0};
        GxDataset ours, bin;
        for (int i = 0; i < 16; i++) {
            document[i].begin = f.tokens, document[i].bytes = c.file.document[i].bytes;
            if (cases[k].before >= 0) ids[f.tokens++] = cases[k].before;
            for (int64_t t = c.file.document[i].begin; t < c.file.document[i + 1].begin; t++)
                ids[f.tokens++] = c.ids[t];
            if (cases[k].behind >= 0) ids[f.tokens++] = cases[k].behind;
        }
        memcpy(f.tokenizer, bpe.identity, sizeof f.tokenizer);
        unlink(at("ours.tokens"));
        CHECK(gx_token_file_write(at("ours.tokens"), &f, ids, NULL, &err) == GX_OK, "%s", err.message);
        write_bin("their.bin", cases[k].width, ids, f.tokens);
        bpe.end = cases[k].ends;
        if (cases[k].begins >= 0) {
            bpe.frame[0].n = 2;
            bpe.frame[0].part[0].id = cases[k].begins, bpe.frame[0].part[1].id = GX_FRAME_A;
        }
        if (!CHECK(gx_dataset_open_any(&ours, at("ours.tokens"), NULL, &bpe, 0.3, T, 1, NULL, &err) == GX_OK &&
                       gx_dataset_open_any(&bin, at("their.bin"), NULL, &bpe, 0.3, T, 1, NULL, &err) == GX_OK,
                   "%s: %s", cases[k].what, err.message))
            break;
        // 30%, or more, from where a document begins; no document of these is so long that it would be cut
        int64_t cut = 16;
        while (document[cut - 1].begin > f.tokens - (int64_t)ceil(0.3 * (double)f.tokens)) cut--;
        CHECK(bin.train.n == document[cut - 1].begin && bin.held_out.begin == bin.train.n &&
                  bin.held_out.n == f.tokens - bin.train.n,
              "%s: cut at %ld, expected %ld", cases[k].what, (long)bin.train.n, (long)document[cut - 1].begin);
        int apart = 0;
        for (int64_t at = 0; at + T < f.tokens; at++) {
            int32_t in[2][T], labels[2][T], documents[2][2 * T];
            const GxDataset *d[2] = {&ours, &bin};
            for (int i = 0; i < 2; i++) {
                GxDataset all = *d[i];
                all.held_out.begin = at; // a window of any place
                CHECK(gx_dataset_eval_sample(&all, 0, T, in[i], labels[i], 1, &err) == GX_OK, "%s", err.message);
                gx_dataset_documents(&all, at, T, in[i], documents[i], labels[i], -100, 1);
            }
            for (int t = 0; t < T; t++) apart += labels[0][t] == -100;
            CHECK(!memcmp(in[0], in[1], sizeof in[0]) && !memcmp(labels[0], labels[1], sizeof labels[0]) &&
                      !memcmp(documents[0], documents[1], sizeof documents[0]),
                  "%s: other documents from token %ld on", cases[k].what, (long)at);
        }
        CHECK(apart > 100, "%s: %d ends of documents were seen", cases[k].what, apart);
        gx_dataset_close(&ours), gx_dataset_close(&bin);
        bpe = plain;
    }
    bpe = plain;
    gx_corpus_close(&c);
}

TEST(a_folder_of_bin_files_is_a_source_for_each_and_shares_its_weight)
{
    enum { T = 8 };
    static int32_t ids[3000];
    GxError err = GX_ZERO;
    GxBlend b;
    char list[500];
    for (int i = 0; i < 3000; i++) ids[i] = 3 + i % 1000;
    CHECK(gx_folder_make(at("shards"), &err) == GX_OK && gx_folder_make(at("mixed"), &err) == GX_OK &&
              gx_folder_make(at("only_val"), &err) == GX_OK,
          "%s", err.message);
    write_bin("shards/x_train_000002.bin", 2, ids, 3000), write_bin("shards/x_train_000001.bin", 2, ids + 5, 1000);
    write_bin("shards/x_val_000000.bin", 2, ids, 500);
    put_text("shards/README.md", "where they are from");
    snprintf(list, sizeof list, "%s,%s", at("shards"), at("alone.txt"));
    three_sources();
    for (int w = 0; w < 2; w++) {
        if (!CHECK(gx_blend_open(&b, list, w ? "3,1" : "", &bpe, NULL, 0.1, T, 1, NULL, &err) == GX_OK, "%s",
                   err.message))
            return;
        CHECK(b.n == 3 && strstr(b.source[0].path, "_000001.bin") && strstr(b.source[1].path, "_000002.bin") &&
                  b.name[1] == 0 && b.name[2] == 1 && b.source[0].train.n == 900 && b.source[1].train.n == 2700,
              "%d sources", b.n);
        const double all = (double)(b.part[0] + b.part[1] + b.part[2]), of_bins = 111 + 336; // (900 - 8) / 8, ...
        CHECK(b.held_out[0] == 99 / T && b.held_out[1] == 299 / T, "held out: %ld", (long)b.held_out[0]);
        if (w)
            CHECK(fabs((double)b.part[0] / all - 0.75 * 111 / of_bins) < 1e-8 &&
                      fabs((double)b.part[1] / all - 0.75 * 336 / of_bins) < 1e-8,
                  "the parts are %ld and %ld of %g", (long)b.part[0], (long)b.part[1], all);
        else CHECK(b.part[0] == 111 && b.part[1] == 336, "the parts are %ld and %ld", (long)b.part[0], (long)b.part[1]);
        gx_blend_close(&b);
    }
    int passed = 0;
    const GxLogger log = {count_passed, &passed};
    CHECK(symlink("nowhere", at("shards/gone.bin")) == 0, "no link");
    CHECK(gx_blend_open(&b, list, "", &bpe, NULL, 0.1, T, 1, &log, &err) == GX_OK && b.n == 3 && passed == 1,
          "%d files that are not there were named; %s", passed, err.message);
    gx_blend_close(&b), unlink(at("shards/gone.bin"));
    write_bin("mixed/a.bin", 2, ids, 500), put_text("mixed/b.txt", "a text");
    refused(&err, gx_blend_open(&b, at("mixed"), "", &bpe, NULL, 0, T, 1, NULL, &err), GX_ERR_ARGUMENT,
            "has both .bin files and texts (b.txt)", "a folder of both");
    put_text("mixed/b.bin", "a text"), unlink(at("mixed/b.txt"));
    refused(&err, gx_blend_open(&b, at("mixed"), "", &bpe, NULL, 0, 1, 1, NULL, &err), GX_ERR_UNSUPPORTED,
            "b.bin is a file of tokens by its name, but does not begin like one", "another .bin");
    write_bin("only_val/x_val_1.bin", 2, ids, 500);
    refused(&err, gx_blend_open(&b, at("only_val"), "", &bpe, NULL, 0, T, 1, NULL, &err), GX_ERR_FORMAT,
            "have _val_ in", "none");
}

// ---- what is no text -----------------------------------------------------------------------------------------------

// All that was warned of, and said.
static void hear_all(void *user, GxLogLevel level, const char *text)
{
    const size_t have = strlen(said);
    (void)user, (void)level;
    snprintf(said + have, sizeof said - have, "%s\n", text);
}
static const GxLogger log_of_all = {hear_all, NULL};

static GxStatus open_any(const char *name, const GxTokenizer *t, int64_t T, GxError *err)
{
    GxDataset d;
    said[0] = 0;
    GX_TRY(gx_dataset_open_any(&d, at(name), NULL, t, 0, T, 1, &log_of_all, err));
    gx_dataset_close(&d);
    return GX_OK;
}

TEST(a_file_of_another_kind_is_refused_by_its_first_bytes_whatever_its_name)
{
    static const struct {
        const char *bytes;
        int n, at;
        const char *words;
    } kinds[] = {{"\x1F\x8B\x08\0\0", 5, 0, "compressed with gzip"},
                 {"BZh91AY&SY", 10, 0, "bzip2"},
                 {"\xFD"
                  "7zXZ\0",
                  6, 0, "compressed with xz"},
                 {"\x28\xB5\x2F\xFD", 4, 0, "Zstandard"},
                 {"\x04\x22\x4D\x18", 4, 0, "LZ4"},
                 {"PK\x03\x04", 4, 0, "a ZIP archive"},
                 {"7z\xBC\xAF\x27\x1C", 6, 0, "7z"},
                 {"Rar!\x1A\x07\x01", 7, 0, "RAR"},
                 {"ustar\0", 6, 257, "tar -xf"},
                 {"PAR1\x15\0\x15", 7, 0, "a Parquet table"},
                 {"ARROW1\0\0", 8, 0, "an Arrow or Feather table"},
                 {"FEA1\0\0\0", 7, 0, "a Feather table, version 1"},
                 {"\xFF\xFF\xFF\xFF\x78", 5, 0, "an Arrow stream"},
                 {"ORC\x11\x0A", 5, 0, "ORC"},
                 {"Obj\x01\x04", 5, 0, "Avro"},
                 {"SQLite format 3\0", 16, 0, "SQLite"},
                 {"\x89HDF\r\n\x1A\n", 8, 0, "HDF5"},
                 {"\x93NUMPY\x01\0", 8, 0, "a NumPy array"},
                 {"\x80\x02}q", 4, 0, "pickle"},
                 {"\x80\x03}q", 4, 0, "pickle"},
                 {"\x80\x04\x95", 3, 0, "pickle"},
                 {"\x80\x05\x95", 3, 0, "pickle"},
                 {"MMIDIDX\0\0\1", 10, 0, "Megatron"},
                 {"\x40\0\0\0\0\0\0\0{\"__meta", 16, 0, "weights of a model"},
                 {"GGUF\3\0\0\0", 8, 0, "a GGUF model"},
                 {"%PDF-1.7\n", 9, 0, "pdftotext"},
                 {"\xD0\xCF\x11\xE0\xA1", 5, 0, "office"},
                 {"\x89PNG\r\n", 6, 0, "a picture"},
                 {"\xFF\xD8\xFF\xE0", 4, 0, "a picture"},
                 {"GIF89a\1\0", 8, 0, "a picture"},
                 {"RIFF\x24\0\0\0WAVE", 12, 0, "sound"},
                 {"OggS\0\2", 6, 0, "sound"},
                 {"fLaC\0\0", 6, 0, "sound"},
                 {"ID3\4\0", 5, 0, "sound"},
                 {"\x7F"
                  "ELF\2\1",
                  6, 0, "a program"},
                 {"{\\rtf1\\ansi", 10, 0, "an RTF document"},
                 {"%!PS-Adobe-3.0", 14, 0, "PostScript"},
                 {"\xFF\xFE\0\0H\0\0\0", 8, 0, "iconv -f UTF-32"},
                 {"\0\0\xFE\xFF\0\0\0H", 8, 0, "iconv -f UTF-32"},
                 {"\xFF\xFEH\0i\0", 6, 0, "iconv -f UTF-16"},
                 {"\xFE\xFF\0H\0i", 6, 0, "iconv -f UTF-16"}};
    const GxTokenizer bytes = gx_tokenizer_bytes();
    GxError err = GX_ZERO;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int records = 0; records < 2; records++) {
            char data[600];
            memset(data, 'x', sizeof data);
            memcpy(data + kinds[k].at, kinds[k].bytes, (size_t)kinds[k].n);
            put(records ? "d.jsonl" : "d.txt", data, sizeof data);
            refused(&err, open_any(records ? "d.jsonl" : "d.txt", &bytes, 8, &err), GX_ERR_UNSUPPORTED, kinds[k].words,
                    records ? "records" : "a text");
            refused(&err, gx_file_check_kind(at(records ? "d.jsonl" : "d.txt"), GX_FILE_AS_IT_IS, &err),
                    GX_ERR_UNSUPPORTED, "by its first bytes", kinds[k].words);
        }
    // words that a text may begin with are a text's
    static const char *const texts[] = {"PAR1 is a line of the plan of Paris.\n",
                                        "GIF89a is a format.\n",
                                        "RIFF raff, says the poem.\n",
                                        "ORC means bad.\n",
                                        "ID3 is an algorithm.\n",
                                        "\xEF\xBB\xBFWith a mark.\n",
                                        "PK is short.\n",
                                        "\tIndented by a tab.\n"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        put_text("d.txt", texts[k]);
        CHECK(open_any("d.txt", &bytes, 8, &err) == GX_OK && !said[0], "%s: %s%s", texts[k], err.message, said);
        gx_error_clear(&err);
    }
}

TEST(a_file_of_another_kind_is_refused_by_its_name_whatever_is_in_it)
{
    static const struct {
        const char *name;
        int corpus, text, lines, table, plain; // 1: read there
        const char *words;
    } names[] = {{"d.gz", 0, 0, 0, 0, 0, ": if it really is that, unpack it with gzip -d, otherwise rename it"},
                 {"d.html", 0, 0, 0, 0, 1, "an HTML page, judging by its name"},
                 {"d.HTM", 0, 0, 0, 0, 1, "an HTML page, judging by its name"},
                 {"d.ps", 0, 0, 0, 0, 0, "ps2ascii"},
                 {"d.jsonl.gz", 0, 0, 0, 0, 0, "gzip -d"},
                 {"D.GZ", 0, 0, 0, 0, 0, "gzip -d"},
                 {"d.parquet", 0, 0, 0, 0, 0, "read_parquet(FILE).to_json"},
                 {"d.arrow", 0, 0, 0, 0, 0, "by its name"},
                 {"d.feather", 0, 0, 0, 0, 0, "read_feather"},
                 {"d.zip", 0, 0, 0, 0, 0, "unzip"},
                 {"d.zst", 0, 0, 0, 0, 0, "zstd -d"},
                 {"d.bz2", 0, 0, 0, 0, 0, "bzip2 -d"},
                 {"d.xz", 0, 0, 0, 0, 0, "xz -d"},
                 {"d.csv", 0, 0, 0, 1, 1, "a table"},
                 {"d.tsv", 0, 0, 0, 1, 1, "a table"},
                 {"d.npz", 0, 0, 0, 0, 0, "NumPy"},
                 {"d.npy", 0, 0, 0, 0, 0, "./tokenize --corpus"},
                 {"d.pickle", 0, 0, 0, 0, 0, "pickle"},
                 {"d.pkl", 0, 0, 0, 0, 0, "pickle"},
                 {"d.pdf", 0, 0, 0, 0, 0, "pdftotext"},
                 {"d.sqlite", 0, 0, 0, 0, 0, "a SQLite database"},
                 {"d.h5", 0, 0, 0, 0, 0, "HDF5"},
                 {"d.docx", 0, 0, 0, 0, 0, "word processor"},
                 {"d.xlsx", 0, 0, 0, 0, 0, "read_excel"},
                 {"d.pt", 0, 0, 0, 0, 0, "PyTorch"},
                 {"d.safetensors", 0, 0, 0, 0, 0, "weights"},
                 {"d.png", 0, 0, 0, 0, 0, "picture"},
                 {"d.bin", 0, 0, 1, 1, 1, "no header"},
                 {"d.tokens", 0, 0, 1, 1, 1, "./tokenize --corpus"},
                 {"d.txt", 1, 1, 1, 1, 1, ""},
                 {"d.md", 1, 1, 1, 1, 1, ""},
                 {"d", 1, 1, 1, 1, 1, ""},
                 {".gz", 1, 1, 1, 1, 1, ""},
                 {"d.csv.txt", 1, 1, 1, 1, 1, ""},
                 {"d.jsonl", 1, 0, 1, 1, 1, "jq -r .text"}};
    static const char *const use[] = {"a corpus", "a text", "lines", "a table", "a prompt"};
    GxError err = GX_ZERO;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const int taken[] = {names[k].corpus, names[k].text, names[k].lines, names[k].table, names[k].plain};
        put_text(names[k].name, "A text that is one.\n");
        for (int u = 0; u < 5; u++) {
            const GxStatus status = gx_file_check_kind(at(names[k].name), (GxFileUse)u, &err);
            if (!taken[u]) refused(&err, status, GX_ERR_UNSUPPORTED, names[k].words, use[u]);
            else CHECK(status == GX_OK, "%s as %s: %s", names[k].name, use[u], err.message);
            gx_error_clear(&err);
        }
        unlink(at(names[k].name));
    }
    put_text("d.gz", "\x1F\x8B\x08");
    refused(&err, gx_file_check_kind(at("d.gz"), GX_FILE_AS_TEXT, &err), GX_ERR_UNSUPPORTED,
            "text in UTF-8: unpack it with gzip -d", "gzip's under its own name");
    unlink(at("d.gz"));
    static const char *const pages[] = {"<!DOCTYPE html>\n<p>A", "<!doctype html>\n<p>A", "<html><p>A", "<HTML><P>A"};
    for (size_t k = 0; k < sizeof pages / sizeof *pages; k++) {
        put_text("d.txt", pages[k]);
        refused(&err, gx_file_check_kind(at("d.txt"), GX_FILE_AS_CORPUS, &err), GX_ERR_UNSUPPORTED,
                "an HTML page, judging by its first bytes", pages[k]);
        CHECK(gx_file_check_kind(at("d.txt"), GX_FILE_AS_IT_IS, &err) == GX_OK, "a prompt: %s", err.message);
    }
    put_text("d.json", " \n[{\"text\": \"a\"}]");
    refused(&err, gx_file_check_kind(at("d.json"), GX_FILE_AS_TEXT, &err), GX_ERR_UNSUPPORTED, "jq -c '.[]'",
            "an array");
    put_text("d.json", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    refused(&err, gx_file_check_kind(at("d.json"), GX_FILE_AS_CORPUS, &err), GX_ERR_UNSUPPORTED, "jq -c . ", "objects");
    CHECK(gx_file_check_kind(at("d.json"), GX_FILE_AS_TABLE, &err) == GX_OK, "%s", err.message);
    put_text("d.jsonl", "[\n  {\"text\": \"a\"}]");
    refused(&err, gx_file_check_kind(at("d.jsonl"), GX_FILE_AS_LINES, &err), GX_ERR_UNSUPPORTED, "one JSON array",
            "an array as lines");
    CHECK(gx_file_check_kind(at("nowhere.gz"), GX_FILE_AS_TEXT, &err) == GX_OK, "who opens it says why: %s",
          err.message);
}

TEST(what_looks_like_something_else_is_read_and_said_to_be)
{
    const GxTokenizer bytes = gx_tokenizer_bytes();
    GxError err = GX_ZERO;
    put_text("d.txt", "{\"text\": \"first\"}\n{\"text\": \"second\"}\n");
    CHECK(open_any("d.txt", &bytes, 8, &err) == GX_OK && strstr(said, "looks like JSON lines"), "%s%s", err.message,
          said);
    put("d.txt", "some text\0and more of it", 24);
    CHECK(open_any("d.txt", &bytes, 8, &err) == GX_OK && strstr(said, "a byte of value 0 (number 9)"), "%s%s",
          err.message, said);
    put_text("d.txt", "\xC3\xA9t\xC3\xA9 caf\xE9 au lait");
    CHECK(open_any("d.txt", &bytes, 8, &err) == GX_OK && strstr(said, "d.txt is not UTF-8 (byte 9 is 0xE9)"), "%s%s",
          err.message, said);
    put_text("d.txt", "\xC3\xA9t\xC3\xA9, all of it, up to \xC3");
    CHECK(open_any("d.txt", &bytes, 8, &err) == GX_OK && !said[0], "%s%s", err.message, said);
    gx_folder_make(at("beside"), &err);
    put_text("beside/a.txt", "A text that is read."), put_text("beside/b.txt.gz", "b"), put_text("beside/c.md", "c");
    CHECK(open_any("beside", &bytes, 8, &err) == GX_OK &&
              strstr(said, "beside: 2 files whose names end in neither .txt nor .jsonl: b.txt.gz, c.md"),
          "%s%s", err.message, said);
    unlink(at("beside/c.md"));
    CHECK(open_any("beside", &bytes, 8, &err) == GX_OK && strstr(said, "beside: 1 file whose name ends in"), "%s%s",
          err.message, said);
    gx_folder_remove(at("beside"), &err);
}

// ---- ends of texts, and what is learned ----------------------------------------------------------------------------

TEST(ends_of_text_that_are_written_out_or_missing_are_said_to_be)
{
    const GxTokenizer plain = bpe, bytes = gx_tokenizer_bytes();
    static char text[70000];
    GxError err = GX_ZERO;
    GxError *e = &err;
    // one that lies on the border of two pieces that are read, and one right before it
    memset(text, 'a', sizeof text - 1);
    memcpy(text + 65536 - 20, "<|endoftext|><|endoftext|>", 26), memcpy(text + 100, "<|endoftext|>", 13);
    put("d.txt", text, sizeof text - 1);
    CHECK(open_any("d.txt", &bytes, 8, e) == GX_OK && strstr(said, "d.txt contains <|endoftext|> as text, 3 times"),
          "%s%s", err.message, said);
    put_text("d.txt", "A text about <|endoftext|>, once, and <|endo of no use.");
    CHECK(open_any("d.txt", &bytes, 8, e) == GX_OK && !said[0], "%s%s", err.message, said);
    put_text("d.jsonl", "{\"text\": \"one<|endoftext|>\"}\n{\"text\": \"two<|endoftext|>\"}\n");
    CHECK(
        open_any("d.jsonl", &bytes, 8, e) == GX_OK && strstr(said, "as text, 2 times") &&
            strstr(said,
                   "the model will not learn to end its 2 documents, because the tokenizer byte-256 has no eos_token"),
        "%s%s", err.message, said);
    put_text("d.jsonl", "{\"text\": \"one text of a few words\"}\n{\"content\": \"two\"}\n{\"text\": \"\"}\n");
    CHECK(open_any("d.jsonl", &bytes, 8, e) == GX_OK &&
              strstr(said, "d.jsonl: 2 of 3 texts are empty, or from records without a \"text\", and left out"),
          "%s%s", err.message, said);
    put_text("d.jsonl", "{\"text\": \"one text of a few words\"}\n{\"text\": \"two\"}\n");
    bpe.end = 1;
    CHECK(open_any("d.jsonl", &bpe, 8, e) == GX_OK && !strstr(said, "no end"), "%s%s", err.message, said);
    bpe.end = -1;
    CHECK(open_any("d.jsonl", &bpe, 4, e) == GX_OK && strstr(said, "the model will not learn to end its 2 documents"),
          "%s%s", err.message, said);
    bpe = plain;
}

TEST(a_bin_file_whose_documents_end_with_another_token_is_said_to)
{
    enum { N = 400, TURN = 0, END = 1157 }; // <|end|> and, in place of <|im_start|>, <|endoftext|>
    static int32_t ids[N];
    static const struct {
        int32_t end, stands; // the tokenizer's; every 20th token, -1: none
        const char *words;
    } cases[] = {
        {END, END, ""},
        {END, -1, "none of its first 400 tokens is <|endoftext|>, which is assumed to separate documents"},
        {TURN, END,
         "between tokens <|end|>, the tokenizer's eos_token and the end of a turn, of which there are 0 in the first "
         "400, but 20 <|endoftext|>: they are separated in the wrong places; name a --tokenizer whose eos_token is "
         "<|endoftext|>"},
        {TURN, TURN,
         "end with <|end|>, the tokenizer's eos_token, which is also the end of a turn (20 of the first 400"},
        {700, END, "of which there are 1 in the first 400, but 20 <|endoftext|>"},
    };
    char *text, *found;
    int64_t bytes;
    GxError err = GX_ZERO;
    GxTokenizer t;
    FILE *out = fopen(at("ends.json"), "w");
    CHECK(gx_file_read("data/ref/bpe/byte_level.json", 1 << 22, &text, &bytes, &err) == GX_OK, "%s", err.message);
    for (char *from = text; out && from; from = found ? found + strlen("<|im_start|>") : NULL) {
        found = strstr(from, "<|im_start|>");
        fprintf(out, "%.*s%s", (int)(found ? found - from : (ptrdiff_t)strlen(from)), from,
                found ? "<|endoftext|>" : "");
    }
    free(text);
    if (out) fclose(out);
    if (!CHECK(gx_tokenizer_open(&t, at("ends.json"), &err) == GX_OK, "%s", err.message)) return;
    CHECK(gx_tokenizer_find(&t, "<|endoftext|>") == END && gx_tokenizer_find(&t, "<|end|>") == TURN, "other ids");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        for (int i = 0; i < N; i++) ids[i] = i % 20 == 19 && cases[k].stands >= 0 ? cases[k].stands : 500 + i;
        write_bin("d.bin", 2, ids, N);
        t.end = cases[k].end;
        CHECK(open_any("d.bin", &t, 8, &err) == GX_OK &&
                  (cases[k].words[0] ? strstr(said, cases[k].words) != NULL : !said[0]),
              "case %d: %s%s", (int)k, err.message, said);
    }
    gx_tokenizer_close(&t);
}

TEST(a_mask_of_which_nothing_is_learned_is_refused_and_samples_without_anything_are_counted)
{
    enum { N = 33, T = 4 }; // windows of labels [1, 5), [5, 9), … : 8 of them
    static const struct {
        int64_t bits; // of the tokens that are learned, at most two
        int held_out;
        const char *words;
    } cases[] = {{0, 0, "its mask excludes all of the 33 tokens for training"},
                 {1, 0, "all of the 33"}, // the first is no label
                 {2, 0, "in 7 of 8 samples of 4 tokens"},
                 {(int64_t)1 << 32 | 2, 0, "6 of 8 samples"},
                 {0x1FFFFFFFF, 0, ""},
                 {0x7, 1, "its mask excludes all that is held out"}};
    static int32_t ids[N];
    GxTokenDocument document[] = {{0, N}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxTokenFile f = {0, N, 1, N, "bytes", 0, document, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, GX_ZERO, 0};
        const GxTokenizer bytes = gx_tokenizer_bytes();
        unsigned char mask[8];
        GxDataset d;
        GxError err = GX_ZERO;
        memcpy(mask, &cases[k].bits, 8), snprintf(f.tokenizer, sizeof f.tokenizer, "%s", bytes.identity);
        unlink(at("d.tokens"));
        CHECK(gx_token_file_write(at("d.tokens"), &f, ids, mask, &err) == GX_OK, "%s", err.message);
        said[0] = 0;
        const GxStatus status =
            gx_dataset_open_any(&d, at("d.tokens"), NULL, &bytes, cases[k].held_out ? 0.5 : 0, T, 1, &log_of_all, &err);
        if (k < 2) refused(&err, status, GX_ERR_FORMAT, cases[k].words, "nothing is learned");
        else if (CHECK(status == GX_OK, "%s", err.message)) gx_dataset_close(&d);
        if (k >= 2)
            CHECK(cases[k].words[0] ? strstr(said, cases[k].words) != NULL : !said[0], "case %d: %s", (int)k, said);
    }
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    strcpy(root, "/tmp/galaxy_test_corpus_XXXXXX");
    if (!mkdtemp(root) || gx_tokenizer_open(&bpe, "data/ref/bpe/byte_level.json", &err) != GX_OK) {
        fprintf(stderr, "test_corpus: %s\n", err.message);
        return 1;
    }
    const int status = test_main(argc, argv);
    gx_tokenizer_close(&bpe);
    gx_folder_remove(root, &err);
    return status;
}
