"""Text from strangers made visible: what hides or reorders text becomes a symbol.

The front end does the same in `viewer/src/visible.ts`.
"""

import re

# Controls, soft hyphen, zero-width and bidi controls, separators of lines, invisible operators,
# surrogates, byte order mark, interlinear marks and tags. Joiners (U+200C, U+200D) stay: Persian
# words and joined emoji need them.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\ufff9-\ufffc\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""The text with nothing in it that hides, reorders or breaks what is around it.

    >>> visible("a\0b"), visible("x\u202ey"), visible("  "), visible("")
    ('a⟨U+0000⟩b', 'x⟨U+202E⟩y', '␣␣', '∅')
    """
    shown = _HIDDEN.sub(_symbol, text)
    if not shown:
        return "∅"
    return "␣" * min(len(shown), 8) if shown.isspace() else shown


def _symbol(found: re.Match[str]) -> str:
    known = {"\n": "↵", "\t": "⇥"}
    return known.get(found[0], f"⟨U+{ord(found[0]):04X}⟩")
