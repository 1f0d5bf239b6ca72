"""The sentences that experiments are run on: held-out real ones, or ones made up by the grammar."""

import os
from dataclasses import dataclass
from pathlib import Path

from attnflow.data.example import AgreementExample, SentimentExample
from attnflow.errors import FileError
from attnflow.experiments.options import Options

GRAMMAR = "grammar"
N_GRAMMAR = 2000  # sentences, as many as the natural ones
VARIABLE = "ATTNFLOW_DATA"  # of the environment, names the folder of data


@dataclass(frozen=True)
class Agreement:
    """Agreement examples that the verb-number model was not trained on.

    natural: of the natural distribution. by_attractors: further ones, by their number of
    attractors. source: where they come from, in words.
    """

    natural: tuple[AgreementExample, ...]
    by_attractors: dict[int, tuple[AgreementExample, ...]]
    source: str


def find_data(given: str | None) -> Path:
    """The folder of data: as given, as the environment says, or ./data.

    Raises FileError, saying how to come by data, if there is none.
    """
    named = given or os.environ.get(VARIABLE)
    folder = Path(named or "data")
    if folder.is_dir():
        return folder
    tried = f"{folder} is no folder" if named else "no folder of data was named"
    raise FileError(
        f"{tried}; expected one that holds the data sets. `attnflow data` lists them and where "
        f"they are published; name their folder with --data FOLDER or {VARIABLE}. Agreement "
        "sentences can also be made up: --data grammar."
    )


def read_agreement(options: Options) -> Agreement:
    """The held-out agreement examples, at most `options.examples` of each set."""
    if options.data == GRAMMAR:
        return _made_up(options)
    from attnflow.verb_number.splitting import N_ATTRACTORS, split_folder

    test = split_folder(find_data(options.data)).test
    n = options.examples
    groups = {0: test["treebank, no attractor"][:n]}
    for k in N_ATTRACTORS:
        groups[k] = test[f"{k} attractor{'s' if k > 1 else ''}"][:n]
    return Agreement(test["natural"][:n], groups, "held-out prefixes of numpred.val")


def _made_up(options: Options) -> Agreement:
    from attnflow.data.grammar import MOST_ATTRACTORS, generate_agreement

    n = min(options.examples or N_GRAMMAR, N_GRAMMAR)
    made = tuple(generate_agreement(n, seed=options.seed))
    numbers = range(MOST_ATTRACTORS + 1)
    groups = {k: tuple(e for e in made if e.attractors == k) for k in numbers}
    return Agreement(made, groups, "made up by the grammar")


def read_sentiment(options: Options) -> tuple[SentimentExample, ...]:
    """The sentences of the dev set of SST-2, all of them.

    Raises FileError if they are not there; the grammar has no sentiment.
    """
    from attnflow.data.sst2 import read_sst2

    if options.data == GRAMMAR:
        raise FileError(
            "--data is 'grammar', which makes up no sentiment; expected a folder with sst2. "
            "`attnflow data sst2` says where it is published."
        )
    return tuple(read_sst2(find_data(options.data) / "sst2" / "dev.tsv"))
