"""How right the input fraction, its interval and the verdict are, on pipelines with known answers.

    python -m tests.bench.bench_ground_truth [--repeats 20] [--budget 15] [--cases NAME,...] [--json FILE]

Each repeat is a whole run of one candidate as ``tfpipe profile`` does it; ``--budget`` is its time budget in seconds
(below 13 the blocks get shorter in proportion). Limits: error at most 1 point at the median over cases and 3 at worst
(a case's error is that of its mean estimate); over 20 repeats an interval holds the truth 18 times and the same, right
verdict comes out 19 times, "uncertain" aside; no candidate is faster than the bound printed for it. Ends with 1 if one
is missed. The truth is calibrated with sleeps and clocks, and has an interval too (``+-t``): ``held`` counts the
intervals that hold its middle, ``agree`` those that differ from it by no more than both explain, which is what is
judged. ``--judge FILE ...`` prints the table of outcomes that were kept with ``--json``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tests.bench.ground_truth import CASES, Outcome, measure_case

Plain = dict[str, Any]
HEAD = (
    f"{'case':<26}{'truth':>7}{'+-t':>6}{'mean':>7}{'error':>7}{'worst':>7}{'+-':>6}{'held':>7}{'agree':>7}{'rounds':>7}"
    "  verdicts"
)

MEDIAN_ERROR = 0.01
WORST_ERROR = 0.03
COVERAGE = 18 / 20
SAME_VERDICT = 19 / 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of measuring per run")
    parser.add_argument(
        "--cases", default="", help="names, or beginnings of names, with commas between; all if left out"
    )
    parser.add_argument("--json", help="file for the single outcomes")
    parser.add_argument("--judge", nargs="+", metavar="FILE", help="outcomes kept before, instead of measuring")
    arguments = parser.parse_args()
    if arguments.judge:
        print(HEAD)
        rows = [_row(outcomes) for outcomes in _kept(arguments.judge).values()]
        print(*(_line(row) for row in rows), sep="\n")
        return _judge(rows)
    wanted = [name for name in arguments.cases.split(",") if name]
    whole = {c.name for c in CASES}
    cases = [
        c
        for c in CASES
        if not wanted or any(c.name == name or (name not in whole and c.name.startswith(name)) for name in wanted)
    ]
    if not cases:
        parser.error(f"no case is called like {arguments.cases}; there are {', '.join(c.name for c in CASES)}")
    print(f"{len(cases)} cases, {arguments.repeats} repeats, {arguments.budget:g} s each; shares in per cent of a step")
    print(HEAD)
    begin = time.monotonic()
    rows = []
    for case in cases:
        outcomes = []
        for _ in range(arguments.repeats):
            outcomes.append(_plain(measure_case(case, time_budget_s=arguments.budget)))
            gc.collect()
        rows.append(_row(outcomes))
        print(_line(rows[-1]), flush=True)
        if arguments.json:
            with open(arguments.json, "a") as file:
                file.writelines(json.dumps(outcome) + "\n" for outcome in outcomes)
    print(f"{time.monotonic() - begin:.0f} s")
    return _judge(rows)


def _kept(names: Sequence[str]) -> dict[str, list[Plain]]:
    """Outcomes by case, from files that ``--json`` wrote."""
    outcomes: dict[str, list[Plain]] = {}
    for name in names:
        for line in Path(name).read_text().splitlines():
            outcome = json.loads(line)
            outcomes.setdefault(outcome["case"], []).append(outcome)
    return outcomes


def _row(outcomes: Sequence[Plain]) -> Plain:
    known = [o for o in outcomes if o["truth"] is not None]
    errors = [o["estimate"][0] - o["truth"] for o in known]
    verdicts = Counter(o["verdict"] for o in outcomes)
    expected = Counter(o["expected"] for o in outcomes).most_common(1)[0][0]
    sure = {bound: count for bound, count in verdicts.items() if bound != "uncertain"}
    return {
        "name": outcomes[0]["case"],
        "truth": statistics.fmean(o["truth"] for o in known) if known else None,
        "truth_half_width": statistics.fmean(o["truth_half_width"] for o in known) if known else None,
        "estimate": statistics.fmean(o["estimate"][0] for o in outcomes),
        "error": statistics.fmean(errors) if known else None,
        "worst": max(errors, key=abs) if known else None,
        "half_width": statistics.fmean((o["estimate"][2] - o["estimate"][1]) / 2 for o in outcomes),
        "held": statistics.fmean(o["held"] for o in known) if known else None,
        "agree": statistics.fmean(o["agrees"] for o in known) if known else None,
        "rounds": statistics.fmean(o["rounds"] for o in outcomes),
        "verdicts": verdicts,
        "wrong": sum(o["verdict"] not in ("uncertain", expected) for o in outcomes) / len(outcomes),
        "expected": expected,
        "unsteady": 1 - (max(sure.values(), default=0) + verdicts["uncertain"]) / len(outcomes),
        "beyond_bound": sum(o["beyond_bound"] for o in outcomes),
    }


def _line(row: Plain) -> str:
    def percent(name: str, width: int, sign: str = "") -> str:
        value = row[name]
        return f"{'-':>{width}}" if value is None else f"{value * 100:>{sign}{width}.1f}"

    verdicts = ", ".join(f"{count} {bound}" for bound, count in row["verdicts"].most_common())
    held, agree = (f"{'-':>6} " if row[name] is None else f"{row[name] * 100:>6.0f}%" for name in ("held", "agree"))
    notes = f"  WRONG {row['wrong']:.0%}, is {row['expected']}" if row["wrong"] else ""
    notes += f"  BEYOND BOUND {row['beyond_bound']}x" if row["beyond_bound"] else ""
    return (
        f"{row['name']:<26}{percent('truth', 7)}{percent('truth_half_width', 6)}{percent('estimate', 7)}"
        f"{percent('error', 7, '+')}{percent('worst', 7, '+')}{percent('half_width', 6)}{held}{agree}"
        f"{row['rounds']:>7.1f}  {verdicts}{notes}"
    )


def _plain(outcome: Outcome) -> Plain:
    assert outcome.run.floor.step_s is not None
    assert outcome.candidate.step_s is not None
    assert outcome.candidate.contention_fraction is not None
    return {
        "case": outcome.case.name,
        "truth": outcome.truth,
        "truth_half_width": outcome.truth_half_width,
        "held": outcome.holds_truth,
        "agrees": outcome.agrees,
        "expected": outcome.case.expected(outcome.truth or 0.0),
        "beyond_bound": outcome.beyond_bound,
        "estimate": [outcome.estimate.value, outcome.estimate.low, outcome.estimate.high],
        "contention": [
            outcome.candidate.contention_fraction.value,
            outcome.candidate.contention_fraction.low,
            outcome.candidate.contention_fraction.high,
        ],
        "verdict": outcome.bound,
        "step_s": outcome.candidate.step_s.value,
        "floor_s": outcome.run.floor.step_s.value,
        "fetch_floor_s": outcome.run.floor.fetch_s,
        "timing": [outcome.timing.step_s, outcome.timing.fetch_s, outcome.timing.overhead_s],
        "calibrations": [[one.step_s, one.fetch_s, one.alone_s] for one in outcome.calibrations],
        "rounds": outcome.rounds,
        "blocks": [
            {
                "kind": b.kind,
                "round": b.round,
                "warmup_steps": b.warmup_steps,
                "step_us": [round(x * 1e6) for x in b.step_s],
                "fetch_us": [round(x * 1e6) for x in b.fetch_s],
            }
            for b in (*outcome.run.floor.blocks, *outcome.candidate.blocks)
        ],
    }


def _judge(rows: Sequence[Plain]) -> int:
    known = [row for row in rows if row["truth"] is not None]
    errors = [abs(row["error"]) for row in known]
    median, worst = (statistics.median(errors), max(errors)) if errors else (0.0, 0.0)
    near = sum(1 for row in known if min(abs(row["truth"] - 0.05), abs(row["truth"] - 0.2)) <= 0.03)
    goals = [
        (f"median error {median * 100:.2f} points", median <= MEDIAN_ERROR),
        (f"worst error {worst * 100:.2f} points", worst <= WORST_ERROR),
        _count("intervals agree with the truth", known, lambda row: row["agree"] >= COVERAGE),
        _count("verdicts steady or uncertain", rows, lambda row: row["unsteady"] <= 1 - SAME_VERDICT + 1e-9),
        _count("verdicts right or uncertain", rows, lambda row: row["wrong"] <= 1 - SAME_VERDICT + 1e-9),
        _count("within the bound", rows, lambda row: not row["beyond_bound"]),
    ]
    print(f"{near} cases within 3 points of a cut")
    for text, met in goals:
        print(f"{'met   ' if met else 'MISSED'} {text}")
    return 0 if all(met for _, met in goals) else 1


def _count(text: str, rows: Sequence[Plain], good: Callable[[Plain], bool]) -> tuple[str, bool]:
    bad = [row["name"] for row in rows if not good(row)]
    return f"{text} in {len(rows) - len(bad)} of {len(rows)} cases" + (f", not in {bad}" if bad else ""), not bad


if __name__ == "__main__":
    sys.exit(main())
