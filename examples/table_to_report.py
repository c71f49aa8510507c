"""
From a CSV file to a decision
=============================

Fit, control, evaluation by distance, report, predictions.

You have a table, a column that says which group each row is from, a file of which groups touch, and a list of test
groups. The table has NOAA's temperatures of 48 states if you have fetched them (``toporo data get tpt48``): January to
June in, the mean of July to December out; the eastern states are for training, the western ones for testing. Otherwise
it is generated. The tutorial does the same on the command line, step by step and with pictures.

Run it with: ``python examples/table_to_report.py [FOLDER]``
"""

import csv
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import toporo as tr
from toporo.pages.model import write_model_report
from toporo.paper.base import export


def generated_orchards(folder: Path) -> tuple[str, str]:
    """Twelve orchards up a valley, 25 harvests each. Higher up, sun matters more and rain less."""
    names = [f"orchard at {400 + 50 * i} m" for i in range(12)]
    rng = np.random.default_rng(0)
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["orchard", "sun", "rain", "apple", "harvest"])
        for i, name in enumerate(names):
            for _ in range(25):
                sun, rain = rng.normal(6, 1.5), rng.gamma(4, 12)
                apple = rng.choice(["Boskoop", "Gala", "Topaz"])
                harvest = 20 + (1 + 0.3 * i) * sun + (0.3 - 0.02 * i) * rain + 3 * (apple == "Gala") + 3 * rng.normal()
                measured = "" if rng.random() < 0.05 else f"{rain:.1f}"  # the rain gauge fails now and then
                writer.writerow([name, f"{sun:.1f}", measured, apple, f"{harvest:.1f}"])
    (folder / "edges.csv").write_text("\n".join(["from,to", *map(",".join, pairwise(names)), ""]), encoding="utf-8")
    (folder / "new.txt").write_text("\n".join(names[8:]), encoding="utf-8")
    return "orchard", "harvest"


# %%
# The files, real ones if there are any.
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="toporo-"))
folder.mkdir(parents=True, exist_ok=True)
try:
    noaa = export("tpt48")
except tr.TopoRoError:
    group, target, exclude = *generated_orchards(folder), []
    print("generated: harvests of twelve orchards (`toporo data get tpt48` fetches a real table)")
else:
    group, target, exclude = noaa.group, noaa.target, ["year"]
    (folder / "table.csv").write_text(noaa.table, encoding="utf-8")
    (folder / "edges.csv").write_text(noaa.edges, encoding="utf-8")
    (folder / "new.txt").write_text(noaa.test, encoding="utf-8")
    print("real: monthly temperatures of 48 states in °F, NOAA")

# %%
# From here on there are only files, as you would have them: a table, a list of edges, a list of test groups.
table, edges = folder / "table.csv", folder / "edges.csv"
new_groups = (folder / "new.txt").read_text(encoding="utf-8").splitlines()

# %%
# Rows of test groups are never trained on. The control weighs all training groups equally and uses the graph only to
# count hops. A year does not cause weather, so the model does not see it. Without a method, several models would get a
# vote each; both here are linear.
question = {"target": target, "group": group, "exclude": exclude, "graph": edges, "test_groups": new_groups}
tro = tr.fit_table(table, method="tro", **question)
control = tr.fit_table(table, method="erm", **question)
saw = " and ".join(tro.estimator.prior_.saw)
print(f"penalty {tro.estimator.penalty_:g}, chosen by holding out training groups; of the test groups it saw {saw}")
print("the five heaviest training groups:")
print(tro.explain()[:5])

# %%
# Evaluated where it matters: on groups never seen, by how far away they are, beside the control.
judged, beside = tro.evaluate(table, unseen=True), control.evaluate(table, unseen=True)
metric, both = judged.metric, (judged, beside)
lines = {f"hops {hop}": [each.by_hop[hop] for each in both] for hop in judged.by_hop}
lines[f"mean over {len(judged.groups)} groups"] = [each.overall for each in both]
lines["worst group"] = [each.worst.metrics for each in both]
print(f"{metric + ' in groups never seen':<27}{'TRO':<23}ERM")
for title, scores in lines.items():
    cells = [f"{s[metric].value:.2f} [{s[metric].low:.2f}, {s[metric].high:.2f}]" for s in scores]
    print(f"  {title:<25}{cells[0]:<23}{cells[1]}")
print(f"  worst under TRO: {judged.worst.group}; under ERM: {beside.worst.group}")

# %%
# Those intervals are wide because groups differ. What decides is the difference within each group.
errors, others = ({score.group: score.metrics[metric].value for score in each.groups} for each in both)
gain = np.array([others[name] - errors[name] for name in errors])
low, high = np.quantile(np.random.default_rng(0).choice(gain, (2000, len(gain))).mean(axis=1), [0.025, 0.975])
print(f"gain of TRO over ERM: {gain.mean():.3f} [{low:.3f}, {high:.3f}]; better in {(gain > 0).sum()} of {len(gain)}")
verdict = "TRO does better" if low > 0 else "the control does better: use it" if high < 0 else "no clear difference"
print(f"verdict: {verdict}{'' if len(gain) >= 10 else f' (in {len(gain)} groups only: few to judge by)'}")

# %%
# What to keep and hand on. The folder holds JSON and numbers; nothing in it runs when it is opened.
tro.save(folder / "model", overwrite=True)
write_model_report(tro, folder / "report.html", evaluation=judged, source="the test groups")
again = tr.load_model(folder / "model")
with table.open(encoding="utf-8", newline="") as stream:
    rows = [row for row in csv.DictReader(stream) if row[group] in new_groups][:3]
unlabelled = {name: [row[name] for row in rows] for name in rows[0] if name != target}  # or a pandas or polars frame
print("predictions for new rows:", [round(float(value), 1) for value in again.predict(unlabelled)])
print(f"files: {folder}")

# %%
# What decides, as a picture: the gain in every group never trained on.
figure, ax = plt.subplots(figsize=(7, 0.3 * len(gain) + 1.6), layout="constrained")
order = sorted(errors, key=lambda name: others[name] - errors[name])
ax.barh(range(len(order)), [others[name] - errors[name] for name in order])
ax.axvline(gain.mean(), color="#b45309", lw=1.5, label="mean, and its interval")
ax.axvspan(low, high, color="#b45309", alpha=0.15)
ax.axvline(0, color="#374151", lw=0.8)
ax.set_yticks(range(len(order)), order)
ax.set(xlabel=f"gain of TRO over ERM in {metric.upper()}")
ax.legend(loc="lower right")
plt.show()
