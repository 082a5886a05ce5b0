// gguf_work.h: the state of a conversion between a Hugging Face folder and a GGUF file (gguf_export.h, gguf_import.h,
// gguf_adapter.h): the model without weights, whose table lists the tensors, and a buffer for some of their rows.
//
//     GxGgufWork *w = gx_gguf_work_open(folder, path, &said, log, err);
//     ... fill w->config ...
//     GX_TRY(gx_gguf_open_model(w, NULL));
//     return gx_gguf_work_close(w, status, err);
#ifndef GX_GGUF_WORK_H
#define GX_GGUF_WORK_H
#include "../model/llama.h"
#include "../model/mode.h"
#include "../model/model.h"
#include "../text/gguf_tokenizer.h"
#include "gguf_names.h"
GX_BEGIN

enum { GX_GGUF_FLOATS = 1 << 18 }; // read at a time, or one row if it is longer

typedef struct { // what was done, for messages
    char model[GX_FIELD_TEXT], tokenizer[GX_GGUF_TOKENIZER_SAID];
    int tensors, as_f16; // as_f16: how many of them could not have the requested type
    int64_t parameters;
} GxGgufSaid;

typedef struct {
    GxContext g; // its error is the conversion's
    GxDevice device;
    GxMode mode;
    GxModel m;
    GxLlamaConfig config;
    const GxGgufArch *arch;
    GxTokenizerKeys keys;
    GxGgufSaid *said;
    const char *folder, *path;
    float *rows; // [GX_GGUF_FLOATS], or one row if it is longer
} GxGgufWork;

// *said: set to 0, and filled in during the conversion. NULL: out of memory.
GxGgufWork *gx_gguf_work_open(const char *folder, const char *path, GxGgufSaid *said, const GxLogger *log,
                              GxError *err);
// Opens the model of w->config without weights, and allocates w->rows. options: may be NULL.
GxStatus gx_gguf_open_model(GxGgufWork *w, const GxModelOptions *options);
// Frees everything. Returns `status`; if that is an error, `err` gets the context's message.
GxStatus gx_gguf_work_close(GxGgufWork *w, GxStatus status, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_WORK_IMPLEMENTED)
#define GX_GGUF_WORK_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../cpu/cpu.h"
#include "llama_family.h"

GxStatus gx_gguf_open_model(GxGgufWork *w, const GxModelOptions *options)
{
    w->g.world = 1;
    w->g.device = gx_device_cpu();
    w->mode = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE));
    GX_TRY(gx_model_open(&w->g, &w->m, &gx_llama, &w->config, &w->mode, options));
    int64_t most = GX_GGUF_FLOATS;
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        most = gx_max(most, t->global_shape[t->ndim - 1]);
    }
    w->said->parameters = gx_table_parameters(&w->m.table);
    w->rows = (float *)malloc((size_t)most * sizeof *w->rows);
    return w->rows ? GX_OK : GX_FAIL(&w->g.error, GX_ERR_MEMORY, "no memory for %ld floats", (long)most);
}

GxGgufWork *gx_gguf_work_open(const char *folder, const char *path, GxGgufSaid *said, const GxLogger *log, GxError *err)
{
    GxGgufWork *w = (GxGgufWork *)calloc(1, sizeof *w);
    memset(said, 0, sizeof *said);
    if (!w) GX_FAIL(err, GX_ERR_MEMORY, "no memory to convert %s", path);
    else w->said = said, w->folder = folder, w->path = path, w->g.log = *log;
    return w;
}

GxStatus gx_gguf_work_close(GxGgufWork *w, GxStatus status, GxError *err)
{
    if (status != GX_OK) GX_FAIL(err, status, "%s", w->g.error.message);
    gx_model_close(&w->m);
    gx_tokenizer_keys_close(&w->keys);
    free(w->rows);
    free(w);
    return status;
}
#endif
