// npy.h: a matrix of fp32 as a NumPy file (format 1.0), which numpy.load reads.
//
//     GX_TRY(gx_npy_check("vectors.npy", "--embed_output", err));         // before anything is computed
//     GX_TRY(gx_npy_write("vectors.npy", x, rows, cols, err));
//
// The file gets its name only when it is complete. An existing file is never replaced. Little-endian hosts only, as for
// safetensors.
#ifndef GX_NPY_H
#define GX_NPY_H
#include "files.h"
GX_BEGIN

// Refuses a path that cannot be written to; `who` is the option that gave it.
GxStatus gx_npy_check(const char *path, const char *who, GxError *err);
GxStatus gx_npy_write(const char *path, const float *x, int64_t rows, int64_t cols, GxError *err); // x [rows][cols]

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_NPY_IMPLEMENTED)
#define GX_NPY_IMPLEMENTED
#include <stdio.h>
#include <string.h>

GxStatus gx_npy_check(const char *path, const char *who, GxError *err)
{
    if (gx_text_stem(path, ".npy") <= 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s %s: its name must end with .npy", who, path);
    return gx_file_check_new(path, who, err);
}

// Magic, version, the header's length in two bytes, then a dictionary, padded with spaces to a multiple of 64 bytes.
static int64_t gx__npy_header(char header[128], int64_t rows, int64_t cols)
{
    enum { BYTES = 128, BEGIN = 10 };
    memset(header, ' ', BYTES);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(BYTES - BEGIN), header[9] = 0;
    const int n = snprintf(header + BEGIN, BYTES - BEGIN,
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (%ld, %ld), }", (long)rows, (long)cols);
    header[BEGIN + n] = ' ';
    header[BYTES - 1] = '\n';
    return BYTES;
}

GxStatus gx_npy_write(const char *path, const float *x, int64_t rows, int64_t cols, GxError *err)
{
    char header[128];
    GxNewFile file;
    const int64_t bytes = gx__npy_header(header, rows, cols);
    GX_TRY(gx_file_create(&file, path, err));
    GxStatus status = gx_file_write_at(file.fd, file.path, header, bytes, 0, err);
    if (status == GX_OK) status = gx_file_write_at(file.fd, file.path, x, 4 * rows * cols, bytes, err);
    if (status == GX_OK) return gx_file_commit(&file, err);
    gx_file_abandon(&file);
    return status;
}
#endif
