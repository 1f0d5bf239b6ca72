"""A Question: one text, and the prediction of a model whose tokens are to be weighed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnflow.arrays import import_torch
from attnflow.attribution import Attribution
from attnflow.errors import InputError, check_type
from attnflow.models.inputs import EncodedText, collate, encode_text
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import Prediction, logits_of, predict, resolve_explained
from attnflow.selection import Position

# Tokens that can stand in place of others, by our names and by those of tokenizers.
TOKENS = {"mask": "mask", "pad": "pad", "unknown": "unk"}


@dataclass(frozen=True, eq=False)
class Question:
    """One text, and one outcome that the model gives for it at one position.

    inputs: the tensors [1, tokens] that the model was run on. prediction: what it gave.
    """

    loaded: LoadedModel
    encoded: EncodedText
    inputs: Mapping[str, Any]
    position: int
    prediction: Prediction

    @property
    def target(self) -> int:
        """The number of the class or token that is explained."""
        return self.prediction.target.index

    def scores(self, inputs: Mapping[str, Any], position: int | None = None) -> Any:
        """Run the model on inputs [batch, tokens]: scores [batch, classes] at the position."""
        logits = self.loaded.model(**inputs).logits
        return logits_of(
            self.loaded, logits, self.encoded, self.position if position is None else position
        )

    def answer(
        self,
        values: Sequence[float],
        method: str,
        settings: Mapping[str, Any],
        columns: Sequence[int] = (),
    ) -> Attribution:
        """An Attribution of one layer, the last, and one position; one value for each column."""
        outcome = self.prediction.target
        return Attribution(
            scores=np.asarray(values, dtype=np.float64)[None, None, :],
            tokens=self.encoded.tokens,
            method=method,
            layers=(self.loaded.n_layers,),
            positions=(self.position,),
            columns=tuple(columns),
            settings={
                **settings,
                "target": outcome.label,
                "target_index": outcome.index,
                "probability": outcome.probability,
            },
        )


def ask(
    loaded: LoadedModel, text: str, *, target: int | str | None, position: Position | None
) -> Question:
    """Run the model on the text once, and see what is to be explained.

    Raises InputError for a model that predicts nothing, or predicts by an encoder and a decoder.
    """
    check_type(loaded, LoadedModel, "Make one: load_model(model).")
    if loaded.task in ("encoder", "seq2seq"):
        given = "predicts nothing" if loaded.task == "encoder" else "is an encoder-decoder"
        raise InputError(
            f"{loaded.name} {given}",
            expected="a classifier, a masked or a causal language model",
            fix="Load a model with such a head.",
        )
    torch = import_torch("running a model")
    encoded = encode_text(loaded, text)
    inputs = collate(loaded, [encoded])
    place = resolve_explained(loaded, encoded, position)
    with torch.no_grad():
        scores = logits_of(loaded, loaded.model(**inputs).logits, encoded, place)[0]
    return Question(loaded, encoded, inputs, place, predict(loaded, scores, target))


@contextmanager
def embeddings_set(model: Any, embeddings: Any) -> Iterator[None]:
    """Let the model's token embeddings be these, [batch, tokens, width], whatever its input ids.

    A hook on the embedding layer works for every model, also where `inputs_embeds` does not exist.
    """
    layer = model.get_input_embeddings()
    hook = layer.register_forward_hook(lambda _module, _inputs, _output: embeddings)
    try:
        yield
    finally:
        hook.remove()


def embed(question: Question) -> Any:
    """The token embeddings [1, tokens, width] of the text, apart from any autograd graph."""
    torch = import_torch("running a model")
    with torch.no_grad():
        return question.loaded.model.get_input_embeddings()(question.inputs["input_ids"]).detach()


def find_replacement(loaded: LoadedModel, name: str) -> int:
    """The id of the "unknown", "mask" or "pad" token.

    Raises InputError, naming those that exist, if the tokenizer has no such token.
    """
    tokenizer = loaded.tokenizer
    ids = {kind: getattr(tokenizer, f"{short}_token_id", None) for kind, short in TOKENS.items()}
    found = ids.get(name)
    if found is not None:
        return int(found)
    others = sorted(kind for kind, token in ids.items() if token is not None)
    raise InputError(
        f"the tokenizer of {loaded.name} has no {name} token",
        expected="one to put in place of others",
        fix=f"It has {', '.join(map(repr, others)) or 'none of these tokens'}.",
    )
