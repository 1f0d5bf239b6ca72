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
On 2026-11-20 (SmolLM2: 2026-11-19), on two processors with other work on them: microseconds of processor time
a pair, from the last position to all tokens, on one thread; in parentheses, how many times as long OR-tools takes for 32 of
these pairs, whose values differ by at most 1e-13. Both are the least of all runs:

| edges | tokens | SmolLM2, 30 layers | stories15M, 6 layers | stories260K, 5 layers |
| --- | --- | --- | --- | --- |
| attention | 64 | 8.3 (84x) | 6.4 (25x) | 14 (10x) |
| attention | 256 | 34 (457x) | 36 (51x) | 127 (16x) |
| attention | 512 | 80 (1,384x) | 67 (147x) | 424 (26x) |
| attention | 1,024 | - | 667 | 2,034 |
| ALTI | 64 | 31 (28x) | 23 (8x) | 12 (9x) |
| ALTI | 256 | 291 (42x) | 50 (34x) | 145 (11x) |
| ALTI | 512 | 851 (131x) | 129 (58x) | 431 (16x) |
| ALTI | 1,024 | - | 1,666 | 1,386 |

From 64 to 1,024 tokens, time a pair grows as the number of tokens to the power 1.68 and 1.80 with attention of
stories15M and stories260K, and 1.55 and 1.71 with ALTI edges; from 64 to 512 tokens of SmolLM2, 1.14 and 1.61.
stories15M was trained on 256 tokens: what it does with more is no text of its kind.

Sets of positions or tokens share one network unless they begin (or, as sources, end) at the same position.
Microseconds of processor time a flow of stories260K, from the last position or the last 20 together (`--answer 20`),
to tokens or words of three (`--words 3`), with `--tokens 64,256,512 --pairs 24`, on 2026-11-20, the least of two runs
(OR-tools: one run, 22 to 24 flows, whose values differ by at most 2e-13):

| edges | tokens | token to tokens | token to words | answer to tokens | answer to words |
| --- | --- | --- | --- | --- | --- |
| attention | 64 | 14 (9x) | 16 (6x) | 15 (11x) | 24 (6x) |
| attention | 256 | 131 (16x) | 110 (14x) | 78 (30x) | 177 (11x) |
| attention | 512 | 441 (22x) | 387 (20x) | 275 (35x) | 500 (17x) |
| ALTI | 64 | 12 (9x) | 15 (6x) | 13 (18x) | 22 (12x) |
| ALTI | 256 | 138 (13x) | 113 (11x) | 83 (22x) | 131 (13x) |
| ALTI | 512 | 397 (17x) | 337 (16x) | 342 (22x) | 546 (16x) |

To words, or from an answer to tokens, a flow takes 0.6 to 1.3 times as long as from a token to a token; from an answer to
words, 0.9 to 1.9 times.

So flow in decoders is not always 100 times as fast as OR-tools: few layers, and ALTI edges, are the hard
cases. On random causal graphs with a sink and heavy tails (log-normal or Pareto rows), OR-tools takes 9 to
13 times as long with 5 layers and 64 tokens, 29 to 35 times with 256 tokens, and 41 to 53 times with 12 layers
and 128 tokens.

From the last position of SmolLM2 to all tokens of a long text, by two threads, on 2026-11-19 (`--tokens 2048
--pairs 0 --threads 2`), processor time of both together, the least of three runs:

| edges | tokens | time |
| --- | --- | --- |
| attention | 2,048 | 0.6 s |
| ALTI | 2,048 | 9.3 s |
| attention | 4,096 | 3.1 s |

Computing the graph takes longer than the flow. At 4,096 tokens the whole process takes 12.5 GiB.

### What limits flow in decoders

With few layers, waves solve most pairs (see [](flow-algorithm.md)). Compared in turns with the solver before
they were added, they save 22% to 40% of the time of both edges of stories260K at 64 to 1,024 tokens, 26% to 40%
with ALTI edges of stories15M at 64 and 256 tokens, and 16% to 28% with both edges at 512. On random graphs and in deep models,
the greedy flow is as fast or faster, and is used as before.

| graph | tokens | waves | rooms measured per node | of the time: distances | rooms | pushes |
| --- | --- | --- | --- | --- | --- | --- |
| stories260K, attention | 64 | 2.6 | 1.3 | 20% | 18% | 60% |
| stories260K, attention | 256 | 5.2 | 2.9 | 11% | 17% | 72% |
| stories15M, ALTI | 256 | 1.7 | 0.9 | 13% | 27% | 57% |
| stories15M, attention (not used) | 256 | 4.3 | 2.0 | 12% | 35% | 51% |

A block of 64 edges takes 3 nanoseconds to read and 13 to push, while it is in the nearest cache. With 256 tokens the
rows of a pair are 1 to 2 MB, so a node takes 50 to 80 nanoseconds in all. In one wave it would take 25 to 40
microseconds for each pair, 50 to 80 times less than OR-tools: a ratio of 100 would need less than one visit of
each node.

Without waves, stages of a pair at 256 tokens, in microseconds; means over all pairs of the last position:

| graph | greedy flow | guessed cut | loading | first search | augmenting | pushes over hops | augmented | short by | rounds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| SmolLM2, ALTI | 226 | 4 | 22 | 13 | 39 | 3,628 | 13% | 2.4% | 1.8 |
| stories15M, attention | 33 | 2 | 2 | 0 | 0 | 1,456 | 14% | 3.7% | 2.7 |
| stories15M, ALTI | 35 | 2 | 16 | 7 | 22 | 1,298 | 95% | 2.3% | 2.5 |
| stories260K, attention | 93 | 6 | 26 | 5 | 80 | 6,835 | 92% | 3.9% | 4.2 |
| stories260K, ALTI | 91 | 6 | 22 | 7 | 100 | 3,865 | 91% | 4.5% | 4.6 |

The columns on the right count pushes, the pairs that have to be augmented, how far the greedy flow of these
falls short, and in how many rounds of search and blocking flow it is augmented.

With few layers no stage stands out, and each is near what its steps cost: a push over a hop takes 14 to 27
nanoseconds (60 in 30 layers, whose edges do not fit into the nearer caches), an edge of the flow 3 to load, an
edge of an augmenting path 15 to 20. Edges are used one by one, because which one comes next depends on the
ones before. At a hundredth of OR-tools' time, 15 to 20 microseconds, the processor could handle each of the
640 nodes that a path can visit, on average over all sinks, once for 30 nanoseconds, or read each edge two to
five times, if it read whole rows; single edges cost ten times as much. So a ratio of 100 would need work
that sinks share.

There is little of it. In 64 minimum cuts of the two small models, no edge of a chain is cut: each
position is on the sink's side above some level, and on the source's below, where its chain crosses the cut
for nothing. But nearly all cuts run through all levels, and from one sink to the next, up to half of the nodes
change sides. Neighboring sinks' edges have 32% to 58% of their capacity in common (50% to 67% if all levels of
a position count as one; 70% to 74% for the most similar of 60 sinks). So a flow for one sink would have to be
rerouted by a third or more to become a flow for another, while a new greedy flow already carries 96%.

Tried in sketches without success:

- waves that divide surplus in proportion to capacity or to room (up to three times as many waves), that ignore
  rooms (twice as many), that relabel single nodes in between (three times the pushes), that start from the
  flow of the sink before (a fifth fewer waves at 256 tokens, none at 64), or from the greedy flow;
- rooms shared among the nodes that compete for them, and iterative fitting of rows and columns: both stop
  far from a maximum;
- waves on each side of a known minimum cut: the larger side takes as many as the whole graph;
- flow divided in proportion on both sides of a known minimum cut, which proves a tenth of the pairs;
- bands of layers merged into one, and one wave of whole rows from the top down, which proves the ends of
  attention half of the time and those of ALTI a third of it at 64 tokens, less at 128;
- in 30 layers, rows of the source at the top, columns of the sink at the bottom, and all layers between as one
  matrix: proves half of the pairs with attention, and 2% to 8% with ALTI edges, where no level is to spare;
- greedy flow that respects a cut, even the minimum cut itself: it falls short by 1.9% instead of 2.4%, because
  what is missing is a division within each side of the cut;
- positions with much capacity to the sink first: halves what is missing and what augmenting takes with 5
  layers, but needs a quarter more pushes there, and more than twice as many with 30;
- highest hops first: half as many pushes in 6 layers, but three times as much is missing;
- no last pass over small edges in 30 layers: a tenth less greedy flow, a tenth more augmenting, and a third
  slower where 64 tokens need no augmenting now."""


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
    with rc_context({"svg.hashsalt": "attnflow", "svg.fonttype": "none"}):  # reproducible file
        figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    write_report(json.loads(RESULTS.read_text(encoding="utf-8")))
