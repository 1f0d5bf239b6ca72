"""Pictures of attributions, with matplotlib: the paper's figures, for any text or image.

Each function returns a matplotlib Figure, and `save` writes it. Nothing here uses pyplot or leaves
matplotlib's settings changed, so figures can be drawn anywhere: in scripts, servers and threads.
"""

from attnflow.figures.candidates import CandidateCase, draw_candidates
from attnflow.figures.canvas import render, save
from attnflow.figures.flow_graph import draw_graph
from attnflow.figures.maps import draw_maps
from attnflow.figures.overlay import draw_overlay

__all__ = [
    "CandidateCase",
    "draw_candidates",
    "draw_graph",
    "draw_maps",
    "draw_overlay",
    "render",
    "save",
]
