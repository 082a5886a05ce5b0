"""BERT's masked-token training steps in PyTorch, on the CPU or on a CUDA card: what Galaxy's are compared with.

    python dev/bench/torch_bert.py --variant transformers|transformers-compile [--head full|masked]
        [--precision fp32|bf16|bf16-weights] [--device cuda] [--steps 10] [--serve]

One step is forward, backward, clipping to a gradient norm of 1, AdamW with the numbers of torch_llama.py, on the shape
of BERT-base: 12 layers of 768, 12 heads, intermediate 3072, vocabulary 30522; 8 texts of 128 tokens, none of them
padding, 15% of the tokens to be found; dropout 0.1. The variants:
  transformers          BertForMaskedLM and torch.optim.AdamW as installed (attention is PyTorch's SDPA)
  transformers-compile  the same under torch.compile (needs g++; on a card Triton)
The head:
  full                  as transformers computes it: transform and decoder for every row, the loss of some
  masked                the rows that have a label are picked before the transform
The precision:
  fp32                  without TF32 on a card
  bf16                  autocast: weights, their gradients and moments stay fp32
  bf16-weights          all of them in bf16: the weights have no fp32 masters, so this trains less well than Galaxy's bf16
--tuned-malloc gives glibc's malloc the settings of torch_llama.py's lean variants. Memory, the JSON line, and --serve
are as in torch_llama.py, too.
"""
import argparse

from torch_llama import ADAMW, measure, tune_process

LABELLED = 0.15


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=("transformers", "transformers-compile"), default="transformers")
    parser.add_argument("--head", choices=("full", "masked"), default="full")
    parser.add_argument("--precision", choices=("fp32", "bf16", "bf16-weights"), default="fp32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name, default in dict(hidden=768, layers=12, heads=12, ffn=3072, vocab=30522, batch=8, seq=128, threads=2,
                              steps=10, warmup=3).items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default {default}")
    parser.add_argument("--dropout", type=float, default=0.1, metavar="P", help="hidden and attention's; default 0.1")
    parser.add_argument("--serve", action="store_true", help="run bursts of steps on request, see torch_llama.py")
    parser.add_argument("--tuned-malloc", action="store_true", help="on the CPU: keep freed memory, use huge pages")
    return parser.parse_args()


def make_batch(args):
    """Tokens, and labels at as many places of each text: -100 elsewhere; the numbers of the rows that have one."""
    import torch
    tokens = torch.randint(0, args.vocab, (args.batch, args.seq))
    places = torch.rand(args.batch, args.seq).argsort(-1)[:, :max(1, round(LABELLED * args.seq))]
    labels = torch.full_like(tokens, -100).scatter(1, places, torch.randint(0, args.vocab, places.shape))
    rows = (labels.flatten() != -100).nonzero()[:, 0]
    return tokens.to(args.device), labels.to(args.device), rows.to(args.device)


def make_step(args):
    """A function that does one training step and returns the loss, and the number of parameters."""
    import torch
    import torch.nn.functional as F
    from transformers import BertConfig, BertForMaskedLM

    tokens, labels, rows = make_batch(args)
    model = BertForMaskedLM(BertConfig(
        hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.heads,
        intermediate_size=args.ffn, vocab_size=args.vocab, max_position_embeddings=max(512, args.seq),
        hidden_dropout_prob=args.dropout, attention_probs_dropout_prob=args.dropout)).train().to(args.device)
    if args.precision == "bf16-weights":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)

    def full_loss(tokens, labels, rows):
        return model(input_ids=tokens, labels=labels).loss

    def masked_loss(tokens, labels, rows):
        hidden = model.bert(input_ids=tokens).last_hidden_state.flatten(0, 1)
        return F.cross_entropy(model.cls(hidden[rows]), labels.flatten()[rows])

    loss_of = full_loss if args.head == "full" else masked_loss
    if args.variant == "transformers-compile":
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = loss_of(tokens, labels, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step, sum(p.numel() for p in model.parameters())


def main():
    args = arguments()
    tune_process(args, args.tuned_malloc)
    measure(args, make_step, head=args.head)


if __name__ == "__main__":
    main()
