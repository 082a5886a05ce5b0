// stages.h: which layers each stage of a pipeline has (--pp, --stage_num_hidden_layers_list).
#ifndef GX_STAGES_H
#define GX_STAGES_H
#include "session.h"
GX_BEGIN

// Sets s->stage: the first unit of each stage, followed by the number of units. Layers are divided evenly, with the
// remainder in the first stages; the embedding is in the first stage, heads are in the last. What ends an encoder is
// with its last layer, and a decoder's embedding with its first one. Refuses lists that do not fit the model.
GxStatus gx_stages_plan(GxSession *s);
// The layers of each stage. Refuses the same lists.
GxStatus gx_stages_layers(const GxSession *s, GxSplit *split);
// How many micro-batches of a validation are in flight at once, so that stages rarely wait: as many as a window has,
// but at least four per stage. 1: one stage, or no validation.
int gx_stages_evals(const GxTrainOptions *o);
// "pp 2 (1f1b, layers 3,2)"
void gx_stages_text(const GxSession *s, char *text, size_t size);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STAGES_IMPLEMENTED)
#define GX_STAGES_IMPLEMENTED
#include "../base/partition.h"

// Units before the first layer, and units of each layer: 2 with a side network, whose first layer and whose layers
// beside the model's are units, too.
static int gx__stages_lead(const GxTrainRun *r) { return gx_tuning_is_sides(r->chosen.tuning) ? 2 : 1; }

// The unit that a layer is, or of a side network's the first one.
static int64_t gx__stages_unit(const GxTrainRun *r, int64_t layer)
{
    const int lead = gx__stages_lead(r);
    const int64_t encoder = gx_run_encoder_layers(r);
    return lead + lead * layer + (encoder && layer >= encoder ? 2 : 0);
}

// The first unit of the stage whose first layer is `layer`.
static int16_t gx__stages_begin(const GxTrainRun *r, int64_t layer)
{
    const int is_decoders = layer && layer == gx_run_encoder_layers(r);
    return (int16_t)(layer ? gx__stages_unit(r, layer) - is_decoders : 0);
}

// Stages of all ranks together: one or two on each rank.
static int gx__stages_count(const GxTrainRun *r)
{
    return (int)r->o.pp * (r->o.pp > 1 ? gx_order_info(r->chosen.order)->chunks : 1);
}

GxStatus gx_stages_layers(const GxSession *s, GxSplit *split)
{
    const GxTrainRun *r = s->run;
    const int64_t layers = gx_run_layers(r);
    const GxTrainOptions *o = &r->o;
    const GxIntList *list = &o->stage_num_hidden_layers_list;
    const int stages = gx__stages_count(r);
    GxError *err = &s->g->error;
    const int most = (int)gx_min(layers, GX_MAX_PARTS), pp_most = most * (int)o->pp / stages;
    if (stages > most && pp_most < 2 && stages > o->pp)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--pipeline_schedule %s puts two stages on each rank, but the model has %ld layer%s, fewer than "
                       "two ranks need; use another --pipeline_schedule, or leave out --pp",
                       o->pipeline_schedule, (long)layers, layers == 1 ? "" : "s");
    if (stages > most)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--pp %ld: the model has %ld layer%s, but each stage needs at least one%s; use at most --pp %d",
                       (long)o->pp, (long)layers, layers == 1 ? "" : "s",
                       stages > o->pp ? ", two of them on each rank" : "", pp_most);
    if (!list->n) {
        *split = gx_split_even(layers, stages);
        return GX_OK;
    }
    return gx_split_list(split, "stage_num_hidden_layers_list", list->v, list->n, layers, stages, err);
}

GxStatus gx_stages_plan(GxSession *s)
{
    GxTrainRun *r = s->run;
    const GxTrainOptions *o = &r->o;
    const int64_t layers = gx_run_layers(r);
    GxSplit split;
    if (o->pp == 1 && !o->stage_num_hidden_layers_list.n) return GX_OK;
    if (o->pp > 1 && r->chosen.tuning == GX_TUNING_SIDE_ONLY)
        return GX_FAIL(&s->g->error, GX_ERR_ARGUMENT,
                       "--tuning side_only keeps the outputs of all layers on each rank, but with --pp a rank has only "
                       "some of the layers; use --tuning side, or leave out --pp");
    GX_TRY(gx_stages_layers(s, &split));
    for (int i = 0; i < split.n; i++) s->stage[i] = gx__stages_begin(r, split.begin[i]);
    s->stage[split.n] = (int16_t)(gx__stages_unit(r, layers) + 1);
    for (int i = 0; i < o->stage_warm_list.n; i++) s->warm[i] = (int16_t)o->stage_warm_list.v[i];
    return GX_OK;
}

int gx_stages_evals(const GxTrainOptions *o)
{
    const int validates = !o->sample_only || o->evaluate || o->predicts;
    return o->pp > 1 && validates ? (int)gx_max(o->gradient_accumulation_steps, 4 * o->pp) : 1;
}

void gx_stages_text(const GxSession *s, char *text, size_t size)
{
    const GxTrainRun *r = s->run;
    const int stages = gx__stages_count(r);
    const int64_t layers = gx_run_layers(r);
    int n = snprintf(text, size, "pp %d (%s, layers ", (int)r->o.pp, gx_order_info(r->chosen.order)->name);
    int64_t layer = 0;
    for (int i = 0; i < stages && n < (int)size; i++) {
        const int64_t first = layer;
        while (layer < layers && (i + 1 == stages || gx__stages_begin(r, layer) < s->stage[i + 1])) layer++;
        n += snprintf(text + n, size - (size_t)n, "%s%ld", i ? "," : "", (long)(layer - first));
    }
    if (n < (int)size) snprintf(text + n, size - (size_t)n, ")");
}
#endif
