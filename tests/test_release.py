"""The changelog and the metadata of the package, as a release needs them."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from attnflow.study.explainers import EXPLAINERS, default_opponents
from tools.check_changelog import arrange, find_problem, split_entries
from tools.check_wheel import TESTS, lowest_versions, requirement_name

ROOT = Path(__file__).resolve().parent.parent


CHANGELOG = """# Changelog

## Unreleased

### Fixed: pages

- A page
  with two lines.

### Viewer

- A view.
- A view.

### Added

A paragraph.

- A method.

## 0.1.0 (2026-11-16)

First version.
"""


def test_unreleased_becomes_a_version_with_kinds_in_order_and_topics():
    arranged = arrange(CHANGELOG, "0.2.0", "2026-12-01")
    assert (
        arranged
        == """# Changelog

## 0.2.0 (2026-12-01)

### Added

A paragraph.
- A method.

#### Viewer

- A view.

### Fixed

#### Pages

- A page
  with two lines.

## 0.1.0 (2026-11-16)

First version.
"""
    )


def test_nothing_of_the_changelog_is_lost_when_it_is_arranged():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if "## Unreleased" not in changelog:
        pytest.skip("nothing is unreleased")
    arranged = arrange(changelog, "99.0.0", "2030-01-01")
    before, after = (
        {
            " ".join(entry.split())
            for entry in split_entries(
                "\n".join(line for line in text.splitlines() if line[:1] != "#")
            )
        }
        for text in (changelog, arranged)
    )
    assert len(before) > 10
    assert before == after
    assert find_problem(arranged, "99.0.0", release=True) is None


def test_what_is_wrong_with_a_changelog():
    find = find_problem
    good = "## 0.2.0 (2026-12-01)\n\n### Added\n\n- a\n\n### Fixed\n\n- b\n"
    assert find(good, "0.2.0") is None
    assert "0.3.0" in (find(good, "0.3.0") or "")
    turned = "## 0.2.0 (2026-12-01)\n\n### Fixed\n\n- b\n\n### Added\n\n- a\n"
    assert "Fixed, Added" in (find(turned, "0.2.0") or "")
    assert "no date" in (find(good.replace("12-01", "12-41"), "0.2.0") or "")
    assert find("## Unreleased\n\n- x\n\n" + good, "0.2.0") is None
    assert "Unreleased" in (find("## Unreleased\n\n- x\n\n" + good, "0.2.0", release=True) or "")


def test_each_extra_can_be_checked_and_pins_meet_the_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(TESTS) - {"none"} == set(extras) - {"all", "paper"}  # these only combine others
    for paths, _ in TESTS.values():
        assert all((ROOT / path).exists() for path in paths)
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line and not line.startswith("#")
    )
    for text in [*project["dependencies"], *(line for extra in extras.values() for line in extra)]:
        requirement = Requirement(text)
        if requirement.name in pins:
            assert requirement.specifier.contains(pins[requirement.name]), text
    lowest = lowest_versions("models")
    assert "numpy==2" in lowest
    assert any(line.startswith("torch==") for line in lowest)


def test_the_workflow_installs_the_wheel_with_each_extra():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    _, _, matrix = workflow.partition("        extra:\n")
    listed = [line.removeprefix("          - ") for line in matrix.splitlines()[: len(TESTS)]]
    assert set(listed) == set(TESTS)


def test_the_extra_of_evaluate_has_what_its_default_explainers_need():
    packages = {EXPLAINERS[name].package.partition(".")[0] for name in default_opponents()}
    assert "captum" in packages
    assert packages - {""} <= set(map(requirement_name, lowest_versions("evaluation")))
