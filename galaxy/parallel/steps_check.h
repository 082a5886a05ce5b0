// steps_check.h: replays a list of actions (steps.h) before it runs: does every action find what it uses?
//
// One rank's list is held against the table of effects: everything used is there and not arriving, nothing is made
// twice, nothing is touched while a ticket is under way; each unit has its F, B and W once per micro-batch; gradients
// are summed after their last contribution, once per axis, before their norm; one STEP, after AGREE; COUNT stands
// first; tickets are waited for; at the end exactly that is there which was there at the start, so lists of training
// and evaluation may follow one another in any order. The first action that does not fit is named, with what it needs.
//
// Messages between stages, sharded weights and offloaded rows are not checked yet: their actions are refused.
#ifndef GX_STEPS_CHECK_H
#define GX_STEPS_CHECK_H
#include "steps.h"
GX_BEGIN

enum { GX_TICKETS = 16 }; // that may be open at once

GxStatus gx_steps_check(const GxSteps *s, GxError *err);

GX_END
#endif
