"""Types that many modules speak of."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

#: Numbers in double precision, of any shape.
Array: TypeAlias = npt.NDArray[np.float64]
#: A group's name: text, a number, a tuple of those, …
Name: TypeAlias = Hashable
#: What JSON holds of a run, an epoch, …
Record: TypeAlias = dict[str, Any]

#: What the names of metrics begin with that are of averaged weights.
AVERAGED = "averaged_"
