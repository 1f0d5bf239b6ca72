"""Files of explanations: one safetensors file with arrays and a JSON header.

`Explanation.save` and `Explanation.load` call the functions here. `attnflow.storage` reads and
writes the file itself.
"""

from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from typing import Any

import numpy as np

from attnflow import storage
from attnflow.attentions import Attentions
from attnflow.attribution import read_offsets
from attnflow.errors import FileError, first_line
from attnflow.explanation import Explanation, ImageGrid
from attnflow.graph import AttentionGraph
from attnflow.predictions import Answer, Outcome, Prediction, Segment
from attnflow.units import Units

KIND = "explanation"


def write_explanation(path: str | PathLike[str], explanation: Explanation) -> None:
    """Write an explanation whose arrays are NumPy's to a file."""
    arrays, header = _pack(explanation)
    storage.write(path, kind=KIND, arrays=arrays, header=header)


def read_explanation(path: str | PathLike[str]) -> Explanation:
    """Read a file written by `write_explanation`.

    Raises FileError if the file has another format.
    """
    arrays, header = storage.read(path, kind=KIND)
    try:
        _check_labels(header, arrays["weights"].shape)
        return _unpack(arrays, header)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError) as error:
        raise FileError(
            f"{path} is not a complete explanation ({type(error).__name__}: {first_line(error)})",
            expected="a file written by Explanation.save",
            fix="Save it again.",
        ) from error


def _pack(explanation: Explanation) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the JSON header of a file."""
    graph, image = explanation.graph, explanation.image
    arrays = {"weights": graph.weights, "attention": graph.attention}
    optional = {"carried": graph.carried, "receptive_field": graph.receptive_field}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    if explanation.heads is not None:
        arrays |= {f"heads.{i}": layer for i, layer in enumerate(explanation.heads.layers)}
    if image is not None:
        arrays["image"] = np.frombuffer(image.png, dtype=np.uint8)
    header = {
        "text": explanation.text,
        "tokens": explanation.tokens,
        "special": explanation.special,
        "words": asdict(explanation.words),
        "position": explanation.position,
        "prediction": explanation.prediction and asdict(explanation.prediction),
        "model": explanation.model,
        "offsets": explanation.offsets,
        "answer": explanation.answer and asdict(explanation.answer),
        "segments": [asdict(segment) for segment in explanation.segments],
        "positions": explanation.positions,
        "graph": {
            "tokens": graph.tokens,
            "residual_weights": graph.residual_weights,
            "causal": graph.causal,
            "widths": graph.widths,
            "settings": dict(graph.settings),
        },
        "image": image and {key: value for key, value in vars(image).items() if key != "png"},
    }
    return arrays, header


def _check_labels(header: Mapping[str, Any], shape: tuple[int, ...]) -> None:
    """Raise TypeError or ValueError for labels of other types, or for other numbers of tokens.

    shape: of the weights, [layers, tokens, tokens].
    """
    n, words, graph = shape[-1], header["words"], header["graph"]
    types: dict[str, tuple[Any, type]] = {
        "text": (header["text"], str),
        "model": (header["model"], str),
        "position": (header["position"], int),
        "settings": (graph["settings"], dict),
        "causal": (graph["causal"], bool),
    }
    for name in ("prediction", "image"):
        types[name] = ({} if header[name] is None else header[name], dict)
    wrong = [name for name, (value, kind) in types.items() if type(value) is not kind]
    lists: dict[str, tuple[Any, type]] = {
        "tokens": (header["tokens"], str),
        "tokens of the graph": (graph["tokens"], str),
        "special tokens": (header["special"], bool),
        "words": (words["texts"], str),
        "special words": (words["special"], bool),
        "widths": (graph["widths"], int),
        "positions": (header.get("positions", []), int),
    }
    for name, (values, kind) in lists.items():
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            wrong.append(name)
    if wrong:
        raise TypeError(f"{', '.join(wrong)} of another type")
    members = sorted(i for group in words["groups"] for i in group)
    sizes = [len(header["tokens"]), len(graph["tokens"]), len(header["special"])]
    sizes.append(n if header["offsets"] is None else len(header["offsets"]))
    inside = all(0 <= i < n for i in (header["position"], *header.get("positions", [])))
    is_complete = len(words["texts"]) == len(words["groups"]) == len(words["special"])
    if sizes != [n] * 4 or members != list(range(n)) or not (inside and is_complete):
        raise ValueError(f"labels of other than {n} tokens")


def _unpack(arrays: Mapping[str, Any], header: Mapping[str, Any]) -> Explanation:
    labels = header["graph"]
    graph = AttentionGraph(
        weights=arrays["weights"],
        attention=arrays["attention"],
        tokens=tuple(labels["tokens"]),
        residual_weights=labels["residual_weights"] and tuple(labels["residual_weights"]),
        causal=labels["causal"],
        widths=tuple(labels["widths"]),
        carried=arrays.get("carried"),
        receptive_field=arrays.get("receptive_field"),
        settings=labels["settings"],
    )
    layers = [
        arrays[f"heads.{i}"] for i in range(sum(name.startswith("heads.") for name in arrays))
    ]
    prediction, image, words = header["prediction"], header["image"], header["words"]
    return Explanation(
        text=header["text"],
        tokens=tuple(header["tokens"]),
        special=tuple(header["special"]),
        words=Units(
            tuple(words["texts"]),
            tuple(tuple(group) for group in words["groups"]),
            tuple(words["special"]),
        ),
        position=header["position"],
        prediction=None if prediction is None else _read_prediction(prediction),
        graph=graph,
        image=image and ImageGrid(png=bytes(arrays["image"]), **image),
        heads=Attentions(layers, graph.tokens) if layers else None,
        model=header["model"],
        offsets=read_offsets(header["offsets"]),
        answer=_read_answer(header.get("answer")),
        segments=tuple(Segment(**segment) for segment in header.get("segments", ())),
        positions=tuple(header.get("positions", ())),
    )


def _read_prediction(values: Mapping[str, Any]) -> Prediction:
    top = tuple(Outcome(**outcome) for outcome in values["top"])
    return Prediction(values["kind"], top, Outcome(**values["target"]))


def _read_answer(values: Mapping[str, Any] | None) -> Answer | None:
    if values is None:
        return None
    offsets = read_offsets(values["offsets"])
    assert offsets is not None
    return Answer(
        text=values["text"],
        first=values["first"],
        start=values["start"],
        steps=tuple(_read_prediction(step) for step in values["steps"]),
        offsets=offsets,
        special=tuple(values["special"]),
        settings=values["settings"],
    )
