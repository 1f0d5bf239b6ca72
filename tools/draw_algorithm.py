"""Draw docs/flow-algorithm.svg: how flow at a position can reach the sink."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

FIGURE = Path(__file__).parent.parent / "docs" / "flow-algorithm.svg"
BLUE, ORANGE, GREEN, GRAY = "#0072b2", "#d55e00", "#009e73", "#9a9a9a"
COLUMNS = {"u": 0.0, "q": 2.0, "t": 4.0}
TOP = 4


def arrow(
    axis: Axes, start: tuple[float, float], end: tuple[float, float], **style: object
) -> None:
    properties = {"arrowstyle": "-|>", "shrinkA": 9, "shrinkB": 9, "linewidth": 1.8, **style}
    axis.annotate("", xy=end, xytext=start, arrowprops=properties)


def main() -> None:
    figure = Figure(figsize=(8.2, 3.9), layout="constrained")
    axis = figure.subplots()
    for name, x in COLUMNS.items():
        for level in range(TOP + 1):
            node = Circle((x, level), 0.17, facecolor="white", edgecolor="#333333", zorder=3)
            axis.add_patch(node)
            axis.text(x, level, f"${name}$", ha="center", va="center", zorder=4)
        for level in range(TOP, 0, -1):
            if (name, level) not in {("u", 1), ("q", 1)}:
                arrow(axis, (x, level), (x, level - 1), color=GRAY, linestyle=":")
    for level, shade in zip(range(TOP, 1, -1), (1.0, 0.75, 0.5), strict=True):
        arrow(
            axis,
            (0, level),
            (4, level - 1),
            color=BLUE,
            alpha=shade,
            connectionstyle="arc3,rad=-0.08",
        )
    arrow(axis, (0, 1), (4, 0), color=GREEN, connectionstyle="arc3,rad=0.1")
    arrow(axis, (0, 2), (2, 1), color=ORANGE)
    arrow(axis, (2, 1), (4, 0), color=ORANGE, linestyle="--")
    axis.text(0, TOP + 0.35, "flow received by $u$", ha="center", va="center")
    axis.text(4.35, 0, "the sink", ha="left", va="center")
    legend = (
        (BLUE, "1. entry edges into the chain of $t$, highest first"),
        (GREEN, "2. the last edge into $t$"),
        (ORANGE, "3. hops to other positions, lowest first"),
        (GRAY, "chains (residual connections)"),
    )
    for row, (color, text) in enumerate(legend):
        axis.plot([4.75, 5.05], [3.9 - 0.38 * row] * 2, color=color, linewidth=2.2)
        axis.text(5.15, 3.9 - 0.38 * row, text, va="center", fontsize=9.5)
    for level in range(TOP + 1):
        axis.text(
            -2.6,
            level,
            f"level {level}" + (" (input)" if level == 0 else ""),
            va="center",
            color="#555555",
        )
    axis.set_xlim(-2.7, 8.4)
    axis.set_ylim(-0.3, TOP + 0.6)
    axis.set_aspect("equal")
    axis.axis("off")
    with rc_context({"svg.hashsalt": "attnflow", "svg.fonttype": "none"}):  # reproducible file
        figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
