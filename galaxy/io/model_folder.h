// model_folder.h: the names of files in a folder with a model or an adapter, as given by transformers and peft, and
// where the model's configuration is.
#ifndef GX_MODEL_FOLDER_H
#define GX_MODEL_FOLDER_H
#include "../base/status.h"
GX_BEGIN

#define GX_ADAPTER_FILE "adapter_model.safetensors"
#define GX_PEFT_PREFIX  "base_model.model." // of the names of an adapter's tensors
// The name of the model's config.json in an adapter's folder, which transformers would otherwise take for a model's
// folder.
#define GX_PEFT_MODEL_CONFIG "model_config.json"

// The path of the folder's config.json, or, if there is none, of GX_PEFT_MODEL_CONFIG. path[GX_PATH].
GxStatus gx_model_config_path(char *path, const char *folder, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_FOLDER_IMPLEMENTED)
#define GX_MODEL_FOLDER_IMPLEMENTED
#include <stdio.h>
#include "files.h"

GxStatus gx_model_config_path(char *path, const char *folder, GxError *err)
{
    char other[GX_PATH];
    GX_TRY(gx_path_join(path, folder, "config.json", err));
    GX_TRY(gx_path_join(other, folder, GX_PEFT_MODEL_CONFIG, err));
    if (!gx_path_is_file(path) && gx_path_is_file(other)) snprintf(path, GX_PATH, "%s", other);
    return GX_OK;
}
#endif
