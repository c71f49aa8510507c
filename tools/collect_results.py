"""Make a results file from the stored runs of one machine, whichever commands they came from.

``python tools/collect_results.py RUNS LIKE OUT [NOTE ...]`` reads the run records in the folder RUNS (``OUT/runs`` of
``toporo reproduce`` on the machine with the GPU), takes hardware, software and the network's settings from LIKE, a
results.json that one of those commands wrote, and writes rows, times and learned priors of all runs to OUT. Settings of
methods are what the runs recorded; the first ones did not, and were made with those of the protocol.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from toporo.paper import BENCHMARKS
from toporo.paper.results import Results, make_rows
from toporo.paper.vision import learned_priors


def main(runs: Path, like: Path, out: Path, notes: list[str]) -> None:
    """Collect the runs."""
    records: list[dict[str, Any]] = []
    for path in sorted(runs.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if "timing" in content:
            records.append(content)
    stored = Results.read(like)
    about, protocol = dict(stored.about), BENCHMARKS[stored.protocol.benchmark].protocol
    seconds = [record["timing"]["seconds"] for record in records]
    speeds = [record["timing"]["images_per_second"] for record in records]
    about |= {
        "runs": len(records),
        "seconds": round(float(np.sum(seconds)), 1),
        "seconds_a_run": round(float(np.median(seconds)), 2),
        "images_per_second": round(float(np.median(speeds)), 1),
        "priors": learned_priors(protocol, records),
        "notes": notes,
    }
    as_now = {m.name: {"objective": m.objective, **m.settings, "prior": m.prior} for m in protocol.get_methods()}
    about["settings"]["methods"] = {r["method"]: r.get("settings", as_now[r["method"]]) for r in records}
    Results(protocol, make_rows(protocol, records), about).write(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
