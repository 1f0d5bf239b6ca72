"""The comments of docs/paper.md on the figures; see tools/paper_tables.py."""

from collections.abc import Sequence
from typing import Any

from tools.paper_claims import Results, expect


def comment_figure1(results: Results) -> str:
    scores: Any = results["figure1"].numbers["scores"]
    first, share = _words_at(scores, "raw", 0)[0]
    links = [_words_at(scores, "raw", layer)[0] for layer in range(1, len(scores["raw"]))]
    subject, rollout = _words_at(scores, "rollout", -1)[0]
    early = [_words_at(scores, "flow", layer)[0][0] for layer in range(3)]
    flows = _words_at(scores, "flow", -1)
    tied = [word for word, flow in flows if flow == flows[0][1]]
    own = [row[0] for row in scores["rollout"]]
    expect(own[-1] < own[0] / 2, "the residual connection fades")
    expect(first == "keys" and share > 0.5, "layer 1 attends to the subject")
    expect({link for link, _ in links} == {"to"}, "later layers attend to another word")
    expect(subject == "keys" and subject in tied, "rollout and flow are highest for the subject")
    expect({*early} == {"keys"} and len(tied) == 2, "flow is on the subject until layer 3")
    return f"""
As in the paper, raw attention does not show where the answer comes from, except at the first layer,
where [CLS] attends to the subject, "{first}" ({share:.2f}). At every later layer it attends most to
"{links[0][0]}" ({links[-1][1]:.2f} at the last), which has collected the subject at layer 1 (the
thick line between them). Rollout of the last layer is highest for the subject ({rollout:.2f}). The
residual connection fades: [CLS] has {own[0]:.0%} of its own rollout at layer 1 and {own[-1]:.0%} at
the last. What differs: flow is highest for the subject until layer 3; at the last layer
{_join(tied)} tie.
"""


def comment_figure2(results: Results) -> str:
    sentences: Any = results["figure2"].numbers["scores"]
    shares = [[max(row) * len(scores["tokens"]) for row in scores["raw"]] for scores in sentences]
    low, high = (max(max(rows[part]) for rows in shares) for part in (slice(3), slice(3, None)))
    deep = [_words_at(scores, "raw", 3)[0][0] for scores in sentences]
    expect(1.5 < high < low, "raw attention is not uniform above layer 3")
    expect(deep == ["to", "on", "which"], "it is on the words after the subject")
    return f"""
The paper finds raw attention almost uniform above layer three. Here it is not: up to layer 3, a
token has up to {low:.1f} times its uniform share, above it up to {high:.1f} times. The words with
the most attention at layer 4, {_join(deep)}, are not what the answer depends on: they follow the
subject, and have collected it.
"""


def comment_figure3(results: Results) -> str:
    first, second, third = results["figure3"].numbers["scores"]
    ranked = [word for word, _ in _words_at(second, "rollout", -1)]
    expect({"article", "systems"} <= set(ranked[:3]), "rollout has subject and attractor high")
    wrong = [word for word, _ in _words_at(third, "rollout", -1)[:2]]
    expect(wrong == ["which", "flowers"], "rollout prefers the wrong noun")
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
As in the paper, rollout and flow of (b) give high weights to the subject, "article", and to the
attractor, "systems" ("{ranked[0]}" has the highest rollout), and in (c), which is classified
wrongly, to {_join(wrong)}, a noun that is not the subject. Also as in the paper, flow is spread
over a set of words and rollout is more focused: the difference between the highest and the lowest
word at the last layer is {rollout_spreads} for rollout and {flow_spreads} for flow.
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
