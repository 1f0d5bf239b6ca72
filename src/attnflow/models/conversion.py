"""Conversion of a pickle checkpoint to safetensors, in a restricted process of its own.

Reading a pickle can run code. The process reads it with `weights_only=True`, which allows tensors
and plain containers only, and an audit hook stops everything else that code could do: connections,
other programs, and writing outside of the new folder.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import isdir
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

from attnflow.errors import AttnflowError, FileError
from attnflow.optional import import_optional

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
# Files that belong to a checkpoint and are copied as they are.
COPIED = (
    *("tokenizer*.json", "vocab*", "merges.txt", "*.model", "special_tokens_map.json"),
    *("added_tokens.json", "preprocessor_config.json", "processor_config.json"),
    *("chat_template*", "generation_config.json", "*.tiktoken"),
)
TOKENIZERS = ("tokenizer*.json", "vocab*", "*.model", "*.tiktoken")
FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "pty.")
GIT_LFS = "with git lfs pull, if it is a pointer of Git LFS"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Conversion:
    """What was converted.

    model: the class. n_weights: tensors. unused: names of tensors that the class does not have, and
    that were left out. copied: names of other files.
    """

    folder: str
    out: str
    model: str
    n_weights: int
    unused: tuple[str, ...]
    copied: tuple[str, ...]

    @property
    def has_tokenizer(self) -> bool:
        """Whether the folder had a tokenizer, or a processor of images."""
        names = [Path(name) for name in self.copied]
        return any(p.match(t) for p in names for t in (*TOKENIZERS, "p*processor_config.json"))


def find_pickles(folder: Path) -> list[Path]:
    """Return the pickled weights of a folder."""
    return sorted(path for pattern in PICKLES for path in folder.glob(pattern))


def convert_checkpoint(folder: Path, out: Path) -> Conversion:
    """Convert the weights of a folder to safetensors, and copy its tokenizer.

    out: the new folder. Raises FileError if the folder has no pickled weights, if they hold
    anything but tensors or do not fit the model, or if the new folder exists already.
    """
    import_optional("transformers", "converting a model")
    if not isdir(folder):  # noqa: PTH112 - Path raises if the name is too long
        raise FileError(
            f"there is no folder {folder}",
            expected="a folder with config.json and pytorch_model.bin",
            fix="Check the path.",
        )
    if not (folder / "config.json").is_file() or not find_pickles(folder):
        missing = "pickled weights" if (folder / "config.json").is_file() else "config.json"
        ready = any(folder.glob("*.safetensors"))
        raise FileError(
            f"the folder {folder} has no {missing}" + (", but safetensors" if ready else ""),
            expected="a checkpoint with config.json and pytorch_model.bin",
            fix="It needs no conversion." if ready else "Use the folder that contains both.",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileError(
            f"{out} exists already", expected="a new folder", fix="Choose another with --out."
        )
    out.mkdir(parents=True, exist_ok=True)
    report = _run_restricted(folder.resolve(), out.resolve())
    if "error" in report:
        shutil.rmtree(out, ignore_errors=True)
        given, expected, fix = report["error"]
        raise FileError(f"{folder} cannot be converted ({given})", expected, fix)
    copied = _copy_files(folder, out)
    model, n_weights, unused = (report[name] for name in ("model", "n_weights", "unused"))
    return Conversion(str(folder), str(out), model, n_weights, tuple(unused), copied)


def _run_restricted(folder: Path, out: Path) -> dict[str, Any]:
    """Run this module in a process without the environment of this one."""
    with TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": home,
            "HF_HOME": home,
            "HF_HUB_OFFLINE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, "-I", "-m", __name__, str(folder), str(out)],
            env=environment,
            cwd=home,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            check=False,
        )
    try:
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        lines = done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"]
        report = _describe(lines[-1])
    return report


def _describe(problem: str) -> dict[str, Any]:
    """A report of a problem that has no parts."""
    expected = "weights as torch.save writes them, for the class in config.json"
    return {"error": [problem, expected, "Use a checkpoint in safetensors format."]}


def _copy_files(folder: Path, out: Path) -> tuple[str, ...]:
    paths = {path for pattern in COPIED for path in folder.glob(pattern) if path.is_file()}
    for path in sorted(paths):
        if not (out / path.name).exists():
            shutil.copyfile(path, out / path.name)
    return tuple(sorted(path.name for path in paths))


def convert_here(folder: str, out: str) -> dict[str, Any]:
    """Load the pickled weights and save them as safetensors; runs in the restricted process."""
    from attnflow.models import checkpoint, vision

    config = checkpoint.read_config(folder)
    task, loader = checkpoint.find_loader(config, checkpoint.TEXT_TASKS)
    if task == "encoder":
        task, loader = checkpoint.find_loader(config, vision.IMAGE_TASKS)
    restrict(out)
    model, report = loader.from_pretrained(
        folder,
        use_safetensors=False,
        weights_only=True,
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    checkpoint.check_weights(folder, task, report)
    unused = sorted(report.get("unexpected_keys", ()))
    if unused and not config.get("architectures"):
        raise FileError(
            f"config.json names no class, and {type(model).__name__} has no place for "
            f"{checkpoint.list_names(unused)}",
            expected='the class that the weights were saved from, as `architectures`: ["..."]',
            fix="Add it to config.json, for example BertForSequenceClassification.",
        )
    model.save_pretrained(out, safe_serialization=True)
    return {"model": type(model).__name__, "n_weights": len(model.state_dict()), "unused": unused}


def restrict(out: str) -> None:
    """Forbid connections, other programs, and writing outside of a folder, from now on."""
    allowed = (os.path.join(os.path.realpath(out), ""), os.devnull)  # noqa: PTH118

    def check(event: str, arguments: Sequence[Any]) -> None:
        if event.startswith(FORBIDDEN):
            raise PermissionError(f"{event} is forbidden while a checkpoint is converted")
        if event == "open" and isinstance(arguments[0], str | bytes) and _writes(arguments):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith(allowed):
                raise PermissionError(f"writing {path} is forbidden")

    sys.addaudithook(check)


def _writes(arguments: Sequence[Any]) -> bool:
    """Whether an audited call of open writes. arguments: path, mode, flags."""
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(isinstance(flags, int) and flags & WRITES)


def main() -> None:
    """Convert the folder in the arguments, and print a report as JSON."""
    folder, out = sys.argv[1:]
    try:
        report = convert_here(folder, out)
    except (UnpicklingError, EOFError):
        report = {
            "error": [
                "its weights are not only tensors, or not a file of torch.save",
                "a file that torch.load reads with weights_only=True",
                f"Download it again ({GIT_LFS}), or save model.state_dict() with torch.save.",
            ]
        }
    except AttnflowError as error:
        report = {"error": [error.given, error.expected, error.fix]}
    except Exception as error:  # transformers and torch raise many kinds of errors
        lines = str(error).strip().splitlines() or [type(error).__name__]
        report = _describe(lines[0])
    print(json.dumps(report))  # noqa: T201 - to the process that started this one


if __name__ == "__main__":
    main()
