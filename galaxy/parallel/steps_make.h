// steps_make.h: makes lists of actions (steps.h): an order of micro-batches, then passes that expand and insert.
//
//     order      F, B, W of micro-batches
//     expand     to units: a head in training has B alone; below the lowest trained unit no B, and nothing is kept
//     recompute  R before B, where a layer kept its input only
//     grads      REDUCE of a bucket of units, behind the last contribution to them
//     window     COUNT first; at the end NORM of each unit, AGREE, STEP of each unit
#ifndef GX_STEPS_MAKE_H
#define GX_STEPS_MAKE_H
#include "steps.h"
GX_BEGIN

// Refuses what is not built yet: lists of a stage, [first, last) that is not all units. spec->frozen is copied.
GxStatus gx_steps_make(GxSteps *s, const GxStepsSpec *spec, GxError *err);

// A list from actions that somebody else has made: n of them are copied. Nothing is checked but the specification.
GxStatus gx_steps_open(GxSteps *s, const GxStepsSpec *spec, const GxAction *action, int n, GxError *err);

GX_END
#endif
