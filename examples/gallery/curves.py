"""Which explanation finds what matters.

The probability of the prediction while tokens are removed, in the order of each explanation: most
relevant first (it should fall fast), and least relevant first (it should stay).
"""

from tempfile import TemporaryDirectory
from typing import Any

from attnflow import evaluate, open_study
from attnflow.figures import draw_curves, save
from attnflow.study.explainers import explainer_title

TEXTS = [
    f"the {subject} {place} the old {other}"
    for subject, other in [("keys", "car"), ("dog", "houses"), ("letters", "writer")]
    for place in ("to", "near", "behind")
]


def draw(*, dark: bool = False) -> Any:
    with TemporaryDirectory() as folder:
        evaluate(
            TEXTS,
            folder,
            methods="raw,rollout,flow",
            edges="attention",
            explainers="none",
            metrics="morf,lerf",
        )
        study = open_study(folder)
    most, least = (
        {explainer_title(name): curve for name, curve in study.curves(metric).items()}
        for metric in ("morf", "lerf")
    )
    caption = f"{study.n_texts} texts; removed tokens are replaced by [UNK]."
    return draw_curves(most, least, caption=caption, dark=dark)


if __name__ == "__main__":
    save(draw(), "curves.svg")
