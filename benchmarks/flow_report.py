"""Write docs/flow-speed.md and its figure from the saved results of benchmarks.flow.

python -m benchmarks.flow_report
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "flow.json"
PROFILE = ROOT / "benchmarks" / "results" / "flow_profile.json"
PAGE = ROOT / "docs" / "flow-speed.md"
FIGURE = ROOT / "docs" / "flow-growth.svg"
README = ROOT / "README.md"


def write_report(result: dict[str, Any]) -> None:
    PAGE.write_text(page(result), encoding="utf-8")
    draw_growth(result["growth"])
    before, rest = README.read_text(encoding="utf-8").split("<!-- speed:")
    opening, rest = rest.split("-->", 1)
    after = rest.split("<!-- /speed -->", 1)[1]
    README.write_text(
        f"{before}<!-- speed:{opening}-->\n\n{summary(result)}\n\n<!-- /speed -->{after}",
        encoding="utf-8",
    )


def summary(result: dict[str, Any]) -> str:
    """Return the sentences for the README."""
    real = [row for row in result["one_position"] if row["graph"] == "real attention"]
    times = ", ".join(
        f"{row['tokens']} tokens {row['solvers']['attnflow']['microseconds_per_pair']:.0f} µs a "
        f"pair ({row['solvers']['OR-tools']['times_slower']:.0f}x faster than OR-tools)"
        for row in real
    )
    return (
        f"Exact flow from one position to all tokens of a 6-layer model, on one thread: {times}.\n"
        f"All pairs of 128 tokens at all 12 layers take {result['threads']['twelve_layers']:.1f} s "
        f"on two processors. Time per pair grows as tokens^"
        f"{result['growth']['exponent_from_64']:.2f} from 64 tokens up.\nValues agree with OR-tools' to "
        f"{worst(result['one_position']):.0e}, and each has been proved by a cut. Measured on "
        f"{result['date']}; [more](docs/flow-speed.md)."
    )


# Measured apart, because the models are not in the repository.
DECODERS = """## Decoders

`python -m benchmarks.flow_decoders MODEL ...` measures decoders, which are not part of the tables above.
On 2026-11-19, on two processors without other work: microseconds of processor time a pair, from the last
position to all tokens, on one thread, the least of three runs; in parentheses, how many times as long
OR-tools takes for 32 of these pairs, whose values differ by at most 1e-13:

| edges | tokens | SmolLM2, 30 layers | stories15M, 6 layers | stories260K, 5 layers |
| --- | --- | --- | --- | --- |
| attention | 64 | 8.5 (83x) | 6.1 (38x) | 21 (6x) |
| attention | 256 | 28 (616x) | 34 (44x) | 259 (8x) |
| attention | 512 | 89 (1,341x) | 92 (80x) | 1,002 (10x) |
| ALTI | 64 | 33 (26x) | 33 (5x) | 17 (11x) |
| ALTI | 256 | 380 (35x) | 86 (18x) | 289 (5x) |
| ALTI | 512 | 1,561 (69x) | 164 (41x) | 874 (7x) |

So flow in decoders is not always 100 times as fast as OR-tools: few layers, and ALTI edges, are the hard
cases. On random causal graphs with a sink and heavy tails, OR-tools took 25 to 50 times as long on
2026-11-18, with 5 layers and 64 or 256 tokens, and 12 layers and 128 tokens.

From the last position of SmolLM2 to all tokens of a long text, by two threads, on 2026-11-19 (`--tokens 2048
--pairs 0 --threads 2`), processor time of both together:

| edges | tokens | time |
| --- | --- | --- |
| attention | 2,048 | 4.8 s |
| ALTI | 2,048 | 16 s |
| attention | 4,096 | 8.4 s |

Computing the graph takes longer than the flow: 100, 196 and 322 s. At 4,096 tokens the whole process takes
12.5 GiB.

What limits few layers is the size of one flow. From the last of 256 tokens of stories260K, less than
half of the time builds the greedy flow, which has some 4,000 pushes over hops and falls short by a
fortieth; the rest augments it in three rounds. Nearly all cuts run through all five layers, so no
bound settles a pair, and each sink has a flow and a cut of its own. A maximum flow there has up to 28,000 edges. At a
hundredth of OR-tools' time, 15 microseconds, the processor could read each edge that a path can visit
about five times, if it read whole rows; single edges cost ten times as much. Tried in sketches without
success: flow divided in proportion on both sides of a known minimum cut, which proves a tenth of the
pairs; bands of layers merged into one; and one wave of whole rows from the top down, which proves
the ends of attention half of the time and those of ALTI a third of it at 64 tokens, less at 128."""


def page(result: dict[str, Any]) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    threads, growth, authors = result["threads"], result["growth"], result["authors_way"]
    table = "\n".join(comparison(result["one_position"]))
    return f"""# How fast flow is

<!-- Written by `python -m benchmarks.flow`; do not edit. -->

Measured on {result["date"]} with `make bench` on {machine["processors"]} processors
({machine["processor"]}), Python {machine["python"]}, {versions}.
All solvers run in one process on the same graphs, on one thread. Times are medians over five
positions and include building each solver's own graph. Real attention comes from
all-MiniLM-L6-v2 (6 layers, mean of 12 heads); graphs with more layers stack those of several texts.
Times depend on the machine; compare the ratios.

## One position to all tokens, at the last layer

Microseconds per pair; in parentheses, the ratio to attnflow.

{table}

Values differ from those of OR-tools by at most {worst(result["one_position"]):.0e}. OR-tools works on capacities
rounded to multiples of 2^-50.

## Whole jobs

| job | time |
| --- | --- |
| all {authors["pairs"]:,} pairs of 16 tokens, 6 layers, one thread | {authors["seconds"] * 1e3:.1f} ms |
| the same with the authors' method | {authors["authors_seconds"]:.0f} s, {authors["ratio"]:,.0f} times as long |
| all pairs of 128 tokens, 6 layers, one thread | {threads["one"]:.2f} s |
| the same on two threads | {threads["two"]:.2f} s, {threads["ratio"]:.2f} times as fast |
| all pairs of 128 tokens, 12 layers, two threads | {threads["twelve_layers"]:.1f} s |

## How values were proved

All pairs of 128 tokens, real attention. [](flow-algorithm.md) explains the proofs.

{proof_table(threads["proofs"])}

{profile_section()}
{DECODERS}

## Growth

Fitted over all sizes, time per pair grows as the number of tokens to the power
{growth["exponent_of_tokens"]:.2f}; from 64 tokens up, where the overhead of a call is negligible, to
the power {growth["exponent_from_64"]:.2f}. It grows as the number of layers to the power
{growth["exponent_of_layers"]:.2f}. The paper's bound for a general solver is the fourth power of the
number of tokens.

![Time per pair by number of tokens and of layers](flow-growth.svg)
"""


def profile_section() -> str:
    """Return the section on stages, if `benchmarks.flow_profile` has been run."""
    if not PROFILE.exists():
        return ""
    result = json.loads(PROFILE.read_text(encoding="utf-8"))
    rows = "\n".join(
        f"| {row['tokens']} | {row['layer']} | {row['greedy']:.1f} | {row['guessing']:.1f} | "
        f"{row['searching']:.1f} | {row['repeated']:.1f} | {row['loading']:.1f} | "
        f"{row['pushes']:.0f} | {row['edges_of_one_flow']:.0f} | {row['searched_share']:.0%} |"
        for row in result["rows"]
    )
    layers = result["all_pairs_by_layer"]
    per_pair = sum(layers[2:]) / len(layers[2:]) / 256
    return f"""## Where the time goes

From `python -m benchmarks.flow_profile`: microseconds per pair, means over five positions.

| tokens | layer | greedy flow | guessed cut | search | all, repeated | loading only | pushes | edges of one flow | pairs searched |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

The first three columns add up to the time of a pair. The next two show what limits it:

- *All, repeated*: the same work when each pair is solved ten times in a row. The processor then
  predicts most branches, so the difference is the cost of mispredicted branches.
- *Loading only*: the time to enter a known flow into a residual graph, edge by edge. A maximum flow
  through real attention consists of many tiny flows, and handling them one by one takes at least this
  long.

The rest is the choice of edges: about 20 nanoseconds for each push over a hop, which the next column
counts. Pushes of whole rows by the source and its own position are not counted. At middle layers most
pairs need a search, so jobs over all layers gain less than the last layer alone.

Tried without gain: whole rows from every position; whole columns into the positions of level 1;
trying the cuts of earlier sinks first, which prove most of what is guessed now, but guessing is cheap;
and shrinking a cut level by level before a search, which avoids four of five searches without an
augmenting path, but takes as long as they do.

At 16 tokens, rows gain nothing, because few edges remain for them. All 256 pairs of one layer take,
from layer 1 to layer {len(layers)}, {", ".join(f"{layer:.0f}" for layer in layers)} microseconds, including {result["call_overhead"]:.0f} for the call:
from layer 3 on about {per_pair:.1f} microseconds per pair, most of it for the greedy flow. Loading takes a
fifth to a third of that. The rest is the choice among a few dozen edges, where each choice depends on
the one before, so that vector instructions do not help.
"""


def comparison(rows: list[dict[str, Any]]) -> list[str]:
    solvers = [name for name in rows[0]["solvers"] if name != "attnflow"]
    lines = [
        "| graph | tokens | layers | attnflow | " + " | ".join(solvers) + " |",
        "| --- | --- | --- | --- | " + " | ".join("---" for _ in solvers) + " |",
    ]
    for row in rows:
        ours = row["solvers"]["attnflow"]["microseconds_per_pair"]
        cells = [row["graph"], str(row["tokens"]), str(row["layers"]), f"{ours:.1f}"]
        for name in solvers:
            entry = row["solvers"].get(name)
            cells.append(
                f"{entry['microseconds_per_pair']:,.0f} ({entry['times_slower']:,.0f}x)"
                if entry
                else "-"
            )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def proof_table(proofs: dict[str, dict[str, int]]) -> str:
    names = [name for name in next(iter(proofs.values())) if any(p[name] for p in proofs.values())]
    lines = ["| job | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for job, counts in proofs.items():
        total = sum(counts.values())
        cells = [f"{counts[name] / total:.1%}" for name in names]
        lines.append(f"| {job} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def worst(rows: list[dict[str, Any]]) -> float:
    return float(max(row["solvers"]["attnflow"]["largest_difference"] for row in rows))


def draw_growth(growth: dict[str, Any]) -> None:
    """Draw time per pair by number of tokens and of layers, on logarithmic axes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, what, color in zip(axes, ("tokens", "layers"), ("#0072b2", "#d55e00"), strict=True):
        x, y = growth[what], growth[f"microseconds_by_{what}"]
        axis.loglog(x, y, "o-", color=color)
        axis.set_xticks(x, [str(value) for value in x])
        axis.xaxis.set_minor_formatter(NullFormatter())
        ticks = [v for v in (5, 10, 20, 50, 100, 200) if min(y) * 0.7 <= v <= max(y) * 1.4]
        axis.set_yticks(ticks, [str(value) for value in ticks])
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_ylim(min(y) * 0.7, max(y) * 1.4)
        axis.set_xlabel(what + (" (6 layers)" if what == "tokens" else " (64 tokens)"))
        axis.set_ylabel("microseconds per pair")
        axis.set_title(f"grows as {what}$^{{{growth[f'exponent_of_{what}']:.2f}}}$", fontsize=11)
        axis.grid(visible=True, which="major", alpha=0.3)
    with rc_context({"svg.hashsalt": "attnflow"}):  # reproducible file
        figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    write_report(json.loads(RESULTS.read_text(encoding="utf-8")))
