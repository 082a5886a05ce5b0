// measure.h: measures the machines of a run: how long the operations of its model take on each rank, in real steps of
// this model with one layer, and how fast the links between all ranks are.
//
//     GxMachines machines;
//     GX_TRY(gx_measure(session, &machines));         // called by all ranks; rank 0 gets all figures
//
// A step is timed at the shares of a layer that matter, since a product of half as many columns need not take half as
// long: all of it with all samples of a micro-batch, with one sample, half of it, and the smallest share. All ranks
// compute at the same time, as in training: those that share a machine also share its memory and cores. Each step is
// computed four times, the first of them not counted; medians count. Slow machines do less: a step at least, within
// GX_MEASURE_SECONDS. Times that scatter are measured again once, and then reported with their spread.
//
// Links: between each ordered pair, an empty message (latency) and a large one (bandwidth), one pair at a time; then all
// ranks at once, which shows a switch that they share.
#ifndef GX_MEASURE_H
#define GX_MEASURE_H
#include "../plan/machines.h"
#include "stage_walk.h"
GX_BEGIN

enum { GX_MEASURE_SECONDS = 20, GX_MEASURE_LINK_SECONDS = 5 };

// The session's data must be open, its memory must not. mode: of the groups. On ranks other than 0, machines is empty.
GxStatus gx_measure(GxSession *s, const GxMode *mode, int64_t micro_batch, GxMachines *machines);

// What times depend on besides the machine: the model's widths, the length of samples, precision, what is trained.
void gx_measure_model(const GxSession *s, GxMachines *machines);

GX_END
#endif
