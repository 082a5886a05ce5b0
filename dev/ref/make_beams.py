"""Makes the reference of beam search, from transformers: what generate() makes of sources with tiny BARTs, an mBART and
a T5, and of prompts with a LLaMA, a GPT-2 and a Gemma 3.

    python dev/ref/make_beams.py [--out data/ref] [FOLDER ...]

Writes FOLDER/{config.json, model.safetensors}, random weights that are large, so that results differ, and
FOLDER/ref.safetensors; FOLDER is bart_beams_one or the like, mbart_beams, t5_beams, generate_beams, generate_gpt2_beams and
generate_gemma3_beams. Numbers are int32 or fp32.

    source, lengths     the sources, or prompts, one behind the other, and the tokens of each of the TEXTS
    options   [n,11]    of each of n searches; the columns are those of OPTIONS
    counts    [m]       for each search, text and returned sequence the number of its tokens, without the start token or
                        the prompt; 0: left out
    tokens, scores      of all of them one behind the other; scores [m], 0 with one beam

A prompt is in the place of the start token: min_length and max_length, of which 1 is the start token, are those of
min_new_tokens and max_new_tokens, one less; no token is forced.

A text is left out if its result is not clear: if noise of up to NOISE in all processed scores changes its tokens, in
one of TRIES runs, or if a beam with all tokens banned is returned (transformers then returns an arbitrary unfinished
one). How many these are is printed, and must be few.
"""
import argparse
import pathlib

import torch
from transformers import (BartConfig, BartForConditionalGeneration, Gemma3ForCausalLM, Gemma3TextConfig, GenerationConfig, GPT2Config,
                          GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList, MBartConfig,
                          MBartForConditionalGeneration, T5Config, T5ForConditionalGeneration)
from transformers.utils.logging import disable_progress_bar

from make_refs import save, seed
from make_t5_refs import untie

FIRST = 4  # token ids; of padding, of the end, and of what targets start with:
TOKENS = {"bart": (1, 2, 2), "mbart": (1, 2, 6), "t5": (0, 1, 0), "llama": (0, 1, None), "gpt2": (0, 1, None),
          "gemma3_text": (0, 1, None)}  # an mBART's start with their language
NOISE, TRIES = 1e-4, 8
TEXTS = (3, 8, 5, 1, 11)   # tokens of the sources
# Of matrices, by a part of their names, so that a target goes through many tokens: attention that looks at single tokens,
# and a source that does not outweigh them.
SPREADS = {"shared": 0.6, "positions": 1.2, "q_proj": 1.5, "k_proj": 1.5, "encoder_attn.out_proj": 0.2, "fc": 0.7, "": 1.0}
T5_SPREADS = {"shared": 1.0, "relative": 1.5, ".q.": 0.7, ".k.": 0.7, "EncDecAttention.o": 0.2, "Dense": 0.4, "lm_head": 0.3, "": 0.6}
LLAMA_SPREADS = {"embed_tokens": 1.0, "q_proj": 1.0, "k_proj": 1.0, "lm_head": 0.35, "": 0.5}
GPT2_SPREADS = {"wte": 0.35, "wpe": 0.5, "c_attn": 1.0, "": 0.6}
ENDS = 2.0                 # how much likelier an end is made
VARIETY = 8                # different tokens of ten texts, and different texts
FEW = 0.05                 # of all texts may be left out
STOPPING = [False, True, "never"]
OPTIONS = ("num_beams", "num_return_sequences", "length_penalty", "early_stopping", "no_repeat_ngram_size", "min_length",
           "max_length", "forced_bos_token_id", "forced_eos_token_id", "repetition_penalty", "second_end")
USUAL = dict(zip(OPTIONS, (1, 1, 1.0, 0, 0, 0, 14, -1, -1, 1.0, -1)))
MODELS = {
    "bart_beams_one": dict(vocab_size=31, d_model=12, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=3,
                encoder_ffn_dim=17, decoder_ffn_dim=11),
    "bart_beams_deep": dict(vocab_size=29, d_model=10, encoder_layers=2, decoder_layers=3, encoder_attention_heads=1, decoder_attention_heads=2,
                 encoder_ffn_dim=13, decoder_ffn_dim=15),
    "bart_beams_wide": dict(vocab_size=43, d_model=12, encoder_layers=3, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=2,
                 encoder_ffn_dim=9, decoder_ffn_dim=7),
    "mbart_beams": dict(vocab_size=37, d_model=12, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=3,
                        encoder_ffn_dim=9, decoder_ffn_dim=11, scale_embedding=True),
    "t5_beams": dict(vocab_size=37, d_model=12, d_kv=5, d_ff=17, num_layers=3, num_decoder_layers=2, num_heads=3,
                     relative_attention_num_buckets=8, relative_attention_max_distance=7, feed_forward_proj="gated-gelu",
                     tie_word_embeddings=False),
    "generate_beams": dict(vocab_size=37, hidden_size=12, intermediate_size=17, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
                        head_dim=6, max_position_embeddings=32, rope_theta=50.0),
    "generate_gpt2_beams": dict(vocab_size=37, n_positions=32, n_embd=12, n_inner=17, n_layer=2, n_head=4),
    "generate_gemma3_beams": dict(vocab_size=37, hidden_size=12, intermediate_size=17, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
                                  head_dim=6, query_pre_attn_scalar=5, max_position_embeddings=32, sliding_window=4, sliding_window_pattern=2,
                                  rope_parameters=dict(full_attention=dict(rope_type="linear", factor=2.0, rope_theta=50.0),
                                                       sliding_attention=dict(rope_type="default", rope_theta=20.0))),
}
PROMPTED = ("llama", "gpt2", "gemma3_text")  # models without an encoder


def searches(END):
    """Each option alone, then mixtures that a generator of numbers picks, the same for every model."""
    alone = [dict(), dict(min_length=5), dict(no_repeat_ngram_size=2), dict(repetition_penalty=1.4), dict(forced_bos_token_id=0),
             dict(max_length=6, forced_eos_token_id=END), dict(max_length=2)]
    beams = [dict(num_beams=k) for k in (2, 3, 4, 5)]
    beams += [dict(num_beams=3, length_penalty=p, early_stopping=s) for p in (-1.0, 0.0, 0.7, 2.0) for s in range(3)]
    beams += [dict(num_beams=4, **more) for more in alone[1:]]
    beams += [dict(num_beams=5, num_return_sequences=5, early_stopping=s) for s in range(3)]
    beams += [dict(num_beams=k, length_penalty=p, early_stopping=2, num_return_sequences=2) for k in (2, 5) for p in (-0.1, -0.4, -2.0)]
    beams += [dict(num_beams=3, second_end=7), dict(num_beams=2, num_return_sequences=2, second_end=9, min_length=4)]
    generator = torch.Generator().manual_seed(5)
    pick = lambda values: values[int(torch.randint(len(values), (1,), generator=generator))]
    mixed = []
    for _ in range(24):
        k = pick((2, 3, 4, 5))
        length = pick((7, 11, 14))
        mixed.append(dict(num_beams=k, num_return_sequences=1 + pick(range(k)), length_penalty=pick((-1.0, -0.3, 0.0, 0.5, 1.0, 1.5, 2.0)),
                          early_stopping=pick(range(3)), no_repeat_ngram_size=pick((0, 2, 3)), min_length=pick((0, 0, 3, 6)), max_length=length,
                          forced_bos_token_id=pick((-1, -1, 0, 5)), forced_eos_token_id=pick((-1, END)), repetition_penalty=pick((1.0, 1.0, 1.2, 0.8)),
                          second_end=pick((-1, -1, -1, 8))))
    return [{**USUAL, **s} for s in alone + beams + mixed]


def searches_of(model):
    """Prompts have no start token, which may be followed by a forced one, and are never left with no room."""
    of = searches(TOKENS[model.config.model_type][1])
    if model.config.model_type not in PROMPTED:
        return of
    of = [{**s, "forced_bos_token_id": -1, "forced_eos_token_id": -1} for s in of]
    return [s for i, s in enumerate(of) if s not in of[:i]]


class Noise(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores + NOISE * (2 * torch.rand_like(scores) - 1)


def make_t5(shape):
    pad, end, start = TOKENS["t5"]
    config = T5Config(dropout_rate=0.0, pad_token_id=pad, eos_token_id=end, decoder_start_token_id=start, **shape)
    config._attn_implementation = "eager"
    model = T5ForConditionalGeneration(config).eval()
    untie(model)
    with torch.no_grad():
        for name, p in model.named_parameters():
            spread = next(x for key, x in T5_SPREADS.items() if key in name) if p.ndim > 1 else 0.2
            p.copy_((p.ndim == 1) + spread * torch.randn_like(p))
    return model


def make_llama(shape):
    is_gemma3 = "query_pre_attn_scalar" in shape
    pad, end, _ = TOKENS["llama"]
    config = (Gemma3TextConfig if is_gemma3 else LlamaConfig)(pad_token_id=pad, bos_token_id=None, eos_token_id=end,
                                                              tie_word_embeddings=False, **shape)
    config._attn_implementation = "eager"
    model = (Gemma3ForCausalLM if is_gemma3 else LlamaForCausalLM)(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            spread = next(x for key, x in LLAMA_SPREADS.items() if key in name) if p.ndim > 1 else 0.2
            p.copy_((p.ndim == 1 and not is_gemma3) + spread * torch.randn_like(p))
    return model


def make_gpt2(shape):
    config = GPT2Config(bos_token_id=None, eos_token_id=None, **shape)
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_gain = p.ndim == 1 and name.endswith("weight")
            spread = next(x for key, x in GPT2_SPREADS.items() if key in name) if p.ndim > 1 else 0.2
            p.copy_(is_gain + spread * torch.randn_like(p))
    return model


def make_bart(shape, is_mbart=False):
    PAD, END, _ = TOKENS["bart"]
    config = (MBartConfig if is_mbart else BartConfig)(
        max_position_embeddings=16, dropout=0.0, pad_token_id=PAD, bos_token_id=0, eos_token_id=END,
        decoder_start_token_id=None if is_mbart else END, forced_eos_token_id=None, **shape)
    config._attn_implementation = "eager"
    model = (MBartForConditionalGeneration if is_mbart else BartForConditionalGeneration)(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_gain = p.ndim == 1 and name.endswith("weight")
            spread = next(x for key, x in SPREADS.items() if key in name) if p.ndim > 1 else 0.2
            p.copy_(is_gain + spread * torch.randn_like(p))
        last = model.model.decoder.layer_norm if is_mbart else model.model.decoder.layers[-1].final_layer_norm
        last.weight.mul_(0.6)  # flat distributions, so that several beams matter,
        last.bias.normal_(0, 0.25)
        model.model.shared.weight[END] += ENDS * last.bias / last.bias.norm()  # in which an end is not rare
    return model


def continued(model, s, ids, mask, processors=()):
    """generated() of prompts, each by itself: padding would count among the tokens that a text has."""
    PAD, END, _ = TOKENS[model.config.model_type]
    ends = [END] + ([s["second_end"]] if s["second_end"] >= 0 else [])
    k, n, results = s["num_beams"], s["num_return_sequences"], []
    model.generation_config = GenerationConfig(
        num_beams=k, num_return_sequences=n, length_penalty=s["length_penalty"], early_stopping=STOPPING[s["early_stopping"]],
        no_repeat_ngram_size=s["no_repeat_ngram_size"], min_new_tokens=max(s["min_length"] - 1, 0), max_new_tokens=s["max_length"] - 1,
        repetition_penalty=s["repetition_penalty"], eos_token_id=ends, pad_token_id=PAD)
    for row, there in zip(ids, mask):
        prompt = row[there == 1][None]
        out = model.generate(prompt, do_sample=False, return_dict_in_generate=True, output_scores=True,
                             logits_processor=LogitsProcessorList(processors))
        scores = out.sequences_scores.tolist() if k > 1 else [0.0]
        rows = out.sequences[:, prompt.shape[1]:].tolist()
        length = [next((i + 1 for i, t in enumerate(new) if t in ends), s["max_length"] - 1) for new in rows]
        assert all(m <= len(new) for m, new in zip(length, rows)), (rows, s)
        results.append([(new[:m], score) for new, m, score in zip(rows, length, scores)])
    return results


def generated(model, s, ids, mask, processors=()):
    """[texts][sequences] of (tokens, score)."""
    if model.config.model_type in PROMPTED:
        return continued(model, s, ids, mask, processors)
    PAD, END, START = TOKENS[model.config.model_type]
    token = lambda key: s[key] if s[key] >= 0 else None
    ends = [END] + ([s["second_end"]] if s["second_end"] >= 0 else [])
    k, n = s["num_beams"], s["num_return_sequences"]
    model.generation_config = GenerationConfig(
        num_beams=k, num_return_sequences=n, length_penalty=s["length_penalty"], early_stopping=STOPPING[s["early_stopping"]],
        no_repeat_ngram_size=s["no_repeat_ngram_size"], min_length=s["min_length"], max_length=s["max_length"],
        forced_bos_token_id=token("forced_bos_token_id"), forced_eos_token_id=token("forced_eos_token_id"),
        repetition_penalty=s["repetition_penalty"], eos_token_id=ends, pad_token_id=PAD, bos_token_id=0, decoder_start_token_id=START)
    out = model.generate(ids, attention_mask=mask, do_sample=False, return_dict_in_generate=True, output_scores=True,
                         logits_processor=LogitsProcessorList(processors))
    scores = out.sequences_scores.tolist() if k > 1 else [0.0] * len(out.sequences)
    results = []
    for row, score in zip(out.sequences[:, 1:].tolist(), scores):
        end = next((i + 1 for i, t in enumerate(row) if t in ends), s["max_length"] - 1)
        assert end <= len(row), (row, s)
        results.append((row[:end], score))
    return [results[i:i + n] for i in range(0, len(results), n)]


def varies(model, ids, mask):
    """Many tokens are written, some texts end early, and some do not."""
    texts = [t for k in (1, 4) for sequences in generated(model, {**USUAL, "num_beams": k}, ids, mask) for t, _ in sequences]
    longest = sum(len(t) == USUAL["max_length"] - 1 for t in texts)
    return len(set(sum(texts, []))) >= VARIETY and len(set(map(tuple, texts))) >= VARIETY and 0.2 * len(texts) <= longest <= 0.8 * len(texts)


def make_case(name):
    for number in range(1000):
        seed(f"beams {name.removeprefix('bart_beams_')} {number}")
        make = {"t5": make_t5, "generate": make_llama, "bart": make_bart, "mbart": lambda shape: make_bart(shape, True), "gpt2": make_gpt2}
        model = make["gpt2" if "gpt2" in name else name.split("_")[0]](MODELS[name])
        sources = [torch.randint(FIRST, model.config.vocab_size, (n,)) for n in TEXTS]
        ids, mask = torch.full((len(TEXTS), max(TEXTS)), TOKENS[model.config.model_type][0]), torch.zeros(len(TEXTS), max(TEXTS), dtype=torch.long)
        for i, text in enumerate(sources):
            ids[i, :len(text)], mask[i, :len(text)] = text, 1
        if varies(model, ids, mask):
            print(f"{name}: model {number}")
            return model, sources, ids, mask
    raise SystemExit(f"{name}: no model writes enough")


def case(name, out):
    model, sources, ids, mask = make_case(name)
    counts, tokens, scores, texts, left_out, endings = [], [], [], 0, 0, 0
    of = searches_of(model)
    for s in of:
        result = generated(model, s, ids, mask)
        noisy = [generated(model, s, ids, mask, [Noise()]) for _ in range(TRIES)]
        for i, sequences in enumerate(result):
            texts += 1
            is_clear = all(score > -1e6 for _, score in sequences) and \
                all([t for t, _ in other[i]] == [t for t, _ in sequences] for other in noisy)
            left_out += not is_clear
            for t, score in sequences:
                endings += len(t) < s["max_length"] - 1
                counts.append(len(t) if is_clear else 0)
                scores.append(score if is_clear else 0.0)
                tokens += t if is_clear else []
    folder = pathlib.Path(out) / name
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    save(folder / "ref.safetensors", dict(source=torch.cat(sources), lengths=torch.tensor(TEXTS), counts=torch.tensor(counts, dtype=torch.uint8),
                                          tokens=torch.tensor(tokens, dtype=torch.uint8), scores=torch.tensor(scores, dtype=torch.float32),
                                          options=torch.tensor([[float(s[o]) for o in OPTIONS] for s in of])))
    print(f"{name}: {texts} texts, {left_out} left out; of {len(counts)} sequences {endings} end before max_length")
    assert left_out <= FEW * texts, "too many are left out: take another seed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="data/ref")
    parser.add_argument("names", nargs="*", metavar="FOLDER", help="only these; otherwise all")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    for name in asked.names or MODELS:
        case(name, asked.out)


if __name__ == "__main__":
    main()
