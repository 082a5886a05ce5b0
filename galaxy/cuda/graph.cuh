// cuda/graph.cuh: CUDA graphs: operations that are captured once and launched as one.
//
// A graph has its kernels' arguments as they were at capture; what they point to is read at launch. The owner of a
// graph (run/graphs.h) knows what its arguments depend on.
//
// Sources: CUDA C++ Programming Guide, CUDA Graphs.
#ifndef GX_CUDA_GRAPH_CUH
#define GX_CUDA_GRAPH_CUH
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_graph_begin(GxContext *g);
GxGraph *gx_cuda_graph_end(GxContext *g);
void gx_cuda_graph_launch(GxContext *g, const GxGraph *graph);
void gx_cuda_graph_close(GxGraph *graph);
#ifdef GX_EMU // which knows the bytes of a kernel's arguments
void gx_cuda_graph_compare(GxContext *g, const GxGraph *kept, const GxGraph *now);
#endif

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_GRAPH_IMPLEMENTED)
#define GX_CUDA_GRAPH_IMPLEMENTED
#include <stdlib.h>
#include "memory.cuh" // gx__cuda_error

struct GxGraph {
    cudaGraphExec_t exec;
    size_t operations;
};

// Other threads of the process, which may be ranks, are not affected.
void gx_cuda_graph_begin(GxContext *g)
{
    GxCuda *cuda = gx_cuda(g);
    if (gx_failed(g)) return;
    cuda->is_capturing = gx__cuda_error(g, cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal),
                                        "cudaStreamBeginCapture") == GX_OK;
}

// Uploads the graph, so that device memory for it is allocated here and not at the first launch. An empty graph needs
// none.
static GxStatus gx__cuda_graph_make(GxContext *g, GxGraph *graph, cudaGraph_t captured)
{
    GX_TRY(gx_status(g));
    GX_TRY(gx__cuda_error(g, cudaGraphGetNodes(captured, NULL, &graph->operations), "cudaGraphGetNodes"));
    if (!graph->operations) return GX_OK;
    GX_TRY(gx__cuda_error(g, cudaGraphInstantiate(&graph->exec, captured, 0), "cudaGraphInstantiate"));
    return gx__cuda_error(g, cudaGraphUpload(graph->exec, gx_cuda(g)->stream), "cudaGraphUpload");
}

GxGraph *gx_cuda_graph_end(GxContext *g)
{
    GxCuda *cuda = gx_cuda(g);
    cudaGraph_t captured = NULL;
    if (!cuda->is_capturing) return NULL;
    cuda->is_capturing = 0;
    const cudaError_t e = cudaStreamEndCapture(cuda->stream, &captured); // also if an operation has failed
    if (gx_failed(g)) cudaGetLastError();
    else gx__cuda_error(g, e, "cudaStreamEndCapture");
    GxGraph *graph = (GxGraph *)calloc(1, sizeof *graph);
    if (!graph) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a CUDA graph");
    else gx__cuda_graph_make(g, graph, captured);
    if (captured) cudaGraphDestroy(captured);
    if (!gx_failed(g)) return graph;
    gx_cuda_graph_close(graph);
    return NULL;
}

// In the driver's queue a graph counts as one launch per operation; assuming too many does no harm.
void gx_cuda_graph_launch(GxContext *g, const GxGraph *graph)
{
    GxCuda *cuda = gx_cuda(g);
    if (gx_failed(g) || !graph->operations) return;
    gx__cuda_error(g, cudaGraphLaunch(graph->exec, cuda->stream), "cudaGraphLaunch");
    cuda->launches += (int)gx_min((int64_t)graph->operations, GX__CUDA_LAUNCHES);
    gx_cuda_check(g, "a CUDA graph");
}

void gx_cuda_graph_close(GxGraph *graph) // it may still be running: the driver lets it finish
{
    if (graph && graph->exec) cudaGraphExecDestroy(graph->exec);
    free(graph);
}

#ifdef GX_EMU
void gx_cuda_graph_compare(GxContext *g, const GxGraph *kept, const GxGraph *now)
{
    static const std::vector<emu::Node> none;
    const std::string what =
        emu::difference(kept->exec ? kept->exec->nodes : none, now->exec ? now->exec->nodes : none);
    if (!what.empty())
        GX_FAIL(&g->error, GX_ERR_DEVICE,
                "a CUDA graph that was kept differs from what would be launched without it: %s", what.c_str());
}
#endif
#endif
