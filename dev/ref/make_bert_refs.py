"""Makes the reference dumps of BERT, of sequence classification and of packed rows, from PyTorch and transformers.

    python dev/ref/make_bert_refs.py [--out data/ref]

Writes folders NAME/{config.json, model.safetensors} as transformers saves them, and NAME/ref.safetensors: what those
models compute, in float32, with attn_implementation="eager".

    bert_mlm, bert_mlm_dropout    BertForMaskedLM; head_dim 6, C = 18 and intermediate 29 are no multiples of 4; T = 11
    bert_pretrain                 BertForPreTraining: masked tokens and next sentence; hidden_act gelu_new
    bert_cls1, _cls3, _cls5       BertForSequenceClassification: MSE on one number; one of 3 classes; 5 classes of which
                                  several may hold
    bert_cls3_dropout             the second of them with dropout, and a classifier_dropout of its own; T = 9
    roberta_mlm, _mlm_dropout     RobertaForMaskedLM; hidden_act gelu_new, which its head does not have; pad_token_id 1,
                                  and a pad token within a text
    xlmr_cls3, xlmr_cls3_dropout  XLMRobertaForSequenceClassification: one of 3 classes; pad_token_id 2
    bert_ner, bert_ner_dropout    BertForTokenClassification: one of 5 classes for some tokens
    roberta_ner_dropout           RobertaForTokenClassification, with a classifier_dropout of its own
    distilbert_mlm, _mlm_dropout  DistilBertForMaskedLM
    distilbert_cls3, _cls3_dropout, _ner_dropout    DistilBertForSequenceClassification, ...ForTokenClassification
    bert_embed                    BertModel without pooler: embeddings of texts, ranked (MultipleNegativesRanking)
    bert_variants/*.safetensors   bert_pretrain's weights as other files hold them: see make_variants
    llama_score                   LlamaForSequenceClassification: 3 classes, from the last token that is no pad
    llama_packed                  LlamaForCausalLM: documents that share a row and do not see each other

Keys of ref.safetensors; what is said of bert_* holds for the others, too, but that roberta_* and xlmr_* have positions,
no types, and no pooler, and distilbert_* no types and no pooler. B samples, T positions, C hidden_size, H heads, V vocab_size; l counts layers from 0. Numbers
are int32 or fp32; a scalar is [1].

    tokens, types   [B,T]       input_ids; token_type_ids (bert_*)
    mask            [B,T]       1: a token, 0: padding, which no token sees (not in llama_packed)
    labels          [B,T]       bert_mlm, bert_pretrain: the token that belongs at that position; llama_packed: behind
                                it; *_ner: its class; -100: no loss there
                    [B]         bert_cls1: fp32; bert_cls3, llama_score: classes
                    [B,5]       bert_cls5: fp32, 0 or 1
    next_sentence   [B]         bert_pretrain: 0: B follows A, 1: it does not
    count           [1]         bert_mlm, bert_pretrain, *_ner, llama_packed: labels that count
    positions       [B,T]       llama_packed: position in the document; roberta_*, xlmr_*: row of the table of positions
    documents       [B,T]       llama_packed: number of the document in the row
    rows            [B]         llama_score: the position whose output is scored

    Activations. Rows of padding hold what transformers computes there: only rows of mask 1 have a meaning.
    embed.sum       [B,T,C]     bert_*: word + position + type, before the norm
    x.0             [B,T,C]     what enters the first layer; bert_*: after norm and dropout
    x.l+1           [B,T,C]     what leaves layer l
    o.l             [B,T,C]     bert_*: attention's output, all heads, before its projection
    att.l, mlp.l    [B,T,C]     what leaves the two blocks: with the last product's bias, before dropout and the sum
    mid.l           [B,T,C]     bert_*: attention.output: after dropout, sum and norm
    h1.l, h2.l      [B,T,C]     llama_*: the norms before the two blocks
    norm            [B,T,C]     llama_*: the final norm
    pooled          [B,C]       bert_pretrain, bert_cls*: the pooler's output, after tanh, before dropout
    transform       [B,T,C]     bert_mlm, bert_pretrain: what enters the decoder
    logits          [B,T,V]     or [B, labels]: of classification, llama_score; or [B,T,labels]: *_ner
    next_sentence_logits [B,2]  bert_pretrain

    loss            [1]         the mean over counted labels; bert_cls5: over all B*5 numbers; bert_pretrain: the sum of
                                loss.mlm and loss.next_sentence, each a mean of its own
    grad.NAME                   of the loss, by the parameter's name in transformers; a tied weight is listed once, with
                                the gradients of both its uses. The pad token's row (token 0; RoBERTa's pad_token_id,
                                also of its positions) gets none from the lookup, wherever it stands (llama_packed has
                                no pad). A key bias's is 0 but for rounding, on the scale of its weight's:
                                compare_refs.py judges it by that one's norm
    grad_norm       [1]         of all of them
    sgd.losses      [10]        ten steps of SGD on the batch, of lr sgd.lr, without momentum, decay, clipping: the loss
    sgd.NAME                    before each of them, and the weights after all
    adamw.losses, .NAME         bert_pretrain: ten steps of AdamW, and how far apart runs are that begin one ulp apart:
    adamw.spread, adamw_spread.NAME     as in make_refs.py
    bf16_distance.loss, .NAME   [1] how far transformers is off in bf16, typically, over NEIGHBOURS models (not in
                                bert_embed)

Dropout (*_dropout): seed, step, first_sample, [1] each. Sample b has the number first_sample + b in every step; step k
of SGD draws with step + k. Masks are those of galaxy/base/random.h and galaxy/ops/dropout.h; of the first step they are
here, as uint8: 1 is kept, and multiplied by 1/(1 - p). Probability and number of each site:

    kept.embed      [B,T,C]     hidden_dropout_prob             0
    kept.att.l      [B,T,C]     hidden_dropout_prob             8(l + 1)                (not in a DistilBERT)
    kept.probs.l    [B,H,T,T]   attention_probs_dropout_prob    8(l + 1) + 1
    kept.mlp.l      [B,T,C]     hidden_dropout_prob             8(l + 1) + 2
    kept.head       [B,C]       classifier_dropout              8(layers + 1), the elements numbered as those of t = 0
                    [B,T,C]     *_ner: the same; of a DistilBERT with the dropout of its layers
    kept.head_in    [B,C]       xlmr_*: classifier_dropout      8(layers + 1) + 1, as kept.head: before the first matrix

bert_embed. The texts are n anchors, their n positives, and n negatives. VARIANT is mean, cls (of the first 2n texts
alone: no negatives), mean_negatives, cls_negatives (of all 3n).

    n                           [1]
    x.l                         [3n,T,C]            as above
    VARIANT.embeddings          [2n or 3n, C]       mean: over the tokens of mask 1; cls: of position 0; not scaled yet
    VARIANT.scores              [n, n or 2n]        20 cos(anchor, each positive and then each negative)
    VARIANT.loss, .grad.NAME, .grad_norm            cross-entropy of the scores, anchor i's class is i
    VARIANT.sgd.losses; mean_negatives.sgd.NAME; sgd.lr
"""
import argparse
import contextlib
import copy
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import (AttentionInterface, BertConfig, BertForMaskedLM, BertForPreTraining,
                          BertForSequenceClassification, BertForTokenClassification, BertModel, DistilBertConfig,
                          DistilBertForMaskedLM, DistilBertForSequenceClassification, DistilBertForTokenClassification,
                          LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, RobertaConfig,
                          RobertaForMaskedLM, RobertaForTokenClassification, XLMRobertaConfig,
                          XLMRobertaForSequenceClassification)
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.utils.logging import disable_progress_bar

from make_refs import (IGNORE, PERTURBED, STEPS, decayed_adamw, hook_activations, keeper, one_ulp_away, save, seed, set_weights,
                       weights)

# SGD's: so small that runs which begin one ulp apart end a few roundings apart; with steps of 0.1 some of these cases
# end differently from the fourth digit on.
LR, LR_STEEP = 0.03, 0.01
NEIGHBOURS = 16  # models over which a distance in bf16 is averaged
PAD, CLS, SEP, FIRST = 0, 1, 2, 3  # token ids; FIRST: of the other tokens


# ------------------------------------------------------------------------------------- dropout

def philox(key, block, step, site):
    """Philox4x32-10 (galaxy/base/random.h): block, an array of uint64 -> [..., 4] uint32."""
    low = np.uint64(0xFFFFFFFF)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    c = [block & low, block >> np.uint64(32), np.full_like(block, step), np.full_like(block, site)]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, -1).astype(np.uint32)


# The known answer of the generator's authors for a key and a counter of zeros.
assert philox(0, np.zeros(1, np.uint64), 0, 0).tolist() == [[0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]]


SITE_DROPOUT, SITE_LORA = 4 << 24, 7 << 24  # gx_random_site(GX_SITE_DROPOUT, 0), gx_random_site(GX_SITE_LORA, 0)


class Dropout:
    """What dropout.h says is kept, for all sites of a model: (seed, step, site, number of the element)."""

    def __init__(self, seed, step, first_sample, T):
        self.seed, self.step, self.first_sample, self.T = seed, step, first_sample, T

    def kept(self, site, p, rows, n):
        """rows: an array of the numbers of rows that have n elements each -> [*rows.shape, n] uint8."""
        draws = (n + 3) // 4
        block = (rows[..., None] * draws + np.arange(draws)).astype(np.uint64)
        bits = philox(self.seed, block, self.step, site).reshape(*rows.shape, 4 * draws)[..., :n]
        return torch.from_numpy((bits >= self.threshold(p)).astype(np.uint8))

    @staticmethod
    def threshold(p):
        return int(float(np.float32(p)) * 4294967296.0)

    def of_hidden(self, site, p, B, T, C):
        sample, t = np.ogrid[self.first_sample:self.first_sample + B, :T]
        return self.kept(site, p, sample * self.T + t, C)

    def of_probabilities(self, site, p, B, H, T):
        sample, head, t = np.ogrid[self.first_sample:self.first_sample + B, :H, :T]
        return self.kept(site, p, (sample * H + head) * self.T + t, T)


class Site(torch.nn.Module):
    """In place of a torch.nn.Dropout. x is [B,T,C], or [B,C] (of position 0), or probabilities [B,H,T,T]."""

    def __init__(self, dropout, site, p):
        super().__init__()
        self.dropout, self.site, self.p = dropout, site, p
        self.scale = float(np.float32(1) / (np.float32(1) - np.float32(p)))

    def forward(self, x):
        if x.ndim == 4:
            kept = self.dropout.of_probabilities(self.site, self.p, *x.shape[:3])
        elif x.ndim == 3:
            kept = self.dropout.of_hidden(self.site, self.p, *x.shape)
        else:
            kept = self.dropout.of_hidden(self.site, self.p, x.shape[0], 1, x.shape[1])[:, 0]
        self.last = kept
        return (x.float() * (kept.float() * self.scale)).to(x.dtype)


class TwoSites(torch.nn.Module):
    """In place of one torch.nn.Dropout that a module asks twice."""

    def __init__(self, first, second):
        super().__init__()
        self.sites, self.asked = [first, second], 0

    def forward(self, x):
        self.asked += 1
        return self.sites[(self.asked - 1) % 2](x)


def attention_with_sites(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """transformers' eager attention, but that the module's own dropout is asked."""
    probs = module.dropout((query @ key.transpose(2, 3) * scaling + attention_mask).softmax(-1))
    return (probs @ value).transpose(1, 2).contiguous(), probs


AttentionInterface.register("eager_with_sites", attention_with_sites)
AttentionMaskInterface.register("eager_with_sites", eager_mask)


def put_sites(model, dropout):
    """Replaces every dropout of a BERT; returns the sites by the name of their mask in the dump."""
    if model.config.model_type == "distilbert":
        return put_distilled_sites(model, dropout)
    bert, c, heads = model.base_model, model.config, {}
    sites = {"embed": (bert.embeddings, 0, c.hidden_dropout_prob)}
    for l, layer in enumerate(bert.encoder.layer):
        sites[f"att.{l}"] = (layer.attention.output, 8 * (l + 1), c.hidden_dropout_prob)
        sites[f"probs.{l}"] = (layer.attention.self, 8 * (l + 1) + 1, c.attention_probs_dropout_prob)
        sites[f"mlp.{l}"] = (layer.output, 8 * (l + 1) + 2, c.hidden_dropout_prob)
    is_matrix = isinstance(getattr(model, "classifier", None), torch.nn.Linear)
    if hasattr(model, "classifier") and not is_matrix:
        first, second = (Site(dropout, SITE_DROPOUT | 8 * (c.num_hidden_layers + 1) + which, c.classifier_dropout)
                         for which in (1, 0))
        model.classifier.dropout = TwoSites(first, second)
        heads = {"head_in": first, "head": second}
    elif hasattr(model, "classifier"):
        p = c.hidden_dropout_prob if c.classifier_dropout is None else c.classifier_dropout
        sites["head"] = (model, 8 * (c.num_hidden_layers + 1), p)
    return {**put_all(model, dropout, sites), **heads}


def put_distilled_sites(model, dropout):
    bert, c = model.base_model, model.config
    sites = {"embed": (bert.embeddings, 0, c.dropout)}
    for l, layer in enumerate(bert.transformer.layer):
        sites[f"probs.{l}"] = (layer.attention, 8 * (l + 1) + 1, c.attention_dropout)
        sites[f"mlp.{l}"] = (layer.ffn, 8 * (l + 1) + 2, c.dropout)
    if hasattr(model, "classifier"):
        sites["head"] = (model, 8 * (c.n_layers + 1),
                         c.seq_classif_dropout if hasattr(model, "pre_classifier") else c.dropout)
    return put_all(model, dropout, sites)


def put_all(model, dropout, sites):
    for module, number, p in sites.values():
        module.dropout = Site(dropout, SITE_DROPOUT | number, p)
    left = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Dropout)]
    assert not left, left
    return {name: module.dropout for name, (module, _, _) in sites.items()}


# ------------------------------------------------------------------------------ models and data

def make_model(kind, config, spread):
    """Weights larger than usual, so that no gradient drowns in rounding; no bias is 0, no gain 1, no pad row 0."""
    model = kind(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_gain = p.ndim == 1 and name.endswith("weight")
            p.copy_(is_gain + (0.1 if p.ndim == 1 else spread) * torch.randn_like(p))
    return model.train()


def texts(lengths, T, vocab, types=1, segments=None):
    """Texts of these lengths, padded to T: [CLS] A [SEP], or [CLS] A [SEP] B [SEP], of which the first segment is
    segments[b] long, and the second of a random type."""
    B = len(lengths)
    tokens, kinds, mask = (torch.zeros(B, T, dtype=torch.long) for _ in range(3))
    for b, n in enumerate(lengths):
        tokens[b, :n] = torch.randint(FIRST, vocab, (n,))
        tokens[b, 0], tokens[b, n - 1], mask[b, :n] = CLS, SEP, 1
        if segments:
            tokens[b, segments[b] - 1] = SEP
            kinds[b, segments[b]:n] = torch.randint(1, types, (1,))
    return dict(tokens=tokens, types=kinds, mask=mask)


def labels_at(places, tokens, vocab):
    """The tokens at these (sample, position) become labels; the model sees others there, but for the last one."""
    labels = torch.full_like(tokens, IGNORE)
    for b, t in places:
        labels[b, t] = tokens[b, t]
    for b, t in places[:-1]:
        tokens[b, t] = torch.randint(FIRST, vocab, ())
    return labels


def inputs_of(batch):
    types = {"token_type_ids": batch["types"]} if "types" in batch else {}
    return dict(input_ids=batch["tokens"], attention_mask=batch["mask"], **types)


def entropy(logits, labels):
    return F.cross_entropy(logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORE)


def hook_bert(model, dump):
    bert, keep = model.base_model, keeper(dump)

    handles = [bert.embeddings.LayerNorm.register_forward_hook(keep("embed.sum", is_input=True)),
               bert.embeddings.register_forward_hook(keep("x.0"))]
    if model.config.model_type == "distilbert":
        return handles + hook_distilled(model, keep)
    for l, layer in enumerate(bert.encoder.layer):
        handles += [module.register_forward_hook(keep(f"{name}.{l + (name == 'x')}")) for name, module in (
            ("o", layer.attention.self), ("att", layer.attention.output.dense), ("mid", layer.attention.output),
            ("mlp", layer.output.dense), ("x", layer))]
    if bert.pooler is not None:
        handles.append(bert.pooler.register_forward_hook(keep("pooled")))
    if hasattr(model, "cls"):
        handles.append(model.cls.predictions.transform.register_forward_hook(keep("transform")))
    if hasattr(model, "lm_head"):
        handles.append(model.lm_head.layer_norm.register_forward_hook(keep("transform")))
    return handles


def hook_distilled(model, keep):
    handles = []
    for l, layer in enumerate(model.base_model.transformer.layer):
        handles += [layer.attention.out_lin.register_forward_hook(keep(f"o.{l}", is_input=True))]
        handles += [module.register_forward_hook(keep(f"{name}.{l + (name == 'x')}")) for name, module in (
            ("att", layer.attention.out_lin), ("mid", layer.sa_layer_norm), ("mlp", layer.ffn.lin2), ("x", layer))]
    if hasattr(model, "vocab_layer_norm"):
        handles.append(model.vocab_layer_norm.register_forward_hook(keep("transform")))
    return handles


@contextlib.contextmanager
def hooked(handles):
    yield
    for handle in handles:
        handle.remove()


# ---------------------------------------------------------------------------------- what is kept

def gradients(model, compute):
    """What compute() gives, and {grad.NAME, grad_norm} of its loss."""
    model.zero_grad()
    result = compute(model)
    result["loss"].backward()
    grads = {f"grad.{n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return result, {**grads, "grad_norm": torch.stack([g.norm() for g in grads.values()]).norm()}


def train(model, start, compute, optimizer, dropout=None):
    """STEPS steps from the weights `start`: (loss before each, weights after all)."""
    set_weights(model, start)
    opt, losses, first = optimizer(model), [], dropout.step if dropout else 0
    for k in range(STEPS):
        if dropout:
            dropout.step = first + k
        opt.zero_grad()
        loss = compute(model)["loss"]
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    if dropout:
        dropout.step = first
    return torch.stack(losses), weights(model)


def sgd(lr):
    return lambda model: torch.optim.SGD(model.parameters(), lr=lr, foreach=False)


def adamw_with_spread(model, start, compute):
    """As make_refs.py's: runs that begin one ulp apart say how far another program's may be from this one."""
    losses, end = train(model, start, compute, decayed_adamw)
    others = [train(model, one_ulp_away(start), compute, decayed_adamw) for _ in range(PERTURBED)]
    dump = {"adamw.losses": losses,
            "adamw.spread": torch.stack([(other - losses).abs() for other, _ in others]).amax(0)}
    for n, w in end.items():
        dump[f"adamw.{n}"] = w
        dump[f"adamw_spread.{n}"] = torch.stack([(other[n] - w).norm() for _, other in others]).amax()
    return dump


def distances_in_bf16(model, start, compute):
    """How far transformers in bf16 typically is from itself in fp32: the root of the mean square over NEIGHBOURS models
    whose weights are about a rounding to bf16 from these. A single model's distance is a draw of chance: where few rows
    reach the loss, one rounding near the end is in all gradients."""
    squares = {}
    for _ in range(NEIGHBOURS):
        near = copy.deepcopy(model)
        set_weights(near, {n: w * (1 + 2 ** -9 * torch.randn_like(w)) for n, w in start.items()})
        result, grads = gradients(near, compute)
        for p in near.parameters():  # parameters alone become bf16: LLaMA's frequencies stay as they are
            p.data, p.grad = p.data.bfloat16(), None
        narrow = compute(near)["loss"]
        narrow.backward()
        far = {n: (p.grad.float() - grads[f"grad.{n}"]).norm() for n, p in near.named_parameters()}
        far["loss"] = narrow.detach() - result["loss"].detach()
        for n, d in far.items():
            squares[n] = squares.get(n, 0) + d.double() ** 2
    return {f"bf16_distance.{n}": (s / NEIGHBOURS).sqrt().float() for n, s in squares.items()}


def dump_model(folder, model, batch, compute, hooks, dropout=None, lr=LR, adamw=False):
    """The whole of a folder. compute(model) gives the loss, and what else is to be dumped, by name."""
    model.save_pretrained(folder)
    sites, start, dump = put_sites(model, dropout) if dropout else {}, weights(model), dict(batch)
    if dropout:
        dump.update(seed=dropout.seed, step=dropout.step, first_sample=dropout.first_sample)
    with hooked(hooks(model, dump)):
        result, grads = gradients(model, compute)
    dump.update({f"kept.{name}": site.last for name, site in sites.items()})
    dump.update(result)
    dump.update(grads)
    losses, end = train(model, start, compute, sgd(lr), dropout)
    assert losses[0] == result["loss"]
    dump.update({"sgd.losses": losses, "sgd.lr": torch.tensor(lr), **{f"sgd.{n}": w for n, w in end.items()}})
    if adamw:
        dump.update(adamw_with_spread(model, start, compute))
    dump.update(distances_in_bf16(model, start, compute))
    save(folder / "ref.safetensors", dump)


def same_loss(ours, theirs):
    """Losses are computed here, in fp32 from the logits of a model in bf16, too; they are transformers' own."""
    assert theirs.dtype != torch.float32 or (ours - theirs).abs() <= 1e-6 * theirs.abs(), (ours, theirs)
    return ours


# ------------------------------------------------------------------------------------- the cases

DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2)
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def bert_config(dropout=False, **fields):
    base = dict(hidden_size=12, num_attention_heads=3, intermediate_size=21, num_hidden_layers=2, vocab_size=61,
                max_position_embeddings=13, **(DROPOUT if dropout else NO_DROPOUT))
    return BertConfig(attn_implementation="eager_with_sites" if dropout else "eager", **{**base, **fields})


def make_mlm(out, name, dropout):
    """Sample 1 has no label."""
    T = 11
    config = bert_config(dropout, hidden_size=18, intermediate_size=29, max_position_embeddings=19, type_vocab_size=3)
    model = make_model(BertForMaskedLM, config, 0.2)
    batch = texts([11, 7, 5], T, config.vocab_size, config.type_vocab_size, [6, 3, 4])
    batch["types"][0, 8:] = 2
    batch["labels"] = labels_at([(0, 1), (0, 4), (0, 9), (2, 3), (2, 2)], batch["tokens"], config.vocab_size)
    batch["count"] = (batch["labels"] != IGNORE).sum()

    def compute(model):
        output = model(**inputs_of(batch), labels=batch["labels"])
        return dict(logits=output.logits, loss=same_loss(entropy(output.logits, batch["labels"]), output.loss))

    dump_model(out / name, model, batch, compute, hook_bert, Dropout(20240229, 7, 5, T) if dropout else None)


def make_pretrain(out, name, dropout):
    """Sample 1 has a pad token among its tokens, as a random one can be."""
    T, config = 10, bert_config(hidden_act="gelu_new")
    model = make_model(BertForPreTraining, config, 0.2)
    batch = texts([8, 10, 6], T, config.vocab_size, 2, [5, 4, 3])
    batch["labels"] = labels_at([(0, 2), (1, 1), (1, 5), (1, 6), (2, 4)], batch["tokens"], config.vocab_size)
    batch["tokens"][1, 7] = PAD
    batch["count"] = (batch["labels"] != IGNORE).sum()
    batch["next_sentence"] = torch.tensor([1, 0, 1])

    def compute(model):
        output = model(**inputs_of(batch), labels=batch["labels"], next_sentence_label=batch["next_sentence"])
        logits, next_logits = output.prediction_logits, output.seq_relationship_logits
        mlm, following = entropy(logits, batch["labels"]), entropy(next_logits, batch["next_sentence"])
        return {"logits": logits, "next_sentence_logits": next_logits, "loss.mlm": mlm, "loss.next_sentence": following,
                "loss": same_loss(mlm + following, output.loss)}

    dump_model(out / name, model, batch, compute, hook_bert, adamw=True)


def roberta_texts(lengths, T, config):
    """texts() of a RoBERTa: other special tokens (CLS here is 0, SEP the id after pad), padding of its own, positions
    that begin behind pad's id and do not count it."""
    pad, begin, end = config.pad_token_id, 0, config.pad_token_id + 1
    B = len(lengths)
    tokens, mask = torch.full((B, T), pad), torch.zeros(B, T, dtype=torch.long)
    for b, n in enumerate(lengths):
        tokens[b, :n] = torch.randint(end + 1, config.vocab_size, (n,))
        tokens[b, 0], tokens[b, n - 1], mask[b, :n] = begin, end, 1
    return dict(tokens=tokens, types=torch.zeros_like(tokens), mask=mask)


def positions_of(tokens, pad):
    counted = tokens != pad
    return pad + counted.cumsum(1) * counted


def roberta_fields(**fields):
    """No room is left in the table of positions: T and pad_token_id + 1."""
    base = dict(hidden_size=12, num_attention_heads=3, intermediate_size=21, num_hidden_layers=2, vocab_size=61,
                type_vocab_size=1, bos_token_id=0)
    return {**base, **fields}


def make_roberta_mlm(out, name, dropout):
    """Sample 0 has a pad token among its tokens, as a random one can be, and sample 1 has no label."""
    T, pad = 11, 1
    fields = roberta_fields(hidden_size=18, intermediate_size=29, hidden_act="gelu_new", pad_token_id=pad,
                            max_position_embeddings=T + pad + 1, **(DROPOUT if dropout else NO_DROPOUT))
    config = RobertaConfig(attn_implementation="eager_with_sites" if dropout else "eager", **fields)
    model = make_model(RobertaForMaskedLM, config, 0.2)
    batch = roberta_texts([11, 7, 5], T, config)
    batch["labels"] = labels_at([(0, 1), (0, 4), (0, 9), (2, 3), (2, 2)], batch["tokens"], config.vocab_size)
    batch["count"] = (batch["labels"] != IGNORE).sum()
    batch["tokens"][0, 6] = pad
    batch["positions"] = positions_of(batch["tokens"], pad)

    def compute(model):
        output = model(**inputs_of(batch), labels=batch["labels"])
        return dict(logits=output.logits, loss=same_loss(entropy(output.logits, batch["labels"]), output.loss))

    dump_model(out / name, model, batch, compute, hook_bert, Dropout(20240229, 7, 5, T) if dropout else None)


def make_xlmr_cls(out, name, dropout):
    T, pad = 9, 2
    fields = roberta_fields(num_labels=3, pad_token_id=pad, eos_token_id=pad + 1, max_position_embeddings=T + pad + 1,
                            classifier_dropout=0.3 if dropout else None, **(DROPOUT if dropout else NO_DROPOUT))
    config = XLMRobertaConfig(attn_implementation="eager_with_sites" if dropout else "eager", **fields)
    model = make_model(XLMRobertaForSequenceClassification, config, 0.2)
    batch = roberta_texts([6, 9, 3, 8], T, config)
    batch["labels"] = torch.tensor([2, 0, 1, 2])
    batch["positions"] = positions_of(batch["tokens"], pad)

    def compute(model):
        output = model(**inputs_of(batch), labels=batch["labels"])
        return dict(logits=output.logits, loss=same_loss(entropy(output.logits, batch["labels"]), output.loss))

    dump_model(out / name, model, batch, compute, hook_bert, Dropout(977, 3, 5, T) if dropout else None)


# -100 where a word's first token is not, and outside of words.
WORD_LABELS = ((IGNORE, 3, IGNORE, 0, 2, 2, IGNORE, 1, IGNORE), (IGNORE, 4, 0, IGNORE, IGNORE, IGNORE),
               (IGNORE, IGNORE, 1, 0, IGNORE, 3, IGNORE))


def label_words(batch):
    batch["labels"] = torch.full_like(batch["tokens"], IGNORE)
    for b, labels in enumerate(WORD_LABELS):
        batch["labels"][b, :len(labels)] = torch.tensor(labels)
    batch["count"] = (batch["labels"] != IGNORE).sum()


def dump_labelled(out, name, model, batch, dropout):
    def compute(model):
        output = model(**inputs_of(batch), labels=batch["labels"])
        return dict(logits=output.logits, loss=same_loss(entropy(output.logits, batch["labels"]), output.loss))

    dump_model(out / name, model, batch, compute, hook_bert, dropout)


def make_ner(out, name, dropout):
    T, config = 9, bert_config(dropout, num_labels=5)
    batch = texts([9, 6, 7], T, config.vocab_size, 2, [4, 5, 6])
    label_words(batch)
    model = make_model(BertForTokenClassification, config, 0.2)
    dump_labelled(out, name, model, batch, Dropout(977, 3, 5, T) if dropout else None)


def make_roberta_ner(out, name, dropout):
    T, pad = 9, 1
    fields = roberta_fields(num_labels=5, pad_token_id=pad, max_position_embeddings=T + pad + 1, classifier_dropout=0.3,
                            **DROPOUT)
    config = RobertaConfig(attn_implementation="eager_with_sites", **fields)
    batch = roberta_texts([9, 6, 7], T, config)
    batch["positions"] = positions_of(batch["tokens"], pad)
    label_words(batch)
    dump_labelled(out, name, make_model(RobertaForTokenClassification, config, 0.2), batch, Dropout(977, 3, 5, T))


def make_distilled(out, name, dropout):
    """In the masked one sample 1 has no label."""
    T, task = 9, name.split("_")[1]
    rates = dict(dropout=0.1, attention_dropout=0.2, seq_classif_dropout=0.3) if dropout else dict(
        dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)
    config = DistilBertConfig(attn_implementation="eager_with_sites" if dropout else "eager", dim=12, n_heads=3,
                              hidden_dim=21, n_layers=2, vocab_size=61, max_position_embeddings=13,
                              num_labels=5 if task == "ner" else 3, **rates)
    kind = {"mlm": DistilBertForMaskedLM, "cls3": DistilBertForSequenceClassification,
            "ner": DistilBertForTokenClassification}[task]
    batch = texts([9, 6, 7], T, config.vocab_size)
    batch.pop("types")
    if task == "mlm":
        places = [(0, 1), (0, 4), (0, 7), (2, 3), (2, 2)]
        batch["labels"] = labels_at(places, batch["tokens"], config.vocab_size)
        batch["count"] = (batch["labels"] != IGNORE).sum()
    elif task == "ner":
        label_words(batch)
    else:
        batch["labels"] = torch.tensor([2, 0, 1])
    dump_labelled(out, name, make_model(kind, config, 0.2), batch, Dropout(977, 3, 5, T) if dropout else None)


def mse(logits, labels):
    return F.mse_loss(logits.float()[:, 0], labels)


def binary_entropy(logits, labels):
    return F.binary_cross_entropy_with_logits(logits.float(), labels)


def make_cls(out, name, dropout):
    """transformers takes the kind of the problem from the labels' type: without a problem_type fp32 means 1 number."""
    T, B = 9, 4
    fields, labels, loss_of = {
        "bert_cls1": (dict(num_labels=1), lambda: torch.randn(B), mse),
        "bert_cls3": (dict(num_labels=3, hidden_size=18), lambda: torch.tensor([2, 0, 1, 2]), entropy),
        "bert_cls5": (dict(num_labels=5, problem_type="multi_label_classification", hidden_act="gelu_new"),
                      lambda: (torch.rand(B, 5) < 0.4).float(), binary_entropy),
    }[name.removesuffix("_dropout")]
    if dropout:
        fields["classifier_dropout"] = 0.3
    config = bert_config(dropout, **fields)
    model = make_model(BertForSequenceClassification, config, 0.2)
    batch = texts([6, 9, 3, 8], T, config.vocab_size, 2, [4, 5, 2, 8])
    batch["labels"] = labels()

    def compute(model):
        theirs = batch["labels"].to(model.dtype) if batch["labels"].is_floating_point() else batch["labels"]
        output = model(**inputs_of(batch), labels=theirs)
        return dict(logits=output.logits, loss=same_loss(loss_of(output.logits, batch["labels"]), output.loss))

    dump_model(out / name, model, batch, compute, hook_bert, Dropout(977, 3, 5, T) if dropout else None)


def make_embed(out, name, dropout):
    n, T, config = 3, 8, bert_config()
    # Weights so large that what [CLS] becomes depends on the text: cosines near 1 would lose digits in the scores.
    model = make_model(lambda c: BertModel(c, add_pooling_layer=False), config, 0.45)
    batch = texts([5, 8, 3, 7, 4, 6, 8, 2, 5], T, config.vocab_size)
    model.save_pretrained(out / name)
    start, dump = weights(model), {**batch, "n": torch.tensor(n), "sgd.lr": torch.tensor(LR_STEEP)}

    def embeddings(model, pooling, many):
        some = {k: v[:many] for k, v in inputs_of(batch).items()}
        hidden = model(**some).last_hidden_state
        if pooling == "cls":
            return hidden[:, 0]
        weight = some["attention_mask"][..., None].to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1)

    def computing(pooling, many):
        def compute(model):
            e = embeddings(model, pooling, many)
            unit = F.normalize(e, dim=-1)
            scores = 20 * unit[:n] @ unit[n:].T
            return dict(embeddings=e, scores=scores, loss=entropy(scores, torch.arange(n)))
        return compute

    for variant, many in (("mean", 2 * n), ("cls", 2 * n), ("mean_negatives", 3 * n), ("cls_negatives", 3 * n)):
        pooling = variant.removesuffix("_negatives")
        compute, seen = computing(pooling, many), {}
        set_weights(model, start)
        with hooked(hook_bert(model, seen)):
            result, grads = gradients(model, compute)
        dump.update({k: t for k, t in seen.items() if k.startswith("x.") and many == 3 * n})
        losses, end = train(model, start, compute, sgd(LR_STEEP))
        assert losses[0] == result["loss"]
        kept = {**result, **grads, "sgd.losses": losses}
        if variant == "mean_negatives":
            kept.update({f"sgd.{k}": w for k, w in end.items()})
        dump.update({f"{variant}.{k}": t for k, t in kept.items()})
    save(out / name / "ref.safetensors", dump)


def llama_config(**fields):
    return LlamaConfig(attn_implementation="eager", hidden_size=20, num_attention_heads=4, num_key_value_heads=2,
                       head_dim=6, intermediate_size=28, vocab_size=53, num_hidden_layers=2, max_position_embeddings=32,
                       tie_word_embeddings=False, **fields)


def hook_llama(model, dump):
    def keep(module, inputs, output):
        dump["norm"] = output.detach().clone()
    return [*hook_activations(model, dump), model.model.norm.register_forward_hook(keep)]


def make_score(out, name, dropout):
    """Sample 1 has a pad token before its end, sample 2 none at its end."""
    T, config = 9, llama_config(num_labels=3, pad_token_id=PAD)
    model = make_model(LlamaForSequenceClassification, config, 0.15)
    batch = texts([5, 7, 9], T, config.vocab_size)
    batch.pop("types")
    batch["tokens"][1, 3] = PAD
    batch["labels"], batch["rows"] = torch.tensor([1, 2, 0]), torch.tensor([4, 6, 8])

    def compute(model):
        output = model(input_ids=batch["tokens"], attention_mask=batch["mask"], labels=batch["labels"], use_cache=False)
        return dict(logits=output.logits, loss=same_loss(entropy(output.logits, batch["labels"]), output.loss))

    dump_model(out / name, model, batch, compute, hook_llama)


PACKED = ((4, 5), (1, 6, 2), (9,))  # lengths of the documents of each row


def make_packed(out, name, dropout):
    T, config = 9, llama_config()
    model = make_model(LlamaForCausalLM, config, 0.15)
    documents = torch.stack([torch.repeat_interleave(torch.arange(len(row)), torch.tensor(row)) for row in PACKED])
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in PACKED])
    tokens = torch.randint(0, config.vocab_size, positions.shape)
    labels = torch.full_like(tokens, IGNORE)
    labels[:, :-1] = tokens[:, 1:].where(positions[:, 1:] > 1, IGNORE)  # a document's first two tokens are its prompt
    batch = dict(tokens=tokens, labels=labels, positions=positions, documents=documents, count=(labels != IGNORE).sum())
    seen = (documents[:, :, None] == documents[:, None, :]) & torch.ones(T, T, dtype=torch.bool).tril()

    def compute(model):
        mask = torch.where(seen, 0.0, torch.finfo(model.dtype).min).to(model.dtype)[:, None]
        logits = model(input_ids=tokens, position_ids=positions, attention_mask=mask, use_cache=False).logits
        return dict(logits=logits, loss=entropy(logits, labels))

    with torch.no_grad():  # packed, a document is what it is alone
        logits = compute(model)["logits"]
        for b, d in ((b, d) for b, row in enumerate(PACKED) for d in range(len(row))):
            alone = model(input_ids=tokens[b][None, documents[b] == d]).logits[0]
            assert torch.allclose(alone, logits[b][documents[b] == d], rtol=0, atol=1e-5), (b, d)
    dump_model(out / name, model, batch, compute, hook_llama, lr=LR_STEEP)


CASES = {
    "bert_mlm": make_mlm, "bert_mlm_dropout": make_mlm, "bert_pretrain": make_pretrain,
    "bert_cls1": make_cls, "bert_cls3": make_cls, "bert_cls3_dropout": make_cls, "bert_cls5": make_cls,
    "roberta_mlm": make_roberta_mlm, "roberta_mlm_dropout": make_roberta_mlm,
    "xlmr_cls3": make_xlmr_cls, "xlmr_cls3_dropout": make_xlmr_cls,
    "bert_ner": make_ner, "bert_ner_dropout": make_ner, "roberta_ner_dropout": make_roberta_ner,
    "distilbert_mlm": make_distilled, "distilbert_mlm_dropout": make_distilled,
    "distilbert_cls3": make_distilled, "distilbert_cls3_dropout": make_distilled,
    "distilbert_ner_dropout": make_distilled,
    "bert_embed": make_embed, "llama_score": make_score, "llama_packed": make_packed,
}


def make_variants(out):
    """bert_pretrain's weights as other files hold them. The first three are the same model to transformers, the last
    two contradict themselves (transformers then unties, with a warning).

        no_prefix        names without "bert."; the heads keep theirs
        gamma_beta       gamma and beta for the weight and bias of LayerNorm, as in the first files of BERT
        duplicates       also position_ids (int64), and decoder.weight and decoder.bias, equal to what they are tied to
        decoder_bias     a decoder.bias that differs in its last number from predictions.bias
        decoder_weight   a decoder.weight that differs in its last number from the word embeddings
    """
    folder = out / "bert_variants"
    folder.mkdir(exist_ok=True)
    plain = load_file(out / "bert_pretrain" / "model.safetensors")
    weight, bias = plain["bert.embeddings.word_embeddings.weight"].clone(), plain["cls.predictions.bias"].clone()

    def other(t):
        t = t.clone()
        t.view(-1)[-1] += 0.5
        return t

    files = {
        "no_prefix": {n.removeprefix("bert."): t for n, t in plain.items()},
        "gamma_beta": {n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): t
                       for n, t in plain.items()},
        "duplicates": {**plain, "bert.embeddings.position_ids": torch.arange(13)[None],
                       "cls.predictions.decoder.weight": weight, "cls.predictions.decoder.bias": bias},
        "decoder_bias": {**plain, "cls.predictions.decoder.bias": other(bias)},
        "decoder_weight": {**plain, "cls.predictions.decoder.weight": other(weight)},
    }
    for name, tensors in files.items():
        save_file(tensors, folder / f"{name}.safetensors", metadata={"format": "pt"})
    config = BertConfig.from_pretrained(out / "bert_pretrain")
    for name in ("no_prefix", "gamma_beta", "duplicates"):
        read = BertForPreTraining.from_pretrained(None, config=config, state_dict=files[name]).state_dict()
        assert all(torch.equal(read[n], t) for n, t in plain.items()), name


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=root / "data" / "ref")
    out = parser.parse_args().out
    disable_progress_bar()
    torch.set_num_threads(1)  # the order of a sum must not depend on the number of cores
    torch.use_deterministic_algorithms(True)
    for name, make in CASES.items():
        dropout = name.endswith("_dropout")
        seed(name.removesuffix("_dropout"))  # with dropout and without: the same weights and the same batch
        make(out, name, dropout)
    make_variants(out)
    for name in [*CASES, "bert_variants"]:
        print(f"{sum(p.stat().st_size for p in (out / name).iterdir()):8d} bytes in {out / name}")


if __name__ == "__main__":
    main()
