"""Makes the reference dump of parallel training: three steps by PyTorch on one rank, in pipelines, and sharded.

    python dev/ref/make_parallel_refs.py [--out data/ref]

Writes  parallel/{config.json, model.safetensors}   a small LLaMA, as transformers saves it: four layers
        parallel/ref.safetensors                    in float32
            tokens, labels   [STEPS,SAMPLES,T]      a window of samples for each step
            adamw.losses     [STEPS]                of each step's window, before the step: the sum over the labels
                                                    that count, divided by their number
            adamw.norms      [STEPS]                of the gradients, before clipping
            adamw.NAME                              weights after the steps of AdamW
            adamw_spread.*   [1]                    how far from each of these runs are that begin one ulp away:
                                                    the norm of the difference (make_refs.py says why)
            clipped.*, clipped_spread.*             the same of steps that clip to max_norm [1]
        parallel/runs.jsonl                         losses and norms of each way to compute the same

The ways: the window as one batch, and as micro-batches, on one rank; torch.distributed.pipelining with its schedules,
of which some have two stages a rank; fully_shard (FSDP2) on one axis of ranks, on two (HSDP), and on the stages of a
pipeline. Ranks are processes, connected by gloo. Each way must agree with the first but for rounding: that is
asserted, and the largest differences are printed.
"""
import copy
import itertools
import json
import math
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.pipelining as pipelining
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from compare_refs import SPREADS
from make_refs import IGNORE, PERTURBED, decayed_adamw, one_ulp_away, save, seed, set_weights, weights
from tuned_refs import out_folder

CONFIG = dict(hidden_size=20, num_attention_heads=4, num_key_value_heads=2, head_dim=6,  # not 20/4
              intermediate_size=28, vocab_size=47, num_hidden_layers=4, tie_word_embeddings=False)
STEPS, SAMPLES, T = 3, 8, 7
MICRO = 4          # micro-batches of a window in a pipeline
CLIPPED = 2.5      # more than the norm of one step, and less than those of the others
ROUNDING = 2e-6    # relative: float32 sums in another order, on one machine, besides the spread
KINDS = {"adamw": math.inf, "clipped": CLIPPED}  # what the gradients' norm is clipped to
PIPELINES = {  # ranks: schedule, and the stages of each rank
    2: {"GPipe": [[0], [1]], "1F1B": [[0], [1]], "Interleaved1F1B": [[0, 2], [1, 3]],
        "InterleavedZeroBubble": [[0, 2], [1, 3]], "ZBVZeroBubble": [[0, 3], [1, 2]]},
    4: {"GPipe": [[0], [1], [2], [3]], "1F1B": [[0], [1], [2], [3]]},
}
SHARDED = {  # ranks: dp_replicate, dp_shard, whether parameters are given back behind the forward
    2: [(1, 2, True), (1, 2, False)],
    4: [(1, 4, True), (2, 2, True)],
}


# ---------------------------------------------------------------------------------- data

def make_model():
    seed("parallel")
    model = LlamaForCausalLM(LlamaConfig(attn_implementation="eager", max_position_embeddings=64, **CONFIG))
    with torch.no_grad():  # as large as in make_refs.py
        for p in model.parameters():
            p.copy_((p.ndim == 1) + (0.1 if p.ndim == 1 else 0.08) * torch.randn_like(p))
    return model


def make_windows():
    """Tokens and labels [STEPS,SAMPLES,T]. Steps and samples, and so micro-batches and ranks, differ in how many labels
    count; in one micro-batch none does."""
    seed("parallel windows")
    stream = torch.randint(0, CONFIG["vocab_size"], (STEPS, SAMPLES, T + 1))
    labels = stream[..., 1:].clone()
    of_step, of_sample = torch.tensor([1.0, 0.2, 0.6]), torch.tensor([1.0, 0.6, 0.9, 0.8, 0.3]).repeat(2)[:SAMPLES]
    labels[torch.rand(labels.shape) > (of_step[:, None] * of_sample)[..., None]] = IGNORE
    labels[1, 2:4] = IGNORE
    return stream[..., :-1].contiguous(), labels


def loss_sum(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")


# ---------------------------------------------------------------------------------- steps
# A way to compute has named_parameters(), by the names that the whole model has for them; backward(tokens, labels,
# count), which leaves the gradients of the window's loss on them, and returns it; and norm(parameters), of these.

def sum_over_ranks(x):
    x = x.detach().clone()
    dist.all_reduce(x)
    return x


def norm_here(parameters):
    return torch.nn.utils.get_total_norm([p.grad for p in parameters], foreach=False)


def train(way, windows, max_norm):
    """STEPS steps: losses, norms, and the weights after them."""
    parameters = dict(way.named_parameters())
    optimizer = decayed_adamw(torch.nn.ParameterList(parameters.values()))
    losses, norms = [], []
    for tokens, labels in zip(*windows):
        optimizer.zero_grad()
        losses.append(way.backward(tokens, labels, (labels != IGNORE).sum()))
        norms.append(way.norm(parameters.values()))
        torch.nn.utils.clip_grads_with_norm_(parameters.values(), max_norm, norms[-1], foreach=False)
        optimizer.step()
    whole = {n: p.full_tensor() if hasattr(p, "full_tensor") else p for n, p in parameters.items()}
    return torch.stack(losses), torch.stack(norms), {n: p.detach().clone() for n, p in whole.items()}


class Serial:
    def __init__(self, model, micro):
        self.model, self.micro = model, micro

    def named_parameters(self):
        return self.model.named_parameters()

    def norm(self, parameters):
        return norm_here(parameters)

    def backward(self, tokens, labels, count):
        total = 0
        for x, y in zip(tokens.chunk(self.micro), labels.chunk(self.micro)):
            loss = loss_sum(self.model(input_ids=x, use_cache=False).logits, y) / count
            loss.backward()
            total += loss.detach()
        return total


class Stage(torch.nn.Module):
    """Stage i of n: some of the layers; the first has the embedding, the last the head."""

    def __init__(self, model, i, n):
        super().__init__()
        layers, self.is_first, self.is_last = len(model.model.layers), i == 0, i == n - 1
        self.first_layer = i * layers // n
        self.part = part = copy.deepcopy(model)
        part.model.layers = part.model.layers[self.first_layer:(i + 1) * layers // n]
        if not self.is_first:
            part.model.embed_tokens = torch.nn.Identity()
        if not self.is_last:
            part.model.norm = part.lm_head = torch.nn.Identity()

    def forward(self, x):
        what = {"input_ids" if self.is_first else "inputs_embeds": x}
        if self.is_last:
            return self.part(**what, use_cache=False).logits
        return self.part.model(**what, use_cache=False).last_hidden_state

    def named_parameters_of_model(self):
        for name, p in self.part.named_parameters():
            words = name.split(".")
            if words[1] == "layers":
                words[2] = str(int(words[2]) + self.first_layer)
            yield ".".join(words), p


class Pipeline:
    """On the ranks of the group, or of the axis pp of a mesh, over whose other axis stages are sharded then."""

    def __init__(self, model, schedule, stages, mesh=None):
        group = mesh["pp"].get_group() if mesh else dist.group.WORLD
        n = sum(map(len, stages))
        self.of_dp = mesh["dp_shard"] if mesh else None
        self.modules = {i: Stage(model, i, n) for i in stages[dist.get_rank(group)]}
        if mesh:
            for m in self.modules.values():
                shard(m, m.part.model.layers, mesh["dp_shard"])
        parts = [pipelining.PipelineStage(m, i, n, torch.device("cpu"), group=group) for i, m in self.modules.items()]
        kind = getattr(pipelining, f"Schedule{schedule}")
        takes_list = issubclass(kind, pipelining.schedules.PipelineScheduleMulti)
        self.has_first, self.has_last = 0 in self.modules, n - 1 in self.modules
        self.schedule = kind(parts if takes_list else parts[0], MICRO, loss_fn=self.loss, scale_grads=False)

    def named_parameters(self):
        return itertools.chain(*(m.named_parameters_of_model() for m in self.modules.values()))

    def loss(self, logits, labels):
        return loss_sum(logits, labels) / self.count

    def backward(self, tokens, labels, count):
        self.count, losses = count, []
        if self.of_dp:
            tokens, labels = (x.chunk(self.of_dp.size())[self.of_dp.get_local_rank()] for x in (tokens, labels))
        self.schedule.step(*[tokens] * self.has_first, target=labels if self.has_last else None, losses=losses)
        return sum_over_ranks(torch.stack(losses).sum() if self.has_last else torch.zeros(()))

    def norm(self, parameters):
        """The squares of all stages; the ranks of a stage's shards all have its norm."""
        own = norm_here(parameters)
        square = (own.full_tensor() if self.of_dp else own).square()
        return (sum_over_ranks(square) / (self.of_dp.size() if self.of_dp else 1)).sqrt()


def shard(whole, layers, mesh, **options):
    """Gradients are summed: losses are divided by the labels of the whole window already."""
    for module in [*layers, whole]:
        fully_shard(module, mesh=mesh, **options)
    for module in whole.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no sums with a factor


class Sharded(Serial):
    """Every rank has its part of each window's samples, in two micro-batches."""

    def __init__(self, model, replicate, shards, gives_back):
        super().__init__(copy.deepcopy(model), 2)
        dims = {"dp_replicate": replicate, "dp_shard": shards} if replicate > 1 else {"dp_shard": shards}
        mesh = init_device_mesh("cpu", tuple(dims.values()), mesh_dim_names=tuple(dims))
        shard(self.model, self.model.model.layers, mesh, reshard_after_forward=gives_back)

    def backward(self, tokens, labels, count):
        rank, world = dist.get_rank(), dist.get_world_size()
        return sum_over_ranks(super().backward(tokens.chunk(world)[rank], labels.chunk(world)[rank], count))

    def norm(self, parameters):
        return norm_here(parameters).full_tensor()


# ---------------------------------------------------------------------------------- ranks

def ways(model, ranks):
    """(name, a function that makes the way) of each that there is on so many ranks."""
    start = weights(model)

    def fresh():
        set_weights(model, start)
        return model

    if ranks == 1:
        yield "serial, one batch", lambda: Serial(fresh(), 1)
        yield "serial, micro-batches", lambda: Serial(fresh(), MICRO)
    for schedule, stages in PIPELINES.get(ranks, {}).items():
        yield f"pp {ranks}, {schedule}", lambda: Pipeline(fresh(), schedule, stages)
    for replicate, shards, gives_back in SHARDED.get(ranks, []):
        name = f"dp_replicate {replicate}, dp_shard {shards}, parameters {'given back' if gives_back else 'kept'}"
        yield name, lambda: Sharded(fresh(), replicate, shards, gives_back)
    if ranks == 4:
        yield "pp 2, 1F1B, dp_shard 2", lambda: Pipeline(
            fresh(), "1F1B", [[0], [1]], init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp_shard")))


def run_rank(rank, ranks, folder):
    """Every way on this rank; what came out goes into a file."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks{ranks}", rank=rank, world_size=ranks)
    model, windows = make_model(), make_windows()
    results = [dict(run=name, ranks=ranks, kind=kind, result=train(make(), windows, max_norm))
               for name, make in ways(model, ranks) for kind, max_norm in KINDS.items()]
    torch.save(results, f"{folder}/{ranks}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(ranks, folder):
    """What each way gives: losses and norms of all ranks alike, weights of those that have them."""
    torch.multiprocessing.start_processes(run_rank, (ranks, folder), nprocs=ranks, start_method="fork")
    of_rank = [torch.load(f"{folder}/{ranks}.{r}") for r in range(ranks)]
    for same in zip(*of_rank):
        losses, norms, _ = same[0]["result"]
        for other in same[1:]:
            same_numbers = torch.equal(other["result"][0], losses) and torch.equal(other["result"][1], norms)
            assert same_numbers, f"{other['run']}: ranks differ"
        yield dict(same[0], result=(losses, norms, {n: w for r in same for n, w in r["result"][2].items()}))


# ---------------------------------------------------------------------------------- the dump

def named(result):
    losses, norms, end = result
    return {"losses": losses, "norms": norms, **end}


def reference(model, windows, max_norm):
    """The window as one batch: what a run gives, by name, and the spreads around it."""
    start = weights(model)

    def run(values):
        set_weights(model, values)
        return named(train(Serial(model, 1), windows, max_norm))

    own = run(start)
    others = [run(one_ulp_away(start)) for _ in range(PERTURBED)]
    set_weights(model, start)
    return own, {n: torch.stack([(other[n] - x).norm() for other in others]).amax() for n, x in own.items()}


def farthest(run, of, spread):
    """The largest distance from the reference as a multiple of its bound, and what has it."""
    assert run.keys() == of.keys(), run.keys() ^ of.keys()
    return max((float((run[n] - x).norm() / (ROUNDING * x.norm() + SPREADS * spread[n])), n) for n, x in of.items())


def check_clipping(references):
    """Some steps clip and some do not, which changes more than rounding does: who clips by a wrong norm is noticed."""
    clipped, norms = references["clipped"][0], references["clipped"][0]["norms"]
    assert norms.min() < CLIPPED < norms.max(), norms
    ratio, name = farthest(clipped, *references["adamw"])
    print(f"steps that clip are {ratio:.0f} bounds from others: {name}")
    assert ratio > 100


def check_run(said, run, of, spread):
    ratio, name = farthest(run, of, spread)
    apart = {n: float((run[n] / of[n] - 1).abs().max()) for n in ("losses", "norms")}
    element = max(float((x - of[n]).abs().max()) for n, x in run.items() if n not in apart)
    print(f"{said}: losses {apart['losses']:.1e}, norms {apart['norms']:.1e}, a weight {element:.1e} off; "
          f"{ratio:.2f} of the bound: {name}")
    assert ratio <= 1, f"{said} differs from one rank: {name}"
    return ratio


def make(out):
    folder = out / "parallel"
    with tempfile.TemporaryDirectory() as temporary:  # first: processes are forked before this one computes
        runs = [run for ranks in (1, 2, 4) for run in run_ranks(ranks, temporary)]
    model, windows = make_model(), make_windows()
    model.save_pretrained(folder)
    references = {kind: reference(model, windows, max_norm) for kind, max_norm in KINDS.items()}
    check_clipping(references)
    worst = max(check_run(f"{r['run']}, {r['kind']}", named(r["result"]), *references[r["kind"]]) for r in runs)
    print(f"{len(runs)} runs agree, the farthest within {worst:.2f} of its bound")
    dump = dict(zip(("tokens", "labels"), windows), max_norm=CLIPPED)
    for kind, (own, spread) in references.items():
        dump.update({f"{kind}.{n}": x for n, x in own.items()})
        dump.update({f"{kind}_spread.{n}": x for n, x in spread.items()})
    save(folder / "ref.safetensors", dump)
    with open(folder / "runs.jsonl", "w") as lines:
        for r in runs:
            losses, norms, _ = (x.tolist() if torch.is_tensor(x) else x for x in r.pop("result"))
            lines.write(json.dumps(dict(r, losses=losses, norms=norms)) + "\n")


if __name__ == "__main__":
    out = out_folder(__doc__)
    disable_progress_bar()
    make(out)
