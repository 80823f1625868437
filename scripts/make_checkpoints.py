#!/usr/bin/env python3
"""Makes the small checkpoints that the tests of src/model/ read: tests/fixtures/checkpoints/.

Each folder is what a Hugging Face repository holds of a tiny model: config.json and safetensors files, in the layout of one
family and one number format. Names and arrangement of unquantised tensors come from transformers' own models and their
save_pretrained; quantised ones from compressed-tensors, torch and ml_dtypes, or packed here and unpacked by them. Beside
them lies what the experts' weights are, from those same packages: expected.bin, expert after expert, gate (where there is
one), up, down, each row-major with a row per output; bias.bin likewise. cases.json describes every folder.

    pip install torch==2.15.0 numpy==2.4.6 ml_dtypes==0.6.0 safetensors==0.8.0 compressed-tensors==0.20.1 transformers==5.24.0
    python scripts/make_checkpoints.py [OUTPUT_FOLDER]

The seeds are fixed: with these versions the files come out the same, byte for byte.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import ml_dtypes
import numpy as np
import torch
import transformers
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4, unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.models.dbrx.configuration_dbrx import DbrxFFNConfig
from transformers.models.dbrx.modeling_dbrx import DbrxExperts
from transformers.models.llama4 import Llama4ForCausalLM, Llama4TextConfig
from transformers.models.qwen3_vl_moe import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/fixtures/checkpoints"
E4M3 = torch.float8_e4m3fn
CASES = []


# -------------------------------------------------------------------------------------------------------------- writing


UNUSED = ("transformers_version", "_name_or_path", "dtype", "id2label", "label2id", "problem_type", "return_dict",
          "output_attentions", "output_hidden_states", "chunk_size_feed_forward", "is_encoder_decoder", "vision_config")


def clean(config):
    """config.json without what is empty or of no use to a reader of the text model."""
    return {k: clean(v) if isinstance(v, dict) else v for k, v in config.items() if k not in UNUSED and v is not None}


def write_case(name, tensors, config, expected, case, biases=None, exact_bf16=False):
    """One folder. `expected`: for every expert [gate or None, up, down], float32."""
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    if tensors is not None:
        save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, separators=(",", ":"), sort_keys=True) + "\n")
    values = torch.cat([m.detach().float().flatten() for expert in expected for m in expert if m is not None])
    if exact_bf16:
        assert torch.equal(values.bfloat16().float(), values)
        (folder / "expected.bin").write_bytes(values.bfloat16().view(torch.int16).numpy().tobytes())
    else:
        (folder / "expected.bin").write_bytes(values.numpy().tobytes())
    if biases is not None:
        (folder / "bias.bin").write_bytes(torch.cat([b.detach().float().flatten() for e in biases for b in e]).numpy().tobytes())
    gate, up, down = expected[0]
    CASES.append({"folder": name, "layer": 0, "experts": len(expected), "hidden": up.shape[1],
                  "intermediate": up.shape[0], "gated": gate is not None, "bias": biases is not None,
                  "expected": "bf16" if exact_bf16 else "f32", "tolerance": 0.0, "tp": 2, **case})


def weights(fmt, block_n=0, block_k=0, zero_point=False):
    return {"format": fmt, "block_n": block_n, "block_k": block_k, "zero_point": zero_point}


def random(*shape, scale=0.1):
    return torch.randn(*shape) * scale


# ----------------------------------------------------------------------------- unquantised: as transformers saves them


def saved(model, shard_size="1GB", dtype=torch.bfloat16):
    """Every file that save_pretrained writes, by name: tensors, index and config."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    model.to(dtype)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size=shard_size)
        files = {p.name: p.read_bytes() for p in pathlib.Path(folder).iterdir()}
        tensors = {}
        for path in pathlib.Path(folder).glob("*.safetensors"):
            tensors.update(load_file(path))
    return files, tensors


def halves(gate_up, down):
    """[E, 2I, H] and [E, H, I] as transformers keeps them in memory."""
    gate, up = gate_up.float().chunk(2, dim=1)
    return [[gate[e], up[e], down[e].float()] for e in range(down.shape[0])]


def only(tensors, *parts):
    return {k: v.clone() for k, v in tensors.items() if all(p in k for p in parts)}


BASE = dict(vocab_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
            pad_token_id=0)
MOE = dict(moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2)


def mixtral_sharded():
    torch.manual_seed(1)
    config = transformers.MixtralConfig(**(BASE | {"vocab_size": 8}), intermediate_size=8, num_local_experts=4, num_experts_per_tok=2)
    model = transformers.MixtralForCausalLM(config)
    files, _ = saved(model, "4KB")
    folder = OUT / "mixtral_sharded"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if "safetensors" in name:
            (folder / name).write_bytes(content)
    experts = model.model.layers[1].mlp.experts
    write_case("mixtral_sharded", None, clean(config.to_dict()), halves(experts.gate_up_proj, experts.down_proj),
               {"weights": weights("bf16"), "layer": 1}, exact_bf16=True)


def qwen3_moe(dtype, name):
    """Layer 0 dense; in bf16 a draft head with experts of its own beside the model."""
    torch.manual_seed(2)
    config = transformers.Qwen3MoeConfig(**BASE, **MOE, intermediate_size=8, mlp_only_layers=[0])
    model = transformers.Qwen3MoeForCausalLM(config)
    _, tensors = saved(model, dtype=dtype)
    tensors = only(tensors, "mlp")
    if dtype == torch.bfloat16:
        tensors |= {k.replace("model.layers.1", "mtp.layers.1"): v + 1 for k, v in tensors.items() if "layers.1" in k}
    experts = model.model.layers[1].mlp.experts
    write_case(name, tensors, clean(config.to_dict()) | {"dtype": str(dtype).split(".")[1]},
               halves(experts.gate_up_proj, experts.down_proj),
               {"weights": weights("fp16" if dtype == torch.float16 else "bf16"), "layer": 1},
               exact_bf16=dtype == torch.bfloat16)


def qwen3_vl():
    """The repository's files hold the fused tensors transposed, which transformers undoes as it loads them."""
    torch.manual_seed(3)
    text = dict(**BASE, **(MOE | {"moe_intermediate_size": 12}), intermediate_size=8,
                rope_parameters={"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4})
    vision = dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=16,
                  deepstack_visual_indexes=[0], num_position_embeddings=16)
    config = Qwen3VLMoeConfig(text_config=text, vision_config=vision)
    model = Qwen3VLMoeForConditionalGeneration(config)
    files, tensors = saved(model)
    plain = only(tensors, "layers.0.mlp")
    turned = {k: v.transpose(1, 2).contiguous() if "experts" in k else v for k, v in tensors.items()}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_bytes(files["config.json"])
        save_file(turned, pathlib.Path(folder) / "model.safetensors", {"format": "pt"})
        loaded = Qwen3VLMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16)
    experts = loaded.model.language_model.layers[0].mlp.experts
    expected = halves(experts.gate_up_proj, experts.down_proj)
    turned = only(turned, "layers.0.mlp")
    assert turned["model.language_model.layers.0.mlp.experts.gate_up_proj"].shape == (4, 16, 24)
    write_case("qwen3_vl_moe", turned, clean(config.to_dict()), expected, {"weights": weights("bf16")}, exact_bf16=True)
    write_case("fused_plain", plain, clean(config.to_dict()), expected, {"weights": weights("bf16")}, exact_bf16=True)


def llama4():
    torch.manual_seed(4)
    config = Llama4TextConfig(**BASE, intermediate_size=8, intermediate_size_mlp=8, num_local_experts=4,
                              num_experts_per_tok=1)
    model = Llama4ForCausalLM(config)
    _, tensors = saved(model)
    experts = model.model.layers[0].feed_forward.experts
    expected = []
    for e in range(4):
        gate, up = experts.gate_up_proj[e].float().chunk(2, dim=-1)
        expected.append([gate.T, up.T, experts.down_proj[e].float().T])
    tensors = {"language_model." + k: v for k, v in only(tensors, "layers.0.feed_forward").items()}
    write_case("llama4", tensors, clean(config.to_dict()), expected, {"weights": weights("bf16")}, exact_bf16=True)


def granite():
    torch.manual_seed(5)
    config = transformers.GraniteMoeConfig(**{k: v for k, v in BASE.items() if k != "head_dim"}, intermediate_size=8,
                                           num_local_experts=4, num_experts_per_tok=2)
    model = transformers.GraniteMoeForCausalLM(config)
    _, tensors = saved(model)
    experts = model.model.layers[0].block_sparse_moe.experts
    write_case("granite", only(tensors, "layers.0.block_sparse_moe"), clean(config.to_dict()),
               halves(experts.gate_up_proj, experts.down_proj), {"weights": weights("bf16")}, exact_bf16=True)


def gpt_oss():
    torch.manual_seed(6)
    config = transformers.GptOssConfig(**BASE, intermediate_size=8, num_local_experts=4, num_experts_per_tok=2)
    model = transformers.GptOssForCausalLM(config)
    _, tensors = saved(model)
    experts = model.model.layers[0].mlp.experts
    expected, biases = [], []
    for e in range(4):
        gate_up, bias = experts.gate_up_proj[e].float(), experts.gate_up_proj_bias[e]
        expected.append([gate_up[:, ::2].T, gate_up[:, 1::2].T, experts.down_proj[e].float().T])
        biases.append([bias[::2], bias[1::2], experts.down_proj_bias[e]])
    write_case("gpt_oss_bf16", only(tensors, "layers.0.mlp"), clean(config.to_dict()), expected,
               {"weights": weights("bf16")}, biases=biases, exact_bf16=True)


def nemotron_h():
    torch.manual_seed(7)
    base = {k: v for k, v in BASE.items() if k != "num_hidden_layers"}
    config = transformers.NemotronHConfig(**base, layers_block_type=["moe", "attention"], intermediate_size=8,
                                          moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2,
                                          moe_shared_expert_intermediate_size=8)
    model = transformers.NemotronHForCausalLM(config)
    _, tensors = saved(model)
    experts = model.model.layers[0].mixer.experts
    write_case("nemotron_h", only(tensors, "layers.0.mixer"), clean(config.to_dict()),
               [[None, experts.up_proj[e].float(), experts.down_proj[e].float()] for e in range(4)],
               {"weights": weights("bf16")}, exact_bf16=True)


def dbrx():
    torch.manual_seed(8)
    ffn = dict(ffn_hidden_size=8, moe_num_experts=4, moe_top_k=2, hidden_size=16)
    module = DbrxExperts(DbrxFFNConfig(**ffn))
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    module.to(torch.bfloat16)
    tensors = {f"transformer.blocks.0.ffn.experts.{k}": v.clone() for k, v in module.state_dict().items()}
    w1, v1, w2 = (getattr(module.mlp, n).float().view(4, 8, 16) for n in ("w1", "v1", "w2"))
    config = {"model_type": "dbrx", "architectures": ["DbrxForCausalLM"], "d_model": 16, "n_layers": 1, "n_heads": 2,
              "vocab_size": 16, "ffn_config": ffn}
    write_case("dbrx", tensors, config, [[w1[e], v1[e], w2[e].T] for e in range(4)], {"weights": weights("bf16")},
               exact_bf16=True)


def step3():
    """Names from transformers' conversion table of step3p7: moe.{gate,up,down}_proj.weight, stacked."""
    torch.manual_seed(9)
    gate, up, down = random(4, 8, 16).bfloat16(), random(4, 8, 16).bfloat16(), random(4, 16, 8).bfloat16()
    tensors = {f"model.layers.0.moe.{n}_proj.weight": t for n, t in (("gate", gate), ("up", up), ("down", down))}
    config = {"model_type": "step3p7", "hidden_size": 16, "num_hidden_layers": 1, "moe_num_experts": 4, "moe_top_k": 2,
              "moe_intermediate_size": 8}
    write_case("step3", tensors, config, [[gate[e], up[e], down[e]] for e in range(4)], {"weights": weights("bf16")},
               exact_bf16=True)


# ------------------------------------------------------------------------------------------------------------ quantised


def per_expert(experts, hidden, intermediate, make, names=("gate_proj", "up_proj", "down_proj"),
               root="model.layers.0.mlp.experts"):
    """make(weight) -> ({suffix: tensor}, dequantised float32) for every expert and projection."""
    tensors, expected = {}, []
    for e in range(experts):
        expected.append([])
        for name, shape in zip(names, ((intermediate, hidden), (intermediate, hidden), (hidden, intermediate))):
            parts, values = make(random(*shape))
            assert values.shape == shape and values.dtype == torch.float32
            tensors |= {f"{root}.{e}.{name}.{suffix}": tensor for suffix, tensor in parts.items()}
            expected[-1].append(values)
    return tensors, expected


def qwen3_config(experts, hidden, intermediate, quantization):
    config = transformers.Qwen3MoeConfig(**(BASE | {"hidden_size": hidden}), intermediate_size=intermediate,
                                         moe_intermediate_size=intermediate, num_experts=experts,
                                         num_experts_per_tok=2 if experts > 2 else 1)
    return clean(config.to_dict()) | {"quantization_config": quantization}


def fp8(name, block, scale_name, scale_dtype, quantization):
    """block: (rows, columns) that share a scale, None for all of that side."""
    torch.manual_seed(20)

    def make(weight):
        n, k = weight.shape
        bn, bk = block[0] or n, block[1] or k
        tiles = weight.view(n // bn, bn, k // bk, bk)
        scale = (tiles.abs().amax(dim=(1, 3)) / 448 * (1 + torch.rand(n // bn, k // bk))).to(scale_dtype)
        wide = scale.float().repeat_interleave(bn, 0).repeat_interleave(bk, 1)
        codes = (weight / wide).to(E4M3)
        stored = scale if block != (None, None) else scale.reshape(())
        return {"weight": codes, scale_name: stored}, codes.float() * wide

    tensors, expected = per_expert(2, 16, 16, make)
    spec = (weights("fp8_tensor") if block == (None, None) else weights("fp8_channel") if block[1] is None
            else weights("fp8_block", *block))
    write_case(name, tensors, qwen3_config(2, 16, 16, quantization), expected, {"weights": spec})


def fp8_fused():
    """As Qwen3-VL's FP8 files: three-dimensional, transposed, with gate_up_proj_scale_inv."""
    torch.manual_seed(21)
    experts, hidden, intermediate, block = 2, 16, 16, 8

    def make(rows, columns):
        codes = random(experts, rows, columns, scale=20.0).to(E4M3)
        scale = torch.rand(experts, rows // block, columns // block) * 1e-3 + 1e-4
        return codes, scale, codes.float() * scale.repeat_interleave(block, 1).repeat_interleave(block, 2)

    gate_up, gate_up_scale, gate_up_values = make(hidden, 2 * intermediate)
    down, down_scale, down_values = make(intermediate, hidden)
    root = "model.language_model.layers.0.mlp.experts."
    tensors = {root + "gate_up_proj": gate_up, root + "gate_up_proj_scale_inv": gate_up_scale, root + "down_proj": down,
               root + "down_proj_scale_inv": down_scale}
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [block, block],
                    "activation_scheme": "dynamic"}
    expected = [[gate_up_values[e, :, :intermediate].T, gate_up_values[e, :, intermediate:].T, down_values[e].T]
                for e in range(experts)]
    write_case("fp8_block_fused", tensors, qwen3_config(experts, hidden, intermediate, quantization), expected,
               {"weights": weights("fp8_block", block, block)})


NVFP4 = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)


def nvfp4(name, modelopt):
    torch.manual_seed(22)

    def make(weight):
        n, k = weight.shape
        global_scale = generate_gparam(weight.min().reshape(1), weight.max().reshape(1)).float()
        groups = weight.view(n, k // 16, 16)
        scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), NVFP4, global_scale=global_scale)
        group_scale = scale.to(E4M3)
        scale = group_scale.float()
        packed = quantize_and_pack_fp4(weight, scale, global_scale=global_scale, group_size=16)
        elements = unpack_fp4_from_uint8(packed, n, k, dtype=torch.float32)
        values = dequantize(elements, scale, args=NVFP4, global_scale=global_scale, dtype=torch.float32)
        if modelopt:
            return {"weight": packed, "weight_scale": group_scale, "weight_scale_2": (1 / global_scale).reshape(()),
                    "input_scale": torch.tensor(0.01)}, values
        return {"weight_packed": packed, "weight_scale": group_scale, "weight_global_scale": global_scale,
                "input_global_scale": torch.tensor([100.0])}, values

    tensors, expected = per_expert(2, 16, 32, make)
    quantization = ({"quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"},
                     "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
                     "ignore": ["lm_head"]} if modelopt else
                    {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["lm_head"],
                     "config_groups": {"group_0": {"targets": ["Linear"], "format": "nvfp4-pack-quantized",
                                                   "weights": {"num_bits": 4, "type": "float", "symmetric": True,
                                                               "strategy": "tensor_group", "group_size": 16}}}})
    # The reciprocal of a reciprocal and another order of the two products: three roundings of 2^-24.
    write_case(name, tensors, qwen3_config(2, 16, 32, quantization), expected,
               {"weights": weights("nvfp4", 0, 16), "tolerance": 2.0 ** -22})


def mx_parts(n, k):
    """Random e2m1 bytes [n, k / 2] and e8m0 codes [n, k / 32]."""
    packed = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
    return packed, torch.randint(118, 126, (n, k // 32), dtype=torch.uint8)


def mx_values(packed, scale):
    """By ml_dtypes."""
    codes = np.stack([packed.numpy() & 15, packed.numpy() >> 4], -1).reshape(packed.shape[0], -1)
    elements = codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    scales = scale.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    return torch.from_numpy(elements * np.repeat(scales, 32, axis=1))


def mxfp4_gpt_oss():
    torch.manual_seed(23)
    experts, hidden, intermediate = 2, 32, 64
    root = "model.layers.0.mlp.experts."
    tensors = {root + "gate_up_proj_blocks": torch.randint(0, 256, (experts, 2 * intermediate, hidden // 32, 16),
                                                           dtype=torch.uint8),
               root + "gate_up_proj_scales": torch.randint(118, 126, (experts, 2 * intermediate, hidden // 32),
                                                           dtype=torch.uint8),
               root + "gate_up_proj_bias": random(experts, 2 * intermediate).bfloat16(),
               root + "down_proj_blocks": torch.randint(0, 256, (experts, hidden, intermediate // 32, 16),
                                                        dtype=torch.uint8),
               root + "down_proj_scales": torch.randint(118, 126, (experts, hidden, intermediate // 32),
                                                        dtype=torch.uint8),
               root + "down_proj_bias": random(experts, hidden).bfloat16()}
    gate_up, down = (convert_moe_packed_tensors(tensors[f"{root}{n}_blocks"], tensors[f"{root}{n}_scales"])
                     for n in ("gate_up_proj", "down_proj"))
    assert gate_up.shape == (experts, hidden, 2 * intermediate)
    expected = [[gate_up[e][:, ::2].T, gate_up[e][:, 1::2].T, down[e].T] for e in range(experts)]
    bias = tensors[root + "gate_up_proj_bias"]
    biases = [[bias[e, ::2], bias[e, 1::2], tensors[root + "down_proj_bias"][e]] for e in range(experts)]
    config = transformers.GptOssConfig(**(BASE | {"hidden_size": hidden}), intermediate_size=intermediate,
                                       num_local_experts=experts, num_experts_per_tok=1)
    write_case("mxfp4_gpt_oss", tensors, clean(config.to_dict()) | {
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}},
        expected, {"weights": weights("mxfp4", 0, 32)}, biases=biases, exact_bf16=True)


def mxfp4_compressed_tensors():
    torch.manual_seed(24)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
        num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, scale_dtype="torch.uint8"))

    def make(weight):
        packed, scale = mx_parts(*weight.shape)
        parts = {"weight_packed": packed, "weight_scale": scale}
        return parts, MXFP4PackedCompressor.decompress(parts, scheme)["weight"].float()

    tensors, expected = per_expert(2, 32, 32, make)
    quantization = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "ignore": ["lm_head"],
                    "config_groups": {"group_0": {"targets": ["Linear"], "format": "mxfp4-pack-quantized",
                                                  "weights": {"num_bits": 4, "type": "float", "symmetric": True,
                                                              "strategy": "group", "group_size": 32}}}}
    write_case("mxfp4_compressed_tensors", tensors, qwen3_config(2, 32, 32, quantization), expected,
               {"weights": weights("mxfp4", 0, 32), "tp": 1}, exact_bf16=True)


def mxfp4_deepseek_v4():
    """Names of the repository's own files: layers.N.ffn.experts.E.{w1,w2,w3}.{weight,scale}, packed as I8."""
    torch.manual_seed(25)

    def make(weight):
        packed, scale = mx_parts(*weight.shape)
        return {"weight": packed.view(torch.int8), "scale": scale.view(torch.float8_e8m0fnu)}, mx_values(packed, scale)

    tensors, expected = per_expert(2, 32, 64, make, ("w1", "w3", "w2"), "layers.0.ffn.experts")
    config = {"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 32,
              "num_hidden_layers": 1, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 64,
              "n_shared_experts": 1, "scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "routed_scaling_factor": 1.5,
              "swiglu_limit": 10.0, "expert_dtype": "fp4", "num_hash_layers": 0,
              "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0",
                                      "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}
    write_case("mxfp4_deepseek_v4", tensors, config, expected, {"weights": weights("mxfp4", 0, 32)}, exact_bf16=True)


def mxfp8():
    torch.manual_seed(26)

    def make(weight):
        n, k = weight.shape
        codes = (weight * 1000).to(E4M3)
        scale = torch.randint(112, 120, (n, k // 32), dtype=torch.uint8)
        wide = scale.view(torch.float8_e8m0fnu).float().repeat_interleave(32, 1)
        return {"weight": codes, "weight_scale": scale}, codes.float() * wide

    tensors, expected = per_expert(2, 32, 32, make)
    quantization = {"quant_method": "modelopt", "quant_algo": "MXFP8", "producer": {"name": "modelopt"},
                    "ignore": ["lm_head"]}
    write_case("mxfp8", tensors, qwen3_config(2, 32, 32, quantization), expected,
               {"weights": weights("mxfp8", 0, 32), "tp": 1}, exact_bf16=True)


def int4_args(symmetric):
    return QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=16, symmetric=symmetric)


def int4_quantised(weight, symmetric, scale_dtype):
    """Signed codes [n, k], scales and signed zero points [n, k / 16], by compressed-tensors."""
    n, k = weight.shape
    groups = weight.view(n, k // 16, 16)
    args = int4_args(symmetric)
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
    scale = scale.to(scale_dtype).float()
    codes = quantize(weight, scale, zero, args, dtype=torch.int8)
    return codes, scale, zero.to(torch.int8)


def int4_compressed_tensors(symmetric):
    torch.manual_seed(27)

    def make(weight):
        codes, scale, zero = int4_quantised(weight, symmetric, torch.bfloat16)
        parts = {"weight_packed": pack_to_int32(codes, 4), "weight_scale": scale.bfloat16(),
                 "weight_shape": torch.tensor(weight.shape)}
        if not symmetric:
            parts["weight_zero_point"] = pack_to_int32(zero, 4, packed_dim=0)
            zero = unpack_from_int32(parts["weight_zero_point"], 4, zero.shape, packed_dim=0)
        values = dequantize(unpack_from_int32(parts["weight_packed"], 4, weight.shape), scale,
                            None if symmetric else zero, int4_args(symmetric), dtype=torch.float32)
        return parts, values

    tensors, expected = per_expert(2, 16, 32, make)
    quantization = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                        "num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": 16}}}}
    name = "int4_compressed_tensors" + ("" if symmetric else "_asymmetric")
    write_case(name, tensors, qwen3_config(2, 16, 32, quantization), expected,
               {"weights": weights("int4", 0, 16, not symmetric)})


def pack_words(nibbles, order, axis):
    """Eight neighbours along `axis` to an int32, the one at place order[i] in bits 4i."""
    nibbles = np.moveaxis(nibbles.astype(np.uint32), axis, -1)
    words = np.zeros(nibbles.shape[:-1] + (nibbles.shape[-1] // 8,), np.uint32)
    for i, place in enumerate(order):
        words |= nibbles[..., place::8] << np.uint32(4 * i)
    return torch.from_numpy(np.moveaxis(words, -1, axis).copy().view(np.int32))


def int4_awq():
    torch.manual_seed(28)
    converter = AutoAWQConverter(group_size=16)

    def make(weight):
        codes, scale, zero = int4_quantised(weight, False, torch.float16)
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        qweight = pack_words((codes.T + 8).numpy(), order, 1)
        qzeros = pack_words((zero.T + 8).numpy(), order, 1)
        scales = scale.T.contiguous().half()
        back, back_scale, back_zero = converter._convert_gemm_module(qweight, scales, qzeros)
        values = dequantize(back.to(torch.int8), back_scale.float(), back_zero, int4_args(False), dtype=torch.float32)
        return {"qweight": qweight, "qzeros": qzeros, "scales": scales}, values

    tensors, expected = per_expert(2, 16, 32, make)
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm",
                    "modules_to_not_convert": None}
    write_case("int4_awq", tensors, qwen3_config(2, 16, 32, quantization), expected,
               {"weights": weights("int4", 0, 16, True)})


def int4_gptq(symmetric, version):
    """No package at hand reads GPTQ, so that the packing is written out here: qweight word (k / 8, n) holds code k at bits
    4 (k % 8), qzeros word (g, n / 8) the zero point of row n at bits 4 (n % 8), less one in the first format."""
    torch.manual_seed(29)
    plain = tuple(range(8))

    def make(weight):
        codes, scale, zero = int4_quantised(weight, symmetric, torch.float16)
        stored = zero.numpy().astype(np.int64).T + 8 - (1 if version == 1 else 0)
        parts = {"qweight": pack_words((codes.T + 8).numpy(), plain, 0),
                 "qzeros": pack_words(stored & 15, plain, 1), "scales": scale.T.contiguous().half(),
                 "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // 16}
        return parts, dequantize(codes, scale, zero, int4_args(symmetric), dtype=torch.float32)

    tensors, expected = per_expert(2, 16, 32, make)
    quantization = {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False, "sym": symmetric,
                    "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}
    write_case("int4_gptq" if symmetric else "int4_gptq_v2_asymmetric", tensors, qwen3_config(2, 16, 32, quantization),
               expected, {"weights": weights("int4", 0, 16, not symmetric)})


def main():
    if OUT.exists():
        shutil.rmtree(OUT)
    mixtral_sharded()
    qwen3_moe(torch.bfloat16, "qwen3_moe")
    qwen3_moe(torch.float16, "qwen3_moe_fp16")
    qwen3_vl()
    llama4()
    granite()
    gpt_oss()
    nemotron_h()
    dbrx()
    step3()
    block = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [8, 8], "activation_scheme": "dynamic"}
    fp8("fp8_block", (8, 8), "weight_scale_inv", torch.float32, block)
    fp8("fp8_block_bf16_scales", (8, 8), "weight_scale", torch.bfloat16, block)
    fp8("fp8_tensor", (None, None), "weight_scale", torch.float32,
        {"quant_method": "modelopt", "quant_algo": "FP8", "producer": {"name": "modelopt"}, "ignore": ["lm_head"]})
    fp8("fp8_channel", (1, None), "weight_scale", torch.float32,
        {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "symmetric": True,
                                                          "strategy": "channel"}}}})
    fp8_fused()
    nvfp4("nvfp4_modelopt", True)
    nvfp4("nvfp4_compressed_tensors", False)
    mxfp4_gpt_oss()
    mxfp4_compressed_tensors()
    mxfp4_deepseek_v4()
    mxfp8()
    int4_compressed_tensors(True)
    int4_compressed_tensors(False)
    int4_awq()
    int4_gptq(True, 1)
    int4_gptq(False, 2)
    rows = ",\n ".join(json.dumps(case) for case in CASES)
    (OUT / "cases.json").write_text(f"[{rows}]\n")


if __name__ == "__main__":
    main()
