"""The checks of text can fail."""

from matplotlib.figure import Figure

from tests.figures.artists import outside, over_panels, overlapping, texts_of


def make(*places, **options):
    figure = Figure(figsize=(4, 2))
    for i, (x, y) in enumerate(places):
        figure.text(x, y, f"text {i}", **options)
    return figure


def overlaps(figure):
    return overlapping(texts_of(figure))


def test_text_over_text_is_found():
    assert overlaps(make((0.1, 0.5), (0.12, 0.52))) == [("text 0", "text 1")]
    assert overlaps(make((0.1, 0.5), (0.6, 0.5))) == []


def test_slanted_lines_beside_each_other_do_not_overlap_though_boxes_around_them_do():
    slanted = {"rotation": 45, "rotation_mode": "anchor", "ha": "right"}
    assert overlaps(make((0.5, 0.5), (0.6, 0.5), **slanted)) == []
    assert overlaps(make((0.5, 0.5), (0.51, 0.5), **slanted)) == [("text 0", "text 1")]


def test_text_over_the_edge_is_found():
    figure = make((0.95, 0.5), (0.5, 0.5))
    assert outside(texts_of(figure), figure) == ["text 0"]


def test_text_over_a_panel_is_found():
    figure = make((0.5, 0.5), (0.05, 0.9))
    figure.add_axes((0.3, 0.3, 0.5, 0.5), xticks=[], yticks=[])
    assert over_panels(texts_of(figure), figure) == ["text 0"]
