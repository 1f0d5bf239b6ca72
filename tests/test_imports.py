"""What importing attnflow loads, which packages may import which, and what is exported."""

import ast
import re
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
REFERENCE = re.compile(r"attnflow(\.\w+)+(:\w+)?")
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
    "evaluate",
    "explain",
    "explain_image",
    "flow",
    "flow_bounds",
    "flow_path",
    "group_flow",
    "head_flow",
    "head_rollout",
    "joint_flow",
    "load_model",
    "normalize_rows",
    "open_study",
    "raw_attention",
    "register_edges",
    "register_method",
    "rollout",
    "saturation",
    "show",
    "to_html",
]
NOUNS = {
    "arrays",
    "attentions",
    "attribution",
    "errors",
    "graph",
    "head_merge",
    "layers",
    "optional",
    "predictions",
    "progress",
    "registry",
    "selection",
    "token_text",
    "units",
    "unkept",
}
# What a package may import from attnflow, also inside functions. Others are free, except for RULES.
MAY_IMPORT = {
    "maxflow": {"errors", "maxflow", "progress"},
    "methods": NOUNS | {"maxflow", "methods"},
    "evaluation": NOUNS | {"evaluation"},
    "edges": NOUNS | {"edges", "models"},
    "figures": NOUNS | {"explanation", "figures", "methods", "notes", "presentation"},
    "explanation": NOUNS | {"chains", "explanation_file", "methods", "study", "viewer"},
    "graph": NOUNS,
    "attribution": NOUNS | {"storage"},
    "attentions": NOUNS | {"storage"},
}
# Packages that only some may import.
ONLY_IMPORTED_BY = {"cli": {"cli", "__main__"}, "paper": {"cli", "paper"}}
# Where torch may be imported when a module is loaded; elsewhere it is imported inside functions.
MAY_LOAD_TORCH = {"edges", "importance", "models", "paper"}


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
    """The modules imported anywhere in the text, and those imported when it is loaded.

    Lazy imports count as well: inside functions, by import_module("attnflow...") and by
    "attnflow.module:function" references of the registries.
    """
    everywhere, on_load = set(), set()

    def visit(node, inside):
        for child in ast.iter_child_nodes(node):
            names = []
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, "imports are absolute"
                names = [f"{child.module}.{alias.name}" for alias in child.names]
            elif isinstance(child, ast.Constant) and REFERENCE.fullmatch(str(child.value)):
                everywhere.add(str(child.value).partition(":")[0])
            everywhere.update(names)
            if not inside:
                on_load.update(names)
            deeper = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            visit(child, inside or deeper or guarded)

    visit(ast.parse(text), inside=False)
    return everywhere, on_load


def part_of(name):
    """The top-level module or package of attnflow that an import names, or None."""
    parts = name.split(".")
    return parts[1] if parts[0] == "attnflow" and len(parts) > 1 else None


def problems_in(part, text):
    """The forbidden imports of a module in this part of attnflow."""
    everywhere, on_load = imports_of(text)
    imported = {part_of(name) for name in everywhere} - {None}
    torch = [name for name in on_load if name.split(".")[0] == "torch"]
    problems = [f"imports {name} when loaded" for name in torch if part not in MAY_LOAD_TORCH]
    if part == "__init__":
        return problems
    for package, importers in ONLY_IMPORTED_BY.items():
        if package in imported and part not in importers:
            problems.append(f"imports {package}")
    if part in MAY_IMPORT:
        allowed = MAY_IMPORT[part] | {part, *vars(attnflow)["__all__"]}
        problems += [f"imports {name}" for name in sorted(imported - allowed)]
    return problems


def sources():
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        yield path.relative_to(SOURCE), part, path.read_text(encoding="utf-8")


def test_imports_go_the_right_way():
    problems = {str(path): problems_in(part, text) for path, part, text in sources()}
    assert {path: listed for path, listed in problems.items() if listed} == {}


@pytest.mark.parametrize(
    ("part", "text", "problem"),
    [
        ("methods", "from attnflow.cli.main import app", "imports cli"),
        ("methods", "from attnflow import storage", "imports storage"),
        ("methods", "def f():\n    from attnflow.models import x", "imports models"),
        ("methods", "f('attnflow.models.loading:load_model')", "imports models"),
        ("models", "def f():\n    import_module('attnflow.paper.data')", "imports paper"),
        ("maxflow", "import attnflow.graph", "imports graph"),
        ("graph", "if True:\n    import torch", "imports torch when loaded"),
    ],
)
def test_forbidden_imports_are_found(part, text, problem):
    assert problem in problems_in(part, text)


def import_graph(lazy):
    """The modules that each module imports; `lazy`: also inside functions."""
    texts = {
        ".".join(["attnflow", *path.with_suffix("").parts]).removesuffix(".__init__"): text
        for path, _, text in sources()
    }
    graph = {}
    for name, text in texts.items():
        imported = imports_of(text)[0 if lazy else 1]
        modules = {m for i in imported for m in (i, i.rpartition(".")[0]) if m in texts}
        graph[name] = modules - {"attnflow", name}
    return graph


def test_modules_do_not_import_each_other_in_cycles():
    try:
        TopologicalSorter(import_graph(lazy=False)).prepare()
    except CycleError as error:
        pytest.fail(str(error))


def test_packages_do_not_import_each_other_in_cycles():
    """Lazy imports included; a package counts as one module, registries as a part of their own.

    A registry names functions of its package without importing them, so that everybody can list
    them.
    """

    def node_of(name):
        return "registry" if name.endswith(".registry") else part_of(name)

    packages: dict[str, set[str]] = {}
    lazy, on_load = import_graph(lazy=True), import_graph(lazy=False)
    for name in lazy:
        imported = on_load[name] if node_of(name) == "registry" else lazy[name]
        if node_of(name) is not None:
            packages.setdefault(node_of(name), set()).update(map(node_of, imported))
    graph = {part: imported - {part, None} for part, imported in packages.items()}
    # An explanation can show, check and save itself, by lazy imports against the direction.
    graph["explanation"] -= {"viewer", "study", "explanation_file"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(str(error))


def test_the_public_names_are_these():
    assert attnflow.__all__ == PUBLIC
    assert dir(attnflow) == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_every_public_name_is_available(name):
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


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()
