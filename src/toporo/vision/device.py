"""Images on the training device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from toporo.data.grouped import GroupedData
from toporo.data.images import ImageStore


def images_on_device(store: ImageStore, data: GroupedData, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Return a store's images as bytes (n, height, width, 3) and their classes, for :class:`toporo.training.Batches`.

    Parameters
    ----------
    store : the images.
    data : row numbers in the store as inputs, and classes. Rows of the store that are not in it have the class −1.
    device : device of the result.
    """
    classes = np.full(len(store), -1, dtype=np.int64)
    classes[data.x] = data.y
    return torch.from_numpy(np.array(store.images)).to(device), torch.from_numpy(classes).to(device)
