"""Settings: validation, the command line, JSON, and defaults that depend on the device."""

import inspect
from dataclasses import fields

import pytest

from attnflow.cli.corpus import run as run_command
from attnflow.corpus.settings import IMPORTANCE, OPTIONS, Settings
from attnflow.edges.registry import EDGES
from attnflow.errors import InputError, SelectionError
from attnflow.methods.registry import METHODS, default_methods
from tests.refusal import refusal

# A text of the command line and the value in Python, for each kind of option.
SPELLINGS = [
    ("model", "bert", "bert"),
    ("methods", "rollout,flow", ("rollout", "flow")),
    ("methods", "all", default_methods()),
    ("importance", "none", ()),
    ("importance", "blank-out", ("blank_out",)),
    ("importance", "all", IMPORTANCE),
    ("positions", "all", "all"),
    ("positions", "0,-2,[SEP]", (0, -2, "[SEP]")),
    ("layers", "all", None),
    ("layers", "1,-1", (1, -1)),
    ("heads", "3", 3),
    ("heads", "max", "max"),
    ("target", "plural", "plural"),
    ("target", "1", 1),
]


@pytest.mark.parametrize(("name", "text", "value"), SPELLINGS)
def test_the_command_line_spells_every_value(name, text, value):
    assert OPTIONS[name].parse(text) == value
    assert getattr(Settings(**{name: value}), name) == value


def test_the_command_has_the_options_and_defaults_of_the_settings():
    parameters = inspect.signature(run_command).parameters
    for field in fields(Settings):
        default = parameters[field.name].default
        if isinstance(default, str):
            default = OPTIONS[field.name].parse(default)
        assert default == field.default
        assert OPTIONS[field.name].help


def test_every_registered_name_is_in_the_help():
    for name in METHODS.names:
        assert f"{name}: " in OPTIONS["methods"].full_help()
    for name in EDGES.names:
        assert f"{name}: " in OPTIONS["edges"].full_help()


def test_lists_and_texts_are_accepted_for_names():
    assert Settings(methods=["raw", "flow"]).methods == ("raw", "flow")  # type: ignore[arg-type]
    assert Settings(methods="raw,flow").methods == ("raw", "flow")  # type: ignore[arg-type]
    assert Settings(positions=[0, 1]).positions == (0, 1)  # type: ignore[arg-type]


def test_an_unknown_option_is_an_error_with_a_suggestion():
    with refusal(InputError, "'method'", "Did you mean methods?"):
        Settings.from_options({"method": "raw"})


def test_settings_are_restored_from_json():
    settings = Settings(methods=("raw", "flow"), positions=(0, "[SEP]"), layers=(1, -1), heads=3)
    assert Settings.from_json(settings.to_json()) == settings
    with refusal(InputError, "color", "version"):
        Settings.from_json({**settings.to_json(), "color": "red"})


@pytest.mark.parametrize(
    ("options", "device", "expected"),
    [
        ({}, "cpu", ("cpu", 1024)),
        ({}, "cuda", ("cuda", 16_384)),
        ({"device": "cpu"}, "cuda", ("cpu", 1024)),
        ({"batch_tokens": 99}, "cuda", ("cuda", 99)),
    ],
)
def test_a_gpu_gets_larger_batches(options, device, expected):
    settings = Settings(**options).resolve(device)
    assert (settings.device, settings.batch_tokens) == expected


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ({"methods": ("rollout", "rollout")}, InputError, ["methods", "rollout, rollout", "once"]),
        ({"methods": ("shap",)}, SelectionError, ["'shap'", *METHODS.names]),
        ({"methods": ()}, InputError, ["no method", "--methods"]),
        ({"importance": ("shapley",)}, InputError, ["importance", "'shapley'", *IMPORTANCE]),
        ({"positions": "last"}, InputError, ["positions", "'last'", "'explained'", "'all'"]),
        ({"positions": ()}, InputError, ["positions is ()"]),
        ({"positions": (0, "")}, InputError, ["positions is (0, '')"]),
        ({"positions": (0, 1.5)}, InputError, ["positions is (0, 1.5)", "'[SEP]'"]),
        ({"edges": "thick"}, SelectionError, ["edges", "'thick'", *EDGES.names]),
        ({"truncate": "fold"}, InputError, ["truncate", "'fold'", "'error' or 'cut'"]),
        ({"normalize": "columns"}, InputError, ["normalize", "'columns'", "'receptive_field'"]),
        ({"residual_weight": 2}, InputError, ["residual_weight", "2", "0.5"]),
        ({"batch_tokens": 0}, InputError, ["batch_tokens is 0", "from 1"]),
    ],
)
def test_invalid_settings(options, kind, parts):
    with refusal(kind, *parts):
        Settings(**options)
