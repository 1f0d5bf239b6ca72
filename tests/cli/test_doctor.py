"""The commands `doctor` and `warmup`."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

import attnflow
from attnflow.cli import doctor, warmup
from attnflow.cli.main import app
from attnflow.errors import MissingDependencyError


def run(*arguments):
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def light(monkeypatch):
    """Parts of the solver that take no time."""
    states = {"flow": True, "joint flow": False}
    monkeypatch.setattr(warmup, "PARTS", {name: name for name in states})
    monkeypatch.setattr(warmup, "is_compiled", lambda name: states[name])
    monkeypatch.setattr(warmup, "solver_folder", lambda: "somewhere")


def diagnose():
    result = run("doctor", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.usefixtures("light")
def test_versions_are_those_of_the_packages():
    found = diagnose()
    assert found["attnflow"] == attnflow.__version__
    assert found["python"] == sys.version.split()[0]
    assert found["base"]["installed"]["numpy"] == version("numpy")
    assert found["base"]["lacking"] == []
    assert found["extras"]["models"]["installed"]["torch"] == version("torch")
    assert found["devices"]["cpu"].startswith(f"{os.cpu_count()} ")


@pytest.mark.usefixtures("light")
def test_an_extra_lacks_packages_that_are_missing_or_too_old(monkeypatch):
    def installed(name):
        if name == "pyarrow":
            raise PackageNotFoundError(name)
        return "5.0.0" if name == "filelock" else "1!9"  # an epoch is newer than any version

    wanted = [Requirement(line) for line in ("pyarrow>=18", "filelock>=5.1", "torch>=2.4")]
    monkeypatch.setattr(doctor, "version", installed)
    monkeypatch.setattr(doctor, "requirements", lambda extra=None: wanted if extra else [])
    lacking = diagnose()["extras"]["corpus"]["lacking"]
    assert lacking == ["pyarrow>=18", "filelock>=5.1 (5.0.0 is installed)"]
    assert "corpus" in run("doctor").stdout


@pytest.mark.usefixtures("light")
def test_a_missing_package_that_is_always_needed_is_a_failure(monkeypatch):
    needed = [Requirement("no-such-package>=3")]
    monkeypatch.setattr(doctor, "requirements", lambda extra=None: [] if extra else needed)
    result = run("doctor")
    assert result.exit_code == 1
    assert "no-such-package>=3" in result.stdout


@pytest.mark.usefixtures("light")
def test_the_text_says_what_is_compiled_and_which_caches_can_be_written(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(warmup, "solver_folder", lambda: str(tmp_path))
    shown = run("doctor").stdout
    lines = {line.split("  ")[1]: line for line in shown.splitlines() if line.startswith("  ")}
    assert lines["flow"].endswith(" compiled")
    assert "not compiled: attnflow warmup" in lines["joint flow"]
    assert lines["compiled solver"].endswith(f"{tmp_path} (writable)")
    assert "does not exist yet" in lines["models from the hub"]


def test_a_solver_that_cannot_be_stored_is_not_told_to_be_warmed_up(monkeypatch):
    solver = (dict.fromkeys(warmup.PARTS, False), None, None)
    monkeypatch.setattr(doctor, "_check_solver", lambda: solver)
    shown = run("doctor").stdout
    assert "attnflow warmup" not in shown
    assert "NUMBA_CACHE_DIR" in shown


def test_a_file_in_the_way_of_a_cache_makes_it_unwritable(tmp_path):
    (tmp_path / "file").write_text("")
    assert not doctor._is_writable(tmp_path / "file" / "cache")
    assert doctor._is_writable(tmp_path / "new" / "cache")


def test_without_torch_devices_are_unknown_and_versions_are_still_shown():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from attnflow.cli import doctor, warmup\n"
        "print(doctor.find_devices()['others'])\n"
        "try:\n    warmup.PARTS['ALTI edges']()\n"
        "except Exception as error:\n    print(type(error).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others, error = done.stdout.splitlines()
    assert "torch" in others
    assert error == MissingDependencyError.__name__


def test_versions_and_extras_need_no_heavy_import():
    code = (
        "import sys\nfrom attnflow.cli import doctor\n"
        "names = doctor._extra_names()\n"
        "assert names, 'no extras'\n"
        "for name in names: doctor._check_requirements(doctor.requirements(name))\n"
        "print(*sorted({'torch', 'numba', 'numpy', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_warmup_compiles_what_is_missing_and_says_so(monkeypatch):
    compiled = []

    def missing():
        raise MissingDependencyError("torch is not installed.")

    monkeypatch.setattr(warmup, "solver_folder", lambda: "somewhere")
    monkeypatch.setattr(
        warmup, "PARTS", {"new": lambda: compiled.append("new"), "old": print, "none": missing}
    )
    monkeypatch.setattr(
        warmup, "is_compiled", lambda run: run() if run is missing else run is print
    )
    result = run("warmup")
    assert result.exit_code == 0
    new, old, none, where = result.stdout.splitlines()
    assert "compiled in" in new
    assert "already" in old
    assert "torch is not installed" in none
    assert "somewhere" in where
    assert compiled == ["new"]


@pytest.mark.slow
def test_after_warmup_nothing_is_left_to_compile(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def call(*arguments):
        code = "from attnflow.cli.main import main; main()"
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, check=True
        ).stdout

    before = json.loads(call("doctor", "--json"))["solver"]
    assert set(before.values()) == {False}
    first, second = call("warmup").splitlines(), call("warmup").splitlines()
    assert all("compiled in" in line for line in first[:-1])
    assert all("already" in line for line in second[:-1])
    after = json.loads(call("doctor", "--json"))
    assert set(after["solver"].values()) == {True}
    folder = next(cache for cache in after["caches"] if cache["purpose"] == "compiled solver")
    assert folder["path"].startswith(str(tmp_path))
    assert len(first) == len(warmup.PARTS) + 1
