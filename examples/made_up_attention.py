"""Trace the verb of "the key to the cabinets is" with raw attention, rollout and flow.

The attention weights follow simple rules; no model is needed. In the lower layers one head attends
to the syntactic head of each word, and one to the subject; in the upper layers attention is
uniform, as in many trained models. Raw attention is therefore uninformative at the last layer,
where rollout and flow still find the subject, "key".
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from attnflow import Attentions
from attnflow.cli.main import app

TOKENS = ["the", "key", "to", "the", "cabinets", "is"]
# The word that each word depends on, by position: "is" on "key", "cabinets" on "to", and so on.
DEPENDS_ON = [1, 5, 1, 4, 2, 1]


def make_attention() -> NDArray[np.float64]:
    """Attention [layers, heads, queries, keys] of four layers with two heads."""
    n = len(TOKENS)
    even = np.full((n, n), 1 / n)
    depends = np.eye(n)[DEPENDS_ON]
    subject = np.eye(n)[[TOKENS.index("key")] * n]  # every word attends to the subject
    layers = [
        [0.8 * share * head + (1 - 0.8 * share) * even for head in (depends, subject)]
        for share in (1.0, 0.5, 0.0, 0.0)
    ]
    return np.asarray(layers)


def main() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "key.safetensors"
        Attentions(make_attention(), tokens=TOKENS).save(path)
        for method in ("raw", "rollout", "flow"):
            options = ["--method", method, "--position", "is", "--layer", "all"]
            print("$ attnflow trace key.safetensors", *options)
            app(["trace", str(path), *options], standalone_mode=False)
            print()


if __name__ == "__main__":
    main()
