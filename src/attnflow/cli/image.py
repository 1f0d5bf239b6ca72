"""The command `explain-image`: a picture and a vision model in, patches that matter out."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.explain import Edges, Methods, check_page, quieten
from attnflow.cli.options import (
    Format,
    FormatOption,
    HeadsOption,
    LayerOption,
    NormalizeOption,
    ResidualOption,
    Scaling,
    ThreadsOption,
    clear_errors,
    echo,
    number_or_text,
    parse_layer,
    progress_bar,
    spinner,
)

if TYPE_CHECKING:
    from rich.console import Console

    from attnflow.attribution import Attribution
    from attnflow.explanation import Explanation

BEST = 5  # patches named below a map when --top does not say how many
CELL = 5  # "0.012"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("explain-image")(explain_image)


def explain_image(  # noqa: PLR0913 - one argument for each option
    file: Annotated[Path, typer.Argument(help="The picture: a PNG, JPEG or the like.")],
    *,
    model: Annotated[
        str, typer.Option(help="A folder with a vision model in safetensors, or a name on the hub.")
    ],
    processor: Annotated[
        str | None,
        typer.Option(help="A folder or name, if the image processor is not with the model."),
    ] = None,
    method: Annotated[
        Methods, typer.Option(help="raw, rollout, flow, or all of them.")
    ] = Methods.ALL,
    layer: LayerOption = "-1",
    position: Annotated[
        str | None,
        typer.Option(
            help="Where to look from: '[CLS]', 'patch 2,3', '[MEAN]' over all patches, or an "
            "index. If not given: [CLS], or [MEAN] for models without one."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="A class to explain, by number or name; the predicted one.")
    ] = None,
    edges: Annotated[
        Edges, typer.Option(help="What edges are weighted by, as in `attnflow explain`.")
    ] = Edges.ATTENTION,
    heads: HeadsOption = "mean",
    residual_weight: ResidualOption = 0.5,
    normalize: NormalizeOption = Scaling.NONE,
    top: Annotated[
        int | None, typer.Option(min=1, help="Name the K patches with the highest scores.")
    ] = None,
    output: FormatOption = Format.TABLE,
    overlay: Annotated[
        Path | None,
        typer.Option(help="Draw patches over the picture, for all layers: .png, .svg or .pdf."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page to look at it with any browser.")
    ] = None,
    threads: ThreadsOption = None,
    device: Annotated[
        str | None, typer.Option(help="Where to run the model, such as cpu or cuda.")
    ] = None,
) -> None:
    """Print what a vision model predicts for a picture, and which patches reach that prediction.

    Example: attnflow explain-image cat.jpg --model ./my-vit --overlay cat-patches.png
    """
    with clear_errors():
        check_page(html)
        explanation = _compute(
            file,
            model,
            processor=processor,
            position=None if position is None else number_or_text(position),
            target=None if target is None else number_or_text(target),
            edges=edges.value,
            heads=number_or_text(heads),
            residual_weight=residual_weight,
            device=device,
        )
        names = ["raw", "rollout", "flow"] if method is Methods.ALL else [method.value]
        options = {"layers": parse_layer(layer), "normalize": normalize.value}
        results = _attribute(explanation, names, options, threads)
        _write(explanation, names, overlay, html)
        _print(explanation, results, output, top)


def _compute(file: Path, model: str, **options: Any) -> "Explanation":
    with spinner("loading the model and reading the picture"):
        from attnflow.explainer import explain_image as explain_picture

        quieten()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            explanation = explain_picture(file, model, **options)
    for warning in caught:
        typer.echo(f"attnflow: {warning.message}", err=True)
    return explanation


def _attribute(
    explanation: "Explanation", names: list[str], options: dict[str, Any], threads: int | None
) -> "list[Attribution]":
    results = []
    for name in names:
        if name != "flow":
            results.append(getattr(explanation, name)(**options))
            continue
        with progress_bar("flow") as progress:
            results.append(explanation.flow(**options, threads=threads, progress=progress))
    return results


def _write(
    explanation: "Explanation", names: list[str], overlay: Path | None, html: Path | None
) -> None:
    if overlay is not None:
        with spinner("drawing"):
            from attnflow.figures import draw_overlay, save

            save(draw_overlay(explanation, methods=names), overlay)
        typer.echo(f"attnflow: wrote {overlay}", err=True)
    if html is not None:
        with progress_bar("page") as progress:
            explanation.to_html(html, progress=progress)
        typer.echo(f"attnflow: wrote {html}", err=True)


def _print(
    explanation: "Explanation", results: "list[Attribution]", output: Format, top: int | None
) -> None:
    from rich.console import Console

    from attnflow.cli import render as strip

    if output is Format.JSON:
        return echo(strip.explanation_to_json(explanation, results, top))
    if output is Format.CSV:
        return echo(strip.attributions_to_csv(results, top))
    console = Console(highlight=False)
    strip.print_heading(explanation, console)
    for result in results:
        for i, layer in enumerate(result.layers):
            _print_map(explanation, result, i, console)
            best = result.top(len(result.columns), position=explanation.position, layer=layer)
            named = [found for found in best if not explanation.special[found[1]]][: top or BEST]
            text = ", ".join(f"{token} {score:.3f}" for token, _, score in named)
            console.print(f"top: {text}", markup=False)
    return None


def _print_map(
    explanation: "Explanation", result: "Attribution", layer: int, console: "Console"
) -> None:
    """The scores of the patches as they lie in the picture, if the screen is wide enough."""
    from rich.text import Text

    from attnflow.cli.render import heat_cell

    image = explanation.image
    assert image is not None
    scores = result.to_numpy()[layer, 0]
    n = image.rows * image.columns
    patches = scores[image.first : image.first + n].reshape(image.rows, image.columns)
    console.print()
    heading = f"{result.method}, layer {result.layers[layer]}, patches together {patches.sum():.3f}"
    console.print(Text(heading, style="bold"))
    if image.columns * (CELL + 1) > console.width:
        return
    highest = float(patches.max(initial=0.0)) or 1.0
    for row in patches:
        line = Text()
        for score in row:
            line.append(f"{score:.3f}", style=heat_cell(float(score), highest).style)
            line.append(" ")
        console.print(line, no_wrap=True)
