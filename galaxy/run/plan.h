// plan.h: the memory that a run will need, known before it is allocated. It is counted by the code that will allocate
// it, combined over all ranks, printed, and refused if it does not fit.
//
// The plan does not know what it counts: it gets the run's own code as a function (GxDryRun), and calls it with a
// device that does not compute and an arena that only counts.
#ifndef GX_PLAN_H
#define GX_PLAN_H
#include "../base/context.h"
#include "../base/partition.h"
#include "../io/config.h"
#include <stdio.h>
GX_BEGIN

typedef struct {
    int64_t bytes, activations; // needed by all ranks there; the part that grows with the batch
    int64_t has;                // bytes that were free when the plan was made, or the limit; 0: unknown
    int is_limited;             // it is the limit
} GxPlanPlace;                  // a memory that several ranks may share

typedef struct {
    int64_t kind[GX_MEM_KINDS];  // peak bytes of each kind, on one rank
    int64_t arena;               // peak bytes of all kinds together: what is allocated, in the device's memory
    int is_apart;                // 1: the device has a memory of its own
    int64_t host;                // if is_apart: bytes of the host's memory
    int64_t comm;                // bytes of the communicator's own buffers, in the host's memory
    int64_t least, most;         // gx_plan_arena of the rank that needs the least, and of the one that needs the most
    int copies, sharded;         // data-parallel ranks; what those of dp_shard share (GxSharded)
    int stages;                  // of a pipeline; 1: there is none
    int64_t stage[GX_MAX_PARTS]; // gx_plan_arena of the rank of each stage that needs the most
    int64_t here;                // bytes of the host's memory for all ranks of this process
    GxPlanPlace machine, card;   // this machine's memory, for all processes on it; the memory of this rank's card
    // bytes of one process: program, libraries and their buffers; set before gx_plan_make: as an earlier plan found it
    int64_t process;
    int64_t peak_before;     // the process's peak until then: opening the data may take more than training does
    double flops, flops_all; // of one optimizer step, or of a batch if nothing is trained: this rank's, all ranks'
    double flops_kept, flops_kept_all; // the part of these that a step saves once a side cache has all samples
    int64_t comm_bytes;                // bytes that this rank sends in a step or batch
    int ranks_here;                    // ranks that share this process
    int in_file;                       // kinds whose memory is in a file (--offload): set before gx_plan_make
    // most bytes that the machine or card may have (--memory_limit), set before gx_plan_make; 0: what is free
    int64_t limit;
} GxPlan;

// Bytes that the process needs besides arenas: what is resident now, and what the GEMM library and the threads' stacks
// will add.
int64_t gx_plan_process_bytes(int threads_here);

// Bytes that a rank needs of the memory that has its arena.
static inline int64_t gx_plan_arena(const GxPlan *p) { return p->is_apart ? p->arena : p->arena + p->comm; }
int64_t gx_plan_in_file(const GxPlan *p); // of it, bytes that are in a file
static inline int64_t gx_plan_total(const GxPlan *p) { return p->here + p->process; }

// Takes memory in every way that the run does, on `dry`, whose device does not compute and whose arena only counts.
// Sets p->flops and p->comm_bytes after one optimizer step, or one batch if nothing is trained, and p->sharded.
typedef void GxDryRun(GxPlan *p, GxContext *dry, void *user);

// Called by all ranks together. comm_arena: the communicator's, which is already open.
GxStatus gx_plan_make(GxPlan *p, GxContext *g, const GxArena *comm_arena, int ranks_here, GxDryRun *run, void *user);
// An error if the plan does not fit this machine, or this rank's card. samples: of a micro-batch on this rank; list:
// those of all copies of the model if they are unequal (for the message's advice).
GxStatus gx_plan_refuse_too_large(const GxPlan *p, int64_t samples, const GxIntList *list, GxError *err);
void gx_plan_print(FILE *out, const GxPlan *p);

uint64_t gx_plan_card(const GxContext *g); // a number that identifies this rank's card; 0: it has none

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLAN_IMPLEMENTED)
#define GX_PLAN_IMPLEMENTED
#include <string.h>
#include <unistd.h>
#include "../base/mesh.h"
#include "../comm/comm.h"
#include "../ops/device.h"
#include "process_memory.h"

// Measured: the bytes that a thread of a rank adds once oneDNN has compiled its kernels and packed its panels, and
// OpenMP has made its stacks.
enum { GX__PLAN_LIBRARY_BYTES = 12 << 20, GX__PLAN_LIBRARY_BYTES_PER_THREAD = 6 << 20 };

int64_t gx_plan_process_bytes(int threads_here)
{
    return gx_process_memory() + GX__PLAN_LIBRARY_BYTES + (int64_t)threads_here * GX__PLAN_LIBRARY_BYTES_PER_THREAD;
}

int64_t gx_plan_in_file(const GxPlan *p)
{
    int64_t bytes = 0;
    for (int k = 0; k < GX_MEM_KINDS; k++)
        if (p->in_file >> k & 1) bytes += p->kind[k];
    return gx_min(bytes, p->arena);
}

uint64_t gx_plan_card(const GxContext *g) { return g->device->card ? g->device->card(g) : 0; }

// What each rank tells the others: ranks may need different amounts, and several of them may share a machine or a card.
typedef struct {
    double bytes, activations; // of the memory that has the arena
    double memory, process;    // of the host's memory: for arenas; for everything else
    // numbers that identify the machine and the card. card 0: the arena is in the machine's memory; below 0: in that of
    // a card that is not here, which a dry run takes to be the rank's own
    double host, card;
    double card_free; // bytes
    double flops, flops_kept;
} gx__PlanRank;
enum { GX__PLAN_RANK = sizeof(gx__PlanRank) / sizeof(double) };

static double gx__plan_host_number(void)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return (double)(gx_hash(GX_HASH_START, name, (int64_t)strlen(name)) >> 12); // a whole number that a double holds
}

static void gx__plan_limit(const GxPlan *p, GxPlanPlace *place)
{
    place->is_limited = p->limit > 0 && (place->has == 0 || p->limit < place->has);
    if (place->is_limited) place->has = p->limit;
}

static GxStatus gx__plan_together(GxPlan *p, GxContext *g)
{
    gx__PlanRank mine = GX_ZERO, all[GX_MAX_PARTS] = GX_ZERO;
    int64_t card_all;
    p->machine.has = gx_available_memory(); // before any rank takes its part
    if (p->is_apart) g->device->memory(g, &p->card.has, &card_all);
    gx__plan_limit(p, p->is_apart ? &p->card : &p->machine);
    mine.bytes = (double)gx_plan_arena(p);
    mine.activations = p->in_file >> GX_MEM_ACTIVATIONS & 1 ? 0 : (double)p->kind[GX_MEM_ACTIVATIONS];
    mine.memory = (double)((p->is_apart ? p->host : p->arena) + p->comm - gx_plan_in_file(p)),
    mine.process = (double)p->process;
    mine.host = gx__plan_host_number(), mine.card = (double)(gx_plan_card(g) >> 12);
    if (p->is_apart && mine.card == 0) mine.card = -1 - g->rank;
    mine.card_free = (double)p->card.has, mine.flops = p->flops;
    mine.flops_kept = p->flops_kept;
    const GxSplit ranks = gx_split_even(g->world, g->world);
    gx_at(g, -1, "plan");
    gx_all_gather(g, GX_AXIS_ALL, &ranks, all, &mine, GX__PLAN_RANK, GX_F64); // a gather needs no scratch
    if (gx_failed(g)) return gx_status(g);
    p->least = gx_plan_arena(p);
    p->stages = gx_group_size(g, GX_AXIS_PP), p->copies = gx_group_size(g, GX_AXIS_DP);
    p->machine.bytes = p->ranks_here > 1 ? p->process : 0;
    for (int r = 0; r < g->world; r++) {
        const gx__PlanRank *rank = &all[r];
        const int64_t bytes = (int64_t)rank->bytes, activations = (int64_t)rank->activations;
        int64_t *stage = &p->stage[g->mesh ? gx_mesh_pp_of(g->mesh, r) : 0];
        p->least = gx_min(p->least, bytes), p->most = gx_max(p->most, bytes), *stage = gx_max(*stage, bytes);
        p->flops_all += rank->flops, p->flops_kept_all += rank->flops_kept;
        if (p->ranks_here > 1 || r == g->rank) p->here += (int64_t)rank->memory;
        if (mine.card && rank->card == mine.card) {
            p->card.bytes += bytes, p->card.activations += activations;
            p->card.has = gx_min(p->card.has, (int64_t)rank->card_free);
        }
        if (rank->host != mine.host) continue;
        p->machine.bytes += (int64_t)rank->memory + (p->ranks_here > 1 ? 0 : (int64_t)rank->process);
        if (!rank->card) p->machine.activations += activations;
    }
    return gx_status(g);
}

GxStatus gx_plan_make(GxPlan *p, GxContext *g, const GxArena *comm_arena, int ranks_here, GxDryRun *run, void *user)
{
    GxArena arena, host, beside;
    GxComm nobody = GX_ZERO;
    GxRecorder recorder = GX_ZERO;
    GxContext dry = *g;
    GxDevice none = gx_device_none(g->device);
    recorder.totals_only = 1;
    nobody.rank = g->rank, nobody.world = g->world;
    nobody.device_engine = g->comm ? g->comm->device_engine : NULL; // whether it exists decides what else is taken
    gx_arena_open_dry(&arena);
    gx_arena_open_dry(&host);
    gx_arena_open_dry(&beside);
    dry.host = &beside, dry.device = &none, dry.recorder = &recorder, dry.comm = NULL;
    if (g->comm) gx_comm_open(&dry, &nobody); // its memory is counted apart, but what it holds decides what a sum takes
    dry.arena = &arena;
    dry.host = none.shares_host_memory ? NULL : &host;
    run(p, &dry, user);
    memcpy(p->kind, arena.kind_peak, sizeof p->kind);
    p->arena = arena.peak;
    p->host = host.peak;
    p->is_apart = !none.shares_host_memory;
    if (!p->is_apart) p->kind[GX_MEM_COMM] += comm_arena->peak;
    p->comm = comm_arena->capacity;
    p->ranks_here = ranks_here;
    if (!p->process) p->process = gx_plan_process_bytes(ranks_here * gx_threads(g));
    p->peak_before = gx_process_peak_memory();
    if (!gx_failed(&dry)) return gx__plan_together(p, g);
    g->error = dry.error;
    return gx_status(g);
}

// What a place would need if data-parallel ranks shared weights, gradients and optimizer state, assuming that all ranks
// need what this one does. 0: they share them already, or there is only one.
static int64_t gx__plan_shared(const GxPlan *p, const GxPlanPlace *place)
{
    const double all = (double)gx_plan_arena(p),
                 own = (double)(p->kind[GX_MEM_WEIGHTS] + p->kind[GX_MEM_GRADS] + p->kind[GX_MEM_OPTIMIZER]);
    if (p->sharded == 3 || p->copies < 2 || all <= 0) return 0;
    return (int64_t)((double)place->bytes * (1 - own / all * (1 - 1.0 / p->copies)));
}

static GxStatus gx__plan_refuse_all(const GxPlan *p, const GxPlanPlace *place, const char *where, GxError *err)
{
    const int64_t shared = gx__plan_shared(p, place);
    char instead[120] = "";
    if (place == &p->machine && place->has < p->process)
        return GX_FAIL(err, GX_ERR_MEMORY, "the plan needs %.1f MB %s; program and libraries alone need %.1f MB",
                       (double)place->bytes / 1e6, where, (double)p->process / 1e6);
    if (!p->kind[GX_MEM_GRADS])
        return GX_FAIL(err, GX_ERR_MEMORY,
                       "the plan needs %.1f MB %s; the weights do not fit, or leave no room for one sample: use a "
                       "smaller model, or put its layers on more machines or cards (--pp)",
                       (double)place->bytes / 1e6, where);
    if (shared && shared <= place->has)
        snprintf(instead, sizeof instead,
                 "shard the model among the %d data-parallel ranks (--zero 3: about %.0f MB), ", p->copies,
                 (double)shared / 1e6);
    return GX_FAIL(err, GX_ERR_MEMORY,
                   "the plan needs %.1f MB %s; weights, gradients and optimizer do not fit, or leave no "
                   "room for one sample: %suse a smaller model, put its layers on more machines or cards (--pp), "
                   "%ssay --optimizer sgd --momentum 0",
                   (double)place->bytes / 1e6, where, instead,
                   p->is_apart ? "or " : "keep what is used least on a disk (--offload optimizer,gradients), or ");
}

static void gx__plan_where(const GxPlan *p, const GxPlanPlace *place, char text[100])
{
    const double mb = (double)place->has / 1e6;
    const int is_card = place == &p->card;
    if (place->is_limited)
        snprintf(text, 100, "on %s, more than the %.1f MB of --memory_limit",
                 is_card ? "this rank's card" : "this machine", mb);
    else
        snprintf(text, 100,
                 is_card ? "on this rank's card, which has %.1f MB left"
                         : "on this machine, the system has %.1f MB left",
                 mb);
}

static GxStatus gx__plan_refuse(const GxPlan *p, const GxPlanPlace *place, int64_t samples, const GxIntList *list,
                                GxError *err)
{
    const int64_t room = place->has - (place->bytes - place->activations);
    const double share =
        room > 0 && place->activations > 0 ? (double)room / (double)place->activations : 0; // of the samples there
    char where[100];
    int64_t most = samples;
    if (place->has == 0 || place->bytes <= place->has) return GX_OK;
    gx__plan_where(p, place, where);
    for (int i = 0; i < list->n; i++) most = gx_max(most, list->v[i]);
    const int64_t fits = (int64_t)(share * (double)most);
    if (fits == 0) return gx__plan_refuse_all(p, place, where, err);
    if (list->n)
        return GX_FAIL(err, GX_ERR_MEMORY,
                       "the plan needs %.1f MB %s; about %.1f%% of the samples in --dp_batch_size_list "
                       "would fit (a larger --gradient_accumulation_steps makes up for them)",
                       (double)place->bytes / 1e6, where, 100 * share);
    return GX_FAIL(err, GX_ERR_MEMORY,
                   "the plan needs %.1f MB %s; about %ld samples per micro-batch would fit instead of %ld "
                   "(--micro_batch_size %ld, a larger --gradient_accumulation_steps)",
                   (double)place->bytes / 1e6, where, (long)fits, (long)most, (long)fits);
}

GxStatus gx_plan_refuse_too_large(const GxPlan *p, int64_t samples, const GxIntList *list, GxError *err)
{
    GX_TRY(gx__plan_refuse(p, &p->machine, samples, list, err));
    return gx__plan_refuse(p, &p->card, samples, list, err);
}

// ---- in words ------------------------------------------------------------------------------------------------------

static double gx__plan_mb(int64_t bytes) { return (double)bytes / 1e6; }

void gx_plan_print(FILE *out, const GxPlan *p)
{
    fprintf(out, "memory plan, MB %s:", p->least != p->most ? "of rank 0" : "per rank");
    for (int k = 0; k < GX_MEM_KINDS; k++)
        fprintf(out, " %s %.1f%s", gx_memory_kind_name((GxMemoryKind)k), gx__plan_mb(p->kind[k]),
                k + 1 < GX_MEM_KINDS ? "," : "\n");
    fprintf(out, "  arena %.1f", gx__plan_mb(gx_plan_arena(p)));
    for (int s = 0; s < p->stages && p->stages > 1; s++)
        fprintf(out, "%s%.1f%s", s ? ", " : " (of the stages: ", gx__plan_mb(p->stage[s]),
                s + 1 < p->stages ? "" : ")");
    if (p->stages == 1 && p->least != p->most)
        fprintf(out, " (of the ranks: %.1f to %.1f)", gx__plan_mb(p->least), gx__plan_mb(p->most));
    if (p->in_file) fprintf(out, ", %.1f of it in --offload_dir", gx__plan_mb(gx_plan_in_file(p)));
    if (p->card.has)
        fprintf(out, ", %.1f on this card, which has %.1f left", gx__plan_mb(p->card.bytes), gx__plan_mb(p->card.has));
    else if (p->is_apart && p->ranks_here > 1) fprintf(out, ", %d ranks in this process", p->ranks_here);
    else if ((p->least != p->most || p->in_file) && p->ranks_here > 1)
        fprintf(out, ", %s%d ranks in this process %.1f", p->in_file ? "the rest of " : "", p->ranks_here,
                gx__plan_mb(p->here));
    else if (p->ranks_here > 1) fprintf(out, " x %d ranks in this process", p->ranks_here);
    if (p->is_apart) fprintf(out, "; in the device's memory\n  of the host's: buffers %.1f", gx__plan_mb(p->here));
    fprintf(out, " + program and libraries %.1f = %.1f MB\n", gx__plan_mb(p->process), gx__plan_mb(gx_plan_total(p)));
}
#endif
