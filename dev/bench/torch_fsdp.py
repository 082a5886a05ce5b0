"""Tokens/s and memory of PyTorch's FSDP2 on the CPU: ranks with a thread each, connected by gloo.

    python dev/bench/torch_fsdp.py [--ranks 2] [--reshard true|false|copies] [--sync micro|window] [--steps 6]

To be run beside `train_llama --ranks 2 --threads 1 --dp_shard 2` on the shape of dev/bench/mesh.sh: a LLaMA of
22M parameters (D 512, 8 layers, 8 heads of which 2 kv, bytes as tokens), 16 samples of 256 tokens a step, of which each
of two ranks has 8 in 4 micro-batches. A step is forward, backward, clipping to a norm of 1, AdamW. fp32 throughout.

  --reshard  true     parameters are gathered for each forward and again for each backward (ZeRO-3)
             false    what was gathered is kept until its backward is done
             copies   no shards: every rank has all parameters
  --sync     micro    gradients are summed by each micro-batch, and only shards of them are kept: FSDP2's own default
             window   they are summed once, by the last micro-batch, and lie whole until then
  --model    lean     torch_llama.py's lean module, PyTorch at its best without a compiler, and fused AdamW
             transformers   LlamaForCausalLM and AdamW as installed

Prints for each rank its peak of resident memory (VmHWM) and how much of that the process had before the model was made,
and last the tokens/s of all ranks together: the median of the steps but the first two.
"""
import argparse
import os
import statistics
import tempfile
import time

from torch_llama import ADAMW, EPS, lean_model, tune_process

SHAPE = dict(hidden=512, layers=8, heads=8, kv=2, ffn=1376, vocab=256)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--reshard", choices=("true", "false", "copies"), default="true")
    parser.add_argument("--sync", choices=("window", "micro"), default="micro")
    parser.add_argument("--model", choices=("lean", "transformers"), default="lean")
    parser.add_argument("--samples", type=int, default=16, help="of a step, on all ranks")
    parser.add_argument("--micro-batch", type=int, default=2, help="samples of a micro-batch of a rank")
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--plain-malloc", action="store_true", help="without torch_llama.py's malloc settings")
    for name, default in SHAPE.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default {default}")
    args = parser.parse_args()
    if args.samples % (args.ranks * args.micro_batch):
        parser.error(f"--samples {args.samples} are not {args.ranks} ranks times micro-batches of {args.micro_batch}")
    args.device, args.precision = "cpu", "fp32"  # what lean_model wants to know
    return args


def memory(what):
    """MB of VmHWM, the peak of resident memory so far, or of VmRSS, that of now."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(what + ":"))


def make_model(args):
    """The model, its layers, and a function of tokens and labels that is the mean of their losses."""
    if args.model == "lean":
        model = lean_model(args)
        return model, model.layers, model
    from transformers import LlamaConfig, LlamaForCausalLM
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.heads,
        num_key_value_heads=args.kv, intermediate_size=args.ffn, vocab_size=args.vocab,
        max_position_embeddings=args.seq, rms_norm_eps=EPS, tie_word_embeddings=False)).train()
    return model, model.model.layers, lambda x, y: model(input_ids=x, labels=y, shift_labels=y).loss


def share(args, model, layers):
    """Cuts the model over the ranks. Each layer is gathered by itself, and what is around the layers together."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dims = (args.ranks, 1) if args.reshard == "copies" else (1, args.ranks)
    mesh = init_device_mesh("cpu", dims, mesh_dim_names=("dp_replicate", "dp_shard"))
    for module in [*layers, model]:
        fully_shard(module, mesh=mesh, reshard_after_forward=args.reshard == "true")


def make_step(args, rank):
    """A function that does a step and returns this rank's loss, and the number of parameters of the whole model."""
    import torch
    torch.manual_seed(1)  # the same weights on all ranks
    model, layers, loss_of = make_model(args)
    parameters = sum(p.numel() for p in model.parameters())
    share(args, model, layers)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True if args.model == "lean" else None)
    torch.manual_seed(2 + rank)
    micro_batches = args.samples // (args.ranks * args.micro_batch)
    shape = (2, micro_batches, args.micro_batch, args.seq)
    tokens, labels = torch.randint(0, args.vocab, shape)

    def step():
        total = 0
        optimizer.zero_grad(set_to_none=True)
        for i in range(micro_batches):
            model.set_requires_gradient_sync(args.sync == "micro" or i == micro_batches - 1)
            loss = loss_of(tokens[i], labels[i]) / micro_batches
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return total

    return step, parameters


def run_rank(rank, args, folder):
    import torch
    import torch.distributed as dist
    import torch.distributed.fsdp  # noqa: F401: what modules take counts as taken before the model
    torch.set_num_threads(args.threads)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=args.ranks)
    before = memory("VmRSS")
    step, parameters = make_step(args, rank)
    times, losses = [], []
    for _ in range(args.steps):
        dist.barrier()
        start = time.perf_counter()
        losses.append(step())
        dist.barrier()
        times.append(time.perf_counter() - start)
    for r in range(args.ranks):
        if r == rank:
            print(f"rank {rank}: loss {losses[0]:.4f} to {losses[-1]:.4f}, peak {memory('VmHWM'):.0f} MB resident, "
                  f"of which {before:.0f} before the model", flush=True)
        dist.barrier()
    if rank == 0:
        median = statistics.median(times[2:] or times)
        shards = {"true": "given back behind the forward", "false": "kept", "copies": "not sharded"}[args.reshard]
        malloc = "tuned" if "MALLOC_TOP_PAD_" in os.environ else "plain"
        print(f"fsdp: {args.samples * args.seq / median:.3f} tokens/s; {args.ranks} ranks x {args.threads} threads, "
              f"{parameters} parameters, {shards}; gradients summed once per {args.sync}; {args.model}, "
              f"malloc {malloc}, torch {torch.__version__}", flush=True)
    dist.destroy_process_group()


def main():
    args = arguments()
    tune_process(args, not args.plain_malloc)
    import torch.multiprocessing
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(run_rank, (args, folder), nprocs=args.ranks, start_method="spawn")


if __name__ == "__main__":
    main()
