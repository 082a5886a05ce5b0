// base/mesh.h: the ranks of a run, arranged as a five-dimensional mesh with axes, outer to inner: pp, dp_replicate,
// dp_shard, cp, tp.
//
// Neighbours in tp have neighbouring ranks, since they communicate most. A collective names the axes that it runs over
// by a mask; its group is all ranks that differ from this one in those axes only, ordered by rank. The mesh only
// computes ranks and groups: it holds no communicator.
//
//     int dims[GX_MESH_AXES] = {1, 1, -1, 1, 2};                  // tp 2; dp_shard: world / 2
//     GX_TRY(gx_mesh_open(&mesh, dims, rank, world, &g->error));
//     gx_mesh_size(&mesh, GX_AXIS_LOSS);                          // how many ranks have different tokens
//
// A ragged mesh is a pipeline of one copy whose tp groups have different sizes: three machines as 2 + 1. Ranks are
// numbered stage by stage. Its groups are this rank's tp group (any mask with tp and without pp) and all ranks (any mask
// with both); there are none along pp alone, so whoever sends from stage to stage names ranks (gx_mesh_rank).
//
//     int width[2] = {2, 1};
//     GX_TRY(gx_mesh_open_stages(&mesh, width, 2, rank, 3, &g->error));
#ifndef GX_MESH_H
#define GX_MESH_H
#include "context.h"
GX_BEGIN

enum {
    GX_AXIS_PP = 1,
    GX_AXIS_DP_REPLICATE = 2,
    GX_AXIS_DP_SHARD = 4,
    GX_AXIS_CP = 8,
    GX_AXIS_TP = 16,
    GX_AXIS_DP = GX_AXIS_DP_REPLICATE | GX_AXIS_DP_SHARD, // ranks with other samples
    GX_AXIS_LOSS = GX_AXIS_DP | GX_AXIS_CP,               // ranks with other tokens: gradients are summed over them
    GX_AXIS_FSDP = GX_AXIS_DP_SHARD | GX_AXIS_CP,         // ranks that share what is sharded
    GX_AXIS_RESULTS = GX_AXIS_LOSS | GX_AXIS_PP,          // ranks with results of other samples, or with none
    GX_AXIS_ALL = 31,
    GX_MESH_AXES = 5,
    GX_MESH_STAGES = 256 // the most of a ragged mesh
};

struct GxMesh {
    // [a] belongs to the axis of bit 1 << a; the product of dim is the world
    int dim[GX_MESH_AXES], coord[GX_MESH_AXES];
    int rank, world;
    int head; // the index in pp of the ranks that have the head: the last unless it is set
    // 1: tp groups have different sizes. dim and coord of tp are then those of this rank's group, and begin[i] is the
    // first rank of the group with index i in pp; begin[dim of pp] is the world.
    int is_ragged;
    int begin[GX_MESH_STAGES + 1];
};

// Each of dims must be at least 1, and their product the world. dims[2] (dp_shard) may be -1: the world divided by the
// others.
GxStatus gx_mesh_open(GxMesh *m, const int *dims, int rank, int world, GxError *err);
// A pipeline of one copy of the model, whose stage i is shared by width[i] ranks; their sum is the world. It is ragged
// if they differ, and otherwise the mesh that gx_mesh_open makes.
GxStatus gx_mesh_open_stages(GxMesh *m, const int *width, int stages, int rank, int world, GxError *err);

// Ranks in a group over these axes, and this rank's place in its group. Of a ragged mesh over pp alone: its stages, and
// this rank's.
int gx_mesh_size(const GxMesh *m, int axes);
int gx_mesh_index(const GxMesh *m, int axes);
// The group's ranks in order; *me (may be NULL): this rank's index. Returns gx_mesh_size; fills `ranks` only if that is
// at most `capacity`. 0: there is no such group (of a ragged mesh, over pp without tp).
int gx_mesh_group(const GxMesh *m, int axes, int *ranks, int capacity, int *me);
// tp groups of this rank's copy of the model, by their index in pp: how many ranks one has, and the largest; the rank of
// its member k. gx_mesh_pp_of: the index in pp of any rank of the world.
int gx_mesh_width(const GxMesh *m, int pp);
int gx_mesh_widest(const GxMesh *m);
int gx_mesh_rank(const GxMesh *m, int pp, int k);
int gx_mesh_pp_of(const GxMesh *m, int rank);
int gx_is_ragged(const GxContext *g); // 0 without a mesh
// The same for a context; without a mesh its rank is the only one.
int gx_group_size(const GxContext *g, int axes);
int gx_group_index(const GxContext *g, int axes);
// 1: this rank counts its samples: labels, right answers, padding. Of the ranks that have the same samples only one
// does, the first of the tp group that has the head, so these counts, like every loss, can be summed over all axes.
int gx_counts_samples(const GxContext *g);
int gx_has_head(const GxContext *g);   // 1: this rank computes the head
int gx_head_index(const GxContext *g); // the index in pp of the ranks that have it
// The mask without the axes that have only one rank, so that masks for the same group become equal.
int gx_mesh_axes(const GxMesh *m, int axes);
const char *gx_axes_name(int axes, char text[64]); // "dp_shard+tp", for messages

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MESH_IMPLEMENTED)
#define GX_MESH_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const gx__mesh_axis_names[GX_MESH_AXES] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};
enum { GX__MESH_DP_SHARD = 2, GX__MESH_TP = 4 }; // their places among the axes

static int64_t gx__mesh_product(const int *dims)
{
    int64_t product = 1;
    for (int a = 0; a < GX_MESH_AXES; a++) product = gx_min(product * dims[a], INT64_MAX >> 32);
    return product;
}

// Finds the dimensions whose product is the world and that differ least from the wanted ones, by trying all. dp_shard
// may take any value if -1 was wanted.
static void gx__mesh_nearest(const int *wanted, int axis, int rest, int *now, int *best, int64_t *least)
{
    if (axis < GX_MESH_AXES - 1) {
        for (int d = 1; d <= rest; d++) {
            if (rest % d) continue;
            now[axis] = d;
            gx__mesh_nearest(wanted, axis + 1, rest / d, now, best, least);
        }
        return;
    }
    now[axis] = rest;
    int64_t change = 0;
    for (int a = 0; a < GX_MESH_AXES; a++)
        if (wanted[a] != -1) change += llabs((long long)now[a] - wanted[a]);
    if (change >= *least) return;
    *least = change;
    memcpy(best, now, GX_MESH_AXES * sizeof *best);
}

static const char *gx__mesh_equation(const int *dims, char text[160])
{
    snprintf(text, 160, "pp %d x dp_replicate %d x dp_shard %d x cp %d x tp %d", dims[0], dims[1], dims[2], dims[3],
             dims[4]);
    return text;
}

static GxStatus gx__mesh_refuse(const int *dims, int world, GxError *err)
{
    int now[GX_MESH_AXES], best[GX_MESH_AXES] = {1, 1, 1, 1, 1}, counted[GX_MESH_AXES];
    int64_t least = INT64_MAX;
    gx__mesh_nearest(dims, 0, world, now, best, &least);
    memcpy(counted, dims, sizeof counted);
    char found[160], valid[160];
    if (dims[GX__MESH_DP_SHARD] != -1)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT, "the mesh %s = %ld ranks, but the world has %d; the nearest mesh that fits: %s",
            gx__mesh_equation(dims, found), (long)gx__mesh_product(dims), world, gx__mesh_equation(best, valid));
    counted[GX__MESH_DP_SHARD] = 1;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "the mesh %s has %ld ranks besides dp_shard, which do not divide the world of %d; the nearest mesh "
                   "that fits: %s",
                   gx__mesh_equation(dims, found), (long)gx__mesh_product(counted), world,
                   gx__mesh_equation(best, valid));
}

GxStatus gx_mesh_open(GxMesh *m, const int *dims, int rank, int world, GxError *err)
{
    memset(m, 0, sizeof *m);
    if (world < 1 || rank < 0 || rank >= world)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d of a world of %d: ranks count from 0 to world - 1", rank, world);
    for (int a = 0; a < GX_MESH_AXES; a++)
        if (dims[a] < 1 && !(a == GX__MESH_DP_SHARD && dims[a] == -1))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %d; it must be at least 1%s", gx__mesh_axis_names[a], dims[a],
                           a == GX__MESH_DP_SHARD ? ", or -1: what is left of the world" : "");
    memcpy(m->dim, dims, sizeof m->dim);
    if (dims[GX__MESH_DP_SHARD] == -1) {
        m->dim[GX__MESH_DP_SHARD] = 1;
        m->dim[GX__MESH_DP_SHARD] = (int)gx_max(world / gx__mesh_product(m->dim), 1);
    }
    if (gx__mesh_product(m->dim) != world) {
        memset(m, 0, sizeof *m);
        return gx__mesh_refuse(dims, world, err);
    }
    m->rank = rank;
    m->world = world;
    m->head = m->dim[0] - 1;
    for (int a = GX_MESH_AXES - 1; a >= 0; a--) {
        m->coord[a] = rank % m->dim[a];
        rank /= m->dim[a];
    }
    return GX_OK;
}

static GxStatus gx__mesh_refuse_widths(const int *width, int stages, int sum, int world, GxError *err)
{
    char text[120] = "";
    for (int i = 0; i < stages && strlen(text) < 100; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? "+" : "", width[i]);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "stages of %s ranks are %d, but the world has %d: every rank is in one stage",
                   text, sum, world);
}

GxStatus gx_mesh_open_stages(GxMesh *m, const int *width, int stages, int rank, int world, GxError *err)
{
    int begin[GX_MESH_STAGES + 1] = {0}, is_ragged = 0;
    memset(m, 0, sizeof *m);
    if (stages < 1 || stages > GX_MESH_STAGES)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a pipeline of %d stages; 1 to %d are possible", stages, GX_MESH_STAGES);
    for (int i = 0; i < stages; i++) {
        if (width[i] < 1 || width[i] > GX_MESH_STAGES)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "stage %d of %d ranks; 1 to %d are possible", i, width[i],
                           GX_MESH_STAGES);
        begin[i + 1] = begin[i] + width[i], is_ragged |= width[i] != width[0];
    }
    if (begin[stages] != world) return gx__mesh_refuse_widths(width, stages, begin[stages], world, err);
    const int dims[GX_MESH_AXES] = {stages, 1, 1, 1, width[0]}, line[GX_MESH_AXES] = {1, 1, 1, 1, world};
    GX_TRY(gx_mesh_open(m, is_ragged ? line : dims, rank, world, err));
    m->head = stages - 1;
    if (!is_ragged) return GX_OK;
    m->is_ragged = 1, m->dim[0] = stages;
    memcpy(m->begin, begin, sizeof begin);
    m->coord[0] = gx_mesh_pp_of(m, rank);
    m->dim[GX__MESH_TP] = gx_mesh_width(m, m->coord[0]), m->coord[GX__MESH_TP] = rank - begin[m->coord[0]];
    return GX_OK;
}

static int gx__mesh_is_whole(const GxMesh *m, int axes) // 1: of a ragged mesh, all ranks
{
    return m->is_ragged && (axes & GX_AXIS_PP) && (axes & GX_AXIS_TP);
}

int gx_mesh_size(const GxMesh *m, int axes)
{
    int n = 1;
    if (gx__mesh_is_whole(m, axes)) return m->world;
    for (int a = 0; a < GX_MESH_AXES; a++)
        if (axes & 1 << a) n *= m->dim[a];
    return n;
}

int gx_mesh_index(const GxMesh *m, int axes)
{
    int index = 0;
    if (gx__mesh_is_whole(m, axes)) return m->rank;
    for (int a = 0; a < GX_MESH_AXES; a++)
        if (axes & 1 << a) index = index * m->dim[a] + m->coord[a];
    return index;
}

int gx_mesh_width(const GxMesh *m, int pp)
{
    return m->is_ragged ? m->begin[pp + 1] - m->begin[pp] : m->dim[GX__MESH_TP];
}

int gx_mesh_widest(const GxMesh *m)
{
    int most = 0;
    for (int i = 0; i < m->dim[0]; i++) most = (int)gx_max(most, gx_mesh_width(m, i));
    return most;
}

int gx_mesh_rank(const GxMesh *m, int pp, int k)
{
    const int stage =
        m->world / m->dim[0]; // ranks of a regular mesh's stage; pp is the outermost axis, tp the innermost
    if (m->is_ragged) return m->begin[pp] + k;
    return m->rank + (pp - m->coord[0]) * stage + (k - m->coord[GX__MESH_TP]);
}

int gx_mesh_pp_of(const GxMesh *m, int rank)
{
    int pp = 0;
    if (!m->is_ragged) return rank / (m->world / m->dim[0]);
    while (rank >= m->begin[pp + 1]) pp++;
    return pp;
}

int gx_is_ragged(const GxContext *g) { return g->mesh && g->mesh->is_ragged; }
int gx_group_size(const GxContext *g, int axes) { return g->mesh ? gx_mesh_size(g->mesh, axes) : 1; }
int gx_group_index(const GxContext *g, int axes) { return g->mesh ? gx_mesh_index(g->mesh, axes) : 0; }
int gx_counts_samples(const GxContext *g) { return gx_group_index(g, GX_AXIS_TP) == 0 && gx_has_head(g); }
int gx_head_index(const GxContext *g) { return g->mesh ? g->mesh->head : 0; }
int gx_has_head(const GxContext *g) { return gx_group_index(g, GX_AXIS_PP) == gx_head_index(g); }

int gx_mesh_group(const GxMesh *m, int axes, int *ranks, int capacity, int *me)
{
    int n = gx_mesh_size(m, axes);
    if (me) *me = gx_mesh_index(m, axes);
    if (m->is_ragged && (axes & GX_AXIS_PP) && !(axes & GX_AXIS_TP)) return 0;
    if (m->is_ragged) { // neighbours: all ranks, this rank's tp group, or this rank alone
        for (int i = 0; i < n && n <= capacity; i++) ranks[i] = m->rank - gx_mesh_index(m, axes) + i;
        return n;
    }
    for (int i = 0; i < n && n <= capacity; i++) {
        int rank = 0, stride = 1, rest = i;
        for (int a = GX_MESH_AXES - 1; a >= 0; a--) {
            int member = axes & 1 << a;
            rank += (member ? rest % m->dim[a] : m->coord[a]) * stride;
            if (member) rest /= m->dim[a];
            stride *= m->dim[a];
        }
        ranks[i] = rank;
    }
    return n;
}

int gx_mesh_axes(const GxMesh *m, int axes)
{
    if (gx__mesh_is_whole(m, axes)) return GX_AXIS_PP | GX_AXIS_TP; // on all ranks, also where a group has one
    for (int a = 0; a < GX_MESH_AXES; a++)
        if (m->dim[a] == 1) axes &= ~(1 << a);
    return axes & GX_AXIS_ALL;
}

const char *gx_axes_name(int axes, char text[64])
{
    text[0] = 0;
    for (int a = 0; a < GX_MESH_AXES; a++)
        if (axes & 1 << a)
            snprintf(text + strlen(text), 64 - strlen(text), "%s%s", text[0] ? "+" : "", gx__mesh_axis_names[a]);
    return text[0] ? text : "no axis";
}
#endif
