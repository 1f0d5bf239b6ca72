"""The command `serve`: a local page to type texts into and to explore what models do with them."""

from typing import Annotated

import typer

from attnflow.cli.options import clear_errors


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(serve)


def serve(  # noqa: PLR0913 - one argument for each option
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model for the page to offer; may be given several times. A folder with one in "
            "safetensors, a name on the hub, or one of attnflow's own: verb-number, "
            "verb-number-causal, minilm-sst2, minilm-mlm. The first two of these if not given."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; only this machine if not given.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any free one.")
    ] = 8765,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a web browser.")
    ] = True,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name that the page is reached by, if not on this machine."),
    ] = None,
    max_text: Annotated[int, typer.Option(min=1, help="Characters that a text may have.")] = 5_000,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens that a text may have.")] = 512,
    max_upload: Annotated[
        float, typer.Option(min=0, help="Megabytes that saved attentions may have.")
    ] = 64.0,
    seconds: Annotated[float, typer.Option(min=1, help="Time for one computation.")] = 60.0,
    workers: Annotated[
        int, typer.Option(min=1, help="Computations at the same time; each has its own models.")
    ] = 1,
    waiting: Annotated[int, typer.Option(min=0, help="Computations that may wait.")] = 8,
    keep: Annotated[int, typer.Option(min=1, help="Results to keep; older ones go.")] = 16,
) -> None:
    """Serve a page on this machine: type a text, choose a model, and explore.

    Ctrl+C ends it.

    Example: attnflow serve --model ./my-model --model bert-base-uncased
    """
    with clear_errors():
        from attnflow.viewer.server.run import is_public
        from attnflow.viewer.server.run import serve as run
        from attnflow.viewer.server.security import Limits

        def ready(url: str) -> None:
            if is_public(host):
                typer.echo(
                    f"attnflow: other machines may reach this page on {host}, and there is no "
                    "password.",
                    err=True,
                )
            typer.echo(f"attnflow: the page is at {url} (Ctrl+C ends it)")
            if open_:
                typer.launch(url)

        run(
            model or (),
            host=host,
            port=port,
            allow_hosts=allow_host or (),
            limits=Limits(
                text_length=max_text,
                tokens=max_tokens,
                upload_bytes=int(max_upload * 1e6),
                seconds=seconds,
                workers=workers,
                waiting=waiting,
                results=keep,
            ),
            report=lambda stage, *_: typer.echo(f"attnflow: {stage}", err=True),
            ready=ready,
        )
