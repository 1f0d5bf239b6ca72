"""Time to explain all tokens of an answer, next to one forward pass over prompt and answer.

    python -m benchmarks.generation --model FOLDER [--peers PYTHON]

Two answers of one decoder: 40 tokens to a prompt of 200, and 40 to a chat. Each method of attnflow
explains all tokens of the answer at the last layer, from token ids to scores. PYTHON is
the interpreter of an environment with torch, transformers, inseq and flashtrace, which run there in
a process of their own, on the same texts and with the same number of threads. Each process times
its own forward pass. Ratios are to the pass right before, by the clock and in processor time, which
tells more on a busy machine; printed are medians.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results" / "generation.json"
TEXTS = Path(__file__).parent / "texts.txt"
N_PROMPT, N_ANSWER = 200, 40
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {
        "role": "user",
        "content": "My train from Lyon to Paris leaves at 9:40 and takes two hours. I want to meet "
        "a friend near the station for lunch. When do I arrive, and what should I do first?",
    },
]
EDGES = ("attention", "alti")
METHODS = ("raw", "rollout", "flow", "joint_flow")
Runs = dict[str, Callable[[], Any]]


def load(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the model and its tokenizer."""
    from importlib import import_module

    import torch

    transformers: Any = import_module("transformers")  # typed only in part
    torch.set_num_threads(options.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(options.model)


def make_answers(model: Any, tokenizer: Any) -> dict[str, dict[str, str]]:
    """Generate an answer to the long prompt and to the chat."""
    import torch

    ids = tokenizer(TEXTS.read_text(encoding="utf-8") * 3)["input_ids"][:N_PROMPT]
    prompts = {
        f"{N_PROMPT} + {N_ANSWER} tokens": tokenizer.decode(ids),
        "chat": tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True),
    }
    answers = {}
    for name, prompt in prompts.items():
        inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        length = {"max_new_tokens": N_ANSWER, "min_new_tokens": N_ANSWER}
        with torch.no_grad():
            output = model.generate(**inputs, **length, do_sample=False)
        answer = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :])
        answers[name] = {"prompt": prompt, "answer": answer}
    return answers


def forward_pass(model: Any, tokenizer: Any, text: str) -> tuple[Callable[[], Any], int]:
    """Return a function that runs the bare model, and the number of tokens."""
    import torch

    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)

    def run() -> Any:
        with torch.no_grad():
            return model(**inputs)

    return run, int(inputs["input_ids"].shape[1])


def own_runs(model: Any, tokenizer: Any, prompt: str, answer: str) -> Runs:
    """Return a function for each method and kind of edges of attnflow."""
    from attnflow import explain

    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(answer, add_special_tokens=False)["input_ids"]

    def make(method: str, edges: str, keep_heads: Any = False) -> Callable[[], Any]:
        def run() -> Any:
            explanation = explain(
                prompt_ids,
                model,
                tokenizer=tokenizer,
                continuation=answer_ids,
                edges=edges,
                keep_heads=keep_heads,
            )
            return explanation.attribute(method, layers=-1, answer="tokens")

        return run

    runs = {
        f"attnflow {method}, {edges}": make(method, edges) for method in METHODS for edges in EDGES
    }
    runs["attnflow rollout, alti, with heads"] = make("rollout", "alti", "auto")
    return runs


def peer_runs(model: Any, tokenizer: Any, prompt: str, answer: str) -> Runs:
    """Return a function for each peer.

    Attention of inseq and flashtrace read the weights that only eager attention returns.
    """
    from importlib import import_module

    inseq, flashtrace = import_module("inseq"), import_module("flashtrace")

    def attribute(method: str) -> Any:
        model.set_attn_implementation("eager" if method == "attention" else "sdpa")
        explained = inseq.load_model(model, method, tokenizer=tokenizer)
        return explained.attribute(
            prompt, prompt + answer, show_progress=False, pretty_progress=False
        ).aggregate()

    def trace() -> Any:
        n = len(tokenizer(answer, add_special_tokens=False)["input_ids"])
        model.set_attn_implementation("eager")
        tracer = flashtrace.FlashTrace(model, tokenizer)
        return tracer.trace(prompt=prompt, target=answer, output_span=(0, n - 1))

    return {
        "inseq attention": lambda: attribute("attention"),
        "inseq saliency": lambda: attribute("saliency"),
        "flashtrace": trace,
    }


def measure(forward: Callable[[], Any], runs: Runs, repeats: int, warm_up: int) -> dict[str, Any]:
    """Return seconds and ratios of each run, or the error of a run that fails."""
    rows: dict[str, Any] = {}
    for name, run in runs.items():
        pairs = []
        try:
            for turn in range(repeats + warm_up):
                bare, taken = time_call(forward), time_call(run)
                if turn >= warm_up:
                    pairs.append((taken, bare))
        except Exception as error:  # a peer may not support the model or the versions
            rows[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
        else:
            clock, cpu = ([taken[i] / bare[i] for taken, bare in pairs] for i in (0, 1))
            rows[name] = {
                "seconds": median(taken[0] for taken, _ in pairs),
                "times_forward": median(clock),
                "range": [min(clock), max(clock)],
                "cpu_seconds": median(taken[1] for taken, _ in pairs),
                "cpu_times_forward": median(cpu),
            }
        print(f"  {name:40}{describe(rows[name])}", file=sys.stderr, flush=True)
    return rows


def time_call(run: Callable[[], Any]) -> tuple[float, float]:
    """The seconds of a call, by the clock and of processor time."""
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - cpu


def describe(row: Mapping[str, Any]) -> str:
    """One row of the table."""
    if "error" in row:
        return str(row["error"])
    low, high = row["range"]
    clock = f"{row['seconds']:9.2f} s {row['times_forward']:8.2f} x ({low:.2f} to {high:.2f})"
    return f"{clock}; processor {row['cpu_seconds']:9.2f} s {row['cpu_times_forward']:8.2f} x"


def run_peers(options: argparse.Namespace, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the peers in their own environment, one answer after another."""
    command = [options.peers, __file__, "--as-peer", "--model", options.model]
    command += ["--threads", str(options.threads), "--repeats", str(options.peer_repeats)]
    done = subprocess.run(
        command, input=json.dumps(answers), stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_as_peer(options: argparse.Namespace) -> None:
    """Measure the peers on the answers in the standard input, and print JSON."""
    answers = json.load(sys.stdin)
    rows = {}
    for name, texts in answers.items():
        model, tokenizer = load(options)  # anew, because peers change it
        forward, _ = forward_pass(model, tokenizer, texts["prompt"] + texts["answer"])
        forward()
        runs = peer_runs(model, tokenizer, texts["prompt"], texts["answer"])
        rows[name] = measure(forward, runs, options.repeats, warm_up=0)
    packages = ("torch", "transformers", "inseq", "flashtrace")
    print(json.dumps({"rows": rows, "versions": {name: version(name) for name in packages}}))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder or name of a decoder")
    parser.add_argument("--peers", help="Python of an environment with inseq and flashtrace")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-repeats", type=int, default=1)
    parser.add_argument("--peers-only", action="store_true", help="keep the saved rows of attnflow")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_peer:
        run_as_peer(options)
        return
    model, tokenizer = load(options)
    answers = make_answers(model, tokenizer)
    if options.peers_only:
        result = json.loads(RESULTS.read_text(encoding="utf-8"))
    else:
        result = measure_own(options, model, tokenizer, answers)
    if options.peers:
        peers = run_peers(options, answers)
        result["versions"]["peers"] = peers["versions"]
        for name, rows in result["answers"].items():
            rows.update(peers["rows"][name])
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure_own(
    options: argparse.Namespace, model: Any, tokenizer: Any, answers: Mapping[str, Any]
) -> dict[str, Any]:
    """Measure attnflow on all answers."""
    rows, tokens = {}, {}
    for name, texts in answers.items():
        whole = texts["prompt"] + texts["answer"]
        forward, tokens[name] = forward_pass(model, tokenizer, whole)
        forward()
        print(f"{name}: {tokens[name]} tokens", file=sys.stderr)
        runs = own_runs(model, tokenizer, texts["prompt"], texts["answer"])
        rows[name] = measure(forward, runs, options.repeats, warm_up=1)
    packages = ("torch", "transformers", "numba")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "versions": {"attnflow": {name: version(name) for name in packages}},
        "model": Path(options.model).name,
        "threads": options.threads,
        "tokens": tokens,
        "answers": rows,
    }


if __name__ == "__main__":
    main()
