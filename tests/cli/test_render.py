import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from attnflow import AttentionGraph, Attribution, rollout
from attnflow.cli.render import heat_cell, print_tables, show_token, to_csv, to_json
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
    print_tables(attribution, top, Console(file=text, width=width, highlight=False, **options))
    return text.getvalue()


def test_one_position_has_tokens_as_rows_and_layers_as_columns():
    assert printed(SMALL).splitlines() == [
        "rollout, layers 1 to 2, position 0 [CLS]",
        "heads mean",
        "  token     1     2",
        "0 [CLS] 0.500 0.125",
        "1 key   0.250 0.750",
        "2 is    0.250 0.125",
    ]


def test_top_shows_the_best_at_the_last_layer_and_says_so():
    assert printed(SMALL, top=1).splitlines()[2:] == [
        "  token     1     2",
        "1 key   0.250 0.750",
        "1 of 3 tokens shown, by their score at layer 2. --top 3 shows all.",
    ]


def test_many_positions_have_their_best_tokens_in_a_table_per_layer():
    both = rollout(AttentionGraph.from_weights([np.eye(2), np.eye(2)], tokens=["a", "b"]))
    assert [line.rstrip() for line in printed(both).splitlines()[2:]] == [
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
        assert "of 24 layers shown. --layer N shows one, --format csv has all." in text
        assert "20 of 128 tokens shown" in text
        assert text.splitlines()[2].split()[-1] == "24"  # the last layer is always there
        assert len(text.splitlines()) < 30
    else:
        assert "of 128 tokens shown for each position. --format csv has all." in text
    assert "…" in text or not long_tokens


def test_flows_that_tie_are_pointed_out():
    tied = replace(SMALL, method="flow", settings={"saturated": {"1": 0.0, "2": 0.67}})
    text = " ".join(printed(tied).split())
    assert "At layer 2, 67% of the flows are all that can leave the position" in text
    assert "saturated" not in text  # the setting itself is left to JSON
    few = replace(SMALL, method="flow", settings={"saturated": {"2": 0.2}})
    assert "At layer" not in printed(few)


def test_colors_only_where_they_are_wanted():
    assert "\x1b" not in printed(SMALL)
    assert "48;2;" in printed(SMALL, force_terminal=True, color_system="truecolor")
    assert heat_cell(1.0, 1.0).style == "rgb(255,255,255) on rgb(8,69,148)"
    assert heat_cell(0.0, 1.0).style == "rgb(0,0,0) on rgb(247,251,255)"


@pytest.mark.parametrize(
    ("token", "shown"),
    [("", '""'), ("a\nb", "a\\nb"), ("\x1b[31m", "\\x1b[31m"), ("\u202ex", "\\u202ex"), ("é", "é")],
)
def test_tokens_cannot_control_the_terminal(token, shown):
    assert show_token(token) == shown
    attribution = Attribution(np.ones((1, 1, 1)), (token,), "flow", (1,), (0,))
    text = printed(attribution)
    assert shown in text
    assert "\x1b" not in text


def test_json_is_complete():
    result = json.loads(to_json(SMALL, None))
    assert result == {
        "method": "rollout",
        "settings": {"heads": "mean", "normalize": "none"},
        "tokens": ["[CLS]", "key", "is"],
        "layers": [1, 2],
        "positions": [0],
        "scores": [[[0.5, 0.25, 0.25]], [[0.125, 0.75, 0.125]]],
    }


def test_json_with_top_has_the_best_only():
    result = json.loads(to_json(SMALL, 1))
    assert "scores" not in result
    assert [(r["layer"], r["token"], r["score"]) for r in result["top"]] == [
        (1, "[CLS]", 0.5),
        (2, "key", 0.75),
    ]


def test_csv_is_complete_and_quotes_tokens():
    tokens = ('say "a,b"', "line\nbreak", "")
    attribution = Attribution(SMALL.scores, tokens, "rollout", (1, 2), (0,))
    rows = list(csv.DictReader(io.StringIO(to_csv(attribution, None))))
    assert len(rows) == 6
    assert rows[4] == {
        "layer": "2",
        "position": "0",
        "position_token": 'say "a,b"',
        "index": "1",
        "token": "line\nbreak",
        "score": "0.75",
    }
    assert len(list(csv.DictReader(io.StringIO(to_csv(attribution, 1))))) == 2
