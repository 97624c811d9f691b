"""The whole output for one trace, compared with what it should be."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.unit.trace.builder import Trace, full_trace, steps
from tfpipe.cli.main import main
from tfpipe.report.trace_text import PARTS, bar, render_trace
from tfpipe.trace_records import SessionAnalysis, Split


def slow_map() -> Trace:
    """Three steps of 100 ms that wait 50 ms for a sequential map behind a prefetch."""
    trace = Trace()
    python = trace.host.line("python")
    producer = trace.host.line("tf_data_iterator_resource/1")
    pool = trace.host.line("tf_data_private_threadpool/1")
    compute = trace.host.line("tf_Compute/1")
    steps(python, [0, 100, 200], 100)
    for place, at in enumerate((0, 100, 200)):
        python.add("IteratorGetNextOp::DoCompute", at, 50, id=9, element_size=1 << 20)
        python.add("Iterator::Root", at, 50, id=1, name="PrefetchDataset:4")
        python.add("Iterator::Root::Prefetch", at, 50, id=2, parent_id=1, buffer_limit=2, autotune="false")
        python.add("PrefetchConsume", at + 49, 1, element_id=20 + place)
        producer.add("PrefetchProduce", at, 50, element_id=20 + place)
        producer.add("Iterator::Root::Prefetch::Map", at, 50, id=3, parent_id=2, shapes="[8,8]", types="float")
        producer.add("InstantiatedCapturedFunction::Run", at, 44, id=70 + place)
        producer.add("Iterator::Root::Prefetch::Map::TensorSlice", at + 45, 5, id=4, parent_id=3)
        pool.add("ExecutorState::Process", at, 44, id=70 + place)
        pool.add("decode:DecodeJpeg", at, 33)
        pool.add("resize:ResizeBilinear", at + 33, 11)
        compute.add("MatMul:MatMul", at + 50, 45)
    return trace


TEXT = """\
Highly input-bound: 50 % of each step is waiting for input.
Bottleneck: Map, 90 % of the waiting for input and 45 % of the step.

vm.xplane.pb (host vm, CPU only, 39 events)
3 steps from step markers 'train'.

step |#################################++++++++++++++++++++++++++++++...| 100 ms
  # input wait        50.0 ms    50 %
  + device compute    45.0 ms    45 %
  . other             5.00 ms   5.0 %
  steps from 100 ms to 100 ms, median 100 ms

tf.data pipeline PrefetchDataset:4: 3 batches, 1.00 MiB per batch, waited for 50
% of the step
stage                calls   blocks  share     self       buffer
  Root                   3     0 ms  0.0 %     0 ms
    Prefetch             3     0 ms  0.0 %   150 ms  100 % empty
>     Map                3   135 ms   90 %   135 ms
        TensorSlice      3  15.0 ms   10 %  15.0 ms
  slowest calls:
    50.0 ms at 0 ms: Map, 90 % of it
    50.0 ms at 100 ms: Map, 90 % of it
    50.0 ms at 200 ms: Map, 90 % of it
  blocks: the steps waited for this stage alone; self: all time in it, also
  ahead of need

Inside Map: DecodeJpeg 75 %, ResizeBilinear 25 %.
  operation       calls     time  per call
  DecodeJpeg          3  99.0 ms   33.0 ms
  ResizeBilinear      3  33.0 ms   11.0 ms

What to do
 1. Map is 90 % of the waiting for input and runs one call at a time.
    Pass num_parallel_calls=tf.data.AUTOTUNE to this map.
 2. Prefetch was empty in 100 % of 3 calls: the stages below it are slower than
    the steps.
    A deeper prefetch will not help; make Map faster.
"""


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner().invoke(main, ["analyze", *arguments], env={"COLUMNS": str(columns)})


class TestText:
    def test_at_80_columns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slow_map().write(tmp_path)
        monkeypatch.chdir(tmp_path)
        result = run("vm.xplane.pb")
        assert result.output == TEXT
        assert result.exit_code == 0

    @pytest.mark.parametrize("columns", [60, 80, 120, 200])
    def test_no_line_is_wider_than_the_terminal(self, tmp_path: Path, columns: int) -> None:
        for trace in (slow_map(), full_trace()):
            analysis = trace.analyze(tmp_path)
            text = render_trace(SessionAnalysis(main=analysis), columns)
            assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= columns
            assert text.isascii()

    def test_wide_terminals_show_more(self, tmp_path: Path) -> None:
        path = str(slow_map().write(tmp_path))
        header = next(line for line in run(path, columns=120).output.splitlines() if line.startswith("stage"))
        assert header.split() == [
            "stage", "calls", "blocks", "share", "self", "buffer", "element", "in", "function", "threads",
        ]  # fmt: skip

    def test_two_traces(self, tmp_path: Path) -> None:
        before, after = str(slow_map().write(tmp_path, "a")), str(full_trace().write(tmp_path, "b"))
        output = run(before, after).output
        assert output.startswith("A step went from 100 ms to 50.0 ms (2.00 times as fast)")
        assert "Root::Prefetch::Map::TensorSlice" in output

    @pytest.mark.parametrize("width", [1, 7, 40, 1000])
    def test_the_bar_is_a_partition(self, width: int) -> None:
        split = Split(
            step_s=1.0,
            device_compute_s=0.31,
            input_wait_s=0.17,
            host_to_device_s=0.11,
            host_s=0.24,
            compile_s=0.13,
            other_s=0.04,
        )
        cells = bar(split, width)
        assert len(cells) == width
        for part in PARTS:
            assert abs(cells.count(part.mark) - width * getattr(split, part.field)) <= 1


class TestOtherFormats:
    def test_json_has_a_version_and_everything(self, tmp_path: Path) -> None:
        path = str(slow_map().write(tmp_path))
        content = json.loads(run(path, "--format", "json").output)
        assert (content["format"], content["version"]) == ("tfpipe-trace", 1)
        main_ = content["main"]
        assert main_["verdict"]["bound"] == "input-high"
        assert main_["bottleneck"]["stage"] == "Map"
        assert set(main_["steps"]["mean"]) == {field.name for field in fields(Split)}
        assert [stage["name"] for stage in main_["pipelines"][0]["stages"]] == [
            "Root", "Prefetch", "Map", "TensorSlice",
        ]  # fmt: skip
        assert [op["operation"] for op in main_["top_ops"]] == ["DecodeJpeg", "ResizeBilinear"]

    def test_json_of_two(self, tmp_path: Path) -> None:
        path = str(slow_map().write(tmp_path))
        content = json.loads(run(path, path, "--format", "json").output)
        assert (content["format"], content["version"]) == ("tfpipe-trace-comparison", 1)
        assert content["split"][0] == {"name": "step_s", "before": pytest.approx(0.1), "after": pytest.approx(0.1)}

    def test_markdown(self, tmp_path: Path) -> None:
        path = str(slow_map().write(tmp_path))
        output = run(path, "--format", "markdown").output
        assert output.startswith("**Highly input-bound: 50 % of each step is waiting for input.**\n")
        assert "| part | per step | share |\n| --- | ---: | ---: |\n| input wait | 50.0 ms | 50 % |" in output
        assert "Inside Map: DecodeJpeg 75 %, ResizeBilinear 25 %." in output

    def test_markdown_of_names_from_a_file(self, tmp_path: Path) -> None:
        trace = slow_map()
        trace.host.lines[0].add("Iterator::Root::A|B<script>", 0, 1, id=90, parent_id=1)
        output = run(str(trace.write(tmp_path)), "--format", "markdown").output
        assert "A\\|B\\<script\\>" in output


class TestCommand:
    def test_errors_go_to_stderr_with_a_hint(self, tmp_path: Path) -> None:
        result = run(str(tmp_path / "nothing"))
        assert result.exit_code == 2
        assert result.stdout == ""
        assert "does not exist" in result.stderr

    def test_three_paths_are_too_many(self, tmp_path: Path) -> None:
        assert run("a", "b", "c").exit_code == 2

    def test_a_damaged_file_is_exit_code_1(self, tmp_path: Path) -> None:
        (tmp_path / "x.xplane.pb").write_bytes(b"\xff" * 99)
        assert run(str(tmp_path / "x.xplane.pb")).exit_code == 1

    def test_tensorflow_is_left_out(self, tmp_path: Path) -> None:
        path = slow_map().write(tmp_path)
        program = (
            "import sys\nfrom tfpipe.cli.analyze import analyze\nanalyze([sys.argv[1]], standalone_mode=False)\n"
            "assert not {'tensorflow', 'rich', 'keras'} & set(sys.modules), 'imported too much'\n"
        )
        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
