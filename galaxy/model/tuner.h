// model/tuner.h: a method of training a part of a model: a table of functions, which build.h, tuned.h and unit.h
// walk. Each may be NULL: the method has nothing to do there. tuners.h lists the methods; GxModel.tuner are those that
// tune the model, and no others are called.
//
// What a method adds to a product of a linear, to CON or to attention is computed by what calls it there: lora.h and
// scale.h for linear.h and embed.h, bottleneck.h for con.h, prompt.h for att.h.
#ifndef GX_TUNER_H
#define GX_TUNER_H
#include "pass.h"
GX_BEGIN

struct GxTuner {
    const char *name;               // for messages: "LoRA"; NULL: it comes with another method
    int (*is_on)(const GxModel *m); // 1: the model is tuned by it. Never NULL

    // when a model is made, in this order
    GxStatus (*check)(GxModel *m, GxError *err);                  // the hyperparameters, and resolves defaults
    void (*open)(GxContext *g, GxModel *m, int unit, int number); // adds its tensors to a unit that has its own
    const char *(*trainable)(const GxModel *m); // modules that are trained whole besides (tuned.h); NULL, "": none
    int (*trains)(const GxModel *m, const GxTensor *t);        // 1: this tensor of the model's own, too
    GxStatus (*check_trained)(const GxModel *m, GxError *err); // what is frozen and what is trained, as it is now

    // Where adapter tensors may be frozen (gx_tuned_check_frozen): a tensor that has the one in `row` as a factor of
    // its gradient; -1: none. And how large a value may be that is as small as it was initialised; NULL: 0
    int (*through)(const GxModel *m, int row);
    double (*smallest)(const GxModel *m, int row);

    // at work
    void (*layout)(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s); // what a pair keeps
    void (*layout_unit)(GxSlotLayout *l, const GxUnitKind *u, GxSlot *s);                     // and what its unit does
    int (*needs_result)(const GxModel *m, int unit, int k); // 1: what a pair keeps is written with the pair's result
    // A unit of its own kind (GxUnitSpec.side): what it computes before its first pair (returns where the last pair's
    // result goes) and after its last one, and their backward. trains_enter: 1: a tensor of enter is trained.
    GxRows (*enter)(GxPass *p, GxState out, GxState in);
    void (*leave)(GxPass *p, GxState out, GxState in);
    GxRows (*leave_backward)(GxPass *p, GxState dout);
    void (*enter_backward)(GxPass *p, GxState din, GxRows dmixed, GxState in);
    int (*trains_enter)(const GxPass *p);
};

GX_END
#endif
