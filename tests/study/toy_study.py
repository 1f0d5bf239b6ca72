"""A small study of the bundled model, and the same with other values."""

from dataclasses import replace

import numpy as np

from attnflow.study.study import evaluate, open_study

TEXTS = [
    {"text": "the keys to the old cabinet", "evidence": "keys"},
    {"text": "the author of the old books", "evidence": "author"},
    {"text": "the dogs that chased the cat", "evidence": "dogs"},
    {"text": "the pilots near the window", "evidence": "pilots"},
]
METRICS = "comprehensiveness,sufficiency,morf,spearman_loo,pointing_game"


def make_study(folder):
    """Run a study of 4 texts, with evidence; one more text is rejected."""
    evaluate(
        [*TEXTS, {"text": "x", "evidence": ""}],
        folder,
        methods="rollout,flow",
        edges="attention",
        explainers="leave_one_out",
        metrics=METRICS,
        evidence_column="evidence",
        threads=1,
    )
    return open_study(folder)


def with_columns(study, **columns):
    """Return the study with other columns [rows]; objects are repeated for all rows."""
    n = len(study.columns["index"])
    changed = {}
    for name, value in columns.items():
        filled = np.empty(n, dtype=object)
        for i in range(n):
            filled[i] = value
        changed[name] = value if isinstance(value, np.ndarray) and len(value) == n else filled
    return replace(study, columns={**study.columns, **changed}, _cache={})


def with_values(study, metric, values, n_texts):
    """Return a study of n_texts texts, whose metric has values [texts] by explainer.

    values: functions of the number of the text, the same for all replacements and signs; other
    metrics are left out.
    """
    columns = study.columns
    first = np.flatnonzero(columns["index"] == columns["index"][0])
    rows = np.tile(first, n_texts)
    index = np.repeat(np.arange(n_texts), len(first))
    chosen = {name: column[rows] for name, column in columns.items()}
    chosen["index"] = index
    chosen[metric] = np.asarray(
        [values[name](i) for name, i in zip(chosen["explainer"], index, strict=True)], dtype=float
    )
    design = replace(study.design, metrics=(metric,))
    return replace(study, design=design, columns=chosen, _cache={})
