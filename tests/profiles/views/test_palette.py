"""The colours of the owners stay apart for everybody."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from profiles.model.measures import OWNERS as OWNER_NAMES
from profiles.views.palette import OWNERS

# Full dichromacy, on linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.0.
VISION = {
    "full": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def oklab(linear: np.ndarray) -> np.ndarray:
    """Linear sRGB to OKLab (Ottosson 2020), where distance is close to what is seen."""
    to_lms = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return to_lab @ np.cbrt(to_lms @ linear)


def test_every_owner_has_a_look_in_the_ledgers_order() -> None:
    assert tuple(OWNERS) == OWNER_NAMES


@pytest.mark.parametrize("vision", VISION)
def test_no_two_owners_look_alike(vision: str) -> None:
    seen = {}
    for owner, look in OWNERS.items():
        rgb = np.frombuffer(bytes.fromhex(look.colour[1:]), np.uint8) / 255
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        seen[owner] = oklab(np.clip(VISION[vision] @ linear, 0, 1))
    apart = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in itertools.combinations(seen, 2)}
    closest = min(apart, key=lambda pair: apart[pair])
    assert apart[closest] > 0.06, closest
