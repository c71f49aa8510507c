"""
scikit-learn: pipelines, search, folds
======================================

A pipeline, groups routed to where they are needed, folds that resemble the test groups. Passengers at twelve tram
stops: eight have been counted; four more, further out, open next year. The further out, the more rain matters.

The table is a pandas frame. toporo itself does not need pandas: polars frames and arrays work too.

Run it with: ``python examples/scikit_learn.py``
"""

import tempfile
from itertools import pairwise
from pathlib import Path

import joblib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

import toporo as tr

# With this switch scikit-learn passes groups to what asks for them, such as toporo's estimators and splitters.
sklearn.set_config(enable_metadata_routing=True)

STOPS = [
    "Castle",
    "Market",
    "Bridge",
    "Station",
    "Park",
    "School",
    "Mill",
    "Stadium",
    "Lake",
    "Forest",
    "Farm",
    "Airport",
]
counted, planned = STOPS[:8], STOPS[8:]
line = tr.GroupGraph.from_edges(pairwise(STOPS))

rng = np.random.default_rng(0)
place = np.repeat(np.arange(12), 60)
table = pd.DataFrame(
    {
        "stop": np.repeat(STOPS, 60),
        "rain": rng.gamma(1.5, 2.0, 720).round(1),
        "temperature": rng.normal(12, 7, 720).round(1),
        "day": rng.choice(["weekday", "Saturday", "Sunday"], 720, p=[5 / 7, 1 / 7, 1 / 7]),
    }
)
table["passengers"] = (
    400
    + 2 * table.temperature
    - (2 + 1.5 * place) * table.rain
    - 120 * (table.day == "Sunday")
    + rng.normal(0, 25, 720)
).round()
table.loc[rng.random(720) < 0.05, "temperature"] = np.nan  # the thermometer fails now and then

seen, later = table[table.stop.isin(counted)], table[table.stop.isin(planned)]
inputs = ["rain", "temperature", "day"]
prepare = make_column_transformer(
    (OneHotEncoder(drop="first"), ["day"]), (SimpleImputer(), ["rain", "temperature"]), verbose_feature_names_out=False
)
pipeline = Pipeline([("prepare", prepare), ("model", tr.TRORegressor(graph=line, test_groups=planned))])

# %%
# Folds hold out stops that are as far from the others as the planned stops are from the counted ones.
folds = tr.GraphHopSplit(line, planned, n_splits=4)
for fold in folds.folds(counted):
    print(f"held out {', '.join(fold.held_out)}; hops to the rest {sorted(fold.hops.values())}")


def cross_validated(model: Pipeline) -> list[float]:
    """Errors in the held-out stops, fold by fold."""
    scores = cross_validate(
        model,
        seen[inputs],
        seen.passengers,
        cv=folds,
        scoring="neg_root_mean_squared_error",
        params={"groups": seen.stop},
    )
    return (-scores["test_score"]).round(1).tolist()


# %%
# The search judges each penalty on held-out stops and never sees a planned one. But its prior looks towards the planned
# stops in every fold, even in those that hold out the other end of the line.
search = GridSearchCV(
    pipeline,
    {"model__penalty": [np.inf, 10.0, 1.0, 0.1, 0.0], "model__ridge": [1e-3, 1e-1]},
    cv=folds,
    scoring="neg_root_mean_squared_error",
)
search.fit(seen[inputs], seen.passengers, groups=seen.stop)
print("best:", {name.removeprefix("model__"): value for name, value in search.best_params_.items()})

# %%
# ``penalty="auto"`` does the same by itself, and in each fold the prior looks towards the stops held out there.
auto = clone(pipeline).set_params(model__penalty="auto").fit(seen[inputs], seen.passengers, groups=seen.stop)
print(f"auto: penalty {auto['model'].penalty_:g}, from {len(auto['model'].choice_.held_out)} folds")

# %%
# The control: the same rows and columns in an ordinary ridge regression, which knows no groups.
control = Pipeline([("prepare", clone(prepare)), ("model", Ridge())])
print("error by fold, control:", cross_validated(control))
print("error by fold, search: ", cross_validated(search.best_estimator_))

for title, model in {"control": control.fit(seen[inputs], seen.passengers), "search": search, "auto": auto}.items():
    error = root_mean_squared_error(later.passengers, model.predict(later[inputs]))
    print(f"{title}: {error:.1f} passengers off at the planned stops")

print("how much each stop counts in the last one:")
print(auto["model"].explain().to_pandas().round(3).to_string(index=False))

# %%
# joblib keeps the whole pipeline. Open only files you trust: unlike toporo's model folders they can run code.
with tempfile.TemporaryDirectory() as folder:
    joblib.dump(auto, Path(folder) / "trams.joblib")
    again = joblib.load(Path(folder) / "trams.joblib")
same = np.array_equal(again.predict(later[inputs]), auto.predict(later[inputs]))
print("read back, it predicts", "the same" if same else "something else")

# %%
# The error stop by stop.
figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
for title, model in {"control": control, "search": search, "auto": auto}.items():
    squares = (model.predict(table[inputs]) - table.passengers) ** 2
    ax.plot(range(12), np.sqrt(squares.groupby(table.stop).mean()[STOPS]), "o-", label=title)
ax.axvspan(7.5, 11.5, color="#e5e7eb", zorder=0)
ax.text(9.5, 0.03, "planned stops", ha="center", transform=ax.get_xaxis_transform())
ax.set_xticks(range(12), STOPS, rotation=35, ha="right")
ax.set(ylabel="passengers off (RMSE)", ylim=(0, None))
ax.legend()
plt.show()
