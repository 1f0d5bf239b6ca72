"""The command `serve`: its options, and its errors at the start."""

import socket
import sys

import pytest
import typer
from typer.testing import CliRunner

from attnflow import InputError, MissingDependencyError
from attnflow.cli.serve import register
from attnflow.viewer import server
from attnflow.viewer.server.security import Limits
from tests.refusal import refusal


def run(*arguments, **environment):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["serve", *arguments], env=environment)


@pytest.fixture
def calls(monkeypatch):
    """The arguments of `serve`, which is replaced, and the URLs opened in a browser."""
    seen = []

    def record(models, **options):
        seen.append((models, options))
        options["report"]("loading a model", 0, 1)
        options["ready"]("http://127.0.0.1:1/")

    monkeypatch.setattr(server, "serve", record)
    monkeypatch.setattr(typer, "launch", seen.append)
    return seen


def test_by_default_only_this_machine_can_connect(calls):
    result = run()
    assert result.exit_code == 0, result.output
    (models, options), opened = calls
    assert (list(models), options["host"], options["port"]) == ([], "127.0.0.1", 8765)
    assert options["limits"] == Limits()
    assert opened == "http://127.0.0.1:1/"
    assert "http://127.0.0.1:1/" in result.stdout
    assert result.stderr == "attnflow: loading a model\n"


def test_options_are_passed_on(calls):
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
    for fragment in ("warning", f"http://{socket.gethostname()}:1/", "--allow-host"):
        assert fragment in result.stderr


@pytest.mark.parametrize("option", ["--max-upload", "--seconds", "--workers"])
@pytest.mark.parametrize("value", ["inf", "1e400", "99999999999"])
def test_limits_without_an_end_are_exit_2(option, value):
    result = run("--port", "0", "--no-open", option, value)
    assert result.exit_code == 2
    assert option in result.stderr


def test_the_help_lists_the_built_in_models():
    result = run("--help", COLUMNS="200")
    for name in ("verb-number-causal", "minilm-sst2", "Additional allowed hostname"):
        assert name in result.stdout


def test_an_address_that_cannot_be_used_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with refusal(InputError, "127.0.0.1", f"port {port}", "--port"):
            server.bind("127.0.0.1", port)
    with refusal(InputError, "no-such-host.invalid"):
        server.bind("no-such-host.invalid", 0)


def test_the_url_can_be_opened_on_this_machine():
    for host, expected in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")):
        with server.bind(host, 0) as listener:
            port = listener.getsockname()[1]
            assert server.local_url(listener) == f"http://{expected}:{port}/"


@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
def test_missing_packages_are_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with refusal(MissingDependencyError, name, "pip install 'attnflow[serve]'"):
        server.serve()


@pytest.mark.slow
def test_a_folder_without_a_model_is_exit_2(tmp_path):
    result = run("--model", str(tmp_path), "--no-open", "--port", "0")
    assert result.exit_code == 2
    assert "config.json" in result.stderr
