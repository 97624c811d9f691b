"""Commands that only read files start at once, which TensorFlow (4 to 6 s) would spoil."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import make_run
from tfpipe.runfile import write_run

# Runs one command in this process and then tells which modules it brought in.
SCRIPT = """
import json, sys
from tfpipe.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
sys.stdout.write("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


def modules_after(*arguments: str) -> set[str]:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    code, modules = json.loads(finished.stdout.splitlines()[-1])
    assert code in (0, None), finished.stderr
    return set(modules)


@pytest.fixture
def run_directory(tmp_path: Path) -> str:
    write_run(tmp_path, make_run())
    return str(tmp_path)


@pytest.mark.parametrize("arguments", [["show"], ["show", "--candidate", "1"], ["recommend"]])
def test_file_only_commands_leave_tensorflow_alone(arguments: list[str], run_directory: str) -> None:
    assert "tensorflow" not in modules_after(arguments[0], run_directory, *arguments[1:])


def test_recommending_again_leaves_tensorflow_alone(run_directory: str) -> None:
    assert "tensorflow" not in modules_after("recommend", run_directory, "--max-memory", "1GiB")


@pytest.mark.parametrize("command", ["profile", "analyze", "check", "tensorboard", "doctor"])
def test_a_commands_help_leaves_tensorflow_alone(command: str) -> None:
    assert "tensorflow" not in modules_after(command, "--help")


def test_help_imports_no_command_and_nothing_heavy() -> None:
    modules = modules_after("--help")
    assert {name for name in modules if name.startswith("tfpipe.cli.")} == {"tfpipe.cli.main", "tfpipe.cli.start"}
    assert modules.isdisjoint({"tensorflow", "numpy", "rich", "msgspec"})


def test_writing_hparams_leaves_tensorflow_alone(run_directory: str) -> None:
    script = (
        "import sys; from pathlib import Path; from tfpipe.runfile import load_run; "
        "from tfpipe.report.hparams import write_hparams; "
        "write_hparams(load_run(Path(sys.argv[1])), Path(sys.argv[1]) / 'traces'); "
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, run_directory], check=True, timeout=60)
