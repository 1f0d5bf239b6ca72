"""What importing attnflow loads, which way its modules may import, and what it exports."""

import ast
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import attnflow

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "attnflow"
HEAVY = {"matplotlib", "numba", "numpy", "pandas", "rich", "scipy", "torch", "transformers"}
PUBLIC = [
    "AttentionError",
    "AttentionGraph",
    "Attentions",
    "AttnflowError",
    "Attribution",
    "Explanation",
    "FileError",
    "InputError",
    "MissingDependencyError",
    "SelectionError",
    "ShapeError",
    "__version__",
    "explain",
    "explain_image",
    "flow",
    "flow_bounds",
    "flow_path",
    "head_flow",
    "head_rollout",
    "load_model",
    "normalize_rows",
    "raw_attention",
    "register_edges",
    "register_method",
    "rollout",
    "saturation",
    "show",
    "to_html",
]
# What each package may import of attnflow; top-level modules are checked for storage and cycles.
MAY_IMPORT = {
    "methods": {
        "arrays",
        "attentions",
        "attribution",
        "errors",
        "graph",
        "maxflow",
        "merging",
        "methods",
        "normalization",
        "selection",
    },
    "maxflow": {"errors", "maxflow"},
    "evaluation": {"arrays", "attribution", "errors", "evaluation", "selection"},
}
MAY_STORE = {"attentions", "attribution", "cli"}
# Where torch lives; their callers load them when they run.
MAY_LOAD_TORCH = {"importance", "minilm", "models", "verb_number"}


def heavy_modules_after(code):
    """The heavy packages that a fresh interpreter has loaded after running the code."""
    report = f"import sys; print(*sorted({HEAVY!r} & set(sys.modules)))"
    command = [sys.executable, "-c", f"{code}\n{report}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_attnflow_loads_nothing_heavy():
    assert heavy_modules_after("import attnflow") == set()


def test_importing_the_command_line_loads_nothing_heavy():
    assert heavy_modules_after("import attnflow.cli.main") == set()


def test_rollout_of_numpy_arrays_needs_neither_torch_nor_numba():
    code = "import attnflow as a; a.rollout(a.AttentionGraph.from_weights([[[1.0]]]))"
    assert heavy_modules_after(code) == {"numpy"}


def test_explain_loads_torch_and_transformers_only_when_it_is_called():
    assert heavy_modules_after("import attnflow; attnflow.explain") == {"numpy"}


def test_the_tests_above_can_fail():
    assert "numpy" in heavy_modules_after("import attnflow; attnflow.AttentionGraph")


def imports_of(text):
    """The modules imported anywhere in the text, and those imported when it is loaded."""
    everywhere, on_load = set(), set()

    def visit(node, inside):
        for child in ast.iter_child_nodes(node):
            names = []
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, "imports are absolute"
                names = [f"{child.module}.{alias.name}" for alias in child.names]
            everywhere.update(names)
            if not inside:
                on_load.update(names)
            deeper = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            visit(child, inside or deeper or guarded)

    visit(ast.parse(text), inside=False)
    return everywhere, on_load


def part_of(name):
    """The module or package of attnflow that an import names, or None."""
    parts = name.split(".")
    return parts[1] if parts[0] == "attnflow" and len(parts) > 1 else None


def problems_in(part, text):
    """What is wrong with the imports of a module in this part of attnflow."""
    everywhere, on_load = imports_of(text)
    inner = {part_of(name) for name in everywhere} - {None}
    torch = [name for name in on_load if name.split(".")[0] == "torch"]
    problems = [f"imports {name} when loaded" for name in torch if part not in MAY_LOAD_TORCH]
    if part != "cli" and "cli" in inner:
        problems.append("imports cli")
    if part not in MAY_STORE and "storage" in inner:
        problems.append("imports storage")
    if part in MAY_IMPORT:
        problems += [f"imports {name}" for name in sorted(inner - MAY_IMPORT[part])]
    return problems


def sources():
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        yield path.relative_to(SOURCE), part, path.read_text(encoding="utf-8")


def test_imports_go_the_right_way():
    found = {str(path): problems_in(part, text) for path, part, text in sources()}
    assert {path: problems for path, problems in found.items() if problems} == {}


@pytest.mark.parametrize(
    ("part", "text", "problem"),
    [
        ("methods", "from attnflow.cli.main import app", "imports cli"),
        ("methods", "from attnflow import storage", "imports storage"),
        ("methods", "def f():\n    from attnflow.models import x", "imports models"),
        ("maxflow", "import attnflow.graph", "imports graph"),
        ("graph", "if True:\n    import torch", "imports torch when loaded"),
    ],
)
def test_the_test_above_can_fail(part, text, problem):
    assert problem in problems_in(part, text)


def test_modules_do_not_import_each_other_in_circles():
    graph = {}
    for path, _, text in sources():
        name = ".".join(["attnflow", *path.with_suffix("").parts]).removesuffix(".__init__")
        graph[name] = imports_of(text)[1]
    names = set(graph)
    known = {
        name: {found for i in imported for found in (i, i.rpartition(".")[0]) if found in names}
        for name, imported in graph.items()
    }
    known = {name: imported - {"attnflow"} for name, imported in known.items()}
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        pytest.fail(str(error))


def test_the_public_names_are_these():
    assert attnflow.__all__ == PUBLIC
    assert dir(attnflow) == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_every_public_name_can_be_had(name):
    assert getattr(attnflow, name).__name__ == name
    assert vars(attnflow)[name] is getattr(attnflow, name)  # looked up once


def test_type_checkers_see_every_public_name():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            seen.update({alias.name: node.module for alias in node.names})
    homes = {name: f"attnflow.{home}" for name, home in vars(attnflow)["_HOME"].items()}
    assert seen == homes
    assert {*seen, "__version__"} == set(PUBLIC)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'attnflow' has no attribute 'roll_out'"):
        _ = attnflow.roll_out


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert attnflow.__version__ == project["project"]["version"]


def test_types_are_announced():
    assert (SOURCE / "py.typed").exists()
