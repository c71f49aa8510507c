"""Trainers of other libraries on two ranks train like a plain loop of one process with the joint batches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integrations.networks import OBJECTIVES, plain

pytest.importorskip("lightning", reason="needs the extra 'lightning'")
pytest.importorskip("transformers", reason="needs the extra 'transformers'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "tests.integrations.two_ranks", str(folder)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "irm"])
@pytest.mark.parametrize("library", ["lightning", "transformers"])
def test_two_ranks_train_what_one_process_trains(ranks, library, name):
    """Without IRM, whose halves depend on the order of rows, which samplers change."""
    objective = OBJECTIVES[name]()
    expected = plain(objective, 2, betas=objective.betas)
    for found in ranks:
        torch.testing.assert_close(found[library, name], expected, rtol=1e-4, atol=1e-6)
