from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere, Lorentz
from limpet.methods.base import View
from limpet.models.embedding_network import tangent_vectors
from limpet.models.encoder import Encoder
from limpet.models.heads import HEADS, LorentzHead, default_head
from limpet.models.release import fingerprint_of
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec, encoder_spec


def test_scaled_by_the_root_of_the_dimension_and_clipped() -> None:
    z = torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.3, 0.4, 0.0, 0.0], [0.0] * 4])
    found = tangent_vectors(z, 1.0)  # lengths 5/2, 1/4 and 0
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8, 0, 0], [0.15, 0.2, 0, 0], [0.0] * 4]))
    torch.testing.assert_close(tangent_vectors(z, 3.0)[0], z[0] / 2)
    directions = tangent_vectors(z, 0.5, directions=True)
    torch.testing.assert_close(directions.norm(dim=1), torch.tensor([0.5, 0.5, 0.0]))


@given(st.floats(0.1, 9.0), st.integers(1, 40), st.floats(1e-20, 1e15))
def test_never_longer_than_zeta_and_never_turned(zeta: float, dim: int, size: float) -> None:
    z = size * torch.randn(5, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    huge = tangent_vectors(torch.full((1, dim), 1e30), zeta)
    torch.testing.assert_close(huge.norm(dim=1), torch.tensor([zeta]))
    found = tangent_vectors(z, zeta)
    assert (found.norm(dim=1) <= zeta * (1 + 1e-12)).all()
    torch.testing.assert_close((found * z).sum(dim=1), found.norm(dim=1) * z.norm(dim=1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_are_finite_and_half_precision_is_promoted(dtype: torch.dtype) -> None:
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1e4, 1e4], [1e-5, 0.0]], dtype=dtype, requires_grad=True)
    found = tangent_vectors(z, 1.2)
    found.sum().backward()
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.isfinite(found).all() and torch.isfinite(z.grad).all()


SPEC = EncoderSpec(dim=6, channels=1, image_size=16, projection="linear-bn", backbone_options={"filters": 4})


def test_the_encoder_lifts_in_float32_under_autocast() -> None:
    with seeded(0):
        plain = Encoder(SPEC).eval()
    lifting = Encoder(SPEC.model_copy(update={"zeta": 1.2})).eval()
    lifting.load_state_dict(plain.state_dict())
    images = torch.randint(0, 256, (4, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(lifting(images), tangent_vectors(plain(images), 1.2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert plain(images).dtype == torch.bfloat16 and lifting(images).dtype == torch.float32


def test_zeta_is_part_of_the_fingerprint_and_of_the_spec_on_disk() -> None:
    with seeded(0):
        encoders = [Encoder(SPEC.model_copy(update={"zeta": zeta})) for zeta in (1.0, 1.2)]
    encoders[1].load_state_dict(encoders[0].state_dict())
    prints = {fingerprint_of(encoder, Lorentz(6)) for encoder in encoders}
    assert len(prints) == 2 and len({fingerprint_of(encoders[0], Lorentz(6, k)) for k in (0.5, 1.0)}) == 2
    again = EncoderSpec.model_validate_json(encoders[1].spec.model_dump_json())
    assert again.zeta == 1.2 and again == encoders[1].spec
    assert EncoderSpec.model_validate_json(SPEC.model_dump_json()) == SPEC
    with pytest.raises(ConfigError, match="zeta"):
        encoder_spec(zeta=-1.0)


def test_every_space_has_a_head_and_the_lorentz_one_reads_points() -> None:
    assert (default_head(Hypersphere(3)), default_head(Lorentz(3))) == ("softmax", "lorentz")
    assert sum("lorentz" in head.spaces for head in HEADS.values()) == 1
    with seeded(0):
        head = LorentzHead(5, 6)
    assert head.weight.abs().max() <= 6**-0.5 and head.offsets.shape == (5,)
    features = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)) / 3
    near, curved = View.of(features, Lorentz(6, 1e-6)), View.of(features, Lorentz(6, 1.0))
    flat = features @ head.weight.T - head.offsets * head.weight.norm(dim=1)
    torch.testing.assert_close(head.logits(near), flat, rtol=1e-3, atol=1e-3)  # almost flat: signed distance to a plane
    assert not torch.allclose(head.logits(curved), flat, rtol=1e-3, atol=1e-3)
    loss = head.loss(curved, torch.tensor([0, 1, 2, 3]))
    loss.backward()
    assert torch.isfinite(head.weight.grad).all() and torch.isfinite(head.offsets.grad).all()
