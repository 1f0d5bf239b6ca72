"""From token ids back to text: the text of a sequence, and where each of its tokens is.

Tokenizers give character offsets for texts that they encode, but not for ids that were generated.
"""

from collections.abc import Sequence
from typing import Any

from attnflow.attribution import Offsets

CONTEXT = 6  # tokens before the text that decide about the space at its start
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a part of a character is decoded to


def locate_tokens(
    tokenizer: Any, ids: Sequence[int], *, before: Sequence[int] = ()
) -> tuple[str, Offsets]:
    """Decode ids; return their text, and the start and end of each token in it, in characters.

    before: the ids that come before; they are not part of the text, but decide whether it starts
    with a space. Special tokens have no text: their offsets are None. Tokens that share a character
    share its place.
    """
    special = {int(i) for i in tokenizer.all_special_ids}
    offsets: list[tuple[int, int] | None] = []
    text = ""
    window = [i for i in before[-CONTEXT:] if i not in special]
    pending: list[int] = []  # ids whose text is not complete
    shown = len(_decode(tokenizer, window))
    for n, token in enumerate(ids):
        if token in special:
            offsets.append(None)
            window, shown = [*window, *pending][-CONTEXT:], 0
            pending = []
            shown = len(_decode(tokenizer, window))
            continue
        pending.append(token)
        piece = _decode(tokenizer, [*window, *pending])[shown:]
        is_last = n + 1 == len(ids) or ids[n + 1] in special
        if piece.endswith(INCOMPLETE) and not is_last:
            offsets.append((len(text), len(text)))  # completed with the token that ends it
            continue
        span = (len(text), len(text) + len(piece))
        first = len(offsets) - len(pending) + 1
        offsets[first:] = [span] * len(pending)
        text += piece
        window = [*window, *pending][-CONTEXT:]
        shown, pending = len(_decode(tokenizer, window)), []
    return text, tuple(offsets)


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of ids, exactly: spaces before punctuation stay."""
    if not ids:
        return ""
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
