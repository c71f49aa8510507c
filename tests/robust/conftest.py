"""The robust maths runs on numpy and torch from one source; so do its tests."""

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session", params=["numpy", "torch"])
def array(request):
    """Turns numbers into an array of the backend under test, keeping their precision. ``np.asarray`` turns it back."""
    return np.asarray if request.param == "numpy" else lambda values: torch.as_tensor(np.asarray(values))
