"""What docs/paper.md says about the figures, beside what the paper says about its own."""

from collections.abc import Sequence
from typing import Any

from attnflow.paper.experiments.accuracy import PAPER
from tools.paper_claims import Results, expect


def comment_accuracy(results: Results) -> str:
    models: Any = results["accuracy"].numbers["models"]
    natural = {name: sets["natural"] for name, sets in models.items()}
    first, twin = natural["verb-number"], natural["verb-number-causal"]
    hard = models["verb-number"]["4 attractors"]["accuracy"]
    expect(min(first["low"], twin["low"]) > PAPER, "both models are above the paper's accuracy")
    expect(abs(first["accuracy"] - first["accuracy_once"]) < 0.005, "repetitions hardly matter")
    expect(hard < first["accuracy"] - 0.03, "attractors make it harder")
    return f"""
Both models are right more often than the paper's ({PAPER}), on other sentences of the same kind;
the helping tasks are the reason, as the last section shows. "Held out" means that no such prefix,
word by word, is in what was trained on, in whichever file. Among the {first["examples"]:,} natural
ones are {first["different"]:,} different ones; to count each of these once changes little
({first["accuracy_once"]:.3f}). Attractors make it harder: with four of them it is
{hard:.3f}. `--data FILE` counts the same for any file of the kinds that attnflow reads.
"""


def words_at(scores: Any, method: str, layer: int) -> list[tuple[str, float]]:
    """The words and their scores at a layer, highest first; without [CLS]."""
    pairs = zip(scores["tokens"], scores[method][layer], strict=True)
    return sorted((pair for pair in pairs if pair[0] != "[CLS]"), key=lambda pair: -pair[1])


def spread(scores: Any, method: str, layer: int) -> tuple[float, float]:
    """The lowest and the highest score of a word at a layer."""
    found = [score for _, score in words_at(scores, method, layer)]
    return min(found), max(found)


def comment_figure1(results: Results) -> str:
    scores: Any = results["figure1"].numbers["scores"]
    own = [row[0] for row in scores["rollout"]]
    tops = [words_at(scores, "raw", layer)[0] for layer in range(len(scores["raw"]))]
    best = max(range(len(tops)), key=lambda layer: tops[layer][1])
    low, high = spread(scores, "flow", -1)
    rollout_low, rollout_high = spread(scores, "rollout", -1)
    expect(own[-1] < own[0] / 2, "the residual connection fades")
    expect(tops[best][1] > 0.5 and best > 1, "raw attention is focused above layer 2")
    expect(high - low < rollout_high - rollout_low, "flow is more even than rollout")
    return f"""
As the paper says of its figure, the first layers of rollout and flow are the same, and the residual
connection fades: [CLS] has {own[0]:.0%} of its own rollout at layer 1 and {own[-1]:.0%} at the
last. In the paper's model raw attention is nearly uniform in higher layers, and rollout and flow
grow more distinctive there. Not so in this one: raw attention is at its sharpest at layer
{best + 1}, where [CLS] gives "{tops[best][0]}" {tops[best][1]:.0%}. Rollout keeps that, with words
between {rollout_low:.2f} and {rollout_high:.2f} at the last layer; flow evens it out, with words
between {low:.2f} and {high:.2f}.
"""


def comment_figure2(results: Results) -> str:
    every: Any = results["figure2"].numbers["scores"]
    deep, last = [], []
    for scores in every:
        n = len(scores["tokens"])
        deep.append(max(max(row) for row in scores["raw"][3:-1]) * n)
        last.append(max(scores["raw"][-1]) * n)
    expect(min(deep) > 2.5, "raw attention above layer 3 is far from uniform")
    expect(max(last) < 2, "raw attention of the last layer is nearer to uniform")
    tops = ", ".join(f'"{words_at(scores, "raw", 3)[0][0]}"' for scores in every)
    return f"""
The paper finds raw attention almost uniform above layer three in all three sentences. Here that is
so at the last layer only, where no token has more than {max(last):.1f} times its even share. At
layers 4 and 5 some token has {min(deep):.1f} to {max(deep):.1f} times as much; at layer 4 these are
{tops}. In (c) it is the word that misleads the model.
"""


def comment_figure3(results: Results) -> str:
    first, second, third = results["figure3"].numbers["scores"]
    ranked = [word for word, _ in words_at(second, "rollout", -1)]
    tied = [word for word, score in words_at(second, "flow", -1) if _top(second, score)]
    place, n = ranked.index("systems") + 1, len(ranked)
    expect(ranked[0] == "article" and place > 2, "rollout is for the subject, not the attractor")
    expect({"article", "systems"} <= set(tied), "flow has both at the top")
    for method in ("rollout", "flow"):
        expect(words_at(third, method, -1)[0][0] == "NNS", f"{method} is for the wrong word")
    ranges = [
        tuple(high - low for low, high in (spread(one, m, -1) for m in ("rollout", "flow")))
        for one in (first, second, third)
    ]
    expect(all(flow < rollout for rollout, flow in ranges), "flow is more even than rollout")
    return f"""
Of (b) the paper says that rollout and flow give high weights to both the subject, "article", and
the attractor, "systems". Here flow does: {_listed(tied)} tie for the highest score.
Rollout has the subject first and the attractor {_ordinal(place)} of {n} words, and the model is
right. Of the sentence that is classified wrongly the paper says that both give high scores to
"NNS", which is not the subject, and that this can explain the error. Here it is the same: in (c)
"NNS" has the highest score of rollout, and shares the highest of flow. Also as in the paper, flow
is amortised over a set of words and rollout is more focused: between the highest and the lowest
word of the last layer lie
{_listed([f"{r:.2f}" for r, _ in ranges])} for rollout and
{_listed([f"{f:.2f}" for _, f in ranges])} for flow.
"""


def _top(scores: Any, score: float) -> bool:
    return score > words_at(scores, "flow", -1)[0][1] - 1e-3


def comment_figure4(results: Results) -> str:
    first, second = results["figure4"].numbers["cases"]
    agree = [{m: made[-1] for m, made in case["agrees"].items()} for case in (first, second)]
    expect(agree[0] == {"raw": False, "rollout": True, "flow": True}, "(a) is as in the paper")
    expect(agree[1] == {"raw": True, "rollout": True, "flow": False}, "(b) is the other way round")
    john, mary = second["attention"]["flow"][-1]
    expect(0 < mary - john < 0.005, "flow of (b) is nearly even at the last layer")
    raw, flow = first["agrees"]["raw"], second["agrees"]["flow"]
    return f"""
In the paper, the last layer of raw attention contradicts the model in (a), and rollout and flow
agree with it: here as well, and raw attention agrees at {sum(raw)} of {len(raw)} layers only. In
(b) the paper has only flow agree. Here raw attention and rollout do, and flow does at {sum(flow)}
of {len(flow)} layers; at the last it is nearly even ({john:.3f} and {mary:.3f}). Two sentences and
a small model prove nothing either way; most of the differences are small.
"""


def _listed(words: Sequence[str]) -> str:
    """Words with commas, and "and" before the last."""
    named = [word if word[0].isdigit() else f'"{word}"' for word in words]
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]


def _ordinal(n: int) -> str:
    return ("first", "second", "third", "fourth", "fifth", "sixth")[n - 1]
