// graph.h: streams that are captured, and graphs that run again and again.
//
// Between cudaStreamBeginCapture and cudaStreamEndCapture nothing that is asked of the stream runs: it becomes a node,
// with its arguments as they are then. Streams that wait for an event of the capture become part of it, and must have
// been waited for when it ends. What would wait for the device meanwhile, or takes pageable memory, is refused and
// spoils the capture, as the driver does. A launch runs all nodes as one operation, each behind what it depends on and
// otherwise those that were captured last first: a dependency that is missing shows.
//
// A node keeps the bytes of its arguments: emu::difference says whether another capture of the same work would be the
// same graph. With GX_EMU_GRAPHS=compare programs are asked to find out, at each launch.
//
// Not here: NCCL in a capture, graphs that are built or changed by hand, modes of capture (a
// host thread is hindered by its own captures alone, as with cudaStreamCaptureModeThreadLocal).
#ifndef GX_EMU_GRAPH_H
#define GX_EMU_GRAPH_H
#include "stream.h"

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
typedef void *cudaGraphNode_t;
struct CUgraph_st {
    std::vector<emu::Node> nodes;
};
struct CUgraphExec_st {
    std::vector<emu::Node> nodes;
};
typedef CUgraph_st *cudaGraph_t;
typedef CUgraphExec_st *cudaGraphExec_t;

namespace emu
{

// Does `from`, or what comes before it, contain the node?
inline bool comes_behind(const std::vector<Node> &nodes, const std::vector<size_t> &from, size_t node)
{
    std::vector<size_t> open = from;
    std::vector<bool> seen(nodes.size());
    while (!open.empty()) {
        const size_t i = open.back();
        open.pop_back();
        if (i == node) return true;
        if (seen[i]) continue;
        seen[i] = true;
        open.insert(open.end(), nodes[i].after.begin(), nodes[i].after.end());
    }
    return false;
}

// What tells them apart, in a line; "": they are the same operations with the same arguments.
inline std::string difference(const std::vector<Node> &a, const std::vector<Node> &b)
{
    if (a.size() != b.size()) return std::to_string(a.size()) + " operations, now " + std::to_string(b.size());
    for (size_t i = 0; i < a.size(); i++) {
        const std::string which = "operation " + std::to_string(i) + ", " + a[i].name;
        if (a[i].name != b[i].name || a[i].after != b[i].after) return which + ", is now " + b[i].name;
        if (a[i].arguments.size() != b[i].arguments.size()) return which + ": another kernel";
        for (size_t k = 0; k < a[i].arguments.size(); k++)
            if (a[i].arguments[k] != b[i].arguments[k])
                return which + ": byte " + std::to_string(k) + " of grid, block and arguments is another now";
    }
    return "";
}

inline std::vector<size_t> late_order(const std::vector<Node> &nodes)
{
    std::vector<size_t> order;
    std::vector<bool> done(nodes.size());
    while (order.size() < nodes.size()) {
        size_t i = nodes.size() - 1;
        auto is_ready = [&] {
            return !done[i] &&
                   std::all_of(nodes[i].after.begin(), nodes[i].after.end(), [&](size_t k) { return done[k]; });
        };
        while (!is_ready()) i--; // the first that is left always is
        done[i] = true;
        order.push_back(i);
    }
    return order;
}

inline cudaError_t end_capture(CUstream_st *s, std::vector<Node> *nodes)
{
    const std::shared_ptr<Capture> c = s->capture;
    if (!c || c->origin != s) return cudaErrorStreamCaptureUnmatched;
    cudaError_t e = c->spoilt ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    for (const auto &[stream, tail] : c->tail)
        for (size_t node : tail)
            if (!e && !comes_behind(c->nodes, c->tail[s], node)) {
                say("a captured stream has \"%s\" that the stream of the capture does not wait for",
                    c->nodes[node].name.c_str());
                e = cudaErrorStreamCaptureUnjoined;
            }
    for (CUstream_st &other : streams)
        if (other.capture == c) other.capture = nullptr;
    captures--;
    *nodes = std::move(c->nodes);
    return e;
}

} // namespace emu

inline cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode)
{
    std::lock_guard held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    if (!s || emu::is_legacy(*s)) return emu::result(cudaErrorStreamCaptureUnsupported);
    if (s->capture) return emu::result(cudaErrorIllegalState);
    s->capture = std::make_shared<emu::Capture>();
    s->capture->origin = s;
    emu::captures++;
    return cudaSuccess;
}

inline cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    std::lock_guard held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    std::vector<emu::Node> nodes;
    *graph = nullptr;
    if (!s) return emu::result(cudaErrorInvalidResourceHandle);
    if (cudaError_t e = emu::end_capture(s, &nodes)) return emu::result(e);
    return *graph = new CUgraph_st{std::move(nodes)}, cudaSuccess;
}

inline cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status)
{
    std::lock_guard held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    if (!s) return emu::result(cudaErrorInvalidResourceHandle);
    *status = !s->capture          ? cudaStreamCaptureStatusNone
              : s->capture->spoilt ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long = 0)
{
    if (!graph) return emu::result(cudaErrorInvalidValue);
    std::lock_guard held(emu::device_lock);
    emu::wait_in_driver("cudaGraphInstantiate");
    *exec = new CUgraphExec_st;
    for (size_t i : emu::late_order(graph->nodes)) (*exec)->nodes.push_back(graph->nodes[i]);
    return cudaSuccess;
}
inline cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    if (!graph || nodes) return emu::result(cudaErrorInvalidValue); // only how many there are
    return *count = graph->nodes.size(), cudaSuccess;
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }

inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    std::lock_guard held(emu::device_lock);
    CUstream_st *s = emu::find_stream(handle);
    if (!s || !exec) return emu::result(cudaErrorInvalidResourceHandle);
    if (s->capture) return emu::result(emu::spoil_capture(*s, "the launch of a graph (not emulated)"));
    emu::asked.graphs++, emu::asked.nodes += exec->nodes.size();
    emu::enqueue(s, "a graph of " + std::to_string(exec->nodes.size()) + " nodes", [nodes = exec->nodes] {
        for (const emu::Node &node : nodes)
            if (node.run) node.run();
    });
    return cudaSuccess;
}

#endif
