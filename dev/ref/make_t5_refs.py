"""Makes the reference dumps of T5, from PyTorch and transformers.

    python dev/ref/make_t5_refs.py [--out data/ref]

Writes folders NAME/{config.json, model.safetensors} as transformers saves them, and NAME/ref.safetensors: what those
models compute, in float32, with attn_implementation="eager".

    t5_odd          T5ForConditionalGeneration as T5 1.0: relu, a tied head, whose input is scaled; heads whose widths do
                    not sum to d_model, a deeper decoder, texts longer than max_distance, sources and targets with padding
    t5_dropout      as T5 1.1: a gate with gelu_new, a head of its own, and dropout
    mt5_silu        MT5ForConditionalGeneration with a gate with silu, one layer in each stack

Keys of ref.safetensors: those of make_bart_refs.py. encoder.x.l, decoder.x.l for the last l is what leaves the last
layer, before the stack's norm. cross.l has no bias. lm_head of t5_odd is listed as shared.

t5_dropout: sites are numbered as in make_bart_refs.py; besides, 8u for the end of the encoder and for the head: dropout
behind the norm that ends a stack.
"""
import argparse
import pathlib

import torch
from transformers import MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

import make_bart_refs as bart
from make_bert_refs import Dropout
from make_refs import IGNORE, keeper, save, seed

PAD, END = 0, 1
LR = 0.001


class Sites(bart.Sites):
    def __init__(self, config, dropout, S, T):
        self.dropout, self.S, self.T = dropout, S, T
        c, p = config, config.dropout_rate
        c.attention_dropout = c.activation_dropout = c.dropout = p  # the names that BART's has
        L, D = c.num_layers, c.num_decoder_layers
        self.order = [(0, p, S)]
        for l in range(L):
            self.order += self.layer(1 + l, [S], S, c)
        self.order += [(8 * (L + 1), p, S), (8 * (L + 2), p, T)]
        for l in range(D):
            self.order += self.layer(L + 3 + l, [T, max(S, T)], T, c)
        self.order.append((8 * (L + 3 + D), p, T))


def untie(model):
    """transformers 5 ties the head of every new T5, and reads one of its own from a file that has it."""
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())


def make_model(kind, config):
    """Weights larger than usual, so that no gradient drowns in rounding; no gain is 1."""
    has_own_head = not config.tie_word_embeddings or config.model_type == "mt5" or config.scale_decoder_outputs is False
    config._attn_implementation = "eager"
    model = kind(config)
    if has_own_head:
        untie(model)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((p.ndim == 1) + (0.1 if p.ndim == 1 else 0.25) * torch.randn_like(p))
    return model.train()


def hook(model, dump):
    keep, handles = keeper(dump), []
    for name in ("encoder", "decoder"):
        blocks = getattr(model, name).block
        for l, block in enumerate(blocks):
            handles.append(block.register_forward_hook(keep(f"{name}.x.{l}", True)))
            if name == "decoder":
                handles.append(block.layer[1].EncDecAttention.o.register_forward_hook(keep(f"cross.{l}")))
        handles.append(blocks[-1].register_forward_hook(keep(f"{name}.x.{len(blocks)}")))
    return handles


def case(name, out, kind, lengths, S, T, rate=0.0, **kw):
    seed(name)
    config = (MT5Config if kind is MT5ForConditionalGeneration else T5Config)(
        **dict(dict(vocab_size=37, d_model=18, d_kv=5, d_ff=29, num_layers=2, num_decoder_layers=3, num_heads=3,
                    relative_attention_num_buckets=8, relative_attention_max_distance=6, dropout_rate=rate,
                    pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=PAD), **kw))
    model = make_model(kind, config)
    source = bart.texts([n for n, _ in lengths], S, config.vocab_size, PAD)
    labels = bart.texts([n for _, n in lengths], T, config.vocab_size, IGNORE)
    mask = torch.zeros(len(lengths), S, dtype=torch.long)
    for b, (n, _) in enumerate(lengths):
        mask[b, :n] = 1
    tokens = labels.roll(1, 1)
    tokens[:, 0] = PAD
    tokens[tokens == IGNORE] = PAD
    dump = dict(source=source, source_mask=mask, tokens=tokens, labels=labels, count=(labels != IGNORE).sum())
    dropout = Dropout(1234567, 5, 3, T) if rate else None
    if dropout:
        dump |= dict(seed=dropout.seed, step=dropout.step, first_sample=dropout.first_sample)

    def compute():
        # the step after each: SGD draws anew
        if not dropout:
            return model(input_ids=source, attention_mask=mask, labels=labels)
        with Sites(config, dropout, S, T):
            return model(input_ids=source, attention_mask=mask, labels=labels)

    folder = pathlib.Path(out) / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    handles = [] if dropout else hook(model, dump)
    output = compute()
    for handle in handles:
        handle.remove()
    output.loss.backward()
    dump |= dict(logits=output.logits, loss=output.loss)
    grads = {n: p.grad.clone() for n, p in model.named_parameters()}
    dump |= {f"grad.{n}": g for n, g in grads.items()}
    dump["grad_norm"] = torch.stack([g.norm() for g in grads.values()]).norm()
    dump |= bart.steps_of_sgd(model, compute, LR, dropout)
    save(folder / "ref.safetensors", dump)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="data/ref")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    disable_progress_bar()
    case("t5_odd", out, T5ForConditionalGeneration, [(9, 5), (6, 7), (4, 3)], 9, 7)
    case("t5_dropout", out, T5ForConditionalGeneration, [(9, 8), (7, 6)], 9, 8, rate=0.1,
         feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    case("mt5_silu", out, MT5ForConditionalGeneration, [(9, 5), (6, 7)], 9, 7, feed_forward_proj="gated-silu",
         num_layers=1, num_decoder_layers=1, tie_word_embeddings=False)


if __name__ == "__main__":
    main()
