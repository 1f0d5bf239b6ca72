"""Tiny models in folders, examples, and what `explain` gives for them one by one."""

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
    """A random model of some kind, "T5" or the name of a class."""
    return save_t5(folder) if kind == "T5" else save(folder, kind)


def check_like_explain(computer, results, **options) -> float:
    """Check each result against `explain`; gives the largest difference of a score."""
    settings, worst = computer.settings, 0.0
    assert results
    for one in results:
        assert isinstance(one, Scored), one
        alone = explain(
            one.example.text,
            computer.loaded,
            residual_weight=settings.residual_weight,
            heads=settings.heads,
            edges=settings.edges,
            target=settings.target,
            keep_heads=False,
        )
        shown = alone.words.texts if settings.words else alone.tokens
        assert one.tokens == shown
        assert one.special == (alone.words.special if settings.words else alone.special)
        if not settings.words:
            assert one.position == alone.position
        if alone.prediction is not None:
            assert one.prediction is not None
            assert one.prediction.kind == alone.prediction.kind
            _check_outcome(one.prediction, alone.prediction)
            if settings.target is not None:
                _check_outcome(one.target, alone.prediction.target)
        else:
            assert one.prediction is None
        for method in settings.methods:
            expected = getattr(alone, method)(
                layers=settings.layers,
                positions=one.positions,
                normalize=settings.normalize,
                words=settings.words,
                **options,
            )
            assert one.layers == expected.layers
            assert one.positions == expected.positions
            assert one.scores[method].dtype == np.float32
            assert one.scores[method].flags.c_contiguous
            assert one.scores[method].shape == expected.scores.shape
            worst = max(worst, float(np.abs(one.scores[method] - expected.to_numpy()).max()))
    return worst


def _check_outcome(mine, its) -> None:
    assert (mine.label, mine.index) == (its.label, its.index)
    assert abs(mine.probability - its.probability) < 1e-6


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
