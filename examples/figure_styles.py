"""Draw maps of sentences at the width of a column and on a dark background, for docs/figures.md.

python examples/figure_styles.py --out docs/images
"""

import argparse
from pathlib import Path

import attnflow
from attnflow.figures import draw_maps, save

SENTENCES = [
    "the keys to the cabinet",
    "the article on NNP large systems",
    "the flowers in which the female",
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw maps in a column and on a dark ground.")
    parser.add_argument("--out", type=Path, default=Path())
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    explanations = attnflow.explain(SENTENCES)
    titles = [
        f"({letter}) predicted {one.prediction.label}"
        for letter, one in zip("abc", explanations, strict=True)
        if one.prediction is not None
    ]
    column = draw_maps(explanations[0], width=3.3)
    dark = draw_maps(
        explanations, methods=["rollout", "flow"], special="hide", titles=titles, dark=True
    )
    for figure, name in ((column, "paper-figure-column.svg"), (dark, "paper-figure3-dark.svg")):
        save(figure, folder / name)
        print(f"wrote {folder / name}")


if __name__ == "__main__":
    main()
