// steps_place.h: where the rows and slots of a list of actions (steps.h) lie in memory.
//
// What an action makes lives until an action ends it. Lives that do not overlap may share bytes: they are packed into
// one region, the largest first, each at the lowest offset where it meets no other. B writes the gradient of a unit's
// input over that of its output where both have the same size.
#ifndef GX_STEPS_PLACE_H
#define GX_STEPS_PLACE_H
#include "steps.h"
GX_BEGIN

// By unit, [units] each: the unit's input (x[0] is not read: the embedding has none), its gradient (NULL: as x), its
// slot.
typedef struct {
    const int64_t *x, *dx, *slot;
} GxStepsBytes;

// Fills made[], operands, buffer, bytes and most of a list that gx_steps_check has accepted.
GxStatus gx_steps_place(GxSteps *s, const GxStepsBytes *bytes, GxError *err);

// Whether no two things that are alive at once share a byte (but a gradient and the one that it is made from in place),
// all lie in the region, and every action's operands are where its rows were made.
GxStatus gx_steps_check_place(const GxSteps *s, const GxStepsBytes *bytes, GxError *err);

GX_END
#endif
