// plan_split.cu: plans a training on unequal machines, without training: who computes which layers, which part of them
// and how many samples of a step, which machine is better left out, and how long a step will take.
//
//     ./plan_split --ranks 2 --train_data data/text.txt --global_batch_size 32
//     mpirun -np 3 -H desk,laptop,old ./plan_split --family bert --train_data data/text.txt
//     ./plan_split --machines out/machines.json --global_batch_size 64       for machines that need not be there
//
// It is started like the training itself, on the same machines, with the same options. It measures them for at most 25
// seconds, prints the plan, and writes plan.json and machines.json into --output_dir; `./train_llama --plan
// out/plan.json ...` trains by it. (`./train_llama --plan auto` does both at once.)
#include "galaxy.h"
#include <stdlib.h>
#include <string.h>

static const GxFamily *const families[] = {&gx_llama, &gx_bert, &gx_gpt2};
enum { FAMILIES = sizeof families / sizeof *families, ADDED = 4 };

// Takes --family out of the command line. NULL: there is no such family.
static const GxFamily *take_family(int *argc, char **argv)
{
    const char *name = families[0]->name;
    int n = 0;
    for (int i = 0; i < *argc; i++) {
        if (!strcmp(argv[i], "--family") && i + 1 < *argc) name = argv[++i];
        else argv[n++] = argv[i];
    }
    *argc = n;
    for (int i = 0; i < FAMILIES; i++)
        if (!strcmp(families[i]->name, name)) return families[i];
    return NULL;
}

static int plan(GxContext *g, int argc, char **argv)
{
    static char planned[] = "--plan", by_measuring[] = "auto", only[] = "--dry_run", yes[] = "true";
    char *added[ADDED] = {planned, by_measuring, only, yes};
    char **all = (char **)calloc((size_t)argc + ADDED + 1, sizeof *all);
    int status = 1;
    if (!all) {
        gx_log(&g->log, GX_LOG_ERROR, "no memory for the command line");
        return 1;
    }
    memcpy(all, argv, (size_t)argc * sizeof *all);
    const GxFamily *family = take_family(&argc, all);
    memcpy(all + argc, added, sizeof added);
    if (family) status = gx_train(g, family, family->tasks[0], NULL, argc + ADDED, all);
    else if (g->rank == 0) gx_log(&g->log, GX_LOG_ERROR, "--family is llama, bert or gpt2");
    free(all);
    return status;
}

int main(int argc, char **argv) { return gx_launch(plan, argc, argv); }
