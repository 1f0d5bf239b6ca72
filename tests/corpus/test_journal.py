"""Files of the journal, and the manifest, that were altered."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from attnflow.corpus.integrity import check, invalidate_damaged
from attnflow.corpus.journal import CHECKSUM, Entry, agree, read_entry, read_record, write_record
from attnflow.corpus.manifest import read_manifest
from attnflow.corpus.results import open_corpus
from attnflow.corpus.store import Folder
from attnflow.errors import FileError, InputError, SelectionError
from tests.corpus.fakes import contents, run
from tests.refusal import refusal

END = Path("journal/end.json")
PART = Path("journal/part-000001.json")


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"the key\n\nto the\nbad \xff\nlast one\nlong\nend")
    return path


@pytest.fixture
def out(texts, tmp_path):
    run(texts, tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def expected(texts, tmp_path):
    run(texts, tmp_path / "expected")
    return contents(tmp_path / "expected")


def flips(content):
    """The content with one bit flipped, at some of its bytes."""
    for i in range(0, len(content), max(len(content) // 20, 1)):
        changed = bytearray(content)
        changed[i] ^= 1 << (i % 5)
        yield bytes(changed)


@pytest.mark.parametrize("name", [END, PART])
def test_a_flipped_bit_never_costs_another_shard(texts, out, expected, name):
    good = (out / name).read_bytes()
    own = [1] if name == PART else []
    for altered in flips(good):
        (out / name).write_bytes(altered)
        found = check(out)
        assert not found.damaged or all(damage.path == out / name for damage in found.damaged)
        assert found.missing == ()
        if found.damaged:  # not in a space between values
            assert not found.complete
            assert invalidate_damaged(out, found) == own
        assert run(texts, out).complete
        assert contents(out) == expected or not found.damaged
        (out / name).write_bytes(good)


ODD = [
    '{"rows": 1e400}',
    '{"rows": 99999999999999999999}',
    '{"rows": 2}',
    '{"rows": null}',
    '{"rows": "7"}',
    '{"rows": -1}',
    '{"rows": true}',
    '{"rows": NaN}',
    '{"rows": ' + "9" * 5000 + "}",
    "[" * 100_000,
    '{"a":' * 100_000,
    "[]",
    "null",
    "",
    "\ufeff{}",
    "\0" * 100,
]


@pytest.mark.parametrize("content", ODD)
@pytest.mark.parametrize("name", [END, PART])
def test_odd_journal_files_are_damaged_and_replaced(texts, out, expected, name, content):
    (out / name).write_text(content)
    [damage] = check(out).damaged
    assert damage.path == out / name
    invalidate_damaged(out, check(out))
    assert run(texts, out).complete
    assert contents(out) == expected


@pytest.mark.parametrize("rows", [0, 2, 6, 8, 9, 70, 10**7, 10**12, 2**61])
def test_a_wrong_number_of_rows_with_a_checksum_is_found_again(texts, out, expected, rows):
    write_record(out / END, {"rows": rows})
    [damage] = check(out).damaged
    assert (damage.shard, damage.path) == (None, out / END)
    with pytest.warns(UserWarning, match=r"end\.json"):
        assert run(texts, out).complete
    assert contents(out) == expected
    write_record(out / END, {"rows": rows})
    assert invalidate_damaged(out, check(out)) == []
    assert run(texts, out).complete
    assert contents(out) == expected


def test_a_shard_with_a_wrong_number_of_rows_is_computed_again(texts, out, expected):
    write_record(out / PART, {**read_record(out / PART), "rows": 2, "refused": 1})
    with pytest.warns(UserWarning, match=r"end\.json"):
        assert run(texts, out).new_rows == 3
    assert contents(out) == expected


def test_undamaged_shards_are_never_marked(out):
    found = check(out)
    claimed = replace(found, damaged=tuple(damages(out, (0, 1, 2))))
    assert invalidate_damaged(out, claimed) == []
    assert check(out).complete


def damages(out, shards):
    from attnflow.corpus.integrity import Damage

    return [Damage(shard, out / PART, "was damaged before") for shard in shards]


@pytest.mark.parametrize(
    "name", ["part-99999999.json", "part-0000001.json", "part-\u0661\u0662\u0663456.json", "x.json"]
)
def test_other_files_in_the_journal_are_ignored(texts, out, name):
    (out / "journal" / name).write_bytes((out / PART).read_bytes())
    assert check(out).complete
    assert run(texts, out).rows == 7
    assert [entry.shard for entry in Folder(out).entries()] == [0, 1, 2]


def test_an_entry_of_another_shard_is_not_used(texts, out, expected):
    (out / "journal/part-000000.json").write_bytes((out / PART).read_bytes())
    assert run(texts, out).new_rows == 3
    assert contents(out) == expected


def test_records_have_checksums(tmp_path):
    path = tmp_path / "a.json"
    write_record(path, {"rows": 3, "name": "\u00e9"})
    assert read_record(path) == {"rows": 3, "name": "\u00e9"}
    values = json.loads(path.read_text())
    assert len(values[CHECKSUM]) == 64
    path.write_text(json.dumps({**values, "rows": 4}))
    with refusal(FileError, "a.json", "checksum"):
        read_record(path)
    with refusal(FileError, "b.json", "No such file"):
        read_record(tmp_path / "b.json")
    assert read_entry(path) is None


def test_an_entry_fits_the_number_of_rows(out):
    entries = list(Folder(out).entries())
    assert agree(7, entries, 3)
    assert not agree(6, entries, 3)
    assert not agree(9, entries, 3)
    assert agree(7, entries[:1], 3)
    assert Entry.from_json(entries[0].to_json()) == entries[0]


CHANGES = [
    {"shard_size": 0},
    {"shard_size": -3},
    {"shard_size": 3.0},
    {"shard_size": None},
    {"input": None},
    {"input": {}},
    {"input": []},
    {"model": None},
    {"model": {"files": 3}},
    {"versions": None},
    {"versions": [1]},
    {"versions": 3},
    {"settings": None},
    {"settings": []},
    {"settings": {}},
    {"other": 1},
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("signed", [False, True])
def test_an_altered_manifest_is_refused(texts, out, change, signed):
    path = out / "manifest.json"
    values = {**read_record(path), **change}
    if signed:
        write_record(path, values)
    else:
        path.write_text(json.dumps({**values, CHECKSUM: json.loads(path.read_text())[CHECKSUM]}))
    before = contents(out)
    for call in (lambda: check(out), lambda: run(texts, out), lambda: open_corpus(out)):
        with pytest.raises(InputError) as caught:
            call()
        assert "manifest.json" in caught.value.given
        assert caught.value.expected
    assert contents(out) == before


@pytest.mark.parametrize("name", ["layers", "methods", "residual_weight", "positions", "heads"])
@pytest.mark.parametrize("value", [{}, [[]], "\0", -1, 1e300])
def test_settings_of_a_manifest_that_make_no_sense(out, name, value):
    path = out / "manifest.json"
    values = read_record(path)
    write_record(path, {**values, "settings": {**values["settings"], name: value}})
    with suppress(InputError):  # and no other error
        read_manifest(path)


@pytest.mark.parametrize("content", [*ODD, '{"schema": 1}', '{"schema": ' + "[" * 5000, "\xff"])
def test_a_folder_with_a_foreign_manifest_stays_as_it_is(texts, tmp_path, content):
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(content.encode("latin-1", "replace"))
    with refusal(FileError, "manifest.json"):
        run(texts, folder)
    assert [path.name for path in folder.iterdir()] == ["manifest.json"]
    for call in (check, open_corpus):
        with refusal(FileError, "manifest.json"):
            call(folder)


def test_a_corpus_that_is_not_complete_is_opened_with_a_warning(out, recwarn):
    open_corpus(out)
    assert not recwarn.list
    (out / "journal/part-000000.json").unlink()
    with pytest.warns(UserWarning, match="2 of 3 shards"):
        assert len(list(open_corpus(out).examples())) == 3
    (out / END).unlink()
    with pytest.warns(UserWarning, match="2 shards"):
        open_corpus(out)
    (out / "shards/part-000001.parquet").write_bytes(b"")
    with pytest.warns(UserWarning, match="1 shard "):
        corpus = open_corpus(out)
    with refusal(SelectionError, "'4'", "not complete"):
        corpus.find("4")
