# ruff: noqa: E501
"""The table of candidates in its three layouts."""

from __future__ import annotations

from tests.runs import make_candidate, make_candidates, make_run
from tfpipe.records import Candidate, Run
from tfpipe.report.table import candidate_table
from tfpipe.settings import PipelineSettings


def failed_candidate(settings: PipelineSettings, name: str, status: str, error: str) -> Candidate:
    return make_candidate(
        settings, name=name, status=status, error=error, step_s=None, verdict=None, input_fraction=None
    )


FAILED = failed_candidate(
    PipelineSettings(shuffle_buffer="full"),
    "full shuffle",
    "failed",
    "the worker was killed by the system while the shuffle buffer filled; it needed more memory than there is",
)
SKIPPED = failed_candidate(PipelineSettings(threadpool=8), "", "skipped", "no time left")


def broken_run() -> Run:
    return make_run(candidates=(*make_candidates()[2:], FAILED, SKIPPED))


STACKED = """\
       examples/s  step  compute    input wait  contention  buffered
 =1 all AUTOTUNE  shuffle5000-mapauto-batch-prefetchauto           compute-bound
    239 (234-244)   134      125  0.50 (0.4 %)        8.50  19.1 MiB
>*2 seed recipe: batch first, AUTOTUNE                             compute-bound
    shuffle5000-batch-mapauto-prefetchauto
    254 (249-260)   126      125  0.25 (0.2 %)        0.50  20.0 MiB
  3 full shuffle  shufflefull-map-batch                                   failed
    the worker was killed by the system while the shuffle buffer filled; it
    needed more memory than there is
  4 map-batch-pool8                                                      skipped
    no time left
Times are ms per step, ranges 95 % intervals.
> recommended  * fastest  = cannot be told apart from the fastest
"""

WIDE = """\
    candidate                           id                                         examples/s  step  compute    input wait  contention  buffered  verdict
 =1 all AUTOTUNE                        shuffle5000-mapauto-batch-prefetchauto  239 (234-244)   134      125  0.50 (0.4 %)        8.50  19.1 MiB  compute-bound
>*2 seed recipe: batch first, AUTOTUNE  shuffle5000-batch-mapauto-prefetchauto  254 (249-260)   126      125  0.25 (0.2 %)        0.50  20.0 MiB  compute-bound
  3 full shuffle                        shufflefull-map-batch                               -     -        -             -           -         -  failed
    the worker was killed by the system while the shuffle buffer filled; it needed more memory than there is
  4 map-batch-pool8                                                                         -     -        -             -           -         -  skipped
    no time left
Times are ms per step, ranges 95 % intervals.
> recommended  * fastest  = cannot be told apart from the fastest
"""

NARROW = """\
 =1 all AUTOTUNE                 compute-bound
    shuffle5000-mapauto-batch-prefetchauto
    examples/s: 239 (234-244)
    step: 134
    compute: 125
    input wait: 0.50 (0.4 %)
    contention: 8.50
    buffered: 19.1 MiB
>*2 seed recipe: batch first, AUTOTUNE
    compute-bound
    shuffle5000-batch-mapauto-prefetchauto
    examples/s: 254 (249-260)
    step: 126
    compute: 125
    input wait: 0.25 (0.2 %)
    contention: 0.50
    buffered: 20.0 MiB
  3 full shuffle                        failed
    shufflefull-map-batch
    the worker was killed by the system while
    the shuffle buffer filled; it needed more
    memory than there is
  4 map-batch-pool8                    skipped
    no time left
Times are ms per step, ranges 95 % intervals.
> recommended  * fastest  = cannot be told
apart from the fastest
"""


def test_two_lines_each_where_one_is_too_long() -> None:
    assert candidate_table(broken_run(), width=80, color=False) == STACKED


def test_one_line_each_where_there_is_room() -> None:
    assert candidate_table(broken_run(), width=180, color=False) == WIDE


def test_one_number_per_line_in_a_narrow_terminal() -> None:
    assert candidate_table(broken_run(), width=46, color=False) == NARROW


def test_marks_need_a_recommendation() -> None:
    table = candidate_table(make_run(recommendation=None), width=80, color=False)
    assert "fastest" not in table
    assert "  1 serial, as written" in table


def test_large_rates_still_fit_80_columns() -> None:
    fast = [make_candidate(c.settings, name=c.name, floor_s=0.00125, batch_size=128) for c in make_candidates()]
    lines = candidate_table(make_run(candidates=tuple(fast)), width=80, color=False).splitlines()
    assert lines[0].split() == ["examples/s", "step", "compute", "input", "wait", "contention", "buffered"]
    assert max(map(len, lines)) <= 80


def test_a_run_without_candidates() -> None:
    assert candidate_table(make_run(candidates=(), recommendation=None), width=80, color=False) == "No candidates.\n"
