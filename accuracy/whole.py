"""Score `loadpath read` on whole log files with labels.

    python accuracy/whole.py --folder ../shared/corpus/whole [--only vllm] [--verbose]

The folder holds log files and `labels.jsonl` (one object a line: `file`, `state_ok`, `boundary_ok`, `failed_step`,
`figures`, `must_not_say`; see its README). A log is right when the state and the boundary of the root cause are among
those accepted and, on a healthy log, no finding is an error. A figure counts as found when the report's facts,
memory or steps hold it in the same unit. The last line is the headline; exit status 0, or 2 where the folder is absent.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from loadpath.core.report import Report
from loadpath.reading.service import read_bytes

# Suffix of a labelled figure → factor to the report's unit, and which of the report's names hold that unit.
UNITS = {
    "_gib": (1 << 30, r"bytes"),
    "_mib": (1 << 20, r"bytes"),
    "_bytes": (1, r"bytes"),
    "_s": (1, r"second|left|elapsed"),
}
# Figures that the report gives under another name, or only in words.
SPECIAL = {"starts": lambda report: max((c.run for c in report.captures), default=0)}
TOLERANCE = 0.004


def numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a JSON value with the name of the field that holds it."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield name, float(value)
    elif isinstance(value, dict):
        label = str(value.get("name") or name)
        for key, inner in value.items():
            yield from numbers(inner, f"{label}.{key}" if key in ("value", "bytes") else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner, name)
    elif isinstance(value, str) and re.fullmatch(r"-?\d[\d,]*(\.\d+)?", value):
        yield name, float(value.replace(",", ""))


def close(a: float, b: float) -> bool:
    return abs(a - b) <= max(TOLERANCE * abs(b), 1e-9)


def missing(label: dict[str, Any], report: Report) -> list[str]:
    """Labelled figures that the report does not hold, as `name=value`."""
    shown = json.loads(msgspec.json.encode(report))
    held = list(numbers([shown["facts"], shown["memory"], shown["steps"]]))
    gone = []
    for name, value in label.get("figures", {}).items():
        if isinstance(value, bool):
            continue
        factor, unit = next((UNITS[s] for s in UNITS if name.endswith(s)), (1, r""))
        for one in value if isinstance(value, list) else [value]:
            if name in SPECIAL:
                found = SPECIAL[name](report) == one
            elif isinstance(one, str):
                found = one in json.dumps(shown)
            else:
                found = any(close(v, one * factor) for field, v in held if re.search(unit, field))
            if not found:
                gone.append(f"{name}={one}")
    return gone


def spoken(report: Report) -> str:
    """What the report states: the sentence, and titles and causes of everything above a note."""
    parts = [report.verdict.sentence]
    for finding in report.findings:
        if finding.severity != "info":
            parts += [finding.title, finding.cause]
    return " ".join(parts).lower()


def score(label: dict[str, Any], report: Report) -> dict[str, Any]:
    """One log's result: `state`, `boundary`, `clean` and `step` (booleans), the figures missed, what was said."""
    root = report.root
    boundary = root.boundary if root else "none"
    errors = [f.id for f in report.findings if f.severity == "error"]
    healthy = label["state_ok"][0] in ("healthy", "starting") and not label.get("root_cause")
    step = label.get("failed_step")
    failed = [s.step for s in report.steps if s.state in ("failed", "stalled")]
    ended_in = [*failed, *(s.step for s in report.steps if s.state == "running" and s.step != "shutdown")]
    steps = {s.step for s in report.steps if s.state != "unseen"}
    said = spoken(report)
    return {
        "file": label["file"],
        "state": report.verdict.state in label["state_ok"],
        "boundary": boundary in label["boundary_ok"],
        "clean": not (healthy and errors),
        "step": (step is None and not (healthy and failed)) or bool(root and root.step == step) or step in ended_in,
        "reached": sorted(set(label.get("steps_reached", ())) - steps),
        "missing": missing(label, report),
        "figures": sum(len(v) if isinstance(v, list) else 1 for v in label.get("figures", {}).values()),
        "wrong": [w for w in label.get("must_not_say", ()) if w.lower() in said],
        "said": f"{report.verdict.state}/{boundary}/{root.id if root else '-'}: {report.verdict.sentence}",
        "errors": errors,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--only", default="", help="only files whose name contains this")
    options.add_argument("--verbose", action="store_true")
    chosen = options.parse_args()
    labels = chosen.folder / "labels.jsonl"
    if not labels.exists():
        print(f"{labels} is not here: nothing to score", file=sys.stderr)
        return 2
    results = []
    for line in labels.read_text("utf-8").splitlines():
        label = json.loads(line)
        if chosen.only not in label["file"]:
            continue
        begun = time.perf_counter()
        try:
            report = read_bytes([(label["file"], (chosen.folder / label["file"]).read_bytes())])
            result = score(label, report)
        except Exception as error:
            result = {"file": label["file"], "state": False, "boundary": False, "clean": False, "step": False,
                      "reached": [], "missing": [], "figures": 0, "wrong": [], "errors": [],
                      "said": f"CRASH {type(error).__name__}: {error}"}  # fmt: skip
        result["seconds"] = time.perf_counter() - begun
        results.append(result)
        show(result, chosen.verbose)
    headline(results)
    return 0


def show(result: dict[str, Any], verbose: bool) -> None:
    flags = " ".join(name if result[name] else name.upper() + "!" for name in ("state", "boundary", "clean", "step"))
    found = result["figures"] - len(result["missing"])
    figures = f"figures {found}/{result['figures']}"
    print(f"{result['file']:<46} {flags}  {figures}  {result['seconds']:.2f} s")
    if verbose:
        print(f"    {result['said'][:230]}")
        for name in ("missing", "reached", "wrong", "errors"):
            if result[name]:
                print(f"    {name}: {result[name]}")


def headline(results: list[dict[str, Any]]) -> None:
    total = len(results) or 1
    right = sum(r["state"] and r["boundary"] and r["clean"] for r in results)
    figures = sum(r["figures"] for r in results) or 1
    found = figures - sum(len(r["missing"]) for r in results)
    print(
        f"right {100 * right / total:.1f}% ({right}/{len(results)}) · "
        f"state {100 * sum(r['state'] for r in results) / total:.1f}% · "
        f"boundary {100 * sum(r['boundary'] for r in results) / total:.1f}% · "
        f"step {100 * sum(r['step'] for r in results) / total:.1f}% · "
        f"figures {100 * found / figures:.1f}% ({found}/{figures}) · "
        f"errors on healthy {sum(not r['clean'] for r in results)} · wrong {sum(bool(r['wrong']) for r in results)}"
    )


if __name__ == "__main__":
    sys.exit(main())
