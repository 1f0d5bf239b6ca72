"""The report: its numbers, its escaping, and the page in a browser."""

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from attnflow import FileError
from attnflow.evaluation.metrics import METRICS
from attnflow.study.charts import draw_curve_chart, draw_gain, draw_rank_chart
from attnflow.study.disagreement import paint
from attnflow.study.findings import gather_results, is_circular, number, p_text
from attnflow.study.html_report import build_report, write_report
from attnflow.study.reproduction import open_manifest, python_call, shell_call
from attnflow.study.table import mean_ranks
from tests.refusal import refusal
from tests.study.toy_study import make_study, with_columns
from tests.viewer.browser import chromium

EVIL = '<script>alert("x")</script>'
VOID = {"meta", "br", "line", "polyline", "path", "rect"}


class Page(HTMLParser):
    """The elements of a page, as (tag, attributes, text inside)."""

    def __init__(self, source):
        super().__init__()
        self.elements: list[Any] = []
        self.open: list[Any] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        element = [tag, dict(attrs), ""]
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for element in self.open:
            element[2] += data

    def find(self, tag, **attributes):
        """Return the elements with some attributes."""
        return [
            (values, text)
            for name, values, text in self.elements
            if name == tag and attributes.items() <= values.items()
        ]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study") / "out")


@pytest.fixture(scope="module")
def results(study):
    return gather_results(study)


@pytest.fixture(scope="module")
def source(results):
    return build_report(results)


@pytest.fixture(scope="module")
def page(source):
    return Page(source)


def test_tables_have_the_numbers_of_the_study(page, results):
    """Each metric, replacement and sign has a table with all rows in order."""
    for (metric, choice), table in results.tables.items():
        view = {f"data-{key}": value for key, value in choice._asdict().items()}
        [(_, text)] = page.find("details", **view, **{"data-metric": metric})
        places: list[int] = []
        for row in table.rows:
            said = f"{number(row.low)} to {number(row.high)}"
            assert said in text
            assert p_text(row.p) in text
            assert f"{row.wins} / {row.ties} / {row.losses}" in text
            places.append(text.index(row.title, places[-1] if places else text.index("W / T / L")))
        assert places == sorted(places)
        assert METRICS[metric].summary in text


def test_every_table_of_values_names_its_replacement(page, results):
    captions = [text for _, text in page.find("caption")]
    for choice in results.choices:
        named = [text for text in captions if str(choice) in text]
        assert len(named) == len(results.metrics) + 1  # and the mean ranks


def test_mean_ranks_are_those_of_the_study(page, study):
    _, text = page.find("table", **{"class": "map"})[0]
    for metric in study.metrics:
        ranks, n = mean_ranks(study, metric)
        assert n == 4
        for name, value in ranks.items():
            assert f"{value:.1f}" in text or is_circular(name, metric)


def test_what_was_measured_is_told(page, study):
    [(_, text)] = page.find("section", id="measured")
    for part in ("verb-number", "4 evaluated", "1 rejected", *study.replacements, "positive"):
        assert part in text
    for metric in study.metrics:
        assert METRICS[metric].title in text
        assert METRICS[metric].summary in text


def test_the_answer_warns_about_few_texts(page):
    [(_, warnings)] = page.find("div", **{"class": "warnings"})
    assert "4 texts" in warnings
    [(_, answer)] = page.find("div", **{"class": "answer"})
    assert "8 explainers on 4 texts" in answer
    assert "significantly better than all" not in answer


def test_the_page_needs_nothing_from_elsewhere(page, source):
    assert len(page.find("script")) == 1
    for tag, attributes, _ in page.elements:
        assert tag not in ("link", "img", "iframe", "object")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert "http://" not in source
    assert "https://" not in source


def test_text_from_strangers_is_escaped(study):
    tokens = np.asarray([EVIL, 'a"onmouseover="x', "\u202eab", "&amp;", "</style>", "'"])
    scores = np.linspace(-1, 1, 6)
    hostile = with_columns(
        study, tokens=tokens, scores=scores, evidence=np.eye(6, dtype=bool)[0], label=EVIL,
        id=f'">{EVIL}', text=EVIL, problem=EVIL,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for i in range(len(hostile.columns["scores"])):
        hostile.columns["scores"][i] = rng.normal(size=6)
    page = Page(build_report(hostile))
    assert len(page.find("script")) == 1
    assert len(page.find("style")) == 1
    for _, attributes, _ in page.elements:
        assert not any(name.startswith("on") for name in attributes)
    [(_, text)] = page.find("section", id="texts")
    for token in (EVIL, 'a"onmouseover="x', "&amp;", "</style>"):
        assert token in text
    assert "\u202e" not in text
    assert EVIL in page.find("div", **{"class": "warnings"})[0][1]


def test_colors_are_relative_to_the_strongest_score():
    page = Page(paint(["a", "b", "c"], [0.2, -0.4, 0.0], [True, False, False]))
    spans = page.find("span")
    assert [values["style"] for values, _ in spans] == ["--s:0.50", "--s:1.00", "--s:0.00"]
    assert [values["class"] for values, _ in spans] == ["plus evidence", "minus", "plus"]
    assert [text for _, text in spans] == ["a", "b", "c"]


def test_patches_are_a_grid():
    page = Page(paint(["patch 0,0", "patch 0,1", "patch 1,0"], [1.0, 0.5, 0.0]))
    [(values, _)] = page.find("div")
    assert values["class"] == "patches"
    places = [values["style"].split("grid-area:")[1] for values, _ in page.find("span")]
    assert places == ["1/1", "1/2", "2/1"]


def test_curves_are_drawn_to_scale():
    page = Page(draw_curve_chart({"<b>": [1.0, 0.5, 0.0]}, {"<b>": 0}, "a chart"))
    [(values, _)] = page.find("polyline")
    points = np.asarray([point.split(",") for point in values["points"].split()], dtype=float)
    x, y = points.T
    assert np.diff(x) == pytest.approx([x[1] - x[0]] * 2, abs=0.11)
    assert np.diff(y) == pytest.approx([(y[2] - y[0]) / 2] * 2, abs=0.11)
    assert y[0] < y[2]  # p = 1 is above p = 0
    assert page.find("title")[0][1] == "<b>"


def test_the_rank_diagram_joins_what_is_not_told_apart():
    ranks = {"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0}
    page = Page(draw_rank_chart(ranks, {name: name.upper() for name in ranks}, 1.0, "ranks"))
    places = [float(values["cx"]) for values, _ in page.find("circle")]
    unit = (places[3] - places[0]) / 3
    assert places[1] - places[0] == pytest.approx(0.5 * unit, abs=0.2)
    assert len(page.find("path", **{"class": "join"})) == 2  # a and b, b and c
    assert [text for _, text in page.find("text", **{"class": "name"})] == ["A", "B", "C", "D"]


def test_bars_of_gains_share_a_scale(results):
    table = results.table("comprehensiveness")
    widths = {}
    for row in table.rows:
        [(values, _)] = Page(draw_gain(row, table)).find("rect")
        widths[row.gain] = float(values["width"])
    gains = np.asarray(list(widths))
    drawn = np.asarray(list(widths.values()))
    scale = drawn.max() / np.abs(gains).max()
    assert drawn == pytest.approx(np.abs(gains) * scale, abs=0.11)


def test_the_calls_repeat_the_study(study, source):
    manifest = open_manifest(study)
    call = python_call(manifest)
    for part in ("methods='rollout,flow'", "edges='attention'", "evidence_column='evidence'"):
        assert part in call
    assert "seed" not in call  # the default
    assert shell_call(manifest) == ""  # the input was a list
    compile(call, "call", "exec")
    assert "model fingerprint" in source


def test_a_path_that_cannot_be_written(study, tmp_path):
    with refusal(FileError, tmp_path / "missing"):
        write_report(study, tmp_path / "missing" / "report.html")


@pytest.mark.slow
def test_in_a_browser(results, tmp_path):
    path = write_report(results, tmp_path / "report.html")
    with chromium() as browser:
        for scheme, width in (("light", 1200), ("dark", 360)):
            context = browser.new_context(
                viewport={"width": width, "height": 800}, color_scheme=scheme
            )
            page = context.new_page()
            problems: list[str] = []
            requests: list[str] = []
            page.on("console", lambda message, said=problems: said.append(message.text))
            page.on("pageerror", lambda error, said=problems: said.append(str(error)))
            page.on("request", lambda request, said=requests: said.append(request.url))
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            check_selection(page, results)
            assert problems == []
            assert requests == [path.as_uri()]
            context.close()
        check_without_script(browser, path, results)


def check_selection(page, results):
    """Only the chosen replacement, sign and metric are shown."""
    other = results.choices[-1]
    tables = page.locator("details[data-view]:visible")
    assert tables.count() == len(results.metrics)
    page.select_option("select[name=replacement]", other.replacement)
    page.select_option("select[name=sign]", other.sign)
    assert tables.count() == len(results.metrics)
    shown = "views => views.map((view) => view.dataset.replacement + view.dataset.sign)"
    assert set(tables.evaluate_all(shown)) == {other.replacement + other.sign}
    page.select_option("select[name=metric]", results.metrics[1])
    assert tables.count() == 1
    assert tables.first.get_attribute("open") is not None


def check_without_script(browser, path, results):
    """Without JavaScript, all tables are there, and no selection."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("details[data-view]:visible").count() == len(results.tables)
    assert not page.locator(".choice").is_visible()
    context.close()
