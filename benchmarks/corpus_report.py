"""Report of the saved results of benchmarks.corpus: printed, and in docs/corpus.md.

python -m benchmarks.corpus_report
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "corpus.md"
OPENING, CLOSING = "<!-- throughput -->", "<!-- /throughput -->"


def show(result: dict[str, Any]) -> None:
    """Print the tables."""
    for row in result["comparison"]:
        print(
            f"\n{row['model']}, {row['data']}: {row['examples']} examples of {row['tokens']:.1f} "
            f"tokens, {row['padding']:.0%} padding; one thread"
        )
        for name, job in row["jobs"].items():
            over = (
                f"{job['over_bare']:+8.1%} over bare, in processor time "
                f"{job['over_bare_in_processor_time']:+.1%}"
            )
            print(
                f"  {name:12s} {job['milliseconds']:8.3f} ms per example"
                f"{'' if name in ('bare', 'tokenizing') else over}"
            )
        for name, whole in row.get("runs", {}).items():
            size = whole.get("bytes_per_example")
            print(
                f"  whole run, {name}: {whole['examples_per_second']:.0f} examples/s on all "
                f"processors{'' if size is None else f', {size:.0f} bytes each'}"
            )
    for row in result.get("authors_way", []):
        print(
            f"\n{row['model']}: flow of {row['sentences']} sentences {row['seconds']:.3f} s, the "
            f"authors' implementation {row['authors_seconds']:.0f} s (from {row['pairs_timed']} of "
            f"{row['pairs']} pairs): {row['ratio']:.0f}x"
        )
    if "memory" in result:
        peaks = "; ".join(
            f"{n} examples {peak / 1e6:.0f} MB" for n, peak in result["memory"].items()
        )
        print(f"\nPeak resident memory: {peaks}")
    if "ray" in result:
        ray = result["ray"]
        print(
            f"\nRay: {ray['one']:.0f} examples/s with one worker, {ray['two']:.0f} with two: "
            f"{ray['ratio']:.2f}x"
        )


def write_page() -> None:
    """Write the saved results to the throughput section of the guide."""
    if not PAGE.exists() or OPENING not in PAGE.read_text(encoding="utf-8"):
        print(f"\nThere is no {OPENING} in {PAGE}: the guide is not updated.")
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(OPENING, 1)
    after = rest.split(CLOSING, 1)[1] if CLOSING in rest else rest
    sections = {"corpus.json": section, "corpus_gpu.json": gpu_section}
    parts = [
        write(json.loads((RESULTS / name).read_text(encoding="utf-8")))
        for name, write in sections.items()
        if (RESULTS / name).exists()
    ]
    text = "\n\n".join(parts)
    PAGE.write_text(f"{before}{OPENING}\n\n{text}\n\n{CLOSING}{after}", encoding="utf-8")


def section(result: dict[str, Any]) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    measured = (
        f"Measured on {result['date']} with `python -m benchmarks.corpus` on "
        f"{machine['processors']} processors ({machine['processor']}), Python {machine['python']}, "
        f"{versions}. {busy(result)}"
    ).rstrip()
    costs = (
        "Cost of the scores of one position at all layers, compared with a bare forward pass of "
        "the same batches with the model's own fast attention, on one thread (medians of one run):"
    )
    lines = [
        measured,
        "",
        costs,
        "",
        "| model | data | examples | tokens | bare | rollout | flow |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        *(comparison(row) for row in result["comparison"]),
        "",
        "Whole runs, from texts to Parquet, on all processors:",
        "",
        "| model | scores | examples per hour and processor | bytes per example |",
        "| --- | --- | ---: | ---: |",
        *(line for row in result["comparison"] for line in sizing(row, machine["processors"])),
        "",
        sizing_rule(result),
        "",
        *remarks(result),
    ]
    return "\n".join(lines).rstrip()


def busy(result: dict[str, Any]) -> str:
    """Return a note if other programs used the machine."""
    if result["load"] < 1:
        return ""
    return (
        f"Other programs were running (load {result['load']:.1f}), which affects times more than "
        "ratios."
    )


def comparison(row: dict[str, Any]) -> str:
    jobs = row["jobs"]
    costs = [f"{jobs[name]['over_bare']:+.0%}" for name in ("rollout", "flow")]
    return (
        f"| {row['model']} | {row['data']} | {row['examples']:,} | {row['tokens']:.0f} | "
        f"{jobs['bare']['milliseconds']:.2f} ms | {' | '.join(costs)} |"
    )


def sizing(row: dict[str, Any], processors: int) -> list[str]:
    return [
        f"| {row['model']} | {name.replace('+', ' and ')} | "
        f"{hourly(whole, processors):,} | {whole['bytes_per_example']:,.0f} |"
        for name, whole in row.get("runs", {}).items()
    ]


def hourly(whole: dict[str, float], processors: int) -> int:
    """Return examples per hour and processor, to two digits."""
    return int(float(f"{whole['examples_per_second'] * 3600 / processors:.2g}"))


def sizing_rule(result: dict[str, Any]) -> str:
    """Return a formula, and the time of ten million sentences."""
    row = next(row for row in result["comparison"] if "runs" in row)
    name, whole = list(row["runs"].items())[-1]
    rate = hourly(whole, result["machine"]["processors"])
    scores, model = name.replace("+", " and "), row["model"].split(" (")[0]
    return (
        "Rule of thumb: hours = examples / (examples per hour and processor) / processors. The "
        "cost is proportional to the number of tokens; with flow, it grows slightly faster. Ten "
        f"million such sentences with {scores} of the {model} model take "
        f"{10e6 / rate / 16:.1f} hours on 16 processors and "
        f"{10e6 * whole['bytes_per_example'] / 1e9:.0f} GB."
    )


def remarks(result: dict[str, Any]) -> list[str]:
    lines = []
    if "memory" in result:
        small, large = result["memory"].values()
        lines.append(
            f"Memory does not grow with the corpus: the peak is {small / 1e6:.0f} MB for 1,000 "
            f"examples and {large / 1e6:.0f} MB for 10,000."
        )
    if "ray" in result:
        ratio = result["ray"]["ratio"]
        rough = " Values above 2 are noise." if ratio > 2 else ""
        lines.append(f"On Ray, two workers are {ratio:.2f} times as fast as one.{rough}")
    for row in result.get("authors_way", []):
        lines.append(
            f"Flow of {row['sentences']} sentences with {row['model'].split(' (')[0]} takes "
            f"{row['seconds']:.2f} s, including the model. The authors' implementation (networkx, "
            f"Edmonds-Karp for each pair) takes {row['authors_seconds']:,.0f} s, "
            f"{row['ratio']:,.0f} times as long (estimated from {row['pairs_timed']} of "
            f"{row['pairs']:,} pairs)."
        )
    return [f"- {line}" for line in lines]


def gpu_section(result: dict[str, Any]) -> str:
    machine = result["machine"]
    rows = [
        f"| {row['model']} | {row['data']} | {row['tokens']:.0f} | "
        f"{row['jobs']['bare']['milliseconds'] * 1e3:.0f} µs | "
        f"{row['jobs']['rollout']['over_bare']:+.0%} | "
        f"{gpu_rate(row)} |"
        for row in result["comparison"]
    ]
    heading = (
        f"Rollout of one position at all layers on a GPU ({machine['gpu']}), measured on "
        f"{result['date']}, with 16,384 tokens per batch:"
    )
    remark = (
        "For such small models, Python costs more per example than the GPU. The MiniLM-sized model "
        "has random weights, which does not affect the time."
    )
    return "\n".join(
        [
            heading,
            "",
            "| model | data | tokens | bare | rollout | examples per hour, before writing |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
            *rows,
            "",
            remark,
        ]
    )


def gpu_rate(row: dict[str, Any]) -> str:
    runs = row.get("runs")
    return f"{hourly(runs['rollout'], 1):,}" if runs else ""


if __name__ == "__main__":
    show(json.loads((RESULTS / "corpus.json").read_text(encoding="utf-8")))
    write_page()
