"""Explanations with answers for the viewer's tests: of small models, with known texts."""

from dataclasses import replace
from functools import cache
from typing import Any

import attnflow
from attnflow import Explanation
from attnflow.predictions import Segment
from tests.study.small_models import make_encoder_decoder, make_llama

explain: Any = attnflow.explain  # untyped: these explanations have an answer
PROMPT, ANSWER = "the key to the cabinets", "is here to the key"


@cache
def answer_explanation() -> Explanation:
    """A given answer to a prompt: [CLS] and 5 tokens, then 5 of the answer; two layers."""
    explanation: Explanation = explain(PROMPT, make_llama(start=True), continuation=ANSWER)
    return explanation


def chat_explanation() -> Explanation:
    """The same, with a message of a role, whose first token belongs to the template."""
    explanation = answer_explanation()
    segments = (Segment("user", 2, 6), Segment("answer", 6, 11))
    special = tuple(i < 2 for i in range(11))
    return replace(explanation, segments=segments, special=special)


@cache
def translation_explanation() -> Explanation:
    """A translation by a small encoder-decoder."""
    explanation: Explanation = explain(PROMPT, make_encoder_decoder("Bart"), generate=4)
    return explanation
