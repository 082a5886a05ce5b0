// model/mode.h: the list of all modes, and the composed mode, which derives its collectives from the layouts.
//
// A mode is two functions for one (core, CON) pair, forward and backward, and a row {name, methods, functions}. A
// source like train_tp.cu contains no more than that, and is written with the collectives of doors.h, the rows of
// pass.h, and enter, core and CON (enter.h, cores.h, con.h).
//
// The programs train_llama and train_bert run the composed mode, whatever --mode is; train_llama_tp and its siblings
// run the sources. Tests check that both give the same results, bit for bit.
#ifndef GX_MODE_H
#define GX_MODE_H
#include "model.h"
GX_BEGIN

// ---- the modes -----------------------------------------------------------------------------------------------------

// All modes: name, and the methods of ATT, CON and MLP, from which that of the ends follows. The source of each is
// train_<name>.cu, which defines gx_<name>. Programs, tests, pictures and benchmarks read this list.
#define GX_MODES(X)                                                                                                    \
    X(tp, TP, NONE, TP)                                                                                                \
    X(sp, SP, SP, SP)                                                                                                  \
    X(galaxy, TP, SP, TP)                                                                                              \
    X(galaxy2, TP, SP, SP)

#define GX__MODE_DECLARE(name, att, con, mlp) extern const GxMode gx_##name;
GX_MODES(GX__MODE_DECLARE)

// Modes of the list that are written once more, with collectives that go by tiles (tiles.h): train_<name>_tiled.cu
// defines gx_<name>_tiled, whose name is that of the mode.
#define GX_TILED_MODES(X)            X(galaxy)
#define GX__MODE_DECLARE_TILED(name) extern const GxMode gx_##name##_tiled;
GX_TILED_MODES(GX__MODE_DECLARE_TILED)

// A mode for any valid methods, serial included: its collectives are derived from the layouts.
GxMode gx_composed(const char *name, GxMethods methods);
int gx_mode_is_composed(const GxMode *mode); // 0: its functions are in its own source

// Sets the methods of the mode with this name: "serial" or one of the list. Returns 0 if there is no such mode.
int gx_mode_methods(const char *name, GxMethods *methods);
#define GX__MODE_NAME(name, att, con, mlp) "|" #name
#define GX_MODE_NAMES                      "serial" GX_MODES(GX__MODE_NAME) // "serial|tp|sp|galaxy|galaxy2"

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODE_IMPLEMENTED)
#define GX_MODE_IMPLEMENTED
#include <string.h>
#include "con.h"
#include "cores.h"
#include "doors.h"
#include "enter.h"

// ---- composed ------------------------------------------------------------------------------------------------------

typedef struct {
    GxMove entry, exit;
    GxMethod core, con;
} GxModeMoves;

static GxModeMoves gx__mode_moves(const GxPass *p, int k)
{
    GxModeMoves m;
    m.core = gx_core_method(p, k), m.con = p->m->mode->methods.con;
    m.entry = gx_core_entry(m.core, m.con), m.exit = gx_core_exit(m.core, m.con);
    return m;
}

// The rows of `whole` that this rank has in a block split by this method: its slice with SP, otherwise all.
static GxRows gx__mode_rows(const GxPass *p, int k, GxMethod by, GxRows whole)
{
    return by == GX_METHOD_SP ? gx_own(p, k, whole) : whole;
}

// Starts the collective that brings rows into the layout on the other side of a door. FULL to SEQ needs none: each rank
// takes its slice.
static GxTicket gx__mode_move(GxPass *p, int k, GxDoor door, GxMoveKind move, GxRows whole)
{
    GxTicket none = GX_ZERO;
    switch (move) {
    case GX_MOVE_ALL_REDUCE: return gx_tp_all_reduce_start(p, k, door, whole);
    case GX_MOVE_ALL_GATHER: return gx_tp_all_gather_start(p, k, door, whole, gx_own(p, k, whole));
    case GX_MOVE_REDUCE_SCATTER: return gx_tp_reduce_scatter_start(p, k, door, gx_own(p, k, whole), whole);
    default: return none;
    }
}

static void gx__mode_pair_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    const GxModeMoves m = gx__mode_moves(p, k);
    const GxRows in = gx_core_in(p, k, x), out = gx_core_out(p, k);
    gx_enter_forward(p, k, gx__mode_rows(p, k, m.con, in), x);
    gx_wait(p->g, gx__mode_move(p, k, GX_ENTRY, m.entry.move.forward, in));
    gx_core_forward(p, k, gx__mode_rows(p, k, m.core, out), gx__mode_rows(p, k, m.core, in));
    gx_wait(p->g, gx__mode_move(p, k, GX_EXIT, m.exit.move.forward, out));
    gx_con_forward(p, k, y, x, gx__mode_rows(p, k, m.con, out));
}

static void gx__mode_pair_backward(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x)
{
    const GxModeMoves m = gx__mode_moves(p, k);
    const GxRows in = gx_core_in(p, k, x), din = gx_core_din(p, k), dout = gx_core_dout(p, k, dx);
    const GxRows my_in = gx__mode_rows(p, k, m.core, in), my_dout = gx__mode_rows(p, k, m.core, dout);
    gx_con_backward(p, k, dx, gx__mode_rows(p, k, m.con, dout), dy);
    gx_wait(p->g, gx__mode_move(p, k, GX_EXIT, m.exit.move.backward, dout));
    gx_core_backward_input(p, k, gx__mode_rows(p, k, m.core, din), my_dout, my_in);
    const GxTicket moved = gx__mode_move(p, k, GX_ENTRY, m.entry.move.backward, din);
    gx_core_backward_weight(p, k, my_dout, my_in); // overlaps din's collective
    gx_wait(p->g, moved);
    gx_enter_backward(p, k, dx, gx__mode_rows(p, k, m.con, din), x);
}

GxMode gx_composed(const char *name, GxMethods methods)
{
    GxMode m;
    m.name = name;
    m.methods = methods;
    m.pair_forward = gx__mode_pair_forward;
    m.pair_backward = gx__mode_pair_backward;
    m.is_tiled = 0;
    return m;
}

int gx_mode_is_composed(const GxMode *mode) { return mode->pair_forward == gx__mode_pair_forward; }

int gx_mode_methods(const char *name, GxMethods *methods)
{
#define GX__MODE_ROW(name, att, con, mlp) {#name, GX_METHOD_##att, GX_METHOD_##con, GX_METHOD_##mlp},
    static const struct {
        const char *name;
        GxMethod att, con, mlp;
    } modes[] = {{"serial", GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE}, GX_MODES(GX__MODE_ROW)};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i].name, name)) continue;
        *methods = gx_methods(modes[i].att, modes[i].con, modes[i].mlp);
        return 1;
    }
    return 0;
}
#endif
