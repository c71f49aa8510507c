"""Every objective is tried on tensors of a dozen numbers."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors gain nothing from threads and, on a busy machine, wait for them thirty times longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
