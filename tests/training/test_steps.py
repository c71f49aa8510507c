"""Training by steps: what a run sees, that it can be interrupted, and that a GPU does the same as a CPU."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from toporo.data.grouped import GroupedData
from toporo.data.images import ImageStore, TileStore
from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning, UnknownNameError
from toporo.objectives import OBJECTIVES, make_objective
from toporo.topology.prior import Prior
from toporo.training import Resident, Stepper, StepSettings, outputs_at, pick_device, train_steps
from toporo.training.steps import BLOCK, stream_rows, stream_uniforms

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")
DRAWS = 2


class Net(nn.Module):
    """Two layers, with dropout between them: its random numbers are part of what a resumed run must repeat."""

    def __init__(self, seed=0, dropout=0.2):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.dropout = nn.Dropout(dropout)
        self.width = 8

    def features(self, x):
        return self.dropout(torch.relu(self.body(x)))

    def with_features(self, x):
        features = self.features(x)
        return self.head(features), features

    def forward(self, x):
        return self.head(self.features(x))


def loss(outputs, y):
    return F.cross_entropy(outputs, y, reduction="none")


def prepare(x, y, u):
    return x + 0.1 * (u[:, :1] - 0.5), y


def made(n=60, seed=0):
    """Three groups of unequal size, row numbers that are not 0 … n − 1, and their pixels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    x[np.arange(n), y] += 3.0
    names = np.repeat(["a", "b", "c"], [n // 2, n // 3, n - n // 2 - n // 3])
    data = Resident(torch.as_tensor(x), torch.as_tensor(y))
    return data, GroupedData.from_arrays(np.arange(n), y, names.tolist()).take(np.arange(3, n))


def objective_of(name, rows, **extra):
    needed = {"dann": {"width": 8}, "irm": {"warm_up": 5}, "vrex": {"warm_up": 5}}.get(name, {})
    return make_objective(name, rows.groups, Prior.from_weights({"a": 0.5, "b": 0.3, "c": 0.2}), **(needed | extra))


def run(objective="tro", checkpoint=None, device="cpu", stop=None, net=None, about=None, **changes):
    data, rows = made()
    net = net or Net()
    how = StepSettings(
        **{
            "rounds": 24, "per_group": 4, "learning_rate": 0.01, "evaluate_every": 8, "checkpoint_seconds": 0.0,
            "device": device, **changes,
        }
    )  # fmt: skip
    seen = []

    def evaluate(network):
        if stop is not None and len(seen) == stop:
            raise KeyboardInterrupt
        seen.append(1)
        parts = outputs_at(network, place, np.arange(60), how, prepare=lambda x: x, batch=25)
        right = torch.cat([out.argmax(1) for _, out in parts]) == place.y
        return {"validation": float(right.float().mean()), "test": 0.0, "by_group": {}}

    place = Resident(data.x.to(device), data.y.to(device))
    method = objective_of(objective, rows, **(about or {}))
    done = train_steps(
        net, method, place, rows, loss, how, prepare=prepare, draws=DRAWS, evaluate=evaluate,
        checkpoint=checkpoint,
    )  # fmt: skip
    return net, done


def flat(net):
    return torch.cat([value.detach().cpu().flatten() for value in net.state_dict().values()])


def pictured(rows, y):
    return GroupedData.from_arrays(np.asarray(rows), np.asarray(y), ["a", "b"] * (len(rows) // 2))


def test_pictures_of_a_benchmark_are_resident_as_bytes_each_with_its_class():
    """By row number, whatever the order of the rows; what the benchmark leaves out is of no class."""
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 3), dtype=np.uint8)
    store = ImageStore(images, tuple("vwxyz"), ("bar", "post", "sign"), "digest")
    found = Resident.of(store, pictured([3, 0, 4, 1], [2, 0, 1, 1]))
    assert found.x.dtype == torch.uint8
    assert found.x.shape == (5, 4, 4, 3)
    assert (found.x.numpy() == images).all()
    assert found.y.tolist() == [0, 1, -1, 2, 1]
    found.x.zero_()
    assert images.any(), "a copy: the store may be mapped from a file"


def test_what_has_no_pictures_is_not_made_resident_by_guessing():
    tiles = TileStore(
        np.zeros((2, 2, 4, 4), np.float32), np.zeros((2, 4, 4), np.int8), (), np.zeros((2, 2), int), (), ""
    )
    for store, what in (
        (tiles, "there are tiles, which are to be scaled first to train on"),
        (None, "there are no pictures to train on"),
    ):
        with pytest.raises(DataError, match=f"{what}: make Resident"):
            Resident.of(store, pictured([0, 1], [0, 1]))


@settings(max_examples=30, deadline=None)
@given(first=st.integers(0, 40), count=st.integers(1, 40), per_group=st.integers(1, 9))
def test_rows_of_a_step_do_not_depend_on_which_steps_are_asked_for_together(first, count, per_group):
    _, rows = made()
    together = stream_rows(rows, per_group, seed=3, first=0, count=first + count)
    np.testing.assert_array_equal(stream_rows(rows, per_group, seed=3, first=first, count=count), together[first:])


def test_every_row_of_a_group_passes_once_before_any_passes_again():
    _, rows = made()
    stream = stream_rows(rows, 4, seed=0, first=0, count=50)
    for i, name in enumerate(rows.groups):
        own = rows.x[rows.rows(name)]
        passes = stream[:, 4 * i : 4 * i + 4].reshape(-1)
        for start in range(0, len(passes) - len(own), len(own)):
            assert sorted(passes[start : start + len(own)]) == sorted(own)


@pytest.mark.parametrize(("first", "count"), [(0, 7), (BLOCK - 3, 6), (3 * BLOCK, BLOCK), (BLOCK + 1, 3 * BLOCK)])
def test_random_numbers_of_a_step_do_not_depend_on_which_steps_are_asked_for_together(first, count):
    together = stream_uniforms(5, 3, seed=1, first=0, count=first + count)
    assert together.shape == (first + count, 5, 3)
    assert 0 <= together.min() < 0.01
    assert 0.99 < together.max() < 1
    np.testing.assert_array_equal(stream_uniforms(5, 3, seed=1, first=first, count=count), together[first:])
    assert not np.array_equal(stream_uniforms(5, 3, seed=2, first=first, count=count), together[first:])


def test_it_learns_and_says_how_fast():
    _, done = run("erm", rounds=120, evaluate_every=40)
    assert [record.round for record in done.history] == [40, 80, 120]
    assert done.history[-1].loss < 0.5 * done.history[0].loss
    assert done.history[-1].metrics["validation"] > 0.85
    assert done.images_per_second == pytest.approx(12 * done.steps_per_second)
    assert 0 < done.training_seconds < done.seconds


def test_records_come_also_after_a_shorter_last_stretch():
    _, done = run(rounds=20, evaluate_every=8)
    assert [record.round for record in done.history] == [8, 16, 20]


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
@pytest.mark.parametrize("stop", [1, 2])
def test_an_interrupted_run_ends_like_one_that_was_not(tmp_path, objective, stop):
    whole, straight = run(objective)
    with pytest.raises(KeyboardInterrupt):
        run(objective, tmp_path / "c", stop=stop)
    net, resumed = run(objective, tmp_path / "c", net=Net(seed=9))
    assert torch.equal(flat(net), flat(whole))
    assert [r.to_dict() for r in resumed.history] == [r.to_dict() for r in straight.history]


@pytest.mark.parametrize("warm_up", [1, 11, 16])
@pytest.mark.parametrize("resumed", [False, True])
def test_the_optimiser_is_reset_after_the_warm_up(tmp_path, warm_up, resumed):
    """Between two evaluations (every 8 steps) and at one; also where the run is taken up again there."""
    data, rows = made()
    by_hand, objective = Net(dropout=0.0), objective_of("vrex", rows, warm_up=warm_up)
    wanted = {"seed": 0, "first": 0, "count": 24}
    uniforms = torch.as_tensor(stream_uniforms(12, DRAWS, **wanted))
    codes = torch.as_tensor(objective.groups.encode(rows.groups.names)).repeat_interleave(4)
    for step, batch in enumerate(torch.as_tensor(stream_rows(rows, 4, **wanted))):
        if step in (0, warm_up):
            optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01, fused=True)
        optimizer.zero_grad()
        x, y = prepare(data.x[batch], data.y[batch], uniforms[step])
        objective(loss(by_hand(x), y), codes).backward()
        optimizer.step()
    how = {"about": {"warm_up": warm_up}, "checkpoint": tmp_path / "c"}
    if resumed:
        with pytest.raises(KeyboardInterrupt):
            run("vrex", net=Net(dropout=0.0), stop=2, **how)
    net, _ = run("vrex", net=Net(dropout=0.0), **how)
    assert torch.equal(flat(net), flat(by_hand))


def test_a_run_that_ends_within_the_warm_up_warns():
    with pytest.warns(TopoRoWarning, match="within the warm-up of VREx: it has 24 steps, the warm-up 500"):
        run("vrex", about={"warm_up": 500})


def test_checkpoints_keep_their_distance(tmp_path):
    run(checkpoint=tmp_path / "c", checkpoint_seconds=1e6)
    assert not (tmp_path / "c").exists()


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=tmp_path / "c", stop=1)
    with pytest.raises(DataError, match=r"another run: it differs in learning_rate"):
        run(checkpoint=tmp_path / "c", learning_rate=0.1)
    with pytest.raises(DataError, match=r"another run: it differs in objective"):
        run("erm", checkpoint=tmp_path / "c")


def test_state_stays_in_its_place():
    """A captured graph reads and writes fixed memory; an objective that puts new tensors there must not move it."""
    data, rows = made()
    objective = objective_of("tro", rows)
    how = StepSettings(per_group=4)
    stepper = Stepper(Net(), objective, data, rows, loss, how, prepare=prepare, draws=DRAWS)
    place = objective.q.data_ptr()
    before = objective.q.clone()
    wanted = {"seed": 0, "first": 0, "count": 5}
    stepper.load(stream_rows(rows, 4, **wanted), stream_uniforms(12, DRAWS, **wanted))
    stepper.run(5)
    assert objective.q.data_ptr() == place
    assert not torch.equal(objective.q, before)


def test_a_step_sees_the_group_of_each_row():
    """Codes of the objective, not of the data: groups in another order must not be mixed up."""
    data, rows = made()
    objective = make_objective("iw-erm", rows.groups, Prior.from_weights({"c": 1.0, "a": 0.0, "b": 0.0}))
    net = Net(dropout=0.0)
    how = StepSettings(per_group=4, learning_rate=1e-9)
    stepper = Stepper(net, objective, data, rows, loss, how, prepare=lambda x, y, u: (x, y), draws=DRAWS)
    wanted = {"seed": 0, "first": 0, "count": 1}
    batch = stream_rows(rows, 4, **wanted)
    stepper.load(batch, stream_uniforms(12, DRAWS, **wanted))
    stepper.run(1)
    own = torch.as_tensor(batch[0, 8:])
    expected = torch.autograd.grad(loss(net(data.x[own]), data.y[own]).mean(), net.head.weight)[0]
    torch.testing.assert_close(net.head.weight.grad, expected)


def test_bf16_trains_too_and_weights_stay_single():
    net, done = run("erm", rounds=120, evaluate_every=60, precision="bf16")
    assert net.head.weight.dtype == torch.float32
    assert done.history[-1].metrics["validation"] > 0.85


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("rounds", 0, "rounds is 0"),
        ("per_group", 0, "per_group is 0"),
        ("learning_rate", float("nan"), "learning_rate is nan"),
        ("weight_decay", -1.0, r"weight_decay is -1\.0"),
        ("seed", -1, "seed is -1"),
        ("evaluate_every", 0, "evaluate_every is 0"),
        ("checkpoint_seconds", -1.0, "checkpoint_seconds"),
        ("graph", True, "only a GPU captures steps"),
    ],
)
def test_settings_out_of_range_are_errors(setting, value, message):
    with pytest.raises(SettingError, match=message):
        StepSettings(**{setting: value})


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UnknownNameError, match="bf16, fp32"):
        StepSettings(precision="fp16")
    with pytest.raises(UnknownNameError, match="auto, cpu, cuda"):
        pick_device("gpu")


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match=r"no GPU: .*Use the device 'cpu'"):
        pick_device("cuda")
    assert pick_device("auto") == pick_device("cpu") == "cpu"


def test_a_loss_that_is_no_number_stops_the_run():
    with pytest.raises(DataError, match=r"the training loss became (nan|inf) before step 8: lower the learning rate"):
        run("erm", learning_rate=1e30)


def test_what_does_not_fit_together_is_an_error():
    data, rows = made()
    with pytest.raises(GroupMismatchError, match="'d'"):
        Stepper(
            Net(), make_objective("erm", Prior.uniform(["a", "b", "d"]).groups), data, rows, loss, StepSettings(),
            prepare=prepare, draws=DRAWS,
        )  # fmt: skip
    stepper = Stepper(
        Net(), objective_of("erm", rows), data, rows, loss, StepSettings(per_group=4), prepare=prepare, draws=DRAWS
    )
    with pytest.raises(DataError, match=r"expected \(steps, 12\) and \(steps, 12, 2\)"):
        stepper.load(np.zeros((3, 11), dtype=np.int64), np.zeros((3, 11, 2), dtype=np.float32))
    wanted = {"seed": 0, "first": 0, "count": 3}
    stepper.load(stream_rows(rows, 4, **wanted), stream_uniforms(12, DRAWS, **wanted))
    stepper.run(2)
    with pytest.raises(SettingError, match="2 steps to run, but 1 are loaded"):
        stepper.run(2)
    with pytest.raises(DataError, match="60 inputs but 59 targets"):
        Resident(data.x, data.y[1:])


@needs_cuda
@pytest.mark.parametrize(
    ("objective", "about"), [*((name, {}) for name in sorted(OBJECTIVES)), ("irm", {"warm_up": 11})]
)
def test_a_captured_step_does_what_single_steps_do(objective, about):
    """Compiled and replayed on a GPU, step by step there, and on a CPU: the same training but for rounding."""
    found = {}
    for name, how in {
        "graph": {"device": "cuda", "graph": True, "compiled": True},
        "steps": {"device": "cuda", "graph": False, "compiled": False},
        "cpu": {},
    }.items():
        net, done = run(objective, net=Net(dropout=0.0), about=about, **how)
        found[name] = flat(net), [record.loss for record in done.history], done.history[-1].weights
    for other in ("steps", "cpu"):
        torch.testing.assert_close(found["graph"][0], found[other][0], rtol=2e-3, atol=2e-3)
        assert found["graph"][1] == pytest.approx(found[other][1], rel=2e-3)
        assert found["graph"][2] == pytest.approx(found[other][2], rel=2e-3)


@needs_cuda
def test_an_interrupted_run_on_a_gpu_goes_on_from_its_checkpoint(tmp_path):
    whole, _ = run(device="cuda")
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=tmp_path / "c", stop=1, device="cuda")
    net, done = run(checkpoint=tmp_path / "c", net=Net(seed=9), device="cuda")
    assert [record.round for record in done.history] == [8, 16, 24]
    torch.testing.assert_close(flat(net), flat(whole), rtol=2e-3, atol=2e-3)
