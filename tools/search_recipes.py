"""Compare recipes of the verb-number training by accuracy and by the paper's tables 1 and 2.

    python -m tools.search_recipes train RECIPES.json --data DIR --out DIR [--seconds 240]
    python -m tools.search_recipes measure DIR --data DIR [--examples 250]

RECIPES.json has the settings of `Recipe` for each model, by name. Recipes that can be trained side
by side are; a GPU trains dozens in minutes. `measure` runs on a CPU. Both use the development set,
and examples with attractors that are taken from the training set: a recipe is not chosen by the
test sets.
"""

import argparse
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from safetensors.torch import load_file, save_file

from attnflow.models.builtin.verb_number import dequantize, quantize, save_verb_number
from attnflow.paper.data.data_sets import name_attractors
from attnflow.paper.verb_number.splits import (
    Split,
    exclude,
    make_vocabulary,
    prefixes,
    split_folder,
)
from attnflow.paper.verb_number.trainer import OWN_SETTINGS, Recipe, new_model, train_together

N_ATTRACTORS = {1: 500, 2: 500, 3: 300}  # taken from the training set, by number of attractors
MODELS_PER_FILE = 6
RESULTS = "results.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=("train", "measure"))
    parser.add_argument(
        "path", type=Path, help="RECIPES.json, or the folder that train has written"
    )
    parser.add_argument("--data", type=Path, required=True, help="see `attnflow data`")
    parser.add_argument("--out", type=Path, help="the folder to write to")
    parser.add_argument("--seconds", type=float, default=1e6, help="start no group that ends later")
    parser.add_argument(
        "--examples", type=int, default=250, help="sentences of the development set"
    )
    options = parser.parse_args()
    split = split_for_search(split_folder(options.data))
    if options.action == "train":
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        settings = json.loads(options.path.read_text(encoding="utf-8"))
        recipes = {name: Recipe(**values) for name, values in settings.items()}
        train_recipes(split, recipes, options.out or options.path.parent, options.seconds)
    else:
        measure_models(split, options.path, options.examples)


def split_for_search(split: Split) -> Split:
    """Return a split whose test sets are taken from the training examples of Linzen et al."""
    random, test = Random(0), {}
    for n, size in N_ATTRACTORS.items():
        # Examples of the treebanks have tags, and their attractors are less certain.
        examples = [e for e in split.training if e.attractors == n and not e.tags]
        test[name_attractors(n)] = tuple(random.sample(examples, min(size, len(examples))))
    held_out = prefixes(example for part in test.values() for example in part)
    return replace(split, training=exclude(split.training, held_out), test=test)


def train_recipes(
    split: Split, recipes: Mapping[str, Recipe], out: Path, seconds: float = 1e6
) -> None:
    """Train a model for each recipe, group by group; write the weights and the accuracies.

    seconds: a group that would end later, judged by those before it, is left out.
    """
    start, done, results = monotonic(), 0, {}
    weights: dict[str, Any] = {}
    out.mkdir(parents=True, exist_ok=True)
    for group in group_recipes(recipes):
        n = sum(recipes[name].epochs for name in group)
        spent = monotonic() - start
        if done and spent + n * spent / done > seconds:
            logging.warning("left out: %s", ", ".join(group))
            continue
        for name, trained in zip(
            group, train_together(split, [recipes[name] for name in group]), strict=True
        ):
            results[name] = {"recipe": vars(recipes[name]), "accuracy": trained.accuracy}
            state = {key: part.contiguous() for key, part in trained.model.state_dict().items()}
            weights |= {f"{name}/{key}": part for key, part in quantize(state).items()}
            logging.info("%s: %s", name, trained.accuracy)
        done += n
        logging.info("%.0f s", monotonic() - start)
        _write(out, results, weights)


def group_recipes(recipes: Mapping[str, Recipe]) -> list[list[str]]:
    """Return the names of recipes that can be trained side by side, in order of appearance."""
    groups: dict[str, list[str]] = {}
    for name, recipe in recipes.items():
        shared = {key: value for key, value in vars(recipe).items() if key not in OWN_SETTINGS}
        groups.setdefault(json.dumps(shared, sort_keys=True), []).append(name)
    return list(groups.values())


def _write(out: Path, results: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Write the results, and files of MODELS_PER_FILE models."""
    (out / RESULTS).write_text(json.dumps(results, indent=1), encoding="utf-8")
    names = list(results)
    for start in range(0, len(names), MODELS_PER_FILE):
        chosen = {*names[start : start + MODELS_PER_FILE]}
        part = {key: value for key, value in weights.items() if key.split("/")[0] in chosen}
        save_file(part, out / f"models-{start // MODELS_PER_FILE}.safetensors")


def read_models(folder: Path, vocabulary: Mapping[str, int]) -> dict[str, Any]:
    """Return the models that `train_recipes` has written, by name."""
    results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    weights: dict[str, dict[str, Any]] = {name: {} for name in results}
    for file in sorted(folder.glob("models-*.safetensors")):
        for key, value in load_file(file).items():
            name, _, part = key.partition("/")
            weights[name][part] = value
    models = {}
    for name, parts in weights.items():
        models[name] = new_model(Recipe(**results[name]["recipe"]), len(vocabulary))
        models[name].load_state_dict(dequantize(parts))
        models[name].train(False)
    return models


def measure_models(split: Split, folder: Path, n: int) -> None:
    """Print tables 1 and 2 of each model on the development set, and write them as JSON."""
    from attnflow.paper.experiments.agreement import encode_examples
    from attnflow.paper.experiments.agreement_tables import CLAIMS, means_by_method
    from attnflow.paper.experiments.correlations import correlate, select, summarize_correlations
    from attnflow.paper.experiments.experiment import Options
    from attnflow.paper.experiments.measurements import open_model

    path = folder / RESULTS
    results, vocabulary = json.loads(path.read_text()), make_vocabulary(split.training)
    for name, model in read_models(folder, vocabulary).items():
        with TemporaryDirectory() as place:
            save_verb_number(model, vocabulary, place)
            options = Options(model=place)
            texts = encode_examples(open_model(options, ""), split.dev[:n], options)
            attention, measured = texts.attention(), texts.importance()
        print(name, json.dumps(results[name]["accuracy"]))
        for kind in ("blank_out", "l2"):
            summary = summarize_correlations(correlate(attention, select(measured, kind)))
            means = means_by_method(summary)
            held = [int(holds(means)) for holds in CLAIMS.values()]
            results[name][kind] = {"means": means, "claims": held}
            for method, row in means.items():
                print(f"  {kind:9} {method:7}", *(f"{value:6.2f}" for value in row))
            print("  claims", *held, flush=True)
        path.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
