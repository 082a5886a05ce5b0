"""Makes the reference dumps of BART and mBART, from PyTorch and transformers.

    python dev/ref/make_bart_refs.py [--out data/ref]

Writes folders NAME/{config.json, model.safetensors} as transformers saves them, and NAME/ref.safetensors: what those
models compute, in float32, with attn_implementation="eager".

    bart_odd        BartForConditionalGeneration: sizes that are no multiples of 4, stacks that differ in layers, heads and
                    columns (the decoder is the deeper one), sources and targets with padding
    bart_dropout    the same with gelu_new and every dropout on
    bart_scaled     relu, and scale_embedding: rows of tokens times sqrt(d_model)
    mbart_odd       MBartForConditionalGeneration, with scale_embedding: norms before cores and at the end of stacks; texts
                    end with </s> and a language, and the decoder first reads its target's, which differ
    mbart_dropout   the same without scale_embedding, with every dropout on

Keys of ref.safetensors. B samples, S and T positions of source and target, C d_model, V vocab_size. Numbers are int32
or fp32; a scalar is [1].

    source, source_mask [B,S]   input_ids; 1: a token, 0: padding, which nothing attends to
    tokens, labels      [B,T]   decoder_input_ids, as transformers makes them from the labels; the target's tokens, -100
                                at padding
    count               [1]     labels that count

    encoder.x.l, decoder.x.l    what enters layer l of a stack, and what leaves the last one, before a norm at the end of the
                                stack (not of those with dropout)
    cross.l         [B,T,C]     decoder: what leaves cross attention, with its bias, before dropout and the sum
    logits          [B,T,V]
    loss            [1]         the mean over counted labels
    grad.NAME                   of the loss, by the parameter's name in transformers; a tied weight is listed once, with
                                the gradients of its three uses
    grad_norm       [1]
    sgd.losses      [10]        ten steps of SGD on the batch, of lr sgd.lr, without momentum, decay, clipping: the loss
    sgd.NAME                    before each of them, and the weights after all

With dropout: seed, step, first_sample, [1] each, as in make_bert_refs.py. Unit u is 0 for the encoder's embedding, then
come its layers, its end, the decoder's embedding and layers. The sites' numbers: 8u for what an embedding or the first
pair of a layer adds, 8u + 2 and 8u + 4 for the other pairs; one more for attention's probabilities and for the
activated rows of the MLP. The probabilities of cross attention are numbered in squares of the longer text.
"""
import argparse
import pathlib

import torch
from transformers import BartConfig, BartForConditionalGeneration, MBartConfig, MBartForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

from make_bert_refs import Dropout, SITE_DROPOUT
from make_refs import IGNORE, STEPS, keeper, save, seed, weights

PAD, START, END, FIRST = 1, 2, 2, 4  # token ids, as in the files of facebook/bart-base; FIRST: of the other tokens
LANGUAGES = (33, 35, 34)  # token ids of an mBART's, of the texts
LR = 0.03
PAIRS = 3  # of a unit, at most: a unit's sites have 2 * (PAIRS + 1) numbers


class Sites:
    """In place of torch.nn.functional.dropout: BART asks it in the order of the computation."""

    def __init__(self, config, dropout, S, T):
        self.dropout, self.S, self.T = dropout, S, T
        c = config
        self.order = [(0, c.dropout, S)]
        for l in range(c.encoder_layers):
            self.order += self.layer(l + 1, [S], S, c)
        embed = c.encoder_layers + 2
        self.order.append((8 * embed, c.dropout, T))
        for l in range(c.decoder_layers):
            self.order += self.layer(embed + 1 + l, [T, max(S, T)], T, c)

    @staticmethod
    def layer(unit, attentions, T, c):
        sites = []
        for k, square in enumerate(attentions):
            sites += [(8 * unit + 2 * k + 1, c.attention_dropout, square), (8 * unit + 2 * k, c.dropout, T)]
        mlp = 8 * unit + 2 * len(attentions)
        return sites + [(mlp + 1, c.activation_dropout, T), (mlp, c.dropout, T)]

    def __enter__(self):
        self.original, self.at = torch.nn.functional.dropout, 0
        torch.nn.functional.dropout = self.drop
        return self

    def __exit__(self, *_):
        torch.nn.functional.dropout = self.original
        assert self.at == len(self.order), (self.at, len(self.order))

    def drop(self, x, p=0.5, training=True, inplace=False):
        site, expected, T = self.order[self.at]
        self.at += 1
        assert p == expected and training, (site, p, expected)
        if x.ndim == 4:
            kept = self.dropout_of(T).of_probabilities(SITE_DROPOUT | site, p, x.shape[0], x.shape[1], T)
            kept = kept[:, :, :x.shape[2], :x.shape[3]]
        else:
            assert x.shape[1] == T
            kept = self.dropout_of(T).of_hidden(SITE_DROPOUT | site, p, *x.shape)
        p32 = torch.tensor(p, dtype=torch.float32)
        return x * (kept.float() * (1 / (1 - p32)))

    def dropout_of(self, T):
        return Dropout(self.dropout.seed, self.dropout.step, self.dropout.first_sample, T)


def make_model(config):
    """Weights larger than usual, so that no gradient drowns in rounding; no bias is 0, no gain 1, no pad row 0."""
    config._attn_implementation = "eager"
    model = (MBartForConditionalGeneration if config.model_type == "mbart" else BartForConditionalGeneration)(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_gain = p.ndim == 1 and name.endswith("weight")
            p.copy_(is_gain + (0.1 if p.ndim == 1 else 0.25) * torch.randn_like(p))
    return model.train()


def texts(lengths, T, vocab, fill, languages=()):
    out = torch.full((len(lengths), T), fill)
    for b, n in enumerate(lengths):
        out[b, :n] = torch.randint(FIRST, vocab, (n,))
        out[b, n - 1] = END
        if languages:
            out[b, n - 2:n] = torch.tensor([END, languages[b]])
    return out


def hook(model, dump):
    keep, handles = keeper(dump), []
    for name in ("encoder", "decoder"):
        stack = getattr(model.model, name)
        handles.append(stack.layernorm_embedding.register_forward_hook(keep(f"{name}.x.0")))
        for l, layer in enumerate(stack.layers):
            handles.append(layer.register_forward_hook(keep(f"{name}.x.{l + 1}")))
            if name == "decoder":
                handles.append(layer.encoder_attn.out_proj.register_forward_hook(keep(f"cross.{l}")))
    return handles


def steps_of_sgd(model, compute, lr, dropout):
    """STEPS steps: their losses, their rate, and the weights behind them. dropout, if it is not None, counts the steps."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=lr, foreach=False), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = compute().loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if dropout:
            dropout.step += 1
    return {"sgd.losses": torch.tensor(losses), "sgd.lr": lr} | {f"sgd.{n}": w for n, w in weights(model).items()}


def case(name, out, lengths, S, T, rates=(0.0, 0.0, 0.0), kind=BartConfig, **kw):
    seed(name)
    is_mbart = kind is MBartConfig
    config = kind(**dict(dict(vocab_size=37, d_model=18, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
                              decoder_attention_heads=2, encoder_ffn_dim=29, decoder_ffn_dim=23,
                              max_position_embeddings=16, dropout=rates[0], attention_dropout=rates[1],
                              activation_dropout=rates[2], pad_token_id=PAD, bos_token_id=0, eos_token_id=END,
                              decoder_start_token_id=None if is_mbart else START, forced_eos_token_id=END), **kw))
    model = make_model(config)
    languages = LANGUAGES[:len(lengths)] if is_mbart else ()
    source = texts([n for n, _ in lengths], S, config.vocab_size, PAD, languages[::-1])
    labels = texts([n for _, n in lengths], T, config.vocab_size, IGNORE, languages)
    mask = torch.zeros(len(lengths), S, dtype=torch.long)
    for b, (n, _) in enumerate(lengths):
        mask[b, :n] = 1
    tokens = labels.roll(1, 1)
    tokens[:, 0] = torch.tensor(languages) if is_mbart else START
    tokens[tokens == IGNORE] = PAD
    shifted = []
    handle = model.model.decoder.register_forward_pre_hook(
        lambda module, args, kwargs: shifted.append(kwargs["input_ids"]), with_kwargs=True)
    with torch.no_grad():
        model.eval()(input_ids=source, attention_mask=mask, labels=labels)
    handle.remove()
    model.train()
    assert torch.equal(shifted[0], tokens)
    dump = dict(source=source, source_mask=mask, tokens=tokens, labels=labels, count=(labels != IGNORE).sum())
    dropout = Dropout(1234567, 5, 3, T) if any(rates) else None
    if dropout:
        dump |= dict(seed=dropout.seed, step=dropout.step, first_sample=dropout.first_sample)

    def compute():
        # the step after each: SGD draws anew
        if not dropout:
            return model(input_ids=source, attention_mask=mask, labels=labels)
        with Sites(config, dropout, S, T):
            return model(input_ids=source, attention_mask=mask, labels=labels)

    handles = [] if dropout else hook(model, dump)
    output = compute()
    for handle in handles:
        handle.remove()
    output.loss.backward()
    dump |= dict(logits=output.logits, loss=output.loss)
    grads = {n: p.grad.clone() for n, p in model.named_parameters()}
    dump |= {f"grad.{n}": g for n, g in grads.items()}
    dump["grad_norm"] = torch.stack([g.norm() for g in grads.values()]).norm()
    folder = pathlib.Path(out) / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    dump |= steps_of_sgd(model, compute, LR, dropout)
    save(folder / "ref.safetensors", dump)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="data/ref")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    disable_progress_bar()
    case("bart_odd", out, [(9, 5), (6, 7), (4, 3)], 9, 7)
    case("bart_dropout", out, [(9, 8), (7, 6)], 9, 8, rates=(0.1, 0.2, 0.15), activation_function="gelu_new")
    case("bart_scaled", out, [(6, 4), (5, 6)], 6, 6, activation_function="relu", scale_embedding=True, encoder_layers=1,
         decoder_layers=1)
    case("mbart_odd", out, [(9, 5), (6, 7), (4, 3)], 9, 7, kind=MBartConfig, scale_embedding=True, decoder_layers=2)
    case("mbart_dropout", out, [(9, 8), (7, 6)], 9, 8, rates=(0.1, 0.2, 0.15), kind=MBartConfig, encoder_layers=1)


if __name__ == "__main__":
    main()
