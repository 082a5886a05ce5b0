"""A training step of LLaMA (D 288, 6 layers, 6 heads of which 2 kv, F 768, V 32000 untied, B 4, T 256), Galaxy beside PyTorch, in fp32 or bf16.

The machines it runs on are noisy, so nothing is compared across time: all programs stay loaded, warm up, and then take turns, a few steps each, for some
rounds. What counts is the ratio within a round; its median over the rounds is reported, with its quartiles. PyTorch's entry is the best of its settings
(lean module eager, lean module compiled; malloc tuned), round by round median; transformers as installed is listed beside it.
Prints a table in Markdown, and Galaxy's profile: share of the matrix products, their rate beside the library alone, what is left to the floor.
"""
import argparse
import json
import statistics
import subprocess
import sys

VARIANTS = ["lean-eager", "lean-compile", "transformers"]


class Server:
    """A program that answers "step K" with one line of JSON."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tokens_per_s, self.last = [], None

    def run(self, steps):
        self.process.stdin.write(f"step {steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"bench: {self.name} ended early with {self.process.wait()}")
        self.last = json.loads(line)
        return self.last

    def close(self):
        out, _ = self.process.communicate()
        if out.strip():
            self.last = json.loads(out.strip().splitlines()[-1])


def quartiles(x):
    q = statistics.quantiles(x, n=4)
    return f"{statistics.median(x):.2f} ({q[0]:.2f}-{q[2]:.2f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--galaxy", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3, help="steps of each program in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    args = parser.parse_args()

    threads = str(args.threads)
    servers = [Server("galaxy", [args.galaxy, "--serve", "--threads", threads, "--precision", args.precision])]
    for v in VARIANTS:
        servers.append(Server(v, [args.python, "dev/bench/torch_llama.py", "--variant", v, "--serve", "--threads", threads, "--precision", args.precision]))
        servers[-1].run(1)  # loaded, compiled and warm before the next one starts
    for _ in range(args.rounds):
        for s in servers:
            s.tokens_per_s.append(1024e3 / s.run(args.steps)["ms"])
    device = servers[0].last["device"]
    for s in servers:
        s.close()

    galaxy, torch = servers[0], servers[1:]
    best = max(torch[:2], key=lambda s: statistics.median(s.tokens_per_s))
    print(f"CPU: {device}; {args.precision}; {threads} threads; {args.rounds} rounds of {args.steps} steps in turns\n")
    print("| program | tokens/s, median | galaxy is faster by: median (quartiles) | peak memory, MB |\n|---|---|---|---|")
    for s in servers:
        ratio = "" if s is galaxy else quartiles([g / t for g, t in zip(galaxy.tokens_per_s, s.tokens_per_s)])
        print(f"| {s.name}{' (best PyTorch)' if s is best else ''} | {statistics.median(s.tokens_per_s):,.0f} | {ratio} | {s.last['peak_rss_mb']:.0f} |")
    print("\nWhere Galaxy's step goes (20 steps, nothing else running):\n", flush=True)
    subprocess.run([args.galaxy, "--profile", "--threads", threads, "--precision", args.precision], check=True)


if __name__ == "__main__":
    main()
