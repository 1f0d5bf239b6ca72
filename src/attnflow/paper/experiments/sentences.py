"""Sentences that experiments run on: held-out data sets, a file of the user, or the grammar."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from attnflow.errors import FileError
from attnflow.models.builtin import VERB_NUMBER_MODELS, find_verb_number
from attnflow.paper.data.data_sets import (
    AgreementExample,
    SentimentExample,
    open_lines,
    read_agreement_table,
    read_linzen,
    read_numpred,
    read_sst2,
)
from attnflow.paper.experiments.experiment import Options

GRAMMAR = "grammar"
DATA_VARIABLE = "ATTNFLOW_DATA"  # the environment variable that names the folder of data sets
TREEBANKS = ("amalgum_agreement/agreement.tsv.gz", "ud_agreement/agreement.tsv.gz")
NO_ATTRACTOR = "treebank, no attractor"  # the name of this set in the split
N_GRAMMAR = 2000  # generated sentences, as many as held-out ones


@dataclass(frozen=True)
class AgreementSets:
    """Agreement examples to measure.

    natural: a sample of the natural distribution. by_attractors: further sets, by their number of
    attractors. source: where the examples come from, as a phrase. attractor_source: where the sets
    by attractors come from, as a sentence; "" if from the same place.
    """

    natural: tuple[AgreementExample, ...]
    by_attractors: dict[int, tuple[AgreementExample, ...]]
    source: str
    attractor_source: str = ""


def read_agreement(options: Options) -> AgreementSets:
    """Read agreement examples, at most `options.examples` of each set.

    A folder of data sets gives examples that the verb-number model was not trained on. Without
    both treebanks the set without attractors is empty; the other sets are the same.
    Raises FileError if there is no data.
    """
    if options.data == GRAMMAR:
        return _generate(options)
    if options.data is not None and Path(options.data).is_file():
        return _read_user_file(Path(options.data), options)
    from attnflow.paper.verb_number.splits import N_ATTRACTORS, split_folder

    folder = find_data(options.data)
    if all((folder / table).is_file() for table in TREEBANKS):
        test = split_folder(folder).test
    else:
        test = hold_out_linzen(folder)
    n = options.examples
    groups = {0: test.get(NO_ATTRACTOR, ())[:n]}
    for k in N_ATTRACTORS:
        groups[k] = test[_group_name(k)][:n]
    return AgreementSets(
        test["natural"][:n],
        groups,
        "held-out prefixes of numpred.val",
        _describe_groups(groups),
    )


def read_sentiment(options: Options) -> tuple[SentimentExample, ...]:
    """Read all sentences of the development set of SST-2.

    Raises FileError if the data set is missing, and for the grammar, which has no sentiment.
    """
    if options.data == GRAMMAR:
        raise FileError(
            "--data is 'grammar', which generates no sentences with sentiment",
            expected="a folder that contains sst2",
            fix="Run `attnflow data sst2` to see where it is published.",
        )
    return tuple(read_sst2(find_data(options.data) / "sst2" / "dev.tsv"))


def find_data(folder: str | None) -> Path:
    """Return the folder of data sets: the given one, that of ATTNFLOW_DATA, or ./data.

    Raises FileError if it does not exist.
    """
    chosen = folder or os.environ.get(DATA_VARIABLE)
    path = Path(chosen or "data")
    if path.is_dir():
        return path
    raise FileError(
        f"{path} is not a folder" if chosen else "no folder of data sets was given",
        expected=f"--data FOLDER, or {DATA_VARIABLE}, with the data sets listed by `attnflow data`",
        fix="Agreement experiments also run on generated sentences: --data grammar.",
    )


def hold_out_linzen(folder: Path) -> dict[str, tuple[AgreementExample, ...]]:
    """Return the part of `split_folder(folder).test` that needs no treebanks."""
    from attnflow.paper.verb_number.splits import N_ATTRACTORS, N_TEST, SEED

    random = Random(SEED)  # must draw in the same order as split_folder
    sizes: dict[str, tuple[str, int | None, int]] = {"natural": ("val", None, N_TEST)}
    sizes |= {_group_name(k): (f"test.{k}", k, size) for k, size in N_ATTRACTORS.items()}
    held_out = {}
    for name, (file, attractors, size) in sizes.items():
        path = folder / "linzen_numpred" / f"numpred.{file}"
        examples = list(read_numpred(path, attractors=attractors))
        held_out[name] = tuple(random.sample(examples, len(examples))[:size])
    return held_out


def _group_name(attractors: int) -> str:
    return f"{attractors} attractor{'s' if attractors > 1 else ''}"


def _describe_groups(groups: Mapping[int, Sequence[AgreementExample]]) -> str:
    linzen = (
        "come from numpred.test.1 to numpred.test.5, where every noun between subject and verb is "
        "an attractor"
    )
    if not groups[0]:
        return f"Sentences with attractors are held out and {linzen}."
    return (
        "Sentences without attractors come from the treebanks EWT and PUD, held out by whole "
        f"documents; the others {linzen}."
    )


def _generate(options: Options) -> AgreementSets:
    from attnflow.paper.data.grammar import MOST_ATTRACTORS, generate_agreement

    n = min(options.examples or N_GRAMMAR, N_GRAMMAR)
    examples = tuple(generate_agreement(n, seed=options.seed))
    groups = {
        k: tuple(example for example in examples if example.attractors == k)
        for k in range(MOST_ATTRACTORS + 1)
    }
    return AgreementSets(examples, groups, "sentences generated by the grammar")


def _read_user_file(path: Path, options: Options) -> AgreementSets:
    examples = read_agreement_file(path)
    groups: dict[int, list[AgreementExample]] = {}
    for example in examples:
        if example.attractors is not None:
            groups.setdefault(example.attractors, []).append(example)
    n, seed = options.examples, options.seed
    return AgreementSets(
        _sample(examples, n, seed),
        {k: _sample(tuple(groups[k]), n, seed) for k in sorted(groups)},
        f"unique prefixes of {path.name}, which the model may have been trained on",
    )


def read_agreement_file(path: Path) -> tuple[AgreementExample, ...]:
    """Read the unique prefixes of a file, in the vocabulary of the verb-number model.

    The name and the first line determine the format: `.conllu` is a treebank, a header with
    `pos_sentence` the full table of Linzen et al., a header with `xpos` a table extracted from
    treebanks; anything else is the simple format. In numpred.test.N, N is the number of attractors.
    Raises FileError, with the line number, for an invalid line.
    """
    from attnflow.paper.data.treebanks import read_conllu
    from attnflow.paper.verb_number.vocabulary import replace_rare

    with open_lines(path) as lines:
        header = next(lines, (1, ""))[1].split("\t")
    if ".conllu" in path.name:
        examples = read_conllu(path)
    elif "pos_sentence" in header:
        examples = read_linzen(path)
    elif "xpos" in header:
        examples = read_agreement_table(path)
    else:
        suffix = path.name.removesuffix(".gz").rpartition(".")[2]
        examples = read_numpred(path, attractors=int(suffix) if suffix.isdecimal() else None)
    known = _known_words()
    unique: dict[tuple[str, ...], AgreementExample] = {}
    for example in examples:
        # Tags can replace unknown words only where the file has tags.
        in_form = example if example.tags is None else replace_rare(example, known)
        unique.setdefault(in_form.prefix, replace(in_form, tags=None))
    return tuple(unique.values())


def _sample(
    examples: tuple[AgreementExample, ...], n: int | None, seed: int
) -> tuple[AgreementExample, ...]:
    """Draw n examples; return all if n is None or there are no more."""
    if n is None or n >= len(examples):
        return examples
    return tuple(Random(seed).sample(examples, n))


def _known_words() -> frozenset[str]:
    """Return the words and tags in the vocabulary of the built-in model."""
    folder = find_verb_number(VERB_NUMBER_MODELS[0])
    assert folder is not None, "the built-in model has a folder"
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text)["model"]["vocab"])
