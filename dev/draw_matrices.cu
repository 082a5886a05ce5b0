// draw_matrices.cu: how each mode cuts the tensors of a LLaMA's embedding, layer and head, as a table in Markdown, from
// the tables of tensors that models of two ranks have: draw_matrices. docs/modes.md has it.
//
// Of a matrix W [out,in], y = x W^T: "columns" means that each rank has some of y's columns (Megatron's column-parallel
// linear), "rows" that it has some of x's (row-parallel), so that y is a sum; "whole" that every rank has all of it.
#include "dev/bench/step.h"

enum { RANKS = 2, MOST_MODES = 8 };

typedef struct {
    GxContext g;
    GxMesh mesh;
    GxDevice none;
    GxLlamaConfig config;
    GxMode mode;
    GxModel m;
} Cut;

static GxStatus cut_open(Cut *c, const char *mode)
{
    int dims[GX_MESH_AXES] = {1, 1, 1, 1, RANKS};
    memset(c, 0, sizeof *c);
    c->none = gx_device_none(gx_default_device());
    c->g.device = &c->none, c->g.world = RANKS;
    c->config.vocab_size = 32000, c->config.hidden_size = 288, c->config.intermediate_size = 768;
    c->config.num_hidden_layers = 1, c->config.num_attention_heads = 6, c->config.num_key_value_heads = 2;
    c->config.max_position_embeddings = 1024, c->config.pad_token_id = -1;
    c->config.rms_norm_eps = 1e-5, c->config.rope_theta = 10000, c->config.initializer_range = 0.02;
    GX_TRY(gx_mesh_open(&c->mesh, dims, 0, RANKS, &c->g.error));
    c->g.mesh = &c->mesh;
    GX_TRY(step_mode(mode, &c->mode, &c->g.error));
    return gx_model_open(&c->g, &c->m, &gx_llama, &c->config, &c->mode, NULL);
}

static const char *cut_of(const GxTensor *t)
{
    if (!t->parts) return "whole";
    if (t->role == GX_ROLE_EMBEDDING) return "its tokens";
    return t->split_dim == 0 ? "columns" : "rows";
}

int main(void)
{
#define DRAW_NAME(name, att, con, mlp) #name,
    static const char *const modes[] = {GX_MODES(DRAW_NAME)};
    enum { MODES = sizeof modes / sizeof *modes };
    static Cut cut[MODES];
    for (int i = 0; i < MODES; i++)
        if (cut_open(&cut[i], modes[i]) != GX_OK) return fprintf(stderr, "error: %s\n", cut[i].g.error.message), 1;
    printf("| block | tensor | shape |");
    for (int i = 0; i < MODES; i++) printf(" %s |", modes[i]);
    printf("\n|---|---|---|");
    for (int i = 0; i < MODES; i++) printf("---|");
    for (int row = 0; row < cut[0].m.table.n; row++) {
        const GxTensor *t = &cut[0].m.table.row[row];
        const char *core = gx_core_name(gx_unit_spec(&cut[0].m, t->unit)->pair[t->pair].core.kind);
        const int is_norm = t->role == GX_ROLE_NORM;
        printf("\n| %s%s | `%s` | [%ld", is_norm ? "norm before " : "", core, t->name, (long)t->global_shape[0]);
        if (t->ndim > 1) printf(",%ld", (long)t->global_shape[1]);
        printf("] |");
        for (int i = 0; i < MODES; i++) printf(" %s |", cut_of(&cut[i].m.table.row[row]));
    }
    printf("\n");
    for (int i = 0; i < MODES; i++) gx_model_close(&cut[i].m);
    return 0;
}
