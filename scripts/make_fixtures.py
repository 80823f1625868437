#!/usr/bin/env python3
"""Makes the expected values that the tests of src/formats/ and src/moe/ read: tests/fixtures/{formats,moe}/*.json.

They come from code that is not this project's: number formats from ml_dtypes, torch and compressed-tensors, routers and
expert layers from the modelling code in transformers, run in float64. Tests need none of it; run this again only to add
cases. In a virtual environment:

    pip install numpy==2.4.6 ml_dtypes==0.6.0 torch==2.15.0 compressed-tensors==0.20.1 transformers==5.24.0
    python scripts/make_fixtures.py [OUTPUT_FOLDER]

The seeds are fixed and results are cut to the digits that the source computes, so that with these versions the files come
out the same, byte for byte. Byte strings are hexadecimal, little-endian, elements one after another.
"""

import importlib.metadata
import json
import math
import pathlib
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import torch
from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4, unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MLP, DeepseekV3TopkRouter
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Experts, DeepseekV4TopKRouter
from transformers.models.ernie4_5_moe.modeling_ernie4_5_moe import Ernie4_5_MoeTopKRouter
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts, GptOssTopKRouter
from transformers.models.llama4.modeling_llama4 import Llama4Router, Llama4TextMoe
from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashTopkRouter
from transformers.models.minimax_m2.modeling_minimax_m2 import MiniMaxM2TopKRouter
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLExperts
from transformers.models.mixtral.modeling_mixtral import MixtralExperts, MixtralTopKRouter
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHExperts, NemotronHMLP
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

E4M3, E2M1, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu
PACKAGES = ("numpy", "ml_dtypes", "torch", "compressed-tensors", "transformers")


def hexed(array) -> str:
    """Bytes of a tensor or array; torch's own float types go through their bits."""
    if isinstance(array, torch.Tensor):
        array = array.detach().contiguous().view(torch.uint8).numpy()
    return np.ascontiguousarray(array).tobytes().hex()


def digits(values, count):
    """Nested lists of numbers with `count` significant digits."""
    if isinstance(values, torch.Tensor):
        values = values.detach().tolist()
    return [digits(v, count) for v in values] if isinstance(values, list) else float(f"{values:.{count}g}")


def write(folder, name, content):
    content = {"made_by": "scripts/make_fixtures.py",
               "made_with": {p: importlib.metadata.version(p) for p in PACKAGES}, **content}
    path = pathlib.Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, separators=(",", ":"), allow_nan=False).replace('{"name"', '\n{"name"') + "\n")


# ------------------------------------------------------------------------------------------------------------- elements


def table(dtype, codes):
    values = np.arange(codes, dtype=np.uint8).view(dtype).astype(np.float64)
    return [None if math.isnan(v) else float(v) for v in values]


def rounding_inputs(rng, values, extremes):
    """Floats that make rounding hard: representable values, the midpoints of neighbours, one float to either side."""
    values = np.sort(values.astype(np.float32))
    middle = ((values[:-1].astype(np.float64) + values[1:].astype(np.float64)) / 2).astype(np.float32)
    hard = np.concatenate([values, middle, np.nextafter(middle, np.float32(np.inf)),
                           np.nextafter(middle, np.float32(-np.inf))])
    signed = np.concatenate([hard, -hard[rng.random(hard.size) < 0.25], np.array(extremes, np.float32)])
    return signed.astype(np.float32)


def rounding(name, inputs, codes):
    return {"name": name, "from": hexed(inputs), "to": hexed(codes)}


def rounding_cases():
    rng = np.random.default_rng(1)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 2.0**-126, 2.0**-127]
    cases = []
    for name, dtype, start_codes in (("bf16", ml_dtypes.bfloat16, rng.integers(0, 0x7f7e, 40)),
                                     ("fp16", np.float16, np.concatenate([rng.integers(0, 0x7bfe, 30),
                                                                          rng.integers(0, 0x400, 20), [0, 0x3ff]]))):
        codes = np.concatenate([start_codes, start_codes + 1]).astype(np.uint16)
        inputs = rounding_inputs(rng, codes.view(dtype).astype(np.float32), special + [65504, 65519.99, 65520, 65536])
        with np.errstate(over="ignore"):
            cases.append(rounding(name, inputs, inputs.astype(dtype)))
    for name, dtype, codes, largest in (("e4m3", E4M3, 0x7f, 448.0), ("e2m1", E2M1, 8, 6.0)):
        values = np.arange(codes, dtype=np.uint8).view(dtype).astype(np.float32)
        finite = [v for v in special if not math.isnan(v)] + [largest * 1.0001, largest * 1.07, largest * 2]
        inputs = rounding_inputs(rng, values, finite)
        cases.append(rounding(name, inputs, np.clip(inputs, -largest, largest).astype(dtype)))
    return cases


def elements():
    return {"e4m3": table(E4M3, 256), "e2m1": table(E2M1, 16), "e8m0": table(E8M0, 256), "rounding": rounding_cases()}


# ------------------------------------------------------------------------------------------------------------- matrices


def matrix_case(name, spec, values, data, scales, zeros, back, global_scale=1.0):
    return {"name": name, "spec": spec, "n": values.shape[0], "k": values.shape[1], "values": hexed(values),
            "data": hexed(data), "scales": hexed(scales) if scales is not None else "",
            "zeros": hexed(zeros) if zeros is not None else "", "global_scale": global_scale,
            "dequantized": hexed(back)}


def random_matrix(seed, n, k):
    """Rows of different size, so that no two scales are the same."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, k)) * np.exp2(rng.integers(-6, 3, (n, 1)))).astype(np.float32)


def plain_cases():
    values = random_matrix(10, 3, 5)
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        data = torch.from_numpy(values).to(dtype)
        yield matrix_case(f"{name}, torch", {"format": name}, values, data, None, None, data.float())


def fp8_cases():
    """Scales of any rectangle, in torch; the block does not divide the matrix."""
    for name, block in (("fp8_tensor", (5, 7)), ("fp8_channel", (1, 7)), ("fp8_block", (2, 4))):
        values = torch.from_numpy(random_matrix(11, 5, 7))
        rows, columns = math.ceil(5 / block[0]), math.ceil(7 / block[1])
        padded = torch.zeros(rows * block[0], columns * block[1])
        padded[:5, :7] = values
        tiles = padded.view(rows, block[0], columns, block[1])
        scales = tiles.abs().amax(dim=(1, 3)) / 448.0
        full = scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:5, :7]
        data = (values / full).clamp(-448, 448).to(torch.float8_e4m3fn)
        spec = {"format": name} | ({"block_n": 2, "block_k": 4} if name == "fp8_block" else {})
        yield matrix_case(f"{name}, torch", spec, values.numpy(), data, scales, None, data.float() * full)


def mx_cases():
    """OCP MX 1.0 section 6.3 in numpy, with element formats from ml_dtypes. The last group is short."""
    for name, dtype, largest, exponent in (("mxfp8", E4M3, 448.0, 8), ("mxfp4", E2M1, 6.0, 2)):
        values = random_matrix(12, 3, 72)
        values[1, 32:64] = 0.0
        padded = np.zeros((3, 96), np.float32)
        padded[:, :72] = values
        amax = np.abs(padded).reshape(3, 3, 32).max(axis=2)
        with np.errstate(divide="ignore"):
            power = np.maximum(np.floor(np.log2(amax)) - exponent, -127.0)
        scales = np.exp2(power).astype(E8M0)
        full = np.repeat(np.exp2(power), 32, axis=1)[:, :72]
        data = np.clip(values / full, -largest, largest).astype(dtype)
        back = (data.astype(np.float64) * full).astype(np.float32)
        packed = pack_nibbles(data.view(np.uint8)) if name == "mxfp4" else data
        yield matrix_case(f"{name}, ml_dtypes", {"format": name, "block_k": 32}, values, packed, scales, None, back)


def pack_nibbles(codes):
    return (codes[:, 0::2] | (codes[:, 1::2] << 4)).astype(np.uint8)


def nvfp4_cases():
    """compressed-tensors stores the reciprocal of what multiplies."""
    args = QuantizationArgs(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16,
                            scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn)
    values = torch.from_numpy(random_matrix(13, 6, 64))
    stored = generate_gparam(values.amin(), values.amax())
    groups = values.view(6, 4, 16)
    scales, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), args, global_scale=stored)
    packed = quantize_and_pack_fp4(values, scales, global_scale=stored, zero_point=None, group_size=16)
    codes = unpack_fp4_from_uint8(packed, 6, 64, dtype=torch.float32)
    back = dequantize(x_q=codes, scale=scales.float(), args=args, global_scale=stored, dtype=torch.float32)
    yield matrix_case("nvfp4, compressed-tensors", {"format": "nvfp4", "block_k": 16}, values.numpy(), packed,
                      scales.to(torch.float8_e4m3fn), None, back, 1.0 / stored.item())


def int4_cases():
    for name, symmetric in (("int4, compressed-tensors", True), ("int4 with zero points, compressed-tensors", False)):
        args = QuantizationArgs(num_bits=4, type="int", symmetric=symmetric, strategy="group", group_size=32)
        values = torch.from_numpy(random_matrix(14, 5, 64)) + (0.0 if symmetric else 0.05)
        groups = values.view(5, 2, 32)
        scales, zeros = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
        codes = quantize(x=values, scale=scales, zero_point=zeros, args=args, dtype=torch.int8)
        back = dequantize(x_q=codes, scale=scales, zero_point=zeros, args=args, dtype=torch.float32)
        spec = {"format": "int4", "block_k": 32, "zero_point": not symmetric}
        # Signed codes -8 … 7 are stored with 8 added, and zero points with them.
        stored_zeros = None if symmetric else (zeros.to(torch.int32) + 8).to(torch.uint8)
        yield matrix_case(name, spec, values.numpy(), pack_to_int32(codes, 4), scales, stored_zeros, back)


def matrices():
    return {"cases": [*plain_cases(), *fp8_cases(), *mx_cases(), *nvfp4_cases(), *int4_cases()]}


# -------------------------------------------------------------------------------------------------------------- routing

EXPERTS, TOKENS = 16, 6


def run_router(make, config, bias, logits):
    """A router module on given logits: its weight is the identity, so that hidden states are logits."""
    size = logits.shape[1]
    router = make(SimpleNamespace(hidden_size=size, num_local_experts=size, num_experts=size, n_routed_experts=size,
                                  zero_expert_num=0, moe_norm_min=1e-12, **config))
    weight = router.classifier.weight if hasattr(router, "classifier") else router.weight
    extra = ()
    with torch.no_grad():
        weight.copy_(torch.eye(size))
        if bias is not None:
            if hasattr(router, "moe_statics"):
                router.moe_statics.e_score_correction_bias.copy_(bias[None])
            elif hasattr(router, "e_score_correction_bias"):
                router.e_score_correction_bias.copy_(bias)
            else:
                extra = (bias,)
        result = router(logits, *extra)
    if make is Llama4Router:
        weights, ids = torch.topk(result[0], config["num_experts_per_tok"], dim=1)
        return weights, ids
    return result[1], result[2]


def routing_case(name, make, config, router, with_bias=False):
    top_k = config["num_experts_per_tok"]
    rng = np.random.default_rng(sum(name.encode()))
    logits = torch.from_numpy((rng.standard_normal((TOKENS, EXPERTS)) * 2).astype(np.float32))
    bias = torch.from_numpy((rng.standard_normal(EXPERTS) * 0.3).astype(np.float32)) if with_bias else None
    weights, ids = run_router(make, config, bias, logits)
    # Some modules leave the chosen unsorted; the order of ids is not part of the case.
    order = ids.argsort(dim=1)
    return {"name": name, "top_k": top_k, "experts": EXPERTS, "router": router | {"correction_bias": with_bias},
            "tokens": TOKENS, "logits": hexed(logits), "bias": hexed(bias) if with_bias else "",
            "ids": ids.gather(1, order).flatten().tolist(), "weights": digits(weights.gather(1, order).flatten(), 7)}


def routing():
    def plain(score, renormalize=True, **more):
        return {"score": score, "renormalize": renormalize, **more}

    grouped = {"n_group": 4, "topk_group": 2}
    ours = {"groups": 4, "top_groups": 2}
    cases = [
        routing_case("Mixtral", MixtralTopKRouter, {"num_experts_per_tok": 2}, plain("softmax_topk")),
        routing_case("Mixtral as softmax of all, renormalised", MixtralTopKRouter, {"num_experts_per_tok": 2},
                     plain("softmax")),
        routing_case("Qwen3, norm_topk_prob", Qwen3MoeTopKRouter, {"num_experts_per_tok": 4, "norm_topk_prob": True},
                     plain("softmax")),
        routing_case("Qwen2, no norm_topk_prob", Qwen3MoeTopKRouter,
                     {"num_experts_per_tok": 4, "norm_topk_prob": False}, plain("softmax", False)),
        routing_case("DeepSeek-V2, group_limited_greedy", DeepseekV2TopkRouter,
                     {"num_experts_per_tok": 3, "routed_scaling_factor": 16.0, "topk_method": "group_limited_greedy",
                      **grouped}, plain("softmax", False, scaling=16.0, group_score="max", **ours)),
        routing_case("DeepSeek-V2-Lite, greedy", DeepseekV2TopkRouter,
                     {"num_experts_per_tok": 3, "routed_scaling_factor": 1.0, "topk_method": "greedy", "n_group": 1,
                      "topk_group": 1}, plain("softmax", False)),
        routing_case("DeepSeek-V3, noaux_tc", DeepseekV3TopkRouter,
                     {"num_experts_per_tok": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": True, **grouped},
                     plain("sigmoid", scaling=2.5, group_score="top2_sum", **ours), with_bias=True),
        routing_case("GLM-4.5, one group", DeepseekV3TopkRouter,
                     {"num_experts_per_tok": 4, "routed_scaling_factor": 1.0, "norm_topk_prob": True, "n_group": 1,
                      "topk_group": 1}, plain("sigmoid", group_score="top2_sum"), with_bias=True),
        routing_case("MiniMax-M2", MiniMaxM2TopKRouter, {"num_experts_per_tok": 4}, plain("sigmoid"), with_bias=True),
        routing_case("DeepSeek-V4, sqrtsoftplus", DeepseekV4TopKRouter,
                     {"num_experts_per_tok": 3, "routed_scaling_factor": 1.5, "scoring_func": "sqrtsoftplus"},
                     plain("sqrt_softplus", scaling=1.5), with_bias=True),
        routing_case("gpt-oss", GptOssTopKRouter, {"num_experts_per_tok": 4}, plain("softmax_topk")),
        routing_case("Llama 4", Llama4Router, {"num_experts_per_tok": 1}, plain("sigmoid_topk", False)),
        routing_case("Llama 4 with two experts", Llama4Router, {"num_experts_per_tok": 2}, plain("sigmoid_topk", False)),
        routing_case("ERNIE 4.5", Ernie4_5_MoeTopKRouter, {"num_experts_per_tok": 4}, plain("softmax"), with_bias=True),
        routing_case("LongCat-Flash, no identity experts", LongcatFlashTopkRouter,
                     {"num_experts_per_tok": 4, "routed_scaling_factor": 6.0}, plain("softmax", False, scaling=6.0),
                     with_bias=True),
    ]
    return {"cases": cases}


# --------------------------------------------------------------------------------------------------------------- layers

LAYER = {"experts": 4, "hidden": 16, "intermediate": 12}
LAYER_TOKENS, LAYER_TOP_K = 7, 3


def bf16_tensor(rng, *shape, scale=1.0):
    """Values that bfloat16 holds exactly."""
    return torch.from_numpy((rng.standard_normal(shape) * scale).astype(ml_dtypes.bfloat16).astype(np.float64))


def hexed_bf16(tensor):
    return hexed(tensor.to(torch.bfloat16).view(torch.int16))


def f32_tensor(rng, *shape):
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32).astype(np.float64))


def fill(module, **tensors):
    with torch.no_grad():
        for name, tensor in tensors.items():
            getattr(module, name).copy_(tensor)


def experts_module(make, gate, up, down, **config):
    """An experts module in float64 with gate and up side by side; gate None: without."""
    experts, intermediate, hidden = up.shape
    module = make(SimpleNamespace(num_local_experts=experts, n_routed_experts=experts, hidden_size=hidden,
                                  intermediate_size=intermediate, moe_intermediate_size=intermediate,
                                  moe_latent_size=None, _experts_implementation="eager", **config)).double()
    if gate is None:
        fill(module, up_proj=up, down_proj=down)
    else:
        fill(module, gate_up_proj=torch.cat([gate, up], dim=1), down_proj=down)
    return module


def gpt_oss_module(gate, up, down, biases, alpha, limit):
    """gpt-oss interleaves gate and up, and stores its matrices as input × output."""
    experts, intermediate, hidden = up.shape
    module = GptOssExperts(SimpleNamespace(num_local_experts=experts, hidden_size=hidden, swiglu_alpha=alpha,
                                           intermediate_size=intermediate, swiglu_limit=limit,
                                           _experts_implementation="eager")).double()
    fill(module, gate_up_proj=torch.stack([gate.mT, up.mT], dim=3).reshape(experts, hidden, 2 * intermediate),
         gate_up_proj_bias=torch.stack(biases[:2], dim=2).reshape(experts, 2 * intermediate), down_proj=down.mT,
         down_proj_bias=biases[2])
    return module


def layer_parts(seed, gated, scale=0.4):
    rng = np.random.default_rng(seed)
    experts, hidden, intermediate = LAYER["experts"], LAYER["hidden"], LAYER["intermediate"]
    gate = bf16_tensor(rng, experts, intermediate, hidden, scale=scale) if gated else None
    up = bf16_tensor(rng, experts, intermediate, hidden, scale=scale)
    down = bf16_tensor(rng, experts, hidden, intermediate, scale=scale)
    x = bf16_tensor(rng, LAYER_TOKENS, hidden)
    ids = torch.from_numpy(rng.integers(0, experts, (LAYER_TOKENS, LAYER_TOP_K)))  # duplicates occur
    weights = torch.from_numpy(rng.random((LAYER_TOKENS, LAYER_TOP_K)).astype(np.float32).astype(np.float64))
    return rng, gate, up, down, x, ids, weights


def layer_case(name, problem, gate, up, down, x, ids, weights, output, biases=None):
    problem = {**LAYER, "experts_global": LAYER["experts"], "top_k": ids.shape[1], "gated": gate is not None,
               "bias": biases is not None, **problem}
    stacks = {"gate": hexed_bf16(gate) if gate is not None else "", "up": hexed_bf16(up), "down": hexed_bf16(down)}
    names = ("gate_bias", "up_bias", "down_bias")
    stored = {n: hexed(b.float()) for n, b in zip(names, biases)} if biases else {n: "" for n in names}
    return {"name": name, "problem": problem, **stacks, **stored, "tokens": x.shape[0], "input": hexed_bf16(x),
            "ids": ids.flatten().tolist(), "weights": hexed(weights.float()), "output": digits(output.flatten(), 12)}


def experts_case(name, seed, make, activation, gated=True, absent=0.0, scale=0.4, **config):
    rng, gate, up, down, x, ids, weights = layer_parts(seed, gated, scale)
    module = experts_module(make, gate, up, down, **config)
    # The modules take the number of experts for "no expert here"; we write -1.
    gone = torch.from_numpy(rng.random(ids.shape) < absent)
    with torch.no_grad():
        output = module(x, ids.masked_fill(gone, up.shape[0]), weights)
    return layer_case(name, {"activation": activation}, gate, up, down, x, ids.masked_fill(gone, -1), weights, output)


def gpt_oss_case():
    rng, gate, up, down, x, ids, weights = layer_parts(40, True, scale=1.0)
    biases = [f32_tensor(rng, LAYER["experts"], n) for n in (LAYER["intermediate"],) * 2 + (LAYER["hidden"],)]
    module = gpt_oss_module(gate, up, down, biases, 1.702, 2.0)
    with torch.no_grad():
        output = module(x, ids, weights)
    activation = {"kind": "swiglu_oai", "alpha": 1.702, "limit": 2.0}
    return layer_case("gpt-oss: clamped, with biases", {"activation": activation}, gate, up, down, x, ids, weights,
                      output, biases)


def llama4_case():
    """The whole block, its shared expert silenced; the router's weight multiplies the input of the expert."""
    rng, gate, up, down, x, _, _ = layer_parts(41, True)
    experts, hidden, intermediate = LAYER["experts"], LAYER["hidden"], LAYER["intermediate"]
    block = Llama4TextMoe(SimpleNamespace(num_local_experts=experts, hidden_size=hidden, hidden_act="silu",
                                          intermediate_size=intermediate, num_experts_per_tok=2)).double()
    fill(block.experts, gate_up_proj=torch.cat([gate, up], dim=1).mT, down_proj=down.mT)
    with torch.no_grad():
        block.router.weight.copy_(f32_tensor(rng, experts, hidden))
        block.shared_expert.down_proj.weight.zero_()
        output, _ = block(x)
        weights, ids = torch.topk(block.router(x)[0], 2, dim=1)
    problem = {"activation": {"kind": "silu"}, "router": {"score": "sigmoid_topk", "renormalize": False,
                                                          "weight_on_input": True}}
    return layer_case("Llama 4: weight on the input", problem, gate, up, down, x, ids, weights, output)


def mlp_case(name, seed, make, activation, gated, **config):
    rng = np.random.default_rng(seed)
    hidden, intermediate = LAYER["hidden"], LAYER["intermediate"]
    gate = bf16_tensor(rng, intermediate, hidden, scale=0.4) if gated else None
    up, down = bf16_tensor(rng, intermediate, hidden, scale=0.4), bf16_tensor(rng, hidden, intermediate, scale=0.4)
    x = bf16_tensor(rng, LAYER_TOKENS, hidden)
    module = make(SimpleNamespace(hidden_size=hidden, intermediate_size=intermediate, mlp_bias=False, **config)).double()
    with torch.no_grad():
        for part, matrix in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
            if matrix is not None:
                getattr(module, part).weight.copy_(matrix)
        output = module(x)
    return {"name": name, "activation": activation, "hidden": hidden, "intermediate": intermediate,
            "gate": hexed_bf16(gate) if gated else "", "up": hexed_bf16(up), "down": hexed_bf16(down),
            "tokens": LAYER_TOKENS, "input": hexed_bf16(x), "output": digits(output.flatten(), 12)}


def activation_tables():
    x = torch.cat([torch.linspace(-12, 12, 97, dtype=torch.float64), torch.tensor([-700.0, 1e-9, 80.0, 700.0]).double()])
    functional = torch.nn.functional
    functions = {"silu": functional.silu, "gelu": functional.gelu,
                 "gelu_tanh": lambda v: functional.gelu(v, approximate="tanh"), "relu2": lambda v: v.relu().square()}
    return {"x": x.tolist(), **{name: digits(f(x), 14) for name, f in functions.items()}}


def layers():
    clamped = {"kind": "silu_clamped", "limit": 1.0}
    oai = {"kind": "swiglu_oai", "alpha": 1.702, "limit": 1.5}
    cases = [
        experts_case("Mixtral: silu", 30, MixtralExperts, {"kind": "silu"}, hidden_act="silu"),
        experts_case("Mixtral with absent experts", 31, MixtralExperts, {"kind": "silu"}, absent=0.4,
                     hidden_act="silu"),
        experts_case("gelu", 32, MixtralExperts, {"kind": "gelu"}, hidden_act="gelu"),
        experts_case("gelu_tanh", 33, MixtralExperts, {"kind": "gelu_tanh"}, hidden_act="gelu_pytorch_tanh"),
        experts_case("relu2, gated", 34, MixtralExperts, {"kind": "relu2"}, hidden_act="relu2"),
        experts_case("Nemotron-H: relu2, not gated", 35, NemotronHExperts, {"kind": "relu2"}, gated=False,
                     mlp_hidden_act="relu2"),
        experts_case("silu, not gated", 36, NemotronHExperts, {"kind": "silu"}, gated=False, mlp_hidden_act="silu"),
        experts_case("gelu, not gated", 37, NemotronHExperts, {"kind": "gelu"}, gated=False, mlp_hidden_act="gelu"),
        experts_case("DeepSeek-V4: silu_clamped", 38, DeepseekV4Experts, clamped, scale=0.8, hidden_act="silu",
                     swiglu_limit=1.0),
        experts_case("MiniMax-M3: clamped, no biases", 39, MiniMaxM3VLExperts, oai, scale=0.8, swiglu_alpha=1.702,
                     swiglu_limit=1.5),
        gpt_oss_case(),
        llama4_case(),
    ]
    mlps = [
        mlp_case("DeepSeek-V3's shared expert", 50, DeepseekV3MLP, {"kind": "silu"}, True, hidden_act="silu"),
        mlp_case("Nemotron-H's shared expert", 51, NemotronHMLP, {"kind": "relu2"}, False, mlp_hidden_act="relu2"),
    ]
    return {"activations": activation_tables(), "layers": cases, "mlps": mlps}


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    torch.set_num_threads(1)
    write(folder, "formats/elements.json", elements())
    write(folder, "formats/matrices.json", matrices())
    write(folder, "moe/routing.json", routing())
    write(folder, "moe/layers.json", layers())


if __name__ == "__main__":
    main()
