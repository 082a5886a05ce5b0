// model/tuners.h: the list of all methods of training a part of a model. To add one, write its file (like
// bottleneck.h), and add its hyperparameters to tuning_spec.h and a line here.
#ifndef GX_TUNERS_H
#define GX_TUNERS_H
#include "tuner.h"
GX_BEGIN

// Sets m->tuner to the methods that tune the model, and checks their hyperparameters. An error if more than one of them
// has a name.
GxStatus gx_tuners_open(GxModel *m, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TUNERS_IMPLEMENTED)
#define GX_TUNERS_IMPLEMENTED
#include <stdlib.h>
#include "bottleneck.h"
#include "lora.h"
#include "prompt.h"
#include "scale.h"
#include "side.h"

static GxTuner (*const gx__tuners[])(void) = {
    gx_lora_tuner, gx_bottleneck_tuner, gx_side_tuner, gx_prompt_tuner, gx_scale_tuner,
};
enum { GX__TUNERS = sizeof gx__tuners / sizeof *gx__tuners };

GxStatus gx_tuners_open(GxModel *m, GxError *err)
{
    m->tuner = (GxTuner *)calloc(GX__TUNERS, sizeof *m->tuner);
    if (!m->tuner) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of tuning methods");
    for (int i = 0; i < GX__TUNERS; i++) {
        const GxTuner t = gx__tuners[i]();
        if (t.is_on(m)) m->tuner[m->tuners++] = t;
    }
    for (int i = 1; i < m->tuners; i++)
        if (m->tuner[i].name)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s and %s are two ways to tune a model; choose one of them",
                           m->tuner[0].name, m->tuner[i].name);
    for (int i = 0; i < m->tuners; i++)
        if (m->tuner[i].check) GX_TRY(m->tuner[i].check(m, err));
    return GX_OK;
}
#endif
