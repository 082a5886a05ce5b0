"""lm-evaluation-harness with a model that Galaxy computes: its requests go through `generate_llama --score`.

    pip install lm_eval
    python examples/lm_eval_galaxy.py --model galaxy --model_args model=SmolLM2-135M-Instruct --tasks arc_easy

All other arguments are lm_eval's own. --model_args: model=FOLDER or adapter=FOLDER; program=./generate_llama; every
other one is an option of generate_llama: precision=bf16,quantize=nf4,ranks=2,max_length=2048. Tasks that are scored by
log-likelihoods work (multiple choice, perplexity); tasks for which text is generated (generate_until) do not. Few-shot
examples may be rendered with the folder's chat template (--apply_chat_template), which takes transformers.
"""
import json
import pathlib
import subprocess
import tempfile

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model


@register_model("galaxy")
class Galaxy(LM):
    def __init__(self, program="./generate_llama", batch_size=None, max_batch_size=None, device=None, **options):
        super().__init__()
        if not ("model" in options or "adapter" in options):
            raise ValueError("--model_args has neither model=FOLDER nor adapter=FOLDER")
        self.folder = options.get("model") or options["adapter"]
        self.command = [program] + [word for name, value in options.items() for word in (f"--{name}", str(value))]

    def score(self, requests):
        """A line of generate_llama for each request."""
        if not requests:
            return []
        with tempfile.TemporaryDirectory() as folder:
            asked, told = pathlib.Path(folder, "requests.jsonl"), pathlib.Path(folder, "scores.jsonl")
            asked.write_text("".join(json.dumps(r) + "\n" for r in requests))
            subprocess.run(self.command + ["--score", str(asked), "--output_file", str(told)], check=True)
            lines = [json.loads(line) for line in told.read_text().splitlines()]
        assert len(lines) == len(requests), f"{len(lines)} results for {len(requests)} requests"
        return lines

    def loglikelihood(self, requests):
        lines = self.score([{"context": r.args[0], "continuation": r.args[1]} for r in requests])
        return [(line["loglikelihood"], line["is_greedy"]) for line in lines]

    def loglikelihood_rolling(self, requests):
        return [line["loglikelihood"] for line in self.score([{"text": r.args[0]} for r in requests])]

    def generate_until(self, requests):
        raise NotImplementedError("generate_llama --score tells how likely texts are; generate_until is not there")

    @property
    def tokenizer_name(self):
        return str(self.folder).replace("/", "__")

    def chat_template(self, chat_template=False):
        return self.tokenizer().chat_template if chat_template else None

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.tokenizer().apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt)

    def tokenizer(self):
        from transformers import AutoTokenizer
        return AutoTokenizer.from_pretrained(self.folder)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate
    cli_evaluate()
