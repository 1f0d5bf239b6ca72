"""The comments of docs/paper.md on the figures; see tools/paper_tables.py."""

from collections.abc import Sequence
from typing import Any

from tools.paper_claims import Results, expect


def comment_figure1(results: Results) -> str:
    scores: Any = results["figure1"].numbers["scores"]
    own = [row[0] for row in scores["rollout"]]
    tops = [_words_at(scores, "raw", layer)[0] for layer in range(len(scores["raw"]))]
    sharpest = max(range(len(tops)), key=lambda layer: tops[layer][1])
    word, share = tops[sharpest]
    low, high = _range(scores, "flow", -1)
    rollout_low, rollout_high = _range(scores, "rollout", -1)
    expect(own[-1] < own[0] / 2, "the residual connection fades")
    expect(share > 0.5 and sharpest > 1, "raw attention is focused above layer 2")
    expect(high - low < rollout_high - rollout_low, "flow is more even than rollout")
    return f"""
As in the paper, the first layers of rollout and flow are equal, and the residual connection fades:
[CLS] has {own[0]:.0%} of its own rollout at layer 1 and {own[-1]:.0%} at the last layer. In the
paper's model, raw attention is nearly uniform in higher layers, while rollout and flow become more
distinctive. This model differs: raw attention is sharpest at layer {sharpest + 1}, where [CLS] puts
{share:.0%} on "{word}". Rollout preserves this, with words between {rollout_low:.2f} and
{rollout_high:.2f} at the last layer; flow evens it out, with words between {low:.2f} and
{high:.2f}.
"""


def comment_figure2(results: Results) -> str:
    sentences: Any = results["figure2"].numbers["scores"]
    middle, last = [], []
    for scores in sentences:
        n = len(scores["tokens"])
        middle.append(max(max(row) for row in scores["raw"][3:-1]) * n)
        last.append(max(scores["raw"][-1]) * n)
    expect(min(middle) > 2.5, "raw attention at layers 4 and 5 is far from uniform")
    expect(max(last) < 2, "raw attention of the last layer is closer to uniform")
    tops = _join([_words_at(scores, "raw", 3)[0][0] for scores in sentences])
    return f"""
The paper finds raw attention almost uniform above layer three in all three sentences. Here this
holds only at the last layer, where no token has more than {max(last):.1f} times its uniform share.
At layers 4 and 5 the highest token has {min(middle):.1f} to {max(middle):.1f} times its uniform
share; at layer 4 this is {tops} in (a), (b) and (c). In (c) it is the word that misleads the model.
"""


def comment_figure3(results: Results) -> str:
    first, second, third = results["figure3"].numbers["scores"]
    ranked = [word for word, _ in _words_at(second, "rollout", -1)]
    flows = _words_at(second, "flow", -1)
    tied = [word for word, score in flows if score > flows[0][1] - 1e-3]
    place, n = ranked.index("systems") + 1, len(ranked)
    expect(ranked[0] == "article" and place > 2, "rollout prefers the subject to the attractor")
    expect({"article", "systems"} <= set(tied), "flow has both at the top")
    for method in ("rollout", "flow"):
        expect(_words_at(third, method, -1)[0][0] == "NNS", f"{method} prefers the wrong word")
    spreads = []
    for scores in (first, second, third):
        ranges = (_range(scores, method, -1) for method in ("rollout", "flow"))
        spreads.append(tuple(high - low for low, high in ranges))
    expect(all(flow < rollout for rollout, flow in spreads), "flow is more even than rollout")
    rollout_spreads, flow_spreads = (
        _join([f"{spread[i]:.2f}" for spread in spreads], quote=False) for i in (0, 1)
    )
    return f"""
In (b), the paper's rollout and flow give high weights to both the subject, "article", and the
attractor, "systems". Here flow does: {_join(tied)} tie for the highest score. Rollout ranks the
subject first and the attractor {_ordinal(place)} of {n} words, and the model is correct. For the
sentence that is classified wrongly, the paper's rollout and flow give high scores to "NNS", which
is not the subject and can explain the error. It is the same here: in (c) "NNS" has the highest
rollout, and ties for the highest flow. Also as in the paper, flow is spread over a set of words and
rollout is more focused: the difference between the highest and the lowest word at the last layer is
{rollout_spreads} for rollout and {flow_spreads} for flow.
"""


def comment_figure4(results: Results) -> str:
    first, second = results["figure4"].numbers["cases"]
    agree = [{m: layers[-1] for m, layers in case["agrees"].items()} for case in (first, second)]
    expect(agree[0] == {"raw": False, "rollout": True, "flow": True}, "(a) agrees with the paper")
    expect(agree[1] == {"raw": True, "rollout": True, "flow": False}, "(b) is the other way round")
    john, mary = second["attention"]["flow"][-1]
    expect(0 < mary - john < 0.005, "flow of (b) is nearly even at the last layer")
    raw, flow = first["agrees"]["raw"], second["agrees"]["flow"]
    return f"""
In the paper, raw attention of the last layer contradicts the model in (a), and rollout and flow
agree with it. The same holds here; raw attention agrees at only {sum(raw)} of {len(raw)} layers. In
(b), only flow agrees with the model in the paper. Here raw attention and rollout agree, and flow
agrees at {sum(flow)} of {len(flow)} layers; at the last layer it is nearly even ({john:.3f} and
{mary:.3f}). Most differences are small, and two sentences with a small model are no evidence either
way.
"""


def _words_at(scores: Any, method: str, layer: int) -> list[tuple[str, float]]:
    """Return words with their scores at a layer, highest first, without [CLS]."""
    pairs = zip(scores["tokens"], scores[method][layer], strict=True)
    return sorted((pair for pair in pairs if pair[0] != "[CLS]"), key=lambda pair: -pair[1])


def _range(scores: Any, method: str, layer: int) -> tuple[float, float]:
    """Return the lowest and the highest score of a word at a layer."""
    values = [score for _, score in _words_at(scores, method, layer)]
    return min(values), max(values)


def _join(words: Sequence[str], *, quote: bool = True) -> str:
    """Join words with commas, and "and" before the last."""
    quoted = [f'"{word}"' if quote else word for word in words]
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}" if len(quoted) > 1 else quoted[0]


def _ordinal(n: int) -> str:
    return ("first", "second", "third", "fourth", "fifth", "sixth")[n - 1]
