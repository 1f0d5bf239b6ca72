"""The command `serve`: what it hands on, and what it says when it cannot start."""

import socket
import sys

import pytest
import typer
from typer.testing import CliRunner

from attnflow import InputError, MissingDependencyError
from attnflow.cli.serve import register
from attnflow.viewer.server import run as serving
from attnflow.viewer.server.security import Limits
from tests.refusal import refusal


def run(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["serve", *arguments])


@pytest.fixture
def calls(monkeypatch):
    """What `serve` was called with; it says at once that the page is there."""
    seen = []

    def note(models, **options):
        seen.append((models, options))
        options["report"]("loading a model", 0, 1)
        options["ready"]("http://127.0.0.1:1/")

    monkeypatch.setattr(serving, "serve", note)
    monkeypatch.setattr(typer, "launch", seen.append)
    return seen


def test_by_default_the_page_is_for_this_machine_alone(calls):
    result = run()
    assert result.exit_code == 0, result.output
    (models, options), opened = calls
    assert (list(models), options["host"], options["port"]) == ([], "127.0.0.1", 8765)
    assert options["limits"] == Limits()
    assert opened == "http://127.0.0.1:1/"
    assert result.stdout == "attnflow: the page is at http://127.0.0.1:1/ (Ctrl+C ends it)\n"
    assert result.stderr == "attnflow: loading a model\n"


def test_options_are_handed_on(calls):
    result = run(
        *("--model", "a", "--model", "b", "--host", "0.0.0.0", "--port", "0", "--no-open"),
        *("--allow-host", "box", "--max-text", "7", "--max-tokens", "8", "--max-upload", "0.5"),
        *("--seconds", "9", "--workers", "2", "--waiting", "0", "--keep", "3"),
    )
    [(models, options)] = calls
    assert list(models) == ["a", "b"]
    assert options["allow_hosts"] == ["box"]
    limits = options["limits"]
    assert (limits.text_length, limits.tokens, limits.upload_bytes) == (7, 8, 500_000)
    assert (limits.seconds, limits.workers, limits.waiting, limits.results) == (9, 2, 0, 3)
    assert "other machines may reach this page on 0.0.0.0, and there is no password" in (
        result.stderr
    )


def test_a_port_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with refusal(InputError, f"cannot listen on 127.0.0.1, port {port}", "Choose another"):
            serving.bind("127.0.0.1", port)
    with refusal(InputError, "cannot listen on no-such-host.invalid"):
        serving.bind("no-such-host.invalid", 0)


def test_the_address_is_one_to_type():
    for host, expected in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")):
        with serving.bind(host, 0) as listening:
            port = listening.getsockname()[1]
            assert serving.address(listening) == f"http://{expected}:{port}/"


@pytest.mark.parametrize(
    ("module", "name"), [("starlette.applications", "starlette"), ("uvicorn", "uvicorn")]
)
def test_missing_packages_are_named(module, name, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with refusal(
        MissingDependencyError, f"{name} is not installed", "pip install 'attnflow[serve]'"
    ):
        serving.serve()


def test_a_model_that_is_not_there_is_exit_2(tmp_path):
    result = run("--model", str(tmp_path), "--no-open", "--port", "0")
    assert result.exit_code == 2
    assert "has no config.json" in result.stderr
