"""How right the input fraction, its interval and the verdict are, on pipelines with known answers.

    python -m tests.bench.bench_ground_truth [--repeats 20] [--budget 15] [--cases NAME,...] [--json FILE]

Each repeat is a whole run of one candidate as ``tfpipe profile`` does it; ``--budget`` is its time budget in seconds
(below 13 the blocks get shorter in proportion). Limits: error at most 1 point at the median over cases and 3 at worst
(a case's error is that of its mean estimate); over 20 repeats an interval holds the truth 18 times and the same, right
verdict comes out 19 times, "uncertain" aside; no candidate is faster than the bound printed for it. Ends with 1 if one
is missed.
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
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tests.bench.ground_truth import CASES, Outcome, measure_case

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
    arguments = parser.parse_args()
    wanted = [name for name in arguments.cases.split(",") if name]
    cases = [c for c in CASES if not wanted or any(c.name.startswith(name) for name in wanted)]
    if not cases:
        parser.error(f"no case is called like {arguments.cases}; there are {', '.join(c.name for c in CASES)}")
    print(f"{len(cases)} cases, {arguments.repeats} repeats, {arguments.budget:g} s each; shares in per cent of a step")
    print(f"{'case':<26}{'truth':>7}{'mean':>7}{'error':>7}{'worst':>7}{'+-':>6}{'held':>7}{'rounds':>7}  verdicts")
    begin = time.monotonic()
    rows = []
    for case in cases:
        outcomes = []
        for _ in range(arguments.repeats):
            outcomes.append(measure_case(case, time_budget_s=arguments.budget))
            gc.collect()
        rows.append(_row(outcomes))
        print(_line(rows[-1]), flush=True)
        if arguments.json:
            with open(arguments.json, "a") as file:
                for outcome in outcomes:
                    file.write(json.dumps(_plain(outcome)) + "\n")
    print(f"{time.monotonic() - begin:.0f} s")
    return _judge(rows)


def _row(outcomes: Sequence[Outcome]) -> dict[str, object]:
    known = [o for o in outcomes if o.truth is not None]
    verdicts = Counter(o.bound for o in outcomes)
    truth = statistics.fmean(o.truth for o in known) if known else None
    expected = Counter(o.case.expected(o.truth or 0.0) for o in outcomes).most_common(1)[0][0]
    sure = {bound: count for bound, count in verdicts.items() if bound != "uncertain"}
    return {
        "name": outcomes[0].case.name,
        "truth": truth,
        "estimate": statistics.fmean(o.estimate.value for o in outcomes),
        "error": statistics.fmean(o.error for o in known) if known else None,
        "worst": max((o.error for o in known), key=abs) if known else None,
        "half_width": statistics.fmean((o.estimate.high - o.estimate.low) / 2 for o in outcomes),
        "held": sum(o.holds_truth for o in known) / len(known) if known else None,
        "rounds": statistics.fmean(o.rounds for o in outcomes),
        "verdicts": verdicts,
        "expected": expected,
        "wrong": sum(count for bound, count in sure.items() if bound != expected) / len(outcomes),
        "unsteady": 1 - (max(sure.values(), default=0) + verdicts["uncertain"]) / len(outcomes),
        "beyond_bound": sum(o.beyond_bound for o in outcomes),
    }


def _line(row: dict[str, object]) -> str:
    def percent(name: str, width: int, sign: str = "") -> str:
        value = row[name]
        return f"{'-':>{width}}" if value is None else f"{value * 100:>{sign}{width}.1f}"  # type: ignore[operator]

    verdicts = ", ".join(f"{count} {bound}" for bound, count in row["verdicts"].most_common())  # type: ignore[attr-defined]
    held = f"{'-':>6} " if row["held"] is None else f"{row['held'] * 100:>6.0f}%"  # type: ignore[operator]
    notes = f"  WRONG, is {row['expected']}" if row["wrong"] else ""
    notes += f"  BEYOND BOUND {row['beyond_bound']}x" if row["beyond_bound"] else ""
    return (
        f"{row['name']:<26}{percent('truth', 7)}{percent('estimate', 7)}{percent('error', 7, '+')}"
        f"{percent('worst', 7, '+')}{percent('half_width', 6)}{held}{row['rounds']:>7.1f}  {verdicts}{notes}"
    )


def _plain(outcome: Outcome) -> dict[str, object]:
    assert outcome.run.floor.step_s is not None
    assert outcome.candidate.step_s is not None
    assert outcome.candidate.contention_fraction is not None
    return {
        "case": outcome.case.name,
        "truth": outcome.truth,
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


def _judge(rows: Sequence[dict[str, object]]) -> int:
    known = [row for row in rows if row["truth"] is not None]
    errors = [abs(row["error"]) for row in known]  # type: ignore[arg-type]
    median, worst = (statistics.median(errors), max(errors)) if errors else (0.0, 0.0)
    near = sum(1 for row in known if min(abs(row["truth"] - 0.05), abs(row["truth"] - 0.2)) <= 0.03)  # type: ignore[operator]
    goals = [
        (f"median error {median * 100:.2f} points", median <= MEDIAN_ERROR),
        (f"worst error {worst * 100:.2f} points", worst <= WORST_ERROR),
        _count("intervals hold the truth", known, lambda row: row["held"] >= COVERAGE),
        _count("verdicts steady or uncertain", rows, lambda row: row["unsteady"] <= 1 - SAME_VERDICT + 1e-9),
        _count("verdicts right or uncertain", rows, lambda row: row["wrong"] <= 1 - SAME_VERDICT + 1e-9),
        _count("within the bound", rows, lambda row: not row["beyond_bound"]),
    ]
    print(f"{near} cases within 3 points of a cut")
    for text, met in goals:
        print(f"{'met   ' if met else 'MISSED'} {text}")
    return 0 if all(met for _, met in goals) else 1


def _count(text: str, rows: Sequence[dict[str, object]], good: object) -> tuple[str, bool]:
    bad = [row["name"] for row in rows if not good(row)]  # type: ignore[operator]
    return f"{text} in {len(rows) - len(bad)} of {len(rows)} cases" + (f", not in {bad}" if bad else ""), not bad


if __name__ == "__main__":
    sys.exit(main())
