"""`attnflow explain` on generated text, chats and pairs."""

import json

import pytest
from typer.testing import CliRunner

from attnflow.cli.main import app
from tests.models.test_input_kinds import REPLY, TEMPLATE, USER
from tests.study.small_models import make_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    loaded = make_llama()
    loaded.tokenizer.chat_template = TEMPLATE
    loaded.model.save_pretrained(path)
    loaded.tokenizer.save_pretrained(path)
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, ["explain", *map(str, arguments)])


def test_a_generated_answer_is_printed_with_its_probabilities(folder):
    result = run("the key to", "--model", folder, "--generate", 3, "--seed", 4)
    assert result.exit_code == 0, result.output
    assert "3 tokens, generated, seed 4" in result.stdout
    assert "probabilities:" in result.stdout


def test_json_has_the_answer_rows_and_offsets(folder):
    arguments = ("the key", "--model", folder, "--continuation", " is here", "--answer", "tokens")
    result = run(*arguments, "--format", "json")
    values = json.loads(result.stdout)
    assert values["answer"]["text"].split() == ["is", "here"]
    assert [step["target"]["label"] for step in values["answer"]["steps"]] == ["is", "here"]
    [attribution] = values["attributions"]
    assert [row["label"] for row in attribution["rows"]] == ["is", "here"]
    assert [row["positions"] for row in attribution["rows"]] == [[1], [2]]
    assert values["offsets"][:2] == [[0, 3], [4, 7]]
    table = run(*arguments, "--format", "csv").stdout.splitlines()
    assert table[0].endswith("token,piece,start,end,score")
    assert table[1].startswith("rollout,1,0,is,0,the,the,0,3,")
    assert "layer 2" in run(*arguments).stdout  # a table of many rows shows the last layer


def test_a_chat_from_a_file(folder, tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"messages": [USER, REPLY]}), encoding="utf-8-sig")  # as Windows
    result = run("--chat", file, "--model", folder, "--units", "segments", "--format", "json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert [part["name"] for part in values["segments"]] == ["user", "answer"]
    assert values["attributions"][0]["tokens"] == ["(special tokens)", "user", "answer"]


def test_sampling_options(folder):
    arguments = ("the key", "--model", folder, "--generate", 3, "--format", "json")
    options = ("--sampling", "do_sample=true", "--sampling", "temperature=2.5", "--seed", 1)
    values = json.loads(run(*arguments, *options).stdout)
    expected = {"max_new_tokens": 3, "do_sample": True, "temperature": 2.5, "seed": 1}
    assert values["answer"]["settings"] == expected


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        ((), "--chat"),
        (("the key", "--chat", "no.json"), "--chat"),
        (("--chat", "no.json"), "no.json"),
        (("the key", "--sampling", "temperature=1"), "--generate"),
        (("the key", "--generate", 2, "--sampling", "temperature"), "temperature"),
        (("the key", "--generate", 2, "--target", "is"), "target"),
        (("the key", "--answer", "whole"), "generate"),
        (("the key", "--generate", 2, "--answer", "no such part"), "no such part"),
        (("the key", "--units", "pages"), "pages"),
    ],
)
def test_misuse(folder, arguments, mentioned):
    result = run(*arguments, "--model", folder)
    assert result.exit_code == 2, result.output
    assert mentioned in result.stderr


@pytest.mark.parametrize("text", ["", "[1, 2]", "{}", "[]", '{"messages": "hello"}', '[{"a": 1}]'])
def test_files_that_are_not_chats(folder, tmp_path, text):
    file = tmp_path / "chat.json"
    file.write_text(text)
    result = run("--chat", file, "--model", folder)
    assert (result.exit_code, "chat.json" in result.stderr) == (2, True)
