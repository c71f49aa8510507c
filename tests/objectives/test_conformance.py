"""What every objective in the registry owes its callers. A new method is picked up from there by itself."""

import copy
import json
import math
import pickle

import pytest
import torch

from tests.objectives.cases import (
    CASES,
    LOSSES,
    NAMES,
    Net,
    OnDeviceOnly,
    alike,
    batch,
    build,
    evaluate,
    fit,
    flat,
    varied,
)  # fmt: skip
from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError
from toporo.groups import GroupIds, Groups
from toporo.objectives import ERM, OBJECTIVES, TRO, Objective, WeightedObjective, make_objective

every_case = pytest.mark.parametrize("case", CASES)
every_task = pytest.mark.parametrize("task", LOSSES)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")

#: Batches of all make-ups: balanced, uneven, two groups of four, a single sample, and the never-seen ones at last.
UNEVEN = [(0, 1, 2, 3, 3, 3), (0, 0, 2), (2,), (1, 1, 1, 2), (3, 2, 1, 0, 0)]


def finite_differences(function, parameter, h=1e-5):
    """Central differences of a scalar by each entry of a parameter."""
    slopes = torch.zeros_like(parameter)
    for index in range(parameter.numel()):
        entry, ends = parameter.data.view(-1)[index : index + 1], []
        at = entry.clone()
        for sign in (1, -1):
            entry.copy_(at + sign * h)
            ends.append(function().detach())
        entry.copy_(at)
        slopes.view(-1)[index] = (ends[0] - ends[1]) / (2 * h)
    return slopes.detach()


@every_case
@every_task
def test_gives_a_scalar_that_trains_every_parameter(case, task):
    net = Net()
    value = evaluate(build(case), net, *batch(), task)
    assert value.shape == ()
    assert value.dtype == torch.float64
    value.backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@every_case
@every_task
def test_gradient_matches_finite_differences(case, task):
    """... at weights that have moved; in evaluation mode they stand still while the differences are taken."""
    objective, net = build(case), Net()
    fit(objective, [batch(seed) for seed in range(3)], task, net)
    objective.eval()

    def value():
        return evaluate(objective, net, *batch(7), task)

    net.zero_grad()
    value().backward()
    for name, parameter in net.named_parameters():
        slope = finite_differences(value, parameter)
        torch.testing.assert_close(
            parameter.grad, slope, rtol=1e-6, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("case", [case for case in CASES if list(build(case).parameters())])
def test_own_parameters_train_too(case):
    """In the optimiser beside the network's, they all move, and to finite values."""
    objective = build(case)
    before = copy.deepcopy(dict(objective.named_parameters()))
    fit(objective, [batch(seed) for seed in range(3)])
    for name, parameter in objective.named_parameters():
        assert parameter.isfinite().all(), name
        assert not torch.equal(parameter, before[name]), name


def test_some_method_has_parameters_of_its_own():
    """Guards the test above."""
    assert "dann" in [name for name in OBJECTIVES if list(build(name).parameters())]


@every_case
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_autocast_costs_no_digits(case, device):
    """The network may run in half precision; means, covariances and weights over groups may not."""
    x, y, codes = (tensor.to(device) for tensor in batch())
    x, y = x.float(), y.float()
    found = []
    for enabled in (False, True):
        net, objective = Net().float().to(device), build(case).float().to(device)
        features, logits = net(x)
        extra = {"features": features, "logits": logits}
        losses = LOSSES["classes"](logits, y)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
            value = objective(losses, codes, **{key: extra[key] for key in objective.needs})
        value.backward()
        found.append((value.detach(), [parameter.grad for parameter in net.parameters()], objective.weights))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_low_precision_costs_digits_and_no_more(case, dtype):
    """On losses that every type holds exactly: sums must neither overflow nor stall where means would not."""
    codes = torch.tensor((0,) * 1000 + (1, 2, 3))
    outputs = 8.0 * torch.randint(0, 3, (len(codes), 2), generator=torch.Generator().manual_seed(0))

    def value(dtype):
        logits = outputs.to(dtype).requires_grad_()
        extra = dict.fromkeys(OBJECTIVES[CASES[case][0]].needs, logits)
        return build(case, width=2)(logits.square().sum(dim=1), codes, **extra)

    two_roundings = 2 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    assert value(dtype).item() == pytest.approx(value(torch.float64).item(), rel=two_roundings)


@every_case
def test_renaming_the_groups_renames_the_weights(case):
    """New names in another canonical order change the codes of every row and nothing else."""
    renamed = ("z", "m", "b", "k")
    rows = [batch(seed) for seed in range(5)]
    runs = {}
    for names in (NAMES, renamed):
        groups = Groups(names)
        batches = [(x, y, GroupIds(groups.encode([names[c] for c in codes]), groups)) for x, y, codes in rows]
        runs[names] = fit(build(case, names), batches)
    torch.testing.assert_close(runs[NAMES][0], runs[renamed][0], rtol=1e-12, atol=0)
    before, after = runs[NAMES][1][-1], runs[renamed][1][-1]
    assert set(after) == set(renamed)
    for old, new in zip(NAMES, renamed, strict=True):
        assert before[old] == pytest.approx(after[new], rel=1e-12, abs=1e-15)


@every_case
def test_group_ids_and_plain_codes_agree(case):
    rows = [batch(seed) for seed in range(3)]
    ids = [(x, y, GroupIds(codes.numpy(), Groups(NAMES))) for x, y, codes in rows]
    assert fit(build(case), rows)[:2] == fit(build(case), ids)[:2]


@every_case
@every_task
def test_batches_may_lack_groups(case, task):
    """Whatever the make-up of the batches, values, weights and parameters stay finite and weights a distribution."""
    values, weights, net = fit(build(case), [batch(seed, codes) for seed, codes in enumerate(UNEVEN)], task)
    assert all(math.isfinite(value) for value in values)
    assert flat(net).isfinite().all()
    for step in weights:
        assert min(step.values()) >= 0
        assert sum(step.values()) == pytest.approx(1, rel=1e-12)


@every_case
def test_state_dict_restores_exactly(case):
    """Stopped in the middle and taken up by a fresh objective, a run gives the same bytes as one that went on."""
    batches = [batch(seed, codes) for seed, codes in enumerate(UNEVEN + UNEVEN)]
    objective = build(case)
    _, _, net = fit(objective, batches[:4])
    saved, net_saved = copy.deepcopy(objective.state_dict()), copy.deepcopy(net)
    went_on = fit(objective, batches[4:], net=net)
    fresh = build(case)
    fresh.load_state_dict(saved)
    taken_up = fit(fresh, batches[4:], net=net_saved)
    assert taken_up[:2] == went_on[:2]
    assert torch.equal(flat(taken_up[2]), flat(went_on[2]))


@every_case
def test_evaluation_does_not_advance_the_state(case):
    objective = build(case)
    fit(objective, [batch(0)])
    before = copy.deepcopy(objective.state_dict())
    objective.eval()
    evaluate(objective, Net(), *batch(1))
    assert before.keys() == objective.state_dict().keys()
    for key, value in objective.state_dict().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize("method", [name for name in OBJECTIVES if "digest" in build(name).state_dict()])
def test_a_state_of_other_groups_is_refused(method):
    """A state is weights in the order of the names; under other names it would be joined by position."""
    objective, other = build(method), build(method, ("w", "x", "y", "z"))
    with pytest.raises(GroupMismatchError, match=r"state is of other groups.*'w'.*'z'"):
        other.load_state_dict(objective.state_dict())


def test_methods_with_a_state_by_group_are_among_those():
    """Guards the test above, which looks for them by what they keep."""
    kept = {name for name in OBJECTIVES if "digest" in build(name).state_dict()}
    assert kept >= {"iw-erm", "group-dro", "tro", "dann"}
    assert not kept & {"erm", "irm", "vrex", "sd", "coral", "mmd"}


# ---------------------------------------------------------------- told apart


@pytest.mark.parametrize("method", OBJECTIVES)
def test_no_two_settings_look_alike(method):
    """A run takes up the checkpoint of its identity: two objectives that differ in a setting must not share it."""
    assert not alike(OBJECTIVES[method])


@pytest.mark.parametrize("method", OBJECTIVES)
def test_the_same_settings_look_the_same(method):
    """... in another process too: nothing of it is an address, and JSON brings it back as it was."""
    one, other = build(method), build(method)
    assert one.identity == other.identity == pickle.loads(pickle.dumps(one)).identity
    assert json.loads(json.dumps(one.identity)) == one.identity
    assert "0x" not in json.dumps(one.identity)


def test_the_settings_that_are_tried_are_those_of_the_constructors():
    """Guards the test before."""
    assert [name for name, _ in varied(OBJECTIVES["dann"])] == [
        "width", "penalty", "hidden", "learning_rate", "gradient_penalty", "seed",
    ]  # fmt: skip
    assert [name for name, _ in varied(TRO)] == ["penalty", "step"]


class Hiding(Objective):
    """Says less of itself than it should."""

    examples = ({"penalty": 0.001}, {"penalty": 50.0})

    def __init__(self, groups, penalty=1.0):
        super().__init__(groups)
        self.penalty = penalty

    @property
    def identity(self):
        return {"class": type(self).__name__}

    def compute(self, losses, codes, *, logits, features):
        return self.penalty * losses.mean()


class Clipping(Hiding):
    """Keeps another value than it was given."""

    identity = Objective.identity

    def __init__(self, groups, penalty=1.0):
        super().__init__(groups, min(penalty, 1e-3))


@pytest.mark.parametrize("method", [Hiding, Clipping])
def test_settings_that_look_alike_are_noticed(method):
    """Guards the test above."""
    assert (method.examples[0], method.examples[1]) in alike(method)


# ---------------------------------------------------------------- without a look at values


@every_case
@pytest.mark.parametrize("as_ids", [False, True], ids=["codes", "ids"])
def test_no_step_looks_at_a_value(case, as_ids):
    """No ``.item()``, no branch on a tensor, no shape that depends on one, no copy from the host: on any machine."""
    objective, net = build(case), Net().to("meta")
    x, y, codes = batch(device="meta")
    groups = GroupIds(codes, Groups(NAMES)) if as_ids else codes
    evaluate(objective, net, x, y, groups).backward()  # the first call moves the state to the device
    with OnDeviceOnly():
        evaluate(objective, net, x, y, groups).backward()
    assert {buffer.device.type for buffer in objective.buffers()} <= {"meta"}


class Careless(Objective):
    """Does one thing that a step must not do."""

    def __init__(self, groups, what):
        super().__init__(groups)
        self.what = what

    def compute(self, losses, codes, *, logits, features):
        return self.what(losses, codes)


@pytest.mark.parametrize(
    "what",
    [
        lambda losses, codes: losses.mean() * losses.max().item(),
        lambda losses, codes: losses.mean() if losses.max() > 1 else losses.sum(),
        lambda losses, codes: losses[codes == 0].mean(),
        lambda losses, codes: (losses * torch.ones(12).to(losses.device)).mean(),
    ],
    ids=["item", "branch", "rows", "copy"],
)
def test_a_step_that_looks_at_a_value_is_noticed(what):
    """Guards the test above."""
    x, y, codes = batch(device="meta")
    objective, net = Careless(NAMES, what), Net().to("meta")
    with pytest.raises((RuntimeError, NotImplementedError)), OnDeviceOnly():
        evaluate(objective, net, x, y, codes)


# ---------------------------------------------------------------- CUDA


@needs_cuda
@every_case
def test_cuda_gives_what_the_cpu_gives(case):
    """The objective follows the losses to their device, state and all."""
    runs = [
        fit(build(case), [batch(seed, codes, device) for seed, codes in enumerate(UNEVEN)])
        for device in ("cpu", "cuda")
    ]
    torch.testing.assert_close(runs[0][0], runs[1][0], rtol=1e-9, atol=0)
    for on_cpu, on_cuda in zip(runs[0][1], runs[1][1], strict=True):
        assert on_cpu == pytest.approx(on_cuda, rel=1e-9, abs=1e-12)


@needs_cuda
@every_case
@pytest.mark.parametrize("as_ids", [False, True], ids=["codes", "ids"])
def test_no_step_waits_for_the_device(case, as_ids):
    """A single ``.item()`` in a step would leave the GPU idle; torch raises at any synchronisation here."""
    objective, net = build(case), Net().to("cuda")
    x, y, codes = batch(device="cuda")
    groups = GroupIds(codes, Groups(NAMES)) if as_ids else codes
    evaluate(objective, net, x, y, groups).backward()  # the first call moves the state to the device
    torch.cuda.set_sync_debug_mode("error")
    try:
        evaluate(objective, net, x, y, groups).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_cuda
@every_case
def test_replays_of_a_captured_step_are_plain_steps(case):
    """In a CUDA graph, with the buffers that a step rebinds copied back to where the graph reads them."""
    plain, captured = (build(case).to("cuda") for _ in range(2))
    net, (x, y, codes) = Net().to("cuda"), batch(device="cuda")

    def step():
        before = dict(captured.named_buffers())
        value = evaluate(captured, net, x, y, codes)
        slopes = torch.autograd.grad(value, list(net.parameters()))
        for name, buffer in before.items():
            setattr(captured, name, buffer.copy_(getattr(captured, name)))
        return value.detach(), slopes

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        found = [step()[0].item() for _ in range(2)]
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, _ = step()
    for _ in range(2):
        graph.replay()
        found.append(value.item())
    expected = [evaluate(plain, net, x, y, codes).item() for _ in range(4)]
    assert found == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("losses", "groups", "error", "message"),
    [
        (torch.ones(2, 3), torch.tensor([0, 1]), DataError, r"shape \(2, 3\), expected one value per sample"),
        (torch.tensor(1.0), torch.tensor(0), DataError, r"shape \(\), expected one value per sample"),
        (torch.ones(2), torch.tensor([0, 1, 2]), DataError, r"2 losses but group codes of shape \(3,\)"),
        (torch.ones(2), torch.tensor([0, 4]), GroupMismatchError, r"run from 0 to 4, but there are 4 groups"),
        (torch.ones(2), torch.tensor([-1, 0]), GroupMismatchError, r"run from -1 to 0"),
        (torch.ones(2), torch.tensor([0.0, 1.0]), DataError, r"torch.float32: expected integers"),
        (torch.ones(2), torch.tensor([True, False]), DataError, r"torch.bool: expected integers"),
        (torch.ones(2), ["a", "b"], DataError, r"groups are list.*Groups.of\(names\).*objective.groups.encode"),
        (
            torch.ones(2),
            Groups.of(["a", "x"]),
            GroupMismatchError,
            r"in the batch that .* does not know: 'x'. It was built for 'a', 'b', 'c', 'd'",
        ),
    ],
    ids=["2-d", "0-d", "lengths", "too large", "negative", "float", "bool", "names", "other groups"],
)
@pytest.mark.parametrize("method", OBJECTIVES)
def test_bad_input_says_what_was_expected(method, losses, groups, error, message):
    outputs = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(error, match=message):
        build(method, width=2)(losses * outputs.sum() / 4, groups, logits=outputs, features=outputs)


def test_a_mismatch_says_which_side_a_name_is_on():
    """The groups of the objective and those of the batch are not taken for one another."""
    with pytest.raises(
        GroupMismatchError, match=r"in the batch that ERM does not know: 'x'. It was built for 'a', 'b'"
    ):
        ERM(["a", "b"])(torch.ones(2), Groups.of(["b", "x"]))


@pytest.mark.parametrize("method", OBJECTIVES)
def test_a_batch_that_lacks_groups_can_be_given_by_name(method):
    """Groups.of(the batch's names) knows only the groups in the batch; they are joined to the method's by name."""
    names = ["d", "b", "d", "b", "b"]
    x, y, codes = batch(codes=Groups(NAMES).encode(names).tolist())
    values = []
    for groups in (Groups.of(names), codes):
        objective = build(method)
        values.append((evaluate(objective, Net(), x, y, groups).item(), objective.weights))
    assert values[0] == values[1]


@pytest.mark.parametrize("method", [name for name, kind in OBJECTIVES.items() if issubclass(kind, WeightedObjective)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_overflowed_batch_does_not_spoil_the_weights(method, bad):
    """As mixed-precision training meets it: the step is skipped, and the next batch must find sound weights."""
    objective = build(method)
    codes = torch.arange(len(NAMES))
    features = torch.arange(2.0 * len(NAMES)).reshape(-1, 2).cos()
    needed = {key: value for key, value in {"features": features}.items() if key in objective.needs}
    overflowed = {key: torch.full_like(value, bad) for key, value in needed.items()}
    objective(torch.ones(len(NAMES)), codes, **needed)
    objective(torch.full((len(NAMES),), bad), codes, **overflowed)
    assert torch.isfinite(objective(torch.ones(len(NAMES)), codes, **needed))
    assert sum(objective.weights.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("method", OBJECTIVES)
def test_objectives_can_be_pickled(method):
    """For worker processes and torch.save of whole objects."""
    objective = build(method, width=2)
    codes = torch.arange(len(NAMES))
    logits = torch.arange(2.0 * len(NAMES)).reshape(-1, 2).requires_grad_()
    twin = pickle.loads(pickle.dumps(objective))
    values = [o(logits.square().sum(dim=1), codes, logits=logits, features=logits).item() for o in (objective, twin)]
    assert values[0] == values[1]
    assert objective.weights == twin.weights


def test_a_state_of_another_prior_is_refused():
    """Else the objective's prior would say one thing and its weights follow another."""
    state = TRO({"a": 0.9, "b": 0.1}).state_dict()
    with pytest.raises(GroupMismatchError, match="another prior"):
        TRO({"a": 0.1, "b": 0.9}).load_state_dict(state)


@pytest.mark.parametrize("method", OBJECTIVES)
def test_an_empty_batch_is_refused(method):
    """The mean of no losses is NaN, and one NaN ends a run."""
    outputs = torch.ones(0, 2, requires_grad=True)
    with pytest.raises(DataError, match=r"empty|no losses"):
        build(method)(outputs.sum(dim=1), torch.zeros(0, dtype=torch.long), logits=outputs, features=outputs)


@pytest.mark.parametrize(("method", "need"), [(m, need) for m, cls in OBJECTIVES.items() for need in sorted(cls.needs)])
def test_what_is_needed_and_missing_is_named(method, need):
    _, y, codes = batch()
    with pytest.raises(DataError, match=f"needs {need}: call objective"):
        build(method)(y**2, codes)


@pytest.mark.parametrize(("method", "need"), [(m, need) for m, cls in OBJECTIVES.items() for need in sorted(cls.needs)])
def test_what_is_needed_must_be_of_the_same_samples(method, need):
    """Logits of another batch would be averaged over the wrong number of samples without a word."""
    outputs = torch.ones(4, 2, requires_grad=True)
    with pytest.raises(DataError, match=f"4 losses.*{need}"):
        build(method)(outputs.sum(dim=1), torch.tensor([0, 1, 2, 3]), **{need: outputs[:3]})


# ---------------------------------------------------------------- the registry


@pytest.mark.parametrize("make", [OBJECTIVES.__getitem__, lambda name: make_objective(name, Groups(NAMES))])
def test_an_unknown_method_lists_the_valid_ones(make):
    with pytest.raises(UnknownNameError, match=r"unknown objective 'tr0'\. Did you mean 'tro'\?") as caught:
        make("tr0")
    assert all(name in str(caught.value) for name in OBJECTIVES)


@pytest.mark.parametrize("method", [name for name, cls in OBJECTIVES.items() if cls.takes_prior])
def test_a_method_with_a_prior_asks_for_it(method):
    with pytest.raises(SettingError, match=f"'{method}' needs a prior"):
        make_objective(method, Groups(NAMES))


@pytest.mark.parametrize("method", [name for name, cls in OBJECTIVES.items() if cls.takes_prior])
def test_a_prior_of_other_groups_lists_the_names(method):
    with pytest.raises(GroupMismatchError, match=r"In the data but not in the prior: 'c', 'd'.*'x'"):
        make_objective(method, Groups(NAMES), OBJECTIVES[method]({"a": 1, "b": 1, "x": 2}).prior)
