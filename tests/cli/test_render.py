"""Explanations and attributions as text, in tables, JSON and CSV."""

import csv
import io
import json

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from attnflow import AttentionGraph, Attribution, Explanation, rollout
from attnflow.cli.render import (
    print_attribution,
    print_explanation,
    printable,
    shade,
    to_csv,
    to_json,
)
from tests.weights import random_attention

SMALL = Attribution(
    np.asarray([[[0.5, 0.25, 0.25]], [[0.125, 0.75, 0.125]]]),
    ("[CLS]", "key", "is"),
    "rollout",
    (1, 2),
    (0,),
    settings={"heads": "mean", "normalize": "none"},
)


def printed(attribution, top=None, width=80, **options):
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, **options)
    print_attribution(attribution, top, console)
    return text.getvalue()


def test_one_position_has_scores_under_its_tokens():
    assert [line.rstrip() for line in printed(SMALL).splitlines()] == [
        "",
        "Attention rollout, layers 1 to 2",
        "heads: mean · not normalized",
        "         [CLS] key  is",
        "layer 1  0.50  0.25 0.25",
        "layer 2  0.12  0.75 0.12",
        "top tokens at layer 2: key 0.750, [CLS] 0.125, is 0.125",
    ]


def test_top_limits_the_list_of_best_tokens():
    assert printed(SMALL, top=1).splitlines()[-1] == "top tokens at layer 2: key 0.750"


def test_many_positions_have_their_best_tokens_in_a_table_per_layer():
    both = rollout(AttentionGraph.from_weights([np.eye(2), np.eye(2)], tokens=["a", "b"]))
    assert [line.rstrip() for line in printed(both).splitlines()[3:]] == [
        "layer 1",
        "  position token score token score",
        "0 a        a     1.000 b     0.000",
        "1 b        b     1.000 a     0.000",
        "layer 2",
        "  position token score token score",
        "0 a        a     1.000 b     0.000",
        "1 b        b     1.000 a     0.000",
    ]


@pytest.mark.parametrize("positions", [0, None])
@pytest.mark.parametrize("long_tokens", [False, True])
def test_a_large_model_stays_within_80_columns(positions, long_tokens):
    tokens = [f"token-{i}-" + "😀" * 20 for i in range(128)] if long_tokens else None
    graph = AttentionGraph.from_weights(random_attention(24, 128, 128), tokens=tokens)
    text = printed(rollout(graph, positions=positions))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    if positions == 0:
        assert "of 24 layers." in text
        assert "Top 20 of 128 tokens" in text
        assert text.splitlines()[3].split()[-1] == "24"  # the last layer is always there
        assert len(text.splitlines()) < 30
    else:
        assert "of 128 tokens for each position" in text
    assert "…" in text or not long_tokens


def noted(scores, *, color=None, **options):
    """The text of flows [layers, tokens] to four tokens, as those of an explanation."""
    scores = np.asarray(scores)
    graph = AttentionGraph.from_weights(random_attention(len(scores), 4, 4))
    layers = tuple(range(1, len(scores) + 1))
    attribution = Attribution(scores[:, None], graph.tokens, "flow", layers, (0,), **options)
    console = Console(
        file=io.StringIO(),
        width=200,
        highlight=False,
        force_terminal=bool(color),
        color_system=color,
    )
    print_explanation(Explanation.from_graph(graph), [attribution], console=console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_flows_that_tie_are_pointed_out():
    text = noted([[0.1, 0.2, 0.3, 0.4], [1.0, 1.0, 1.0, 0.25]])
    assert "note (layer 2): 3 of 4 tokens" in text
    assert "note" not in noted([[1.0, 1.0, 1.0, 0.25], [0.1, 0.2, 0.3, 0.4]])


def test_notes_are_part_of_the_json():
    tied = np.asarray([[[0.1, 0.2, 0.4]], [[1.0, 1.0, 1.0]]])
    attribution = Attribution(tied, SMALL.tokens, "flow", (1, 2), (0,))
    [result] = json.loads(to_json(EXPLANATION, [attribution]))["attributions"]
    [note] = result["notes"]
    assert (note["layer"], note["position"]) == (2, 0)
    assert any("3 of 3 tokens" in text for text in note["notes"])


def test_flat_scores_have_contrast_and_the_range_is_told():
    text = noted([[0.5, 0.6, 0.62, 0.68]], color="truecolor")
    assert "colors: 0.5 to 0.68" in text
    assert "48;2;8;69;148m0.68" in text  # the darkest color
    assert "48;2;211;224;239m0.50" in text  # light, but not as light as 0
    text = noted([[0.0, 0.1, 0.2, 0.4]], color="truecolor")
    assert "colors: 0 to 0.4" in text
    both = noted([[0.5, 0.6, 0.62, 0.68], [0.8, 0.9, 0.9, 1.0]], color="truecolor")
    assert "each layer from its lowest to its highest" in both


def test_colors_only_where_they_are_wanted():
    assert "\x1b" not in printed(SMALL)
    assert "48;2;" in printed(SMALL, force_terminal=True, color_system="truecolor")
    assert shade(1.0, 0.0, 1.0) == "rgb(255,255,255) on rgb(8,69,148)"
    assert shade(0.0, 0.0, 1.0) == "rgb(0,0,0) on rgb(247,251,255)"


@pytest.mark.parametrize(
    ("token", "shown"),
    [("", '""'), ("a\nb", "a\\nb"), ("\x1b[31m", "\\x1b[31m"), ("\u202ex", "\\u202ex"), ("é", "é")],
)
def test_tokens_cannot_control_the_terminal(token, shown):
    assert printable(token) == shown
    attribution = Attribution(np.ones((1, 1, 1)), (token,), "flow", (1,), (0,))
    text = printed(attribution)
    assert shown in text
    assert "\x1b" not in text


EXPLANATION = Explanation.from_graph(
    AttentionGraph.from_weights(random_attention(2, 3, 3), tokens=SMALL.tokens), text="key is"
)


def test_json_is_complete():
    result = json.loads(to_json(EXPLANATION, [SMALL]))
    assert (result["text"], result["position"], result["prediction"]) == ("key is", 0, None)
    assert result["tokens"] == ["[CLS]", "key", "is"]
    assert result["attributions"] == [
        {
            "method": "rollout",
            "settings": {"heads": "mean", "normalize": "none"},
            "tokens": ["[CLS]", "key", "is"],
            "pieces": ["[CLS]", "key", "is"],
            "layers": [1, 2],
            "positions": [0],
            "rows": [],
            "columns": [0, 1, 2],
            "offsets": None,
            "scores": [[[0.5, 0.25, 0.25]], [[0.125, 0.75, 0.125]]],
            "notes": [],
        }
    ]


def test_json_with_top_has_the_best_only():
    [result] = json.loads(to_json(EXPLANATION, [SMALL], 1))["attributions"]
    assert "scores" not in result
    assert [(r["layer"], r["token"], r["score"]) for r in result["top"]] == [
        (1, "[CLS]", 0.5),
        (2, "key", 0.75),
    ]


def test_csv_is_complete_and_quotes_tokens():
    tokens = ('say "a,b"', "line\nbreak", "")
    attribution = Attribution(SMALL.scores, tokens, "rollout", (1, 2), (0,))
    rows = list(csv.DictReader(io.StringIO(to_csv([attribution]))))
    assert len(rows) == 6
    assert rows[4] == {
        "method": "rollout",
        "layer": "2",
        "position": "0",
        "position_token": 'say "a,b"',
        "index": "1",
        "token": "line\nbreak",
        "piece": "line\nbreak",
        "start": "",
        "end": "",
        "score": "0.75",
    }
    assert len(list(csv.DictReader(io.StringIO(to_csv([attribution], 1))))) == 2


def test_an_explanation_without_a_model_names_its_position_only():
    text = io.StringIO()
    print_explanation(EXPLANATION, [], console=Console(file=text, width=80, highlight=False))
    assert text.getvalue() == "explained position: 0 [CLS] (of 3 tokens)\n"


def strip_of(tokens, scores, **options):
    console = Console(file=io.StringIO(), highlight=False, width=80, **options)
    layers = tuple(range(1, len(scores) + 1))
    attribution = Attribution(np.asarray(scores)[:, None], tokens, "flow", layers, (0,))
    print_attribution(attribution, 2, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_strip_wraps_at_the_width_of_the_terminal():
    tokens = tuple(f"token{i}" for i in range(40))
    text = strip_of(tokens, np.linspace(0, 1, 80).reshape(2, 40))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    shown = [word for line in text.splitlines() for word in line.split() if word in tokens]
    assert tuple(shown[:40]) == tokens
    assert text.count("layer 1 ") == 5  # eight tokens a block


def test_a_strip_is_shaded_where_there_is_color():
    text = strip_of(("a", "b"), [[0.0, 1.0]], force_terminal=True, color_system="truecolor")
    assert "\x1b[38;2;0;0;0;48;2;247;251;255m0.00" in text
    assert "\x1b[38;2;255;255;255;48;2;8;69;148m1.00" in text


def test_long_strange_and_backward_tokens_stay_in_their_cells():
    text = strip_of(("a" * 30, "x\ny\x1b", "שלום", "😀"), [[0.25] * 4])
    header, row = text.splitlines()[2:4]
    assert "aaaaaaaaaaaaa… x\\ny\\x1b שלום\u200e 😀" in header
    assert "\x1b" not in text
    assert cell_len(header.rstrip()) <= cell_len(row.rstrip())


def test_negative_scores_stay_under_their_tokens():
    header, row = strip_of(("a", "b", "c"), [[0.5, -0.25, 0.0]]).splitlines()[2:4]
    assert header.rstrip() == "         a     b     c"
    assert row.rstrip() == "layer 1  0.50  -0.25 0.00"


def test_equal_tokens_are_told_apart_by_their_positions():
    attribution = Attribution(
        np.asarray([[[0.5, 0.1, 0.4]]]), ("the", "key", "the"), "rollout", (1,), (0,)
    )
    assert "the (0) 0.500, the (2) 0.400, key 0.100" in printed(attribution, 3)
