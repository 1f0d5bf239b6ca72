"""The sentences that experiments are run on: held-out ones, those of a file, or made-up ones."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from attnflow.errors import FileError
from attnflow.paper.data.readers import AgreementExample, SentimentExample
from attnflow.paper.experiments.options import Options

GRAMMAR = "grammar"
TREEBANKS = ("amalgum_agreement/agreement.tsv.gz", "ud_agreement/agreement.tsv.gz")
NO_ATTRACTOR = "treebank, no attractor"  # what the split calls this set
N_GRAMMAR = 2000  # sentences, as many as the natural ones
VARIABLE = "ATTNFLOW_DATA"  # of the environment, names the folder of data


@dataclass(frozen=True)
class Agreement:
    """Agreement examples that the verb-number model was not trained on.

    natural: of the natural distribution. by_attractors: further ones, by their number of
    attractors. source: where they come from, in words. groups: where those by attractors do, as a
    sentence; "" if it is the same place.
    """

    natural: tuple[AgreementExample, ...]
    by_attractors: dict[int, tuple[AgreementExample, ...]]
    source: str
    groups: str = ""


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
        f"{tried}",
        expected="one that holds the data sets. `attnflow data` lists them and where they are "
        f"published; name their folder with --data FOLDER or {VARIABLE}",
        fix="Agreement sentences can also be made up: --data grammar.",
    )


def read_agreement(options: Options) -> Agreement:
    """The held-out agreement examples, at most `options.examples` of each set.

    Without both treebanks there is no set without attractors; the others are the same.
    """
    if options.data == GRAMMAR:
        return _made_up(options)
    if options.data is not None and Path(options.data).is_file():
        return _of_file(Path(options.data), options)
    from attnflow.paper.verb_number.splits import N_ATTRACTORS, split_folder

    folder = find_data(options.data)
    if all((folder / table).is_file() for table in TREEBANKS):
        test = split_folder(folder).test
    else:
        test = hold_out_linzen(folder)
    n = options.examples
    groups = {0: test.get(NO_ATTRACTOR, ())[:n]}
    for k in N_ATTRACTORS:
        groups[k] = test[_name_group(k)][:n]
    return Agreement(
        test["natural"][:n], groups, "held-out prefixes of numpred.val", _tell_groups(groups)
    )


def _tell_groups(groups: Mapping[int, Sequence[AgreementExample]]) -> str:
    treebanks = (
        "Those without attractors are of the treebanks EWT and PUD, held out by whole documents; "
        "the others"
    )
    told = treebanks if groups[0] else "They"
    return (
        f"{told} are held out of numpred.test.1 to numpred.test.5, where all nouns between subject "
        "and verb are attractors."
    )


def hold_out_linzen(folder: Path) -> dict[str, tuple[AgreementExample, ...]]:
    """What `split_folder` holds out of Linzen's files, for those who do not have the treebanks."""
    from attnflow.paper.data.readers import read_numpred
    from attnflow.paper.verb_number.splits import N_ATTRACTORS, N_TEST, SEED

    random = Random(SEED)  # drawn in the same order as there, so that the same are drawn
    sizes: dict[str, tuple[str, int | None, int]] = {"natural": ("val", None, N_TEST)}
    sizes |= {_name_group(k): (f"test.{k}", k, size) for k, size in N_ATTRACTORS.items()}
    held = {}
    for title, (file, attractors, size) in sizes.items():
        path = folder / "linzen_numpred" / f"numpred.{file}"
        examples = list(read_numpred(path, attractors=attractors))
        held[title] = tuple(random.sample(examples, len(examples))[:size])
    return held


def _name_group(attractors: int) -> str:
    return f"{attractors} attractor{'s' if attractors > 1 else ''}"


def _of_file(path: Path, options: Options) -> Agreement:
    from attnflow.paper.experiments.sentence_files import draw, read_file

    examples = read_file(path)
    groups: dict[int, list[AgreementExample]] = {}
    for example in examples:
        if example.attractors is not None:
            groups.setdefault(example.attractors, []).append(example)
    n, seed = options.examples, options.seed
    return Agreement(
        draw(examples, n, seed),
        {k: draw(tuple(groups[k]), n, seed) for k in sorted(groups)},
        f"prefixes of {path.name}, each once; the model may have been trained on some of them",
    )


def _made_up(options: Options) -> Agreement:
    from attnflow.paper.data.grammar import MOST_ATTRACTORS, generate_agreement

    n = min(options.examples or N_GRAMMAR, N_GRAMMAR)
    made = tuple(generate_agreement(n, seed=options.seed))
    numbers = range(MOST_ATTRACTORS + 1)
    groups = {k: tuple(e for e in made if e.attractors == k) for k in numbers}
    return Agreement(made, groups, "made up by the grammar")


def read_sentiment(options: Options) -> tuple[SentimentExample, ...]:
    """The sentences of the dev set of SST-2, all of them.

    Raises FileError if they are not there; the grammar has no sentiment.
    """
    from attnflow.paper.data.readers import read_sst2

    if options.data == GRAMMAR:
        raise FileError(
            "--data is 'grammar', which makes up no sentiment",
            expected="a folder with sst2. `attnflow data sst2` says where it is published.",
        )
    return tuple(read_sst2(find_data(options.data) / "sst2" / "dev.tsv"))
