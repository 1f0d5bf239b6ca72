"""The command `train`: the verb-number model of the paper, and adapters to a MiniLM encoder."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.options import clear_errors, progress_bar

if TYPE_CHECKING:
    from attnflow.paper.verb_number.splits import Split
    from attnflow.paper.verb_number.trainer import Recipe

OutOption = Annotated[Path, typer.Option(help="The folder to write the model into.")]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where to train, such as cpu; a GPU if there is one.")
]

CHECKPOINT = "training.pt"
ACCURACY = "accuracy.json"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    group = typer.Typer(no_args_is_help=True, help="Train a model.")
    group.callback()(_train)
    group.command("verb-number")(verb_number)
    group.command("minilm-sst2")(minilm_sst2)
    group.command("minilm-mlm")(minilm_mlm)
    app.add_typer(group, name="train")


def _train() -> None:
    """Train a model."""


def verb_number(  # noqa: PLR0913 - one argument for each option
    *,
    out: OutOption,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder with linzen_numpred, amalgum_agreement and ud_agreement; see `attnflow "
            "data`. If not given: sentences made up by a small grammar."
        ),
    ] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="Train the twin with a causal mask.")
    ] = False,
    helping_tasks: Annotated[
        bool,
        typer.Option(
            help="Also guess blanked words and tags, and smooth the labels, which makes the model "
            "much better; without, only the number of the verb is learnt."
        ),
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights and the order.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="25 if not given.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="256 if not given.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the training in the folder.")
    ] = False,
    device: DeviceOption = None,
) -> None:
    """Train a model that predicts whether the verb after a text is singular or plural.

    Example: attnflow train verb-number --data ./data --out ./my-model --seed 1
    """
    with clear_errors():
        from attnflow.arrays import import_torch
        from attnflow.models.loading import import_transformers

        import_torch("training")
        import_transformers("training")
        from attnflow.paper.verb_number.objective import ONLY_NUMBER
        from attnflow.paper.verb_number.trainer import Recipe

        recipe = replace(Recipe(), seed=seed, causal=causal)
        if not helping_tasks:
            recipe = replace(recipe, objective=ONLY_NUMBER)
        recipe = replace(
            recipe,
            epochs=epochs or recipe.epochs,
            batch_size=batch_size or recipe.batch_size,
        )
        _run(_split(data), recipe, out, resume, device)


def _split(data: Path | None) -> "Split":
    from attnflow.paper.verb_number.splits import split_folder, split_grammar

    return split_grammar() if data is None else split_folder(data)


def _run(split: "Split", recipe: "Recipe", out: Path, resume: bool, device: str | None) -> None:
    from attnflow.models.builtin.verb_number import save_verb_number
    from attnflow.paper.verb_number.trainer import train

    with progress_bar("training") as progress, _logged(quiet=sys.stderr.isatty()):
        trained = train(
            split,
            recipe,
            checkpoint=out / CHECKPOINT,
            resume=resume,
            device=device,
            progress=progress,
        )
    save_verb_number(trained.model, trained.vocabulary, out)
    _report(trained.accuracy, out)


def minilm_sst2(
    *,
    out: OutOption,
    data: Annotated[Path, typer.Option(help="A folder with sst2; see `attnflow data`.")],
    device: DeviceOption = None,
) -> None:
    """Train an adapter that makes a sentiment classifier of the MiniLM encoder.

    Example: attnflow train minilm-sst2 --data ./data --out ./minilm-sst2
    """
    with clear_errors():
        with _training() as (training, progress):
            from attnflow.paper.minilm.texts import read_reviews

            reviews = read_reviews(data)
            found = training.train_sentiment(reviews, out=out, device=device, progress=progress)
        _report(found, out)


def minilm_mlm(
    *,
    out: OutOption,
    data: Annotated[
        Path,
        typer.Option(
            help="A folder with amalgum_agreement, ud_agreement and sst2, see `attnflow data`, and "
            "stories260K of karpathy/tinyllamas."
        ),
    ],
    device: DeviceOption = None,
) -> None:
    """Train an adapter that makes a masked language model of the MiniLM encoder.

    Example: attnflow train minilm-mlm --data ./data --out ./minilm-mlm
    """
    with clear_errors():
        with _training() as (training, progress):
            from attnflow.paper.minilm.texts import read_texts_with_stories

            texts = read_texts_with_stories(data, device=device)
            found = training.train_language(texts, out=out, device=device, progress=progress)
        _report(found, out)


@contextmanager
def _training() -> Iterator[tuple[Any, Any]]:
    """The module that trains adapters, and a bar."""
    from attnflow.arrays import import_torch
    from attnflow.models.builtin.folders import find_encoder
    from attnflow.models.loading import import_transformers

    import_torch("training")
    import_transformers("training")
    find_encoder()
    from attnflow.paper.minilm import adapter_trainer as training

    with progress_bar("training") as progress, _logged(quiet=sys.stderr.isatty()):
        yield training, progress


def _report(found: Mapping[str, float], out: Path) -> None:
    """Write and print the accuracy on each held-out set."""
    import json

    report = json.dumps(dict(found), indent=2)
    (out / ACCURACY).write_text(f"{report}\n", encoding="utf-8")
    for name, share in found.items():
        typer.echo(f"{name}: {share:.4f}")
    typer.echo(f"attnflow: wrote {out}", err=True)


@contextmanager
def _logged(*, quiet: bool) -> Iterator[None]:
    """Write what the library logs to stderr, unless there is a bar to look at."""
    logger, handler = logging.getLogger("attnflow"), logging.StreamHandler(sys.stderr)
    before = logger.level
    if not quiet:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
