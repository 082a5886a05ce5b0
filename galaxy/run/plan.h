// plan.h: the memory of a run before it is taken: counted by the code that will take it, printed, and refused where it
// does not fit.
#ifndef GX_PLAN_H
#define GX_PLAN_H
#include "../base/context.h"
#include <stdio.h>
GX_BEGIN

typedef struct {
    int64_t bytes, activations; // that all its ranks need; what of it grows with the batch
    int64_t has;                // bytes that it could give when the plan was made; 0: not known
} GxPlanPlace;

typedef struct {
    int64_t kind[GX_MEM_KINDS]; // peak bytes of each kind, of one rank
    int64_t arena;              // peak of all together: what is allocated, in the device's memory
    int is_apart;               // 1: the device's memory is not the host's; then
    int64_t host;               // of the host's memory
    int64_t comm;               // the communicator's own buffers, in the host's memory
    int64_t least, most;        // gx_plan_arena of the ranks that need least and most
    int64_t here;               // of the host's memory: all ranks in this process
    GxPlanPlace machine, card; // this machine's memory, all processes of ranks included; the memory of this rank's card
    int64_t process;           // program, libraries and their buffers, of one process
    double flops, flops_all;   // of one optimizer step, this rank; all ranks
    int64_t comm_bytes;        // that this rank sends in a step
    int ranks_here;            // that share this process
} GxPlan;

// What the process holds besides arenas: what is resident now, and what the GEMM library and the thread stacks will
// add.
int64_t gx_plan_process_bytes(int threads_here);

// What a rank takes where its arena lies.
static inline int64_t gx_plan_arena(const GxPlan *p) { return p->is_apart ? p->arena : p->arena + p->comm; }
static inline int64_t gx_plan_total(const GxPlan *p) { return p->here + p->process; }
void gx_plan_print(FILE *out, const GxPlan *p);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLAN_IMPLEMENTED)
#define GX_PLAN_IMPLEMENTED
#include "metrics.h"

// Measured: what a rank's thread adds once oneDNN has compiled its kernels and packed its panels, and OpenMP has made
// its stacks.
enum { GX__PLAN_LIBRARY_BYTES = 12 << 20, GX__PLAN_LIBRARY_BYTES_PER_THREAD = 6 << 20 };

int64_t gx_plan_process_bytes(int threads_here)
{
    return gx_process_memory() + GX__PLAN_LIBRARY_BYTES + (int64_t)threads_here * GX__PLAN_LIBRARY_BYTES_PER_THREAD;
}

static double gx__plan_mb(int64_t bytes) { return (double)bytes / 1e6; }

void gx_plan_print(FILE *out, const GxPlan *p)
{
    fprintf(out, "memory plan, MB %s:", p->least != p->most ? "of rank 0" : "per rank");
    for (int k = 0; k < GX_MEM_KINDS; k++)
        fprintf(out, " %s %.1f%s", gx_memory_kind_name((GxMemoryKind)k), gx__plan_mb(p->kind[k]),
                k + 1 < GX_MEM_KINDS ? "," : "\n");
    fprintf(out, "  arena %.1f", gx__plan_mb(gx_plan_arena(p)));
    if (p->least != p->most) fprintf(out, " (of the ranks: %.1f to %.1f)", gx__plan_mb(p->least), gx__plan_mb(p->most));
    if (p->card.has)
        fprintf(out, ", %.1f on this card, which has %.1f left", gx__plan_mb(p->card.bytes), gx__plan_mb(p->card.has));
    else if (p->is_apart && p->ranks_here > 1) fprintf(out, ", %d ranks in this process", p->ranks_here);
    else if (p->least != p->most && p->ranks_here > 1)
        fprintf(out, ", %d ranks in this process %.1f", p->ranks_here, gx__plan_mb(p->here));
    else if (p->ranks_here > 1) fprintf(out, " x %d ranks in this process", p->ranks_here);
    if (p->is_apart) fprintf(out, "; in the device's memory\n  of the host's: buffers %.1f", gx__plan_mb(p->here));
    fprintf(out, " + program and libraries %.1f = %.1f MB\n", gx__plan_mb(p->process), gx__plan_mb(gx_plan_total(p)));
}
#endif
