"""The command `serve`: a local web page to explain texts in."""

from typing import Annotated

import typer

from attnflow.cli.options import clear_errors
from attnflow.models.builtin import ADAPTERS, VERB_NUMBER_MODELS


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(serve)


def serve(  # noqa: PLR0913 - one argument for each option
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model to offer on the page; repeat for several. A folder with a model in "
            "safetensors format, a name on the Hugging Face hub, or a built-in model: "
            f"{', '.join((*VERB_NUMBER_MODELS, *ADAPTERS))}. "
            f"Default: {' and '.join(VERB_NUMBER_MODELS)}."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. By default, only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")
    ] = 8765,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a web browser.")
    ] = True,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Additional allowed hostname; repeat for several."),
    ] = None,
    max_text: Annotated[
        int, typer.Option(min=1, help="Maximum number of characters in a text.")
    ] = 5_000,
    max_tokens: Annotated[
        int,
        typer.Option(
            min=1,
            help="Maximum number of tokens in a text with its answer, or in saved attentions.",
        ),
    ] = 512,
    max_generate: Annotated[
        int, typer.Option(min=1, help="Maximum number of tokens that a model generates.")
    ] = 128,
    max_upload: Annotated[
        float,
        typer.Option(min=0, max=1e6, help="Maximum size of saved attentions, in megabytes."),
    ] = 64.0,
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="Time limit of a computation, in seconds.")
    ] = 60.0,
    workers: Annotated[
        int,
        typer.Option(min=1, max=1000, help="Number of worker processes; each loads all models."),
    ] = 1,
    waiting: Annotated[
        int, typer.Option(min=0, help="Maximum number of computations in the queue.")
    ] = 8,
    keep: Annotated[
        int, typer.Option(min=1, help="Number of results to keep; older ones are dropped.")
    ] = 16,
) -> None:
    """Start a local web page: enter a text or chat, choose a model, and explore the attention.

    Press Ctrl+C to stop.

    Example: attnflow serve --model ./my-model --model bert-base-uncased
    """
    with clear_errors():
        from attnflow.viewer import server
        from attnflow.viewer.server.security import Limits

        def ready(url: str) -> None:
            typer.echo(f"attnflow: serving at {url} (press Ctrl+C to stop)")
            if server.is_public(host):
                typer.echo(
                    f"attnflow: from other machines: {server.public_url(url, host)}\n"
                    "attnflow: warning: everyone who knows this URL can use the page, and nothing "
                    "is encrypted. An IP address in place of the name works too; other names "
                    "need --allow-host NAME.",
                    err=True,
                )
            if open_:
                typer.launch(url)

        server.serve(
            model or (),
            host=host,
            port=port,
            allow_hosts=allow_host or (),
            limits=Limits(
                text_length=max_text,
                tokens=max_tokens,
                generated=max_generate,
                upload_bytes=int(max_upload * 1e6),
                seconds=seconds,
                workers=workers,
                waiting=waiting,
                results=keep,
            ),
            report=lambda stage, *_: typer.echo(f"attnflow: {stage}", err=True),
            ready=ready,
        )
