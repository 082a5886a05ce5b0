// cuda.h: the device `cuda` as programs see it: plain C, to be linked with what is compiled from galaxy_cuda.cuh.
#ifndef GX_CUDA_H
#define GX_CUDA_H
#include "../ops/device.h"
GX_BEGIN

const GxDevice *gx_device_cuda(void);

// "NVIDIA H200, sm_90, 140 GiB, CUDA 13.0, driver for 13.1", of the calling thread's card; or why there is none
void gx_cuda_describe(char *text, size_t size);

GX_END
#endif
