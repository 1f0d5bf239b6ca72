"""What all converters share: lazy imports, missing packages, and what they refuse."""

import subprocess
import sys

import numpy as np
import pytest

from attnflow import (
    AttentionGraph,
    Attribution,
    Explanation,
    InputError,
    MissingDependencyError,
    convert,
)
from attnflow.convert.source import compute_scores, one_layer, prompt_columns, read_ids
from attnflow.errors import SelectionError, ShapeError
from tests.refusal import refusal

# The package that each converter cannot do without, and the extra that installs it.
NEEDS = {
    "to_bertviz": ("torch", "models"),
    "to_captum": ("captum", "captum"),
    "to_inseq": ("inseq", "inseq"),
    "to_interpreto": ("interpreto", "interpreto"),
    "to_pandas": ("pandas", "pandas"),
    "to_polars": ("polars", "polars"),
    "to_xarray": ("xarray", "xarray"),
}


@pytest.fixture
def explanation():
    weights = [[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]] * 3
    graph = AttentionGraph.from_weights(weights, tokens=["a", "b", "c"])
    return Explanation.from_graph(graph, text="a b c")


def test_importing_the_package_loads_nothing_heavy():
    code = "import attnflow.convert, sys; dir(attnflow.convert); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "torch", "transformers", "captum", "inseq", "pandas", "polars"}
    assert not heavy & set(done.stdout.split())


def test_every_name_is_there():
    for name in dir(convert):
        assert getattr(convert, name).__name__ == name
    with pytest.raises(AttributeError, match="to_nowhere"):
        _ = convert.to_nowhere


@pytest.mark.parametrize("name", NEEDS)
def test_a_missing_package_is_named_with_its_extra(name, explanation, monkeypatch):
    package, extra = NEEDS[name]
    loaded = [key for key in sys.modules if key == package or key.startswith(f"{package}.")]
    converter = getattr(convert, name)
    for key in {package, *loaded}:
        monkeypatch.setitem(sys.modules, key, None)
    with refusal(MissingDependencyError, package, f"pip install 'attnflow[{extra}]'"):
        converter(explanation)


def test_what_is_neither_an_explanation_nor_an_attribution_is_refused():
    with refusal(InputError, "int"):
        convert.to_pandas(3)  # type: ignore[arg-type]


def test_scores_of_an_explanation_are_those_of_the_method(explanation):
    scores = compute_scores(explanation, method="flow", layers=2, normalize="rows")
    np.testing.assert_array_equal(
        scores.scores, explanation.flow(layers=2, normalize="rows").scores
    )
    assert compute_scores(explanation, method=None, layers=-1, normalize=None).method == "rollout"
    with refusal(SelectionError, "shapley"):
        compute_scores(explanation, method="shapley", layers=-1, normalize=None)


def test_layers_of_an_attribution_are_selected(explanation):
    attribution = explanation.rollout(layers=[1, 3], positions=[2, 0])
    chosen = compute_scores(attribution, method=None, layers=3, normalize=None)
    assert chosen.layers == (3,)
    np.testing.assert_array_equal(one_layer(chosen), attribution.scores[1])
    swapped = compute_scores(attribution, method=None, layers=[-1, 1], normalize=None)
    assert swapped.layers == (3, 1)
    with refusal(SelectionError, 2):
        compute_scores(attribution, method=None, layers=2, normalize=None)


def test_what_an_attribution_cannot_do_is_refused(explanation):
    attribution = explanation.rollout()
    with refusal(InputError, "method", "flow"):
        compute_scores(attribution, method="flow", layers=-1, normalize=None)
    with refusal(InputError, "normalize", "rows"):
        compute_scores(attribution, method=None, layers=-1, normalize="rows")
    batch = Attribution(np.ones((2, 1, 1, 1)), ("a",), "raw", (1,), (0,))
    with refusal(ShapeError, "[2, 1, 1, 1]"):
        compute_scores(batch, method=None, layers=-1, normalize=None)


def test_the_prompt_is_what_top_ranks():
    scores, settings = np.ones((1, 1, 3)), {"unranked": [1, 2]}
    attribution = Attribution(scores, ("a", "b", "c"), "raw", (1,), (0,), settings=settings)
    assert prompt_columns(attribution) == [0]


def test_attention_weights_have_no_ids(explanation):
    assert read_ids(explanation) is None
