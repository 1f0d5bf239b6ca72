"""The command line: each command parses its options, calls the library and prints.

Enters: arguments. Leaves: text on stdout, progress and errors on stderr, exit code 0, 1 (failure)
or 2 (invalid input). Only these modules print, and nothing else imports them.

Read `main.py` first (the table of commands), then `options.py` (shared options, errors, progress)
and `render.py` (tables, JSON, CSV). Commands: `explain.py` (explain, explain-image), `trace.py`,
`serve.py`, `corpus.py` (corpus run) and `corpus_results.py` (corpus table, show, errors, check)
with `progress_bars.py`; for the paper, `reproduce.py`, `train.py` and `data.py`; for the
installation, `warmup.py` and `doctor.py`.
"""
