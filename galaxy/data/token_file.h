// token_file.h: a corpus as tokens in a file, which `tokenize --corpus` writes once and trainings read many times, at
// any place.
//
//     "GXTOKENS" | u32 version, 3 | u32 bytes of a token, 2 or 4 | i64 tokens | i64 documents | i64 bytes of their
//     texts | char tokenizer[64], its identity, 0 behind it | u32 1 where there is a mask, else 0 | u32 0 | u64
//     checksum of the table at the end | u64 checksum of the 120 bytes before | the tokens | zeros up to a multiple of
//     8 | for each document {i64 its first token, i64 bytes of its text} | its mask: bit t % 8 of byte t / 8 is 1 where
//     token t is learned, 0 where it is only read (a prompt) | zeros up to a multiple of 8 | the table: u64 checksum of
//     each 65536 bytes between the header and the table
//
// Little-endian. Documents follow one another without gaps, and each has a token at least. Checksums are 64-bit FNV-1a.
// A block is checked when any of it is read for the first time, which reads it once more; opening a file checks only
// the blocks with the table of documents. So a changed byte, a block of zeros or one of another file is an error in
// reading, and never trained on.
//
// Version 4 is for conversations (dataset_chat.h): it has a mask, and the u32 0 after has_mask is the length of a text;
// the mask is followed by a bit for each document, 1 if it belongs to the same conversation as the previous one | zeros
// up to a multiple of 8 | the text, JSON that describes how the conversations were made (GxTokenChats) | zeros up to a
// multiple of 8. All of this is in blocks with checksums.
//
// Files of versions 1 (without a mask) and 2 (with one) have no table, and zeros from byte 104 to 128. In reading these
// only a wrong size is noticed, not other damage.
//
// Files of llm.c's are read, too (.bin: dataloader.h and dev/data there): 256 i32 {magic 20240520, version 1, tokens}
// and ids of 2 bytes, or {20240801, 7, tokens} and ids of 4. They name neither the tokenizer nor where documents begin,
// which is marked by one of its tokens.
#ifndef GX_TOKEN_FILE_H
#define GX_TOKEN_FILE_H
#include "../io/files.h"
#include "../io/json_fields.h"
#include "../text/tokenizer_kind.h"
GX_BEGIN

enum { GX_TOKEN_FILE_HEADER = 128, GX_TOKEN_FILE_BIN_HEADER = 1024 };

typedef struct {
    int64_t begin; // its first token
    int64_t bytes; // of its text
} GxTokenDocument;

typedef struct {        // counts of what was read, for conversations
    int64_t n, learned; // conversations; tokens that are learned
    int64_t texts;      // those among them that are prompts and completions as texts, without a format
    int64_t shortened;  // conversations whose last turns were left out
    int64_t left_out;   // documents that were left out
    int64_t unanswered; // conversations that ended with a user's turn, which was left out
    int64_t lacks[3];   // conversations in whose text something is missing: [GX_CHAT_LACKS] in chat.h
} GxDatasetChat;
typedef struct {         // how conversations were made, and the counts
    int64_t format_hash; // gx_chat_reading_hash of chat_tokens.h
    int64_t seq_len;     // the most tokens of a document
    GxDatasetChat counts;
    char format[GX_FIELD_TEXT], date[GX_FIELD_TEXT]; // the template's name; the day that it takes for today, "": none
} GxTokenChats;

typedef struct {
    int width; // bytes of a token
    int64_t tokens, documents, bytes;
    char tokenizer[GX_TOKENIZER_IDENTITY];
    int vocab;                 // ids must be below it, which is checked in reading; 0: unknown
    GxTokenDocument *document; // [documents + 1]: the last entry is {tokens, 0}
    // 1: llm.c's: documents 0, bytes 0, no tokenizer. A document begins with the token `begins` and ends with `ends`;
    // -1: no such token.
    int is_bin;
    int32_t begins, ends;
    int has_mask;
    int version;             // of our own format
    uint64_t hash;           // of the header, which contains the checksums of everything else; 0 without checksums
    uint64_t *block;         // the table of checksums; NULL: none
    unsigned char *is_whole; // per block: 1: its checksum has been verified
    unsigned char *joins;    // [documents], for conversations: 1: the same one as of the previous document; NULL: texts
    GxTokenChats chats;
    int64_t chats_bytes; // of the text in the file
} GxTokenFile;

int gx_token_file_is_one(int fd); // 1: it begins like one, of either kind
// Reads and checks everything but the tokens and the mask. fd: of `path`, a regular file of `bytes` bytes. Close f.
GxStatus gx_token_file_open(GxTokenFile *f, int fd, const char *path, int64_t bytes, GxError *err);
void gx_token_file_close(GxTokenFile *f); // accepts a struct of zeros
// Reads tokens [at, at + n). GX_ERR_FORMAT: a block is damaged. Only one thread at a time.
GxStatus gx_token_file_read(const GxTokenFile *f, int fd, const char *path, int64_t at, int64_t n, int32_t *out,
                            GxError *err);
// is_learned[i]: 1: token at + i is learned. The file must have a mask.
GxStatus gx_token_file_read_mask(const GxTokenFile *f, int fd, const char *path, int64_t at, int64_t n,
                                 unsigned char *is_learned, GxError *err);
// Writes a new file, which appears when it is complete. f: all fields but the width, which follows from the ids; for
// conversations joins and chats, too. mask: as in the file, (f->tokens + 7) / 8 bytes; NULL: none.
GxStatus gx_token_file_write(const char *path, const GxTokenFile *f, const int32_t *ids, const unsigned char *mask,
                             GxError *err);

// Joins several files of the same tokenizer, a piece at a time, into the file that gx_token_file_write would make of
// all their tokens. Either all are of conversations, described by `chats`, or none has a mask, and chats is NULL. *all:
// the result's description, without the list of documents.
GxStatus gx_token_file_join(const char *path, const char *const *part, int64_t n, const GxTokenChats *chats,
                            GxTokenFile *all, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKEN_FILE_IMPLEMENTED)
#define GX_TOKEN_FILE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GX__TOKEN_FILE_CHUNK = 1 << 12, // tokens that are converted at once
    GX__TOKEN_FILE_BLOCK = 1 << 16, // bytes that share a checksum
    GX__TOKEN_FILE_SUMMED = 120     // bytes of the header that its own checksum covers
};
static const char gx__token_file_magic[9] = "GXTOKENS";

static const struct {
    uint32_t magic, version;
    int width;
} gx__token_file_bins[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static int gx__token_file_is_bin(uint32_t magic)
{
    return magic == gx__token_file_bins[0].magic || magic == gx__token_file_bins[1].magic;
}

int gx_token_file_is_one(int fd)
{
    char magic[8];
    uint32_t word;
    if (pread(fd, magic, 8, 0) != 8) return 0;
    memcpy(&word, magic, 4);
    return !memcmp(magic, gx__token_file_magic, 8) || gx__token_file_is_bin(word);
}

static int64_t gx__token_file_begin(const GxTokenFile *f) // where the tokens begin
{
    return f->is_bin ? GX_TOKEN_FILE_BIN_HEADER : GX_TOKEN_FILE_HEADER;
}

static int64_t gx__token_file_table(const GxTokenFile *f) // where the documents begin
{
    return gx_round_up(GX_TOKEN_FILE_HEADER + f->tokens * f->width, 8);
}

static int64_t gx__token_file_mask(const GxTokenFile *f) // where the mask begins, or the file ends
{
    return gx__token_file_table(f) + 16 * f->documents;
}

static int64_t gx__token_file_joins(const GxTokenFile *f) // where the bits of documents begin, if any
{
    return gx__token_file_mask(f) + (f->has_mask ? gx_round_up(gx_ceil_div(f->tokens, 8), 8) : 0);
}

static int64_t gx__token_file_chats(const GxTokenFile *f) // where the text about conversations begins, if any
{
    return gx__token_file_joins(f) + gx_round_up(gx_ceil_div(f->documents, 8), 8);
}

static int64_t gx__token_file_sums(const GxTokenFile *f) // where the table of checksums begins, or an older file ends
{
    return f->version < 4 ? gx__token_file_joins(f) : gx__token_file_chats(f) + gx_round_up(f->chats_bytes, 8);
}

static int64_t gx__token_file_blocks(const GxTokenFile *f)
{
    return gx_ceil_div(gx__token_file_sums(f) - GX_TOKEN_FILE_HEADER, GX__TOKEN_FILE_BLOCK);
}

static int64_t gx__token_file_end(const GxTokenFile *f)
{
    return gx__token_file_sums(f) + (f->version < 3 ? 0 : 8 * gx__token_file_blocks(f));
}

// ---- reading -------------------------------------------------------------------------------------------------------

// at, n: the bytes that have been read.
static GxStatus gx__token_file_compare(uint64_t found, uint64_t written, const char *path, int64_t at, int64_t n,
                                       GxError *err)
{
    if (found == written) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_FORMAT,
        "%s is damaged, or was changed: bytes %ld to %ld are not those that were written (their checksum is %016lx; "
        "expected %016lx); copy it again from an intact copy, or make it again (./tokenize --corpus)",
        path, (long)at, (long)(at + n - 1), (unsigned long)found, (unsigned long)written);
}

// Verifies the blocks that contain the `bytes` bytes of the file from `offset` on, each block once. data: these bytes.
static GxStatus gx__token_file_check(const GxTokenFile *f, int fd, const char *path, const char *data, int64_t bytes,
                                     int64_t offset, GxError *err)
{
    char block[GX__TOKEN_FILE_BLOCK];
    const int64_t sums = gx__token_file_sums(f), end = offset + bytes;
    int64_t i = (offset - GX_TOKEN_FILE_HEADER) / GX__TOKEN_FILE_BLOCK, at;
    for (; (at = GX_TOKEN_FILE_HEADER + i * GX__TOKEN_FILE_BLOCK) < end; i++) {
        const int64_t n = gx_min(GX__TOKEN_FILE_BLOCK, sums - at);
        const int is_there = at >= offset && at + n <= end;
        if (f->is_whole[i]) continue;
        if (!is_there) GX_TRY(gx_file_read_at(fd, path, block, n, at, err));
        const uint64_t found = gx_hash(GX_HASH_START, is_there ? data + (at - offset) : block, n);
        GX_TRY(gx__token_file_compare(found, f->block[i], path, at, n, err));
        f->is_whole[i] = 1;
    }
    return GX_OK;
}

static GxStatus gx__token_file_get(const GxTokenFile *f, int fd, const char *path, void *out, int64_t bytes,
                                   int64_t offset, GxError *err)
{
    GX_TRY(gx_file_read_at(fd, path, out, bytes, offset, err));
    return f->block ? gx__token_file_check(f, fd, path, (const char *)out, bytes, offset, err) : GX_OK;
}

static GxStatus gx__token_file_header(GxTokenFile *f, const unsigned char *header, const char *path, int64_t bytes,
                                      GxError *err)
{
    uint32_t version, width, has_mask, chats;
    int64_t counts[3];
    uint64_t sum;
    memcpy(&version, header + 8, 4), memcpy(&width, header + 12, 4), memcpy(counts, header + 16, sizeof counts);
    memcpy(f->tokenizer, header + 40, sizeof f->tokenizer), memcpy(&has_mask, header + 104, 4);
    memcpy(&chats, header + 108, 4), memcpy(&sum, header + GX__TOKEN_FILE_SUMMED, 8);
    if (version < 1 || version > 4 || (width != 2 && width != 4))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: a file of tokens of version %lu with %lu bytes each; expected version 1 to 4, and 2 or 4 "
                       "bytes: make it again with this library's ./tokenize",
                       path, (unsigned long)version, (unsigned long)width);
    for (int i = 104; i < GX_TOKEN_FILE_HEADER && version < 3; i++)
        if (header[i])
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: a file of tokens of version %lu, in which bytes 104 to 127 must be 0, but byte %d is "
                           "%d: it was changed",
                           path, (unsigned long)version, i, header[i]);
    f->version = (int)version, f->has_mask = version == 2 || (version >= 3 && has_mask);
    f->chats_bytes = version < 4 ? 0 : (int64_t)chats;
    if (version >= 3)
        GX_TRY(gx__token_file_compare(gx_hash(GX_HASH_START, header, GX__TOKEN_FILE_SUMMED), sum, path, 0,
                                      GX__TOKEN_FILE_SUMMED, err));
    if (version >= 3) f->hash = gx_hash(GX_HASH_START, header, GX_TOKEN_FILE_HEADER);
    f->width = (int)width, f->tokens = counts[0], f->documents = counts[1], f->bytes = counts[2];
    if (!memchr(f->tokenizer, 0, sizeof f->tokenizer))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the tokenizer's identity has no end", path);
    if (f->tokens < 1 || f->documents < 1 || f->bytes < 0 || f->tokens > bytes / f->width ||
        f->documents > bytes / 16 || gx__token_file_end(f) != bytes)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has %ld bytes, which is not the size for the %ld token%s of %d bytes and %ld document%s "
                       "that its header announces: it was cut off, or changed",
                       path, (long)bytes, (long)f->tokens, gx_text_s(f->tokens), f->width, (long)f->documents,
                       gx_text_s(f->documents));
    return GX_OK;
}

// written: the table's own checksum.
static GxStatus gx__token_file_read_sums(GxTokenFile *f, int fd, const char *path, uint64_t written, GxError *err)
{
    const int64_t blocks = gx__token_file_blocks(f), at = gx__token_file_sums(f);
    f->block = (uint64_t *)malloc((size_t)blocks * sizeof *f->block);
    f->is_whole = (unsigned char *)calloc((size_t)blocks, 1);
    if (!f->block || !f->is_whole)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the checksums of %ld blocks", (long)blocks);
    GX_TRY(gx_file_read_at(fd, path, f->block, 8 * blocks, at, err));
    return gx__token_file_compare(gx_hash(GX_HASH_START, f->block, 8 * blocks), written, path, at, 8 * blocks, err);
}

static GxStatus gx__token_file_check_documents(const GxTokenFile *f, const char *path, GxError *err)
{
    int64_t left = f->bytes;
    for (int64_t i = 0; i < f->documents; i++) {
        const GxTokenDocument *d = &f->document[i];
        const int is_first = i > 0 || d->begin == 0;
        if (!is_first || d->begin >= d[1].begin || d->bytes < 0 || d->bytes > left)
            return GX_FAIL(
                err, GX_ERR_FORMAT,
                "%s: document %ld begins with token %ld and the next one with %ld and %ld bytes: they are not in order",
                path, (long)i, (long)d->begin, (long)d[1].begin, (long)d->bytes);
        left -= d->bytes;
    }
    if (left == 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: its documents have %ld bytes fewer than the %ld that its header announces",
                   path, (long)left, (long)f->bytes);
}

// ---- conversations -------------------------------------------------------------------------------------------------

enum { GX__TOKEN_FILE_TEXT = 1 << 16 }; // the most bytes of the text about them

#define GX__TOKEN_CHATS(name, field, help)                                                                             \
    {                                                                                                                  \
        name, GX_FIELD_INT, offsetof(GxTokenChats, field), NULL, help, "0.."                                           \
    }
static const GxField gx__token_chats[] = {
    {"chat_template", GX_FIELD_STRING, offsetof(GxTokenChats, format), NULL, "its name, or path", NULL},
    {"chat_template_hash", GX_FIELD_HASH, offsetof(GxTokenChats, format_hash), NULL, "of it", NULL},
    {"chat_date", GX_FIELD_STRING, offsetof(GxTokenChats, date), NULL, "of a template that says the date", NULL},
    GX__TOKEN_CHATS("seq_len", seq_len, "tokens of a document, at most"),
    GX__TOKEN_CHATS("conversations", counts.n, "that were read"),
    GX__TOKEN_CHATS("learned", counts.learned, "tokens that are"),
    GX__TOKEN_CHATS("prompts", counts.texts, "of them, with completions that are texts"),
    GX__TOKEN_CHATS("shortened", counts.shortened, "conversations whose last turns were left out"),
    GX__TOKEN_CHATS("left_out", counts.left_out, "documents that were"),
    GX__TOKEN_CHATS("unanswered", counts.unanswered, "conversations that ended with a turn of the user's"),
    GX__TOKEN_CHATS("lacks_system", counts.lacks[0], "conversations whose text lacks what the system says"),
    GX__TOKEN_CHATS("lacks_user", counts.lacks[1], "or the user"),
    GX__TOKEN_CHATS("lacks_end", counts.lacks[2], "or the end of an answer"),
};

static GxStatus gx__token_file_read_text(GxTokenFile *f, int fd, const char *path, GxError *err)
{
    char *text = (char *)malloc((size_t)f->chats_bytes + 1);
    GxJson *json = NULL;
    if (!text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for what %s says of its conversations", path);
    GxStatus status = gx__token_file_get(f, fd, path, text, f->chats_bytes, gx__token_file_chats(f), err);
    if (status == GX_OK) status = gx_json_parse(&json, text, f->chats_bytes, path, err);
    if (status == GX_OK) status = gx_json_get_fields(json, GX_FIELDS(gx__token_chats), 1, &f->chats, path, err);
    gx_json_free(json), free(text);
    return status;
}

static GxStatus gx__token_file_read_chats(GxTokenFile *f, int fd, const char *path, GxError *err)
{
    const int64_t bytes = gx_ceil_div(f->documents, 8);
    unsigned char *bits = (unsigned char *)malloc((size_t)bytes);
    f->joins = (unsigned char *)malloc((size_t)f->documents);
    GxStatus status = GX_OK;
    if (!bits || !f->joins) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld documents", (long)f->documents);
    if (status == GX_OK) status = gx__token_file_get(f, fd, path, bits, bytes, gx__token_file_joins(f), err);
    for (int64_t i = 0; i < f->documents && status == GX_OK; i++) f->joins[i] = bits[i / 8] >> (i % 8) & 1;
    free(bits);
    GX_TRY(status);
    if (!f->has_mask || f->joins[0] || f->chats_bytes < 2 || f->chats_bytes > GX__TOKEN_FILE_TEXT)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: a file of conversations without a mask, with a first document that follows none, or with a "
                       "description of %ld bytes: it was changed",
                       path, (long)f->chats_bytes);
    return gx__token_file_read_text(f, fd, path, err);
}

static GxStatus gx__token_file_open_bin(GxTokenFile *f, int fd, const char *path, int64_t bytes, GxError *err)
{
    uint32_t header[3];
    if (bytes < GX_TOKEN_FILE_BIN_HEADER)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has %ld byte%s, but a .bin file of llm.c has a header of %d", path,
                       (long)bytes, gx_text_s(bytes), GX_TOKEN_FILE_BIN_HEADER);
    GX_TRY(gx_file_read_at(fd, path, header, sizeof header, 0, err));
    f->is_bin = 1, f->begins = f->ends = -1;
    for (int i = 0; i < 2; i++)
        if (header[0] == gx__token_file_bins[i].magic && header[1] == gx__token_file_bins[i].version)
            f->width = gx__token_file_bins[i].width;
    if (!f->width)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: a .bin file of llm.c with the magic number %lu and version %lu; expected 20240520 and 1, "
                       "or 20240801 and 7",
                       path, (unsigned long)header[0], (unsigned long)header[1]);
    f->tokens = (int64_t)header[2];
    if (f->tokens == 0)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: a .bin file of llm.c whose header announces no tokens", path);
    if (f->tokens < 1 || GX_TOKEN_FILE_BIN_HEADER + f->tokens * f->width != bytes)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has %ld bytes, but its header of %d bytes and the %ld tokens of %d bytes that it announces "
                       "take %ld: it was cut off, or changed",
                       path, (long)bytes, GX_TOKEN_FILE_BIN_HEADER, (long)f->tokens, f->width,
                       (long)(GX_TOKEN_FILE_BIN_HEADER + f->tokens * f->width));
    return GX_OK;
}

static GxStatus gx__token_file_open(GxTokenFile *f, int fd, const char *path, int64_t bytes, GxError *err)
{
    unsigned char header[GX_TOKEN_FILE_HEADER];
    uint32_t magic = 0;
    uint64_t sum;
    if (bytes >= 4) GX_TRY(gx_file_read_at(fd, path, &magic, 4, 0, err));
    if (gx__token_file_is_bin(magic)) return gx__token_file_open_bin(f, fd, path, bytes, err);
    if (bytes < GX_TOKEN_FILE_HEADER)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has %ld bytes, but a file of tokens has at least %d", path, (long)bytes,
                       GX_TOKEN_FILE_HEADER);
    GX_TRY(gx_file_read_at(fd, path, header, sizeof header, 0, err));
    GX_TRY(gx__token_file_header(f, header, path, bytes, err));
    memcpy(&sum, header + GX__TOKEN_FILE_SUMMED - 8, 8);
    if (f->version >= 3) GX_TRY(gx__token_file_read_sums(f, fd, path, sum, err));
    f->document = (GxTokenDocument *)malloc((size_t)(f->documents + 1) * sizeof *f->document);
    if (!f->document) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld documents", (long)f->documents);
    GX_TRY(gx__token_file_get(f, fd, path, f->document, 16 * f->documents, gx__token_file_table(f), err));
    f->document[f->documents].begin = f->tokens, f->document[f->documents].bytes = 0;
    GX_TRY(gx__token_file_check_documents(f, path, err));
    return f->version < 4 ? GX_OK : gx__token_file_read_chats(f, fd, path, err);
}

GxStatus gx_token_file_open(GxTokenFile *f, int fd, const char *path, int64_t bytes, GxError *err)
{
    memset(f, 0, sizeof *f);
    const GxStatus status = gx__token_file_open(f, fd, path, bytes, err);
    if (status != GX_OK) gx_token_file_close(f);
    return status;
}

void gx_token_file_close(GxTokenFile *f)
{
    free(f->document), free(f->block), free(f->is_whole), free(f->joins);
    memset(f, 0, sizeof *f);
}

static GxStatus gx__token_file_read(const GxTokenFile *f, int fd, const char *path, int64_t at, int64_t n, int32_t *out,
                                    GxError *err)
{
    uint16_t narrow[GX__TOKEN_FILE_CHUNK];
    const int64_t begin = gx__token_file_begin(f);
    if (f->width == 4) return gx__token_file_get(f, fd, path, out, 4 * n, begin + 4 * at, err);
    for (int64_t first = 0, some; first < n; first += some) {
        some = gx_min(GX__TOKEN_FILE_CHUNK, n - first);
        GX_TRY(gx__token_file_get(f, fd, path, narrow, 2 * some, begin + 2 * (at + first), err));
        for (int64_t i = 0; i < some; i++) out[first + i] = narrow[i];
    }
    return GX_OK;
}

GxStatus gx_token_file_read(const GxTokenFile *f, int fd, const char *path, int64_t at, int64_t n, int32_t *out,
                            GxError *err)
{
    GX_TRY(gx__token_file_read(f, fd, path, at, n, out, err));
    for (int64_t i = 0; f->vocab > 0 && i < n; i++)
        if (out[i] < 0 || out[i] >= f->vocab)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: token %ld is %ld, but the tokenizer's ids are 0 to %d: %s", path,
                           (long)(at + i), (long)out[i], f->vocab - 1,
                           f->is_bin ? "it was made with another tokenizer; name that with --tokenizer"
                                     : "the file was changed");
    return GX_OK;
}

GxStatus gx_token_file_read_mask(const GxTokenFile *f, int fd, const char *path, int64_t at, int64_t n,
                                 unsigned char *is_learned, GxError *err)
{
    unsigned char bits[GX__TOKEN_FILE_CHUNK];
    for (int64_t done = 0, some; done < n; done += some) {
        const int64_t byte = (at + done) / 8, first = 8 * byte;
        some = gx_min(8 * GX__TOKEN_FILE_CHUNK - (at + done - first), n - done);
        GX_TRY(gx__token_file_get(f, fd, path, bits, (at + done + some - 1) / 8 - byte + 1,
                                  gx__token_file_mask(f) + byte, err));
        for (int64_t i = at + done; i < at + done + some; i++)
            is_learned[i - at] = bits[(i - first) / 8] >> (i % 8) & 1;
    }
    return GX_OK;
}

// ---- writing -------------------------------------------------------------------------------------------------------

// A new file: written from its tokens to its end, then the header.
typedef struct {
    const GxNewFile *file;
    const GxTokenFile *f;
    uint64_t *block; // checksums of what has been written so far
    int64_t at;      // the bytes of that, after the header
} gx__TokenFileOut;

static GxStatus gx__token_file_put(gx__TokenFileOut *o, const void *data, int64_t bytes, GxError *err)
{
    const char *p = (const char *)data;
    GX_TRY(gx_file_write_at(o->file->fd, o->file->path, data, bytes, GX_TOKEN_FILE_HEADER + o->at, err));
    for (int64_t done = 0, n; done < bytes; done += n, o->at += n) {
        uint64_t *sum = &o->block[o->at / GX__TOKEN_FILE_BLOCK];
        const int64_t begun = o->at % GX__TOKEN_FILE_BLOCK;
        n = gx_min(GX__TOKEN_FILE_BLOCK - begun, bytes - done);
        *sum = gx_hash(begun ? *sum : GX_HASH_START, p + done, n);
    }
    return GX_OK;
}

static GxStatus gx__token_file_put_zeros(gx__TokenFileOut *o, GxError *err) // up to a multiple of 8
{
    static const char zeros[8] = {0};
    return gx__token_file_put(o, zeros, gx_round_up(o->at, 8) - o->at, err);
}

static GxStatus gx__token_file_put_tokens(gx__TokenFileOut *o, const int32_t *ids, int64_t n, GxError *err)
{
    uint16_t narrow[GX__TOKEN_FILE_CHUNK];
    if (o->f->width == 4) return gx__token_file_put(o, ids, 4 * n, err);
    for (int64_t first = 0, some; first < n; first += some) {
        some = gx_min(GX__TOKEN_FILE_CHUNK, n - first);
        for (int64_t i = 0; i < some; i++) narrow[i] = (uint16_t)ids[first + i];
        GX_TRY(gx__token_file_put(o, narrow, 2 * some, err));
    }
    return GX_OK;
}

// Bits that are being written: those of the incomplete byte, and the number of all so far.
typedef struct {
    unsigned char bits;
    int64_t n;
} gx__TokenFileBits;

static GxStatus gx__token_file_put_bits(gx__TokenFileOut *o, gx__TokenFileBits *b, const unsigned char *is, int64_t n,
                                        GxError *err)
{
    unsigned char bytes[GX__TOKEN_FILE_CHUNK];
    int64_t full = 0;
    for (int64_t i = 0; i < n; i++) {
        b->bits = (unsigned char)(b->bits | (is[i] != 0) << (b->n++ % 8));
        if (b->n % 8) continue;
        bytes[full++] = b->bits, b->bits = 0;
        if (full < GX__TOKEN_FILE_CHUNK) continue;
        GX_TRY(gx__token_file_put(o, bytes, full, err));
        full = 0;
    }
    return full ? gx__token_file_put(o, bytes, full, err) : GX_OK;
}

static GxStatus gx__token_file_end_bits(gx__TokenFileOut *o, const gx__TokenFileBits *b, GxError *err)
{
    if (b->n % 8) GX_TRY(gx__token_file_put(o, &b->bits, 1, err));
    return gx__token_file_put_zeros(o, err);
}

// The text about conversations; free(*text).
static GxStatus gx__token_file_text(const GxTokenChats *chats, char **text, int64_t *bytes, GxError *err)
{
    GxJson *json = gx_json_new_object();
    GxStatus status = gx_json_set_fields(json, GX_FIELDS(gx__token_chats), chats, err);
    if (status == GX_OK) status = gx_json_dump(json, 0, text, bytes, err);
    gx_json_free(json);
    return status;
}

static GxStatus gx__token_file_put_text(gx__TokenFileOut *o, GxError *err)
{
    char *text = NULL;
    int64_t bytes;
    GX_TRY(gx__token_file_text(&o->f->chats, &text, &bytes, err));
    GxStatus status = gx__token_file_put(o, text, bytes, err);
    if (status == GX_OK) status = gx__token_file_put_zeros(o, err);
    free(text);
    return status;
}

static GxStatus gx__token_file_put_mask(gx__TokenFileOut *o, const unsigned char *mask, GxError *err)
{
    const int64_t n = gx_ceil_div(o->f->tokens, 8);
    const unsigned char last = (unsigned char)(mask[n - 1] & (0xFF >> (8 * n - o->f->tokens)));
    GX_TRY(gx__token_file_put(o, mask, n - 1, err));
    GX_TRY(gx__token_file_put(o, &last, 1, err));
    return gx__token_file_put_zeros(o, err);
}

// The table and the header.
static GxStatus gx__token_file_put_sums(const gx__TokenFileOut *o, GxError *err)
{
    const GxTokenFile *f = o->f;
    const GxNewFile *file = o->file;
    char header[GX_TOKEN_FILE_HEADER] = {0};
    const uint32_t version = (uint32_t)f->version, width = (uint32_t)f->width, has_mask = f->has_mask != 0,
                   chats = (uint32_t)f->chats_bytes;
    const int64_t counts[3] = {f->tokens, f->documents, f->bytes}, table = 8 * gx__token_file_blocks(f);
    const uint64_t sum = gx_hash(GX_HASH_START, o->block, table);
    memcpy(header, gx__token_file_magic, 8), memcpy(header + 8, &version, 4), memcpy(header + 12, &width, 4);
    memcpy(header + 16, counts, sizeof counts), memcpy(header + 40, f->tokenizer, sizeof f->tokenizer);
    memcpy(header + 104, &has_mask, 4), memcpy(header + 108, &chats, 4);
    memcpy(header + GX__TOKEN_FILE_SUMMED - 8, &sum, 8);
    const uint64_t own = gx_hash(GX_HASH_START, header, GX__TOKEN_FILE_SUMMED);
    memcpy(header + GX__TOKEN_FILE_SUMMED, &own, 8);
    GX_TRY(gx_file_write_at(file->fd, file->path, o->block, table, gx__token_file_sums(f), err));
    return gx_file_write_at(file->fd, file->path, header, sizeof header, 0, err);
}

// put: writes the tokens and what follows them, except the table. The file appears when it is complete.
static GxStatus gx__token_file_make(const char *path, const GxTokenFile *f,
                                    GxStatus (*put)(gx__TokenFileOut *o, const void *user, GxError *err),
                                    const void *user, GxError *err)
{
    GxNewFile file;
    gx__TokenFileOut o = {&file, f, NULL, 0};
    GX_TRY(gx_file_create(&file, path, err));
    o.block = (uint64_t *)calloc((size_t)gx__token_file_blocks(f), sizeof *o.block);
    GxStatus status = o.block ? put(&o, user, err) : GX_FAIL(err, GX_ERR_MEMORY, "no memory for checksums");
    if (status == GX_OK) status = gx__token_file_put_sums(&o, err);
    free(o.block);
    if (status == GX_OK) return gx_file_commit(&file, err);
    gx_file_abandon(&file);
    return status;
}

typedef struct {
    const int32_t *ids;
    const unsigned char *mask;
} gx__TokenFileContents;

static GxStatus gx__token_file_put_all(gx__TokenFileOut *o, const void *contents, GxError *err)
{
    const gx__TokenFileContents *c = (const gx__TokenFileContents *)contents;
    GX_TRY(gx__token_file_put_tokens(o, c->ids, o->f->tokens, err));
    GX_TRY(gx__token_file_put_zeros(o, err));
    GX_TRY(gx__token_file_put(o, o->f->document, 16 * o->f->documents, err));
    if (c->mask) GX_TRY(gx__token_file_put_mask(o, c->mask, err));
    if (!o->f->joins) return GX_OK;
    gx__TokenFileBits bits = GX_ZERO;
    GX_TRY(gx__token_file_put_bits(o, &bits, o->f->joins, o->f->documents, err));
    GX_TRY(gx__token_file_end_bits(o, &bits, err));
    return gx__token_file_put_text(o, err);
}

// Sets the version, and for conversations the length of the text about them.
static GxStatus gx__token_file_set_version(GxTokenFile *f, int has_chats, GxError *err)
{
    char *text = NULL;
    f->version = has_chats ? 4 : 3, f->chats_bytes = 0;
    if (has_chats) GX_TRY(gx__token_file_text(&f->chats, &text, &f->chats_bytes, err));
    free(text);
    return GX_OK;
}

GxStatus gx_token_file_write(const char *path, const GxTokenFile *f, const int32_t *ids, const unsigned char *mask,
                             GxError *err)
{
    const gx__TokenFileContents contents = {ids, mask};
    GxTokenFile of = *f;
    of.width = 2, of.has_mask = mask != NULL;
    for (int64_t i = 0; i < f->tokens; i++)
        if (ids[i] > UINT16_MAX) of.width = 4;
    if (f->joins && !mask)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: conversations without a mask of what is learned", path);
    GX_TRY(gx__token_file_set_version(&of, f->joins != NULL, err));
    return gx__token_file_make(path, &of, gx__token_file_put_all, &contents, err);
}

// ---- joining -------------------------------------------------------------------------------------------------------

typedef struct {
    const char *const *part;
    int64_t n;
    GxTokenFile *all;
    gx__TokenFileOut *out; // NULL: parts are only counted
    int64_t tokens;        // of the previous parts
    gx__TokenFileBits bits;
} gx__TokenFileJoin;
typedef GxStatus gx__TokenFileLook(gx__TokenFileJoin *j, GxTokenFile *f, int fd, const char *path, GxError *err);

static GxStatus gx__token_file_count_part(gx__TokenFileJoin *j, GxTokenFile *f, int fd, const char *path, GxError *err)
{
    GxTokenFile *all = j->all;
    (void)fd;
    if (!all->documents) memcpy(all->tokenizer, f->tokenizer, sizeof all->tokenizer);
    if (f->is_bin || f->has_mask != all->has_mask || (f->joins != NULL) != (all->version == 4) ||
        strcmp(f->tokenizer, all->tokenizer))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s cannot be joined to the files of %s: it has another tokenizer, or holds conversations where "
                       "they hold texts (or the reverse)",
                       path, all->tokenizer);
    all->width = f->width > all->width ? f->width : all->width;
    all->tokens += f->tokens, all->documents += f->documents, all->bytes += f->bytes;
    return GX_OK;
}

static GxStatus gx__token_file_copy_tokens(gx__TokenFileJoin *j, GxTokenFile *f, int fd, const char *path, GxError *err)
{
    int32_t ids[GX__TOKEN_FILE_CHUNK];
    for (int64_t at = 0, n; at < f->tokens; at += n) {
        n = gx_min(GX__TOKEN_FILE_CHUNK, f->tokens - at);
        GX_TRY(gx_token_file_read(f, fd, path, at, n, ids, err));
        GX_TRY(gx__token_file_put_tokens(j->out, ids, n, err));
    }
    return GX_OK;
}

static GxStatus gx__token_file_copy_documents(gx__TokenFileJoin *j, GxTokenFile *f, int fd, const char *path,
                                              GxError *err)
{
    (void)fd, (void)path;
    for (int64_t i = 0; i < f->documents; i++) f->document[i].begin += j->tokens;
    j->tokens += f->tokens;
    return gx__token_file_put(j->out, f->document, 16 * f->documents, err);
}

static GxStatus gx__token_file_copy_mask(gx__TokenFileJoin *j, GxTokenFile *f, int fd, const char *path, GxError *err)
{
    unsigned char is_learned[GX__TOKEN_FILE_CHUNK];
    for (int64_t at = 0, n; at < f->tokens; at += n) {
        n = gx_min(GX__TOKEN_FILE_CHUNK, f->tokens - at);
        GX_TRY(gx_token_file_read_mask(f, fd, path, at, n, is_learned, err));
        GX_TRY(gx__token_file_put_bits(j->out, &j->bits, is_learned, n, err));
    }
    return GX_OK;
}

static GxStatus gx__token_file_copy_joins(gx__TokenFileJoin *j, GxTokenFile *f, int fd, const char *path, GxError *err)
{
    (void)fd, (void)path;
    return gx__token_file_put_bits(j->out, &j->bits, f->joins, f->documents, err);
}

static GxStatus gx__token_file_each_part(gx__TokenFileJoin *j, gx__TokenFileLook *look, GxError *err)
{
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < j->n && status == GX_OK; i++) {
        int fd;
        int64_t bytes;
        GxTokenFile f;
        GX_TRY(gx_file_open(j->part[i], &fd, &bytes, err));
        status = gx_token_file_open(&f, fd, j->part[i], bytes, err);
        if (status == GX_OK) status = look(j, &f, fd, j->part[i], err);
        gx_token_file_close(&f);
        close(fd);
    }
    return status;
}

static GxStatus gx__token_file_put_parts(gx__TokenFileOut *o, const void *join, GxError *err)
{
    gx__TokenFileJoin j = *(const gx__TokenFileJoin *)join;
    j.out = o;
    GX_TRY(gx__token_file_each_part(&j, gx__token_file_copy_tokens, err));
    GX_TRY(gx__token_file_put_zeros(o, err));
    GX_TRY(gx__token_file_each_part(&j, gx__token_file_copy_documents, err));
    if (o->f->version < 4) return GX_OK;
    const gx__TokenFileBits none = GX_ZERO;
    GX_TRY(gx__token_file_each_part(&j, gx__token_file_copy_mask, err));
    GX_TRY(gx__token_file_end_bits(o, &j.bits, err));
    j.bits = none;
    GX_TRY(gx__token_file_each_part(&j, gx__token_file_copy_joins, err));
    GX_TRY(gx__token_file_end_bits(o, &j.bits, err));
    return gx__token_file_put_text(o, err);
}

GxStatus gx_token_file_join(const char *path, const char *const *part, int64_t n, const GxTokenChats *chats,
                            GxTokenFile *all, GxError *err)
{
    gx__TokenFileJoin j = {part, n, all, NULL, 0, GX_ZERO};
    memset(all, 0, sizeof *all);
    all->width = 2;
    if (chats) all->chats = *chats, all->has_mask = 1;
    GX_TRY(gx__token_file_set_version(all, chats != NULL, err));
    GX_TRY(gx__token_file_each_part(&j, gx__token_file_count_part, err));
    return gx__token_file_make(path, all, gx__token_file_put_parts, &j, err);
}
#endif
