// model/tuner.h: a method of training a part of a model, as a table of functions that build.h, tuned.h and unit.h call.
// A function is NULL if the method has nothing to do there. tuners.h lists the methods; GxModel.tuner has those that
// tune the model, and only these are called.
//
// What a method adds to a linear, to CON or to attention is not called through this table: linear.h and embed.h call
// lora.h and scale.h, con.h calls bottleneck.h, and att.h calls prompt.h.
#ifndef GX_TUNER_H
#define GX_TUNER_H
#include "pass.h"
GX_BEGIN

struct GxTuner {
    const char *name;               // for messages: "LoRA"; NULL: it is part of another method
    int (*is_on)(const GxModel *m); // 1: it tunes the model. Never NULL

    // called when a model is made, in this order
    GxStatus (*check)(GxModel *m, GxError *err);                  // checks hyperparameters, fills in defaults
    void (*open)(GxContext *g, GxModel *m, int unit, int number); // adds its tensors to a unit that has its own
    const char *(*trainable)(const GxModel *m);         // modules to be trained whole as well (tuned.h); NULL, "": none
    int (*trains)(const GxModel *m, const GxTensor *t); // 1: it also trains this tensor of the model
    GxStatus (*check_trained)(const GxModel *m, GxError *err); // checks what is now trained and what is frozen

    // For frozen adapter tensors (gx_tuned_check_frozen). through: a tensor whose gradient has the one in `row` as a
    // factor; -1: none. smallest: values up to this count as still being the small initial ones; NULL: 0
    int (*through)(const GxModel *m, int row);
    double (*smallest)(const GxModel *m, int row);

    // called when units run
    void (*layout)(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s); // what a pair keeps
    void (*layout_unit)(GxSlotLayout *l, const GxUnitKind *u, GxSlot *s);                     // what a unit keeps
    int (*needs_result)(const GxModel *m, int unit, int k); // 1: what a pair keeps is computed with its result
    // For the method's own units (GxUnitSpec.side). enter runs before the first pair and returns where the last pair's
    // result goes, leave runs after the last pair; and their backward. trains_enter: 1: a tensor of enter is trained.
    GxRows (*enter)(GxPass *p, GxState out, GxState in);
    void (*leave)(GxPass *p, GxState out, GxState in);
    GxRows (*leave_backward)(GxPass *p, GxState dout);
    void (*enter_backward)(GxPass *p, GxState din, GxRows dmixed, GxState in);
    int (*trains_enter)(const GxPass *p);
};

GX_END
#endif
