// nccl_launch.h: what is under way among ranks: which launches belong together, whether they agree, and what they do
// when all are there.
#ifndef GX_EMU_NCCL_LAUNCH_H
#define GX_EMU_NCCL_LAUNCH_H
#include "nccl_types.h"

struct ncclComm;

namespace emu
{

enum class Call { all_reduce, all_gather, reduce_scatter, reduce, broadcast, send, recv };
inline bool sums(Call c) { return c == Call::all_reduce || c == Call::reduce_scatter || c == Call::reduce; }
struct NcclLaunch;
struct Clique;

struct NcclCall {
    Call call;
    const char *send;
    char *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int other;               // the root, or the peer of a send or receive
    std::vector<char> taken; // what was to be sent, once all parts were there
    NcclLaunch *partner = nullptr;
    size_t partner_call = 0; // the other end of a send or receive
    size_t unit() const { return nccl_type(type)->bytes; }
    size_t bytes() const { return count * unit(); }
};

struct NcclLaunch { // one rank's: a call, or a group's calls on one communicator
    std::shared_ptr<Clique> clique;
    int rank;
    std::vector<NcclCall> collectives, transfers; // transfers: sends and receives
    size_t number = 0;                            // among the rank's launches with collectives
    Operation *operation = nullptr;
};
using NcclLaunchRef = std::shared_ptr<NcclLaunch>;

struct Together { // launches of the same number
    std::vector<NcclLaunchRef> of_rank;
    std::vector<std::vector<char>> reduced; // by call, made by the first rank that needs it
    int finished = 0;
};
struct End { // of a send or receive, whose other end has not come
    NcclLaunch *launch;
    size_t call;
};

struct Clique { // the ranks of one unique id
    int ranks = 0, joined = 0;
    std::vector<ncclComm *> comms;
    std::map<size_t, Together> launches;                         // by number
    std::map<std::pair<int, int>, std::deque<End>> sends, recvs; // by from, to
    ncclResult_t error = ncclSuccess;
    std::string message;
};

// From now on what is queued on the communicator does nothing and waits for nobody.
inline void spoil(Clique &c, ncclResult_t error, const std::string &message)
{
    if (c.error) return;
    c.error = error;
    c.message = message;
    c.launches.clear();
    c.sends.clear();
    c.recvs.clear();
    say("%s", message.c_str());
    tell_change();
}

// ---- do they agree? ------------------------------------------------------------------------------------------------
inline std::string text(const NcclCall &c)
{
    static const char *names[] = {"all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "send", "recv"};
    std::string s = std::string(names[(int)c.call]) + " of " + std::to_string(c.count) + " " + nccl_type(c.type)->name;
    if (sums(c.call)) s += c.op == ncclSum ? " (sum)" : c.op == ncclMax ? " (max)" : " (min)";
    if (c.call == Call::broadcast) s += " from rank " + std::to_string(c.other);
    if (c.call == Call::reduce) s += " to rank " + std::to_string(c.other);
    return s;
}

inline std::string text(const std::vector<NcclCall> &calls)
{
    std::string s;
    for (const NcclCall &c : calls) s += (s.empty() ? "" : ", ") + text(c);
    return s;
}

inline void compare_with_peers(NcclLaunch &mine)
{
    for (const NcclLaunchRef &other : mine.clique->launches[mine.number].of_rank) {
        if (!other || other.get() == &mine || text(other->collectives) == text(mine.collectives)) continue;
        return spoil(*mine.clique, ncclInvalidUsage,
                     "NCCL: ranks " + std::to_string(other->rank) + " and " + std::to_string(mine.rank) +
                         " differ in collective launch " + std::to_string(mine.number) + ": rank " +
                         std::to_string(other->rank) + " has " + text(other->collectives) + ", rank " +
                         std::to_string(mine.rank) + " has " + text(mine.collectives));
    }
}

// The k-th send from a to b is for the k-th receive at b from a.
inline void pair_up(NcclLaunch &mine, size_t index)
{
    NcclCall &c = mine.transfers[index];
    bool sends = c.call == Call::send;
    std::pair<int, int> way = sends ? std::pair(mine.rank, c.other) : std::pair(c.other, mine.rank);
    std::deque<End> &others = (sends ? mine.clique->recvs : mine.clique->sends)[way];
    if (others.empty()) return (sends ? mine.clique->sends : mine.clique->recvs)[way].push_back({&mine, index});
    End end = others.front();
    others.pop_front();
    NcclCall &other = end.launch->transfers[end.call];
    c.partner = end.launch, c.partner_call = end.call;
    other.partner = &mine, other.partner_call = index;
    if (other.count != c.count || other.type != c.type)
        spoil(*mine.clique, ncclInvalidUsage,
              "NCCL: rank " + std::to_string(end.launch->rank) + " has " + text(other) + " where rank " +
                  std::to_string(mine.rank) + " has " + text(c));
}

inline void match(const NcclLaunchRef &launch)
{
    Clique &c = *launch->clique;
    if (!launch->collectives.empty()) {
        Together &all = c.launches[launch->number];
        all.of_rank.resize((size_t)c.ranks);
        all.reduced.resize(launch->collectives.size());
        all.of_rank[(size_t)launch->rank] = launch;
        compare_with_peers(*launch);
    }
    for (size_t i = 0; i < launch->transfers.size() && !c.error; i++) pair_up(*launch, i);
}

// ---- who runs together ---------------------------------------------------------------------------------------------
inline std::vector<NcclLaunch *> neighbours(const NcclLaunch &launch) // NULL: has not come
{
    std::vector<NcclLaunch *> all;
    if (!launch.collectives.empty())
        for (const NcclLaunchRef &other : launch.clique->launches[launch.number].of_rank) all.push_back(other.get());
    for (const NcclCall &c : launch.transfers) all.push_back(c.partner);
    return all;
}

inline bool gather(NcclLaunch *start, std::vector<Operation *> *parts)
{
    if (start->clique->error) return parts->push_back(start->operation), true;
    std::vector<NcclLaunch *> found = {start};
    for (size_t i = 0; i < found.size(); i++) {
        parts->push_back(found[i]->operation);
        for (NcclLaunch *other : neighbours(*found[i])) {
            if (!other) return false;
            if (std::find(found.begin(), found.end(), other) == found.end()) found.push_back(other);
        }
    }
    return true;
}

// ---- what they do --------------------------------------------------------------------------------------------------
inline size_t bytes_sent(const NcclLaunch &launch, const NcclCall &c)
{
    if (c.call == Call::recv || (c.call == Call::broadcast && c.other != launch.rank)) return 0;
    return c.call == Call::reduce_scatter ? c.bytes() * (size_t)launch.clique->ranks : c.bytes();
}
inline size_t bytes_received(const NcclLaunch &launch, const NcclCall &c)
{
    if (c.call == Call::send || (c.call == Call::reduce && c.other != launch.rank)) return 0;
    return c.call == Call::all_gather ? c.bytes() * (size_t)launch.clique->ranks : c.bytes();
}

// Sources are taken before any result is written: in place is as good as elsewhere.
inline void take_sources(NcclLaunch &launch)
{
    if (launch.clique->error) return;
    for (auto *calls : {&launch.collectives, &launch.transfers})
        for (NcclCall &c : *calls) c.taken.assign(c.send, c.send + bytes_sent(launch, c));
}

inline void reduce_once(Together &all, size_t index)
{
    const NcclCall &c = all.of_rank[0]->collectives[index];
    std::vector<char> &sum = all.reduced[index];
    if (!sum.empty() || c.taken.empty()) return;
    std::vector<const char *> parts;
    for (const NcclLaunchRef &l : all.of_rank) parts.push_back(l->collectives[index].taken.data());
    sum.resize(c.taken.size());
    nccl_type(c.type)->reduce(sum.data(), parts, sum.size() / c.unit(), c.op);
}

inline void finish_collective(NcclLaunch &launch, Together &all, size_t index)
{
    NcclCall &c = launch.collectives[index];
    size_t rank = (size_t)launch.rank, bytes = c.bytes();
    if (!bytes) return;
    if (sums(c.call)) {
        reduce_once(all, index);
        if (!bytes_received(launch, c)) return;
        memcpy(c.recv, all.reduced[index].data() + (c.call == Call::reduce_scatter ? rank * bytes : 0), bytes);
    } else if (c.call == Call::all_gather) {
        for (size_t r = 0; r < all.of_rank.size(); r++)
            memcpy(c.recv + r * bytes, all.of_rank[r]->collectives[index].taken.data(), bytes);
    } else {
        memcpy(c.recv, all.of_rank[(size_t)c.other]->collectives[index].taken.data(), bytes);
    }
}

inline void finish(NcclLaunch &launch)
{
    Clique &clique = *launch.clique;
    if (clique.error) return;
    for (const NcclCall &c : launch.transfers)
        if (c.call == Call::recv && c.count)
            memcpy(c.recv, c.partner->transfers[c.partner_call].taken.data(), c.bytes());
    if (launch.collectives.empty()) return;
    Together &all = clique.launches[launch.number];
    for (size_t i = 0; i < launch.collectives.size(); i++) finish_collective(launch, all, i);
    if (++all.finished == clique.ranks) clique.launches.erase(launch.number);
}

} // namespace emu
#endif
