"""DG-15 and DG-60: the generator follows the published procedure, and the published files are read as they are."""

import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from toporo.bench import BENCHMARKS, dg, load_dataset
from toporo.bench.loaded import data_folder, find_file
from toporo.errors import DataError, DatasetNotFoundError, TopoRoError, UnknownNameError, UnsafeFileError
from toporo.files import sha256

SPECS = {"dg15": dg.DG15, "dg60": dg.DG60}


@pytest.fixture(params=SPECS)
def spec(request):
    return SPECS[request.param]


@pytest.fixture(params=[15, 0, 7], ids="seed {}".format)
def drawn(spec, request):
    """A generated benchmark and its angles."""
    benchmark = dg.generate(spec, seed=request.param)
    return benchmark, np.array([benchmark.about["angles"][e] for e in range(spec.groups)])


def as_published(benchmark):
    """The content of a file in the published layout."""
    k = len(benchmark.graph.names)
    adjacency = np.zeros((k, k))
    for one, other in benchmark.graph.edges:
        adjacency[one, other] = adjacency[other, one] = 1.0
    return {
        "data": benchmark.data.x,
        "label": benchmark.data.y.astype(float),
        "domain": np.array(benchmark.data.ids.names),
        "A": adjacency,
        "angle": np.array(list(benchmark.about["angles"].values())),
    }


@pytest.fixture
def folder(tmp_path):
    """Writes a DG-15 file with some arrays replaced (None: left out); returns its folder."""

    def write(**changes):
        content = as_published(dg.generate(dg.DG15)) | changes
        kept = {key: value for key, value in content.items() if value is not None}
        (tmp_path / dg.DG15.file).write_bytes(pickle.dumps(kept, protocol=4))
        return tmp_path

    return write


# ---------------------------------------------------------------- the generator


def test_fifty_points_a_class_in_every_group(spec, drawn):
    data = drawn[0].data
    assert data.groups.names == tuple(range(spec.groups))
    assert data.x.shape == (100 * spec.groups, 2)
    for name in data.groups:
        assert_array_equal(np.bincount(data.y[data.rows(name)]), [50, 50])


def test_points_lie_within_one_of_their_centre_on_the_spiral(spec, drawn):
    """±r(a)(cos a, sin a) with r = 1 + growth a / π, angles in the arc; and they fill the disc, not its middle."""
    benchmark, angles = drawn
    assert ((angles >= 0) & (angles <= spec.arc)).all()
    angle = angles[np.array(benchmark.data.ids.names)]
    center = (1 + spec.growth * angle / math.pi) * np.stack([np.cos(angle), np.sin(angle)])
    distance = np.linalg.norm(benchmark.data.x - (np.where(benchmark.data.y == 0, 1, -1) * center).T, axis=1)
    assert distance.max() <= 1
    # A planar unit Gaussian cut at radius 1 has E[r²] = 2 - 1 / (√e - 1) = 0.4585…
    n = len(distance)
    assert (distance**2).mean() == pytest.approx(
        2 - 1 / (math.sqrt(math.e) - 1), abs=4 * (distance**2).std() / math.sqrt(n)
    )


def test_edges_are_drawn_above_the_cut_off_and_connect_everything(spec, drawn):
    benchmark, angles = drawn
    closeness = np.array([math.cos(angles[a] - angles[b]) for a, b in benchmark.graph.edges])
    assert (closeness > spec.cutoff).all()
    assert len(benchmark.graph.components()) == 1
    pairs = np.cos(angles[:, None] - angles)[np.triu_indices(spec.groups, 1)]
    expected, spread = pairs[pairs > spec.cutoff].sum(), np.sqrt((pairs * (1 - pairs))[pairs > spec.cutoff].sum())
    assert abs(len(closeness) - expected) < 4 * spread


def test_pictures_show_the_groups_along_the_spiral(drawn):
    """In the order of their angles from the inside out, each with a place of its own."""
    benchmark, angles = drawn
    place = np.array([benchmark.graph.positions[e] for e in range(len(angles))])
    assert_array_equal(np.argsort(np.linalg.norm(place, axis=1)), np.argsort(angles))
    apart = np.linalg.norm(place[:, None] - place, axis=-1)[np.triu_indices(len(angles), 1)]
    assert apart.min() > 0.1


def test_training_groups(spec, drawn):
    """The six smallest angles on the half spiral, groups 0 to 5 on the full one; the rest is for testing."""
    benchmark, angles = drawn
    assert set(benchmark.train) == (set(np.argsort(angles)[:6].tolist()) if spec is dg.DG15 else set(range(6)))
    assert set(benchmark.train).isdisjoint(benchmark.test)
    assert {*benchmark.train, *benchmark.test} == set(benchmark.data.groups)


def test_generation_is_decided_by_the_seed(spec):
    first, again, other = (dg.generate(spec, seed=seed) for seed in (5, 5, 6))
    assert first.data.x.tobytes() == again.data.x.tobytes() != other.data.x.tobytes()
    assert first.graph == again.graph != other.graph
    assert (first.source, first.about["generator_seed"]) == ("generated", 5)


@pytest.mark.parametrize("seed", [1, 3, 21])
def test_every_seed_gives_a_data_set(monkeypatch, seed):
    """Angles with a gap wider than the cut-off can be drawn for ever without connecting: these seeds have one."""
    plain, tries = dg.GroupGraph.from_adjacency, []

    def counted(*args):
        tries.append(1)
        assert len(tries) < 1000, "the generator goes round in circles"
        return plain(*args)

    monkeypatch.setattr(dg.GroupGraph, "from_adjacency", counted)
    assert len(dg.generate(dg.DG15, seed=seed).graph.components()) == 1


# ---------------------------------------------------------------- the published files


@pytest.mark.parametrize(("name", "rows", "edges"), [("dg15", 1500, 56), ("dg60", 6000, 545)])
def test_published_data(real_data, name, rows, edges):
    """Checked against the plain reader, which is safe here because the checksum says whose file it is."""
    benchmark, spec = load_dataset(name, real_data), SPECS[name]
    assert (benchmark.source, benchmark.train) == ("published", spec.train)
    assert (len(benchmark.data), len(benchmark.graph.edges)) == (rows, edges)
    path = find_file(real_data, spec.file, f"dg/{spec.file}")
    assert sha256(path) == spec.checksum == benchmark.about["sha256"]
    assert BENCHMARKS[name].files(real_data) == [(str(path), "intact")]
    content = pickle.loads(path.read_bytes())
    assert_array_equal(benchmark.data.x, content["data"])
    assert_array_equal(benchmark.data.y, content["label"])
    assert_array_equal(benchmark.data.ids.names, content["domain"])
    assert_array_equal(list(benchmark.about["angles"].values()), content["angle"])
    expected = {(i, j) for i, j in zip(*np.nonzero(np.triu(content["A"], 1)), strict=True)}
    assert {tuple(sorted(edge)) for edge in benchmark.graph.edges} == expected


@pytest.mark.parametrize("name", SPECS)
def test_published_points_lie_on_the_generators_spiral(real_data, name):
    """What the generator claims to repeat: radius growth, arc and truncation, read off the authors' points."""
    benchmark, spec = load_dataset(name, real_data), SPECS[name]
    angles = np.array([benchmark.about["angles"][e] for e in range(spec.groups)])
    assert ((angles >= 0) & (angles <= spec.arc)).all()
    angle = angles[np.array(benchmark.data.ids.names)]
    center = (1 + spec.growth * angle / math.pi) * np.stack([np.cos(angle), np.sin(angle)])
    sign = np.where(benchmark.data.y == 0, 1, -1)
    assert np.linalg.norm(benchmark.data.x - (sign * center).T, axis=1).max() <= 1


def test_published_training_groups_of_dg15_have_the_smallest_angles(real_data):
    angles = load_dataset("dg15", real_data).about["angles"]
    assert set(dg.DG15.train) == set(sorted(angles, key=angles.get)[:6])


# ---------------------------------------------------------------- files in that layout


@pytest.mark.parametrize("below", ["", "dg"])
def test_a_file_of_that_layout_is_read_and_not_called_published(folder, tmp_path, below):
    """In the folder itself or in its ``dg``; another checksum than the authors' is told apart."""
    where = folder()
    (where / "dg").mkdir()
    (where / dg.DG15.file).rename(where / below / dg.DG15.file)
    expected, found = dg.generate(dg.DG15), load_dataset("dg15", tmp_path)
    assert found.source == "file"
    assert_array_equal(found.data.x, expected.data.x)
    assert found.graph == expected.graph
    assert found.data.ids.names == expected.data.ids.names


def test_the_environment_names_the_folder(folder, monkeypatch):
    monkeypatch.setenv("TOPORO_DATA", str(folder()))
    assert load_dataset("dg15").source == "file"
    assert load_dataset("dg60").source == "generated"
    assert load_dataset("dg15", source="generated").source == "generated"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": np.ones((1500, 3))},
            r"is not dg15: expected an array 'data' of shape \(1500, 2\), found shape \(1500, 3\)",
        ),
        ({"label": np.ones(10)}, r"'label' of shape \(1500,\), found shape \(10,\)"),
        ({"A": np.ones((60, 60))}, r"'A' of shape \(15, 15\)"),
        ({"angle": None}, r"'angle' of shape \(15,\), found nothing"),
        ({"data": np.full((1500, 2), np.nan)}, "NaN or infinite values in 1500 of 1500 rows"),
        ({"domain": np.arange(1500) % 14}, r"empty group\(s\), without a single row: 14"),
        ({"domain": np.arange(1500) % 16}, "15"),
        ({"A": -np.ones((15, 15))}, "negative"),
        ({"A": np.triu(np.ones((15, 15)))}, "symmetric"),
    ],
    ids=["columns", "rows", "other spec", "missing", "nan", "empty group", "extra group", "negative", "asymmetric"],
)
def test_a_file_that_does_not_fit_is_refused(folder, changes, message):
    with pytest.raises(TopoRoError, match=message):
        load_dataset("dg15", folder(**changes))


def test_a_file_with_more_than_arrays_is_refused(folder):
    with pytest.raises(UnsafeFileError, match="nothing in the file was executed"):
        load_dataset("dg15", folder(note={"by": "someone"}))


# ---------------------------------------------------------------- finding them


@pytest.mark.usefixtures("no_data")
def test_without_a_folder_the_data_are_generated(spec):
    assert data_folder() is None
    benchmark = load_dataset(spec.name)
    assert (benchmark.source, benchmark.name) == ("generated", spec.name)


def test_insisting_on_published_data_reads_no_other(folder, monkeypatch):
    where = folder()
    monkeypatch.setattr(dg, "read_arrays", lambda path: pytest.fail("read"))
    with pytest.raises(DataError, match=r"is not the published .* was not read: its sha256 is .* --source auto"):
        load_dataset("dg15", where, source="published")


@pytest.mark.usefixtures("no_data")
def test_insisting_on_published_data_without_a_folder_says_what_to_do():
    with pytest.raises(DatasetNotFoundError, match=r"dg15: no toy_d15.*none was given.*TOPORO_DATA.*generated"):
        load_dataset("dg15", source="published")


def test_a_missing_folder_is_named(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    with pytest.raises(DatasetNotFoundError, match=r"no such data folder: .*gone \(from --data / folder=\)"):
        load_dataset("dg15", gone)
    monkeypatch.setenv("TOPORO_DATA", str(gone))
    with pytest.raises(DatasetNotFoundError, match=r"gone \(from the environment variable TOPORO_DATA\)"):
        load_dataset("dg15")


def test_a_folder_given_in_the_call_must_have_the_file(tmp_path):
    """... where the environment's need not: a wrong path must not end in other data than meant."""
    with pytest.raises(DatasetNotFoundError, match=f"dg15: no {dg.DG15.file} or dg/{dg.DG15.file} in {tmp_path}"):
        load_dataset("dg15", tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_dataset("dg16"), r"unknown benchmark 'dg16'.*dg15, dg60"),
        (lambda: load_dataset("dg15", source="web"), r"unknown source 'web'.*auto, generated, published"),
    ],
)
def test_unknown_names_list_the_valid_ones(call, message):
    with pytest.raises(UnknownNameError, match=message):
        call()


def test_errors_of_data_are_data_errors(folder):
    """A wrong file is wrong data, not a missing file."""
    with pytest.raises(DataError):
        load_dataset("dg15", folder(A=None))
