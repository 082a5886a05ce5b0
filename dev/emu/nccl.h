// nccl.h: collectives among host threads of one process, in the order of their streams.
//
// A rank is a host thread with a communicator. Calls are enqueued on streams, a group's as one launch; the n-th launch
// of collectives on a communicator is the same on all its ranks, the k-th send from a to b is for the k-th receive at b
// from a. Parts that belong together run as one, when somebody needs them (queue.h). Counts, types, operations and
// roots must agree: a mismatch is said with both ranks, and from then on ncclCommGetAsyncError gives ncclInvalidUsage
// and what is queued on the communicator does nothing. ncclCommAbort lets peers go in the same way, with
// ncclRemoteError.
//
// A communicator with blocking = 0 is as late as is legal: a group on it gives ncclInProgress, and is on its stream
// only when ncclCommGetAsyncError has been asked twice; until then the communicator takes no other call.
//
// Sums are taken in rank order, bf16 and fp16 in fp32: this proves order, counts, groups and streams, not NCCL's own
// arithmetic. A send waits for its receive: what relies on NCCL's buffers to get out of a circle waits here for ever,
// and is reported.
#ifndef GX_EMU_NCCL_H
#define GX_EMU_NCCL_H
#include "nccl_launch.h"

struct ncclComm;
namespace emu
{
struct Pending { // in an open group
    ncclComm *comm;
    NcclCall call;
    CUstream_st *stream;
};
} // namespace emu

struct ncclComm {
    std::shared_ptr<emu::Clique> clique;
    int rank, card;
    bool blocking;
    size_t collective_launches = 0;
    emu::OperationRef last;         // launches of a communicator run one after another, on whatever streams
    std::vector<emu::Pending> held; // of a group that is in progress
    int questions = 0;              // that are still answered by ncclInProgress
    bool finalizes = false;
};
typedef ncclComm *ncclComm_t;

namespace emu
{

struct Group {
    int depth = 0;
    ncclResult_t error = ncclSuccess;
    std::vector<Pending> calls;
    std::vector<ncclComm *> joining;
};
inline thread_local Group group;
inline std::map<std::string, std::shared_ptr<Clique>> cliques; // by unique id, until all ranks have joined
inline std::vector<ncclComm *> comms;                          // that are alive
inline unsigned long long unique_ids = 0;

// ---- calls ---------------------------------------------------------------------------------------------------------
// Of a call in a group; ncclGroupEnd gives it again.
inline ncclResult_t in_group(ncclResult_t e)
{
    if (group.depth && e) group.error = e;
    return e;
}

inline bool is_alive(const ncclComm *comm) { return std::find(comms.begin(), comms.end(), comm) != comms.end(); }

inline bool in_place(const NcclLaunch &l, const NcclCall &c)
{
    if (c.call == Call::all_gather) return c.send == c.recv + (size_t)l.rank * c.bytes();
    if (c.call == Call::reduce_scatter) return c.recv == c.send + (size_t)l.rank * c.bytes();
    return c.send == c.recv;
}

inline ncclResult_t check_call(const ncclComm &comm, const NcclCall &c)
{
    bool reduces = sums(c.call);
    if (!nccl_type(c.type)) return refuse(ncclInvalidArgument, "NCCL", "data type %d is not emulated", c.type);
    if (reduces && c.op != ncclSum && c.op != ncclMax && c.op != ncclMin)
        return refuse(ncclInvalidArgument, "NCCL", "operation %d is not emulated", c.op);
    if (c.other < 0 || c.other >= comm.clique->ranks)
        return refuse(ncclInvalidArgument, "NCCL", "%s: rank %d of %d", text(c).c_str(), c.other, comm.clique->ranks);
    const NcclLaunch l = {comm.clique, comm.rank, {}, {}, 0, nullptr};
    size_t sent = bytes_sent(l, c), received = bytes_received(l, c);
    Spot from = spot_of(c.send), to = spot_of(c.recv);
    for (Spot spot : {from, to})
        if (spot.where == Where::device && spot.card != comm.card)
            return refuse(ncclInvalidArgument, "NCCL", "rank %d of card %d, %s: memory of card %d", comm.rank,
                          comm.card, text(c).c_str(), spot.card);
    if (sent && (from.where == Where::pageable || sent > from.left))
        return refuse(ncclInvalidArgument, "NCCL", "rank %d, %s: there are no %zu bytes of device memory to send at %p",
                      comm.rank, text(c).c_str(), sent, (const void *)c.send);
    if (received && (to.where == Where::pageable || received > to.left))
        return refuse(ncclInvalidArgument, "NCCL",
                      "rank %d, %s: there are no %zu bytes of device memory to receive at %p", comm.rank,
                      text(c).c_str(), received, (void *)c.recv);
    if (sent && received && c.send < c.recv + received && c.recv < c.send + sent && !in_place(l, c))
        return refuse(ncclInvalidArgument, "NCCL", "rank %d, %s: source and result overlap, and not in place",
                      comm.rank, text(c).c_str());
    return ncclSuccess;
}

// The streams of a group's calls on one communicator all wait for its launch, and it for them.
inline void enqueue_launch(ncclComm *comm, const NcclLaunchRef &launch, const std::vector<CUstream_st *> &used)
{
    wait_for_room(*used[0]); // before others find it
    auto op = std::make_shared<Operation>();
    op->name = "NCCL, rank " + std::to_string(comm->rank) + " of " + std::to_string(comm->clique->ranks) + ": " +
               text(launch->collectives) + (launch->transfers.empty() ? "" : " " + text(launch->transfers));
    op->run = [launch] { take_sources(*launch); };
    op->finish = [launch] { finish(*launch); };
    op->meet = [launch](std::vector<Operation *> *parts) { return gather(launch.get(), parts); };
    launch->operation = op.get();
    for (CUstream_st *s : used)
        if (s != used[0] && s->last) op->after.push_back(s->last);
    if (comm->last) op->after.push_back(comm->last);
    match(launch);
    comm->last = op;
    enqueue(used[0], op);
    for (CUstream_st *s : used)
        if (s != used[0]) enqueue(s, "a wait for NCCL", nullptr, op);
}

inline void launch_on(ncclComm *comm, const std::vector<Pending> &calls)
{
    auto launch = std::make_shared<NcclLaunch>();
    launch->clique = comm->clique;
    launch->rank = comm->rank;
    std::vector<CUstream_st *> used;
    for (const Pending &p : calls) {
        if (p.comm != comm) continue;
        bool transfer = p.call.call == Call::send || p.call.call == Call::recv;
        (transfer ? launch->transfers : launch->collectives).push_back(p.call);
        if (std::find(used.begin(), used.end(), p.stream) == used.end()) used.push_back(p.stream);
    }
    if (!launch->collectives.empty()) launch->number = comm->collective_launches++;
    enqueue_launch(comm, launch, used);
}

inline ncclResult_t launch_group()
{
    std::vector<Pending> calls = std::move(group.calls);
    std::vector<ncclComm *> done;
    ncclResult_t state = ncclSuccess;
    group.calls.clear();
    for (const Pending &p : calls) {
        if (std::find(done.begin(), done.end(), p.comm) != done.end()) continue;
        done.push_back(p.comm);
        if (p.comm->clique->error) return p.comm->clique->error;
        if (p.comm->blocking) launch_on(p.comm, calls);
        else p.comm->held = calls, p.comm->questions = 1, state = ncclInProgress;
    }
    return state;
}

// What ncclCommGetAsyncError answers, having done what there was to do.
inline ncclResult_t progress(ncclComm &comm)
{
    if (comm.clique->error) return comm.clique->error;
    if (comm.clique->joined < comm.clique->ranks) return ncclInProgress;
    if (comm.questions && comm.questions--) return ncclInProgress;
    for (const Pending &p : comm.held)
        if (!has_room(*p.stream)) return ncclInProgress;
    if (!comm.held.empty()) launch_on(&comm, std::exchange(comm.held, {}));
    if (!comm.finalizes || !comm.last || comm.last->done) return ncclSuccess;
    const bool done = complete(*comm.last);
    set_access(false);
    return done ? comm.clique->error : ncclInProgress;
}

inline ncclResult_t call(ncclComm *comm, cudaStream_t handle, NcclCall c)
{
    std::lock_guard held(device_lock);
    if (!is_alive(comm)) return in_group(refuse(ncclInvalidArgument, "NCCL", "%p is no communicator", (void *)comm));
    CUstream_st *s = find_stream(handle);
    if (!s) return in_group(refuse(ncclInvalidArgument, "NCCL", "a call on a stream that is none"));
    if (comm->clique->error) return in_group(comm->clique->error);
    if (!comm->held.empty() || comm->questions)
        return in_group(refuse(ncclInvalidArgument, "NCCL",
                               "rank %d calls a communicator whose call before is still in progress", comm->rank));
    if (s->capture) return in_group(refuse(ncclInvalidArgument, "NCCL", "calls in a captured stream are not emulated"));
    if (s->card != comm->card)
        return in_group(refuse(ncclInvalidArgument, "NCCL", "rank %d of card %d on a stream of card %d", comm->rank,
                               comm->card, s->card));
    if (ncclResult_t e = check_call(*comm, c)) return in_group(e);
    group.calls.push_back({comm, std::move(c), s});
    return group.depth ? ncclSuccess : launch_group();
}

// ---- communicators -------------------------------------------------------------------------------------------------
inline void wait_for_ranks(std::unique_lock<std::mutex> &held, const Clique &c)
{
    while (c.joined < c.ranks && !c.error)
        sleep_until_changed(held, "the other ranks of a communicator (" + std::to_string(c.joined) + " of " +
                                      std::to_string(c.ranks) + " have come)");
}

inline ncclResult_t join(ncclComm_t *comm, int ranks, const ncclUniqueId &id, int rank, bool blocking)
{
    std::unique_lock held(device_lock);
    std::string key(id.internal, sizeof id.internal);
    *comm = nullptr;
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return refuse(ncclInvalidArgument, "NCCL", "rank %d of %d", rank, ranks);
    wait_in_driver("making a communicator of NCCL");
    std::shared_ptr<Clique> &entry = cliques[key];
    if (!entry) entry = std::make_shared<Clique>(), entry->ranks = ranks, entry->comms.resize((size_t)ranks);
    std::shared_ptr<Clique> c = entry;
    if (c->ranks != ranks)
        return refuse(ncclInvalidArgument, "NCCL", "rank %d says there are %d ranks, others said %d", rank, ranks,
                      c->ranks);
    for (const ncclComm *other : c->comms)
        if (other && other->card == current_card && cards() > 1)
            return refuse(ncclInvalidArgument, "NCCL", "ranks %d and %d are both on card %d", other->rank, rank,
                          current_card);
    if (c->comms[(size_t)rank]) return refuse(ncclInvalidArgument, "NCCL", "rank %d of %d has come twice", rank, ranks);
    *comm = new ncclComm{c, rank, current_card, blocking, 0, nullptr, {}, 0, false};
    c->comms[(size_t)rank] = *comm;
    comms.push_back(*comm);
    if (++c->joined == ranks) cliques.erase(key);
    tell_change();
    if (group.depth) return group.joining.push_back(*comm), ncclSuccess;
    if (!blocking) return (*comm)->questions = 1, ncclInProgress;
    wait_for_ranks(held, *c);
    return c->error;
}

inline void forget(ncclComm *comm)
{
    std::erase(comms, comm);
    delete comm;
}

} // namespace emu

inline ncclResult_t ncclGetVersion(int *version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }
inline const char *ncclGetErrorString(ncclResult_t e)
{
    static const char *words[] = {"no error",
                                  "unhandled cuda error",
                                  "unhandled system error",
                                  "internal error",
                                  "invalid argument",
                                  "invalid usage",
                                  "remote process exited or there was a network error",
                                  "NCCL operation in progress"};
    return e >= ncclSuccess && e < ncclNumResults ? words[e] : "unknown result code";
}

inline ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::lock_guard held(emu::device_lock);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "emulator %llu", ++emu::unique_ids);
    return ncclSuccess;
}

inline ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    return emu::join(comm, ranks, id, rank, true);
}
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    return emu::join(comm, ranks, id, rank, !config || config->blocking != 0);
}
inline ncclResult_t ncclCommCount(ncclComm_t comm, int *ranks) { return *ranks = comm->clique->ranks, ncclSuccess; }
inline ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) { return *rank = comm->rank, ncclSuccess; }
inline ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device) { return *device = comm->card, ncclSuccess; }

inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    std::lock_guard held(emu::device_lock);
    if (!emu::is_alive(comm)) return emu::refuse(ncclInvalidArgument, "NCCL", "%p is no communicator", (void *)comm);
    return *error = emu::progress(*comm), ncclSuccess;
}
inline const char *ncclGetLastError(ncclComm_t comm) { return comm ? comm->clique->message.c_str() : ""; }

inline ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    std::unique_lock held(emu::device_lock);
    comm->finalizes = true;
    if (!comm->blocking) return comm->questions = 1, ncclInProgress;
    emu::wait_for(held, comm->last);
    return ncclSuccess;
}
inline ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    std::unique_lock held(emu::device_lock);
    if (!emu::is_alive(comm)) return emu::refuse(ncclInvalidArgument, "NCCL", "%p is no communicator", (void *)comm);
    emu::wait_for(held, comm->last);
    return emu::forget(comm), ncclSuccess;
}
inline ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    std::lock_guard held(emu::device_lock);
    if (!emu::is_alive(comm)) return emu::refuse(ncclInvalidArgument, "NCCL", "%p is no communicator", (void *)comm);
    emu::spoil(*comm->clique, ncclRemoteError,
               "NCCL: rank " + std::to_string(comm->rank) + " has aborted the communicator");
    return emu::forget(comm), ncclSuccess;
}

// ---- groups and calls ----------------------------------------------------------------------------------------------
inline ncclResult_t ncclGroupStart()
{
    emu::group.depth++;
    return ncclSuccess;
}

inline ncclResult_t ncclGroupEnd()
{
    if (!emu::group.depth) return emu::refuse(ncclInvalidUsage, "NCCL", "ncclGroupEnd without ncclGroupStart");
    if (--emu::group.depth) return ncclSuccess;
    std::unique_lock held(emu::device_lock);
    for (ncclComm *comm : std::exchange(emu::group.joining, {})) emu::wait_for_ranks(held, *comm->clique);
    if (ncclResult_t e = std::exchange(emu::group.error, ncclSuccess)) return emu::group.calls.clear(), e;
    return emu::launch_group();
}

inline ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, cudaStream_t s)
{
    return emu::call(comm, s, {emu::Call::all_reduce, (const char *)send, (char *)recv, count, type, op, 0, {}});
}
inline ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t comm, cudaStream_t s)
{
    return emu::call(comm, s, {emu::Call::reduce_scatter, (const char *)send, (char *)recv, count, type, op, 0, {}});
}
inline ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               int root, ncclComm_t comm, cudaStream_t s)
{
    return emu::call(comm, s, {emu::Call::reduce, (const char *)send, (char *)recv, count, type, op, root, {}});
}
inline ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t s)
{
    return emu::call(comm, s, {emu::Call::all_gather, (const char *)send, (char *)recv, count, type, ncclSum, 0, {}});
}
inline ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t s)
{
    return emu::call(comm, s, {emu::Call::broadcast, (const char *)send, (char *)recv, count, type, ncclSum, root, {}});
}
inline ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t s)
{
    return emu::call(comm, s, {emu::Call::send, (const char *)send, nullptr, count, type, ncclSum, peer, {}});
}
inline ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t s)
{
    return emu::call(comm, s, {emu::Call::recv, nullptr, (char *)recv, count, type, ncclSum, peer, {}});
}

#endif
