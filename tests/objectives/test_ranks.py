"""Two ranks give the same as one process with the rows of both, for every method in the registry."""

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

OTHER = """
import sys
from pathlib import Path
from tests.objectives.two_ranks import main

main(1, Path(sys.argv[1]), sys.argv[2:])
"""


@pytest.fixture(scope="module")
def ranks(request, tmp_path_factory):
    """Outcomes of both ranks: this process, which has torch loaded, and another. Only cases that are asked for."""
    asked = {item.callspec.params.get("case") for item in request.session.items if hasattr(item, "callspec")}
    cases = [case for case in EVERY if case in asked]
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(folder), *cases],
        cwd=Path(__file__).parents[2], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    threads = torch.get_num_threads()
    try:
        main(0, folder, cases)
        output, _ = other.communicate(timeout=60)
    finally:
        other.kill()
        torch.set_num_threads(threads)
    assert other.returncode == 0, output
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("task", LOSSES)
@pytest.mark.parametrize("case", EVERY)
def test_two_ranks_give_the_same_as_one_with_the_joint_batch(ranks, case, task):
    """Values, gradients and state; the state is the same bytes on both ranks."""
    one, other = (found["runs"][case, task] for found in ranks)
    torch.testing.assert_close(one, train(case, task), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(other["slopes"], one["slopes"], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close((other["values"], other["state"]), (one["values"], one["state"]), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("mistake", "error", "words"),
    [
        ("groups", "GroupMismatchError", ["groups is ['a', 'b'] on rank 0 and ['a', 'c'] on rank 1"]),
        ("method", "SettingError", ["objectives.erm.ERM on rank 0", "objectives.tro.TRO on rank 1"]),
        ("penalty", "SettingError", ["penalty is 1.0 on rank 0 and 2.0 on rank 1"]),
        ("prior", "SettingError", ["prior is", "0.25", "0.75"]),
        ("dtype", "SettingError", ["losses is ['torch.float32'] on rank 0 and ['torch.float64'] on rank 1"]),
        ("features", "SettingError", ["features is ['torch.float32', 3] on rank 0"]),
    ],
)
def test_ranks_that_train_different_things_raise_an_error(ranks, mistake, error, words):
    """At the first step, on both of them, instead of waiting for ever."""
    for found in ranks:
        message = found["mistakes"][mistake]
        assert message.startswith(f"{error}: ranks train different things: ")
        assert [word for word in words if word not in message] == []


def test_a_rank_evaluates_alone(ranks):
    alone = ranks[0]["alone"]
    assert alone["sent"] == []
    assert alone["evaluated"] == evaluate(build("tro").eval(), Net(), *batch()).item()


def test_all_start_from_the_state_of_rank_0(ranks):
    one, other = (found["started apart"]["state"] for found in ranks)
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert one["steps"] == 4, "three of rank 0, and one of both"
    assert one["discriminator"].mean() > 0.5


def test_a_step_sends_its_rows_once(ranks):
    """The numbers of rows, then the rows; nothing in the backward pass. Settings are compared at the first step."""
    assert ranks[0]["started apart"]["messages"] == ["all_gather"] * 2


def test_rows_of_any_type_arrive_unchanged(ranks):
    for found in ranks:
        codes, half, double, flags = found["rows"]
        assert codes.tolist() == [0, 1, 2, 10, 11]
        assert half.dtype == torch.bfloat16
        assert half.shape == (5, 2, 2)
        assert half[:, 1, 1].tolist() == [1.5, 1.5, 1.5, 2.5, 2.5]
        assert double.tolist() == [0.1] * 3 + [1.1] * 2
        assert flags.tolist() == [[False]] * 3 + [[True]] * 2


def test_ranks_that_are_not_there_are_an_error():
    with pytest.raises(SettingError, match=r"not initialised.*init_process_group\(\).*torchrun.*leave out over_ranks"):
        ERM(["a", "b"]).over_ranks()
