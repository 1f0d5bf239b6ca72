"""The commands `explain` and `explain-image`: a prediction and its attributions."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.input_options import InputOptions
from attnflow.cli.options import (
    ALL,
    OUTPUT,
    CheckOption,
    Format,
    ModelOptions,
    RegistryCommand,
    ScoreOptions,
    Truncation,
    WordsOption,
    clear_errors,
    echo,
    number_or_text,
    printed_warnings,
    progress_bar,
    silence_transformers,
    spinner,
    with_options,
)
from attnflow.errors import InputError
from attnflow.models.builtin import ADAPTERS, VERB_NUMBER_MODELS

if TYPE_CHECKING:
    from attnflow.attribution import Attribution
    from attnflow.explanation import Explanation


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(cls=RegistryCommand)(with_options(explain))
    app.command("explain-image", cls=RegistryCommand)(with_options(explain_image))


def explain(  # noqa: PLR0913 - one argument for each option
    text: Annotated[str | None, typer.Argument(help="The text to explain.")] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="A folder with a model in safetensors, a hub name, or a built-in model: "
            f"{', '.join((*VERB_NUMBER_MODELS, *ADAPTERS))}. Default: {VERB_NUMBER_MODELS[0]}."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="A folder or hub name, if the tokenizer is not stored with the model."),
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(
            help="An image that comes with the text, for models of texts and images such as LLaVA "
            "or Qwen-VL; once for each image."
        ),
    ] = None,
    truncate: Annotated[
        Truncation, typer.Option(help="What to do with a text longer than the model's limit.")
    ] = Truncation.ERROR,
    position: Annotated[
        str | None,
        typer.Option(
            help="The position to explain: an index from 0, the text of a token, or 'all'. "
            "Default: the mask, the last token of a decoder, or [CLS]."
        ),
    ] = None,
    words: WordsOption = False,
    check: CheckOption = False,
    graph: Annotated[
        bool | None,
        typer.Option(
            help="Keep the attention graph, or only compute the rollout of the position, with "
            "--edges attention. Default: keep it if half of the free memory suffices."
        ),
    ] = None,
    inputs: InputOptions,
    scores: ScoreOptions,
    run: ModelOptions,
    overlay: Annotated[
        Path | None,
        typer.Option(
            help="Draw the scores of patches over the image: .png, .svg or .pdf.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Show what a model predicts for a text, or generates, and which tokens reach it.

    Example: attnflow explain "the key to the cabinets" --model ./my-model --method all --words

    Example: attnflow explain "Paris is the capital of" --model ./my-llm --generate 20
    """
    with clear_errors():
        scores.check(inputs.chat, *(image or ()), overlay=overlay)
        _check_format(check, scores)
        given = inputs.arguments(text)
        with spinner("Running the model"), printed_warnings():
            from attnflow.explainer import explain as explain_text

            silence_transformers()
            explanation = explain_text(
                model=model,
                images=image or None,
                **given,
                tokenizer=tokenizer,
                truncate=truncate.value,
                position=parse_position(position),
                keep_graph="auto" if graph is None else graph,
                **run.arguments(),
                **scores.graph_arguments(),
            )
        selection = inputs.selection(explanation, words)
        results = attribute(explanation, scores, position, **selection)
        if check:
            check_scores(explanation, scores, words)
        _draw_overlay(explanation, scores.methods, overlay)
        report(explanation, results, scores, **inputs.view(words))


def explain_image(
    file: Annotated[Path, typer.Argument(help="The image: a PNG or JPEG file, for example.")],
    *,
    model: Annotated[
        str, typer.Option(help="A folder with a vision model in safetensors, or a hub name.")
    ],
    processor: Annotated[
        str | None,
        typer.Option(help="A folder or hub name, if the image processor is not with the model."),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(
            help="The position to explain: '[CLS]', 'patch 2,3', '[MEAN]' over all patches, or an "
            "index. Default: [CLS], or [MEAN] for models without it."
        ),
    ] = None,
    check: CheckOption = False,
    scores: ScoreOptions,
    run: ModelOptions,
    overlay: Annotated[
        Path | None,
        typer.Option(
            help="Draw the scores over the image, for all layers: .png, .svg or .pdf.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Show what a vision model predicts for an image, and which patches reach that prediction.

    Example: attnflow explain-image cat.jpg --model ./my-vit --overlay cat-patches.png
    """
    with clear_errors():
        scores.check(file, overlay=overlay)
        _check_format(check, scores)
        with spinner("Loading the model"), printed_warnings():
            from attnflow.explainer import explain_image as explain_picture

            silence_transformers()
            explanation = explain_picture(
                file,
                model,
                processor=processor,
                position=None if position is None else number_or_text(position),
                **run.arguments(),
                **scores.graph_arguments(),
            )
        results = attribute(explanation, scores)
        if check:
            check_scores(explanation, scores)
        _draw_overlay(explanation, scores.methods, overlay)
        report(explanation, results, scores)


def parse_position(text: str | None) -> int | str | None:
    """The position to explain: an index, or the text of a token; None for the default and all."""
    return None if text in (None, ALL) else number_or_text(str(text))


def attribute(
    explanation: "Explanation",
    scores: ScoreOptions,
    position: str | None = None,
    *,
    words: bool = False,
    **selection: Any,
) -> "list[Attribution]":
    """Compute the methods, at the explained position or at all, with a progress bar for each.

    selection: the parts of an answer, and the units; see `Explanation.attribute`. A table of many
    parts shows the last layer, unless another is chosen.
    """
    options = {**scores.method_arguments(), **selection}
    has_many_rows = selection.get("answer") in ("tokens", "words", "sentences")
    if has_many_rows and scores.layer == ALL and scores.output is Format.TABLE:
        options["layers"] = -1
    if position == ALL:
        options["positions"] = range(len(explanation.words.texts if words else explanation.tokens))
    results = []
    for name in scores.methods:
        with progress_bar(name) as progress:
            results.append(explanation.attribute(name, **options, words=words, progress=progress))
    return results


def _check_format(check: bool, scores: ScoreOptions) -> None:
    """Raise InputError for a check in a format that has no place for it."""
    if check and scores.output is Format.CSV:
        raise InputError(
            "--check was given with --format csv",
            expected="a table or json, which have the results of the check",
            fix="Use --format json, or leave out --check.",
        )


def check_scores(explanation: "Explanation", scores: ScoreOptions, words: bool = False) -> None:
    """Check the methods on the input: remove tokens, and see whether the prediction changes."""
    with spinner("Checking"), printed_warnings():
        from attnflow.study.check import check_methods

        explanation.checks.update(check_methods(explanation, scores.methods, words=words))


def report(
    explanation: "Explanation",
    results: "list[Attribution]",
    scores: ScoreOptions,
    **view: Any,
) -> None:
    """Write the files of --save and --html, and print the scores in the format of --format.

    view: what the page shows when it opens, besides the options of the scores.
    """
    _save_results(results, scores.save)
    _write_page(explanation, scores, view)
    from attnflow.cli.render import print_explanation, to_csv, to_json

    if scores.output is Format.JSON:
        echo(to_json(explanation, results, scores.top))
    elif scores.output is Format.CSV:
        echo(to_csv(results, scores.top))
    else:
        print_explanation(explanation, results, scores.top)


def _save_results(results: "list[Attribution]", path: Path | None) -> None:
    """Write results to safetensors files: one, or one for each method."""
    if path is None:
        return
    for result in results:
        target = path if len(results) == 1 else path.with_suffix(f".{result.method}{path.suffix}")
        result.save(target)
        typer.echo(f"attnflow: wrote {target}", err=True)


def _write_page(
    explanation: "Explanation", scores: ScoreOptions, view: "Mapping[str, Any]"
) -> None:
    """Write the interactive page, which opens with the options of the command."""
    if scores.html is None:
        return
    with progress_bar("page") as progress:
        opened = {**scores.view_arguments(), **view}
        explanation.to_html(scores.html, progress=progress, **opened)
    typer.echo(f"attnflow: wrote {scores.html}", err=True)


def _draw_overlay(explanation: "Explanation", names: list[str], path: Path | None) -> None:
    if path is None:
        return
    with spinner("Drawing"):
        from attnflow.figures import draw_overlay, save

        save(draw_overlay(explanation, methods=names), path)
    typer.echo(f"attnflow: wrote {path}", err=True)
