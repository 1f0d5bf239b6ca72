"""Figures with matplotlib: the paper's figures, for any text or image.

Enters: an Explanation, or Attributions. Leaves: a Display with a matplotlib Figure, which notebooks
show and `save` writes to a file; or, with `ax`, drawn into axes of the caller. Nothing here uses
pyplot or changes matplotlib's settings, so figures can be drawn in scripts, servers and threads.

Read `maps.py` first (heat maps over tokens and layers), then `flow_graph.py` and `path_graph.py`
(the attention graph, and its strongest paths), `candidates.py` (figure 4), `overlay.py` (image
patches) and `evaluation.py` (studies). They share `panels.py` (which scores to draw, and the layout
of panels), `labels.py` (text that fits), `canvas.py` (themes, layout in inches) and `display.py`
(what is returned, and files; LaTeX in `tikz.py`).
"""

from attnflow.figures.candidates import CandidateCase, draw_candidates
from attnflow.figures.display import Display, render, save
from attnflow.figures.evaluation import draw_critical_difference, draw_curves
from attnflow.figures.flow_graph import draw_graph
from attnflow.figures.maps import draw_maps
from attnflow.figures.overlay import draw_overlay
from attnflow.figures.path_graph import draw_paths

__all__ = [
    "CandidateCase",
    "Display",
    "draw_candidates",
    "draw_critical_difference",
    "draw_curves",
    "draw_graph",
    "draw_maps",
    "draw_overlay",
    "draw_paths",
    "render",
    "save",
]
