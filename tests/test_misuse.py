"""Public functions called with arguments of every wrong kind answer with our errors."""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnflow
from attnflow import (
    AttentionGraph,
    Attentions,
    Attribution,
    Explanation,
    convert,
    evaluation,
    figures,
    maxflow,
    models,
)
from attnflow.corpus import Settings, check, open_corpus, run
from attnflow.edges.registry import EDGES
from attnflow.errors import AttnflowError
from attnflow.importance import alti_logit, blank_out, input_gradients, integrated_gradients
from attnflow.methods.registry import METHODS
from tests.models.checkpoints import make_loaded
from tests.study.small_models import make_llama
from tests.viewer.examples import image_explanation

pytestmark = pytest.mark.filterwarnings("ignore")

LONGEST = 3500  # characters of a message
WEIGHTS = np.full((2, 3, 3), 1 / 3)
TOKENS = ["[CLS]", "the", "key"]
ATTENTIONS = Attentions(WEIGHTS[:, None], TOKENS)
GRAPH = AttentionGraph.from_weights(WEIGHTS, tokens=TOKENS)
EXPLANATION = Explanation.from_attentions(ATTENTIONS)
ROLLOUT = attnflow.rollout(GRAPH)
SELECTION_OF_FIGURES = {"layers": None, "normalize": "rows"}
SELECTION = {"layers": None, "positions": None, "normalize": "none"}


def fail(*_given: Any) -> Any:
    return 1 / 0


class Hostile:
    """An object whose methods all raise."""

    __hash__ = None  # type: ignore[assignment]

    def __index__(self) -> int:
        raise OverflowError

    def __bool__(self) -> bool:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError


# One value of every kind that a caller may confuse with the right one.
ODD: dict[str, Any] = {
    "None": None,
    "word": "a",
    "empty text": "",
    "bytes": b"x",
    "fraction": 1.5,
    "nan": math.nan,
    "infinity": math.inf,
    "True": True,
    "-1": -1,
    "99": 99,
    "huge": 10**30,
    "empty list": [],
    "list of None": [None],
    "list of text": ["a"],
    "nested": [[[[1]]]],
    "ragged": [[1, [2]], 3],
    "hostile": Hostile(),
    "iterator": iter([1]),
    "date": np.datetime64("NaT"),
    "decimal": Decimal(1),
    "dict": {"a": 1},
    "set": {1},
    "frozenset": frozenset([0]),
    "range": range(0),
    "slice": slice(0, 1),
    "slice of text": slice("a", None),
    "complex": 1j,
    "object": object(),
    "class": ValueError,
    "function": fail,
    "path": Path("/nonexistent/x"),
    "half a pair": "\ud800",
    "zero byte": "a\0b",
    "long text": "x" * 50_000,
    "array": np.array([0, 1]),
    "array of text": np.array(["a", "b"]),
    "matrix": np.zeros((2, 2)),
    "single": np.array(1),
    "array of objects": np.array([None, {}], dtype=object),
    "NaN array": np.full((2, 3, 3), np.nan),
    "negative array": np.full((2, 3, 3), -1.0),
    "masked array": np.ma.masked_array(WEIGHTS, mask=WEIGHTS > 0),
    "tensor": torch.tensor([0, 1]),
    "tensor without values": torch.zeros(2, device="meta"),
    "sparse tensor": torch.eye(3).to_sparse(),
    "small floats": torch.zeros(2, 3, 3).to(torch.float8_e4m3fn),
}
IMAGE = image_explanation()
PAIRED = np.arange(12.0).reshape(6, 2)
DRAWING = {"caption": True, "width": 6.9, "dark": False, "ax": None}
# The caller's own callback may raise what it wants.
OWN_CODE = {"progress": ["function", "class"], "on_status": ["function", "class"]}

FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Attentions": (Attentions, {"attentions": WEIGHTS[:, None], "tokens": TOKENS}),
    "Attentions.batch": (
        Attentions.batch,
        {"attentions": WEIGHTS[:, None, None], "tokens": [TOKENS], "padding_mask": None},
    ),
    "Attentions.load": (Attentions.load, {"path": "none"}),
    "AttentionGraph.from_attentions": (
        AttentionGraph.from_attentions,
        {"attentions": ATTENTIONS, "heads": "mean", "residual_weight": 0.5, "causal": None},
    ),
    "AttentionGraph.from_weights": (
        AttentionGraph.from_weights,
        {"weights": WEIGHTS, "tokens": TOKENS, "residual_weight": 0.5, "causal": None},
    ),
    "AttentionGraph.from_layers": (
        AttentionGraph.from_layers,
        {"layers": list(WEIGHTS), "tokens": TOKENS, "residual_weight": 0.5},
    ),
    "AttentionGraph.encoder_decoder": (
        AttentionGraph.encoder_decoder,
        {
            **dict.fromkeys(("encoder", "decoder", "cross"), WEIGHTS[:, None]),
            "tokens": [*TOKENS, "a", "b", "c"],
            "heads": "mean",
            "residual_weight": 0.5,
        },
    ),
    "AttentionGraph.example": (AttentionGraph.from_weights(WEIGHTS[None]).example, {"index": 0}),
    "raw_attention": (attnflow.raw_attention, {"graph": GRAPH, **SELECTION}),
    "rollout": (attnflow.rollout, {"graph": GRAPH, **SELECTION}),
    "flow": (attnflow.flow, {"graph": GRAPH, **SELECTION, "threads": 1, "progress": None}),
    "flow_bounds": (
        attnflow.flow_bounds,
        {"graph": GRAPH, "layers": None, "positions": None, "tolerance": 0.1},
    ),
    "flow_path": (attnflow.flow_path, {"graph": GRAPH, "layer": 2, "position": 0, "token": 1}),
    "group_flow": (
        attnflow.group_flow,
        {"graph": GRAPH, "layers": 2, "positions": [[0]], "tokens": [[1]]},
    ),
    "joint_flow": (attnflow.joint_flow, {"graph": GRAPH, **SELECTION, "threads": 1}),
    "saturation": (attnflow.saturation, {"graph": GRAPH, "attribution": attnflow.flow(GRAPH)}),
    "head_rollout": (
        attnflow.head_rollout,
        {"attentions": ATTENTIONS, "layer": 2, "head": 0, "positions": None, "normalize": "none"},
    ),
    "head_flow": (
        attnflow.head_flow,
        {"attentions": ATTENTIONS, "layer": 2, "head": 0, "positions": None, "threads": 1},
    ),
    "normalize_rows": (attnflow.normalize_rows, {"attribution": ROLLOUT}),
    "Attribution.top": (ROLLOUT.top, {"k": 1, "position": 0, "layer": -1}),
    "Attribution.row": (ROLLOUT.row, {"position": 0, "layer": -1}),
    "Attribution.save": (ROLLOUT.save, {"path": "scores.safetensors"}),
    "Attribution.load": (Attribution.load, {"path": "none"}),
    "Explanation.from_graph": (
        Explanation.from_graph,
        {"graph": GRAPH, "position": None, "special": [True, False, False]},
    ),
    "Explanation.from_attentions": (
        Explanation.from_attentions,
        {"attentions": ATTENTIONS, "position": None, "special": None, "heads": "mean"},
    ),
    "Explanation.attribute": (
        EXPLANATION.attribute,
        {"method": "flow", **SELECTION, "words": False, "special": "show", "threads": 1},
    ),
    "Explanation.save": (EXPLANATION.save, {"path": "explanation.safetensors"}),
    "Explanation.load": (Explanation.load, {"path": "none"}),
    "Explanation.to_html": (
        EXPLANATION.to_html,
        {"path": "page.html", "title": None, "keep_heads": "auto", "progress": None},
    ),
    "Explanation.to_html with a view": (
        lambda **view: EXPLANATION.to_html("page.html", **view),
        {"method": "raw", "layer": 1, "normalize": "none", "words": False, "top": 1},
    ),
    "register_method": (
        attnflow.register_method,
        {"name": "raw", "function": fail, "summary": "", "title": ""},  # a name that is taken
    ),
    "register_edges": (
        attnflow.register_edges,
        {"name": "value", "function": fail, "summary": "", "title": ""},
    ),
    "evaluate": (attnflow.evaluate, {"data": "none.txt", "out": "out"}),
    "open_study": (attnflow.open_study, {"out": "none"}),
    "max_flow": (maxflow.max_flow, {"capacities": WEIGHTS, "layer": 2, "source": 0, "sink": 1}),
    "max_flows": (
        maxflow.max_flows,
        {"capacities": WEIGHTS, "layers": None, "sources": None, "threads": 1},
    ),
    "group_flows": (
        maxflow.group_flows,
        {"capacities": WEIGHTS, "layers": [2], "sources": [[0]], "sinks": [[1]], "progress": None},
    ),
    "joint_flow of capacities": (
        maxflow.joint_flow,
        {"capacities": WEIGHTS, "layer": 2, "source": 0, "weights": None},
    ),
    "Attentions.from_layers": (
        Attentions.from_layers,
        {"layers": list(WEIGHTS[:, None]), "tokens": TOKENS, "heads": "mean"},
    ),
    "draw_maps": (
        figures.draw_maps,
        {
            "sources": EXPLANATION,
            "position": 0,
            "methods": ["raw"],
            **SELECTION_OF_FIGURES,
            "words": False,
            "special": "auto",
            "scale": "auto",
            "titles": (),
            **DRAWING,
        },
    ),
    "draw_graph": (
        figures.draw_graph,
        {
            "source": EXPLANATION,
            "methods": ["raw"],
            **SELECTION_OF_FIGURES,
            "words": False,
            "special": "show",
            "highlight": 0,
            "threshold": 0.01,
            "lines": "all",
            **DRAWING,
        },
    ),
    "draw_paths": (
        figures.draw_paths,
        {
            "explanation": EXPLANATION,
            "position": 0,
            "token": 1,
            "layer": 2,
            "methods": ["rollout"],
            "paths": 3,
            "enough": 0.9,
            **DRAWING,
        },
    ),
    "draw_overlay": (
        figures.draw_overlay,
        {
            "explanation": IMAGE,
            "methods": ["raw"],
            "layers": 1,
            "normalize": "rows",
            "scale": "auto",
            "opacity": 0.5,
            **DRAWING,
        },
    ),
    "draw_curves": (
        figures.draw_curves,
        {
            "curves": {"a": [1.0, 0.5]},
            "least": None,
            "baselines": ["random"],
            **DRAWING,
            "caption": "",
        },
    ),
    "draw_critical_difference": (
        figures.draw_critical_difference,
        {"mean_ranks": {"a": 1.0, "b": 2.0}, "n_texts": 5, "difference": 0.5, "caption": ""},
    ),
    "draw_candidates": (figures.draw_candidates, {"cases": [], "methods": ["raw"], **DRAWING}),
    "save a figure": (
        figures.save,
        {"figure": figures.draw_maps(EXPLANATION), "path": "a.svg", "dpi": 50},
    ),
    "render": (
        figures.render,
        {"figure": figures.draw_maps(EXPLANATION), "kind": "svg", "dpi": 50},
    ),
    "to_pandas": (
        convert.to_pandas,
        {"source": EXPLANATION, "method": None, "layers": None, "normalize": None},
    ),
    "to_neuronpedia": (
        convert.to_neuronpedia,
        {
            "source": EXPLANATION,
            "token": 1,
            "position": 0,
            "layer": 2,
            "keep": 0.9,
            "slug": "",
            "scan": "",
        },
    ),
    "kendall": (
        evaluation.kendall,
        {"scores": np.arange(4.0), "others": np.arange(4.0), "tolerance": 0.0},
    ),
    "friedman": (evaluation.friedman, {"values": PAIRED}),
    "holm": (evaluation.holm, {"p": [0.1, 0.2]}),
    "critical_difference": (
        evaluation.critical_difference,
        {"n_explainers": 3, "n_texts": 5, "level": 0.05},
    ),
    "compare_paired": (
        evaluation.compare_paired,
        {"first": PAIRED, "second": PAIRED**2, "resamples": 20, "seed": 0},
    ),
    "bootstrap_intervals": (
        evaluation.bootstrap_intervals,
        {"values": PAIRED, "level": 0.9, "resamples": 20, "seed": 0},
    ),
    "summarize": (evaluation.summarize, {"values": PAIRED}),
    "summarize_groups": (
        evaluation.summarize_groups,
        {"values": PAIRED, "groups": [0, 0, 1, 1, 2, 2]},
    ),
    "spearman": (
        evaluation.spearman,
        {"scores": np.arange(4.0), "others": np.arange(4.0), "ties": "average", "tolerance": 0.0},
    ),
    "rank_correlation": (
        evaluation.rank_correlation,
        {"attention": ROLLOUT, "importance": ROLLOUT},
    ),
    "Settings": (Settings, {name: getattr(Settings(), name) for name in Settings.__match_args__}),
    "open_corpus": (open_corpus, {"out": "none"}),
    "check": (check, {"out": "none"}),
    "run": (
        run,
        {
            "data": "none.txt",
            "out": "out",
            "text_column": None,
            "format": None,
            "input_id": None,
            "shard_size": 10,
            "shards": None,
            "engine": "local",
        },
    ),
}


def call_with(function: Callable[..., Any], arguments: dict[str, Any], name: str, kind: str) -> str:
    """Call a function with one odd argument; returns what is wrong with the answer, if anything."""
    try:
        function(**{**arguments, name: ODD[kind]})
    except AttnflowError as error:
        if not error.given or not (error.expected or error.fix):
            return f"{name}={kind}: no parts"
        if len(str(error)) > LONGEST:
            return f"{name}={kind}: {len(str(error))} characters"
    except Exception as error:
        if kind not in OWN_CODE.get(name, ()):
            return f"{name}={kind}: {type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_odd_arguments_are_our_errors(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for registry in (METHODS, EDGES):  # some of the names are valid
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    called, arguments = FUNCTIONS[function]
    answers = [call_with(called, arguments, name, kind) for name in arguments for kind in ODD]
    assert [answer for answer in answers if answer] == []


MODEL_FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "load_model": (attnflow.load_model, {"model": None, "tokenizer": None}),
    "explain": (
        attnflow.explain,
        {
            "text": "the key",
            "model": None,
            "messages": None,
            "text_pair": None,
            "images": None,
            "generate": None,
            "continuation": None,
            "seed": 0,
            "tokenizer": None,
            "position": None,
            "target": None,
            "against": None,
            "residual_weight": None,
            "heads": "mean",
            "edges": None,
            "truncate": "error",
            "device": None,
            "keep_heads": "auto",
        },
    ),
    "explain embeddings": (
        lambda model, **tensors: attnflow.explain(tensors, model),
        {"model": None, "inputs_embeds": np.zeros((2, 8)), "tokens": ["a", "b"]},
    ),
    "explain with gradients": (
        lambda **options: attnflow.explain("the key", edges="gradient", **options),
        {"model": None, "target": None, "against": None, "residual_weight": None},
    ),
    "explain_image": (
        attnflow.explain_image,
        {"image": np.zeros((8, 8, 3)), "model": "none", "processor": None},
    ),
    "blank_out": (
        blank_out,
        {
            "text": "the key",
            "model": None,
            "target": None,
            "position": None,
            "replacement": None,
            "score": None,
            "batch_size": 8,
            "samples": 1,
            "progress": None,
        },
    ),
    "input_gradients": (input_gradients, {"text": "the key", "model": None, "target": None}),
    "integrated_gradients": (
        integrated_gradients,
        {"text": "the key", "model": None, "steps": 2, "baseline": "pad", "batch_size": 8},
    ),
    "alti_logit": (alti_logit, {"text": "the key", "model": None, "target": None}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "GPT2LMHeadModel"])
@pytest.mark.parametrize("function", MODEL_FUNCTIONS)
def test_odd_arguments_of_model_functions_are_our_errors(function, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    called, arguments = MODEL_FUNCTIONS[function]
    if "model" in arguments and arguments["model"] is None:
        arguments = {**arguments, "model": make_loaded(kind)}
    answers = [call_with(called, arguments, name, odd) for name in arguments for odd in ODD]
    assert [answer for answer in answers if answer] == []


@pytest.mark.slow
def test_odd_arguments_of_captures_are_our_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = make_llama()
    given = {
        "model": loaded.model,
        "inputs": dict(loaded.tokenizer("the key", return_tensors="pt")),
    }
    functions: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (models.capture_attentions, {**given, "tokens": None}),
        (models.capture_contributions, given),
        (
            models.capture_graphs,
            {**given, "tokens": None, "heads": "mean", "storage": None, "kept_heads": None},
        ),
        (models.capture_rollout, {**given, "tokens": None, "positions": -1, "memory": None}),
        (models.Memory, {"device": 1, "host": 1}),
        (models.Storage, {"dtype": "float16", "offload": False}),
    ]
    own = ("dict",)  # the arguments are those of the model, which may raise what it wants
    answers = [
        call_with(*each, name, odd)
        for each in functions
        for name in each[1]
        for odd in ODD
        if not (name == "inputs" and odd in own)
    ]
    assert [answer for answer in answers if answer] == []


@pytest.mark.slow
def test_odd_parts_of_an_answer_are_our_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explanation = attnflow.explain("the key is", make_llama(), continuation="is here to")
    assert explanation.answer is not None
    functions: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (explanation.attribute, {"method": "rollout", "answer": None, "units": None}),
        (explanation.attribute, {"method": "flow", "positions": None, "units": "words"}),
        (explanation.answer.rows, {"parts": None}),
        (explanation.find_units, {"units": None}),
        (explanation.chain, {"layer": -1, "output_span": None, "reasoning_span": None}),
        (explanation.to_html, {"path": "page.html", "answer": None, "units": "words"}),
        (explanation.faithfulness, {"method": "rollout", "replacement": None, "words": False}),
    ]
    answers = [call_with(*each, name, odd) for each in functions for name in each[1] for odd in ODD]
    assert [answer for answer in answers if answer] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    ["num_beams", "temperature", "eos_token_id", "generation_config", "streamer", "max_length"],
)
def test_odd_options_of_generation_are_our_errors(option):
    def generate(value: Any) -> None:
        options = {"max_new_tokens": 2, option: value}
        json.dumps(attnflow.explain("the key", model, generate=options).answer.settings)  # type: ignore[union-attr]

    model = make_llama()
    answers = [call_with(generate, {}, "value", odd) for odd in ODD if odd != "99"]
    assert [answer for answer in answers if answer] == []


def test_a_function_of_heads_that_fails_is_an_error_with_its_reason():
    with pytest.raises(attnflow.InputError) as caught:
        AttentionGraph.from_attentions(ATTENTIONS, heads=fail)
    assert "ZeroDivisionError" in caught.value.given
    assert "layer 1" in caught.value.given
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "layers", [np.array([2, 1]), torch.tensor([2, 1]), (2, 1), range(2, 0, -1)]
)
def test_layers_and_positions_may_be_arrays(layers):
    positions: Any = np.array([2, 0])
    result = EXPLANATION.rollout(layers=layers, positions=positions)
    assert (result.layers, result.positions) == ((2, 1), (2, 0))
