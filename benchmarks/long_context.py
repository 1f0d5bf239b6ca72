"""Capture as long as the context: one position's rollout, whole graphs, batches and ALTI edges.

    python -m benchmarks.long_context [--only rows,graphs] [--seconds 200] [--model FOLDER]

On a GPU the model has the shape of Llama 3 8B, with random weights in bfloat16; on a CPU it is a
decoder in FOLDER, in float32. Every time is compared with the bare forward pass in the same run,
with the attention kernel that torch chooses. Beside it stands `output_attentions`, with where it
runs out of memory. Memory is what a pass takes in addition to the model. A row that takes longer
than what is left of the seconds is left out. Results are written to the file of --out after every
row.
"""

import argparse
import gc
import json
import platform
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from attnflow.methods.rollout import rollout
from attnflow.models import Storage, capture_graphs, capture_rollout
from attnflow.optional import import_optional
from benchmarks.capture import read_memory

RESULTS = Path(__file__).parent / "results" / "long_context.json"
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
MINILM = {
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "vocab_size": 30522,
}
SMOLLM2 = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
}
TEXTS = Path(__file__).parent / "texts.txt"
CORPUS_SECONDS = 5.0
SECTIONS = "rows,graphs,alti,batches,peers"  # also: corpus

Run = Callable[[], Any]


@dataclass(frozen=True)
class Task:
    """One row of the results.

    estimate: the seconds that it may take; it is left out if less is left.
    """

    section: str
    name: str
    estimate: float
    measure: Callable[[], dict[str, Any]]


class Bench:
    """The models and what measures them, on one device."""

    def __init__(self, device: str, folder: str | None) -> None:
        self.device, self.folder = device, folder
        self._models: dict[str, Any] = {}

    def model(self, name: str) -> Any:
        """A model by its name, made when it is first used; the one before it is deleted."""
        if name not in self._models:
            self._models.clear()
            gc.collect()
            self._models[name] = self._make(name)
        return self._models[name]

    def _make(self, name: str) -> Any:
        transformers: Any = import_optional("transformers", "the benchmark")
        torch.manual_seed(0)
        if name == "folder":
            loaded = transformers.AutoModelForCausalLM.from_pretrained(self.folder)
            return loaded.float().eval()
        dtype = torch.bfloat16 if name == "8b" else torch.float32
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(self.device):
                if name == "minilm":
                    config = transformers.BertConfig(**MINILM)
                    return transformers.BertForSequenceClassification(config).eval()
                shape = LLAMA_8B if name == "8b" else SMOLLM2
                return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).eval()
        finally:
            torch.set_default_dtype(before)

    def save(self, name: str, folder: Path) -> str:
        """Save a model with a tokenizer that knows the words of the texts; its folder."""
        if name == "folder":
            return str(self.folder)
        tokenizers: Any = import_optional("tokenizers", "the benchmark")
        transformers: Any = import_optional("transformers", "the benchmark")
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        words += sorted(set(TEXTS.read_text(encoding="utf-8").split()))
        vocabulary = {word: i for i, word in enumerate(words)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        if name == "minilm":
            tokenizer.post_processor = tokenizers.processors.BertProcessing(
                ("[SEP]", 3), ("[CLS]", 2)
            )
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            pad_token="[PAD]",
            unk_token="[UNK]",
            cls_token="[CLS]",
            sep_token="[SEP]",
        ).save_pretrained(folder)
        self.model(name).save_pretrained(folder)
        return str(folder)

    def inputs(self, model: Any, batch: int, n: int, *, padded: bool = False) -> dict[str, Any]:
        """Random tokens; with padding, lengths between half of n and n."""
        generator = torch.Generator().manual_seed(n)
        size = model.config.vocab_size
        ids = torch.randint(5, size, (batch, n), generator=generator).to(self.device)
        inputs: dict[str, Any] = {"input_ids": ids}
        if model.config.model_type == "llama":
            inputs |= {"use_cache": False, "logits_to_keep": 1}
        if padded:
            lengths = torch.linspace(n, n // 2, batch).long()
            mask = (torch.arange(n) < lengths[:, None]).long()
            inputs["attention_mask"] = mask.to(self.device)
        return inputs

    def compare(self, runs: Mapping[str, Run], repeats: int, *, warm_up: bool) -> dict[str, Any]:
        """Seconds and memory of each run; the first is the bare pass that ratios refer to."""
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        work: dict[str, list[float]] = {name: [] for name in runs}
        memory: dict[str, float] = {}
        failed: dict[str, str] = {}
        for turn in range(repeats + warm_up):
            for name, run in runs.items():
                if name in failed:
                    continue
                try:
                    elapsed, processor, memory[name] = self.time(run)
                except torch.OutOfMemoryError:
                    failed[name] = "out of memory"
                    self._empty()
                    continue
                if turn >= warm_up:
                    seconds[name].append(elapsed)
                    work[name].append(processor)
        row: dict[str, Any] = {
            name: {"failed": failed[name]}
            if name in failed
            else {
                "seconds": median(seconds[name]),
                "processor_seconds": median(work[name]),
                "gib": memory[name],
            }
            for name in runs
        }
        return refer(row)

    def time(self, run: Run) -> tuple[float, float, float]:
        """Seconds, seconds of the processors, and the memory in GiB that the run took."""
        on_gpu = self.device == "cuda"
        gc.collect()
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        else:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
            before = read_memory("VmRSS")
        start, work = time.perf_counter(), time.process_time()
        result = run()
        if on_gpu:
            torch.cuda.synchronize()
        elapsed, work = time.perf_counter() - start, time.process_time() - work
        del result
        peak = torch.cuda.max_memory_allocated() if on_gpu else read_memory("VmHWM")
        return elapsed, work, (peak - before) / 2**30

    def _empty(self) -> None:
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()


def refer(row: dict[str, Any]) -> dict[str, Any]:
    """Add the ratio of each pass to the bare one."""
    bare = row.get("bare", {})
    for name, values in row.items():
        if name == "bare" or "seconds" not in bare or "seconds" not in values:
            continue
        values["times_bare"] = values["seconds"] / bare["seconds"]
        work = values["processor_seconds"] / bare["processor_seconds"]
        values["times_bare_in_processor_time"] = work
    return row


def bare_run(model: Any, inputs: Mapping[str, Any]) -> Run:
    """The forward pass alone."""

    def run() -> Any:
        with torch.inference_mode():
            return model(**inputs)

    return run


def measure_rows(bench: Bench, name: str, n: int, repeats: int) -> dict[str, Any]:
    """One position's rollout."""
    model = bench.model(name)
    inputs = bench.inputs(model, 1, n)
    runs = {
        "bare": bare_run(model, inputs),
        "rollout of one position": lambda: capture_rollout(model, inputs, positions=-1),
    }
    return bench.compare(runs, repeats, warm_up=n <= 8192)


def measure_difference(bench: Bench, name: str, n: int) -> dict[str, Any]:
    """The largest difference of matrix-free rows from the rollout of whole graphs."""
    model = bench.model(name)
    inputs = bench.inputs(model, 1, n)
    [few], _ = capture_rollout(model, inputs, positions=[n // 2, -1])
    [graph], _ = capture_graphs(model, inputs)
    whole = rollout(graph, layers=-1, positions=[n // 2, -1])
    difference: Tensor = (few.scores - whole.scores).abs()
    return {"largest difference": float(difference.max()), "largest": float(whole.scores.max())}


def measure_graphs(bench: Bench, n: int, repeats: int, **options: Any) -> dict[str, Any]:
    """A whole graph."""
    model = bench.model("8b")
    inputs = bench.inputs(model, 1, n)
    runs = {
        "bare": bare_run(model, inputs),
        "graph": lambda: capture_graphs(model, inputs, **options),
    }
    return bench.compare(runs, repeats, warm_up=n <= 8192)


def measure_alti(bench: Bench, n: int) -> dict[str, Any]:
    """ALTI edges."""
    model = bench.model("8b")
    inputs = bench.inputs(model, 1, n)
    runs = {
        "bare": bare_run(model, inputs),
        "ALTI graph": lambda: capture_graphs(model, inputs, edges="alti"),
    }
    return bench.compare(runs, 5, warm_up=True)


def measure_batch(bench: Bench, name: str, batch: int, n: int) -> dict[str, Any]:
    """Rollout of one position of each text of a padded batch, as in corpus runs."""
    from attnflow.methods.rollout import multiply_layers
    from attnflow.models.capture.padded_batch import run_padded
    from attnflow.models.capture.transformers_hooks import install_hooks

    model = bench.model(name)
    inputs = bench.inputs(model, batch, n, padded=True)
    bare = bare_run(model, inputs)
    positions = torch.zeros(batch, 1, dtype=torch.long, device=bench.device)

    def padded() -> Any:
        layers, output = run_padded(model, inputs)
        with torch.inference_mode():
            numbers, residual = [len(layers)], [0.5] * len(layers)
            rows = multiply_layers(layers, numbers, positions, residual=residual)
        return rows.cpu(), output

    alone = bench.compare({"bare": bare}, 7, warm_up=True)
    before = model.config._attn_implementation
    install_hooks(model)
    row = bench.compare({"with hooks, unobserved": bare, "rollout": padded}, 7, warm_up=True)
    model.set_attn_implementation(before)
    return refer({"bare": alone["bare"], "rollout": row["rollout"]})


def measure_peer(bench: Bench, n: int) -> dict[str, Any]:
    """The usual way: eager attention that returns the weights of all heads, and rollout of them."""
    model = bench.model("8b")
    inputs = bench.inputs(model, 1, n)

    def returned() -> Any:
        with torch.inference_mode():
            weights = model(**inputs, output_attentions=True).attentions
            row = torch.zeros(n, device=bench.device)
            row[-1] = 1
            for layer in reversed(weights):
                row = 0.5 * row + 0.5 * row @ layer[0].float().mean(0)
            return row

    bare = bench.compare({"bare": bare_run(model, inputs)}, 3, warm_up=True)
    model.set_attn_implementation("eager")
    try:
        row = bench.compare({"output_attentions": returned}, 2, warm_up=True)
    finally:
        model.set_attn_implementation("sdpa")
    return refer(bare | row)


def measure_corpus(bench: Bench, name: str, method: str, edges: str) -> dict[str, Any]:
    """Examples of 25 words per hour, from text to scores, on the device and all processors."""
    from attnflow.corpus.example import Example
    from attnflow.corpus.local_engine import score_shards
    from attnflow.corpus.scorer import Scorer
    from attnflow.corpus.settings import Settings

    words = TEXTS.read_text(encoding="utf-8").split()
    is_fast = method == "rollout" and edges == "attention" and name != "folder"
    size = 2000 if is_fast else 64
    deadline = float("inf")

    def shards() -> Iterator[list[Example]]:
        generator = torch.Generator().manual_seed(0)
        while time.perf_counter() < deadline:
            starts = torch.randint(len(words) - 25, (size,), generator=generator).tolist()
            texts = (" ".join(words[start : start + 25]) for start in starts)
            yield [Example(i, str(i), text) for i, text in enumerate(texts)]

    with tempfile.TemporaryDirectory() as folder:
        model = bench.save(name, Path(folder))
        settings = Settings(
            model=model, methods=(method,), edges=edges, device=bench.device, truncate="cut"
        )
        scorer = Scorer(settings)
    finished = 0
    start = 0.0
    for results in score_shards(scorer, shards()):
        if not start:  # the first one warms up
            start = time.perf_counter()
            deadline = start + CORPUS_SECONDS
            continue
        finished += len(results)
    elapsed = time.perf_counter() - start
    return {"examples per hour": round(finished / elapsed * 3600), "examples": finished}


def gpu_tasks(bench: Bench) -> Iterator[Task]:
    """Rows in the order of their importance."""

    def task(section: str, name: str, estimate: float, measure: Any, *args: Any, **kw: Any) -> Task:
        return Task(section, name, estimate, partial(measure, bench, *args, **kw))

    half = Storage("float16")
    offloaded = Storage("float16", offload=True)
    yield task("alti", "2048 tokens", 12, measure_alti, 2048)
    for n, repeats, estimate in ((1024, 7, 10), (4096, 3, 8), (8192, 3, 8), (32768, 1, 8)):
        yield task("rows", f"{n} tokens", estimate, measure_rows, "8b", n, repeats)
    for n, repeats, estimate in ((1024, 7, 5), (2048, 5, 5), (4096, 3, 8), (8192, 3, 10)):
        title = f"{n} tokens, float16"
        yield task("graphs", title, estimate, measure_graphs, n, repeats, storage=half)
    yield task("rows", "difference at 1024 tokens", 5, measure_difference, "8b", 1024)
    yield task("rows", "131072 tokens", 40, measure_rows, "8b", 131072, 1)
    for n, repeats, estimate in ((2048, 5, 6), (16384, 2, 6), (65536, 1, 16)):
        yield task("rows", f"{n} tokens", estimate, measure_rows, "8b", n, repeats)
    yield task("graphs", "16384 tokens, offloaded", 40, measure_graphs, 16384, 1, storage=offloaded)
    for n, repeats, estimate in ((1024, 7, 5), (8192, 2, 10)):
        yield task("graphs", f"{n} tokens, float32", estimate, measure_graphs, n, repeats)
    for n in (512, 1024, 4096):
        yield task("alti", f"{n} tokens", 12, measure_alti, n)
    for n in (1024, 4096, 8192, 16384):
        yield task("peers", f"{n} tokens", 8, measure_peer, n)
    for name, batch, n in (("minilm", 256, 32), ("minilm", 64, 128), ("minilm", 16, 512)):
        yield task("batches", f"{name} {batch} x {n}", 6, measure_batch, name, batch, n)
    yield task("batches", "smollm2 64 x 64", 8, measure_batch, "smollm2", 64, 64)
    yield from corpus_tasks(bench, ("smollm2", "minilm"))


def corpus_tasks(bench: Bench, names: Sequence[str]) -> Iterator[Task]:
    """Examples per hour."""
    for name in names:
        for method, edges in (("rollout", "attention"), ("rollout", "alti"), ("flow", "attention")):
            yield Task(
                "corpus",
                f"{name}, {method}, {edges}",
                4 * CORPUS_SECONDS,
                partial(measure_corpus, bench, name, method, edges),
            )


def cpu_tasks(bench: Bench) -> Iterator[Task]:
    """The real decoder on a CPU."""
    for n, repeats, estimate in ((1024, 5, 90), (2048, 3, 150), (4096, 3, 300), (8192, 1, 400)):
        yield Task(
            "rows",
            f"{n} tokens",
            estimate,
            partial(measure_rows, bench, "folder", n, repeats),
        )
    yield from corpus_tasks(bench, ("minilm", "folder"))


def run_tasks(
    tasks: Iterator[Task], options: argparse.Namespace, machine: dict[str, Any]
) -> dict[str, Any]:
    """Run the tasks, and write the results after each."""
    start = time.perf_counter()
    results: dict[str, Any] = {"machine": machine, "rows": []}
    for task in tasks:
        if task.section not in options.only.split(","):
            continue
        left = options.seconds - (time.perf_counter() - start)
        row: dict[str, Any] = {"section": task.section, "name": task.name}
        if task.estimate > left:
            row["left out"] = f"{left:.0f} s were left"
        else:
            try:
                row |= task.measure()
            except Exception:
                row["failed"] = traceback.format_exc()
        results["rows"].append(row)
        print(describe_row(row), flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results


def describe_row(row: Mapping[str, Any]) -> str:
    """One line for a row."""
    cells = []
    for name, value in row.items():
        if isinstance(value, dict) and "seconds" in value:
            ratio = ""
            if "times_bare" in value:
                work = value["times_bare_in_processor_time"]
                ratio = f" ({value['times_bare']:.2f}x, of the processor {work:.2f}x)"
            cells.append(f"{name} {value['seconds']:.4f} s{ratio} {value['gib']:.2f} GiB")
        elif name not in {"section", "name"}:
            cells.append(f"{name} {value}")
    return f"{row['section']:8} {row['name']:26} " + "; ".join(cells)


def describe_machine(device: str) -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=SECTIONS, help="sections, separated by commas")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--model", help="a folder with a decoder, for a CPU")
    parser.add_argument("--threads", type=int, default=1, help="on a CPU")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    device = "cpu" if options.model or not torch.cuda.is_available() else "cuda"
    if device == "cpu":
        torch.set_num_threads(options.threads)
    bench = Bench(device, options.model)
    tasks = gpu_tasks(bench) if device == "cuda" else cpu_tasks(bench)
    run_tasks(tasks, options, describe_machine(device))


if __name__ == "__main__":
    main()
