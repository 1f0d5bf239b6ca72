"""Tiny models in folders, examples, and a comparison with `explain` of each example."""

from typing import Any

import numpy as np
import torch
import transformers

from attnflow import explain
from attnflow.corpus.example import Example, Scored
from tests.models.checkpoints import VOCABULARY, make_tokenizer, save

TEXTS = (
    "the key to the cabinets is here",
    "the key",
    "cabinets are here",
    "here",
    "the cabinets to the key are the key to the cabinets here",
    "to the key the cabinets are",
)


def examples(texts=TEXTS, first: int = 0) -> list[Example]:
    return [Example(first + i, f"id {first + i}", text) for i, text in enumerate(texts)]


def save_t5(folder) -> str:
    """A random encoder-decoder of two layers."""
    torch.manual_seed(0)
    kind: Any = transformers.T5Config
    config = kind(
        vocab_size=len(VOCABULARY),
        d_model=8,
        d_kv=4,
        d_ff=16,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    transformers.T5ForConditionalGeneration(config).eval().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def save_model(folder, kind: str) -> str:
    """Save a random model. kind: "T5" or the name of a class."""
    return save_t5(folder) if kind == "T5" else save(folder, kind)


def compare_with_explain(scorer, results, **options) -> float:
    """Compare each result with `explain`; returns the largest difference of a score."""
    settings, worst = scorer.settings, 0.0
    assert results
    for result in results:
        assert isinstance(result, Scored), result
        expected = explain(
            result.example.text,
            scorer.loaded,
            residual_weight=settings.residual_weight,
            heads=settings.heads,
            edges=settings.edges,
            target=settings.target,
            keep_heads=False,
        )
        words = expected.words
        assert result.tokens == (words.texts if settings.words else expected.tokens)
        assert result.special == (words.special if settings.words else expected.special)
        if not settings.words:
            assert result.position == expected.position
        if expected.prediction is not None:
            assert result.prediction is not None
            assert result.prediction.kind == expected.prediction.kind
            _compare_outcomes(result.prediction, expected.prediction)
            if settings.target is not None:
                _compare_outcomes(result.target, expected.prediction.target)
        else:
            assert result.prediction is None
        for method in settings.methods:
            attribution = getattr(expected, method)(
                layers=settings.layers,
                positions=result.positions,
                normalize=settings.normalize,
                words=settings.words,
                **options,
            )
            scores = result.scores[method]
            assert result.layers == attribution.layers
            assert result.positions == attribution.positions
            assert scores.dtype == np.float32
            assert scores.flags.c_contiguous
            assert scores.shape == attribution.scores.shape
            worst = max(worst, float(np.abs(scores - attribution.to_numpy()).max()))
    return worst


def _compare_outcomes(outcome, expected) -> None:
    assert (outcome.label, outcome.index) == (expected.label, expected.index)
    assert abs(outcome.probability - expected.probability) < 1e-6


def as_bytes(results) -> list[Any]:
    """Everything in the results, with scores as bytes."""
    return [
        (
            one.example,
            one.tokens,
            one.special,
            one.position,
            one.positions,
            one.layers,
            one.prediction,
            one.target,
            {name: values.tobytes() for name, values in one.scores.items()},
            {name: values.tobytes() for name, values in one.importance.items()},
        )
        if isinstance(one, Scored)
        else one
        for one in results
    ]
