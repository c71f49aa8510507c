"""Two ranks give what one process gives with the rows of both, for every method in the registry."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.objectives.cases import LOSSES, Net, batch, build, evaluate
from tests.objectives.two_ranks import EVERY, main, train
from toporo.errors import SettingError
from toporo.objectives import ERM

dist = pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo here"
)

ROOT = Path(__file__).parents[2]
RANKS = (0, 1)
OTHER = """
import sys
from pathlib import Path
from tests.objectives.two_ranks import main

main(1, Path(sys.argv[1]), sys.argv[2:])
"""


@pytest.fixture(scope="module")
def ranks(request, tmp_path_factory):
    """What both ranks found: this process, which has torch loaded, and another. Only cases that are asked for."""
    asked = {item.callspec.params.get("case") for item in request.session.items if hasattr(item, "callspec")}
    cases = [case for case in EVERY if case in asked or case == "stranger"]
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(folder), *cases],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    threads = torch.get_num_threads()
    try:
        main(0, folder, cases)
        said, _ = other.communicate(timeout=60)
    finally:
        other.kill()
        torch.set_num_threads(threads)
    assert other.returncode == 0, said
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in RANKS]


@pytest.mark.parametrize("task", LOSSES)
@pytest.mark.parametrize("case", EVERY)
def test_two_ranks_give_what_one_gives_with_the_joint_batch(ranks, case, task):
    """Value, gradient and state, step by step; batches are uneven and lack groups on one rank or on both."""
    expected = train(case, task)
    for rank in RANKS:
        torch.testing.assert_close(ranks[rank]["runs"][case, task], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", EVERY)
def test_ranks_never_drift_apart(ranks, case):
    """Weights, and a discriminator's parameters, are the same bytes on both."""
    one, other = (found["runs"][case, "classes"] for found in ranks)
    assert one["state"].keys() == other["state"].keys()
    for key, value in one["state"].items():
        assert torch.equal(value, other["state"][key]), key


@pytest.mark.parametrize("case", EVERY)
def test_a_step_sends_its_rows_once(ranks, case):
    """The numbers of rows, then the rows, forward; nothing backward. Settings and state are for the first step."""
    assert ranks[0]["messages"][case] == {"all_gather": 2}


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ("groups", "GroupMismatchError", ["groups is ['a', 'b'] on rank 0 and ['a', 'c'] on rank 1"]),
        ("method", "SettingError", ["objectives.erm.ERM on rank 0", "objectives.tro.TRO on rank 1"]),
        ("penalty", "SettingError", ["penalty is 1.0 on rank 0 and 2.0 on rank 1"]),
        ("prior", "SettingError", ["prior is", "0.25", "0.75"]),
        ("dtype", "SettingError", ["losses is ['torch.float32'] on rank 0 and ['torch.float64'] on rank 1"]),
        ("features", "SettingError", ["features is ['torch.float32', 3] on rank 0"]),
    ],
)
def test_ranks_that_train_different_things_are_told_so(ranks, what, error, words):
    """At the first step, on both of them, instead of a hang or a number that means nothing."""
    for found in ranks:
        message = found["mistakes"][what]
        assert message.startswith(f"{error}: ranks train different things: ")
        assert [word for word in words if word not in message] == []
        assert message.endswith("a rank's batches may lack groups that the objective knows.")


def test_the_state_is_pickled_and_not_the_ranks(ranks):
    assert "save objective.state_dict()" in ranks[0]["mistakes"]["pickled"]


def test_a_rank_evaluates_alone(ranks):
    """In evaluation mode nothing is sent, so nobody waits."""
    alone = ranks[0]["alone"]
    assert alone["sent in evaluation"] == {}
    assert alone["evaluated"] == evaluate(build("tro").eval(), Net(), *batch()).item()
    assert "over 2 ranks" in alone["repr"]


def test_a_group_of_one_sends_nothing(ranks):
    alone = ranks[0]["alone"]
    assert alone["sent by one"] == {}
    assert alone["trained"] == evaluate(build("dann"), Net(), *batch()).item()


def test_a_process_outside_the_group_is_told_so(ranks):
    for found in ranks:
        assert found["alone"]["not a member"].startswith("SettingError: this process is not in the process group")


def test_all_start_from_the_state_of_rank_0(ranks):
    one, other = (found["started apart"] for found in ranks)
    for key, value in one.items():
        assert torch.equal(value, other[key]), key
    assert one["steps"] == 4, "three that rank 0 brought, and one with both"
    assert one["discriminator"].mean() > 0.5


def test_rows_of_any_type_arrive_as_they_were(ranks):
    for found in ranks:
        codes, half, double, flags = found["rows"]
        assert codes.tolist() == [0, 1, 2, 10, 11]
        assert half.dtype == torch.bfloat16
        assert half.shape == (5, 2, 2)
        assert half[:, 1, 1].tolist() == [1.5, 1.5, 1.5, 2.5, 2.5]
        assert double.tolist() == [0.1] * 3 + [1.1] * 2
        assert flags.tolist() == [[False]] * 3 + [[True]] * 2


def test_without_a_process_group_it_says_what_to_call():
    with pytest.raises(SettingError, match=r"not initialised.*init_process_group\(\).*torchrun.*leave out over_ranks"):
        ERM(["a", "b"]).over_ranks()
