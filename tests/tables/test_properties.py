"""Laws that hold for any table: nothing crashes, and results agree by name."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.tables.strategies import Case, cases
from toporo.errors import DataError, SettingError, TopoRoError
from toporo.tables import TableModel, fit_table, load_model

pytestmark = pytest.mark.filterwarnings("ignore:.* are in effect")  # short tables
quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
few = settings(quick, max_examples=10)
simple = cases(simple=True)


def outputs(model: TableModel, source: Any, **reading: Any) -> np.ndarray:
    """What a model says of rows: numbers, or the probabilities of the classes."""
    return model.predict(source, **reading) if model.task == "regression" else model.predict_proba(source, **reading)


def close(a: Any, b: Any, *, scale: float = 1.0) -> bool:
    """To what the solver leaves open."""
    return bool(np.allclose(a, b, rtol=1e-3, atol=2e-3 * scale))


def same_groups(one: TableModel, other: TableModel, new: Callable[[str], str] = str) -> None:
    first, second = ({row.group: row for row in model.explain()} for model in (one, other))
    assert {new(name) for name in first} == set(second)
    for name, row in first.items():
        twin = second[new(name)]
        assert (twin.size, twin.hops) == (row.size, row.hops)
        assert close(twin.prior, row.prior)
        assert close(twin.weight, row.weight)
        assert close(twin.loss, row.loss)


# ---------------------------------------------------------------- whatever the table


@settings(quick, max_examples=60)
@given(cases(), st.sampled_from(["tro", "tro", "group-dro", "erm"]), st.booleans())
def test_a_fit_succeeds_or_says_what_is_wrong(case: Case, method: str, drop_rows: bool) -> None:
    asked = {"method": method, "drop_rows": drop_rows}
    if method != "tro":
        asked["penalty"] = "auto"
    try:
        model = case.fit(**asked)
    except TopoRoError:
        return
    found = outputs(model, case.columns)
    assert len(found) == len(case)
    assert np.isfinite(found).all()
    table = model.explain()
    assert {row.group for row in table} == case.trained
    assert sum(row.weight for row in table) == pytest.approx(1)
    assert sum(row.prior for row in table) == pytest.approx(1)
    assert {column.name for column in model.columns} == set(case.columns)
    json.dumps(table.to_dict(), allow_nan=False)
    if None in case.columns[case.group]:
        with pytest.raises(DataError, match="no group"):
            model.evaluate(case.columns)
        return
    judged = model.evaluate(case.columns, resamples=20)
    known = {name for name, y in zip(case.columns[case.group], case.columns[case.target], strict=True) if y is not None}
    assert {score.group for score in judged.groups} == known
    json.dumps(judged.to_dict(), allow_nan=False)


@few
@given(cases(simple=True, most_rows=15))
def test_networks_too(case: Case) -> None:
    model = case.fit(model="mlp", epochs=1, hidden=(3,))
    whole = outputs(model, case.columns)
    assert np.isfinite(whole).all()
    assert np.allclose(outputs(model, case.columns, rows=4), whole, rtol=1e-12, atol=1e-13)
    with saved(model) as again:
        assert np.array_equal(outputs(again, case.columns), whole)


# ---------------------------------------------------------------- what must not matter


@quick
@given(simple, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_does_not_matter(case: Case, random: Any) -> None:
    order = random.sample(range(len(case)), len(case))
    titles = random.sample(list(case.columns), len(case.columns))
    moved = replace(case.take(order), columns={name: case.take(order).columns[name] for name in titles})
    one, other = case.fit(), moved.fit()
    assert close(outputs(one, case.columns)[order], outputs(other, moved.columns))
    assert np.array_equal(outputs(one, case.columns)[order], outputs(one, moved.columns))
    same_groups(one, other)


@quick
@given(simple, st.booleans())
def test_the_names_of_groups_do_not_matter(case: Case, reverse: bool) -> None:
    known = sorted({*case.columns[case.group], *(name for edge in case.edges or () for name in edge)}, reverse=reverse)
    new = {name: f"g{place:03d}" for place, name in enumerate(known)}
    other = case.renamed(new)
    first, second = case.fit(), other.fit()
    assert close(outputs(first, case.columns), outputs(second, other.columns))
    same_groups(first, second, new.__getitem__)
    if not reverse:
        assert np.array_equal(outputs(first, case.columns), outputs(second, other.columns)), "the order is the same"


@quick
@given(simple, st.integers(1, 50))
def test_portions_do_not_matter(case: Case, rows: int) -> None:
    model = case.fit()
    assert np.array_equal(outputs(model, case.columns, rows=rows), outputs(model, case.columns))


@quick
@given(simple)
def test_further_columns_do_not_matter(case: Case) -> None:
    model = case.fit()
    bare = {name: case.columns[name] for name in model.encoder.columns}
    more = case.columns | {"some more": [object()] * len(case)}
    assert np.array_equal(outputs(model, bare), outputs(model, more))


@quick
@given(simple, st.sampled_from(["csv", "parquet", "feather", "pandas", "polars", "stream"]))
def test_where_a_table_comes_from_does_not_matter(case: Case, kind: str) -> None:
    case = as_written(case)
    texts = [name for name in case.features if any(isinstance(cell, str) for cell in case.columns[name])]
    with written(case, kind) as source:
        model, other = case.fit(source(), categorical=texts), case.fit(categorical=texts)
        assert np.array_equal(model.estimator.coef_, other.estimator.coef_)
        assert np.array_equal(outputs(model, source()), outputs(other, case.columns))
        assert model.explain() == other.explain()
        assert model.columns == other.columns


@quick
@given(simple)
def test_saving_does_not_matter(case: Case) -> None:
    model = case.fit()
    with saved(model) as again:
        assert outputs(again, case.columns).tobytes() == outputs(model, case.columns).tobytes()
        assert again.explain() == model.explain()
        assert again.columns == model.columns
        judgements = [one.evaluate(case.columns, resamples=20).to_dict() for one in (model, again)]
        assert judgements[0] == judgements[1]


@quick
@given(simple, st.randoms(use_true_random=False), st.integers(1, 9))
def test_the_order_of_rows_does_not_matter_to_a_judgement(case: Case, random: Any, rows: int) -> None:
    model = case.fit()
    moved = case.take(random.sample(range(len(case)), len(case)))
    one, other = model.evaluate(case.columns, resamples=30), model.evaluate(moved.columns, resamples=30, rows=rows)
    assert one.to_dict() == other.to_dict()


@settings(quick, max_examples=8)
@given(cases(simple=True, most_rows=30), st.data())
def test_a_learned_graph_joins_the_groups(case: Case, data: Any) -> None:
    present = sorted(set(case.columns[case.group]))
    assume(len(present) > 2)
    held = data.draw(st.lists(st.sampled_from(present), max_size=1))
    alone = replace(case, edges=None, test_groups=tuple(held))
    try:
        model = alone.fit(graph="learn")
    except DataError:
        assert held, "what is left may have one class only"
        return
    assert set(model.graph.names) == set(present)
    assert {row.group for row in model.explain()} == set(present) - set(held)
    assert np.isfinite(outputs(model, case.columns)).all()


@quick
@given(simple, st.randoms(use_true_random=False))
def test_a_row_of_weight_two_counts_like_two_rows(case: Case, random: Any) -> None:
    counts = [random.choice([1, 1, 2, 3]) for _ in range(len(case))]
    twice = case.take([row for row, count in enumerate(counts) for _ in range(count)])
    assume("how often" not in case.columns)
    weighted = replace(case, columns=case.columns | {"how often": counts})
    features = [name for name in case.features if None not in case.columns[name]]
    # An automatic prior or ridge goes by how many rows there are, and rows that are there twice are more.
    named = {"features": features, "prior": "uniform", "ridge": 1e-3}
    models = twice.fit(**named), weighted.fit(**named, weight="how often")
    assert close(*(outputs(model, case.columns) for model in models))
    for name, weight in models[0].estimator.group_weights_.items():
        assert close(weight, models[1].estimator.group_weights_[name])


# ---------------------------------------------------------------- units


@quick
@given(simple, st.sampled_from([1e-6, 0.1, 3.0, 1e4]), st.booleans())
def test_the_unit_of_a_feature_does_not_matter(case: Case, unit: float, shift: bool) -> None:
    name = numeric(case)
    other = case.change(name, lambda value: value * unit + (1.0 if shift else 0.0))
    one, two = case.fit(), other.fit()
    assert close(outputs(one, case.columns), outputs(two, other.columns))
    same_groups(one, two)


@quick
@given(simple.filter(lambda case: case.task == "regression"), st.sampled_from([1e-5, 0.1, 7.0, 1e6]))
def test_the_unit_of_the_target_scales_predictions(case: Case, unit: float) -> None:
    other = case.change(case.target, lambda value: value * unit)
    one, two = case.fit(), other.fit()
    assert close(outputs(one, case.columns), outputs(two, other.columns) / unit)
    for row, twin in zip(
        *([{r.group: r for r in m.explain()}[g] for g in one.groups] for m in (one, two)), strict=True
    ):
        assert close(row.weight, twin.weight)
        assert close(row.loss, twin.loss / unit**2)


# ---------------------------------------------------------------- new tables


@quick
@given(simple, st.data())
def test_a_feature_that_is_gone_is_named(case: Case, data: Any) -> None:
    model = case.fit()
    gone = data.draw(st.sampled_from(model.encoder.columns))
    with pytest.raises(DataError) as error:
        model.predict({name: cells for name, cells in case.columns.items() if name != gone})
    assert repr(gone) in str(error.value)


@quick
@given(simple, st.data())
def test_unseen_categories_are_counted_and_the_same_whatever_they_are(case: Case, data: Any) -> None:
    model = case.fit()
    texts = [name for name, kind in model.encoder.kinds.items() if kind == "text"]
    assume(texts)
    name = data.draw(st.sampled_from(texts))
    tables = [case.columns | {name: [word] * len(case)} for word in ("never seen", "nor this")]
    assume(not {"never seen", "nor this"} & set(map(str, case.columns[name])))
    (portion,) = model.portions(tables[0])
    assert portion.encoded.unseen[name] == {"never seen": len(case)}
    assert np.array_equal(outputs(model, tables[0]), outputs(model, tables[1]))


# ---------------------------------------------------------------- what random tables do not hit upon

SMALL: dict[str, list[Any]] = {"g": ["a", "b", "c"] * 4, "x": list(range(12)), "y": [0.5 * i for i in range(12)]}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("pandas", "cannot read a table from Series"),
        ("polars", "cannot read a table from Series"),
        (pa.array([1.0]), "cannot read a table from"),
        ("a\0b.csv", "b.csv cannot be read .Embedded NUL"),
        (SMALL | {"\ud800": [1] * 12}, "cannot be made a table: .*surrogates not allowed"),
        (SMALL | {"g": ["\ud800", "b"] * 6}, "'g' cannot be used: .* surrogates not allowed"),
        (SMALL | {"x": [10**400, 1] * 6}, "int too large to convert"),
    ],
)
def test_things_that_are_no_tables(source: Any, words: str) -> None:
    if source in ("pandas", "polars"):
        source = pytest.importorskip(source).Series([1.0, 2.0])
    with pytest.raises(DataError, match=words):
        fit_table(source, target="y", group="g")


@pytest.mark.parametrize("what", ["features", "exclude", "categorical", "test_groups"])
def test_a_name_is_not_taken_for_its_letters(what: str) -> None:
    with pytest.raises(SettingError, match=rf"{what} is 'x': expected a list of names, such as \['x'\]"):
        fit_table(SMALL, target="y", group="g", **{what: "x"})


def test_text_that_is_none_is_left_out_with_a_reason() -> None:
    model = fit_table(SMALL | {"t": ["\ud800", "b"] * 6}, target="y", group="g", penalty=1.0)
    notes = {column.name: column.note for column in model.columns}
    assert "surrogates not allowed" in notes["t"]


def test_whole_numbers_name_groups_without_decimals() -> None:
    edges = [(0.0, 1.0), (1.0, 2.0)]
    model = fit_table(SMALL | {"g": [0.0, 1.0, 2.0] * 4}, target="y", group="g", penalty=1.0, graph=edges)
    assert model.groups == ("0", "1", "2")


# ---------------------------------------------------------------- helpers


def numeric(case: Case) -> str:
    """A feature of numbers, which a simple case always has."""
    return next(
        name
        for name in case.features
        if all(isinstance(cell, float | int) and not isinstance(cell, bool) for cell in case.columns[name])
        and len(set(case.columns[name])) > 1
    )


def as_written(case: Case) -> Case:
    """The case with booleans as text, and classes that no file takes for numbers: 1e5 would be 100000."""
    columns = {
        name: [str(cell).lower() if isinstance(cell, bool) else cell for cell in cells]
        for name, cells in case.columns.items()
    }
    case = replace(case, columns=columns)
    return case if case.task == "regression" else case.change(case.target, lambda label: f"is {label}")


@contextmanager
def saved(model: TableModel) -> Iterator[TableModel]:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        yield load_model(Path(folder) / "model")


@contextmanager
def written(case: Case, kind: str) -> Iterator[Callable[[], Any]]:
    """The table of a case in another form, to be read as often as asked."""
    table = pa.table(case.columns)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table.{kind}"
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path)
        elif kind == "feather":
            pyarrow.feather.write_feather(table, path)
        elif kind in ("pandas", "polars"):
            frame = table.to_pandas() if kind == "pandas" else pytest.importorskip("polars").from_arrow(table)
            yield lambda: frame
            return
        else:
            text = io.StringIO()
            rows = zip(*case.columns.values(), strict=True)
            csv.writer(text).writerows([list(case.columns), *rows])
            path.write_text(text.getvalue(), encoding="utf-8", newline="")
            if kind == "stream":
                yield lambda: io.BytesIO(text.getvalue().encode())
                return
        yield lambda: path
