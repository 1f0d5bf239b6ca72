"""The command line and the command `trace`, in this process and once in another."""

import csv
import inspect
import io
import json
import os
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from attnflow import Attentions, __version__
from attnflow.cli import main as cli
from attnflow.cli import options, trace
from attnflow.errors import MissingDependencyError
from attnflow.optional import EXTRAS, command_extra
from tests.weights import TWO_LAYERS, TWO_LAYERS_ROLLOUT


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "attention.safetensors"
    Attentions(TWO_LAYERS, tokens=["a", "b"]).save(path)
    return str(path)


def run(*arguments):
    return CliRunner().invoke(cli.app, arguments)


def scores_of(*arguments):
    result = run("trace", *arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    [attribution] = json.loads(result.stdout)["attributions"]
    return np.asarray(attribution["scores"])


def test_rollout_of_the_first_position_is_the_default(path):
    np.testing.assert_array_equal(scores_of(path)[1:], TWO_LAYERS_ROLLOUT[None, :1])


def test_layers_and_positions_are_chosen_by_number_text_or_all(path):
    whole = scores_of(path, "--layer", "all", "--position", "all")
    assert whole.shape == (2, 2, 2)
    np.testing.assert_array_equal(scores_of(path, "--position", "b"), whole[:, 1:])
    np.testing.assert_array_equal(
        scores_of(path, "--layer", "1", "--position", "-1"), whole[:1, 1:]
    )


def test_raw_attention_and_its_options(path):
    raw = scores_of(path, "--method", "raw", "--position", "all", "--layer", "all")
    np.testing.assert_array_equal(raw, TWO_LAYERS)
    even = scores_of(path, "--method", "raw", "--normalize", "receptive_field", "--layer", "2")
    np.testing.assert_array_equal(even, [[[0.0, 1.0]]])
    identity = scores_of(path, "--residual-weight", "1", "--heads", "0", "--layer", "-1")
    np.testing.assert_array_equal(identity, [[[1.0, 0.0]]])


def test_flow_at_two_layers_is_a_sum_of_minima(path):
    options = ("--method", "flow", "--position", "all", "--threads", "1", "--layer", "-1")
    flows = scores_of(path, *options)
    # From a, over a and b: to a min(0.5, 0.75) + min(0.5, 0), to b min(0.5, 0.25) + min(0.5, 1).
    np.testing.assert_allclose(flows, [[[0.5, 0.75], [0.5, 0.75]]])


def test_a_table_is_plain_where_it_cannot_be_colored(path):
    result = run("trace", path)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "layer 2  0.38 0.62" in result.stdout


def test_csv_can_be_read_by_others(path):
    result = run("trace", path, "--format", "csv", "--top", "1", "--layer", "2")
    [row] = csv.DictReader(io.StringIO(result.stdout))
    assert (row["layer"], row["position_token"], row["token"]) == ("2", "a", "b")
    assert float(row["score"]) == 0.625


def test_tokens_from_the_command_line_or_a_file(path, tmp_path):
    assert "position: 0 the" in run("trace", path, "--tokens", "the,key").stdout
    file = tmp_path / "tokens.txt"
    file.write_text("a,b\nאב\n", encoding="utf-8")
    result = run("trace", path, "--tokens-file", str(file), "--format", "json")
    assert json.loads(result.stdout)["tokens"] == ["a,b", "אב"]


def test_a_lone_surrogate_is_escaped(tmp_path):
    path = tmp_path / "a.safetensors"
    Attentions([[[1.0]]], tokens=["\ud83d"]).save(path)
    for output in ("table", "json", "csv"):
        assert "\\ud83d" in run("trace", str(path), "--format", output).stdout


@pytest.mark.parametrize(
    ("options", "value"),
    [
        (["--layer", "3"], "1 to 2"),
        (["--layer", "top"], "--layer is 'top'"),
        (["--position", "c"], "'c'"),
        (["--position", "2"], "position is 2"),
        (["--heads", "1"], "heads is 1"),
        (["--heads", "sum"], "'sum'"),
        (["--residual-weight", "2"], "residual_weight is 2.0"),
        (["--tokens", "a"], "2 tokens"),
        (["--tokens", "a,b", "--tokens-file", __file__], "--tokens-file"),
    ],
)
def test_misuse_is_one_line_on_stderr_and_exit_code_2(path, options, value):
    result = run("trace", path, *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("attnflow: ")
    assert value in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [["--method", "magic"], ["--top", "0"], ["--nonsense"]])
def test_options_that_do_not_exist_are_misuse_too(path, options):
    assert run("trace", path, *options).exit_code == 2


def test_a_missing_file_is_misuse(tmp_path):
    result = run("trace", str(tmp_path / "none.npy"))
    assert result.exit_code == 2
    assert "does not exist" in " ".join(result.stderr.replace("│", " ").split())


def test_other_failures_have_exit_code_1(path, monkeypatch):
    def fail(*_):
        raise MissingDependencyError("torch is not installed.")

    monkeypatch.setattr(trace, "read_attentions", fail)
    result = run("trace", path)
    assert result.exit_code == 1
    assert result.stderr == "attnflow: torch is not installed.\n"


def test_version_and_help():
    assert run("--version").stdout == f"attnflow {__version__}\n"
    text = run("trace", "--help").stdout
    assert "Example: attnflow trace attention.safetensors --method flow" in text
    assert "layers, heads, queries, keys" in " ".join(text.replace("│", " ").split())


def test_without_a_command_three_commands_to_try_are_printed():
    result = run()
    assert result.exit_code == 0
    shown = [line.strip() for line in result.stdout.splitlines() if line.startswith("  ")]
    assert len(shown) == 3
    names = [shlex.split(line)[:2] for line in shown]
    assert all(program == "attnflow" and name in cli.COMMANDS for program, name in names)
    assert "pip install" not in result.stdout


def test_without_a_command_and_models_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == "torch" else name)
    assert "pip install 'attnflow[models]'" in run().stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_exists_and_has_the_help_of_the_table(name):
    line = cli.COMMANDS[name].line
    command = cli.load_command(name)
    assert command.name == name
    assert command.help.partition("\n\n")[0].replace("\n", " ") == line
    assert run(name, "--help").exit_code == 0


def test_help_lists_all_commands_in_the_order_of_the_table():
    shown = run("--help").stdout
    places = [shown.index(f"│ {name} ") for name in cli.COMMANDS]
    assert places == sorted(places)


def test_a_mistyped_command_is_misuse_and_similar_ones_are_listed():
    result = run("explian")
    assert result.exit_code == 2
    assert "'explain'" in result.stderr


def modules_after(*arguments):
    """The modules of attnflow that a command loads in a fresh interpreter."""
    code = (
        "import sys\nfrom attnflow.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted(name for name in sys.modules if name.startswith('attnflow')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_a_command_loads_no_other_command():
    modules = {entry.module for entry in cli.COMMANDS.values()}
    assert modules & modules_after("--help") == set()
    assert modules & modules_after("explain", "--help") == {"attnflow.cli.explain"}
    assert modules & modules_after("trace", "--help") == {
        "attnflow.cli.explain",
        "attnflow.cli.trace",
    }


@pytest.mark.slow
def test_explaining_a_text_loads_nothing_for_files_token_ids_or_plain_torch_models():
    loaded = modules_after("explain", "the keys to the cabinet")
    assert "attnflow.methods.rollout" in loaded
    unneeded = {"storage", "models.token_ids", "models.vision", "models.capture.torch_hooks"}
    assert loaded & {f"attnflow.{name}" for name in unneeded} == set()


def test_a_dataclass_of_options_becomes_options():
    def command(*, words: options.WordsOption = False, scores: options.ScoreOptions) -> None:
        seen.append((words, scores))

    seen: list[tuple[bool, options.ScoreOptions]] = []
    expanded = options.with_options(command)
    parameters = inspect.signature(expanded).parameters
    assert list(parameters) == ["words", *options.ScoreOptions.__dataclass_fields__]
    assert parameters["method"].default == "rollout"
    values = {name: parameter.default for name, parameter in parameters.items()}
    expanded(**{**values, "heads": "0", "layer": "2"})
    assert seen == [(False, options.ScoreOptions(heads="0", layer="2"))]
    assert seen[0][1].graph_arguments() == {"heads": 0}


def test_progress_is_drawn_only_on_a_terminal(monkeypatch, capsys):
    with options.progress_bar("flow") as progress:
        progress(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with options.progress_bar("flow") as progress:
        progress(1, 2)
    assert "flow" in capsys.readouterr().err


def test_progress_is_logged_at_intervals_without_a_terminal(monkeypatch, capsys):
    now = 100.0
    monkeypatch.setattr(options, "monotonic", lambda: now)
    with options.progress_bar("table1") as progress:
        for done in range(1, 9):
            now += 4.0
            progress(done, 8)
    assert capsys.readouterr().err == "attnflow: table1: 38%\nattnflow: table1: 75%\n"


def run_process(*arguments, **environment):
    code = "from attnflow.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1", **environment},
        check=False,
    )


def test_in_a_process_of_its_own(path):
    done = run_process("trace", path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "layer 2  0.38 0.62" in done.stdout
    assert done.stderr == ""
    wrong = run_process("trace", path, "--layer", "3")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("attnflow: layer is 3")
    assert "Traceback" not in wrong.stderr


def test_characters_that_a_terminal_cannot_encode_are_escaped(path):
    shown = run_process("trace", path, "--tokens", "café,b", PYTHONIOENCODING="ascii")
    assert shown.returncode == 0
    assert "caf\\xe9" in shown.stdout


def test_no_color_is_respected(path):
    colored = run_process("trace", path, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="")
    assert "48;5;" in colored.stdout
    plain = run_process("trace", path, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1")
    assert "48;5;" not in plain.stdout


# Optional packages, which the fixture below hides in a process of its own.
HIDE = """
import importlib.abc, sys
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
from attnflow.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["explain", "a"], "models"),
        (["explain-image", __file__, "--model", "m"], "images"),
        (["convert", "{folder}"], "models"),
        (["serve"], "serve"),
        (["corpus", "run", "{text}", "--out", "{folder}/out"], "corpus"),
        (["evaluate", "{text}", "--out", "{folder}/out"], "evaluation"),
        (["reproduce", "table1"], "paper"),
        (["train", "verb-number", "--out", "{folder}/out"], "paper"),
    ],
)
def test_each_command_names_one_extra_with_all_that_it_needs(tmp_path, arguments, extra):
    (tmp_path / "a.txt").write_text("a\n", encoding="utf-8")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    places = {"text": tmp_path / "a.txt", "folder": tmp_path}
    done = subprocess.run(
        [
            *(sys.executable, "-c", HIDE.format(hidden=set(EXTRAS))),
            *(argument.format(**places) for argument in arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("attnflow: ")
    assert f"pip install 'attnflow[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1


def complete(line, shell="bash"):
    """What completion in a shell offers for the last word of a line."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    done = run_process(
        _ATTNFLOW_COMPLETE=f"complete_{shell}",
        COMP_WORDS="\n".join(words),
        COMP_CWORD=str(len(words) - 1),
        COLUMNS="200",
    )
    return done.stdout.split()


def test_commands_and_options_are_completed_in_bash():
    assert complete("attnflow expl") == ["explain", "explain-image"]
    assert set(complete("attnflow ")) == set(cli.COMMANDS)
    assert "--method" in complete("attnflow explain --m")
    assert complete("attnflow corpus sh") == ["show"]
    assert "receptive_field" in complete("attnflow explain a --normalize ")
    assert complete("attnflow explain --method ro") == ["rollout"]
    assert complete("attnflow trace a.npz --method al") == ["all"]
    assert "globenc" in complete("attnflow explain --edges ")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_installed_completion_works_in_bash(tmp_path):
    program = tmp_path / "attnflow"
    program.write_text(
        f"#!{sys.executable}\nfrom attnflow.cli.main import main\nmain()\n", encoding="utf-8"
    )
    program.chmod(0o755)
    script = (
        'attnflow --install-completion bash >/dev/null; source "$HOME/.bashrc"; '
        "COMP_WORDS=(attnflow corpus ch); COMP_CWORD=2; "
        'set -- $(complete -p attnflow); name=${@: -2:1}; $name attnflow; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "check\n"


def test_the_extra_of_a_command_is_forgotten_when_it_ends():
    assert command_extra.get() is None
    assert CliRunner().invoke(cli.app, ["serve", "--help"]).exit_code == 0
    assert cli.load_command("serve").name == "serve"
    assert command_extra.get() is None


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "attnflow", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("attnflow ")
