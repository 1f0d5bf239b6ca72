"""Input gradients: how strongly the predicted score reacts to each token's embedding."""

from typing import Literal, TypeAlias

from attnflow.arrays import import_torch
from attnflow.attribution import Attribution
from attnflow.errors import InputError
from attnflow.importance.question import ask, embed, embeddings_set
from attnflow.models.loading import LoadedModel
from attnflow.selection import Position

Variant: TypeAlias = Literal["sum", "l2", "times_input"]


def input_gradients(
    loaded: LoadedModel,
    text: str,
    *,
    variant: Variant = "l2",
    target: int | str | None = None,
    position: Position | None = None,
) -> Attribution:
    """Score each token by the gradient g of the target's score for the token's embedding x.

    The score is the logit: what the model gives before probabilities are made of it.
    variant: "l2" is the length of g; "times_input" the absolute sum of g * x; "sum" the absolute
    sum of g, what the authors of the paper used, which is nothing but rounding for models whose
    blocks begin with a layer normalisation, such as GPT-2.
    target, position: as in `blank_out`.
    Returns scores [1, 1, tokens], 0 or more.
    Raises InputError for an unknown variant or a model that predicts nothing.
    """
    if variant not in ("sum", "l2", "times_input"):
        raise InputError(
            f"variant is {variant!r}; expected 'sum', 'l2' or 'times_input'. Choose one of these."
        )
    torch = import_torch("gradients")
    question = ask(loaded, text, target=target, position=position)
    embeddings = embed(question).requires_grad_()
    with torch.enable_grad(), embeddings_set(loaded.model, embeddings):
        score = question.scores(question.inputs)[0, question.target]
    # Not score.backward(), which would leave gradients in the model's weights.
    [gradient] = torch.autograd.grad(score, embeddings)
    gradient, embeddings = gradient[0].double(), embeddings.detach()[0].double()
    if variant == "l2":
        values = gradient.norm(dim=-1)
    elif variant == "sum":
        values = gradient.sum(-1).abs()
    else:
        values = (gradient * embeddings).sum(-1).abs()
    return question.answer(values.tolist(), "input_gradients", {"variant": variant})
