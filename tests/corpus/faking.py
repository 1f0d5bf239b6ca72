"""A stand-in for a model, without torch: tokens are words, and scores are made up from them."""

from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from time import sleep

import numpy as np

from attnflow.corpus.example import Example, Outcome, Refused, Result, Scored
from attnflow.corpus.job import Job, work
from attnflow.corpus.readers import open_source
from attnflow.corpus.settings import Settings
from attnflow.corpus.store import Folder

LONGEST = 20
SETTINGS = Settings(methods=("rollout", "flow"), importance=("blank_out",))


def score(example: Example, settings: Settings = SETTINGS) -> Result:
    """Two layers, the first position, and numbers that depend on the text alone."""
    tokens = ("[CLS]", *example.text.split())
    if len(tokens) > LONGEST:
        return Refused(example, f"the text has {len(tokens)} tokens.", "too_long")
    seed = np.frombuffer(sha256(example.text.encode()).digest(), dtype=np.uint8)
    values = (np.resize(seed, (2, 1, len(tokens))) / 255).astype(np.float32)
    importance = values[-1, 0].copy()
    importance[0] = np.nan
    return Scored(
        example=example,
        tokens=tokens,
        special=(True, *[False] * (len(tokens) - 1)),
        position=0,
        positions=(0,),
        layers=(1, 2),
        prediction=Outcome("class", "singular", 0, float(seed[0]) / 255),
        scores=dict.fromkeys(settings.methods, values),
        importance=dict.fromkeys(settings.importance, importance),
    )


def engine(settings, shards, report, pause=0.0) -> Generator[list[Result], None, None]:
    """Scores shard by shard, resting before each example."""
    for shard in shards:
        results = []
        for example in shard:
            if pause:
                sleep(pause)
            results.append(score(example, settings))
            report(1, 2 * len(example.text.split()) + 2)
        yield results


def job(given, out, *, settings=SETTINGS, shard_size=3, **options) -> Job:
    """A small job with the model that is none."""
    given_by = {name: options.pop(name, None) for name in ("text_column", "id_column")}
    return Job(
        source=open_source(given, **given_by),
        folder=Folder(Path(out)),
        settings=settings,
        model={"model.safetensors": "0"},
        columns=tuple(given_by.values()),
        shard_size=shard_size,
        **options,
    )


def run(given, out, **options):
    """Do a small job."""
    return work(job(given, out, **options), engine)


def contents(folder) -> dict[str, bytes]:
    """Every file of a corpus but the locks, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.parent.name != "locks"
    }
