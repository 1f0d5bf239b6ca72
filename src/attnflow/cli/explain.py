"""The commands `explain` and `explain-image`: a prediction and its attributions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.options import (
    ALL,
    DeviceOption,
    EdgesOption,
    Format,
    FormatOption,
    HeadsOption,
    HtmlOption,
    LayerOption,
    MethodOption,
    NormalizeOption,
    RegistryCommand,
    ResidualOption,
    SaveOption,
    Scaling,
    SpecialOption,
    SpecialTokens,
    TargetOption,
    ThreadsOption,
    TopOption,
    Truncation,
    clear_errors,
    number_or_text,
    parse_layer,
    parse_methods,
    printed_warnings,
    progress_bar,
    silence_transformers,
    spinner,
)

if TYPE_CHECKING:
    from attnflow.attribution import Attribution
    from attnflow.explanation import Explanation


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(cls=RegistryCommand)(explain)
    app.command("explain-image", cls=RegistryCommand)(explain_image)


def explain(  # noqa: PLR0913 - one argument for each option
    text: Annotated[str, typer.Argument(help="The text to explain.")],
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="A folder with a model in safetensors, a hub name, or a built-in model: "
            "verb-number (the default), verb-number-causal, minilm-sst2, minilm-mlm."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="A folder or hub name, if the tokenizer is not stored with the model."),
    ] = None,
    method: MethodOption = "rollout",
    layer: LayerOption = ALL,
    position: Annotated[
        str | None,
        typer.Option(
            help="The position to explain: an index from 0, the text of a token, or 'all'. "
            "Default: the mask, the last token of a decoder, or [CLS]."
        ),
    ] = None,
    target: TargetOption = None,
    words: Annotated[bool, typer.Option("--words", help="Merge the tokens of each word.")] = False,
    special: SpecialOption = SpecialTokens.SHOW,
    edges: EdgesOption = "attention",
    heads: HeadsOption = "mean",
    residual_weight: ResidualOption = 0.5,
    normalize: NormalizeOption = Scaling.NONE,
    truncate: Annotated[
        Truncation, typer.Option(help="What to do with a text longer than the model's limit.")
    ] = Truncation.ERROR,
    top: TopOption = None,
    output: FormatOption = Format.TABLE,
    save: SaveOption = None,
    html: HtmlOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
) -> None:
    """Show what a model predicts for a text, and which tokens reach that prediction.

    Example: attnflow explain "the key to the cabinets" --model ./my-model --method all --words
    """
    with clear_errors():
        names = parse_methods(method)
        check_page(html)
        with spinner("Loading the model"), printed_warnings():
            from attnflow.explainer import explain as explain_text

            silence_transformers()
            explanation = explain_text(
                text,
                model,
                tokenizer=tokenizer,
                position=None if position in (None, ALL) else number_or_text(str(position)),
                target=None if target is None else number_or_text(target),
                heads=number_or_text(heads),
                residual_weight=residual_weight,
                edges=edges,
                truncate=truncate.value,
                device=device,
            )
        options = {
            "layers": parse_layer(layer),
            "positions": all_positions(explanation, words) if position == ALL else None,
            "normalize": normalize.value,
            "words": words,
            "special": special.value,
        }
        results = attribute(explanation, names, options, threads)
        save_results(results, save)
        write_page(explanation, html)
        print_results(explanation, results, output, top)


def explain_image(  # noqa: PLR0913 - one argument for each option
    file: Annotated[Path, typer.Argument(help="The image: a PNG or JPEG file, for example.")],
    *,
    model: Annotated[
        str, typer.Option(help="A folder with a vision model in safetensors, or a hub name.")
    ],
    processor: Annotated[
        str | None,
        typer.Option(help="A folder or hub name, if the image processor is not with the model."),
    ] = None,
    method: MethodOption = "rollout",
    layer: LayerOption = ALL,
    position: Annotated[
        str | None,
        typer.Option(
            help="The position to explain: '[CLS]', 'patch 2,3', '[MEAN]' over all patches, or an "
            "index. Default: [CLS], or [MEAN] for models without it."
        ),
    ] = None,
    target: TargetOption = None,
    special: SpecialOption = SpecialTokens.SHOW,
    edges: EdgesOption = "attention",
    heads: HeadsOption = "mean",
    residual_weight: ResidualOption = 0.5,
    normalize: NormalizeOption = Scaling.NONE,
    top: TopOption = None,
    output: FormatOption = Format.TABLE,
    save: SaveOption = None,
    overlay: Annotated[
        Path | None,
        typer.Option(help="Draw the scores over the image, for all layers: .png, .svg or .pdf."),
    ] = None,
    html: HtmlOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
) -> None:
    """Show what a vision model predicts for an image, and which patches reach that prediction.

    Example: attnflow explain-image cat.jpg --model ./my-vit --overlay cat-patches.png
    """
    with clear_errors():
        names = parse_methods(method)
        check_page(html)
        with spinner("Loading the model"), printed_warnings():
            from attnflow.explainer import explain_image as explain_picture

            silence_transformers()
            explanation = explain_picture(
                file,
                model,
                processor=processor,
                position=None if position is None else number_or_text(position),
                target=None if target is None else number_or_text(target),
                edges=edges,
                heads=number_or_text(heads),
                residual_weight=residual_weight,
                device=device,
            )
        options = {
            "layers": parse_layer(layer),
            "normalize": normalize.value,
            "special": special.value,
        }
        results = attribute(explanation, names, options, threads)
        save_results(results, save)
        _draw_overlay(explanation, names, overlay)
        write_page(explanation, html)
        print_results(explanation, results, output, top)


def check_page(path: Path | None) -> None:
    """Check that a page can be written there, before anything is computed."""
    if path is not None:
        from attnflow.viewer.page import check_target

        check_target(path)


def all_positions(explanation: "Explanation", words: bool) -> range:
    """Every position, counted in tokens or in words."""
    return range(len(explanation.words.texts if words else explanation.tokens))


def attribute(
    explanation: "Explanation", names: list[str], options: dict[str, Any], threads: int | None
) -> "list[Attribution]":
    """Compute methods with a progress bar for each."""
    results = []
    for name in names:
        with progress_bar(name) as progress:
            results.append(
                explanation.attribute(name, **options, threads=threads, progress=progress)
            )
    return results


def save_results(results: "list[Attribution]", path: Path | None) -> None:
    """Write results to safetensors files: one, or one for each method."""
    if path is None:
        return
    for result in results:
        target = path if len(results) == 1 else path.with_suffix(f".{result.method}{path.suffix}")
        result.save(target)
        typer.echo(f"attnflow: wrote {target}", err=True)


def write_page(explanation: "Explanation", path: Path | None) -> None:
    """Write the interactive page."""
    if path is None:
        return
    with progress_bar("page") as progress:
        explanation.to_html(path, progress=progress)
    typer.echo(f"attnflow: wrote {path}", err=True)


def print_results(
    explanation: "Explanation", results: "list[Attribution]", output: Format, top: int | None
) -> None:
    """Print results in the format of --format."""
    from attnflow.cli.options import echo
    from attnflow.cli.render import print_explanation, to_csv, to_json

    if output is Format.JSON:
        echo(to_json(explanation, results, top))
    elif output is Format.CSV:
        echo(to_csv(results, top))
    else:
        print_explanation(explanation, results, top)


def _draw_overlay(explanation: "Explanation", names: list[str], path: Path | None) -> None:
    if path is None:
        return
    with spinner("Drawing"):
        from attnflow.figures import draw_overlay, save

        save(draw_overlay(explanation, methods=names), path)
    typer.echo(f"attnflow: wrote {path}", err=True)
