"""The command `explain`: a text and a model in, a prediction and its attributions out."""

import warnings
from enum import StrEnum
from importlib import import_module
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    from attnflow.attribution import Attribution
    from attnflow.explanation import Explanation

BEST = 5  # tokens named under a strip when --top does not say how many


class Methods(StrEnum):
    """How to attribute a position to tokens."""

    RAW = "raw"
    ROLLOUT = "rollout"
    FLOW = "flow"
    ALL = "all"


class Edges(StrEnum):
    """What edges are weighted by."""

    ATTENTION = "attention"
    EFFECTIVE = "effective"
    GRADIENT = "gradient"
    VALUE = "value"


class SpecialTokens(StrEnum):
    """What to do with special tokens."""

    SHOW = "show"
    HIDE = "hide"


class Truncation(StrEnum):
    """What to do with a text that is too long."""

    ERROR = "error"
    CUT = "cut"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(explain)


def explain(  # noqa: PLR0913 - one argument for each option
    text: Annotated[str, typer.Argument(help="The text to explain.")],
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="A folder with a model in safetensors, a name on the hub, or one of attnflow's "
            "own: verb-number, which is the default, verb-number-causal, minilm-sst2, minilm-mlm."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="A folder or name, if the tokenizer is not with the model.")
    ] = None,
    method: Annotated[
        Methods,
        typer.Option(
            help="raw: the weights of one layer. rollout: the product of the layers. "
            "flow: the maximum flow through the layers. all: these three."
        ),
    ] = Methods.ROLLOUT,
    layer: LayerOption = "all",
    position: Annotated[
        str | None,
        typer.Option(
            help="Where to look from: an index from 0, a token's text, or 'all'. If not given: the "
            "mask, the last token of a decoder, or [CLS]."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="A class or token to explain, by number or name; the predicted one."),
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Merge the tokens of each word.")] = False,
    special: Annotated[
        SpecialTokens, typer.Option(help="Show or hide special tokens such as [CLS].")
    ] = SpecialTokens.SHOW,
    edges: Annotated[
        Edges,
        typer.Option(
            help="attention; effective: the part of it that can matter; gradient: times its "
            "gradient; value: times the length of what it brings."
        ),
    ] = Edges.ATTENTION,
    heads: HeadsOption = "mean",
    residual_weight: ResidualOption = 0.5,
    normalize: NormalizeOption = Scaling.NONE,
    truncate: Annotated[
        Truncation, typer.Option(help="For a text longer than the model takes.")
    ] = Truncation.ERROR,
    top: Annotated[
        int | None, typer.Option(min=1, help="Name the K tokens with the highest scores.")
    ] = None,
    output: FormatOption = Format.TABLE,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Write the scores to a .safetensors file; with --method all, to one for each "
            "method, whose name is put before the ending."
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page to explore it with any browser, without a network."),
    ] = None,
    threads: ThreadsOption = None,
    device: Annotated[
        str | None, typer.Option(help="Where to run the model, such as cpu or cuda.")
    ] = None,
) -> None:
    """Print what a model predicts for a text, and which tokens reach that prediction.

    Example: attnflow explain "the key to the cabinets" --model ./my-model --method all --words
    """
    with clear_errors():
        check_page(html)
        explanation = _compute(
            text,
            model,
            tokenizer=tokenizer,
            position=None if position in (None, "all") else number_or_text(str(position)),
            target=None if target is None else number_or_text(target),
            heads=number_or_text(heads),
            residual_weight=residual_weight,
            edges=edges.value,
            truncate=truncate.value,
            device=device,
        )
        options = {
            "layers": parse_layer(layer),
            "positions": _every(explanation, words) if position == "all" else None,
            "normalize": normalize.value,
            "words": words,
            "special": special.value,
        }
        results = _attribute(explanation, method, options, threads)
        _save(results, save)
        _write_page(explanation, html)
        _print(explanation, results, output, top)


def _compute(text: str, model: str | None, **options: Any) -> "Explanation":
    with spinner("loading the model and reading the text"):
        from attnflow.explainer import explain as explain_text

        quieten()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            explanation = explain_text(text, model, **options)
    for warning in caught:
        typer.echo(f"attnflow: {warning.message}", err=True)
    return explanation


def check_page(path: Path | None) -> None:
    """Refuse a place where no page can be written, before anything is computed."""
    if path is not None:
        from attnflow.viewer.page import check_target

        check_target(path)


def quieten() -> None:
    """Keep transformers from drawing bars, and its hub from telling of each attempt.

    Both would mix with ours; what cannot be loaded we say ourselves.
    """
    try:
        logging = import_module("transformers.utils.logging")
    except ImportError:
        return  # the library will say that transformers is missing
    logging.disable_progress_bar()
    getLogger("huggingface_hub").setLevel(ERROR)


def _every(explanation: "Explanation", words: bool) -> range:
    return range(len(explanation.words.texts if words else explanation.tokens))


def _attribute(
    explanation: "Explanation", method: Methods, options: dict[str, Any], threads: int | None
) -> "list[Attribution]":
    names = ["raw", "rollout", "flow"] if method is Methods.ALL else [method.value]
    results = []
    for name in names:
        if name != "flow":
            results.append(getattr(explanation, name)(**options))
            continue
        with progress_bar("flow") as progress:
            results.append(explanation.flow(**options, threads=threads, progress=progress))
    return results


def _save(results: "list[Attribution]", path: Path | None) -> None:
    if path is None:
        return
    for result in results:
        one = path if len(results) == 1 else path.with_suffix(f".{result.method}{path.suffix}")
        result.save(one)
        typer.echo(f"attnflow: wrote {one}", err=True)


def _write_page(explanation: "Explanation", path: Path | None) -> None:
    if path is None:
        return
    with progress_bar("page") as progress:
        explanation.to_html(path, progress=progress)
    typer.echo(f"attnflow: wrote {path}", err=True)


def _print(
    explanation: "Explanation", results: "list[Attribution]", output: Format, top: int | None
) -> None:
    from rich.console import Console

    from attnflow.cli import render as strip
    from attnflow.cli.render import print_tables

    if output is Format.JSON:
        return echo(strip.explanation_to_json(explanation, results, top))
    if output is Format.CSV:
        return echo(strip.attributions_to_csv(results, top))
    console = Console(highlight=False)
    strip.print_heading(explanation, console)
    for result in results:
        if len(result.positions) == 1:
            strip.print_strip(result, top or BEST, console)
        else:
            console.print()
            print_tables(result, top, console)
    return None
