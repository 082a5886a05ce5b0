// steps_list.h: a list of actions (steps.h) that grows while it is made.
#ifndef GX_STEPS_LIST_H
#define GX_STEPS_LIST_H
#include "steps.h"

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_LIST_IMPLEMENTED)
#define GX_STEPS_LIST_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

typedef struct GxActions {
    GxAction *action;
    int n, capacity, failed; // failed: the system had no memory
} GxActions;

static GxAction gx__steps_action(int what, int unit, int micro_batch)
{
    GxAction a;
    memset(&a, 0, sizeof a);
    a.what = (int8_t)what;
    a.unit = (int16_t)unit;
    a.micro_batch = (int16_t)micro_batch;
    a.peer = a.ticket = a.after = -1;
    return a;
}

static void gx__steps_push(GxActions *list, GxAction a)
{
    if (list->n == list->capacity && !list->failed) {
        const int capacity = list->capacity ? 2 * list->capacity : 64;
        GxAction *grown = (GxAction *)realloc(list->action, (size_t)capacity * sizeof *grown);
        if (grown) list->action = grown, list->capacity = capacity;
        else list->failed = 1;
    }
    if (!list->failed) list->action[list->n++] = a;
}

static void gx__steps_push_new(GxActions *list, int what, int unit, int micro_batch)
{
    gx__steps_push(list, gx__steps_action(what, unit, micro_batch));
}
#endif
#endif
