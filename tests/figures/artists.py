"""Reading figures back: what was drawn, where text is, and whether any of it overlaps."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from attnflow import AttentionGraph
from attnflow.explanation import Explanation
from attnflow.figures import Display
from attnflow.predictions import Outcome, Prediction
from attnflow.units import find_words

TOUCHING = 0.5  # pixels at 200 dpi that boxes of text may share


def make_explanation(tokens, weights, *, position=0, special=None, image=None):
    """An Explanation of attention that is given: weights [layers, queries, keys]."""
    special = tuple(special or (token.startswith("[") for token in tokens))
    outcome = Outcome("plural", 1, 0.9)
    return Explanation(
        text=" ".join(tokens),
        tokens=tuple(tokens),
        special=special,
        words=find_words(tokens, special=special),
        position=position,
        prediction=Prediction("class", (outcome,), outcome),
        graph=AttentionGraph.from_weights(np.asarray(weights), tokens=tokens),
        image=image,
    )


def random_explanation(tokens, n_layers=6, seed=0, **options):
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.full(len(tokens), 0.3), size=(n_layers, len(tokens)))
    return make_explanation(tokens, weights, **options)


def plain(figure):
    """The matplotlib figure of a Display."""
    return figure.figure_ if isinstance(figure, Display) else figure


def texts_of(figure):
    """All text that is seen, as (text, corners [4, 2] in pixels at 200 dpi)."""
    figure = plain(figure)
    figure.set_dpi(200)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    found = []
    for text in figure.findobj(Text):
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent(renderer)
            if box.width and box.height:
                found.append((text.get_text(), _corners(text, renderer)))
    return found


def _corners(text, renderer):
    angle = text.get_rotation()
    if angle % 90 == 0:
        return np.asarray(text.get_window_extent(renderer).corners())[[0, 1, 3, 2]]
    assert text.get_rotation_mode() == "anchor"
    text.set_rotation(0)
    level = np.asarray(text.get_window_extent(renderer).corners())[[0, 1, 3, 2]]
    text.set_rotation(angle)
    anchor = text.get_transform().transform(text.get_unitless_position())
    turn = np.deg2rad(angle)
    matrix = np.asarray([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return (level - anchor) @ matrix.T + anchor


def share_area(a, b):
    """Whether two convex shapes overlap: whether no side of either parts them."""
    for shape in (a, b):
        for i in range(4):
            side = shape[(i + 1) % 4] - shape[i]
            across = np.asarray([-side[1], side[0]]) / max(np.hypot(*side), 1e-9)
            if (
                min((a @ across).max(), (b @ across).max())
                - max((a @ across).min(), (b @ across).min())
                <= TOUCHING
            ):
                return False
    return True


def overlapping(texts):
    """Pairs of texts that overlap."""
    corners = np.asarray([one for _, one in texts])
    low, high = corners.min(1), corners.max(1)
    near = ((low[:, None] < high) & (low < high[:, None])).all(-1)  # boxes around them overlap
    pairs = [(int(i), int(j)) for i, j in np.argwhere(np.triu(near, 1))]
    return [(texts[i][0], texts[j][0]) for i, j in pairs if share_area(corners[i], corners[j])]


def over_panels(texts, figure, inside=()):
    """Texts that lie over axes, but for those that belong there."""
    boxes = [
        np.asarray(axes.get_window_extent().corners())[[0, 1, 3, 2]]
        for axes in figure.axes
        if axes.get_gid() not in ("key", "legend")
    ]
    low, high = np.asarray(boxes).min(1), np.asarray(boxes).max(1)
    found = []
    for text, corners in texts:
        near = np.flatnonzero(((low < corners.max(0)) & (corners.min(0) < high)).all(-1))
        if text not in inside and any(share_area(corners, boxes[i]) for i in near):
            found.append(text)
    return found


def outside(texts, figure):
    """Texts that are cut by the edge of the figure."""
    width, height = (200 * inches for inches in figure.get_size_inches())
    return [
        text
        for text, corners in texts
        if corners.min() < -TOUCHING
        or corners[:, 0].max() > width + TOUCHING
        or corners[:, 1].max() > height + TOUCHING
    ]


def check_text(figure, inside=()):
    """All text is whole, and none lies over other text or over a panel; returns the text."""
    figure = plain(figure)
    texts = texts_of(figure)
    assert overlapping(texts) == []
    assert outside(texts, figure) == []
    assert over_panels(texts, figure, inside) == []
    return [text for text, _ in texts]


def words_in(figure):
    return [text for text, _ in texts_of(figure)]
