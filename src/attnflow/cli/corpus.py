"""The command `corpus run`: whole data sets in, shards of Parquet out; and its companions."""

import json
from dataclasses import asdict
from difflib import get_close_matches
from enum import StrEnum
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli import corpus_results as corpus_checking
from attnflow.cli import corpus_results as corpus_reading
from attnflow.cli.explain import Edges, Truncation
from attnflow.cli.options import (
    HeadsOption,
    NormalizeOption,
    ResidualOption,
    Scaling,
    ThreadsOption,
    clear_errors,
    echo,
    number_or_text,
)
from attnflow.cli.progress import clock, plain_warnings, shown_progress, stopping
from attnflow.errors import InputError

if TYPE_CHECKING:
    from attnflow.corpus.progress import Summary


class EngineName(StrEnum):
    """Where to compute."""

    LOCAL = "local"
    RAY = "ray"


class InputFormat(StrEnum):
    """How the input is written."""

    TEXT = "text"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    corpus = typer.Typer(
        help="Score whole data sets; what is killed goes on where it was.", no_args_is_help=True
    )
    corpus.command()(run)
    corpus_checking.register(corpus)
    corpus_reading.register(corpus)
    app.add_typer(corpus, name="corpus")


def run(  # noqa: PLR0913 - one argument for each option
    given: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A file of texts (.txt, .csv, .tsv or .jsonl, also with .gz, or .parquet), or "
            "hf:name[:split] for a data set of Hugging Face.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The folder to write to, or to go on in.")],
    model: Annotated[
        str, typer.Option(help="A folder with a model in safetensors, or a name on the hub.")
    ] = "verb-number",
    tokenizer: Annotated[
        str | None, typer.Option(help="A folder or name, if the tokenizer is not with the model.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="raw, rollout, flow, several with commas, all or none.")
    ] = "rollout",
    importance: Annotated[
        str, typer.Option(help="blank_out, input_gradients, both with a comma, or none.")
    ] = "none",
    positions: Annotated[
        str,
        typer.Option(
            help="explained: the mask, the last token of a decoder, or [CLS]; all; or indices and "
            "tokens with commas, such as 0,-2,[SEP]."
        ),
    ] = "explained",
    layers: Annotated[
        str, typer.Option(help="Numbers from 1 with commas, -1 for the last, or all.")
    ] = "all",
    target: Annotated[
        str | None,
        typer.Option(help="A class or token to explain, by number or name; the predicted one."),
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Merge the tokens of each word.")] = False,
    edges: Annotated[Edges, typer.Option(help="What edges are weighted by.")] = Edges.ATTENTION,
    heads: HeadsOption = "mean",
    residual_weight: ResidualOption = 0.5,
    normalize: NormalizeOption = Scaling.NONE,
    truncate: Annotated[
        Truncation,
        typer.Option(help="error refuses a text longer than the model takes; cut shortens it."),
    ] = Truncation.ERROR,
    text_column: Annotated[
        str | None, typer.Option(help="The column of the texts; text or sentence if not given.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="The column of ids; the number of the row if not given.")
    ] = None,
    form: Annotated[
        InputFormat | None, typer.Option("--format", help="If the name does not say it.")
    ] = None,
    input_id: Annotated[
        str | None,
        typer.Option(help="What to tell the input by, instead of reading it for a checksum."),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens that the model is run on at once: 1024, on a GPU 16384 if not given.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where models run: cpu or cuda; a GPU if there is one.")
    ] = None,
    shard_size: Annotated[int, typer.Option(min=1, help="Rows of the input in a shard.")] = 1000,
    shards: Annotated[
        str | None, typer.Option(metavar="A:B", help="Only shards A to B - 1, such as 0:100.")
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="Where to compute.")] = EngineName.LOCAL,
    threads: ThreadsOption = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers of the Ray cluster that hold the model.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Of a Ray cluster; auto finds one that runs, local starts one."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad row.")] = False,
    accept_versions: Annotated[
        bool, typer.Option("--accept-versions", help="Go on with other versions of libraries.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    summary: Annotated[
        Path | None, typer.Option(help="Write the summary as JSON to this file.")
    ] = None,
) -> None:
    """Score every text of an input, and write the scores as Parquet to a folder.

    Killed at any moment, the same command goes on where it was. Bad rows are written to the
    folder's errors. Exits with 0 when all is done, 1 for a failure, 2 for misuse, 130 after Ctrl-C.

    Example: attnflow corpus run texts.txt --model ./my-model --methods rollout,flow --out scores
    """
    settings: dict[str, Any] = {
        "model": model,
        "tokenizer": tokenizer,
        "target": None if target is None else number_or_text(target),
        "words": words,
        "edges": edges.value,
        "heads": number_or_text(heads),
        "residual_weight": residual_weight,
        "normalize": normalize.value,
        "truncate": truncate.value,
    }
    given_too = {"device": device, "batch_tokens": batch_tokens}
    settings |= {name: value for name, value in given_too.items() if value is not None}
    with clear_errors(), stopping(at_once=engine is EngineName.LOCAL) as stopper:
        _require_folder(summary)
        settings["methods"] = _names(methods, ("raw", "rollout", "flow"))
        settings["importance"] = _names(importance, ("blank_out", "input_gradients"))
        settings["positions"] = _positions(positions)
        settings["layers"] = None if layers == "all" else _numbers(layers, "--layers")
        from attnflow.corpus.job import run as run_corpus
        from attnflow.storage import write_json

        with plain_warnings(), shown_progress(quiet) as progress:
            done = run_corpus(
                given,
                out,
                text_column=text_column,
                id_column=id_column,
                format=None if form is None else form.value,
                input_id=input_id,
                shard_size=shard_size,
                shards=_range(shards),
                engine=engine.value,
                threads=threads,
                workers=workers,
                address=address,
                strict=strict,
                accept_versions=accept_versions,
                progress=progress,
                stop=stopper,
                **settings,
            )
        if summary is not None:
            write_json(summary, _summary_to_json(done))
        if as_json:
            echo(json.dumps(_summary_to_json(done), indent=2))
        elif not quiet:
            _print_summary(done, shards)
    if done.interrupted:
        raise typer.Exit(stopper.exit_code)


def _require_folder(path: Path | None) -> None:
    """Refuse a summary that could not be written, before the run and not after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise InputError(
            f"--summary is {path}, and there is no folder {path.parent}",
            expected="an existing one",
            fix="Create it first.",
        )
    if path is not None and isdir(path):  # noqa: PTH112 - Path raises if the name is too long
        raise InputError(
            f"--summary is {path}, a folder",
            expected="a file",
            fix="Name one in it.",
        )


def _names(text: str, every: tuple[str, ...]) -> tuple[str, ...]:
    if text in ("all", "none"):
        return every if text == "all" else ()
    return tuple(name.strip().replace("-", "_") for name in text.split(","))


def _positions(text: str) -> Any:
    if text in ("explained", "all"):
        return text
    for word in get_close_matches(text, ("explained", "all"), n=1, cutoff=0.7):
        raise InputError(
            f"--positions is {text!r}",
            expected="explained, all, or indices and tokens with commas between them",
            fix=f"Did you mean {word}?",
        )
    return tuple(number_or_text(one) for one in text.split(","))


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise InputError(
            f"{option} is {text!r}",
            expected="all, or whole numbers with commas between them",
            fix=f"Write it like {option} 1,-1.",
        ) from None


def _range(text: str | None) -> tuple[int, int | None] | None:
    if text is None:
        return None
    first, colon, after = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return int(first or 0), int(after) if after else None
    except ValueError:
        raise InputError(
            f"--shards is {text!r}",
            expected="two whole numbers with a colon between them",
            fix="Write it like --shards 0:100, for the first hundred.",
        ) from None


def _summary_to_json(done: "Summary") -> dict[str, Any]:
    return {**asdict(done), "rows_per_second": done.rows_per_second}


def _print_summary(done: "Summary", shards: str | None) -> None:
    state = "complete" if done.complete else "not finished; the same command goes on"
    if done.complete and shards is not None:
        state = f"the shards {shards} are complete"
    typer.echo(
        f"{done.folder}: {state}\n"
        f"{_count(done.rows, 'row')} in {_count(done.shards, 'shard')}, {done.refused:,} refused, "
        f"{done.bytes:,} bytes\n"
        f"{_count(done.new_rows, 'row')} in this run, {clock(done.seconds)}, "
        f"{done.rows_per_second:,.1f} rows/s"
    )
    if done.refused:
        typer.echo(f"the refused rows: attnflow corpus errors {done.folder}")


def _count(n: int, what: str) -> str:
    """So many things.

    >>> _count(1, "row"), _count(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"
