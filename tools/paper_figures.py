"""The comments of docs/paper.md on the figures; see tools/paper_tables.py."""

from collections.abc import Sequence
from typing import Any

from tools.paper_claims import Results, expect


def comment_figure1(results: Results) -> str:
    scores: Any = results["figure1"].numbers["scores"]
    most = [_words_at(scores, "raw", layer)[0] for layer in range(len(scores["raw"]))]
    on_subject = [word for word, _ in most].index(next(w for w, _ in most if w != "keys"))
    [even] = [max(row) * len(row) for row in scores["raw"][on_subject:-1]]
    rollouts = [_words_at(scores, "rollout", layer)[0] for layer in range(len(most))]
    flows = _words_at(scores, "flow", -1)
    tied = [word for word, flow in flows if flow > 0.99 * flows[0][1]]
    own = [row[0] for row in scores["rollout"]]
    expect(own[-1] < own[0] / 2, "the residual connection fades")
    expect(on_subject == 4 and even < 1.5, "raw attention leaves the subject, and is even")
    expect({word for word, _ in rollouts} == {"keys"}, "rollout is highest for the subject")
    expect(tied[0] == "keys" and len(tied) == 3, "flow ties at the last layer")
    return f"""
As in the paper, raw attention loses the subject with depth. Up to layer {on_subject}, [CLS] attends
most to "keys" ({most[0][1]:.2f} at layer 1); at layer {on_subject + 1} no token has more than
{even:.1f} times its uniform share, and at the last layer most goes to "{most[-1][0]}"
({most[-1][1]:.2f}), which says nothing about the answer. Rollout is highest for the subject at
every layer ({rollouts[-1][1]:.2f} at the last). The residual connection fades: [CLS] has
{own[0]:.0%} of its own rollout at layer 1 and {own[-1]:.0%} at the last. What differs: flow is
highest for the subject, but at the last layer {_join(tied)} are within 1%.
"""


def comment_figure2(results: Results) -> str:
    sentences: Any = results["figure2"].numbers["scores"]
    shares = [[max(row[1:]) * len(row) for row in scores["raw"]] for scores in sentences]
    low, *high = (max(rows[part]) for rows, part in zip(shares, [slice(4, None)] * 3, strict=True))
    deep = [{_words_at(scores, "raw", layer)[0][0] for layer in (3, 4, 5)} for scores in sentences]
    expect(low < 2 < min(high), "raw attention is nearly uniform in (a) only")
    expect("article" in deep[1], "in (b) it stays on the subject")
    expect(deep[2] == {"that"}, "in (c) it is on the word after the subject")
    return f"""
The paper finds raw attention almost uniform above layer three. Here that is so in (a) from layer 5
on, where no word has more than {low:.1f} times its uniform share. In (b) and (c) a word has up to
{_join([f"{share:.1f}" for share in high], quote=False)} times its share there: in (b) the subject,
"article", and the attractor, "systems"; in (c) "that", which follows the noun.
"""


def comment_figure3(results: Results) -> str:
    first, second, third = results["figure3"].numbers["scores"]
    right = [word for word, _ in _words_at(second, "rollout", -1)[:2]]
    expect(right == ["article", "systems"], "rollout has subject and attractor highest")
    wrong = [word for word, _ in _words_at(third, "rollout", -1)[:2]]
    expect(wrong == ["songs", "that"], "rollout prefers the wrong noun")
    spreads = []
    for scores in (first, second, third):
        ranges = (_range(scores, method, -1) for method in ("rollout", "flow"))
        spreads.append(tuple(high - low for low, high in ranges))
    expect(_words_at(first, "flow", 2)[0][0] == "keys", "flow of layer 3 is on the subject")
    expect(all(flow < rollout for rollout, flow in spreads), "flow is more even than rollout")
    rollout_spreads, flow_spreads = (
        _join([f"{spread[i]:.2f}" for spread in spreads], quote=False) for i in (0, 1)
    )
    return f"""
As in the paper, rollout and flow of (b) give the highest weights to the subject and to the
attractor, {_join(right)}, and in (c), which is classified wrongly, to {_join(wrong)}: a noun that
is not the subject, and the word after it. Also as in the paper, flow is spread over a set of words
and rollout is more focused: the difference between the highest and the lowest word at the last
layer is {rollout_spreads} for rollout and {flow_spreads} for flow.
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
agree with it. The same holds here; raw attention agrees at only {sum(raw)} of {len(raw)} layers.
In (b), only flow agrees with the model in the paper. Here raw attention and rollout agree, and
flow agrees at {sum(flow)} of {len(flow)} layers; at the last layer it is nearly even ({john:.3f}
and {mary:.3f}). Most differences are small, and two sentences with a small model are no evidence
either way.
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
