"""DG-15 and DG-60: the generator follows the published procedure, and the published files are read as they are."""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from toporo.errors import DataError, DatasetNotFoundError, UnknownNameError
from toporo.files import sha256
from toporo.paper import BENCHMARKS, dg, load_dataset
from toporo.paper.fits import LOSSES, build_model
from toporo.paper.loaded import data_folder

SPECS = {"dg15": dg.DG15, "dg60": dg.DG60}


@pytest.fixture(params=SPECS)
def spec(request):
    return SPECS[request.param]


@pytest.fixture(params=[15, 0], ids="seed {}".format)
def drawn(spec, request):
    """A generated benchmark and its angles."""
    benchmark = dg.generate(spec, seed=request.param)
    return benchmark, np.array([benchmark.about["angles"][e] for e in range(spec.groups)])


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
    error = 4 * (distance**2).std() / math.sqrt(len(distance))
    assert (distance**2).mean() == pytest.approx(2 - 1 / (math.sqrt(math.e) - 1), abs=error)


def test_edges_are_drawn_above_the_cut_off_and_connect_everything(spec, drawn):
    benchmark, angles = drawn
    closeness = np.array([math.cos(angles[a] - angles[b]) for a, b in benchmark.graph.edges])
    assert (closeness > spec.cutoff).all()
    assert len(benchmark.graph.components()) == 1
    pairs = np.cos(angles[:, None] - angles)[np.triu_indices(spec.groups, 1)]
    expected, spread = pairs[pairs > spec.cutoff].sum(), np.sqrt((pairs * (1 - pairs))[pairs > spec.cutoff].sum())
    assert abs(len(closeness) - expected) < 4 * spread


def test_training_groups(spec, drawn):
    """The six smallest angles on the half spiral, groups 0 to 5 on the full one; the rest is for testing."""
    benchmark, angles = drawn
    assert set(benchmark.train) == (set(np.argsort(angles)[:6].tolist()) if spec is dg.DG15 else set(range(6)))
    assert set(benchmark.train).isdisjoint(benchmark.test)
    assert {*benchmark.train, *benchmark.test} == set(benchmark.data.groups)


# ---------------------------------------------------------------- the published files


@pytest.mark.parametrize(("name", "rows", "edges"), [("dg15", 1500, 56), ("dg60", 6000, 545)])
def test_published_data(real_data, name, rows, edges):
    """Checked against the plain reader, which is safe here because the checksum says whose file it is."""
    benchmark, spec = load_dataset(name, real_data), SPECS[name]
    assert (benchmark.source, benchmark.train) == ("published", tuple(sorted(spec.train)))
    assert (len(benchmark.data), len(benchmark.graph.edges)) == (rows, edges)
    path = BENCHMARKS[name].find(real_data)
    assert sha256(path) == spec.checksum == benchmark.about["sha256"]
    assert BENCHMARKS[name].state(real_data) == (str(path), "intact")
    content = pickle.loads(path.read_bytes())
    assert_array_equal(benchmark.data.x, content["data"])
    assert_array_equal(benchmark.data.y, content["label"])
    assert_array_equal(benchmark.data.ids.names, content["domain"])
    assert_array_equal(list(benchmark.about["angles"].values()), content["angle"])
    expected = {(i, j) for i, j in zip(*np.nonzero(np.triu(content["A"], 1)), strict=True)}
    assert {tuple(sorted(edge)) for edge in benchmark.graph.edges} == expected


def test_another_file_is_refused_unread(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(dg, "read_arrays", lambda path: pytest.fail("read"))
    (tmp_path / "dg").mkdir()
    (tmp_path / "dg" / spec.file).write_bytes(b"something else")
    with pytest.raises(DataError, match=r"differs from the published file and is not read: its sha256 .* generated\."):
        load_dataset(spec.name, tmp_path)
    monkeypatch.setenv("TOPORO_DATA", str(tmp_path))
    assert load_dataset(spec.name, source="generated").source == "generated"


@pytest.mark.usefixtures("no_data")
def test_without_a_folder_the_data_are_generated(spec, tmp_path, monkeypatch):
    """... but a folder that is named must be there, and one given in the call must have the file."""
    assert not data_folder().exists()
    assert (load_dataset(spec.name).source, load_dataset(spec.name).name) == ("generated", spec.name)
    assert BENCHMARKS[spec.name].state(data_folder()) == (f"dg/{spec.file}", "absent (generated when needed)")
    with pytest.raises(DatasetNotFoundError, match=f"{spec.name}: no dg/{spec.file} in {tmp_path}"):
        load_dataset(spec.name, tmp_path)
    with pytest.raises(DatasetNotFoundError, match=r"no such data folder: .*gone \(from --data / folder=\)"):
        load_dataset(spec.name, tmp_path / "gone")
    monkeypatch.setenv("TOPORO_DATA", str(tmp_path / "gone"))
    with pytest.raises(DatasetNotFoundError, match=r"gone \(from the environment variable TOPORO_DATA\)"):
        load_dataset(spec.name)


def test_unknown_names_list_the_valid_ones():
    with pytest.raises(UnknownNameError, match=r"unknown benchmark 'dg16'.*dg15, dg60"):
        load_dataset("dg16")
    with pytest.raises(UnknownNameError, match=r"unknown source 'web'.*auto, generated"):
        load_dataset("dg15", source="web")


# ---------------------------------------------------------------- the table as the authors ran it


def of_the_paper(kind, loaded):
    return BENCHMARKS[loaded.name].priors[kind](loaded).weights


def test_the_published_prior_of_dg15_is_another_groups_until_it_is_aligned():
    """The code lists 0, 12, 3, 4, 14, 8 and numbers the losses 0, 3, 4, 8, 12, 14."""
    loaded = load_dataset("dg15", source="generated")
    spec = dg.DG15
    own = replace(loaded, train=tuple(sorted(spec.train)), test=tuple(set(range(15)) - set(spec.train)))
    right, wrong = (of_the_paper(f"published-physical{end}", own) for end in ("-aligned", ""))
    places = dict(zip((0, 3, 4, 8, 12, 14), (0, 12, 3, 4, 14, 8), strict=True))
    assert wrong == {group: right[other] for group, other in places.items()}
    counts = own.physical_prior(measure="betweenness").centrality
    rounded = {group: round(count / (14 * 13), 3) for group, count in counts.items()}
    assert right == pytest.approx({group: value / sum(rounded.values()) for group, value in rounded.items()})
    assert of_the_paper("published-data-aligned", own) == {0: 0, 12: 0, 3: 0, 4: 0, 14: 0, 8: 1}
    assert of_the_paper("published-data", own) == {0: 0, 3: 0, 4: 0, 8: 0, 12: 0, 14: 1}


def test_the_published_settings(spec):
    """Of the network, its start, its optimiser, its loss and the weights, as they come out in a run."""
    protocol = BENCHMARKS[spec.name].under("paper").protocol
    loaded = dg.generate(spec)
    model = build_model(protocol, loaded, 0)
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in layers] == [(512, 2), (512, 512), (512, 512), (2, 512)]
    for layer in layers:
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.1)
        assert not layer.bias.any()
    logits = torch.tensor([[50.0, -50.0], [0.0, 0.0]])
    loss = LOSSES[protocol.task](logits, torch.tensor([1, 1]))
    assert loss.tolist() == pytest.approx([-math.log(1e-4), -math.log(0.5 + 1e-4)], rel=1e-5)
    tro = protocol.method("tro-physical").settings
    expected = {"dg15": (100.0, 1.0, 20), "dg60": (0.001, 0.1, 300)}[spec.name]
    assert (tro["penalty"], tro["step"], tro["start"], protocol.rounds) == (*expected[:2], "uniform", expected[2])
    split = BENCHMARKS[spec.name].split(loaded, 0, protocol.validation)
    assert len(split.train) == len(split.validation) == 100 * len(spec.train)


def test_a_table_under_the_papers_protocol_says_so(tmp_path, monkeypatch, toporo):
    """... in its file, so that it is shown as what it is; and its page shows what was learned, not what was not."""
    benchmark = BENCHMARKS["dg15"]
    short = replace(benchmark.others["paper"], rounds=2, hidden=(8,))
    monkeypatch.setattr(benchmark, "others", {"paper": short})
    methods = "erm,tro-physical,tro-data,tro-data-aligned,tro-learned"
    asked = ("reproduce", "dg15", "--source", "generated", "--protocol", "paper", "--seeds", "1", "--jobs", "1")
    done = toporo(*asked, "--methods", methods, "--out", str(tmp_path))
    assert done.code == 0, done.err
    assert "DG-15, as the authors ran it" in done.out
    assert "validation-selected" not in done.out
    assert json.loads((tmp_path / "results.json").read_text())["about"]["protocol"] == "paper"
    shown = toporo("reproduce", "dg15", "--show", str(tmp_path / "results.json"), "--markdown")
    assert "TRO-data, prior given to its group" in shown.out
    page = (tmp_path / "report.html").read_text()
    assert "TRO-data, prior really learned" in page
    assert "given to the groups" not in page.partition("</table>")[0]
    assert "handed to the groups in the wrong order" in page
