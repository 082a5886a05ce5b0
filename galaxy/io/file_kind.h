// file_kind.h: recognises, by its first bytes and the end of its name, what a file is that was given as a text, as
// records or as prompts. Files of other kinds (compressed, a table of another program, a model, a picture) are refused
// with their kind and advice; otherwise a model would be trained on their raw bytes.
//
//     GX_TRY(gx_file_check_kind("texts.txt", GX_FILE_AS_TEXT, err));
//     gx_file_warn_of_kind("texts.txt", 1, log);          // can be read, but may not be what was meant
//
// Every reader of texts and records calls this when it opens a file. The name is enough to refuse a file: a .gz that
// was unpacked under its old name is refused, too. First bytes that a text could also begin with count only if the file
// also has bytes that no text has. This does not check that a text is UTF-8 (files.h), or that records are valid.
#ifndef GX_FILE_KIND_H
#define GX_FILE_KIND_H
#include "../base/log.h"
GX_BEGIN

typedef enum {
    GX_FILE_AS_CORPUS, // a text, or a file of tokens
    GX_FILE_AS_TEXT,   // a text to train on: not a table, not JSON records
    GX_FILE_AS_LINES,  // JSON lines
    GX_FILE_AS_TABLE,  // .csv, .tsv or JSON lines
    GX_FILE_AS_IT_IS   // a text that is taken literally, such as a prompt; it may be a table
} GxFileUse;

enum { GX_FILE_HEAD = 512 }; // the bytes by which a file is recognised

// What can be trained on, for messages: GX_FILE_AS_CORPUS, and the members of records.
#define GX_FILE_CORPORA                                                                                                \
    ".txt, or another text file; .jsonl, .csv or .tsv, whose records have text, prompt and completion, or "            \
    "instruction and output, in .jsonl also messages or conversations; a folder of .txt and .jsonl files; or a file "  \
    "of tokens"

// GX_ERR_UNSUPPORTED if the file is not what its use requires. A path that is not a regular file, or cannot be read,
// passes: its reader reports the error.
GxStatus gx_file_check_kind(const char *path, GxFileUse use, GxError *err);
// The same for a pipe, by its first n bytes, of which GX_FILE_HEAD are enough.
GxStatus gx_file_check_head(const char *path, const char *head, int64_t n, GxFileUse use, GxError *err);
// 1: the name ends like that of a file of another kind.
int gx_file_is_other(const char *name);
// For a file that is read as a text: warns if it looks like JSON records, and, if bytes are tokens, if it contains
// bytes of value 0 or is not UTF-8 (other tokenizers' readers report these as errors).
void gx_file_warn_of_kind(const char *path, int is_bytes, const GxLogger *log);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_FILE_KIND_IMPLEMENTED)
#define GX_FILE_KIND_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "files.h"

// Uses for which a kind is accepted.
enum { GX__FILE_TOKENS = 1 << GX_FILE_AS_CORPUS, GX__FILE_TABLE = 1 << GX_FILE_AS_TABLE };
enum { GX__FILE_PLAIN = 1 << GX_FILE_AS_IT_IS };
enum { GX__FILE_PACKED = 1 << 8 }; // for no use: it contains other files

#define GX__FILE_JSON_LINES(read)                                                                                      \
    "write it as JSON lines, in Python: pandas." read "(FILE).to_json(NEW.jsonl, orient=\"records\", lines=True)"
static const char gx__file_only_text[] = "only text is read";
static const char gx__file_page[] = "extract the text from it, or put it into a JSON record to learn its tags, too";

// The first row that matches decides. bytes: the bytes at `at`; words: 1: a text could begin like this, too; taken:
// uses for which it is accepted, and GX__FILE_PACKED.
static const struct {
    const char *what, *endings, *bytes;
    int n, at, words, taken;
    const char *to_do;
} gx__file_kinds[] = {
    // names that are more specific than the bytes
    {"a NumPy archive", "npz", NULL, 0, 0, 0, 0, "write its texts as a .txt or .jsonl"},
    {"a word processor document", "docx|odt|rtf|doc|epub", NULL, 0, 0, 0, 0, "save its text as UTF-8"},
    {"a spreadsheet", "xlsx|xls|ods", NULL, 0, 0, 0, 0, GX__FILE_JSON_LINES("read_excel")},
    {"a PyTorch model", "pt|pth|ckpt", NULL, 0, 0, 0, 0, gx__file_only_text},
    // compressed
    {"compressed with gzip", "gz|tgz", "\x1F\x8B\x08", 3, 0, 0, GX__FILE_PACKED, "unpack it with gzip -d"},
    {"compressed with bzip2", "bz2|tbz2", "1AY&SY", 6, 4, 0, GX__FILE_PACKED, "unpack it with bzip2 -d"},
    {"compressed with xz", "xz|txz|lzma",
     "\xFD"
     "7zXZ\0",
     6, 0, 0, GX__FILE_PACKED, "unpack it with xz -d"},
    {"compressed with Zstandard", "zst|zstd", "\x28\xB5\x2F\xFD", 4, 0, 0, GX__FILE_PACKED, "unpack it with zstd -d"},
    {"compressed with LZ4", "lz4", "\x04\x22\x4D\x18", 4, 0, 0, GX__FILE_PACKED, "unpack it with lz4 -d"},
    {"a ZIP archive", "zip", "PK\x03\x04", 4, 0, 0, GX__FILE_PACKED, "unpack it with unzip"},
    {"a 7z archive", "7z", "7z\xBC\xAF\x27\x1C", 6, 0, 0, GX__FILE_PACKED, "unpack it with 7z x"},
    {"a RAR archive", "rar", "Rar!\x1A\x07", 6, 0, 0, GX__FILE_PACKED, "unpack it with unrar x"},
    {"a tar archive", "tar", "ustar", 5, 257, 0, GX__FILE_PACKED, "unpack it with tar -xf, and name the folder"},
    // tables and databases
    {"a Parquet table", "parquet|pq", "PAR1", 4, 0, 1, 0, GX__FILE_JSON_LINES("read_parquet")},
    {"an Arrow or Feather table", "arrow|arrows|feather|ipc", "ARROW1", 6, 0, 1, 0,
     GX__FILE_JSON_LINES("read_feather")},
    {"a Feather table, version 1", NULL, "FEA1", 4, 0, 1, 0, GX__FILE_JSON_LINES("read_feather")},
    {"an Arrow stream, as the datasets library stores it", NULL, "\xFF\xFF\xFF\xFF", 4, 0, 0, 0,
     "write it as JSON lines, in Python: datasets.Dataset.from_file(FILE).to_json(NEW.jsonl)"},
    {"an ORC table", "orc", "ORC", 3, 0, 1, 0, GX__FILE_JSON_LINES("read_orc")},
    {"an Avro file", "avro", "Obj\x01", 4, 0, 0, 0, "write it as JSON lines"},
    {"a SQLite database", "db|sqlite|sqlite3", "SQLite format 3\0", 16, 0, 0, 0, "write its texts as JSON lines"},
    {"an HDF5 file", "h5|hdf5|hdf", "\x89HDF\r\n\x1A\n", 8, 0, 0, 0, GX__FILE_JSON_LINES("read_hdf")},
    {"a TFRecord file", "tfrecord|tfrecords", NULL, 0, 0, 0, 0, "write it as JSON lines"},
    {"a table", "csv|tsv", NULL, 0, 0, 0, GX__FILE_TABLE | GX__FILE_PLAIN,
     "write its texts into a .txt file, or as JSON lines: {\"text\": \"...\"} in each line"},
    // data of Python and others
    {"a NumPy array", "npy", "\x93NUMPY", 6, 0, 0, 0, "files of tokens are made by ./tokenize --corpus"},
    {"a Python pickle", "pkl|pickle|joblib", "\x80\x02", 2, 0, 0, 0, "write its texts as JSON lines"},
    {"a Python pickle", NULL, "\x80\x03", 2, 0, 0, 0, "write its texts as JSON lines"},
    {"a Python pickle", NULL, "\x80\x04", 2, 0, 0, 0, "write its texts as JSON lines"},
    {"a Python pickle", NULL, "\x80\x05", 2, 0, 0, 0, "write its texts as JSON lines"},
    {"a Megatron index", "idx", "MMIDIDX\0\0", 9, 0, 0, 0, "files of tokens are made by ./tokenize --corpus"},
    {"a file of tokens", NULL, "GXTOKENS", 8, 0, 0, GX__FILE_TOKENS, "--train_data of train_llama takes it"},
    {"a file of tokens of llm.c", NULL, "\x88\xD8\x34\x01", 4, 0, 0, GX__FILE_TOKENS,
     "--train_data of train_llama takes it"},
    {"a file of tokens of llm.c", NULL, "\xA1\xD9\x34\x01", 4, 0, 0, GX__FILE_TOKENS,
     "--train_data of train_llama takes it"},
    {"the weights of a model", "safetensors", "\0\0\0{\"", 5, 5, 0, 0, gx__file_only_text},
    {"a GGUF model", "gguf", "GGUF", 4, 0, 1, 0, gx__file_only_text},
    // not texts
    {"a PDF", "pdf", "%PDF-", 5, 0, 0, 0, "extract its text with pdftotext"},
    {"an office document", NULL, "\xD0\xCF\x11\xE0", 4, 0, 0, 0, "save its text as UTF-8"},
    {"a picture", "png|jpg|jpeg|gif|webp|bmp|tif|tiff", "\x89PNG", 4, 0, 0, 0, gx__file_only_text},
    {"a picture", NULL, "\xFF\xD8\xFF", 3, 0, 0, 0, gx__file_only_text},
    {"a picture", NULL, "GIF8", 4, 0, 1, 0, gx__file_only_text},
    {"a sound or a film", "wav|mp3|flac|ogg|m4a|mp4|mkv|webm", "RIFF", 4, 0, 1, 0, gx__file_only_text},
    {"a sound or a film", NULL, "OggS", 4, 0, 1, 0, gx__file_only_text},
    {"a sound or a film", NULL, "fLaC", 4, 0, 1, 0, gx__file_only_text},
    {"a sound or a film", NULL, "ID3", 3, 0, 1, 0, gx__file_only_text},
    {"a program", "exe|so|pyc",
     "\x7F"
     "ELF",
     4, 0, 0, 0, gx__file_only_text},
    {"an RTF document", NULL, "{\\rtf", 5, 0, 0, 0, "save its text as UTF-8"},
    {"an HTML page", "html|htm|xhtml", "<!DOCTYPE html", 14, 0, 0, GX__FILE_PLAIN, gx__file_page},
    {"an HTML page", NULL, "<!doctype html", 14, 0, 0, GX__FILE_PLAIN, gx__file_page},
    {"an HTML page", NULL, "<html", 5, 0, 0, GX__FILE_PLAIN, gx__file_page},
    {"an HTML page", NULL, "<HTML", 5, 0, 0, GX__FILE_PLAIN, gx__file_page},
    {"a PostScript document", "ps|eps", "%!PS", 4, 0, 0, 0, "extract its text with ps2ascii"},
    {"text in UTF-32", NULL, "\xFF\xFE\0\0", 4, 0, 0, 0, "iconv -f UTF-32 -t UTF-8 FILE > NEW.txt"},
    {"text in UTF-32", NULL, "\0\0\xFE\xFF", 4, 0, 0, 0, "iconv -f UTF-32 -t UTF-8 FILE > NEW.txt"},
    {"text in UTF-16", NULL, "\xFF\xFE", 2, 0, 0, 0, "iconv -f UTF-16 -t UTF-8 FILE > NEW.txt"},
    {"text in UTF-16", NULL, "\xFE\xFF", 2, 0, 0, 0, "iconv -f UTF-16 -t UTF-8 FILE > NEW.txt"},
};
enum { GX__FILE_KINDS = sizeof gx__file_kinds / sizeof *gx__file_kinds };

// ---- by name -------------------------------------------------------------------------------------------------------

static const char *gx__file_ending(const char *path) // after its last dot; "": none
{
    const char *name = gx_path_name(path), *dot = strrchr(name, '.');
    return dot && dot > name ? dot + 1 : "";
}

static int gx__file_is_among(const char *ending, const char *endings) // "gz|tgz"
{
    const size_t n = strlen(ending);
    for (const char *p = n ? endings : NULL; p; p = strchr(p, '|'), p = p ? p + 1 : NULL)
        if (!strncasecmp(p, ending, n) && (p[n] == '|' || p[n] == 0)) return 1;
    return 0;
}

static int gx__file_kind_by_name(const char *path)
{
    for (int i = 0; i < GX__FILE_KINDS; i++)
        if (gx__file_is_among(gx__file_ending(path), gx__file_kinds[i].endings)) return i;
    return -1;
}

int gx_file_is_other(const char *name) { return gx__file_kind_by_name(name) >= 0; }

// ---- by bytes ------------------------------------------------------------------------------------------------------

static int gx__file_is_control(unsigned char c) // which texts do not have
{
    return c < 32 && !strchr("\b\t\n\v\f\r\x1B", c ? c : 1);
}

static int gx__file_has_controls(const char *head, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (gx__file_is_control((unsigned char)head[i])) return 1;
    return 0;
}

static int gx__file_kind_by_bytes(const char *head, int64_t n)
{
    const int has_controls = gx__file_has_controls(head, n);
    for (int i = 0; i < GX__FILE_KINDS; i++) {
        const int bytes = gx__file_kinds[i].n, at = gx__file_kinds[i].at;
        if (!gx__file_kinds[i].bytes || n < at + bytes || (gx__file_kinds[i].words && !has_controls)) continue;
        if (!memcmp(head + at, gx__file_kinds[i].bytes, (size_t)bytes)) return i;
    }
    return -1;
}

// ---- refusing ------------------------------------------------------------------------------------------------------

// is_doubtful: its name matches, its bytes do not.
static GxStatus gx__file_refuse(const char *path, int kind, const char *by, int is_doubtful, GxFileUse use,
                                GxError *err)
{
    static const char *const expected[] = {GX_FILE_CORPORA, "text in UTF-8", "JSON lines, a record in each",
                                           "a .csv, a .tsv, or .jsonl with a record in each line", "text in UTF-8"};
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s is %s, judging by its %s; expected %s: %s%s%s", path,
                   gx__file_kinds[kind].what, by, expected[use], is_doubtful ? "if it really is that, " : "",
                   gx__file_kinds[kind].to_do, is_doubtful ? ", otherwise rename it" : "");
}

// where the next character that is not white space is
static int64_t gx__file_spaces(const char *head, int64_t n, int64_t at)
{
    while (at < n && head[at] && strchr(" \n\r\t", head[at])) at++;
    return at;
}

// Refuses JSON by its name: read as a text, its brackets would be learned, and an array of records is not JSON lines.
static GxStatus gx__file_refuse_json(const char *path, const char *head, int64_t n, GxFileUse use, GxError *err)
{
    const char *ending = gx__file_ending(path);
    const int is_text = use == GX_FILE_AS_CORPUS || use == GX_FILE_AS_TEXT,
              is_lines = gx__file_is_among(ending, "jsonl|ndjson");
    const int64_t at = gx__file_spaces(head, n, 0), next = gx__file_spaces(head, n, at + 1);
    const int is_array = at < n && head[at] == '[', has_objects = is_array && next < n && head[next] == '{';
    if (use == GX_FILE_AS_IT_IS || (!is_lines && !gx__file_is_among(ending, "json"))) return GX_OK;
    if ((is_text && !is_lines && is_array) || has_objects)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s is one JSON array; expected a .jsonl file with a record in each line; to convert it: jq -c "
                       "'.[]' FILE.json > FILE.jsonl",
                       path);
    if (use == GX_FILE_AS_TEXT && is_lines)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s is a file of JSON lines, as its name says; expected UTF-8 text: write its texts into a .txt "
                       "file (jq -r .text FILE.jsonl > FILE.txt)",
                       path);
    if (is_text && !is_lines && at < n && head[at] == '{')
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s is a JSON file, as its name says, and would be learned with all its brackets; records are "
                       "read line by line from a file whose name ends with .jsonl; to convert it: jq -c . FILE.json > "
                       "FILE.jsonl; to learn it as it is, name it .txt",
                       path);
    return GX_OK;
}

// Refuses files of tokens by their name: without a header they would be learned as bytes.
static GxStatus gx__file_refuse_tokens(const char *path, int kind, GxError *err)
{
    if (kind >= 0 || !gx__file_is_among(gx__file_ending(path), "bin|tokens")) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s is a file of tokens by its name, but does not begin like one of ./tokenize or llm.c (those of "
                   "nanoGPT and Megatron have no header); make it with ./tokenize --corpus TEXTS --output_file FILE, "
                   "or name it .txt if it is a text",
                   path);
}

GxStatus gx_file_check_head(const char *path, const char *head, int64_t n, GxFileUse use, GxError *err)
{
    const int name = gx__file_kind_by_name(path), bytes = gx__file_kind_by_bytes(head, gx_min(n, GX_FILE_HEAD));
    const int is_doubtful = name >= 0 && name != bytes && gx__file_kinds[name].taken & GX__FILE_PACKED;
    if (name >= 0 && !(gx__file_kinds[name].taken & 1 << use))
        return gx__file_refuse(path, name, "name", is_doubtful, use, err);
    if (bytes >= 0 && !(gx__file_kinds[bytes].taken & 1 << use))
        return gx__file_refuse(path, bytes, "first bytes", 0, use, err);
    GX_TRY(gx__file_refuse_json(path, head, gx_min(n, GX_FILE_HEAD), use, err));
    if (use != GX_FILE_AS_CORPUS && use != GX_FILE_AS_TEXT) return GX_OK;
    return gx__file_refuse_tokens(path, bytes, err);
}

// Reads the first bytes to head[most]. Returns their number; -1: it is not a regular file, or cannot be read.
static int64_t gx__file_head(const char *path, char *head, int64_t most)
{
    int fd;
    int64_t bytes;
    GxError ignored = GX_ZERO;
    if (gx_file_open(path, &fd, &bytes, &ignored) != GX_OK) return -1;
    const int64_t n = gx_min(bytes, most);
    const GxStatus status = gx_file_read_at(fd, path, head, n, 0, &ignored);
    close(fd);
    return status == GX_OK ? n : -1;
}

GxStatus gx_file_check_kind(const char *path, GxFileUse use, GxError *err)
{
    char head[GX_FILE_HEAD];
    const int64_t n = gx__file_head(path, head, sizeof head);
    return n < 0 ? GX_OK : gx_file_check_head(path, head, n, use, err);
}

// ---- warning -------------------------------------------------------------------------------------------------------

// 1: a line begins with {" and ends with }, and the next one also begins with {".
static int gx__file_is_json_lines(const char *head, int64_t n)
{
    const char *end = n > 2 && !memcmp(head, "{\"", 2) ? (const char *)memchr(head, '\n', (size_t)n) : NULL;
    if (!end) return 0;
    const char *last = end - (end[-1] == '\r' ? 2 : 1);
    return *last == '}' && (end + 1 == head + n || end[1] == '{');
}

// The first byte that is not UTF-8; n: there is none. The last character may be truncated.
static int64_t gx__file_first_other(const char *head, int64_t n)
{
    int64_t at = 0;
    while (at < n) {
        char character[5] = {0};
        const int64_t left = gx_min(n - at, 4);
        memcpy(character, head + at, (size_t)left);
        const int used = gx_utf8_bytes(character);
        if (!used) return left < 4 && (unsigned char)head[at] >= 0xC2 && (unsigned char)head[at] < 0xF5 ? n : at;
        at += used;
    }
    return n;
}

void gx_file_warn_of_kind(const char *path, int is_bytes, const GxLogger *log)
{
    char head[1 << 14]; // a record may be long
    const int64_t n = log ? gx__file_head(path, head, sizeof head) : 0;
    if (n <= 0) return;
    const char *zero = (const char *)memchr(head, 0, (size_t)n);
    const int64_t other = zero ? n : gx__file_first_other(head, n);
    if (gx__file_is_json_lines(head, n))
        gx_log(log, GX_LOG_WARNING,
               "%s looks like JSON lines, but is learned as one text, with all its brackets; name it .jsonl to have "
               "train_llama and ./tokenize --corpus read its records",
               path);
    else if (zero && is_bytes)
        gx_log(log, GX_LOG_WARNING,
               "%s has a byte of value 0 (number %ld), which text does not have; it is learned as plain bytes; if that "
               "is not meant, name another file",
               path, (long)(zero - head));
    else if (is_bytes && other < n)
        gx_log(log, GX_LOG_WARNING,
               "%s is not UTF-8 (byte %ld is 0x%02X); it is learned as plain bytes; if it is text, convert it with "
               "iconv -f LATIN1 -t UTF-8 FILE > NEW.txt, or from whatever encoding it has",
               path, (long)other, (unsigned char)head[other]);
}
#endif
