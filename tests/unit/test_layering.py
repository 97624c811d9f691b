"""The house's plan, read from the imports: who may stand on whom, and who may print."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfpipe
from tfpipe.cli.main import COMMANDS

PACKAGE = Path(tfpipe.__file__).parent
# Every module that lies directly in the package. Plain data and its file; the wings talk through them.
GROUND_FLOOR = {path.stem for path in PACKAGE.glob("*.py")}
WINGS = {"analysis", "check", "engine", "report", "trace"}
# Room -> rooms it may import besides itself and the ground floor. The roof may import any.
ALLOWED = {"ground": set(), "runner": {"analysis"}, **{wing: set() for wing in WINGS}}
MODULES = sorted(PACKAGE.rglob("*.py"))
# The doors: the command, and the Python API that does the same. They import anything.
ROOF = {"api", "cli"}
# What a command's module may import before its command runs. Everything else costs start-up time.
LIGHT = {"click", "tfpipe.errors", "tfpipe"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def room_of(module: str) -> str:
    """``tfpipe.report.text`` is in ``report``, ``tfpipe.errors`` on the ground floor; ``__main__`` is a door to cli."""
    parts = module.split(".")
    if parts[-1] == "__main__":
        return "cli"
    if parts[-1] == "__init__" and len(parts) == 2:
        return "api"  # tfpipe's own names are the API's
    return "ground" if len(parts) == 1 or parts[1] in GROUND_FLOOR else parts[1]


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module named in an import anywhere below ``tree``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            # ``from tfpipe.report import text`` names a module; ``from tfpipe.errors import DataError`` does not.
            yield node.module
            yield from (
                f"{node.module}.{alias.name}"
                for alias in node.names
                if (PACKAGE.parent / Path(*node.module.split(".")) / f"{alias.name}.py").exists()
            )


def runtime_toplevel(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run on import: the module's own, without ``if TYPE_CHECKING`` blocks."""
    for statement in tree.body:
        guarded = isinstance(statement, ast.If) and isinstance(statement.test, ast.Name)
        if not (guarded and statement.test.id == "TYPE_CHECKING"):
            yield statement


def forbidden_imports(module: str, tree: ast.Module) -> list[str]:
    room = room_of(module)
    if room in ROOF:
        return []
    own = [name for name in imports(tree) if name == "tfpipe" or name.startswith("tfpipe.")]
    return [name for name in own if room_of(name) not in {room, "ground", *ALLOWED[room]}]


def test_there_is_something_to_read() -> None:
    assert {room_of(name_of(path)) for path in MODULES} == {"ground", *ROOF, "runner", *WINGS}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_rooms_import_only_what_they_stand_on(path: Path) -> None:
    assert forbidden_imports(name_of(path), ast.parse(path.read_text())) == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_engine_imports_tensorflow(path: Path) -> None:
    if room_of(name_of(path)) != "engine":
        named = imports(ast.parse(path.read_text()))
        assert [name for name in named if name.split(".")[0] in ("tensorflow", "keras")] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_but_cli_and_engine_prints(path: Path) -> None:
    """Reports are strings, analysis is numbers; the engine's worker answers on stdout."""
    if room_of(name_of(path)) in ("report", "analysis", "trace", "ground"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert [ast.unparse(call.func) for call in calls if ast.unparse(call.func) in PRINTERS] == []


PRINTERS = {"print", "click.echo", "sys.stdout.write", "sys.stderr.write"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_little_before_it_runs(name: str) -> None:
    path = PACKAGE / "cli" / f"{name}.py"
    named = [found for statement in runtime_toplevel(ast.parse(path.read_text())) for found in _direct(statement)]
    heavy = [found for found in named if "." in found or found in HEAVY]
    assert [found for found in heavy if found not in LIGHT and not found.startswith("collections.")] == []


HEAVY = {"numpy", "rich", "psutil", "msgspec", "tensorflow", "packaging", "google"}


def _direct(statement: ast.stmt) -> Iterator[str]:
    return imports(statement) if isinstance(statement, ast.Import | ast.ImportFrom) else iter(())


# What the reports return besides text: TensorBoard's event files, and what a command needs to build a report.
NOT_TEXT = {"tfpipe.report.hparams", "tfpipe.report.hparams_events"}


@pytest.mark.parametrize("path", [p for p in MODULES if room_of(name_of(p)) == "report"], ids=name_of)
def test_reports_are_strings(path: Path) -> None:
    """A function named for a report returns ``str``."""
    if name_of(path) in NOT_TEXT:
        return
    suffixes = ("_report", "_markdown", "_json", "_code", "_table", "_text")
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    named = [function for function in functions if function.name.endswith(suffixes)]
    assert [f.name for f in named if f.returns is None or ast.unparse(f.returns) != "str"] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tfpipe.report.text", "import tfpipe.analysis.recommend"),
        ("tfpipe.report.text", "from tfpipe.analysis.recommend import recommend"),
        ("tfpipe.trace.reader", "def f():\n    from tfpipe.report import text"),
        ("tfpipe.runner.conduct", "from tfpipe.report.text import profile_report"),
        ("tfpipe.records", "from tfpipe.cli import main"),
    ],
)
def test_the_rule_sees_a_breach(module: str, source: str) -> None:
    assert forbidden_imports(module, ast.parse(source)) != []
