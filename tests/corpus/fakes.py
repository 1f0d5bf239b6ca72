"""A fake engine without a model: tokens are words, and scores are derived from the text."""

from collections.abc import Callable, Generator
from hashlib import sha256
from pathlib import Path

import numpy as np

from attnflow.corpus.example import Example, Outcome, Rejected, Result, Scored
from attnflow.corpus.job import Job, run_job
from attnflow.corpus.readers import open_source
from attnflow.corpus.settings import Settings
from attnflow.corpus.store import Folder

MAX_TOKENS = 20
SETTINGS = Settings(methods=("rollout", "flow"), importance=("blank_out",))


def score(example: Example, settings: Settings = SETTINGS) -> Result:
    """Two layers, the first position, and numbers that depend on the text only."""
    tokens = ("[CLS]", *example.text.split())
    if len(tokens) > MAX_TOKENS:
        return Rejected(example, f"the text has {len(tokens)} tokens.", "too_long")
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


def engine(
    settings, shards, report, before: Callable[[Example], object] | None = None
) -> Generator[list[Result], None, None]:
    """Score shard by shard. before: called with each example before it is scored."""
    for shard in shards:
        results = []
        for example in shard:
            if before is not None:
                before(example)
            results.append(score(example, settings))
            report(1, 2 * len(example.text.split()) + 2)
        yield results


def job(data, out, *, settings=SETTINGS, shard_size=3, **options) -> Job:
    """A small job for the fake engine."""
    columns = {name: options.pop(name, None) for name in ("text_column", "id_column")}
    return Job(
        source=open_source(data, **columns),
        folder=Folder(Path(out)),
        settings=settings,
        model={"model.safetensors": "0"},
        columns=tuple(columns.values()),
        shard_size=shard_size,
        **options,
    )


def run(data, out, **options):
    """Run a small job with the fake engine."""
    return run_job(job(data, out, **options), engine)


def contents(folder) -> dict[str, bytes]:
    """Every file of a corpus except locks, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.parent.name != "locks"
    }
