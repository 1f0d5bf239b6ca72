"""Special tokens such as [CLS] and [SEP] in results: shown, hidden, or left out of ranks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from array_api_compat import array_namespace
from array_api_compat import device as device_of

from attnflow.attribution import Attribution
from attnflow.errors import InputError
from attnflow.selection import Position

Special: TypeAlias = Literal["show", "hide", "rank_out"]

_LOOKS_SPECIAL = re.compile(
    r"\[(CLS|SEP|PAD|BOS|EOS)\]|</?s>|<(cls|sep|pad|bos|eos)>|<\|[^<>|]{1,40}\|>"
)


@dataclass(frozen=True, eq=False, repr=False)
class RankedAttribution(Attribution):
    """An Attribution that holds special tokens, but leaves them out of `top`.

    settings["unranked"] lists their indices. Saved and loaded again, it is a plain Attribution.
    """

    def top(self, k: int, *, position: Position, layer: int = -1) -> list[tuple[str, int, float]]:
        """The k tokens with the highest scores among those that are not special."""
        unranked = set(self.settings["unranked"])
        everything = super().top(len(self.columns), position=position, layer=layer)
        return [found for found in everything if found[1] not in unranked][: max(k, 0)]


def looks_special(token: str) -> bool:
    """Whether a token is written as special ones are: [CLS], <s>, </s>, <|endoftext|>.

    The mask is none of them: it is part of the text.

    >>> [looks_special(token) for token in ("[CLS]", "</s>", "<|end|>", "<b>", "[MASK]", "key")]
    [True, True, True, False, False, False]
    """
    return _LOOKS_SPECIAL.fullmatch(token) is not None


def treat_special(attribution: Attribution, how: Special, special: Sequence[bool]) -> Attribution:
    """Apply the `special` option.

    special: whether each token is special.
    how: "show" leaves scores as they are. "hide" drops the columns of special tokens; the others
    are not rescaled, so that rows then sum to what ordinary tokens hold. "rank_out" keeps all
    scores, and leaves special tokens out of `top`.
    Raises InputError for an unknown option, or if hiding would leave nothing.

    >>> import numpy as np
    >>> scores = np.asarray([[[0.75, 0.25]]])
    >>> attribution = Attribution(scores, ("[CLS]", "key"), "rollout", (1,), (0,))
    >>> treat_special(attribution, "hide", [True, False]).scores
    array([[[0.25]]])
    >>> treat_special(attribution, "rank_out", [True, False]).top(1, position=0)
    [('key', 1, 0.25)]
    """
    check_special(how)
    if how == "show":
        return attribution
    settings = {**attribution.settings, "special": how}
    if how == "rank_out":
        unranked = [i for i in attribution.columns if special[i]]
        return RankedAttribution(
            scores=attribution.scores,
            tokens=attribution.tokens,
            method=attribution.method,
            layers=attribution.layers,
            positions=attribution.positions,
            columns=attribution.columns,
            settings={**settings, "unranked": unranked},
        )
    kept = [axis for axis, i in enumerate(attribution.columns) if not special[i]]
    if not kept:
        raise InputError(
            "every token is special, so that hiding them leaves nothing; expected some text. "
            "Use special='show'."
        )
    xp = array_namespace(attribution.scores)
    axes = xp.asarray(kept, device=device_of(attribution.scores))
    return replace(
        attribution,
        scores=xp.take(attribution.scores, axes, axis=-1),
        columns=tuple(attribution.columns[axis] for axis in kept),
        settings=settings,
    )


def check_special(how: str) -> None:
    """Raise InputError unless `how` is an option of `special`; call it before a long run."""
    if how not in ("show", "hide", "rank_out"):
        raise InputError(
            f"special is {how!r}; expected 'show', 'hide' or 'rank_out'. Choose one of these."
        )
