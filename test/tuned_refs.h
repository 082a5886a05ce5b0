// test/tuned_refs.h: what a tuning method that PEFT does not have makes of the small models of data/ref, against
// PyTorch: loss, gradients, ten steps. Of it there is data/ref/<method>_<base>/ref.safetensors, as
// dev/ref/make_bottleneck_refs.py and make_side_refs.py say.
#ifndef GX_TEST_TUNED_REFS_H
#define GX_TEST_TUNED_REFS_H
#include "tuned.h"

typedef struct {
    TestModel t;
    TestReference base; // its batch
    GxSafetensors ref;
    int trained;
} Case;

static float *read_floats(const GxSafetensors *s, const char *what, const char *of, int64_t n)
{
    char name[200];
    GxError err = GX_ZERO;
    snprintf(name, sizeof name, "%s%s", what, of);
    const GxSafetensorsEntry *e = gx_safetensors_find(s, name);
    if (!CHECK(e && e->elements == n, "no %s of %ld elements", name, (long)n)) return NULL;
    float *x = (float *)malloc((size_t)(n + 1) * sizeof *x);
    CHECK(gx_safetensors_read(s, e, 0, n, x, &err) == GX_OK, "%s", err.message);
    return x;
}

// request: the method, and what else is frozen. ref: the folder of the dump.
static int case_open(Case *k, const char *base, const char *ref, const TestRequest *request)
{
    char path[200];
    GxError err = GX_ZERO;
    GxWeightsLoaded loaded;
    GxWeightsHash hash;
    const uint64_t seed = 1;
    memset(k, 0, sizeof *k);
    if (!test_reference_open(&k->base, base)) return 0;
    snprintf(path, sizeof path, "data/ref/%s/ref.safetensors", ref);
    if (!CHECK(gx_safetensors_open(&k->ref, path, &err) == GX_OK, "%s", err.message)) return 0;
    k->t.request = k->base.request;
    k->t.request.bottleneck = request->bottleneck, k->t.request.side = request->side,
    k->t.request.freeze = request->freeze;
    if (!test_model_open_split(&k->t, &k->base.llama, &test_serial, k->base.T, k->base.B, 4, NULL, 2, 1, NULL))
        return 0;
    test_set_step(&k->t, 0, 0);
    test_put_batch(&k->t, &k->base.b, 0);
    snprintf(path, sizeof path, "data/ref/%s", base);
    gx_checkpoint_start_from(&k->t.g, &k->t.m, path, 1, &seed, &hash, &loaded);
    for (int i = 0; i < k->t.m.table.n; i++) {
        const GxTensor *row = &k->t.m.table.row[i];
        const int64_t n = gx_tensor_count(row);
        k->trained += gx_store_trains(&k->t.m.store, i);
        if (!row->is_added) continue;
        float *x = read_floats(&k->ref, "adapter.", row->name, n);
        if (x) test_put(&k->t, gx_store_master_at(&k->t.m.store, i, 0), x, n);
        free(x);
    }
    return CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message);
}

static void case_close(Case *k)
{
    gx_safetensors_close(&k->ref);
    test_reference_close(&k->base);
    test_model_close(&k->t);
}

// What a gradient that is a sum of terms which may cancel is judged by: of a gate their norm; of a key's bias, which
// shifts all scores of a query alike, the gradient of its weight. 0: of others.
static double terms_of(Case *k, const GxTensor *t)
{
    char weight[GX_NAME];
    const char *key = strstr(t->name, "key.bias");
    const int is_gate = !strncmp(t->name, "side.gate.", 10);
    double squares = 0;
    if (!key && !is_gate) return 0;
    snprintf(weight, sizeof weight, "%.*s%s", key ? (int)(key - t->name) : GX_NAME - 1, t->name,
             key ? "key.weight" : "");
    const int64_t n = is_gate ? 1 : gx_tensor_count(&k->t.m.table.row[gx_table_find(&k->t.m.table, weight).index]);
    float *terms = read_floats(&k->ref, is_gate ? "terms." : "grad.", weight, n);
    for (int64_t i = 0; i < n && terms; i++) squares += (double)terms[i] * terms[i];
    free(terms);
    return sqrt(squares);
}

// Trained tensors against those of the dump: gradients, or weights.
static void compare(Case *k, const char *what, int is_gradient, double bound, double floor)
{
    for (int i = 0; i < k->t.m.table.n; i++) {
        const GxStore *s = &k->t.m.store;
        const GxTensor *t = &k->t.m.table.row[i];
        const int64_t n = gx_tensor_count(t);
        if (!gx_store_trains(s, i)) continue;
        float *ref = read_floats(&k->ref, what, t->name, n),
              *ours = test_kept(&k->t, is_gradient ? gx_store_grads(s, i) : gx_store_master_at(s, i, 0), n);
        const double least = is_gradient ? fmax(floor, terms_of(k, t)) : floor;
        if (ref) test_close_f(t->name, ours, ref, n, bound, least);
        free(ref), free(ours);
    }
}

// Loss and gradients, then ten steps of SGD. The sums that the method adds the bound, that of the base, leaves out.
static void as_pytorch(const char *base, const char *ref, const TestRequest *request, int trained)
{
    Case k;
    if (!case_open(&k, base, ref, request)) return;
    const double forward = test_bound(test_reference_depth(&k.base, 0)),
                 backward = test_bound(test_reference_depth(&k.base, 1));
    float *loss = read_floats(&k.ref, "loss", "", 1), *norm = read_floats(&k.ref, "grad_norm", "", 1),
          *losses = read_floats(&k.ref, "sgd.losses", "", 10);
    CHECK(k.trained == trained, "%d tensors are trained, not %d", k.trained, trained);
    k.t.o.kind = GX_OPTIMIZER_SGD;
    gx_runner_train(&k.t.g, &k.t.r, &k.base.b, NULL, NULL); // with a learning rate of 0
    const GxStep step = test_step(&k.t);
    if (loss) test_close_number("loss", gx_step_loss(&step), loss[0], forward);
    if (norm) test_close_number("grad_norm", sqrt(step.sum_squares), norm[0], backward);
    if (norm) compare(&k, "grad.", 1, backward, 1e-3 * norm[0] / sqrt(trained));
    test_set_step(&k.t, 0.1f, 0);
    for (int s = 0; s < 10 && losses; s++) {
        gx_runner_train(&k.t.g, &k.t.r, &k.base.b, NULL, NULL);
        const GxStep at = test_step(&k.t);
        test_close_number("sgd.losses", gx_step_loss(&at), losses[s], (s + 1) * backward);
    }
    compare(&k, "sgd.", 0, 10 * backward, 0);
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    free(loss), free(norm), free(losses);
    case_close(&k);
}
#endif
