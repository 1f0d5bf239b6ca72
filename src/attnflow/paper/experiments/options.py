"""What experiments are run with: the options that all of them share."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Progress: TypeAlias = Callable[[int, int], None]


def default_cache() -> Path:
    """Where what was measured is kept: the user's folder for such files."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "attnflow" / "experiments"


@dataclass(frozen=True)
class Options:
    """How to run an experiment.

    data: a folder of data, or "grammar" for sentences made up by a small grammar; looked for if
    not given (see `attnflow.paper.experiments.sentences`). Or a file of agreement sentences.
    examples: at most so many of each set; all if not given, or as many as in the paper.
    out: the folder for results. pictures: the folder for pictures; the same if not given.
    cache: the folder that measurements are kept in while and after they are made; None to keep
    nothing.
    model: a name or folder; that of the experiment if not given.
    device, threads: where models run; threads for them and for flow.
    seed: of samples and of the bootstrap.
    picture_format: "svg", "pdf" or "png". width: of pictures in inches; the whole page if not
    given. dark: whether to draw on a dark ground. scale: of maps, "shared" or each its "own"; if
    not given, shared unless that would leave a map without shades.
    texts: what figures show; those of the paper, or like them, if not given. fillers: the words
    that figure 4 compares at the mask. candidates: for each of its texts the words that these may
    refer to, in the same order, with commas between them.
    """

    data: str | None = None
    examples: int | None = None
    out: Path = Path("results")
    pictures: Path | None = None
    cache: Path | None = None
    model: str | None = None
    device: str | None = None
    threads: int | None = None
    seed: int = 0
    picture_format: str = "svg"
    width: float | None = None
    dark: bool = False
    scale: Literal["shared", "own"] | None = None
    texts: tuple[str, ...] = ()
    fillers: tuple[str, ...] = ("his", "her")
    candidates: tuple[str, ...] = ()

    @property
    def look(self) -> dict[str, Any]:
        """What functions that draw take: dark, and the width if one is given."""
        return {"dark": self.dark} | ({} if self.width is None else {"width": self.width})

    @property
    def pictures_folder(self) -> Path:
        """Where pictures go, made if it is not there."""
        folder = self.out if self.pictures is None else self.pictures
        folder.mkdir(parents=True, exist_ok=True)
        return folder
