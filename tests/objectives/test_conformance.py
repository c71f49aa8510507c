"""Requirements on every objective in the registry. A new method is picked up from there."""

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
    batch,
    build,
    evaluate,
    fit,
    flat,
    varied,
)  # fmt: skip
from toporo.errors import DataError, GroupMismatchError, SettingError, UnknownNameError
from toporo.groups import GroupIds, Groups
from toporo.objectives import ERM, OBJECTIVES, TRO, WeightedObjective, make_objective
from toporo.topology.prior import Prior

every_case = pytest.mark.parametrize("case", CASES)
every_task = pytest.mark.parametrize("task", LOSSES)
every_method = pytest.mark.parametrize("method", OBJECTIVES)
every_need = pytest.mark.parametrize(
    ("method", "need"), [(name, need) for name, cls in OBJECTIVES.items() for need in sorted(cls.needs)]
)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")

#: Codes of batches that are uneven, lack groups, or have a single row.
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
def test_gradient_matches_finite_differences(case, task):
    """At weights that have moved; in evaluation mode they stay the same between the two evaluations."""
    objective, net = build(case), Net()
    fit(objective, [batch(seed) for seed in range(3)], task, net)
    objective.eval()

    def value():
        return evaluate(objective, net, *batch(7), task)

    net.zero_grad()
    result = value()
    assert (result.shape, result.dtype) == ((), torch.float64)
    result.backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad.any(), name
        torch.testing.assert_close(
            parameter.grad, finite_differences(value, parameter), rtol=1e-6, atol=1e-8,
            msg=lambda text, name=name: f"{name}: {text}",
        )  # fmt: skip


@every_case
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_autocast_changes_no_digit(case, device):
    """The network may run in half precision; means, covariances and weights of groups do not."""
    x, y, codes = batch(device=device)
    found = []
    for enabled in (False, True):
        net, objective = Net().float().to(device), build(case).float().to(device)
        features, logits = net(x.float())
        extra = {"features": features, "logits": logits}
        losses = LOSSES["classes"](logits, y.float())
        with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
            value = objective(losses, codes, **{key: extra[key] for key in objective.needs})
        value.backward()
        found.append((value.detach(), [parameter.grad for parameter in net.parameters()], objective.weights))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_low_precision_costs_digits_only(case, dtype):
    """On losses that every type represents exactly, sums neither overflow nor stall."""
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
    """New names in another canonical order change the codes of all rows, and nothing else."""
    renamed = Groups(("z", "m", "b", "k"))
    rows = [batch(seed) for seed in range(5)]
    values, weights, _ = fit(build(case), rows)
    ids = [
        (x, y, GroupIds(renamed.encode([("z", "m", "b", "k")[code] for code in codes]), renamed))
        for x, y, codes in rows
    ]
    other_values, other_weights, _ = fit(build(case, ("z", "m", "b", "k")), ids)
    assert other_values == pytest.approx(values, rel=1e-12)
    for old, new in zip(NAMES, ("z", "m", "b", "k"), strict=True):
        assert other_weights[-1][new] == pytest.approx(weights[-1][old], rel=1e-12, abs=1e-15)


@every_method
def test_a_batch_may_be_given_by_its_own_groups(method):
    """``Groups.of`` of a batch's names has only the groups in the batch; they are joined by name."""
    names = ["d", "b", "d", "b", "b"]
    x, y, codes = batch(codes=Groups(NAMES).encode(names).tolist())
    values = []
    for groups in (Groups.of(names), codes):
        objective = build(method)
        values.append((evaluate(objective, Net(), x, y, groups).item(), objective.weights))
    assert values[0] == values[1]


@every_case
@every_task
def test_batches_may_lack_groups(case, task):
    """Values and parameters stay finite, and weights a distribution."""
    values, weights, net = fit(build(case), [batch(seed, codes) for seed, codes in enumerate(UNEVEN)], task)
    assert all(math.isfinite(value) for value in values)
    assert flat(net).isfinite().all()
    for step in weights:
        assert min(step.values()) >= 0
        assert sum(step.values()) == pytest.approx(1, rel=1e-12)


@every_case
def test_state_dict_restores_exactly(case):
    """A fresh objective with the state of another continues as that does."""
    batches = [batch(seed, codes) for seed, codes in enumerate(UNEVEN + UNEVEN)]
    objective, fresh = build(case), build(case)
    _, _, net = fit(objective, batches[:4])
    fresh.load_state_dict(objective.state_dict())
    twin = copy.deepcopy(net)
    assert fit(fresh, batches[4:], net=twin)[:2] == fit(objective, batches[4:], net=net)[:2]
    assert torch.equal(flat(twin), flat(net))


@every_case
def test_a_step_advances_the_state_in_place(case):
    """A CUDA graph reads and writes the memory that it was captured with."""
    objective = build(case)
    before = [buffer.data_ptr() for buffer in objective.buffers()]
    fit(objective, [batch(0)])
    assert [buffer.data_ptr() for buffer in objective.buffers()] == before


def test_two_batches_may_be_added_before_the_backward_pass():
    """Though the second one moves the weights."""
    net, objective = Net(), build("tro")
    total = sum(evaluate(objective, net, *batch(seed)) for seed in range(2))
    first = [torch.autograd.grad(total, list(net.parameters()))]
    twin = build("tro")
    parts = [torch.autograd.grad(evaluate(twin, net, *batch(seed)), list(net.parameters())) for seed in range(2)]
    torch.testing.assert_close(first[0], tuple(one + other for one, other in zip(*parts, strict=True)))


@every_case
def test_evaluation_does_not_advance_the_state(case):
    objective = build(case)
    fit(objective, [batch(0)])
    before = copy.deepcopy(objective.state_dict())
    evaluate(objective.eval(), Net(), *batch(1))
    torch.testing.assert_close(objective.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("method", [name for name in OBJECTIVES if "digest" in build(name).state_dict()])
def test_a_state_of_other_groups_is_refused(method):
    """A state is in the order of the names; under other names it would be joined by position."""
    objective, other = build(method), build(method, ("w", "x", "y", "z"))
    with pytest.raises(GroupMismatchError, match=r"state is of other groups.*'w'.*'z'"):
        other.load_state_dict(objective.state_dict())


def test_a_state_of_another_prior_is_refused():
    state = TRO({"a": 0.9, "b": 0.1}).state_dict()
    with pytest.raises(GroupMismatchError, match="another prior"):
        TRO({"a": 0.1, "b": 0.9}).load_state_dict(state)


@pytest.mark.parametrize("method", [name for name, kind in OBJECTIVES.items() if issubclass(kind, WeightedObjective)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_overflowed_batch_does_not_spoil_the_weights(method, bad):
    """In mixed-precision training the step is skipped, and the next batch needs finite weights."""
    objective, codes = build(method), torch.arange(len(NAMES))
    for value in (1.0, bad):
        objective(torch.full((len(NAMES),), value), codes)
    assert torch.isfinite(objective(torch.ones(len(NAMES)), codes))
    assert sum(objective.weights.values()) == pytest.approx(1.0)


@every_method
def test_objectives_can_be_pickled(method):
    objective = build(method, width=2)
    logits = torch.arange(2.0 * len(NAMES)).reshape(-1, 2).requires_grad_()
    twin = pickle.loads(pickle.dumps(objective))
    values = [
        o(logits.square().sum(dim=1), torch.arange(len(NAMES)), logits=logits, features=logits).item()
        for o in (objective, twin)
    ]
    assert values[0] == values[1]
    assert objective.weights == twin.weights


@every_method
def test_no_two_settings_share_an_identity(method):
    """A run continues from the checkpoint of its identity."""
    kind = OBJECTIVES[method]
    first = Prior({"a": 0.4, "b": 0.6}) if kind.takes_prior else "ab"
    settings = {json.dumps(given, sort_keys=True): given for given in (*kind.examples, *varied(kind))}
    identities = [kind(first, **given).identity for given in settings.values()]
    assert len({json.dumps(identity) for identity in identities}) == len(settings)
    for given, identity in zip(settings.values(), identities, strict=True):
        assert kind(first, **given).identity == identity == json.loads(json.dumps(identity))


# ---------------------------------------------------------------- GPU


@every_case
def test_no_step_reads_a_value(case):
    """No ``.item()``, branch on a tensor, shape that depends on one, or copy from the host."""
    objective, net = build(case), Net().to("meta")
    x, y, codes = batch(device="meta")
    for groups in (GroupIds(codes, Groups(NAMES)), codes):
        evaluate(objective, net, x, y, groups).backward()  # the first call moves the state to the device
        with OnDeviceOnly():
            evaluate(objective, net, x, y, groups).backward()


@needs_cuda
@every_case
def test_cuda_gives_the_same_as_the_cpu(case):
    """The objective and its state follow the losses to their device."""
    runs = [
        fit(build(case), [batch(seed, codes, device) for seed, codes in enumerate(UNEVEN)])
        for device in ("cpu", "cuda")
    ]
    torch.testing.assert_close(runs[0][:2], runs[1][:2], rtol=1e-9, atol=1e-12)


@needs_cuda
@every_case
def test_replays_of_a_captured_step_are_plain_steps(case):
    """In a CUDA graph, which cannot wait for the device and reads and writes the memory it was captured with."""
    plain, captured = (build(case).to("cuda") for _ in range(2))
    net, (x, y, codes) = Net().to("cuda"), batch(device="cuda")

    def step():
        value = evaluate(captured, net, x, y, codes)
        return value.detach(), torch.autograd.grad(value, list(net.parameters()))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = [step()[0].item() for _ in range(2)]
    torch.cuda.current_stream().wait_stream(side)
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
        (torch.ones(0), torch.zeros(0, dtype=torch.long), DataError, r"shape \(0,\).*skip empty batches"),
        (torch.ones(2), torch.tensor([0, 1, 2]), DataError, r"2 losses but group codes of shape \(3,\)"),
        (torch.ones(2), torch.tensor([0, 4]), GroupMismatchError, r"run from 0 to 4, but there are 4 groups"),
        (torch.ones(2), torch.tensor([-1, 0]), GroupMismatchError, r"run from -1 to 0"),
        (torch.ones(2), torch.tensor([0.0, 1.0]), DataError, r"torch.float32: expected one integer"),
        (torch.ones(2), torch.tensor([True, False]), DataError, r"torch.bool: expected one integer"),
        (torch.ones(2), ["a", "b"], DataError, r"groups are list.*Groups.of\(names\).*objective.groups.encode"),
        (
            torch.ones(2),
            Groups.of(["a", "x"]),
            GroupMismatchError,
            r"unknown group\(s\): 'x'. Known groups: 'a', 'b', 'c', 'd'",
        ),
    ],
    ids=["2-d", "0-d", "empty", "lengths", "too large", "negative", "float", "bool", "names", "other groups"],
)
def test_bad_input_is_named(losses, groups, error, message):
    with pytest.raises(error, match=message):
        ERM(NAMES)(losses, groups)


@every_need
def test_a_missing_input_is_named(method, need):
    with pytest.raises(DataError, match=f"needs {need}: call objective"):
        build(method)(torch.ones(2), torch.tensor([0, 1]))


@every_need
def test_inputs_must_be_of_the_same_samples(method, need):
    outputs = torch.ones(4, 2, requires_grad=True)
    with pytest.raises(DataError, match=f"4 losses.*{need}"):
        build(method)(outputs.sum(dim=1), torch.tensor([0, 1, 2, 3]), **{need: outputs[:3]})


@pytest.mark.parametrize("make", [OBJECTIVES.__getitem__, lambda name: make_objective(name, Groups(NAMES))])
def test_an_unknown_method_lists_the_valid_ones(make):
    with pytest.raises(UnknownNameError, match=r"unknown objective 'tr0'\. Did you mean 'tro'\?") as caught:
        make("tr0")
    assert all(name in str(caught.value) for name in OBJECTIVES)


@pytest.mark.parametrize("method", [name for name, cls in OBJECTIVES.items() if cls.takes_prior])
def test_a_missing_prior_and_one_of_other_groups_are_named(method):
    with pytest.raises(SettingError, match=f"'{method}' needs a prior"):
        make_objective(method, Groups(NAMES))
    with pytest.raises(GroupMismatchError, match=r"In the data but not in the prior: 'c', 'd'.*'x'"):
        make_objective(method, Groups(NAMES), Prior.from_weights({"a": 1, "b": 1, "x": 2}))
