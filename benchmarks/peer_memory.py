"""Memory of one explanation of a long text with a decoder, beside what peers take.

    PYTHON benchmarks/peer_memory.py MODEL [--runs attnflow,inseq,flashtrace] [--tokens 512,1024]

Each run is a process of its own, on one thread of a CPU, and prints the memory that it took beyond
the model. PYTHON is that of an environment with the packages of the runs: inseq and flashtrace read
the weights of eager attention, attnflow computes the rollout of the last position without a graph.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

TEXTS = Path(__file__).parent / "texts.txt"
ANSWER = " and so on, as before."


def explain_rollout(model: Any, tokenizer: Any, prompt: str) -> None:
    """The rollout of the last position."""
    inputs = tokenizer(prompt + ANSWER, return_tensors="pt")
    options = {"use_cache": False, "logits_to_keep": 1}
    import_module("attnflow.models").capture_rollout(model, {**inputs, **options}, positions=-1)


def explain_inseq(model: Any, tokenizer: Any, prompt: str) -> None:
    """Raw attention of all layers and heads."""
    model.set_attn_implementation("eager")
    explained = import_module("inseq").load_model(model, "attention", tokenizer=tokenizer)
    explained.attribute(prompt, prompt + ANSWER, show_progress=False, pretty_progress=False)


def explain_flashtrace(model: Any, tokenizer: Any, prompt: str) -> None:
    """One row for the whole answer."""
    model.set_attn_implementation("eager")
    n = len(tokenizer(ANSWER, add_special_tokens=False)["input_ids"])
    tracer = import_module("flashtrace").FlashTrace(model, tokenizer)
    tracer.trace(prompt=prompt, target=ANSWER, output_span=(0, n - 1))


RUNS: dict[str, Callable[[Any, Any, str], None]] = {
    "attnflow": explain_rollout,
    "inseq": explain_inseq,
    "flashtrace": explain_flashtrace,
}


def measure(folder: str, name: str, n_tokens: int) -> str:
    """Run in this process; the memory and the seconds."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    text = " ".join(TEXTS.read_text(encoding="utf-8").split() * 40)
    prompt = tokenizer.decode(tokenizer(text)["input_ids"][: n_tokens - 8])
    before, start = peak(), time.perf_counter()
    RUNS[name](model, tokenizer, prompt)
    return f"{peak() - before:.2f} GiB, {time.perf_counter() - start:.0f} s"


def peak() -> float:
    """The most memory that this process had so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--runs", default=",".join(RUNS))
    parser.add_argument("--tokens", default="512,1024,2048")
    parser.add_argument("--here", action="store_true", help="run in this process")
    options = parser.parse_args()
    for name in options.runs.split(","):
        for n in options.tokens.split(","):
            if options.here:
                print(measure(options.model, name, int(n)))
                continue
            command = [sys.executable, __file__, options.model, "--here", "--runs", name]
            done = subprocess.run(
                [*command, "--tokens", n], capture_output=True, text=True, check=False
            )
            lines = (done.stdout if done.returncode == 0 else done.stderr).splitlines()
            print(name, n, lines[-1] if lines else f"ended by {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
