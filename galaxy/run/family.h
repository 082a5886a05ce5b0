// family.h: what the trainer must know of a family of models beyond GxModel: its options, its config.json, how to open
// it.
#ifndef GX_FAMILY_H
#define GX_FAMILY_H
#include "../parallel/layout.h"
#include "../io/config.h"
#include "../model/model.h"
GX_BEGIN

typedef struct {
    const char *name;       // "llama"
    const GxField *options; // into a struct of config_size bytes; names as in Hugging Face's config.json
    int n_options;
    size_t config_size;
    GxMode (*split)(const void *mode); // what a mode of this family splits: decides about options
    // Resolves defaults in config; refuses what cannot be.
    GxStatus (*open)(GxContext *g, GxModel **m, void *config, const void *mode, const GxSplitLists *lists);
    void (*close)(GxModel *m);
    void (*take_buffers)(GxContext *g, GxModel *m, int64_t T, int64_t B, int64_t head_chunk);
    int64_t (*vocab_size)(const GxModel *m);
    GxStatus (*read_config)(void *config, const char *path, GxError *err); // of a Hugging Face folder's config.json
    GxStatus (*write_config)(const GxModel *m, const char *path, GxError *err);
} GxFamily;

GX_END
#endif
