"""ALTI-Logit: how much each token adds to a logit through the residual stream.

The method of Ferrando et al. (2023), "Explaining How Transformers Use Context to Build
Predictions". Scores are signed, and specific to a class or token.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.importance.target import open_target, to_attribution
from attnflow.methods.rollout import rollout
from attnflow.models.inputs import Truncate, collate
from attnflow.models.prediction import logits_of
from attnflow.optional import import_optional
from attnflow.selection import Position


def alti_logit(
    text: Any,
    model: Any = None,
    *,
    tokenizer: Any = None,
    target: int | str | None = None,
    against: int | str | None = None,
    position: Position | None = None,
    truncate: Truncate = "error",
    device: Any = None,
) -> Attribution:
    """Score each token by what it adds to the target's logit through attention.

    The logit is a sum over layers of what attention adds to the residual stream of the predicting
    position, with normalization frozen. What key j adds in layer l is traced to input tokens by the
    ALTI rollout of the layers below: s_k = sum_l sum_j <z_j, u> M_jk, where u is the direction of
    the logit. The embedding of the predicting position itself counts for its token. What
    feed-forward layers and biases add belongs to no token.

    text: a text or its token ids. model, tokenizer, target, position, truncate, device: as in
    `explain`. against: another class or token; the score is then logit(target) - logit(against).
    The head after the last normalization is exact if it is linear, as in language models; other
    heads are replaced by their gradient.
    Returns signed scores [1, 1, tokens]. settings["score"] is the score that is explained, and
    settings["rest"] the part of it that belongs to no token.
    Raises InputError for a model that predicts nothing, AttentionError for one whose residual
    stream cannot be followed.

    >>> scores = alti_logit("the key to the cabinets", "verb-number")
    >>> round(float(scores.scores.sum()) + scores.settings["rest"] - scores.settings["score"], 4)
    0.0
    """
    torch = import_optional("torch", "ALTI-Logit")
    with open_target(
        text,
        model,
        tokenizer=tokenizer,
        target=target,
        against=against,
        position=position,
        truncate=truncate,
        device=device,
    ) as (loaded, found):
        from attnflow.models.capture.api import capture_graphs
        from attnflow.models.capture.logit_paths import capture_logit_paths

        def score_output(output: Any) -> Any:
            logits = logits_of(loaded, output.logits[0], found.encoded, found.position)
            return found.contrast.score(logits)[None]

        inputs = collate(loaded, [found.encoded])
        paths = capture_logit_paths(loaded.model, inputs, score_output)
        [graph], _ = capture_graphs(loaded.model, inputs, edges="alti")
        with torch.no_grad():
            below = [np.eye(graph.n_tokens), *rollout(graph).to_numpy().astype(np.float64)]
            scores = _trace(paths, below)
    score = float(paths.score[0])
    columns = range(len(scores))
    return to_attribution(
        loaded,
        found,
        scores,
        method="alti_logit",
        settings={"edges": "alti", "score": score, "rest": score - float(scores.sum())},
        columns=columns,
    )


def _trace(paths: Any, below: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Add up what all layers contribute to the score, [tokens].

    below: the rollout [positions, tokens] up to each layer; the identity for the input.
    """
    n = below[0].shape[0]
    n_own = paths.entry.shape[1]
    embedded = paths.layers[_first_own(paths.roles)].residual[0]
    scores = np.zeros(n)
    scores[n - n_own :] = (paths.entry[0].to(embedded) * embedded).sum(-1).double().cpu().numpy()
    for i, (role, layer) in enumerate(zip(paths.roles, paths.layers, strict=True)):
        if role == "encoder":
            continue
        added = layer.project(paths.directions[i])[0].double().cpu().numpy()
        first = n - n_own if role == "decoder" else 0
        scores += added @ below[layer.index][first : first + len(added)]
    return scores


def _first_own(roles: tuple[str, ...]) -> int:
    """The first layer of the stack that predicts."""
    return next(i for i, role in enumerate(roles) if role != "encoder")
