"""The PyTorch side of the benchmark: LLaMA training steps on the CPU or on a CUDA card.

    python dev/bench/torch_llama.py --variant lean-eager|lean-compile|transformers|transformers-compile [--device cuda] [--steps 10] [--serve]

One step is forward, backward, clipping to a gradient norm of 1, AdamW, with the numbers (rates, decay, eps) of llama_step. The variants:
  lean-eager            PyTorch at its best without a compiler: a small module of our own with SDPA, fused
                        RMSNorm, linear_cross_entropy (on the CPU in fp32), fused AdamW, query/key/value and
                        gate/up as one matrix each, malloc tuned
  lean-compile          the same under torch.compile (needs g++; on a card Triton)
  transformers          LlamaForCausalLM and torch.optim.AdamW as installed, nothing tuned
  transformers-compile  the same under torch.compile

On a card fp32 is without TF32, as Galaxy's; tf32 has it in products. There memory is given as PyTorch counts it from the warm-up on: "device_mb" is what
its tensors had at most, "reserved_mb" what it held of the card for them, "card_used_mb" what the card is short of
at the end, with CUDA's own.

Prints one JSON line. With --serve, for runs that alternate with another program so that both see the
same machine: after warming up, every line "step K" on stdin runs K steps and is answered by one JSON
line with the milliseconds per step (the mean of the burst); the end of stdin ends it with the usual line.
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time

# A step frees and takes hundreds of MB: without the first three glibc gives them back to the kernel,
# and the page faults cost 1.2-1.8x. The last asks for huge pages: 1-3%.
# All of it has to be in the environment before the process starts.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000",
          "MALLOC_TOP_PAD_": "268435456", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


# llama_step's: dev/bench/step.h
EPS = 1e-5
ADAMW = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=("lean-eager", "lean-compile", "transformers", "transformers-compile"),
                        default="lean-eager")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name, default in dict(hidden=288, layers=6, heads=6, kv=2, ffn=768, vocab=32000, batch=4, seq=256,
                              threads=2, steps=10, warmup=8).items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default {default}")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "bf16-weights"), default="fp32",
                        help="bf16: autocast, so weights and their gradients stay fp32; bf16-weights: these, and the optimizer's moments, are bf16, too")
    parser.add_argument("--serve", action="store_true", help="run bursts of steps on request, see above")
    parser.add_argument("--plain-malloc", action="store_true", help="lean variants without the malloc settings")
    return parser.parse_args()


def tune_process(args, tunes_malloc):
    """Starts this program anew with malloc tuned, if it is to be and is not yet."""
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    if args.device == "cpu" and tunes_malloc:
        env.update(MALLOC)
    if env != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.argv], env)


def lean_model(args):
    import torch
    import torch.nn.functional as F
    from torch import nn

    D, H, K, h = args.hidden, args.heads, args.kv, args.hidden // args.heads

    # Head and loss in one, by chunks of rows, on the CPU in fp32 (under autocast it stays in fp32, and costs 40% of the step): a few percent of the
    # step faster than cross_entropy on all logits, under the compiler too (which cannot see into it), and less memory. On a card it is one product and
    # cross_entropy, which the compiler fuses, and which every PyTorch has.
    chunks = nn.LinearCrossEntropyOptions(batch_chunk_size=512) if args.device == "cpu" and args.precision == "fp32" else None

    def matrix(n_in, n_out):
        return nn.Linear(n_in, n_out, bias=False)

    def rotate(x, cos, sin):  # x [B,heads,T,h]: the pairs (i, i + h/2)
        lo, hi = x.chunk(2, dim=-1)
        return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], dim=-1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(D, eps=EPS), nn.RMSNorm(D, eps=EPS)
            self.qkv, self.out = matrix(D, (H + 2 * K) * h), matrix(H * h, D)
            self.gate_up, self.down = matrix(D, 2 * args.ffn), matrix(args.ffn, D)

        def forward(self, x, cos, sin):
            B, T, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(B, T, H + 2 * K, h).transpose(1, 2).split((H, K, K), dim=1)
            a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                               enable_gqa=H != K)
            x = x + self.out(a.transpose(1, 2).reshape(B, T, H * h))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Embedding(args.vocab, D), nn.RMSNorm(D, eps=EPS)
            self.layers, self.head = nn.ModuleList(Layer() for _ in range(args.layers)), matrix(D, args.vocab)
            angle = torch.arange(args.seq)[:, None] * 10000.0 ** (-torch.arange(0, h, 2) / h)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)
            for p in self.parameters():
                if p.ndim == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, labels):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x, self.cos, self.sin)
            x = self.norm(x).flatten(0, 1)
            if chunks is None:
                return F.cross_entropy(self.head(x), labels.flatten())
            return F.linear_cross_entropy(x, self.head.weight, labels.flatten(), options=chunks)

    return Llama()


def prepare_torch(args):
    import torch
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"{program()}: --device cuda: PyTorch {torch.__version__} sees no card (it is built for CUDA {torch.version.cuda})")
    if args.device == "cpu" and args.precision == "tf32":
        sys.exit(f"{program()}: --precision tf32 is a card's; with --device cpu there is fp32, bf16, bf16-weights")
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = False


def make_step(args):
    """A function that does one training step and returns the loss, and the number of parameters."""
    import torch
    tokens, labels = torch.randint(0, args.vocab, (2, args.batch, args.seq)).to(args.device)

    if args.variant.startswith("transformers"):
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(
            hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.heads,
            num_key_value_heads=args.kv, intermediate_size=args.ffn, vocab_size=args.vocab,
            max_position_embeddings=args.seq, rms_norm_eps=EPS, tie_word_embeddings=False)).train().to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
        module = torch.compile(model) if args.variant == "transformers-compile" else model

        def loss_of():
            return module(input_ids=tokens, labels=labels, shift_labels=labels).loss
    else:
        model = lean_model(args).to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True)
        module = torch.compile(model) if args.variant == "lean-compile" else model

        def loss_of():
            return module(tokens, labels)

    if args.precision == "bf16-weights":
        model.to(torch.bfloat16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step, sum(p.numel() for p in model.parameters())


def memory_of_card():
    import torch
    free, total = torch.cuda.mem_get_info()
    mb = dict(device_mb=torch.cuda.max_memory_allocated(), reserved_mb=torch.cuda.max_memory_reserved(), card_used_mb=total - free)
    return {name: round(n / 1e6) for name, n in mb.items()}


def program():
    return os.path.basename(sys.argv[0])


def measure(args, make_step, **said):
    """Warms up, runs bursts of what make_step(args) gives, and prints the line: what was said, and what was measured."""
    import torch

    prepare_torch(args)
    step, parameters = make_step(args)
    for _ in range(args.warmup):  # the first one compiles; the heap has its final size after about five
        loss = step()
    times = []
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def burst(n):
        nonlocal loss
        start = time.perf_counter()
        for _ in range(n):
            loss = step()
        if args.device == "cuda":  # the loss was waited for, the optimizer was not
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3 / n)

    if args.serve:
        for line in sys.stdin:
            word, n = (line.split() + ["1"])[:2]
            if word != "step" or not n.isdigit() or not int(n):
                sys.exit(f"{program()}: unknown request {line.strip()!r}, expected: step K")
            burst(int(n))
            print(json.dumps({"ms": round(times[-1], 2), "steps": int(n), "loss": round(loss, 4)}), flush=True)
    else:
        for _ in range(args.steps):
            burst(1)

    result = {"variant": args.variant, **said, "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
              "precision": args.precision, "torch": torch.__version__, "threads": args.threads,
              "malloc": "tuned" if "MALLOC_TOP_PAD_" in os.environ else "plain",
              "parameters": parameters, "loss": round(loss, 4),
              "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)}
    if args.device == "cuda":
        result.update(memory_of_card())
    if times:
        tokens = args.batch * args.seq
        result.update(ms=round(statistics.median(times), 2),
                      tokens_per_s=round(tokens * 1e3 / statistics.median(times), 1),
                      best_tokens_per_s=round(tokens * 1e3 / min(times), 1))
    print(json.dumps(result), flush=True)


def main():
    args = arguments()
    tune_process(args, args.variant.startswith("lean") and not args.plain_malloc)
    measure(args, make_step)


if __name__ == "__main__":
    main()
