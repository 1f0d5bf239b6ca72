"""The command `convert`: pickled weights to safetensors."""

from pathlib import Path
from typing import Annotated

import typer

from attnflow.cli.options import clear_errors, silence_transformers, spinner


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(convert)


def convert(
    folder: Annotated[
        Path, typer.Argument(help="A folder with config.json and pytorch_model.bin.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="The new folder. Default: the name of the folder with -safetensors."),
    ] = None,
) -> None:
    """Convert a pickle checkpoint to safetensors, with its tokenizer.

    Reading a pickle can run code. It is read in a process of its own, as tensors only
    (weights_only), without a network and without writing elsewhere.

    Example: attnflow convert ./my-model --out ./my-model-safetensors
    """
    with clear_errors():
        from attnflow.models.checkpoint import list_names
        from attnflow.models.conversion import convert_checkpoint

        place = folder.absolute()
        target = out or place.parent / f"{place.name}-safetensors"
        with spinner("Converting"):
            silence_transformers()
            done = convert_checkpoint(folder, target)
        typer.echo(
            f"attnflow: wrote {done.out}: {done.n_weights} weights of {done.model} as "
            f"model.safetensors, and {', '.join(done.copied) or 'no other files'}",
            err=True,
        )
        if done.unused:
            typer.echo(
                f"attnflow: left out {len(done.unused)} tensors that {done.model} does not have: "
                f"{list_names(done.unused)}",
                err=True,
            )
        if not done.has_tokenizer:
            typer.echo(
                f"attnflow: {done.folder} has no tokenizer: pass one with --tokenizer", err=True
            )
        typer.echo(f"Use it: attnflow explain TEXT --model {done.out}")
